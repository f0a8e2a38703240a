"""A job of `minimal` beside the one that nothing disturbed: what a test may do to it in between, and how it must end."""

import functools
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

import harness
from harness import BIN, Cluster, wait_for


@functools.lru_cache(maxsize=None)
def undisturbed(world, steps, size):
    """The final line and the losses of an undisturbed run. They do not depend on how long a step takes."""
    with Cluster("--nodes", world, command=[BIN / "minimal", "--steps", steps, "--size", size]) as cluster:
        assert cluster.wait_exit() == 0, cluster.stderr()
        losses, commits, _ = harness.account(cluster.step_logs().values())
        assert set(commits) == {(r, s) for r in range(world) for s in range(steps)}
        return harness.last_line(cluster.stdout()), losses


def read_pss(pid):
    """In kB; 0 when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


class Story(unittest.TestCase):
    """Steps of 10 ms, a state of 1 MiB, one rank a node; a test says what differs."""

    nodes, spares, per_node, steps, size, step_ms = 3, 1, 1, 250, 1 << 20, 10
    program = "minimal"

    def command(self, *more):
        return [BIN / self.program, "--steps", self.steps, "--size", self.size, "--step-ms", self.step_ms, *more]

    def config(self, text):
        """The path of a file with these settings, for the time of the test."""
        directory = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-"))
        self.addCleanup(shutil.rmtree, directory)
        (directory / "locum.toml").write_text(text)
        return directory / "locum.toml"

    def cluster(self, *args, settings=None, command=None, **more):
        if settings:
            args = ("--config", self.config(settings), *args)
        return Cluster("--nodes", self.nodes, "--spares", self.spares, "--nproc-per-node", self.per_node, *args,
                       command=command or self.command(), **more)

    def worker(self, rank, status):
        return next(r for r in status["ranks"] if r["rank"] == rank)

    def node(self, name, status):
        return next(n for n in status["nodes"] if n["name"] == name)

    def kill_whole_node(self, cluster, name, status):
        """Also one whose workers hold no rank."""
        cluster.kill_node(name, status)
        for w in self.node(name, status)["workers"]:
            try:
                os.kill(w["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass  # its reaper was quicker

    def identity(self, pid):
        return pid, harness.start_time(pid)

    def alarms(self, status):
        return {(a["name"], a["node"]) for a in status["alarms"]}

    def wait_resumed(self, job, generation):
        return job.wait("a step of every rank in a generation from %d on" % generation,
                        lambda: [e for e in job.events("step_resumed") if e["generation"] >= generation])[0]

    def generations(self, job):
        return [e["generation"] for e in job.events("generation_started")]

    def assert_end(self, cluster):
        """It ended as if nothing had been."""
        self.assertEqual(cluster.wait_exit(), 0, cluster.stderr())
        self.assertEqual(cluster.left_behind(), [])
        self.assertEqual(cluster.stdout().count("final step="), 1)
        self.assert_result(harness.last_line(cluster.stdout()), cluster.step_logs().values())

    def assert_result(self, final, logs):
        world = self.nodes * self.per_node
        expected, losses_expected = undisturbed(world, self.steps, self.size)
        self.assertEqual(final, expected)
        losses, commits, made = harness.account(logs)
        everything = {(r, s) for r in range(world) for s in range(self.steps)}
        self.assertEqual(everything - made, set(), "(rank, step) that nobody made")
        self.assertEqual(made - everything, set())
        self.assertEqual(losses, {key: losses_expected[key] for key in losses}, "a loss differs from the undisturbed run's")
        # What is not there twice is there as a pulled result; a whole step is never only pulled.
        self.assertEqual({s for _, s in commits}, set(range(self.steps)))


def received(pid):
    """Bytes that came in over each TCP connection of a process."""
    text = subprocess.run(["ss", "-tinpHO"], capture_output=True, text=True).stdout
    counts = []
    for line in text.splitlines():
        if f"pid={pid}," in line:
            counts += [int(word.split(":")[1]) for word in line.split() if word.startswith("bytes_received:")]
    return counts


def stopped(pid):
    """Every thread of it stands."""
    states = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            text = pathlib.Path(f"/proc/{pid}/task/{task}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        states.append(text.rsplit(")", 1)[1].split()[0])
    return all(state == "T" for state in states)


def wait_stopped(pid):
    wait_for(f"process {pid} to stand", lambda: stopped(pid), 10, 0.001)


class Unruly(Story):
    """The same with tests/programs/unruly, whose end is known beforehand: state s is a function of s."""

    program, steps, size = "unruly", 200, 4096

    def assert_result(self, final, logs):
        world = self.nodes * self.per_node
        ranks = sum(r + 1 for r in range(world))
        total = sum(s + 1 for s in range(self.steps)) * ranks * (self.size // 8)
        self.assertEqual(final, f"final step={self.steps} sum={total}")
        losses, commits, made = harness.account(logs)
        self.assertEqual(made, {(r, s) for r in range(world) for s in range(self.steps)})
        expected = {(r, s): {struct.unpack("<q", struct.pack("<d", float((s + 1) * ranks)))[0]}
                    for r in range(world) for s in range(self.steps)}
        unsigned = {key: {b & (2**64 - 1) for b in bits} for key, bits in expected.items()}
        self.assertEqual({k: {b & (2**64 - 1) for b in v} for k, v in losses.items()}, {k: unsigned[k] for k in losses})
        self.assertEqual({s for _, s in commits}, set(range(self.steps)))
