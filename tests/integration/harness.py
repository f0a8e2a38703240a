"""Runs real clusters for the tests: `locum run` or its parts, real kills, and what they leave behind."""

import collections
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def start_time(pid):
    """Field 22 of /proc/PID/stat: with the pid it names one process for good. None when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else int(fields[19])


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


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def processes_with(mark):
    """Pids of all processes (zombies apart) whose environment holds `mark`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and mark.encode() in environment_of(entry):
            if start_time(entry) is not None:
                found.append(int(entry))
    return found


def shared_memory():
    return sorted(os.listdir("/dev/shm"))


class StepRecord:
    FORMAT = struct.Struct("<IIQQQqqqq")

    def __init__(self, raw):
        (self.kind, self.rank, self.step, self.generation, self.loss_bits, self.entered_ns, self.collective_ns,
         self.connected_ns, self.committed_ns) = self.FORMAT.unpack(raw)


def read_step_log(path):
    raw = pathlib.Path(path).read_bytes()
    assert raw[:8] == b"LOCSTEP1", path
    records = []
    for at in range(4096, len(raw) - 63, 64):
        record = StepRecord(raw[at:at + 64])
        if record.kind == 0:
            break
        records.append(record)
    return records


class Cluster:
    """One `locum run` in a directory of its own. Use as a context manager: it leaves nothing running."""

    count = 0

    def __init__(self, *args, command, keep=False, cwd=None, env=None):
        Cluster.count += 1
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-"))
        self.dir = self.tmp / "job"
        self.mark = f"LOCUM_TEST_MARK={os.getpid()}-{Cluster.count}-{time.monotonic_ns()}"
        self.shm_before = shared_memory()
        environment = dict(os.environ, **(env or {}))
        key, value = self.mark.split("=")
        environment[key] = value
        with open(self.tmp / "out", "wb") as out, open(self.tmp / "err", "wb") as err:
            self.process = subprocess.Popen(
                [LOCUM, "run", "--dir", str(self.dir), *map(str, args), "--", *map(str, command)], stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, env=environment, cwd=cwd or self.tmp, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in processes_with(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if kind is not None:
            keep = pathlib.Path(os.environ.get("LOCUM_TEST_KEEP", "/tmp/locum-failed"))
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(self.tmp, keep, symlinks=True, ignore=lambda d, names: [n for n in names if n.endswith(".sock")])
            print(f"--- kept in {keep}; standard error of locum run:\n{self.stderr()[-4000:]}")
        shutil.rmtree(self.tmp, ignore_errors=True)
        return False

    def stdout(self):
        return (self.tmp / "out").read_text(errors="replace")

    def stderr(self):
        return (self.tmp / "err").read_text(errors="replace")

    def status(self):
        """None while nobody answers."""
        done = subprocess.run([LOCUM, "status", "--dir", str(self.dir), "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else None

    def events(self, name=None):
        path = self.dir / "events.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")
        events = [json.loads(line) for line in lines[:-1] if line]
        return [e for e in events if name is None or e["name"] == name]

    def wait_status(self, what, condition, deadline=DEADLINE):
        def check():
            if self.process.poll() is not None:
                raise Failed(f"locum run ended with {self.process.returncode} while waiting for: {what}\n{self.stderr()}")
            status = self.status()
            return status if status and condition(status) else None
        return wait_for(what, check, deadline)

    def wait_step(self, step):
        return self.wait_status(f"step {step}", lambda s: s["job"]["step"] >= step)

    def wait_event(self, name, count=1, deadline=DEADLINE):
        return wait_for(f"event {name} ({count})", lambda: (self.events(name)[count - 1:] or None), deadline)[0]

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

    def failback(self, name):
        return subprocess.run([LOCUM, "failback", name, "--dir", str(self.dir)], capture_output=True, text=True)

    def step_logs(self):
        """Every record of every worker of every node, by file."""
        return {str(p.relative_to(self.dir)): read_step_log(p) for p in sorted(self.dir.rglob("*.steps"))}

    def left_behind(self):
        """What a run must not leave: processes, shared memory, sockets, temporary files."""
        left = []
        for pid in processes_with(self.mark):
            try:
                left.append(f"process {pid}: {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended since it was listed
        left += [f"/dev/shm/{name}" for name in shared_memory() if name not in self.shm_before]
        for path in self.tmp.rglob("*"):
            if path.is_socket() or path.name.endswith((".tmp", ".part")):
                left.append(str(path))
        return left


def last_line(text):
    lines = [line for line in text.splitlines() if line.startswith("final ")]
    return lines[-1] if lines else ""
