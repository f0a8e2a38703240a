"""The disk under the coordinator's DIR is full: a start is refused; a job that trains goes on training, says so, and
recovers a lost node once there is room."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import BIN, Cluster

STEPS = 700
COMMAND = [BIN / "minimal", "--steps", STEPS, "--step-ms", 10]


class SmallDisk:
    """A tmpfs of its own, to be filled to the last byte."""

    def __init__(self, mib):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-disk-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(self.path)], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        self.path.rmdir()

    def fill(self):
        with open(self.path / "filler.toml", "ab", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    pass

    def free(self):
        (self.path / "filler.toml").unlink()


def alarms(status):
    return {a["name"]: a["text"] for a in status["alarms"]}


@unittest.skipUnless(os.geteuid() == 0, "mounting a small disk takes root")
class Disk(unittest.TestCase):
    def final_of_undisturbed(self):
        with Cluster("--nodes", 3, command=COMMAND) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            return harness.last_line(cluster.stdout())

    def test_full_at_the_start(self):
        with SmallDisk(4) as disk:
            for words in (["run"], ["coordinator"]):
                done = subprocess.run([harness.LOCUM, *words, "--dir", disk.path / "job", "--nodes", "1", "--", BIN / "minimal"],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"the disk of {disk.path}/job is full: it has not the 8 MiB", done.stderr)
                self.assertIn(f"free space in {disk.path}/job", done.stderr)
                self.assertEqual(list(disk.path.iterdir()), [])

    def test_full_while_a_node_is_lost(self):
        final = self.final_of_undisturbed()
        with SmallDisk(64) as disk:
            with Cluster("--nodes", 3, "--spares", 1, command=COMMAND, directory=disk.path / "job") as cluster:
                cluster.wait_step(30)
                disk.fill()
                full = cluster.wait_status("the alarm", lambda s: "store" in alarms(s))
                self.assertIn("free space in", alarms(full)["store"])
                cluster.wait("the alarm to be shown", lambda: "alarm store" in cluster.stderr())
                on = cluster.wait_step(cluster.made() + 30)
                self.assertEqual([r["worker_pid"] for r in on["ranks"]], [r["worker_pid"] for r in full["ranks"]])
                cluster.kill_node(cluster.node_of_rank(1, on), on)
                waits = cluster.wait_status("the store", lambda s: "store" in s["job"]["waiting_for"])
                self.assertIn("store.db", alarms(waits)["store"])
                time.sleep(2)
                still = cluster.status()
                self.assertIn("store", still["job"]["waiting_for"])
                survivors = [r["worker_pid"] for r in still["ranks"] if r["rank"] != 1]
                disk.free()
                cluster.wait_event("step_resumed", 2)
                after = cluster.wait_status("no alarm", lambda s: "store" not in alarms(s))
                self.assertEqual([r["worker_pid"] for r in after["ranks"] if r["rank"] != 1], survivors)
                self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
                self.assertEqual(harness.last_line(cluster.stdout()), final)
                self.assertEqual(cluster.left_behind(), [])
                cluster.check_account(3, STEPS)
                # Nobody who was alive was blamed for what he could not be told.
                self.assertEqual([e["rank"] for e in cluster.events("fault_detected")], [1])
                self.assertIn("store", [e["details"].get("alarm") for e in cluster.events("alarm_raised")])
                self.assertIn("store", [e["details"].get("alarm") for e in cluster.events("alarm_cleared")])

    def test_full_while_the_coordinator_is_killed(self):
        """The next one is refused at its start, and started again until there is room; then it loses nothing."""
        final = self.final_of_undisturbed()
        with SmallDisk(64) as disk:
            with Cluster("--nodes", 3, "--spares", 1, command=COMMAND, directory=disk.path / "job") as cluster:
                before = cluster.wait_step(30)
                disk.fill()
                cluster.kill_coordinator()
                cluster.wait("the refusal to be told", lambda: "trying again every second" in cluster.stderr())
                self.assertIn("free space in", cluster.stderr())
                time.sleep(1)
                disk.free()
                cluster.wait_event("job_adopted")
                after = cluster.wait_step(cluster.made() + 1)
                self.assertEqual([r["worker_pid"] for r in after["ranks"]], [r["worker_pid"] for r in before["ranks"]])
                cluster.kill_node(cluster.node_of_rank(2, after), after)
                self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
                self.assertEqual(harness.last_line(cluster.stdout()), final)
                cluster.check_account(3, STEPS)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
