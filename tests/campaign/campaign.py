"""Random failures, composed from a seed, against real clusters; training must end as if nothing had happened.

  campaign.py [--seed S] [--minutes M] [--rounds N] [--program minimal|gpt]
  campaign.py --script FILE

A round is one cluster and a script: its shape, and a line for each thing that is done to it. A round that goes wrong
prints its seed and leaves its script in a file; both repeat it. What a script names (a rank, a node) is looked up when
its line is due, so a repetition does the same things at the same times, not to the same process ids.

A line that would end the last live copy of the state is left out: that loss nobody can mend, and tests of their own
show what happens then."""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import BIN, Cluster  # noqa: E402

CONFIG = """
[timeouts]
hang = "8s"
park = "8s"
collective = "4s"
grace = "1s"
[limits]
restarts = 1000000
recoveries = 1000000
[run]
restart_limit = 1000000
restart_delay = "300ms"
restart_delay_max = "1s"
"""

STEPS = {"minimal": 1500, "gpt": 200}


def command(shape, steps=None):
    steps = steps or shape["steps"]
    if shape["program"] == "gpt":
        return [BIN / "gpt", "--preset", "tiny", "--steps", steps, "--batch", 1, "--seed", 7]
    return [BIN / "minimal", "--steps", steps, "--size", shape["size"], "--step-ms", shape["step_ms"]]


# ---- A script from a seed ------------------------------------------------------------------------------------------

# What is done, how often among all, and which arguments it draws.
FAULTS = {
    "kill-worker": (6, ["rank"]),
    "kill-node": (5, ["rank"]),
    "kill-keeper": (2, ["rank"]),
    "kill-agent": (3, ["rank"]),
    "kill-two-nodes": (2, ["rank"]),
    "kill-spare": (2, []),
    "stop-worker": (3, ["rank", "for"]),
    "hang-worker": (1, ["rank"]),
    "stop-agent": (3, ["rank", "for"]),
    "stop-node": (2, ["rank", "for"]),
    "end-agent": (1, ["rank"]),
    "end-worker": (1, ["rank"]),
    "segv-worker": (1, ["rank"]),
    "kill-coordinator": (3, []),
    "stop-coordinator": (2, ["for"]),
    "kill-coordinator-and-node": (2, ["rank"]),
    "failback": (4, ["rank"]),
}


def make_script(seed, program):
    draw = random.Random(seed)
    shape = {"program": program, "nodes": draw.randint(2, 4), "spares": draw.randint(0, 2), "per_node": 1,
             "steps": STEPS[program], "size": draw.choice([1 << 12, 1 << 20, 16 << 20]), "step_ms": 8}
    if program == "minimal":
        shape["per_node"] = draw.randint(1, 2)
    names = list(FAULTS)
    weights = [FAULTS[name][0] for name in names]
    lines, at = [], 0.0
    for _ in range(draw.randint(3, 10)):
        # Mostly one after another, now and then in the middle of what the one before has begun.
        at += draw.choice([0.0, 0.01, 0.05, 0.1, 0.3, 1.0, 2.0, 3.0]) * draw.uniform(0.5, 1.5)
        name = draw.choices(names, weights)[0]
        line = {"at": round(at, 3), "do": name}
        for argument in FAULTS[name][1]:
            if argument == "rank":
                line["rank"] = draw.randrange(shape["nodes"] * shape["per_node"])
            else:
                line["for"] = round(draw.choice([0.05, 0.3, 0.9, 1.5, 2.5]) * draw.uniform(0.7, 1.3), 2)
        lines.append(line)
    return {"seed": seed, "shape": shape, "lines": lines}


# ---- Doing it ------------------------------------------------------------------------------------------------------

class Round:
    def __init__(self, script, log):
        self.script = script
        self.shape = script["shape"]
        self.log = log
        self.cluster = None
        self.status = None
        self.holders = {}  # pid: start time, of the workers that held a rank when the job last ran
        self.struck = set()  # (pid, start time) of those that were told to end; a killed one is there for some moments yet
        self.stopped = []  # (when to continue, pid, start time)
        self.done = []

    def look(self):
        """The newest status; the one before while nobody answers."""
        status = self.cluster.status()
        if status and status["job"]["coordinator"] == "running":
            self.status = status
            steps = [r["step"] for r in status["ranks"]]
            if status["job"]["state"] == "running" and steps and max(steps) - min(steps) <= 1:
                still = {pid for _, pid, _ in self.stopped}
                self.holders = {r["worker_pid"]: harness.start_time(r["worker_pid"]) for r in status["ranks"]
                                if r["worker_pid"] not in still}
        return self.status

    def alive(self, gone=()):
        return [pid for pid, start in self.holders.items()
                if pid not in gone and start is not None and (pid, start) not in self.struck
                and harness.start_time(pid) == start]

    def rank(self, line):
        return next((r for r in self.status["ranks"] if r["rank"] == line["rank"]), None)

    def node_pids(self, name):
        """Keeper first, then agent, then workers."""
        node = next(n for n in self.status["nodes"] if n["name"] == name)
        workers = [w["pid"] for w in node["workers"] if w["life"] != "exited"]
        return [node["keeper_pid"], node["agent_pid"]] + workers

    def send(self, pids, number):
        for pid in pids:
            try:
                if pid > 0:
                    os.kill(pid, number)
            except ProcessLookupError:
                pass

    def spare(self):
        return next((n["name"] for n in self.status["nodes"] if n["role"] == "spare"), None)

    def hold(self, pids, seconds):
        for pid in pids:
            start = harness.start_time(pid)
            if start is not None:
                self.send([pid], signal.SIGSTOP)
                self.stopped.append((time.monotonic() + seconds, pid, start))

    def release(self, everything=False):
        now = time.monotonic()
        for entry in list(self.stopped):
            due, pid, start = entry
            if everything or now >= due:
                self.stopped.remove(entry)
                if harness.start_time(pid) == start:
                    self.send([pid], signal.SIGCONT)

    def victims(self, line):
        """The pids to strike and with what; nothing when the line does not fit the moment."""
        what, rank = line["do"], None
        if "rank" in line:
            rank = self.rank(line)
            if rank is None or not rank["node"]:
                return [], None
            pids = self.node_pids(rank["node"])
        if what in ("kill-worker", "end-worker", "segv-worker"):
            number = {"kill-worker": signal.SIGKILL, "end-worker": signal.SIGTERM, "segv-worker": signal.SIGSEGV}[what]
            return [rank["worker_pid"]], number
        if what == "kill-node":
            return pids, signal.SIGKILL
        if what == "kill-keeper":
            return pids[:1] + pids[2:], signal.SIGKILL
        if what == "end-agent":
            return pids[:1] + pids[2:], signal.SIGTERM
        if what == "kill-two-nodes":
            other = next((r["node"] for r in self.status["ranks"] if r["node"] not in ("", rank["node"])), None)
            return (pids + self.node_pids(other), signal.SIGKILL) if other else ([], None)
        if what == "kill-spare":
            spare = self.spare()
            return (self.node_pids(spare), signal.SIGKILL) if spare else ([], None)
        if what == "kill-coordinator-and-node":
            return [self.cluster.coordinator_pid() or 0] + pids, signal.SIGKILL
        return [], None

    def do(self, line):
        """Whether it was done."""
        what = line["do"]
        if what == "failback":
            rank = self.rank(line)
            names = [n["name"] for n in self.status["nodes"] if n["state"] == "probation"]
            return bool(rank and names) and self.cluster.failback(names[0]).returncode == 0
        if what == "kill-agent":
            rank = self.rank(line)
            if rank and rank["node"]:
                self.send(self.node_pids(rank["node"])[1:2], signal.SIGKILL)
            return bool(rank and rank["node"])
        if what in ("kill-coordinator", "stop-coordinator"):
            pid = self.cluster.coordinator_pid() or 0
            if what == "kill-coordinator":
                self.send([pid], signal.SIGKILL)
            else:
                self.hold([pid], line["for"])
            return pid > 0
        if what in ("stop-worker", "stop-agent", "stop-node", "hang-worker"):
            rank = self.rank(line)
            if not rank or not rank["node"]:
                return False
            pids = self.node_pids(rank["node"])
            pids = {"stop-worker": [rank["worker_pid"]], "hang-worker": [rank["worker_pid"]], "stop-agent": pids[1:2],
                    "stop-node": pids}[what]
            # One that stands still for long is taken for dead, and so must not be the last that holds the state.
            if len(self.alive(pids)) < 1:
                return False
            if what != "stop-agent":
                for pid in pids:
                    self.holders.pop(pid, None)
            self.hold(pids, line.get("for", 30))
            return True
        pids, number = self.victims(line)
        if not pids or len(self.alive(pids)) < 1:
            return False
        self.struck.update((pid, harness.start_time(pid)) for pid in pids)
        self.send(pids, number)
        return True

    def run(self):
        """None, or what went wrong."""
        shape = self.shape
        final, losses = undisturbed(shape)
        config = pathlib.Path(self.log).with_suffix(".toml")
        config.write_text(CONFIG)
        with Cluster("--nodes", shape["nodes"], "--spares", shape["spares"], "--nproc-per-node", shape["per_node"],
                     "--config", config, command=command(shape)) as cluster:
            self.cluster = cluster
            cluster.wait_step(5)
            begin = time.monotonic()
            for line in self.script["lines"]:
                while time.monotonic() < begin + line["at"]:
                    self.release()
                    time.sleep(0.005)
                if cluster.ended():
                    break
                self.look()
                if self.status and self.do(line):
                    self.done.append(line["do"])
            while self.stopped:
                self.release()
                time.sleep(0.02)
            status = cluster.wait_exit(180)
            assert status == 0, f"exit status {status}"
            assert cluster.stdout().count("final step=") == 1, "not exactly one final line"
            assert harness.last_line(cluster.stdout()) == final, f"another end: {harness.last_line(cluster.stdout())}"
            left = wait_clean(cluster)
            assert not left, f"left behind: {left}"
            check_account(cluster, shape, losses)


def wait_clean(cluster):
    end = time.monotonic() + 10
    while (left := cluster.left_behind()) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def check_account(cluster, shape, undisturbed_losses):
    cluster.check_account(shape["nodes"] * shape["per_node"], shape["steps"])
    losses, _, _ = harness.account(cluster.step_logs().values())
    different = [key for key in losses if losses[key] != undisturbed_losses[key]]
    assert not different, f"another loss at (rank, step): {different[:5]}"


UNDISTURBED = {}


def undisturbed(shape):
    """The final line and the losses of a run of the same shape that nothing happens to."""
    key = tuple(sorted((k, v) for k, v in shape.items() if k not in ("spares", "step_ms")))
    if key not in UNDISTURBED:
        calm = dict(shape, step_ms=0)
        with Cluster("--nodes", shape["nodes"], "--nproc-per-node", shape["per_node"], command=command(calm)) as cluster:
            assert cluster.wait_exit() == 0, cluster.stderr()
            losses, commits, _ = harness.account(cluster.step_logs().values())
            assert set(commits.values()) == {1}
            UNDISTURBED[key] = harness.last_line(cluster.stdout()), losses
    return UNDISTURBED[key]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round after it has the next one")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=1 << 30)
    parser.add_argument("--program", choices=sorted(STEPS), default=None, help="default: one after the other")
    parser.add_argument("--script", type=pathlib.Path, help="do this one")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/locum-campaign"), help="where scripts go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * args.minutes
    totals, rounds, failed = collections.Counter(), 0, 0
    programs = [args.program] if args.program else ["minimal", "gpt"] if (BIN / "gpt").exists() else ["minimal"]
    while rounds < args.rounds and (time.monotonic() < end or rounds == 0):
        if args.script:
            script = json.loads(args.script.read_text())
        else:
            # The longer program every fifth time.
            seed = args.seed + rounds
            script = make_script(seed, programs[-1] if seed % 5 == 0 else programs[0])
        file = args.out / f"round-{script['seed']}.json"
        file.write_text(json.dumps(script, indent=1))
        this = Round(script, file)
        try:
            this.run()
        except Exception as problem:  # whatever it was, the round did not go as it must
            failed += 1
            print(f"round {script['seed']} FAILED: {type(problem).__name__}: {problem}\n  done: {this.done}\n"
                  f"  repeat: {sys.argv[0]} --script {file}", flush=True)
            if failed >= 5:
                break
        rounds += 1
        totals.update(this.done)
        print(f"round {script['seed']}: {this.shape['program']} {this.shape['nodes']}+{this.shape['spares']} nodes x "
              f"{this.shape['per_node']}, done: {', '.join(this.done) or 'nothing'}", flush=True)
        if args.script:
            break
    print(f"{rounds} rounds, {sum(totals.values())} faults, {failed} failed: "
          + ", ".join(f"{n} {name}" for name, n in sorted(totals.items())))
    if not totals:
        print("nothing was done to any of them, so nothing is shown")
    return 1 if failed or not totals else 0


if __name__ == "__main__":
    sys.exit(main())
