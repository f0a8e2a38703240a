"""SIGKILL of a worker at 200 random moments. Three of four come after the job has made a step since the last one, the fourth may
come within the recovery."""

import os
import pathlib
import random
import signal
import sys
import tempfile
import time
import unittest

import harness
from harness import BIN, Cluster

WORLD, STEPS = 3, 1500
KILLS = 50  # in each of the four runs
SEED = int(os.environ.get("LOCUM_TEST_SEED", "1"))


class RandomKills(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory(prefix="locum-kills-")
        self.addCleanup(tmp.cleanup)
        self.config = pathlib.Path(tmp.name) / "locum.toml"
        self.config.write_text("[limits]\nrestarts = 1000\nrecoveries = 1000\n")

    def command(self, flags):
        return [BIN / "minimal", "--steps", STEPS, "--size", 1 << 16, "--step-ms", 2, *flags]

    def undisturbed(self):
        with Cluster("--nodes", WORLD, command=self.command([])) as cluster:
            self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
            return harness.last_line(cluster.stdout()), harness.account(cluster.step_logs().values())[0]

    def kill_some(self, cluster, rng):
        """Kills KILLS times, or fewer where the job ends before; returns how often."""
        killed = 0
        while killed < KILLS:
            resumed = len(cluster.events("step_resumed"))
            status = cluster.wait_status("every rank to have a worker", lambda s: s["job"]["state"] == "finished" or (
                s["job"]["state"] == "running" and len(s["ranks"]) == WORLD and all(r["worker_pid"] for r in s["ranks"])))
            if status["job"]["state"] == "finished":
                break
            victim = rng.choice(status["ranks"])["worker_pid"]
            time.sleep(rng.random() * 0.02)
            try:
                os.kill(victim, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
            if killed % 4:
                cluster.wait("a step after the kill", lambda: len(cluster.events("step_resumed")) > resumed
                             or cluster.process.poll() is not None)
        return killed

    def run_with(self, name, *flags):
        final, losses = self.undisturbed()
        rng = random.Random(f"{SEED} {name}")
        kills = 0
        for _ in range(2):
            with Cluster("--nodes", WORLD, "--spares", 1, "--config", self.config, command=self.command(flags)) as cluster:
                kills += self.kill_some(cluster, rng)
                self.assertEqual(cluster.wait_exit(), 0, f"seed {SEED}: {cluster.stderr()}")
                self.assertEqual(cluster.left_behind(), [])
                self.assertEqual(harness.final_lines(cluster.stdout()), [final], f"seed {SEED}")
                made_losses, _, made = harness.account(cluster.step_logs().values())
                self.assertEqual(made, {(r, s) for r in range(WORLD) for s in range(STEPS)}, f"seed {SEED}")
                self.assertEqual(made_losses, {key: losses[key] for key in made_losses}, f"seed {SEED}")
                self.assertEqual(cluster.events("spare_activated"), [])
        self.assertEqual(kills, 2 * KILLS, "the job was too short for its kills")
        print(f"{kills} kills, seed {SEED}", file=sys.stderr)

    def test_with_an_abort_call(self):
        self.run_with("abort")

    def test_without_an_abort_call(self):
        self.run_with("no abort", "--no-abort")


if __name__ == "__main__":
    unittest.main()
