"""Two machines as network namespaces, with private /tmp and /dev/shm, and a job whose parts are started on them by hand."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
from harness import BIN, LOCUM, wait_for


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

    def start(self, machine, argv, log, env=None, hosts=None):
        """`hosts` is the text of an /etc/hosts of its own, under whose first name the machine goes."""
        # The programs stay where they are, should that be below /tmp.
        build = BIN.parent
        named = ""
        if hosts:
            file = log.with_suffix(".hosts")
            file.write_text(hosts)
            named = f'mount --bind "{file}" /etc/hosts && hostname {hosts.split()[1]} && '
        private = (f'{named}mount --bind "{build}" /mnt && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && '
                   f'mkdir -p "{build}" && mount --move /mnt "{build}" && exec "$@"')
        with open(log, "ab") as out:
            return subprocess.Popen(["ip", "netns", "exec", self.names[machine], "unshare", "-m", "-u", "sh", "-c", private, "sh",
                                     *argv], stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                    env=env)

    def filter(self, machine, *rules):
        """Each rule as iptables takes it; none: everything passes again."""
        for words in ("-F", *rules):
            done = self.run(machine, ["iptables", "-w", *words.split()])
            assert done.returncode == 0, f"iptables {words}: {done.stderr}"

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
class Linked(unittest.TestCase):
    """Machine a has the coordinator."""

    steps = 600

    def command(self):
        return [str(BIN / "minimal"), "--steps", str(self.steps), "--size", str(1 << 20), "--step-ms", "10"]

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
        if self._outcome.result.failures or self._outcome.result.errors:
            harness.keep(self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, machine, name, *argv, **more):
        key, value = self.mark.split("=")
        process = self.machines.start(machine, [LOCUM, *argv], self.dir / f"{name}.out", dict(os.environ, **{key: value}), **more)
        self.processes.append(process)
        return process

    def start_agent(self, machine, name, **more):
        return self.start(machine, name, "agent", "--coordinator", "10.77.0.1:7070", "--name", name, "--dir",
                          str(self.dir / name), "--interface", self.machines.veth[machine], "--token-file",
                          str(self.dir / "job" / "token"), **more)

    def start_agents(self, places):
        """Nodes 0, 1 and 2 on the machines that the letters name; the status after some steps."""
        for i, machine in enumerate(places):
            self.start_agent(machine, f"node-{i}")
        return self.job.wait_status("step 50", lambda s: s["job"]["step"] >= 50)

    def start_coordinator(self, settings=""):
        (self.dir / "locum.toml").write_text(settings)
        coordinator = self.start("a", "coordinator", "coordinator", "--config", str(self.dir / "locum.toml"), "--interface",
                                 self.machines.veth["a"], "--port", "7070", "--dir", str(self.dir / "job"), "--nodes", "2",
                                 "--spares", "1", "--", *self.command())
        wait_for("the token", lambda: (self.dir / "job" / "token").exists())
        return coordinator

    def assert_end(self, coordinator, repeated=1):
        """It ended as if nothing had been, but for steps that were made again."""
        self.assertEqual(coordinator.wait(harness.DEADLINE), 0)
        wait_for("all processes to end", lambda: not harness.processes_with(self.mark), 30)

        losses, commits, made = harness.account(harness.read_step_log(p) for p in self.dir.rglob("*.steps"))
        self.assertEqual(made, {(r, s) for r in range(2) for s in range(self.steps)})
        self.assertLessEqual(len({s for (r, s), n in commits.items() if n > 1}), repeated)
        self.assertTrue(all(len(bits) == 1 for bits in losses.values()))
        finals = {harness.last_line(p.read_text(errors="replace")) for p in self.dir.rglob("worker-*.log")} - {""}
        self.assertEqual(len(finals), 1)
        alone = subprocess.run([LOCUM, "run", "--dir", str(self.dir / "undisturbed"), "--nodes", "2", "--", *self.command()[:-1], "0"],
                               capture_output=True, text=True)
        self.assertEqual(finals, {harness.last_line(alone.stdout)})
        self.assertFalse([p for p in self.dir.rglob("*") if p.is_socket()])
