"""The coordinator's database is deleted, and the coordinator killed: its successor is a stranger to the nodes. They train
on; an operator lets it take them over; then it is their coordinator like any other."""

import subprocess
import sys
import unittest

import harness
from harness import BIN, Cluster

STEPS = 600
COMMAND = [BIN / "minimal", "--steps", STEPS, "--step-ms", 10]


class Database(unittest.TestCase):
    def test_deleted_then_taken_over_then_a_node_is_lost(self):
        with Cluster("--nodes", 3, command=COMMAND) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            final = harness.last_line(cluster.stdout())
        with Cluster("--nodes", 3, "--spares", 1, command=COMMAND) as cluster:
            before = cluster.wait_step(30)
            old = cluster.coordinator_pid()
            for path in cluster.dir.glob("store.db*"):
                path.unlink()
            cluster.kill_coordinator()
            cluster.wait("the next coordinator", lambda: cluster.coordinator_pid() not in (None, old))
            stranger = cluster.wait_status("the operator to be asked", lambda s: "locum adopt" in s["job"]["waiting_for"] and
                                           sum(n["connected"] for n in s["nodes"]) == 4)
            self.assertEqual({a["name"] for a in stranger["alarms"]} & {"node_of_other_cluster"}, {"node_of_other_cluster"})
            self.assertIn("locum adopt", cluster.ask("status").stdout)
            # Training goes on, by the same processes.
            pids = [r["worker_pid"] for r in before["ranks"]]
            self.assertTrue(all(harness.start_time(pid) for pid in pids))
            made = len(cluster.records())
            cluster.wait("steps without a coordinator", lambda: len(cluster.records()) > made + 60)
            self.assertEqual(len(list(cluster.dir.glob("inputs-*.log"))), 2)

            adopted = cluster.ask("adopt")
            self.assertEqual(adopted.returncode, 0, adopted.stderr)
            cluster.wait_event("job_taken_over")
            after = cluster.wait_status("training under it", lambda s: s["job"]["state"] == "running" and
                                        s["job"]["generation"] > before["job"]["generation"] and s["job"]["spares"] == 1)
            self.assertEqual([r["worker_pid"] for r in after["ranks"]], pids)
            self.assertEqual(after["job"]["id"], before["job"]["id"])
            self.assertGreater(after["job"]["term"], before["job"]["term"])
            self.assertEqual(cluster.ask("adopt").returncode, 1)

            cluster.kill_node(cluster.node_of_rank(1, after), after)
            cluster.wait_event("step_resumed", 3)
            # And it is on record again.
            cluster.kill_coordinator()
            cluster.wait_event("job_adopted")
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(harness.last_line(cluster.stdout()), final)
            cluster.check_account(3, STEPS)
            self.assertEqual(cluster.left_behind(), [])
            self.assertEqual(cluster.ask("status").returncode, 0)
            # Each of its three coordinators decides the same again.
            again = subprocess.run([harness.LOCUM, "replay", str(cluster.dir)], capture_output=True, text=True)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(again.stdout.count("all as they were"), 3, again.stdout)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
