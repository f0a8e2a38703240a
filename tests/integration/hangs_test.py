"""Who hangs: a worker or an agent that stands for a while or for ever, and a worker that not even SIGKILL ends."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import story
from harness import start_time, wait_for

QUICK = '[timeouts]\nhang = "2s"\npark = "2s"\ncollective = "1s"\n'


class Hangs(story.Story):
    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        story.wait_stopped(pid)

    def test_worker_for_ever_is_restarted_in_place(self):
        with self.cluster(settings=QUICK) as cluster:
            before = cluster.wait_step(20)
            victim = self.worker(1, before)
            self.stop(victim["worker_pid"])
            fault = cluster.wait_event("fault_detected")
            self.assertEqual((fault["rank"], fault["node"]), (1, victim["node"]))
            # Stopped in its collective it is one of many that wait there, and shows itself when the others leave.
            self.assertRegex(fault["reason"], "timeouts.hang|still in its collective")
            self.wait_resumed(cluster, 2)
            after = cluster.status()
            self.assertEqual(self.worker(1, after)["node"], victim["node"])
            self.assertIsNone(start_time(victim["worker_pid"]))
            self.assertEqual(after["job"]["spares"], 1)
            stacks = pathlib.Path(victim["log"]).with_suffix(".stacks").read_text()
            self.assertIn(str(victim["worker_pid"]), stacks)
            self.assert_end(cluster)
            self.assertEqual(cluster.events("spare_activated"), [])
            self.assertEqual(len(cluster.events("fault_detected")), 1)

    def test_worker_for_a_moment_is_left_alone(self):
        with self.cluster(settings=QUICK) as cluster:
            victim = self.worker(1, cluster.wait_step(20))
            self.stop(victim["worker_pid"])
            time.sleep(1)
            os.kill(victim["worker_pid"], signal.SIGCONT)
            self.assert_end(cluster)
            self.assertEqual(self.generations(cluster), [1])

    def test_agent_that_stands_while_its_rank_commits_is_suspect(self):
        self.steps = 500
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            victim = self.node(cluster.node_of_rank(1, before), before)
            self.stop(victim["agent_pid"])
            seen = cluster.wait_status("the node to be suspect", lambda s: self.node(victim["name"], s)["state"] == "suspect")
            self.assertIn(("node_silent", victim["name"]), self.alarms(seen))
            # A survey of another rank proves that training goes on; the silent node's own figures are old.
            step = max(r["step"] for r in seen["ranks"])
            cluster.wait_status("steps meanwhile", lambda s: max(r["step"] for r in s["ranks"]) >= step + 20)
            os.kill(victim["agent_pid"], signal.SIGCONT)
            cluster.wait_status("the node to be healthy", lambda s: self.node(victim["name"], s)["state"] == "healthy"
                                and not self.alarms(s))
            self.assert_end(cluster)
            self.assertEqual(self.generations(cluster), [1])

    def test_agent_and_worker_are_fenced(self):
        self.steps = 600
        with self.cluster() as cluster:
            before = cluster.wait_step(20)
            name = cluster.node_of_rank(1, before)
            agent, worker = self.node(name, before)["agent_pid"], self.worker(1, before)["worker_pid"]
            self.stop(agent)
            self.stop(worker)
            self.wait_resumed(cluster, 2)
            self.assertNotEqual(cluster.node_of_rank(1), name)
            self.assertIsNotNone(start_time(worker))
            os.kill(agent, signal.SIGCONT)
            os.kill(worker, signal.SIGCONT)
            self.assertEqual(cluster.wait_event("node_repaired")["node"], name)
            self.assertIsNone(start_time(worker), "the fenced worker was to be ended")
            self.assertIsNotNone(start_time(agent))
            self.assert_end(cluster)


class HangsInCollective(story.Unruly):
    def test_survivor_that_never_leaves_is_restarted_in_place(self):
        """What `collective` is for: it neither hears the abort nor comes back."""
        once = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-"))
        self.addCleanup(shutil.rmtree, once)
        command = self.command("--do", "stay", "--rank", 2, "--once", once / "once")
        with self.cluster(settings=QUICK, command=command) as cluster:
            before = cluster.wait_step(20)
            stays = self.worker(2, before)
            os.kill(self.worker(1, before)["worker_pid"], signal.SIGKILL)
            self.wait_resumed(cluster, 3)
            after = cluster.status()
            self.assertEqual(self.worker(2, after)["node"], stays["node"])
            self.assertNotEqual(self.worker(2, after)["worker_pid"], stays["worker_pid"])
            self.assert_end(cluster)
            self.assertEqual(cluster.events("spare_activated"), [])


class Frozen:
    """A file system of its own that can be frozen: who writes to it then is not ended by SIGKILL."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-"))
        self.mount = self.dir / "mount"
        self.mount.mkdir()
        self.mounted = self.frozen = False

    def make(self):
        image = self.dir / "image"
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        for words in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(self.mount)]):
            if not shutil.which(words[0]) or subprocess.run(words, capture_output=True).returncode != 0:
                return False
        self.mounted = True
        return bool(shutil.which("fsfreeze"))

    def freeze(self):
        subprocess.run(["fsfreeze", "-f", str(self.mount)], check=True)
        self.frozen = True

    def thaw(self):
        if self.frozen:
            subprocess.run(["fsfreeze", "-u", str(self.mount)], check=True)
        self.frozen = False

    def remove(self):
        self.thaw()
        if self.mounted:
            wait_for("the mount to be free", lambda: subprocess.run(["umount", str(self.mount)],
                                                                    capture_output=True).returncode == 0, 20)
        shutil.rmtree(self.dir)


class Stuck(story.Unruly):
    def test_worker_that_sigkill_does_not_end_is_reported_and_moved(self):
        self.steps = 400
        disk = Frozen()
        self.addCleanup(disk.remove)
        if os.geteuid() != 0 or not disk.make():
            self.skipTest("needs root and loop mounts")
        command = self.command("--do", "write", "--rank", 1, "--file", disk.mount / "file", "--once", disk.dir / "once")
        with self.cluster(settings=QUICK, command=command) as cluster:
            try:
                before = cluster.wait_step(20)
                name, worker = cluster.node_of_rank(1, before), self.worker(1, before)["worker_pid"]
                disk.freeze()
                stuck = cluster.wait_event("worker_stuck")
                self.assertEqual(stuck["node"], name)
                moved = cluster.wait_status("the rank to be moved", lambda s: cluster.node_of_rank(1, s) not in ("", name))
                self.assertIn(("worker_stuck", name), self.alarms(moved))
                self.assertIsNotNone(start_time(worker), "it is held by the kernel")
                told = self.node(name, moved)["usage"]
                cluster.wait_status("the agent to go on reporting", lambda s: self.node(name, s)["connected"]
                                    and self.node(name, s)["usage"] != told)
            finally:
                disk.thaw()
            self.assert_end(cluster)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
