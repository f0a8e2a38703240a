"""The rows of ./dev bench failover beyond a killed node: each kind of failure ten times, and what Locum costs without one.

Times come from the workers' step logs and the history, which use one clock. A row's figure is the time from the failure,
or from the moment training stood still if that is later, until the last rank is connected again (`Connected`), less what
the row names."""

import contextlib
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from locum_job import BIN, LOCUM, ROOT, read_step_log, wait_for

sys.path.insert(0, str(ROOT / "tests/integration"))
from harness import Cluster, processes_with  # noqa: E402
import machines  # noqa: E402

COMMAND = [BIN / "minimal", "--steps", 1000000, "--size", 16 << 20, "--step-ms", 20]
HANG_S = 1.0
CONFIG = f"""
[timeouts]
hang = "{int(HANG_S * 1000)}ms"
[limits]
restarts = 1000000
recoveries = 1000000
[run]
restart_limit = 1000000
restart_delay = "200ms"
restart_delay_max = "200ms"
"""


def stands_still(records, generation, ranks):
    """When the last of the surviving ranks entered the collective that it never left; 0 when none is waiting."""
    pending = [r.collective_ns for r in records if r.generation == generation and r.rank in ranks and not r.committed_ns]
    return max(pending, default=0)


def connected(job, after):
    """When the last rank of the newest generation was connected; waits until it trains."""
    def resumed():
        status = job.status()
        if not status or status["job"]["generation"] <= after or status["job"]["state"] != "running":
            return None
        generation = status["job"]["generation"]
        events = [e for e in job.events("step_resumed") if e["generation"] == generation]
        return generation if events else None
    generation = job.wait("training again", resumed)
    return generation, max(r.connected_ns for r in job.records() if r.generation == generation and r.connected_ns)


def steady(job, spares=1):
    job.wait_status("training with a spare", lambda s: s["job"]["state"] == "running" and s["job"]["spares"] >= spares)
    job.wait_step(job.made() + 3)
    return job.status()


class Kind:
    """One row. `strike` does it to a random rank, and returns when; `less` is what the figure does not count, in ns."""

    name, limit_ms, note = "", None, ""

    def strike(self, job, status, rank):
        raise NotImplementedError

    def less(self, job, since_ns, generation):
        return 0

    def once(self, job, rng):
        status = steady(job)
        time.sleep(rng.random() * 0.3)
        status = job.status()
        rank = rng.choice(status["ranks"])
        survivors = {r["rank"] for r in status["ranks"] if r["node"] != rank["node"]}
        before = status["job"]["generation"]
        struck = self.strike(job, status, rank)
        generation, end = connected(job, before)
        begin = max(struck, stands_still(job.records(), before, survivors))
        return (end - begin - self.less(job, struck, generation)) / 1e6


class WorkerRestart(Kind):
    name, limit_ms = "worker restarted in place", 60
    note = "less the program's start, from the new process to its readiness, and the bytes' transfer"

    def strike(self, job, status, rank):
        now = time.monotonic_ns()
        os.kill(rank["worker_pid"], signal.SIGKILL)
        return now

    def less(self, job, since_ns, generation):
        ready = job.events("worker_ready", since_ns)[0]["monotonic_ns"]
        told = job.events("restart_in_place", since_ns)[0]["monotonic_ns"]
        moved = max(e["figures"]["duration_ns"] for e in job.events("state_migrated", since_ns))
        return ready - told + moved


class WorkerToSpare(Kind):
    name, note = "worker, the spare takes over", "recovery.worker = \"spare\""

    strike = WorkerRestart.strike


class NodeKilled(Kind):
    name = "node by SIGKILL"

    def strike(self, job, status, rank):
        now = time.monotonic_ns()
        job.kill_node(rank["node"], status)
        return now


class Hang(Kind):
    name, note = "hang (SIGSTOP)", f"less timeouts.hang, {HANG_S} s here"

    def strike(self, job, status, rank):
        now = time.monotonic_ns()
        os.kill(rank["worker_pid"], signal.SIGSTOP)
        return now

    def less(self, job, since_ns, generation):
        return int(HANG_S * 1e9)


class CoordinatorAndNode(Kind):
    name = "coordinator and node together"

    def strike(self, job, status, rank):
        now = time.monotonic_ns()
        os.kill(job.coordinator_pid(), signal.SIGKILL)
        job.kill_node(rank["node"], status)
        return now


class LinkDown(Kind):
    name, limit_ms = "link down without reset", 1500

    def __init__(self, pair):
        self.pair = pair

    def strike(self, job, status, rank):
        now = time.monotonic_ns()
        self.pair.link("b", "down")
        return now

    def once(self, job, rng):
        status = steady(job)
        away = {n["name"] for n in status["nodes"] if n["address"] == self.pair.address["b"]}
        ranks = [r for r in status["ranks"] if r["node"] in away]
        if not ranks:  # give it its rank back
            name = next(iter(away))
            job.wait("failback", lambda: job.failback(name).returncode == 0)
            job.wait_status("the rank to be back", lambda s: any(r["node"] in away for r in s["ranks"]))
            status = steady(job)
            ranks = [r for r in status["ranks"] if r["node"] in away]
        time.sleep(rng.random() * 0.3)
        before = status["job"]["generation"]
        survivors = {r["rank"] for r in status["ranks"] if r["node"] not in away}
        struck = self.strike(job, status, ranks[0])
        _, end = connected(job, before)
        begin = max(struck, stands_still(job.records(), before, survivors))
        self.pair.link("b", "up")
        return (end - begin) / 1e6


@contextlib.contextmanager
def local_cluster(extra=""):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(CONFIG + extra)
        config.flush()
        with Cluster("--nodes", 3, "--spares", 1, "--grace", "1s", "--config", config.name, command=COMMAND) as cluster:
            cluster.wait_step(5)
            yield cluster


class LinkedJob(machines.LinkedJob):
    """Its agents keep their directories beside the job's."""

    def step_logs(self):
        return {str(p): read_step_log(p) for p in sorted(self.dir.parent.rglob("*.steps"))}


@contextlib.contextmanager
def linked_cluster(pair):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="locum-link-", dir="/var/tmp"))
    mark = f"LOCUM_TEST_MARK=bench-{os.getpid()}"
    key, value = mark.split("=")
    processes = []

    def start(machine, name, *argv):
        processes.append(pair.start(machine, [LOCUM, *map(str, argv)], directory / f"{name}.out",
                                        dict(os.environ, **{key: value})))
    try:
        job = directory / "job"
        start("a", "coordinator", "coordinator", "--interface", pair.veth["a"], "--port", "7070", "--dir", job, "--nodes", 2,
              "--spares", 1, "--grace", "1s", "--", *COMMAND)
        wait_for("the token", lambda: (job / "token").exists())
        for machine, name in (("a", "node-0"), ("b", "node-1"), ("a", "node-2")):
            start(machine, name, "agent", "--coordinator", "10.77.0.1:7070", "--name", name, "--dir", directory / name,
                  "--interface", pair.veth[machine], "--token-file", job / "token")
        yield LinkedJob(job, pair)
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
        for pid in processes_with(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


def row(kind, job, rng, times, say, verdict):
    figures = sorted(kind.once(job, rng) for _ in range(times))
    say(f"  {kind.name}: median {statistics.median(figures):.1f} ms, worst {figures[-1]:.1f} ms of {times}"
        + (f" ({kind.note})" if kind.note else ""))
    if kind.limit_ms is not None:
        verdict(kind.name + ", median", statistics.median(figures), kind.limit_ms, "ms")


def kinds(args, say, verdict):
    say(f"kinds: {args.times} each, minimal with 16 MB of state; from the failure, or from the moment training stood still, "
        "to the last rank's Connected")
    rng = random.Random(args.seed)
    with local_cluster() as job:
        for kind in (WorkerRestart(), NodeKilled(), Hang(), CoordinatorAndNode()):
            row(kind, job, rng, args.times, say, verdict)
    with local_cluster("[recovery]\nworker = \"spare\"\n") as job:
        row(WorkerToSpare(), job, rng, args.times, say, verdict)
    pair = machines.Machines()
    try:
        with linked_cluster(pair) as job:
            row(LinkDown(pair), job, rng, args.times, say, verdict)
    finally:
        pair.delete()
    say("  torchrun survives the first of these (its figure is in the part `torchrun`); a lost node needs a second machine "
        "and a rendezvous that outlives it, a hang waits for the collective's time-out (30 minutes), a link down too")


# ---- Without a failure ---------------------------------------------------------------------------------------------

GPT = [BIN / "gpt", "--preset", "tiny", "--steps", "100", "--batch", "2", "--seed", "3"]


def seconds(text):
    """The median of a run's steps, and all of them together."""
    words = next(line for line in text.splitlines() if " s here" in line).split()
    return float(words[words.index("median") + 1]), float(words[words.index("in") + 1])


def with_locum():
    with Cluster("--nodes", 2, command=GPT) as cluster:
        assert cluster.wait_exit() == 0, cluster.stderr()
        return seconds(cluster.stdout())


def without():
    meeting = tempfile.mkdtemp(prefix="locum-bench-")
    try:
        ranks = [subprocess.Popen([*map(str, GPT), "--world", "2", "--rank", str(r), "--rendezvous", meeting],
                                  stdout=subprocess.PIPE, text=True) for r in range(2)]
        texts = [process.communicate()[0] for process in ranks]
        return seconds(texts[0])
    finally:
        shutil.rmtree(meeting, ignore_errors=True)


# Two-sided 95 % points of Student's distribution by degrees of freedom, from its quantile function; beyond the last one
# the normal distribution's is near enough.
STUDENT = {9: 2.262, 19: 2.093, 39: 2.023, 59: 2.001, 79: 1.990}


def interval(ratios):
    mean, n = statistics.mean(ratios), len(ratios)
    point = STUDENT.get(n - 1) or next((v for k, v in sorted(STUDENT.items()) if k >= n - 1), 1.96)
    half = point * statistics.stdev(ratios) / math.sqrt(n)
    return mean - half, mean + half


def own_time(process):
    """Seconds of processor time of each thread of a process, added up by thread name (the scheduler's own account)."""
    times = {}
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        name = (task / "comm").read_text().strip()
        times[name] = times.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return times


def accounted(say, seconds_=15):
    """What the processes and threads that Locum adds use while a job trains: part of a pair's difference, but free of its
    noise. What the trainer's own thread does in the library's calls is the part `commit`."""
    with Cluster("--nodes", 2, command=[word if word != "100" else "1000" for word in GPT]) as cluster:
        status = cluster.wait_step(5)
        daemons = [cluster.process.pid, cluster.coordinator_pid()]
        daemons += [node[pid] for node in status["nodes"] for pid in ("keeper_pid", "agent_pid")]
        workers = [rank["worker_pid"] for rank in status["ranks"]]

        def used():
            ours = sum(sum(own_time(pid).values()) for pid in daemons)
            return ours + sum(t for pid in workers for name, t in own_time(pid).items() if name.startswith("locum-"))

        before, begin = used(), time.monotonic()
        time.sleep(seconds_)
        share = (used() - before) / (time.monotonic() - begin) / os.cpu_count()
    say(f"  processor time of all that Locum adds to it: {100 * share:.2f} % of this machine's {os.cpu_count()} cores")
    return share


def cost(args, say, results):
    say("cost without a failure: gpt tiny, 2 ranks, median step of a run with Locum to without, in pairs, ABBA")
    ratios, totals, verdict_text, met = [], [], "not reached", False
    share = accounted(say)
    for block in (args.pairs, 40):
        for i in range(block):
            order = (with_locum, without) if i % 2 == 0 else (without, with_locum)
            times = {run: run() for run in order}
            median, total = (a / b - 1 for a, b in zip(times[with_locum], times[without]))
            ratios.append(median)
            totals.append(total)
        low, high = interval(ratios)
        all_low, all_high = interval(totals)
        say(f"  {len(ratios)} pairs: {100 * statistics.mean(ratios):+.2f} %, 95 % interval {100 * low:+.2f} to {100 * high:+.2f} %; "
            f"all steps together {100 * all_low:+.2f} to {100 * all_high:+.2f} %")
        if high <= 0.01:
            verdict_text, met = "met", True
            break
        if low > 0.01:
            verdict_text = "MISSED"
            break
    results["cost without a failure"] = {"interval": [low, high], "limit": 0.01, "pairs": len(ratios), "met": met,
                                       "processor_share": share}
    say(f"  {verdict_text}: cost without a failure, wanted at most 1 %")


def pss_and_ticks(pids):
    pss = ticks = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                pss += int(line.split()[1]) * 1024
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return pss, ticks


def idle(args, say, verdict):
    """A job whose trainers sleep: what its agents and its coordinator use meanwhile."""
    say("idle: 5 nodes whose workers sleep; processor time over 20 s, and memory (PSS)")
    command = [BIN / "minimal", "--steps", 1000, "--size", 4096, "--step-ms", 5000]
    with Cluster("--nodes", 5, command=command) as cluster:
        status = cluster.wait_step(1)
        agents = [[n["keeper_pid"], n["agent_pid"]] for n in status["nodes"]]
        groups = {"agent with keeper": agents[0], "coordinator": [cluster.coordinator_pid()]}
        before = {name: pss_and_ticks(pids) for name, pids in groups.items()}
        time.sleep(20)
        for name, pids in groups.items():
            pss, ticks = pss_and_ticks(pids)
            core = (ticks - before[name][1]) / os.sysconf("SC_CLK_TCK") / 20
            verdict(f"idle {name}, of a core", core * 100, 0.3, "%")
            verdict(f"idle {name}, memory", pss / 1e6, 50, "MB")
