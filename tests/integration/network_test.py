"""Half a network: packets that go one way only, links to the coordinator or to the peers alone, resets, wrong names."""

import shutil
import sys
import time
import unittest

import harness
import machines
from harness import wait_for

COORDINATOR = "7070"


@unittest.skipUnless(shutil.which("iptables"), "needs iptables")
class Network(machines.Linked):
    def workers(self, status):
        return {r["rank"]: (r["worker_pid"], harness.start_time(r["worker_pid"])) for r in status["ranks"]}

    def generations(self):
        return [e["generation"] for e in self.job.events("generation_started")]

    def steps_made(self):
        return max((r.step for p in self.dir.rglob("*.steps") for r in harness.read_step_log(p) if r.committed_ns), default=0)

    def alarms(self, status):
        return {(a["name"], a["node"]) for a in status["alarms"]}

    def lost_and_back(self, *rules):
        coordinator = self.start_coordinator()
        before = self.start_agents("aba")
        self.machines.filter("b", *rules)
        self.job.wait_event("step_resumed", 2)
        self.assertEqual([e["node"] for e in self.job.events("fault_detected")], ["node-1"])
        self.assertEqual(self.job.node_of_rank(1), "node-2")
        self.machines.filter("b")
        self.assertEqual(self.job.wait_event("node_repaired")["node"], "node-1")
        self.assertIsNone(harness.start_time(self.workers(before)[1][0]))
        self.assert_end(coordinator)

    def test_packets_from_a_node_are_dropped(self):
        self.lost_and_back("-A OUTPUT -o lvb+ -j DROP")

    def test_packets_to_a_node_are_dropped(self):
        self.lost_and_back("-A INPUT -i lvb+ -j DROP")

    def test_node_cut_from_the_coordinator_alone_trains_on(self):
        coordinator = self.start_coordinator()
        workers = self.workers(self.start_agents("aba"))
        self.machines.filter("b", f"-A OUTPUT -p tcp --dport {COORDINATOR} -j DROP")
        cut = self.job.wait_status("the alarm", lambda s: ("node_silent", "node-1") in self.alarms(s))
        self.assertEqual(cut["job"]["waiting_for"], "")
        made = self.steps_made()
        wait_for("steps meanwhile", lambda: self.steps_made() >= made + 50)
        self.machines.filter("b")
        back = self.job.wait_status("the alarm to go", lambda s: not self.alarms(s))
        self.assertEqual(self.workers(back), workers)
        self.assertEqual(next(n["state"] for n in back["nodes"] if n["name"] == "node-1"), "healthy")
        self.assert_end(coordinator)
        self.assertEqual(self.generations(), [1])

    def test_node_cut_from_its_peers_alone_is_replaced(self):
        self.steps = 1200
        coordinator = self.start_coordinator()
        before = self.start_agents("aba")
        self.machines.filter("b", f"-A OUTPUT -p tcp --dport {COORDINATOR} -j ACCEPT", "-A OUTPUT -o lvb+ -j DROP",
                             f"-A INPUT -p tcp --sport {COORDINATOR} -j ACCEPT", "-A INPUT -i lvb+ -j DROP")
        self.job.wait_event("spare_activated")
        self.job.wait("rank 1 to train elsewhere", lambda: self.job.events("step_resumed")[1:])
        self.assertEqual(self.job.node_of_rank(1), "node-2")
        self.assertEqual({e["node"] for e in self.job.events("fault_detected")}, {"node-1"})
        # While its link is cut its worker is fresh but the handshake over the link fails: no spare.
        self.job.wait_event("handshake_failed")
        self.assertEqual(self.job.status()["job"]["spares"], 0)
        self.machines.filter("b")
        self.assertEqual(self.job.wait_event("node_repaired")["node"], "node-1")
        self.assertIsNone(harness.start_time(self.workers(before)[1][0]))
        self.assert_end(coordinator)

    def test_gang_cut_from_the_coordinator_trains_on(self):
        coordinator = self.start_coordinator()
        workers = self.workers(self.start_agents("bbb"))
        self.machines.link("b", "down")
        cut = self.job.wait_status("the coordinator to wait", lambda s: s["job"]["waiting_for"])
        self.assertIn("the coordinator itself may be cut off", cut["job"]["waiting_for"])
        made = self.steps_made()
        wait_for("steps meanwhile", lambda: self.steps_made() >= made + 50)
        self.machines.link("b", "up")
        back = self.job.wait_status("the job to be taken up", lambda s: not s["job"]["waiting_for"] and not self.alarms(s)
                                    and s["job"]["step"] > made + 50)
        self.assertEqual(self.workers(back), workers)
        self.assert_end(coordinator)
        self.assertEqual(self.generations(), [1])

    def test_gang_that_ends_while_it_is_cut_off_waits_for_the_coordinator(self):
        coordinator = self.start_coordinator()
        self.start_agents("bbb")
        self.machines.link("b", "down")
        wait_for("the last step", lambda: self.steps_made() >= self.steps - 1)
        time.sleep(0.5)
        self.assertIsNone(coordinator.poll())
        self.assertEqual({harness.last_line(p.read_text()) for p in self.dir.rglob("worker-*.log")}, {""})
        self.machines.link("b", "up")
        self.assert_end(coordinator)
        self.assertEqual(self.generations(), [1])

    def test_reset_with_nobody_dead_keeps_the_members(self):
        coordinator = self.start_coordinator()
        before = self.start_agents("aba")
        self.machines.filter("b", f"-A INPUT -p tcp --sport {COORDINATOR} -j ACCEPT",
                             "-A INPUT -i lvb+ -p tcp -j REJECT --reject-with tcp-reset")
        self.job.every = 0.001
        self.job.wait_event("collective_broken")
        self.machines.filter("b")
        self.job.wait("a step of the next generation", lambda: [e for e in self.job.events("step_resumed")
                                                               if e["generation"] >= 2])
        after = self.job.status()
        self.assertEqual(self.workers(after), self.workers(before))
        self.assertEqual({r["rank"]: r["node"] for r in after["ranks"]}, {0: "node-0", 1: "node-1"})
        self.assert_end(coordinator)
        self.assertEqual(self.job.events("fault_detected") + self.job.events("spare_activated"), [])

    def test_host_name_of_another_address_is_not_used(self):
        """A node with two addresses, whose host name resolves to the one that nobody reaches."""
        name = self.machines.names["b"]
        machines.ip("-n", name, "link", "add", "wrong0", "type", "veth", "peer", "name", "wrong1")
        machines.ip("-n", name, "addr", "add", "10.99.0.2/24", "dev", "wrong0")
        machines.ip("-n", name, "link", "set", "wrong0", "up")
        coordinator = self.start_coordinator()
        # It has rank 0, so others connect to it.
        self.start_agent("b", "node-0", hosts="10.99.0.2 two-addresses\n127.0.0.1 localhost\n")
        self.start_agent("a", "node-1")
        self.start_agent("a", "node-2")
        status = self.job.wait_status("step 50", lambda s: s["job"]["step"] >= 50)
        self.assertEqual({n["name"]: n["address"] for n in status["nodes"]},
                         {"node-0": "10.77.0.2", "node-1": "10.77.0.1", "node-2": "10.77.0.1"})
        self.assert_end(coordinator)
        self.assertEqual(self.generations(), [1])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
