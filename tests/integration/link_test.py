"""Two machines as network namespaces, with private /tmp and /dev/shm, whose parts are started by hand. The link of a
node is taken down without a reset; the spare takes over; the link comes back; the node is fenced, repaired, and
takes its rank back."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import BIN, LOCUM, wait_for

STEPS = 600
COMMAND = [str(BIN / "minimal"), "--steps", str(STEPS), "--size", str(1 << 20), "--step-ms", "10"]
# Without an abort call: who waits in recv for the node that is cut off would wait for ever.
PLAIN = [str(BIN / "minimal"), "--steps", "200", "--size", str(1 << 20), "--step-ms", "10", "--no-abort"]


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


class Machines:
    """Namespaces a and b, joined by a veth pair, addresses 10.77.0.1 and 10.77.0.2."""

    def __init__(self):
        tag = f"{os.getpid() % 100000}"
        self.names = {"a": f"locum-a{tag}", "b": f"locum-b{tag}"}
        self.veth = {"a": f"lva{tag}", "b": f"lvb{tag}"}
        self.address = {"a": "10.77.0.1", "b": "10.77.0.2"}
        for name in self.names.values():
            ip("netns", "add", name)
        ip("link", "add", self.veth["a"], "netns", self.names["a"], "type", "veth", "peer", "name", self.veth["b"],
           "netns", self.names["b"])
        for m in "ab":
            ip("-n", self.names[m], "addr", "add", f"{self.address[m]}/24", "dev", self.veth[m])
            ip("-n", self.names[m], "link", "set", "lo", "up")
            self.link(m, "up")

    def link(self, machine, state):
        ip("-n", self.names[machine], "link", "set", self.veth[machine], state)

    def start(self, machine, argv, log, env=None):
        # The programs stay where they are, should that be below /tmp.
        build = BIN.parent
        private = (f'mount --bind "{build}" /mnt && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && '
                   f'mkdir -p "{build}" && mount --move /mnt "{build}" && exec "$@"')
        with open(log, "ab") as out:
            return subprocess.Popen(["ip", "netns", "exec", self.names[machine], "unshare", "-m", "sh", "-c", private, "sh",
                                     *argv], stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                    env=env)

    def run(self, machine, argv):
        return subprocess.run(["ip", "netns", "exec", self.names[machine], *argv], capture_output=True, text=True)

    def delete(self):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class LinkedJob(harness.Job):
    """Asked on machine a, where its coordinator is."""

    def __init__(self, directory, machines):
        super().__init__(directory)
        self.machines = machines

    def ask(self, *words):
        return self.machines.run("a", [LOCUM, *words, "--dir", str(self.dir)])


def can_make_namespaces():
    return os.geteuid() == 0 and shutil.which("ip") and subprocess.run(
        ["ip", "netns", "list"], capture_output=True).returncode == 0


@unittest.skipUnless(can_make_namespaces(), "needs root and iproute2")
class Link(unittest.TestCase):
    def setUp(self):
        # Not below /tmp: each machine has a /tmp of its own.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="locum-link-", dir="/var/tmp"))
        self.machines = Machines()
        self.job = LinkedJob(self.dir / "job", self.machines)
        self.processes = []
        self.mark = f"LOCUM_TEST_MARK=link-{os.getpid()}"

    def tearDown(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        for pid in harness.processes_with(self.mark):
            os.kill(pid, signal.SIGKILL)
        self.machines.delete()
        keep = pathlib.Path("/tmp/locum-failed-link")
        shutil.rmtree(keep, ignore_errors=True)
        if self._outcome.result.failures or self._outcome.result.errors:
            shutil.copytree(self.dir, keep, ignore=lambda d, names: [n for n in names if n.endswith(".sock")])
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, machine, name, *argv):
        key, value = self.mark.split("=")
        process = self.machines.start(machine, [LOCUM, *argv], self.dir / f"{name}.out", dict(os.environ, **{key: value}))
        self.processes.append(process)
        return process

    def start_agent(self, machine, name):
        return self.start(machine, name, "agent", "--coordinator", "10.77.0.1:7070", "--name", name, "--dir",
                          str(self.dir / name), "--interface", self.machines.veth[machine], "--token-file",
                          str(self.dir / "job" / "token"))

    def start_all(self, command):
        """Rank 0 and the spare on machine a, rank 1 on b. Returns the coordinator, and the status at some step."""
        coordinator = self.start("a", "coordinator", "coordinator", "--interface", self.machines.veth["a"], "--port", "7070",
                                 "--dir", str(self.dir / "job"), "--nodes", "2", "--spares", "1", "--", *command)
        wait_for("the token", lambda: (self.dir / "job" / "token").exists())
        for machine, name in (("a", "node-0"), ("b", "node-1"), ("a", "node-2")):
            self.start_agent(machine, name)
        return coordinator, self.job.wait_status("step 50", lambda s: s["job"]["step"] >= 50)

    def check_result(self, command):
        steps = int(command[command.index("--steps") + 1])
        losses, commits, made = harness.account(harness.read_step_log(p) for p in self.dir.rglob("*.steps"))
        self.assertEqual(made, {(r, s) for r in range(2) for s in range(steps)})
        self.assertLessEqual(len({s for (r, s), n in commits.items() if n > 1}), 1)
        self.assertTrue(all(len(bits) == 1 for bits in losses.values()))
        finals = {harness.last_line(p.read_text(errors="replace")) for p in self.dir.rglob("worker-*.log")} - {""}
        self.assertEqual(len(finals), 1)
        alone = subprocess.run([LOCUM, "run", "--dir", str(self.dir / "undisturbed"), "--nodes", "2", "--", *command],
                               capture_output=True, text=True)
        self.assertEqual(finals, {harness.last_line(alone.stdout)})

    def test_link_down_without_abort_call(self):
        """The survivor is broken out of its recv by the library, and is the same process afterwards."""
        coordinator, before = self.start_all(PLAIN)
        pid = next(r["worker_pid"] for r in before["ranks"] if r["rank"] == 0)
        born = harness.start_time(pid)
        self.machines.link("b", "down")
        self.job.wait_event("step_resumed", 2)
        self.assertEqual({r["rank"]: r["node"] for r in self.job.status()["ranks"]}, {0: "node-0", 1: "node-2"})
        self.assertEqual(harness.start_time(pid), born)
        self.assertEqual([e["node"] for e in self.job.events("fault_detected")], ["node-1"])
        self.machines.link("b", "up")
        self.assertEqual(coordinator.wait(harness.DEADLINE), 0)
        wait_for("all processes to end", lambda: not harness.processes_with(self.mark), 30)
        self.check_result(PLAIN)

    def test_link_down_without_reset(self):
        coordinator, before = self.start_all(COMMAND)
        self.assertEqual({n["name"]: n["address"] for n in before["nodes"]},
                         {"node-0": "10.77.0.1", "node-1": "10.77.0.2", "node-2": "10.77.0.1"})
        pids = {r["rank"]: (r["worker_pid"], harness.start_time(r["worker_pid"])) for r in before["ranks"]}

        self.machines.link("b", "down")
        self.job.wait_event("step_resumed", 2)
        self.assertEqual([e["node"] for e in self.job.events("fault_detected")], ["node-1"])
        between = self.job.status()
        self.assertEqual({r["rank"]: r["node"] for r in between["ranks"]}, {0: "node-0", 1: "node-2"})
        self.assertEqual(harness.start_time(pids[0][0]), pids[0][1])
        self.assertIsNotNone(harness.start_time(pids[1][0]), "the cut-off worker is alive, and must do no harm")

        self.machines.link("b", "up")
        self.job.wait_event("node_repaired")
        self.assertIsNone(harness.start_time(pids[1][0]), "the fenced worker was to be ended")
        asked = self.job.failback("node-1")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.job.wait_event("failback_done")
        self.assertEqual({r["rank"]: r["node"] for r in self.job.status()["ranks"]}, {0: "node-0", 1: "node-1"})
        self.assertEqual(coordinator.wait(harness.DEADLINE), 0)
        wait_for("all processes to end", lambda: not harness.processes_with(self.mark), 30)

        self.check_result(COMMAND)
        self.assertFalse([p for p in self.dir.rglob("*") if p.is_socket()])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
