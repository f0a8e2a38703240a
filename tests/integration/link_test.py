"""The link of a node is taken down without a reset; the spare takes over; the link comes back; the node is fenced, repaired,
and takes its rank back."""

import sys
import unittest

import harness
import machines


class Link(machines.Linked):
    def test_link_down_without_reset(self):
        coordinator = self.start_coordinator()
        self.start_agent("a", "node-0")
        self.start_agent("b", "node-1")
        self.start_agent("a", "node-2")
        before = self.job.wait_status("step 50", lambda s: s["job"]["step"] >= 50)
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
        self.assert_end(coordinator)


class LinkNoAbort(machines.Linked):
    """Without an abort call: who waits in recv for the node that is cut off would wait for ever."""

    steps = 200

    def command(self):
        plain = super().command()
        return [plain[0], "--no-abort", *plain[1:]]

    def test_link_down_without_abort_call(self):
        """The survivor is broken out of its recv by the library, and is the same process afterwards."""
        coordinator = self.start_coordinator()
        before = self.start_agents("aba")
        pid = next(r["worker_pid"] for r in before["ranks"] if r["rank"] == 0)
        born = harness.start_time(pid)
        self.machines.link("b", "down")
        self.job.wait_event("step_resumed", 2)
        self.assertEqual({r["rank"]: r["node"] for r in self.job.status()["ranks"]}, {0: "node-0", 1: "node-2"})
        self.assertEqual(harness.start_time(pid), born)
        self.assertEqual([e["node"] for e in self.job.events("fault_detected")], ["node-1"])
        self.machines.link("b", "up")
        self.assert_end(coordinator)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
