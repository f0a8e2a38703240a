"""Nothing is left behind: after success, failure, Ctrl-C at any moment, and SIGKILL of `locum run`."""

import contextlib
import os
import pathlib
import random
import signal
import sys
import time
import unittest

import harness
from harness import BIN, Cluster, processes_with, start_time, wait_for

MINIMAL = [BIN / "minimal", "--steps", 100000, "--step-ms", 5]
# A data loader as they are in the field: a session of its own, deaf to SIGTERM, outliving its parent.
LOADER = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000' &) ; "


class Clean(unittest.TestCase):
    def assert_clean(self, cluster, within):
        try:
            wait_for("nothing to be left behind", lambda: not cluster.left_behind(), within)
        except harness.Failed:
            self.assertEqual(cluster.left_behind(), [])

    def test_success(self):
        with Cluster("--nodes", 2, "--spares", 1, command=[BIN / "minimal", "--steps", 30]) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(cluster.left_behind(), [])
            self.assertEqual(cluster.status()["job"]["state"], "finished")

    def test_failure(self):
        with Cluster("--nodes", 2, command=["sh", "-c", "sleep 0.2; exit 7"]) as cluster:
            self.assertEqual(cluster.wait_exit(), 7, cluster.stderr())
            self.assertEqual(cluster.left_behind(), [])

    def test_command_that_fails_at_once(self):
        with Cluster("--nodes", 2, command=["/bin/false"]) as cluster:
            self.assertEqual(cluster.wait_exit(), 1, cluster.stderr())
            self.assertEqual(cluster.left_behind(), [])
            (failed,) = cluster.events("job_failed")
            self.assertIn("'/bin/false'", failed["reason"])
            self.assertIn("exit status 1", failed["reason"])
            self.assertIn(failed["reason"], cluster.stderr())
            # Nothing that one more try could mend: each worker ran once, on a node that was started once.
            for name in ("node-0", "node-1"):
                agents = {e["incarnations"]["agent"] for e in cluster.events("node_joined") if e["node"] == name}
                self.assertLessEqual(len(agents), 1)
                self.assertLessEqual(len(list((cluster.dir / "nodes" / name).glob("worker-*.log"))), 1)
                self.assertLessEqual(len([e for e in cluster.events("worker_exited") if e["node"] == name]), 1)
            self.assertNotIn("starting it again", cluster.stderr())

    def test_children_that_hide(self):
        script = LOADER + f"exec {BIN / 'minimal'} --steps 40 --step-ms 5"
        with Cluster("--nodes", 2, command=["sh", "-c", script]) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(cluster.left_behind(), [])

    def test_interrupt_at_fifty_moments(self):
        seed = int(os.environ.get("LOCUM_TEST_SEED", "1"))
        moments = random.Random(seed)
        grace = 1.0
        for i in range(50):
            after = moments.uniform(0, 1.6)
            which = moments.choice([signal.SIGINT, signal.SIGTERM])
            command = MINIMAL if i % 5 else ["sh", "-c", LOADER + "exec " + " ".join(map(str, MINIMAL))]
            with self.subTest(seed=seed, moment=i, after=after):
                with Cluster("--nodes", 2, "--spares", 1, "--grace", "1s", command=command) as cluster:
                    time.sleep(after)
                    cluster.process.send_signal(which)
                    status = cluster.wait_exit(grace + 2 + 10)  # a loaded machine is slower; the bench measures
                    self.assertIn(status, (130, 143, -2, -15), cluster.stderr())
                    self.assertEqual(cluster.left_behind(), [])

    def test_sigkill_of_run(self):
        for after in (0.05, 0.3, 1.0, 2.0):
            with self.subTest(after=after):
                with Cluster("--nodes", 2, "--spares", 1, "--grace", "1s", command=MINIMAL) as cluster:
                    time.sleep(after)
                    cluster.process.kill()
                    cluster.process.wait()
                    self.assert_clean(cluster, 20)

    def kill_keeper(self, cluster, *with_it):
        """Of the node with rank 1, and of that node nothing else. Returns its socket."""
        status = cluster.wait_step(10)
        name = cluster.node_of_rank(1, status)
        socket = cluster.dir / "nodes" / name / "keeper.sock"
        self.assertTrue(socket.is_socket())
        for pid in (*with_it, next(n["keeper_pid"] for n in status["nodes"] if n["name"] == name)):
            os.kill(pid, signal.SIGKILL)
        return socket

    def test_sigkill_of_a_keeper(self):
        command = [BIN / "minimal", "--steps", 200, "--step-ms", 10]
        with Cluster("--nodes", 2, "--spares", 1, "--no-restart", command=command) as cluster:
            socket = self.kill_keeper(cluster)
            wait_for("its socket to go while the job runs", lambda: cluster.ended() or not socket.exists())
            self.assertFalse(cluster.ended())
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            self.assertEqual(cluster.left_behind(), [])

    def test_reapers_killed_with_their_node(self):
        """Nobody is left who could end the worker's hidden child, but for the next keeper of the directory."""
        script = LOADER + f"exec {BIN / 'minimal'} --steps 100000 --step-ms 5"
        with Cluster("--nodes", 2, "--spares", 1, "--grace", "1s", command=["sh", "-c", script]) as cluster:
            status = cluster.wait_step(10)
            name = cluster.node_of_rank(1, status)
            node = next(n for n in status["nodes"] if n["name"] == name)
            of_node = processes_with(f"LOCUM_SOCKET={cluster.dir}/nodes/{name}/keeper.sock")
            worker = next(r["worker_pid"] for r in status["ranks"] if r["node"] == name)
            hidden = [pid for pid in of_node if pid != worker]
            self.assertTrue(hidden)
            born = {pid: start_time(pid) for pid in hidden}
            reaper = int(pathlib.Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
            pids = [reaper, node["keeper_pid"], node["agent_pid"], worker]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # the worker goes with its reaper
                    os.kill(pid, signal.SIGKILL)
            self.assertEqual([start_time(pid) for pid in hidden], [born[pid] for pid in hidden])
            cluster.wait_event("node_repaired")
            self.assertEqual([pid for pid in hidden if start_time(pid) == born[pid]], [])
            self.assertFalse(cluster.ended())

    def test_sigkill_of_run_and_a_keeper(self):
        with Cluster("--nodes", 2, "--spares", 1, "--no-restart", "--grace", "1s", command=MINIMAL) as cluster:
            socket = self.kill_keeper(cluster)
            wait_for("its socket to go", lambda: not socket.exists())
            cluster.process.kill()
            cluster.process.wait()
            self.assert_clean(cluster, 20)
        with Cluster("--nodes", 2, "--spares", 1, "--grace", "1s", command=MINIMAL) as cluster:
            self.kill_keeper(cluster, cluster.process.pid)
            cluster.process.wait()
            self.assert_clean(cluster, 20)

    def test_second_interrupt_kills_at_once(self):
        deaf = ["sh", "-c", "trap '' TERM INT; while :; do sleep 1; done"]
        with Cluster("--nodes", 2, "--grace", "60s", command=deaf) as cluster:
            time.sleep(1)
            cluster.process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            self.assertIsNone(cluster.process.poll())
            cluster.process.send_signal(signal.SIGINT)
            cluster.wait_exit(30)
            self.assert_clean(cluster, 20)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
