"""A worker fails at a chosen moment of its step and is started again in its place: no spare is used, no other worker is
another process, and training is, bit for bit, what it would have been."""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest

import harness
from harness import BIN, Cluster, wait_for

STEPS, WORLD, MIDDLE = 12, 3, 5
COMMAND = [BIN / "minimal", "--steps", STEPS, "--size", 1 << 18, "--step-ms", 5]
EVERYTHING = {(r, s) for r in range(WORLD) for s in range(STEPS)}


class Base(unittest.TestCase):
    undisturbed = None
    flags = []

    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="locum-moments-"))
        self.addCleanup(shutil.rmtree, self.tmp)
        if Base.undisturbed is None:
            with Cluster("--nodes", WORLD, command=COMMAND) as cluster:
                self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
                losses, commits, _ = harness.account(cluster.step_logs().values())
                self.assertEqual(set(commits), EVERYTHING)
                Base.undisturbed = harness.last_line(cluster.stdout()), losses

    def cluster(self, hook="", *flags, config="", before=()):
        """`hook`: see examples/minimal/hooks.h; its files are in self.tmp."""
        (self.tmp / "locum.toml").write_text(config)
        return Cluster("--nodes", WORLD, "--spares", 1, "--config", self.tmp / "locum.toml", command=[*before, *COMMAND, *self.flags, *flags],
                       env={"LOCUM_MINIMAL_HOOK": hook, "LOCUM_MINIMAL_HOOK_DIR": str(self.tmp)})

    def acted(self, i=0):
        return (self.tmp / f"{i}.acted").exists()

    def wait_acted(self, cluster, i=0):
        cluster.wait(f"hook {i} to act", lambda: self.acted(i))

    def release(self, i=0):
        (self.tmp / f"{i}.hold").unlink()

    def check_end(self, cluster, *restarted):
        """`restarted`: the ranks whose worker was to be replaced on its node, in this order."""
        self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
        self.assertEqual(cluster.left_behind(), [])
        final, undisturbed = Base.undisturbed
        self.assertEqual(harness.final_lines(cluster.stdout()), [final])
        losses, _, made = harness.account(cluster.step_logs().values())
        self.assertEqual(made, EVERYTHING)
        self.assertEqual(losses, {key: undisturbed[key] for key in losses}, "a loss differs from the undisturbed run's")
        self.assertEqual(cluster.events("spare_activated"), [])
        self.assertEqual([e["rank"] for e in cluster.events("worker_replaced")], list(restarted))
        nodes = [e["details"] for e in cluster.events("generation_started")]
        self.assertTrue(all(n == nodes[0] for n in nodes), nodes)
        # Each worker leaves a step log: nobody but the restarted ranks had a second one.
        workers = {}
        for name in cluster.step_logs():
            node = name.split("/")[1]
            workers[node] = workers.get(node, 0) + 1
        expected = {f"node-{i}": 1 + restarted.count(i) for i in range(WORLD + 1)}
        self.assertEqual(workers, expected)

    def kill_while_others_wait(self, cluster, rank):
        """Of `rank`, held in the forward of MIDDLE by hook 0, once all others have entered the collective of that step."""
        self.wait_acted(cluster)
        cluster.wait("the others to wait in their collective", lambda: len(
            {r.rank for r in cluster.records() if r.step == MIDDLE and r.rank != rank and r.collective_ns}) == WORLD - 1)
        status = cluster.wait_status("its pid", lambda s: len(s["ranks"]) == WORLD and s["ranks"][rank]["worker_pid"])
        os.kill(status["ranks"][rank]["worker_pid"], signal.SIGKILL)

    def strike(self, rank, step, place, action="kill"):
        with self.subTest(rank=rank, step=step, place=place, action=action):
            for file in self.tmp.glob("*.acted"):
                file.unlink()
            with self.cluster(f"{rank}:{step}:{place}:{action}") as cluster:
                self.check_end(cluster, rank)
                self.assertTrue(self.acted())


class Moments(Base):
    def test_killed_in_the_middle(self):
        for rank, places in ((1, ["forward", "collective", "reduced", "update", "updated", "committed"]),
                             (0, ["collective", "update", "updated"])):
            for place in places:
                self.strike(rank, MIDDLE, place)

    def test_killed_in_the_first_step(self):
        for place in ("forward", "collective", "updated"):
            self.strike(1, 0, place)
        self.strike(0, 0, "reduced")

    def test_killed_in_the_last_step(self):
        for rank, place in ((0, "forward"), (1, "collective"), (0, "update"), (1, "updated")):
            self.strike(rank, STEPS - 1, place)

    def test_killed_after_the_last_commit(self):
        for rank in (0, 1):
            self.strike(rank, STEPS - 1, "committed")
            self.strike(rank, STEPS, "finish")

    def test_exception_in_the_update(self):
        self.strike(1, MIDDLE, "update", "throw")
        self.strike(0, 0, "update", "throw")

    def test_fault_of_its_own_outside_the_update(self):
        self.strike(1, MIDDLE, "forward", "throw")
        self.strike(1, MIDDLE, "updated", "segv")
        self.strike(1, MIDDLE, "committed", "exit3")

    def test_killed_during_finish(self):
        """It waits in Finish for a rank that is held back."""
        for rank, other in ((1, 2), (0, 1)):
            with self.subTest(rank=rank):
                for file in self.tmp.glob("*.acted"):
                    file.unlink()
                with self.cluster(f"{other}:{STEPS}:finish:hold") as cluster:
                    self.wait_acted(cluster)
                    # Between the last commit and the wait in Finish there is nothing but a few calls.
                    status = cluster.wait_status("the others to have come to the end", lambda s: all(
                        r["step"] == STEPS for r in s["ranks"] if r["rank"] != other))
                    time.sleep(0.02)
                    os.kill(next(r["worker_pid"] for r in status["ranks"] if r["rank"] == rank), signal.SIGKILL)
                    cluster.wait_event("worker_replaced")
                    self.release()
                    self.check_end(cluster, rank)

    def test_survivors_a_step_apart(self):
        """One rank has the sum of a step and is held back; the others have committed it when one of them is killed."""
        for held, killed in ((2, 1), (1, 0), (0, 2)):
            with self.subTest(held=held, killed=killed):
                for file in self.tmp.glob("*.acted"):
                    file.unlink()
                hook = f"{held}:{MIDDLE}:reduced:hold;{killed}:{MIDDLE + 1}:forward:hold"
                with self.cluster(hook) as cluster:
                    self.wait_acted(cluster, 1)
                    self.assertTrue((self.tmp / "0.hold").exists())
                    cluster.wait("both others to have committed", lambda: len(
                        {r.rank for r in cluster.records() if r.step == MIDDLE and r.committed_ns}) == 2)
                    status = cluster.wait_status("its pid", lambda s: any(r["rank"] == killed for r in s["ranks"]))
                    os.kill(next(r["worker_pid"] for r in status["ranks"] if r["rank"] == killed), signal.SIGKILL)
                    cluster.wait_event("worker_replaced")
                    self.release()
                    self.check_end(cluster, killed)
                    pulled = {(r.rank, r.step) for r in cluster.records() if r.kind == 2}
                    self.assertIn((held, MIDDLE), pulled)

    def test_stopped_for_a_moment(self):
        """Nothing happens: the same workers in the same generation."""
        with self.cluster(f"1:{MIDDLE}:collective:stop") as cluster:
            self.wait_acted(cluster)
            status = cluster.wait_status("a status", lambda s: s["ranks"])
            pid = next(r["worker_pid"] for r in status["ranks"] if r["rank"] == 1)
            wait_for("the stop", lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
            os.kill(pid, signal.SIGCONT)
            self.check_end(cluster)
            self.assertEqual(cluster.events("fault_detected"), [])

    def test_stopped_for_ever_in_its_collective(self):
        """All wait, so nobody holds the others up; its node tells that it does not answer."""
        with self.cluster(f"1:{MIDDLE}:collective:stop", config='[timeouts]\nfreeze = "1s"\n') as cluster:
            self.check_end(cluster, 1)
            fault, = cluster.events("fault_detected")
            self.assertIn("does not answer its node", fault["reason"])

    def test_stopped_for_ever_in_its_collective_by_the_deadline_of_a_regroup(self):
        config = '[timeouts]\nhang = "1s"\ncollective = "500ms"\nfreeze = "1m"\n'
        with self.cluster(f"1:{MIDDLE}:collective:stop", config=config) as cluster:
            self.check_end(cluster, 1)
            fault, = cluster.events("fault_detected")
            self.assertIn("was still in its collective 500 ms", fault["reason"])
            self.assertEqual(len(list((cluster.dir / "nodes").glob("*/*.stacks"))), 1)

    def test_survivor_that_never_leaves_its_collective(self):
        """It is killed by its node when timeouts.collective has passed, and started again in its place as well."""
        with self.cluster(f"1:{MIDDLE}:forward:hold", "--deaf", 2, config='[timeouts]\ncollective = "500ms"\n') as cluster:
            self.kill_while_others_wait(cluster, 1)
            self.check_end(cluster, 1, 2)
            self.assertIn("was still in its collective 500 ms", cluster.events("fault_detected")[1]["reason"])
            self.assertEqual(len(list((cluster.dir / "nodes").glob("*/*.stacks"))), 1)

    def test_survivors_that_never_leave_and_a_program_that_starts_slowly(self):
        """Both would be killed before anyone else holds the state; one is kept until its peers have it."""
        slowly = ["sh", "-c", f'mkdir "{self.tmp}/$(echo "$LOCUM_SOCKET" | cksum)" || sleep 3; exec "$@"', "sh"]
        with self.cluster(f"1:{MIDDLE}:forward:hold", "--deaf", 0, "--deaf", 2, before=slowly,
                          config='[timeouts]\ncollective = "500ms"\n') as cluster:
            self.kill_while_others_wait(cluster, 1)
            self.check_end(cluster, 1, 2, 0)

    def test_second_failure_while_all_survivors_are_late(self):
        """A worker, or the agent of one that is late: nobody may run before all have come back, or the next ones are late too."""
        for what in ("worker", "agent"):
            with self.subTest(what=what):
                for file in self.tmp.glob("*.acted"):
                    file.unlink()
                config = '[timeouts]\ncollective = "500ms"\n'
                with self.cluster(f"0:{MIDDLE}:forward:hold", "--deaf", 0, "--deaf", 1, "--deaf", 2, config=config) as cluster:
                    self.kill_while_others_wait(cluster, 0)
                    status = cluster.wait_status("three ranks", lambda s: len(s["ranks"]) == WORLD and s["ranks"][2]["worker_pid"])
                    time.sleep(0.2)
                    agent = next(n["agent_pid"] for n in status["nodes"] if n["name"] == status["ranks"][2]["node"])
                    os.kill(status["ranks"][2]["worker_pid"] if what == "worker" else agent, signal.SIGKILL)
                    self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
                    self.assertEqual(harness.final_lines(cluster.stdout()), [Base.undisturbed[0]])
                    self.assertEqual(cluster.left_behind(), [])


class NoAbort(Base):
    """Without an abort call, in plain system calls: the library breaks survivors out by their connections. Rank 0 adds up
    for all; so when another is lost, the rest wait for rank 0, which is alive and has only left."""

    flags = ["--no-abort"]

    def test_worker_killed(self):
        for rank, step, place in ((1, 0, "collective"), (2, MIDDLE, "forward"), (0, MIDDLE, "collective")):
            self.strike(rank, step, place)

    def test_node_killed(self):
        with self.cluster(f"1:{MIDDLE}:collective:hold") as cluster:
            self.wait_acted(cluster)
            before = cluster.wait_status("three ranks", lambda s: all(r["worker_pid"] for r in s["ranks"]))
            cluster.kill_node("node-1", before)
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(harness.final_lines(cluster.stdout()), [Base.undisturbed[0]])
            self.assertEqual([e["rank"] for e in cluster.events("spare_activated")], [1])
            self.assertEqual({e["node"] for e in cluster.events("fault_detected")}, {"node-1"})
            for node in ("node-0", "node-2"):
                self.assertEqual(len([name for name in cluster.step_logs() if name.split("/")[1] == node]), 1)
            self.assertEqual(cluster.left_behind(), [])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
