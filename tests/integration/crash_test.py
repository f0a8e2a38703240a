"""The coordinator is killed at each moment of a recovery, together with a node, and twice; or stopped for a while. It
comes back, and nothing is lost, nobody healthy is blamed, and never do two gangs train."""

import os
import signal
import sys
import tempfile
import time
import unittest

import harness
from harness import BIN, Cluster, wait_for

STEPS = 100
WORLD = 3
COMMAND = [BIN / "minimal", "--steps", STEPS, "--step-ms", 10]
MOST = 60  # crash points of one recovery; far more than there are


class Crash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Cluster("--nodes", WORLD, command=COMMAND) as cluster:
            assert cluster.wait_exit() == 0, cluster.stderr()
            cls.final = harness.last_line(cluster.stdout())

    def cluster(self, **more):
        return Cluster("--nodes", WORLD, "--spares", 1, command=COMMAND, **more)

    def check_end(self, cluster, lost=()):
        self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
        self.assertEqual(harness.last_line(cluster.stdout()), self.final)
        cluster.check_account(WORLD, STEPS)
        self.check_one_gang(cluster)
        self.assertLessEqual({e["node"] for e in cluster.events("fault_detected")}, set(lost))
        self.assertEqual(cluster.left_behind(), [])

    def check_one_gang(self, cluster):
        """No generation commits a step after a higher one has committed one."""
        first = {}
        records = [r for r in cluster.records() if r.kind == 1 and r.committed_ns]
        for r in records:
            first[r.generation] = min(first.get(r.generation, r.committed_ns), r.committed_ns)
        for r in records:
            for generation, began in first.items():
                if generation > r.generation:
                    self.assertLessEqual(r.committed_ns, began, f"generation {r.generation} goes on beside {generation}")

    def test_every_crash_point_of_a_recovery(self):
        for point in range(1, MOST):
            with self.subTest(point=point), tempfile.TemporaryDirectory(prefix="locum-test-") as tmp:
                mark = os.path.join(tmp, "crashed")
                with self.cluster(env={"LOCUM_CRASH_AT": f"{point}:{mark}"}) as cluster:
                    status = cluster.wait_step(10)
                    lost = cluster.node_of_rank(1, status)
                    cluster.kill_node(lost, status)
                    self.check_end(cluster, [lost])
                    crashed = os.path.exists(mark)
                    starts = [e["term"] for e in cluster.events("coordinator_started")]
                    # With the job's end on record there is nothing left to do for another one.
                    self.assertIn(starts, [[1, 2], [1]] if crashed else [[1]])
            if not crashed:
                self.assertGreater(point, 4)  # intent, R, end; and orders
                print(f"a recovery, to the end of its job, has {point - 1} crash points")
                return
        self.fail(f"a recovery reaches crash point {MOST}")

    def test_killed_together_with_a_node(self):
        with self.cluster() as cluster:
            status = cluster.wait_step(10)
            lost = cluster.node_of_rank(0, status)
            cluster.kill_coordinator()
            cluster.kill_node(lost, status)
            self.check_end(cluster, [lost])

    def test_killed_twice_in_a_row(self):
        with self.cluster() as cluster:
            status = cluster.wait_step(10)
            lost = cluster.node_of_rank(1, status)
            cluster.kill_node(lost, status)
            first = cluster.coordinator_pid()
            os.kill(first, signal.SIGKILL)
            wait_for("the next coordinator", lambda: cluster.coordinator_pid() not in (None, first), every=0.001)
            cluster.kill_coordinator()
            self.check_end(cluster, [lost])

    def pause(self, cluster, meanwhile=lambda: None):
        pid = cluster.coordinator_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(1)
            meanwhile()
            time.sleep(4)
        finally:
            os.kill(pid, signal.SIGCONT)

    def test_paused(self):
        command = [BIN / "minimal", "--steps", 700, "--step-ms", 10]
        with Cluster("--nodes", WORLD, "--spares", 1, command=command) as cluster:
            before = cluster.wait_step(10)
            self.pause(cluster)
            after = cluster.wait_step(before["job"]["step"] + 100)
            self.assertEqual(after["job"]["generation"], before["job"]["generation"])
            self.assertEqual([r["worker_pid"] for r in after["ranks"]], [r["worker_pid"] for r in before["ranks"]])
            self.assertEqual({n["state"] for n in after["nodes"]}, {"healthy"})
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            cluster.check_account(WORLD, 700)
            self.assertEqual(cluster.events("fault_detected"), [])

    def test_paused_while_a_node_is_lost(self):
        with self.cluster() as cluster:
            status = cluster.wait_step(10)
            lost = cluster.node_of_rank(2, status)
            self.pause(cluster, lambda: cluster.kill_node(lost, status))
            self.check_end(cluster, [lost])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
