"""The coordinator is killed; the job trains on; the next one adopts it, and knows all that counts when a node is lost."""

import json
import os
import signal
import subprocess
import sys
import unittest

import harness
from harness import BIN, Cluster, Parts

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

    def test_killed_after_its_token_was_deleted(self):
        """The nodes know the old one. Then an agent is lost, which its keeper starts again, and a node."""
        final = self.final_of_undisturbed()
        with Cluster("--nodes", 3, "--spares", 1, command=COMMAND) as cluster:
            before = cluster.wait_step(30)
            token = cluster.dir / "token"
            known = token.read_text()
            token.unlink()
            agent = next(n for n in before["nodes"] if n["name"] == before["ranks"][0]["node"])
            os.kill(agent["agent_pid"], signal.SIGKILL)
            cluster.wait_event("node_connected_again")
            self.kill_coordinator(cluster)
            cluster.wait_event("job_adopted")
            self.assertEqual(token.read_text(), known)
            after = cluster.wait_status("training", lambda s: s["job"]["state"] == "running")
            self.assertEqual([r["worker_pid"] for r in after["ranks"]], [r["worker_pid"] for r in before["ranks"]])
            token.write_text("another\n")
            cluster.kill_node(cluster.node_of_rank(1, after), after)
            cluster.wait_event("step_resumed", 2)
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(harness.last_line(cluster.stdout()), final)
            self.assertEqual(token.read_text(), known)  # for the node that was started again
            self.assertEqual(cluster.left_behind(), [])

    def test_without_its_token_no_job_is_taken_up(self):
        with Parts("--nodes", 2, command=COMMAND) as cluster:
            token = cluster.dir / "token"
            known = token.read_text()
            for name in ("a", "b"):
                cluster.start_agent(name)
            before = cluster.wait_step(30)
            cluster.process.kill()
            cluster.process.wait()
            for name in (*cluster.dir.glob("token*"), cluster.dir / "coordinator.json"):
                name.unlink()
            port = ("--port", cluster.address.rsplit(":", 1)[1])
            refused = cluster.ask("coordinator", *port)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(f"{token} is missing, and the nodes of the unfinished job", refused.stderr)
            self.assertFalse(token.exists())
            # With the one that the nodes know it is taken up, by the same workers.
            (cluster.tmp / "mine").write_text(known)
            with open(cluster.tmp / "err", "ab") as err:
                cluster.process = subprocess.Popen(
                    [harness.LOCUM, "coordinator", "--dir", str(cluster.dir), *port, "--token-file", str(cluster.tmp / "mine")],
                    stdout=err, stderr=err, stdin=subprocess.DEVNULL, env=cluster.environment)
            cluster.wait_event("job_adopted")
            after = cluster.wait_status("training", lambda s: s["job"]["state"] == "running")
            self.assertEqual([r["worker_pid"] for r in after["ranks"]], [r["worker_pid"] for r in before["ranks"]])
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(token.read_text(), known)

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
