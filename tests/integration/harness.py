"""Runs real clusters for the tests: `locum run` or its parts, real kills, and what they leave behind."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from locum_job import BIN, DEADLINE, LOCUM, Failed, Job, account, final_lines, last_line, read_step_log, wait_for  # noqa: E402, F401


def start_time(pid):
    """Field 22 of /proc/PID/stat: with the pid it names one process for good. None when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else int(fields[19])


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


def keep(directory):
    """What a failed test leaves, for whoever looks into it: the files below /tmp/locum-failed, the last events here."""
    kept = pathlib.Path(tempfile.gettempdir()) / "locum-failed" / "-".join([pathlib.Path(sys.argv[0]).stem, *sys.argv[1:2]])
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(directory, kept, symlinks=True, ignore=lambda d, names: [n for n in names if n.endswith(".sock")])
    print(f"--- kept in {kept}")
    for events in sorted(kept.rglob("events.jsonl")):
        print(f"--- {events}, its last lines:", *events.read_text(errors="replace").splitlines()[-60:], sep="\n", flush=True)


class Cluster(Job):
    """One `locum run` in a directory of its own. Use as a context manager: it leaves nothing running."""

    count = 0
    subcommand = "run"

    def __init__(self, *args, command, cwd=None, env=None, directory=None):
        Cluster.count += 1
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="locum-test-"))
        super().__init__(directory or self.tmp / "job")
        self.mark = f"LOCUM_TEST_MARK={os.getpid()}-{Cluster.count}-{time.monotonic_ns()}"
        self.shm_before = shared_memory()
        environment = dict(os.environ, **(env or {}))
        key, value = self.mark.split("=")
        environment[key] = value
        with open(self.tmp / "out", "wb") as out, open(self.tmp / "err", "wb") as err:
            self.process = subprocess.Popen(
                [LOCUM, self.subcommand, "--dir", str(self.dir), *map(str, args), "--", *map(str, command)], stdout=out,
                stderr=err, stdin=subprocess.DEVNULL, env=environment, cwd=cwd or self.tmp, start_new_session=True)
        self.environment = environment

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
            print(f"--- standard error of locum run:\n{self.stderr()[-4000:]}")
            keep(self.tmp)
        shutil.rmtree(self.tmp, ignore_errors=True)
        return False

    def coordinator_pid(self):
        """None before it has said where it listens."""
        try:
            return json.loads((self.dir / "coordinator.json").read_text())["pid"]
        except (FileNotFoundError, ValueError):
            return None

    def kill_coordinator(self, number=signal.SIGKILL):
        os.kill(self.coordinator_pid(), number)

    def check_account(self, world, steps):
        """Every (rank, step) was made, and whoever made it again made the same."""
        losses, _, made = account(self.step_logs().values())
        missing = {(r, s) for r in range(world) for s in range(steps)} - made
        if missing:
            raise Failed(f"never made: {sorted(missing)[:10]}")
        differ = {key: bits for key, bits in losses.items() if len(bits) > 1}
        if differ:
            raise Failed(f"made twice with two results: {differ}")

    def stdout(self):
        return (self.tmp / "out").read_text(errors="replace")

    def stderr(self):
        return (self.tmp / "err").read_text(errors="replace")

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


class Parts(Cluster):
    """The same by its parts: a coordinator on loopback, and agents that the test starts itself."""

    subcommand = "coordinator"

    def __init__(self, *args, command, **more):
        super().__init__(*args, command=command, **more)
        self.agents = {}
        self.address = self.wait("the coordinator's address", self.told_address)

    def told_address(self):
        try:
            return json.loads((self.dir / "coordinator.json").read_text())["address"]
        except (FileNotFoundError, ValueError):
            return None

    def start_agent(self, name):
        with open(self.tmp / f"{name}.out", "ab") as out:
            self.agents[name] = subprocess.Popen(
                [LOCUM, "agent", "--coordinator", self.address, "--name", name, "--dir", str(self.tmp / name), "--token-file",
                 str(self.dir / "token")], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.environment,
                cwd=self.tmp, start_new_session=True)
        return self.agents[name]

    def __exit__(self, *error):
        done = super().__exit__(*error)
        for agent in self.agents.values():
            agent.wait(30)
        return done

    def wait_exit(self, deadline=DEADLINE):
        status = super().wait_exit(deadline)
        for agent in self.agents.values():
            agent.wait(deadline)
        return status

    def stdout(self):
        return "".join(p.read_text(errors="replace") for p in sorted(self.tmp.rglob("worker-*.log")))

    def step_logs(self):
        return {str(p.relative_to(self.tmp)): read_step_log(p) for p in sorted(self.tmp.rglob("*.steps"))}
