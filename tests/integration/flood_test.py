"""Strangers at every port while a job trains: garbage, halves, frames that are too large, and hundreds of connections,
held open or opened and closed as fast as possible. They are turned away; training goes on, a node that is lost meanwhile
is replaced, and nothing is leaked."""

import array
import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import sys
import threading
import time
import unittest

import harness
from harness import BIN, Cluster, wait_for

STEPS = 100000  # it is stopped before
COMMAND = [BIN / "minimal", "--steps", STEPS, "--step-ms", 10]
HELD = 400  # connections to each port
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


def frame(kind, flags, stream, payload, length=None):
    length = len(payload) if length is None else length
    return struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def request_head(magic=0x5044434c, version=None, length=100):
    """Of docs: src/state/transfer.h."""
    return struct.pack("<III", magic, version, length)


TCP_GARBAGE = [
    b"\0", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 100000, os.urandom(70000), PREFACE[:10], PREFACE,
    PREFACE + SETTINGS[:4], PREFACE + SETTINGS + frame(1, 5, 1, b"", length=0xffffff),
    PREFACE + SETTINGS + frame(0, 0, 1, os.urandom(16384)) * 4, PREFACE + SETTINGS + frame(1, 5, 1, os.urandom(2000)),
    PREFACE + SETTINGS + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 100, PREFACE + SETTINGS + frame(6, 0, 0, b"12345678") * 5000,
    *(request_head(version=v, length=n) + tail for v in range(4) for n in (0, 4096, 4097, 0xffffffff)
      for tail in (b"", b"x", os.urandom(5000))),
    request_head(magic=1, version=1),
]
PACKETS = [b"\0", b"x", os.urandom(100), os.urandom(4096), os.urandom(4097), os.urandom(100000), b"\xff" * 16, b"\0" * 64,
           struct.pack("<IIQ", 1, 1, 1), struct.pack("<IIQIQ", 1, 1, 1, 9, 2**63)]


def listening_port(pid):
    """The one TCP port on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        field = line.split()
        if field[3] == "0A" and f"socket:[{field[9]}]" in inodes:
            return int(field[1].split(":")[1], 16)
    return None


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def is_closed(connection):
    try:
        while True:
            if not connection.recv(65536, socket.MSG_DONTWAIT):
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True


class Flood(unittest.TestCase):
    def setUp(self):
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, self.limits)

    def may_open(self, count):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(self.limits[1], count), self.limits[1]))

    def ports(self, cluster, status):
        """How to connect to each, by what it is."""
        tcp = {"coordinator": int(json.loads((cluster.dir / "coordinator.json").read_text())["address"].split(":")[1])}
        for rank in status["ranks"]:
            tcp[f"data port of rank {rank['rank']}"] = listening_port(rank["worker_pid"])
        self.assertNotIn(None, tcp.values())
        self.keepers = [cluster.dir / "nodes" / n["name"] / "keeper.sock" for n in status["nodes"]]
        return tcp

    def tcp(self, port):
        connection = socket.socket()
        self.addCleanup(connection.close)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", port))
        return connection

    def unix(self, path):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(connection.close)
        connection.settimeout(10)

        def connected():
            with contextlib.suppress(BlockingIOError):  # too many wait to be accepted
                connection.connect(str(path))
                return True
        wait_for("the keeper to accept", connected, 30, every=0.005)
        return connection

    def watched(self, status):
        """Pids of everything that serves a port."""
        pids = {"coordinator": self.cluster.coordinator_pid()}
        for node in status["nodes"]:
            pids[f"keeper of {node['name']}"] = node["keeper_pid"]
            pids[f"agent of {node['name']}"] = node["agent_pid"]
        for rank in status["ranks"]:
            pids[f"rank {rank['rank']}"] = rank["worker_pid"]
        return pids

    def send_garbage(self, tcp):
        for port in tcp.values():
            for data in TCP_GARBAGE:
                connection = self.tcp(port)
                with contextlib.suppress(OSError):
                    connection.sendall(data)
                connection.close()
        for path in self.keepers:
            for packet in PACKETS:
                connection = self.unix(path)
                with contextlib.suppress(OSError):
                    connection.send(packet)
                connection.close()
            connection = self.unix(path)
            with contextlib.suppress(OSError), open(os.devnull) as file:
                gift = array.array("i", [file.fileno()] * 10)
                connection.sendmsg([os.urandom(64)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, gift)])
            connection.close()

    def open_and_close(self, tcp, stop):
        def storm(connect):
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    connect()
        def tcp_once(port):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.connect(("127.0.0.1", port))
        def unix_once(path):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.setblocking(False)
                s.connect(str(path))
        threads = [threading.Thread(target=storm, args=(lambda p=p: tcp_once(p),)) for p in tcp.values()]
        threads += [threading.Thread(target=storm, args=(lambda p=p: unix_once(p),)) for p in self.keepers]
        for thread in threads:
            thread.start()
        return threads

    def hold(self, tcp):
        held = []
        for name, port in tcp.items():
            for i in range(HELD):
                connection = self.tcp(port)
                # Some say nothing, some half of something, some begin well and do nothing.
                if i % 4 == 1:
                    connection.sendall(PREFACE[:12] if name == "coordinator" else b"LCDP")
                if i % 4 == 2 and name == "coordinator":
                    connection.sendall(PREFACE + SETTINGS)
                held.append((name, connection))
        for path in self.keepers:
            for _ in range(HELD):
                held.append((str(path), self.unix(path)))
        return held

    def test_strangers_at_every_port(self):
        self.may_open(256)  # fewer than strangers come: every process of the cluster begins with that
        with Cluster("--nodes", 3, "--spares", 1, command=COMMAND) as self.cluster:
            self.may_open(65536)
            cluster = self.cluster
            status = cluster.wait_status("a spare and steps", lambda s: s["job"]["step"] >= 20 and s["job"]["spares"] == 1)
            tcp = self.ports(cluster, status)
            pids = self.watched(status)
            time.sleep(1)  # what the start opened is closed
            before = {name: descriptors(pid) for name, pid in pids.items()}

            self.send_garbage(tcp)
            after = cluster.wait_step(cluster.made() + 20)
            self.assertEqual(self.watched(after), pids)

            stop = threading.Event()
            threads = self.open_and_close(tcp, stop)
            try:
                time.sleep(2)
                after = cluster.wait_step(cluster.made() + 20)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            self.assertEqual(self.watched(after), pids)

            held = self.hold(tcp)
            after = cluster.wait_step(cluster.made() + 20)
            self.assertEqual(self.watched(after), pids)
            self.assertEqual(after["job"]["generation"], status["job"]["generation"])
            wait_for("every stranger to be turned away", lambda: all(is_closed(c) for _, c in held), 90, every=0.5)
            for _, connection in held:
                connection.close()

            def leaked():
                return {name: (before[name], descriptors(pid)) for name, pid in pids.items()
                        if descriptors(pid) > before[name]}
            try:
                wait_for("the descriptors to be free again", lambda: not leaked(), 30, every=0.2)
            except harness.Failed:
                self.assertEqual(leaked(), {})
            self.assertEqual(cluster.events("fault_detected"), [])

            # The same while a node is lost.
            held = self.hold(tcp)
            cluster.kill_node(cluster.node_of_rank(1, after), after)
            cluster.wait_event("step_resumed", 2)
            for _, connection in held:
                connection.close()
            self.assertEqual([e["rank"] for e in cluster.events("fault_detected")], [1])
            cluster.process.send_signal(signal.SIGTERM)
            cluster.wait_exit()
            self.assertEqual(cluster.left_behind(), [])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
