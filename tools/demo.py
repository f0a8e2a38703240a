#!/usr/bin/python3
"""The demonstration behind `./dev demo`: the GPT on 4 nodes and a spare, once undisturbed and once losing a node in the
middle and getting it back. Prints the timeline in milliseconds and what was lost; exit status 1 if the final states
differ.

  --json FILE   also write the figures
  --steps N     optimizer steps of each run (default 200)
  --preset P    of the GPT (default tiny)
"""

import argparse
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from locum_job import BIN, LOCUM, ROOT, Failed, Job, account, final_lines, last_commits


def say(text=""):
    print(text, flush=True)


def ms(ns):
    return f"{ns / 1e6:9.1f} ms"


class Run(Job):
    """One `locum run`, its output passed through with a mark in front."""

    every = 0.005

    def __init__(self, directory, args):
        super().__init__(directory)
        command = [LOCUM, "run", "--dir", str(directory), "--nodes", "4", "--spares", "1", "--", str(BIN / "gpt"),
                   "--preset", args.preset, "--steps", str(args.steps), "--batch", "4", "--seed", "1"]
        say("  $ " + " ".join(command).replace(str(ROOT) + "/", ""))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        errors="replace")
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if not line.startswith("step ") or line.split()[1].endswith("0"):
                say("  | " + line.rstrip("\n"))

    def finish(self):
        status = self.wait_exit(240)
        self.reader.join(10)
        if status != 0:
            raise Failed(f"locum run ended with status {status}; its directory is {self.dir}")
        finals = final_lines("\n".join(self.lines))
        if len(finals) != 1:
            raise Failed(f"expected one final line, got {len(finals)}")
        return finals[0]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()


def lose_a_node(run, at_step):
    status = run.wait_step(at_step)
    name = run.node_of_rank(2, status)
    time.sleep(random.random() * 0.2)
    killed_ns = time.monotonic_ns()
    run.kill_node(name, status)
    say(f"\n  >>> {name} is lost: keeper, agent and worker of rank 2 killed with SIGKILL at step {status['job']['step']}\n")
    return name, killed_ns


def failover_figures(run, killed_ns):
    generation = run.wait_event("generation_started", after_ns=killed_ns)
    run.wait_event("step_resumed", after_ns=killed_ns)
    detected = run.events("fault_detected", killed_ns)[0]
    activated = run.events("spare_activated", killed_ns)[0]
    migrated = run.events("state_migrated", killed_ns)[0]
    records = [r for r in run.records() if r.generation == generation["generation"]]
    figures = migrated["figures"]
    return {
        "node": detected["node"], "spare": activated["node"], "reason": detected["reason"],
        "generation": generation["generation"], "recovery_step": generation["step"],
        "detected_ns": detected["monotonic_ns"] - killed_ns, "spare_activated_ns": activated["monotonic_ns"] - killed_ns,
        "state_migrated_ns": migrated["monotonic_ns"] - killed_ns, "bytes": figures["bytes"],
        "bytes_per_second": figures["bytes_per_second"], "connected_ns": max(r.connected_ns for r in records) - killed_ns,
        "first_step_ns": last_commits(records) - killed_ns,
    }


def show_failover(f):
    say("\n  timeline, from the SIGKILL on")
    say(f"  {ms(f['detected_ns'])}  detected          {f['node']}: {f['reason']}")
    say(f"  {ms(f['spare_activated_ns'])}  spare activated   {f['spare']} takes rank 2")
    say(f"  {ms(f['state_migrated_ns'])}  state migrated    {f['bytes'] / 1e6:.1f} MB at {f['bytes_per_second'] / 1e9:.2f} GB/s "
        f"from a survivor's memory")
    say(f"  {ms(f['connected_ns'])}  connected         all 4 ranks, generation {f['generation']}")
    say(f"  {ms(f['first_step_ns'])}  first new step    every rank has committed step {f['recovery_step'] + 1}\n")


def bring_back(run, node):
    repaired = run.wait_event("node_repaired")
    echo = repaired["figures"]
    say(f"  >>> {node} was started again and initialised while training went on; handshake: {repaired['reason']}")
    say(f"      (echo of {echo['echo_bytes']} bytes over its link in {echo['echo_ns'] / 1e6:.2f} ms)")
    asked = run.failback(node)
    if asked.returncode != 0:
        raise Failed(f"locum failback {node}: {asked.stderr.strip()}")
    done = run.wait_event("failback_done")
    migrated = run.events("state_migrated")[-1]
    say(f"  >>> {node} has its state and its rank back; the planned pause took {done['figures']['pause_ns'] / 1e6:.1f} ms, "
        f"{migrated['figures']['bytes'] / 1e6:.1f} MB moved, no step lost\n")
    return {"node": node, "pause_ns": done["figures"]["pause_ns"], "echo_ns": echo["echo_ns"]}


def compare(args, plain, disturbed, plain_final, final):
    expected, _, _ = account(plain.step_logs().values())
    losses, commits, made = account(disturbed.step_logs().values())
    repeated = sorted({step for (_, step), times in commits.items() if times > 1})
    missing = [(r, s) for r in range(4) for s in range(args.steps) if (r, s) not in made]
    differing = [key for key, bits in losses.items() if bits != expected[key]]
    say("  undisturbed:       " + plain_final)
    say("  lost and returned: " + final)
    same = plain_final == final and not missing and not differing
    say(f"\n  Steps lost: {len(missing)}. Steps computed again: {len(repeated)}{' (' + str(repeated[0]) + ')' if repeated else ''}. "
        f"Losses that differ: {len(differing)} of {len(losses)}.")
    say("  The final states are equal, bit for bit." if same else "  THE RUNS DIFFER.")
    return same, {"steps_lost": len(missing), "steps_repeated": len(repeated), "losses_differing": len(differing),
                  "undisturbed": plain_final, "disturbed": final, "equal": same}


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--preset", default="tiny", choices=["tiny", "small", "medium", "large"])
    args = parser.parse_args()
    if args.steps < 60:
        parser.error("--steps must be at least 60, so that there is a middle to lose a node in")
    work = pathlib.Path(tempfile.mkdtemp(prefix="locum-demo-"))
    runs = []
    keep = False
    try:
        say("\nA GPT in training on 4 nodes + 1 spare, all real processes of this machine. First undisturbed:\n")
        runs.append(Run(work / "undisturbed", args))
        plain_final = runs[-1].finish()
        say("\nThe same again, losing a node in the middle:\n")
        runs.append(Run(work / "disturbed", args))
        run = runs[-1]
        node, killed_ns = lose_a_node(run, args.steps // 4)
        failover = failover_figures(run, killed_ns)
        show_failover(failover)
        failback = bring_back(run, node)
        final = run.finish()
        say()
        same, comparison = compare(args, *runs, plain_final, final)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps({"failover": failover, "failback": failback, **comparison}, indent=1) + "\n")
        return 0 if same else 1
    except (Failed, KeyboardInterrupt) as failure:
        keep = not isinstance(failure, KeyboardInterrupt)
        say(f"\ndemo: {failure or 'interrupted'}" + (f"; its files are kept in {work}" if keep else ""))
        return 130 if isinstance(failure, KeyboardInterrupt) else 1
    finally:
        for run in runs:
            run.stop()
        if not keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
