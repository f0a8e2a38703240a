"""What died: a worker, the agent alone, the keeper, nodes in each moment that matters. Whatever it was, training ends as if
nothing had been."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import story


class Dies(story.Story):
    def test_worker_is_restarted_in_place(self):
        self.nodes, self.per_node = 2, 2
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            victim, other = self.worker(1, before), self.worker(0, before)
            kept = self.identity(other["worker_pid"])
            self.assertEqual(victim["node"], other["node"])
            os.kill(victim["worker_pid"], signal.SIGKILL)
            self.wait_resumed(cluster, 2)
            after = cluster.status()
            self.assertEqual(self.worker(1, after)["node"], victim["node"])
            self.assertNotEqual(self.worker(1, after)["worker_pid"], victim["worker_pid"])
            self.assertEqual(self.identity(self.worker(0, after)["worker_pid"]), kept)
            self.assertEqual(after["job"]["spares"], 1)
            self.assert_end(cluster)
            self.assertEqual(cluster.events("spare_activated"), [])
            self.assertEqual([e["rank"] for e in cluster.events("state_migrated")], [1])
            self.assertEqual([e["rank"] for e in cluster.events("restart_in_place")], [1])

    def test_agent_alone_is_not_noticed(self):
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            victim = self.node(cluster.node_of_rank(1, before), before)
            workers = {r["rank"]: self.identity(r["worker_pid"]) for r in before["ranks"]}
            os.kill(victim["agent_pid"], signal.SIGKILL)
            cluster.wait_event("node_connected_again")
            after = cluster.wait_status("another agent", lambda s: self.node(victim["name"], s)["agent_pid"]
                                        not in (0, victim["agent_pid"]))
            self.assertEqual(self.node(victim["name"], after)["keeper_pid"], victim["keeper_pid"])
            self.assertEqual({r["rank"]: self.identity(r["worker_pid"]) for r in after["ranks"]}, workers)
            self.assert_end(cluster)
            self.assertEqual(self.generations(cluster), [1])
            self.assertEqual(cluster.events("fault_detected"), [])

    def test_keeper_takes_its_node_with_it(self):
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            victim = self.node(cluster.node_of_rank(1, before), before)
            os.kill(victim["keeper_pid"], signal.SIGKILL)
            self.wait_resumed(cluster, 2)
            self.assertNotEqual(cluster.node_of_rank(1), victim["name"])
            self.assertEqual(cluster.wait_event("node_repaired")["node"], victim["name"])
            self.assert_end(cluster)

    def test_two_nodes_at_once(self):
        self.nodes, self.spares = 4, 2
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            for rank in (1, 3):
                cluster.kill_node(cluster.node_of_rank(rank, before), before)
            self.wait_resumed(cluster, 2)
            self.assert_end(cluster)
            self.assertEqual({e["rank"] for e in cluster.events("spare_activated")}, {1, 3})

    def test_two_nodes_one_second_apart(self):
        self.nodes, self.spares = 4, 2
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            cluster.kill_node(cluster.node_of_rank(0, before), before)
            time.sleep(1)
            cluster.kill_node(cluster.node_of_rank(2, before), before)
            self.assert_end(cluster)
            self.assertLessEqual({0, 2}, {e["rank"] for e in cluster.events("fault_detected")})
            self.assertGreaterEqual(max(self.generations(cluster)), 3)


class DiesInTransfer(story.Story):
    """With a state so large that its transfer can be caught in the middle: the receiver is stopped there, so that at least one
    chunk is there and one is outstanding."""

    steps, size, step_ms, spares = 24, 128 << 20, 10, 2

    def setUp(self):
        text = pathlib.Path("/proc/meminfo").read_text()
        free = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable"))
        if free < 4 << 20:
            self.skipTest("needs 4 GB of free memory")

    def catch_transfer(self, cluster, rank, generation):
        """Stops the worker that pulls for `rank` in the middle; its pid and its node."""
        cluster.wait("the spare to be told", lambda: [e for e in cluster.events("recovery_step_fixed")
                                                      if e["generation"] == generation])
        taker = next(e["node"] for e in cluster.events("spare_activated") if e["rank"] == rank)
        pid = next(w["pid"] for w in self.node(taker, self.seen)["workers"])
        while True:
            os.kill(pid, signal.SIGSTOP)
            story.wait_stopped(pid)
            most = max(story.received(pid), default=0)
            self.assertLess(most, self.size, "the transfer was too fast to be caught")
            if most > 1 << 20:
                return pid, taker
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.001)

    def lose_a_node(self, cluster, rank):
        self.seen = cluster.wait_step(2)
        self.seen = cluster.wait_status("all spares", lambda s: s["job"]["spares"] == self.spares)
        cluster.every = 0.001
        cluster.kill_node(cluster.node_of_rank(rank, self.seen), self.seen)

    def source_of(self, pid):
        """The pid of the worker that serves it."""
        ports = set()
        text = subprocess.run(["ss", "-tnpHO"], capture_output=True, text=True).stdout
        lines = [line.split() for line in text.splitlines()]
        peers = {words[4] for words in lines if f"pid={pid}," in words[-1]}
        for words in lines:
            if words[3] in peers:
                for other in self.seen["ranks"]:
                    if f"pid={other['worker_pid']}," in words[-1]:
                        ports.add(other["worker_pid"])
        return ports

    def test_spare_while_it_receives(self):
        with self.cluster() as cluster:
            self.lose_a_node(cluster, 2)
            _, taker = self.catch_transfer(cluster, 2, 2)
            self.kill_whole_node(cluster, taker, self.seen)
            self.wait_resumed(cluster, 3)
            self.assertNotEqual(cluster.node_of_rank(2), taker)
            self.assert_end(cluster)

    def test_source_while_it_sends(self):
        self.nodes = 4
        with self.cluster() as cluster:
            self.lose_a_node(cluster, 3)
            pid, _ = self.catch_transfer(cluster, 3, 2)
            sources = self.source_of(pid)
            self.assertTrue(sources)
            for source in sources:
                os.kill(source, signal.SIGKILL)
            os.kill(pid, signal.SIGCONT)
            self.wait_resumed(cluster, 3)
            self.assert_end(cluster)

    def test_last_holder_but_one_while_it_sends(self):
        with self.cluster() as cluster:
            self.lose_a_node(cluster, 2)
            pid, _ = self.catch_transfer(cluster, 2, 2)
            sources = self.source_of(pid)
            self.assertEqual(len(sources), 1)
            rank = next(r for r in self.seen["ranks"] if r["worker_pid"] in sources)
            cluster.kill_node(rank["node"], self.seen)
            os.kill(pid, signal.SIGCONT)
            self.wait_resumed(cluster, 3)
            self.assert_end(cluster)
            self.assertLessEqual({2, rank["rank"]}, {e["rank"] for e in cluster.events("spare_activated")})


class DiesInAMove(story.Story):
    def lose_and_repair(self, cluster, rank):
        before = cluster.wait_step(20)
        lost = cluster.node_of_rank(rank, before)
        cluster.kill_node(lost, before)
        self.wait_resumed(cluster, 2)
        cluster.wait_event("node_repaired")
        return lost, cluster.wait_status("the node as a spare", lambda s: self.node(lost, s)["role"] == "spare")

    def test_node_dies_when_its_failback_begins(self):
        self.steps = 500
        with self.cluster() as cluster:
            lost, status = self.lose_and_repair(cluster, 1)
            cluster.every = 0.001
            self.assertEqual(cluster.failback(lost).returncode, 0)
            self.kill_whole_node(cluster, lost, status)
            cluster.wait("the move to end", lambda: cluster.events("failback_cancelled") + cluster.events("failback_done"))
            self.assert_end(cluster)

    def test_node_dies_while_it_takes_its_rank_back(self):
        self.steps, self.size, self.step_ms = 250, 32 << 20, 20
        with self.cluster() as cluster:
            lost, status = self.lose_and_repair(cluster, 1)
            holder = cluster.node_of_rank(1, status)
            cluster.every = 0.001
            pid = self.node(lost, status)["workers"][0]["pid"]
            os.kill(pid, signal.SIGSTOP)  # so that it is still at it
            self.assertEqual(cluster.failback(lost).returncode, 0)
            cluster.wait_event("ranks_parked")
            self.kill_whole_node(cluster, lost, status)
            cancelled = cluster.wait_event("failback_cancelled")
            self.wait_resumed(cluster, cancelled["generation"])
            self.assertEqual(cluster.node_of_rank(1), holder)
            self.assert_end(cluster)

    def test_node_returns_while_its_rank_is_moved(self):
        with self.cluster(settings='[run]\nrestart_delay = "1ms"\n') as cluster:
            before = cluster.wait_step(20)
            lost = cluster.node_of_rank(1, before)
            spare = next(n for n in before["nodes"] if n["role"] == "spare")
            taker = spare["workers"][0]["pid"]
            os.kill(taker, signal.SIGSTOP)  # the move takes as long as the return
            joined = len([e for e in cluster.events("node_joined") if e["node"] == lost])
            cluster.kill_node(lost, before)
            cluster.wait("its return", lambda: [e for e in cluster.events("node_joined") if e["node"] == lost][joined:])
            cluster.wait_event("spare_activated")
            os.kill(taker, signal.SIGCONT)
            self.wait_resumed(cluster, 2)
            self.assertEqual(cluster.node_of_rank(1), spare["name"])
            self.assertEqual(cluster.wait_event("node_repaired")["node"], lost)
            self.assert_end(cluster)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
