"""The coordinator is killed; the job trains on; the next one adopts it, and knows all that counts when a node is lost."""

import json
import os
import signal
import sys
import unittest

import harness
from harness import BIN, Cluster

COMMAND = [BIN / "minimal", "--steps", 500, "--step-ms", 10]


class Coordinator(unittest.TestCase):
    def final_of_undisturbed(self):
        with Cluster("--nodes", 3, command=COMMAND) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            return harness.last_line(cluster.stdout())

    def kill_coordinator(self, cluster):
        os.kill(json.loads((cluster.dir / "coordinator.json").read_text())["pid"], signal.SIGKILL)

    def test_killed_then_a_node_is_lost(self):
        final = self.final_of_undisturbed()
        with Cluster("--nodes", 3, "--spares", 1, command=COMMAND) as cluster:
            before = cluster.wait_step(50)
            self.kill_coordinator(cluster)
            cluster.wait_event("job_adopted")
            after = cluster.wait_status("training under the new coordinator",
                                        lambda s: s["job"]["state"] == "running" and s["job"]["step"] > before["job"]["step"])
            self.assertEqual(after["job"]["generation"], before["job"]["generation"])
            self.assertEqual([r["worker_pid"] for r in after["ranks"]], [r["worker_pid"] for r in before["ranks"]])
            cluster.kill_node(cluster.node_of_rank(1, after), after)
            cluster.wait_event("step_resumed", 2)
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(harness.last_line(cluster.stdout()), final)
            self.assertEqual(cluster.left_behind(), [])

    def test_killed_in_a_recovery(self):
        final = self.final_of_undisturbed()
        with Cluster("--nodes", 3, "--spares", 1, command=COMMAND) as cluster:
            status = cluster.wait_step(50)
            cluster.kill_node(cluster.node_of_rank(1, status), status)
            cluster.wait_event("fault_detected")
            self.kill_coordinator(cluster)
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(harness.last_line(cluster.stdout()), final)
            self.assertEqual(cluster.left_behind(), [])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
