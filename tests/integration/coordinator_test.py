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

    def pid_of_coordinator(self, cluster):
        def read():
            path = cluster.dir / "coordinator.json"
            return path.exists() and json.loads(path.read_text())["pid"]
        return read

    def kill_coordinator(self, cluster):
        os.kill(self.pid_of_coordinator(cluster)(), signal.SIGKILL)

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

    def kill_when_told(self, cluster, name, count):
        """Kills the coordinator as soon as `count` lines of its history have this name."""
        pid = harness.wait_for("the coordinator", self.pid_of_coordinator(cluster))
        wanted = f'"name":"{name}"'.encode()
        path = cluster.dir / "events.jsonl"
        harness.wait_for(name, lambda: path.exists() and path.read_bytes().count(wanted) >= count, every=0)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was quicker; the end is to be the same

    def test_killed_at_the_end(self):
        """The end is put on record, then told. The workers' exits are told just before the end."""
        command = [BIN / "minimal", "--steps", 60, "--step-ms", 5]
        for turn in range(4):
            for name, count in (("worker_exited", 2), ("job_finished", 1)):
                with self.subTest(turn=turn, name=name):
                    with Cluster("--nodes", 2, "--grace", "1s", command=command) as cluster:
                        self.kill_when_told(cluster, name, count)
                        self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
                        self.assertEqual(cluster.left_behind(), [])
                        self.assertRegex(harness.last_line(cluster.stdout()), "^final step=60 ")
                        self.assertEqual([e["figures"] for e in cluster.events("job_finished")], [{"exit_status": 0}])
                        self.assertEqual(cluster.status()["job"]["state"], "finished")

    def test_killed_between_record_and_history(self):
        with Cluster("--nodes", 2, command=[BIN / "minimal", "--steps", 20]) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            history = cluster.dir / "events.jsonl"
            whole = history.read_text()
            before = whole[:whole.index("\n", whole.index('"name":"worker_exited"')) + 1]
            self.assertNotIn("job_finished", before)
            history.write_text(before)  # as it was left by one that was killed right then
            for _ in range(2):
                again = cluster.ask("coordinator")
                self.assertEqual(again.returncode, 2)
                self.assertIn("has finished", again.stderr)
                self.assertEqual([e["figures"] for e in cluster.events("job_finished")], [{"exit_status": 0}])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
