"""Running out: of spares, of holders of the state, of luck with a program that fails by itself."""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

import story
from harness import Parts, start_time


class NoSpare(story.Story):
    """Agents are started by hand, so that none comes back by itself."""

    spares = 0

    def parts(self, agents, settings='[timeouts]\ngather = "1s"\n', command=None):
        parts = Parts("--config", self.config(settings), "--nodes", self.nodes, "--spares", self.spares,
                      command=command or self.command())
        for i in range(agents):
            parts.start_agent(f"node-{i}")
        return parts

    def lose(self, parts, rank):
        before = parts.wait_step(20)
        name = parts.node_of_rank(rank, before)
        kept = {r["rank"]: self.identity(r["worker_pid"]) for r in before["ranks"] if r["rank"] != rank}
        parts.kill_node(name, before)
        parts.agents[name].wait()
        waits = parts.wait_status("the job to wait", lambda s: s["job"]["waiting_for"])
        self.assertEqual(waits["job"]["waiting_for"], f"a spare to take rank {rank}")
        return kept

    def test_survivors_wait_for_an_agent(self):
        with self.parts(3) as parts:
            kept = self.lose(parts, 1)
            alarmed = parts.wait_status("the alarm", lambda s: ("job_waits", "") in self.alarms(s))
            self.assertIn("waiting for a spare to take rank 1", parts.ask("status").stdout)
            survivors = [r for r in alarmed["ranks"] if r["rank"] != 1]
            self.assertEqual({r["rank"]: self.identity(r["worker_pid"]) for r in survivors}, kept)
            self.assertEqual(len({r["step"] for r in parts.status()["ranks"] if r["rank"] != 1}), 1)
            parts.start_agent("late")
            self.wait_resumed(parts, 2)
            after = parts.status()
            self.assertEqual(parts.node_of_rank(1, after), "late")
            self.assertEqual({r["rank"]: self.identity(r["worker_pid"]) for r in after["ranks"] if r["rank"] != 1}, kept)
            parts.wait_status("the alarm to go", lambda s: ("job_waits", "") not in self.alarms(s))
            self.assert_end(parts)

    def test_more_agents_than_needed_join_at_once(self):
        with self.parts(3) as parts:
            self.lose(parts, 1)
            for i in range(5):
                parts.start_agent(f"late-{i}")
            self.wait_resumed(parts, 2)
            self.assertIn("late", parts.node_of_rank(1))
            self.assert_end(parts)
            self.assertEqual(len(parts.events("spare_activated")), 1)

    def test_more_agents_than_needed_at_the_start(self):
        with self.parts(7) as parts:
            status = parts.wait_step(20)
            self.assertEqual(len({r["node"] for r in status["ranks"]}), self.nodes)
            status = parts.wait_status("all others as spares", lambda s: s["job"]["spares"] == 4)
            self.assertEqual(sorted(n["role"] for n in status["nodes"]), 3 * ["active"] + 4 * ["spare"])
            self.assert_end(parts)
            self.assertEqual(self.generations(parts), [1])


class StateLost(story.Story):
    def assert_lost(self, cluster):
        self.assertEqual(cluster.wait_exit(), 80, cluster.stderr())
        self.assertEqual(cluster.left_behind(), [])
        ended = cluster.events("job_failed")[-1]
        self.assertIn("no live worker holds a complete copy", ended["reason"])
        for rank in (0, 1):
            self.assertRegex(ended["reason"], rf"rank {rank} on node-\d: [^;]*{self.how}")
        self.assertIn("state is lost", cluster.stderr())
        self.assertEqual(cluster.stdout(), "")

    def test_all_workers_dead_ends_with_80(self):
        self.nodes, self.how = 2, "SIGKILL"
        with self.cluster() as cluster:
            status = cluster.wait_step(20)
            for r in status["ranks"]:
                os.kill(r["worker_pid"], signal.SIGKILL)
            self.assert_lost(cluster)

    def test_all_nodes_dead_ends_with_80(self):
        self.nodes, self.how = 2, "(started again|silent|stream)"
        with self.cluster() as cluster:
            status = cluster.wait_step(20)
            for r in status["ranks"]:
                cluster.kill_node(r["node"], status)
            self.assert_lost(cluster)


class OwnFault(story.Unruly):
    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-"))
        self.addCleanup(shutil.rmtree, self.tmp)

    def test_program_that_fails_on_two_nodes_ends_with_81(self):
        for what, how in (("abort", "SIGABRT"), ("exit3", "exit status 3")):
            with self.subTest(what), self.cluster(command=self.command("--do", what, "--rank", 1, "--at", 20)) as cluster:
                self.assertEqual(cluster.wait_exit(), 81, cluster.stderr())
                self.assertEqual(cluster.left_behind(), [])
                reason = cluster.events("job_failed")[-1]["reason"]
                self.assertIn("the program's own fault: rank 1", reason)
                self.assertIn(how, reason)
                faults = cluster.events("fault_detected")
                self.assertEqual({f["rank"] for f in faults}, {1})
                self.assertEqual(len({f["node"] for f in faults}), 2)
                self.assertTrue(all(f["node"] in reason for f in faults[-2:]))
                log = next(word for word in reason.split() if word.endswith(".log"))
                self.assertTrue(pathlib.Path(log).exists())

    def test_rank_that_exits_because_a_peer_broke_is_not_blamed(self):
        self.nodes, self.steps, self.spares = 3, 300, 2
        with self.cluster(command=self.command("--do", "leave", "--rank", 1)) as cluster:
            for generation in (1, 2, 3):
                status = cluster.wait_status("every rank to train", lambda s: s["job"]["state"] == "running" and
                                             s["job"]["step"] >= 20 * generation and len(s["ranks"]) == 3)
                os.kill(self.worker(2, status)["worker_pid"], signal.SIGKILL)
                running = status["job"]["generation"]
                self.wait_resumed(cluster, running + 1)
            self.assert_end(cluster)
            self.assertIn("exit status 4", {e["reason"].split(": ")[-1] for e in cluster.events("fault_detected")})


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
