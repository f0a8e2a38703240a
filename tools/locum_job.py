"""A job as tools and tests see it from outside: its directory (events, step logs) and what `locum status` says.

Everything here only reads, but for kill_node and failback. A wait for what is in the files looks once more after
`locum run` has ended, then fails at once instead of waiting in vain; a status counts only while it runs, for its pids
are other processes' soon after."""

import collections
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("LOCUM_BIN", ROOT / "build/release/bin"))
LOCUM = str(BIN / "locum")
DEADLINE = float(os.environ.get("LOCUM_TEST_DEADLINE", "120"))  # of one wait; generous, it only ends hangs


class Failed(AssertionError):
    pass


def wait_for(what, condition, deadline=DEADLINE, every=0.02):
    """The condition's first true value; Failed, with `what`, when it does not come."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"waited {deadline} s in vain for: {what}")
        time.sleep(every)


class StepRecord:
    """docs/formats.md, "Step log"."""

    FORMAT = struct.Struct("<IIQQQqqqq")

    def __init__(self, raw):
        (self.kind, self.rank, self.step, self.generation, self.loss_bits, self.entered_ns, self.collective_ns,
         self.connected_ns, self.committed_ns) = self.FORMAT.unpack(raw)


def read_step_log(path):
    records = []
    with open(path, "rb") as file:
        head = file.read(4096)
        if not head[:8].strip(b"\0"):
            return []  # its worker is just making it
        assert head[:8] == b"LOCSTEP1", path
        while True:  # the file is as long from the start as it may ever be
            raw = file.read(1 << 16)
            for at in range(0, len(raw) - 63, 64):
                record = StepRecord(raw[at:at + 64])
                if record.kind == 0:
                    return records
                records.append(record)
            if len(raw) < 1 << 16:
                return records


def account(logs):
    """What the step logs of a job say: losses {(rank, step): set of loss bits of committed attempts}, how often each was
    committed, and whether each (rank, step) was made: committed, or its result pulled from another rank. A rank that is
    lost or frozen between its last collective and its commit is the second."""
    losses, commits, made = collections.defaultdict(set), collections.Counter(), set()
    for records in logs:
        for r in records:
            if r.kind == 1 and r.committed_ns:
                losses[r.rank, r.step].add(r.loss_bits)
                commits[r.rank, r.step] += 1
            if r.kind == 2 or r.committed_ns:
                made.add((r.rank, r.step))
    return losses, commits, made


def last_commits(records):
    """When the last rank had made its first commit among these records."""
    first = {}
    for r in records:
        if r.committed_ns:
            first[r.rank] = min(first.get(r.rank, r.committed_ns), r.committed_ns)
    return max(first.values())


def final_lines(text):
    return [line for line in text.splitlines() if line.startswith("final ")]


def last_line(text):
    return (final_lines(text) or [""])[-1]


class Job:
    """The job in a directory. `process` is the `locum run` behind it, if there is one."""

    process = None
    every = 0.02  # seconds between two looks

    def __init__(self, directory):
        self.dir = pathlib.Path(directory)

    def ask(self, *words):
        """Runs `locum WORDS` about this job."""
        return subprocess.run([LOCUM, *words, "--dir", str(self.dir)], capture_output=True, text=True)

    def status(self):
        """None while nobody answers."""
        done = self.ask("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else None

    def failback(self, name):
        return self.ask("failback", name)

    def events(self, name=None, after_ns=0):
        path = self.dir / "events.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")
        events = [json.loads(line) for line in lines[:-1] if line]
        return [e for e in events if name in (None, e["name"]) and e["monotonic_ns"] >= after_ns]

    def step_logs(self):
        """Every record of every worker of every node, by file."""
        return {str(p.relative_to(self.dir)): read_step_log(p) for p in sorted(self.dir.rglob("*.steps"))}

    def records(self):
        return [r for log in self.step_logs().values() for r in log]

    def ended(self):
        return self.process is not None and self.process.poll() is not None

    def wait(self, what, condition, deadline=DEADLINE):
        def check():
            over = self.ended()
            value = condition()
            if over and not value:
                raise Failed(f"locum run ended with status {self.process.returncode} before: {what}")
            return value
        return wait_for(what, check, deadline, self.every)

    def wait_status(self, what, condition, deadline=DEADLINE):
        def check():
            status = None if self.ended() else self.status()
            return status if status and condition(status) else None
        return self.wait(what, check, deadline)

    def made(self):
        """The newest state that every rank has made, by their step logs: what a status says is up to a heartbeat old."""
        newest = collections.Counter()
        for r in self.records():
            if r.kind == 2 or r.committed_ns:
                newest[r.rank] = max(newest[r.rank], r.step + 1)
        return min(newest.values(), default=0)

    def wait_step(self, step):
        """A status with every rank's worker, once the job has come that far; its step is that of the step logs."""
        self.wait(f"step {step}", lambda: self.made() >= step)
        status = self.wait_status("every rank's worker", lambda s: s["ranks"] and all(r["worker_pid"] for r in s["ranks"]))
        status["job"]["step"] = max(status["job"]["step"], self.made())
        return status

    def wait_event(self, name, count=1, after_ns=0, deadline=DEADLINE):
        return self.wait(f"event {name} ({count})", lambda: self.events(name, after_ns)[count - 1:], deadline)[0]

    def wait_exit(self, deadline=DEADLINE):
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise Failed(f"locum run has not ended within {deadline} s") from None

    def node_of_rank(self, rank, status=None):
        return next(r["node"] for r in (status or self.status())["ranks"] if r["rank"] == rank)

    def kill_node(self, name, status=None):
        """Keeper, agent and workers by SIGKILL together."""
        status = status or self.status()
        node = next(n for n in status["nodes"] if n["name"] == name)
        pids = [node["keeper_pid"], node["agent_pid"]]
        pids += [r["worker_pid"] for r in status["ranks"] if r["node"] == name]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # its reaper was quicker
        return pids
