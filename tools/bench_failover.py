#!/usr/bin/python3
"""./dev bench failover: how long a failover takes, against named limits and peers measured in the same run.

  recovery    median of 30 kills of a node at random moments, 4 ranks + 1 spare, about 100 MB of state: last rank's Connected
              minus max(SIGKILL, last survivor's entry into its pending collective) minus the bytes at the iperf3 rate;
              at most 100 ms
  torchrun    one worker of 4 killed, the same GPT, batch and threads, torchrun with a checkpoint at every step: from SIGKILL to
              the last rank's first commit after it, less an undisturbed step; at least 20 times faster
  migration   1 GB into touched memory, survivors parked: at least 80 % of an iperf3 stream
  kinds       each kind of failure ten times, median and worst: worker restarted in place (at most 60 ms beside the program's
              own start and the transfer), node killed, hang, coordinator and node together, link down without reset
              (at most 1.5 s from the moment training stands still)
  cost        without a failure: time of a step with Locum to without, in pairs; 95 % interval at most 1 %
  idle        an agent with its keeper, a coordinator with 5 nodes: each at most 0.3 % of a core and 50 MB
  commit      10,000 empty updates: at most 20 us at p99, no system call

  ./dev bench failover [--kills N] [--only PART] [--json FILE] [--seed S]

Exit status 1 if a limit is missed.
"""

import argparse
import json
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

import failover_kinds
from locum_job import BIN, ROOT, last_commits, wait_for

sys.path.insert(0, str(ROOT / "tests/integration"))
from harness import Cluster  # noqa: E402

PORT = 52043
results = {}


def say(text=""):
    print(text, flush=True)


def verdict(name, figure, limit, unit, at_most=True):
    """Prints a figure against its limit, and keeps both."""
    met = figure <= limit if at_most else figure >= limit
    results[name] = {"figure": figure, "limit": limit, "unit": unit, "met": met}
    say(f"  {'met   ' if met else 'MISSED'} {name}: {figure:.2f} {unit}, wanted {'<=' if at_most else '>='} {limit} {unit} "
        f"(ratio to the limit {figure / limit:.2f})")


def iperf3():
    """Bytes per second of one TCP stream over loopback, as received."""
    server = subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", str(PORT)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        done = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", str(PORT), "-t", "3", "--json"], capture_output=True,
                              text=True, timeout=30)
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8
    finally:
        server.terminate()
        server.wait()


def one_kill(cluster, rng, seen):
    """Kills the node of a random rank. The survivors' and the newcomer's times come from the step logs."""
    cluster.wait_status("a spare and training", lambda s: s["job"]["state"] == "running" and s["job"]["spares"] >= 1)
    cluster.wait_step(cluster.made() + 2)
    time.sleep(rng.random() * 1.5)
    status = cluster.status()
    generation = status["job"]["generation"]
    rank = rng.randrange(4)
    killed_ns = time.monotonic_ns()
    cluster.kill_node(cluster.node_of_rank(rank, status), status)
    cluster.wait_event("step_resumed", seen + 1)
    new = [r for r in cluster.records() if r.generation > generation and r.connected_ns]
    last_generation = max(r.generation for r in new)
    connected = max(r.connected_ns for r in new if r.generation == last_generation)
    pending = [r for r in cluster.records() if r.generation == generation and r.rank != rank and not r.committed_ns]
    entered = max([r.collective_ns for r in pending], default=0)
    moved = [e for e in cluster.events("state_migrated") if e["generation"] == last_generation]
    bytes_moved = max(e["figures"]["bytes"] for e in moved)
    return connected - max(killed_ns, entered), bytes_moved, last_generation - generation


def recovery(args):
    say(f"recovery: {args.kills} kills, seed {args.seed}")
    rng = random.Random(args.seed)
    before = iperf3()
    spans = []
    command = [BIN / "gpt", "--preset", "small", "--steps", 1000000, "--batch", 1]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write("[run]\nrestart_limit = 1000\nrestart_delay_max = \"1s\"\n")
        config.flush()
        with Cluster("--nodes", 4, "--spares", 1, "--grace", "1s", "--config", config.name, command=command) as cluster:
            cluster.wait_step(2)
            for i in range(args.kills):
                span, size, generations = one_kill(cluster, rng, i + 1)
                spans.append((span, size))
                say(f"  kill {i + 1:2}: connected after {span / 1e6:6.1f} ms, {size / 1e6:.1f} MB"
                    + (f", {generations} generations" if generations > 1 else ""))
    rate = (before + iperf3()) / 2
    net = sorted((span - size / rate * 1e9) / 1e6 for span, size in spans)
    say(f"  iperf3 {rate * 8 / 1e9:.1f} Gbit/s; net of the bytes: min {net[0]:.1f}, median {statistics.median(net):.1f}, "
        f"max {net[-1]:.1f} ms")
    verdict("recovery, median", statistics.median(net), 100, "ms")


def step_time(commits):
    """Median time between one rank's commits, in ns; `commits` is a list of (step, ns)."""
    times = [ns for _, ns in sorted(commits)]
    return statistics.median(b - a for a, b in zip(times, times[1:]))


def locum_kill(rng):
    command = [BIN / "gpt", "--preset", "tiny", "--steps", 1000000, "--batch", 4, "--threads", 1]
    config = pathlib.Path(tempfile.mkdtemp(prefix="locum-bench-")) / "locum.toml"
    config.write_text("[recovery]\nworker = \"spare\"\n")
    with Cluster("--nodes", 4, "--spares", 1, "--grace", "1s", "--config", config, command=command) as cluster:
        cluster.wait_step(25)
        time.sleep(rng.random() * 0.5)
        status = cluster.status()
        victim = next(r for r in status["ranks"] if r["rank"] == 1)
        killed = time.monotonic_ns()
        os.kill(victim["worker_pid"], signal.SIGKILL)
        cluster.wait_event("step_resumed", 2)
        log = cluster.records()
    step = step_time([(r.step, r.committed_ns) for r in log if r.rank == 0 and r.generation == 1 and r.committed_ns])
    generation = max(r.generation for r in log)
    return last_commits(r for r in log if r.generation == generation) - killed - step, step


def torchrun_logs(directory):
    return [tuple(map(int, line.split())) for path in directory.glob("log-*") for line in path.read_text().splitlines()
            if len(line.split()) == 3]


def torchrun_kill(rng):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="locum-torchrun-"))
    process = subprocess.Popen(
        ["/usr/bin/torchrun", "-r", "1", "-t", "1", "--standalone", "--nnodes", "1", "--nproc_per_node", "4", "--max_restarts", "9",
         "--log_dir", str(directory / "logs"), str(ROOT / "tools/peers/torchrun_gpt.py"), "--data",
         str(ROOT / "build/data/kjv.txt"), "--dir", str(directory), "--steps", "1000000", "--batch", "4"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
        env=dict(os.environ, OMP_NUM_THREADS="1"))
    try:
        wait_for("torchrun to train", lambda: len(torchrun_logs(directory)) >= 100)
        time.sleep(rng.random() * 0.5)
        workers = {path.name for path in directory.glob("log-*")}
        pid = int(next(name for name in workers if name.startswith("log-1-")).rsplit("-", 1)[1])
        before = torchrun_logs(directory)
        killed = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)

        def restarted():
            fresh = [p for p in directory.glob("log-*") if p.name not in workers and p.read_text().count("\n") >= 1]
            return fresh if len(fresh) == 4 else None
        fresh = wait_for("torchrun to train again", restarted)
        first = [int(p.read_text().split("\n")[0].split()[2]) for p in fresh]
        step = step_time([(s, ns) for rank, s, ns in before if rank == 0])
        return max(first) - killed - step, step
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in directory.glob("log-*"):
            try:
                os.kill(int(name.name.rsplit("-", 1)[1]), signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(directory, ignore_errors=True)


def torchrun(args):
    say("torchrun: 3 kills each, in turn; seconds from SIGKILL to the last rank's first commit, less a step")
    rng = random.Random(args.seed)
    ours, theirs = [], []
    for _ in range(3):
        span, step = locum_kill(rng)
        ours.append(span)
        say(f"  locum    {span / 1e9:6.3f} s (a step takes {step / 1e6:.0f} ms)")
        span, step = torchrun_kill(rng)
        theirs.append(span)
        say(f"  torchrun {span / 1e9:6.3f} s (a step takes {step / 1e6:.0f} ms)")
    ratio = statistics.median(theirs) / max(1, statistics.median(ours))
    verdict("torchrun / locum", ratio, 20, "times", at_most=False)


def program(name, binary, *arguments):
    say(f"{name}:")
    done = subprocess.run([str(BIN / binary), *arguments], capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        say("  " + line)
    results[name] = {"met": done.returncode == 0, "output": done.stdout}
    say(f"  {'met' if done.returncode == 0 else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench failover", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--only", choices=["recovery", "torchrun", "kinds", "cost", "idle", "migration", "commit"])
    parser.add_argument("--times", type=int, default=10, help="of each kind")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    parts = {"recovery": lambda: recovery(args), "torchrun": lambda: torchrun(args),
             "kinds": lambda: failover_kinds.kinds(args, say, verdict),
             "cost": lambda: failover_kinds.cost(args, say, results),
             "idle": lambda: failover_kinds.idle(args, say, verdict),
             "migration": lambda: program("migration", "transfer_bench"), "commit": lambda: program("commit", "commit_bench")}
    for name, part in parts.items():
        if args.only in (None, name):
            part()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    missed = [name for name, r in results.items() if not r["met"]]
    say("\nall limits met" if not missed else "\nmissed: " + ", ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
