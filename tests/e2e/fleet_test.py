"""One answer for many pods: real daemons with real programs, merged by the gateway and asked for by grpcurl. What hangs, ends, lies
or never was there is named with its reason, and the rest is answered in time."""

import os
import signal
import time
import unittest

import fleet_gateway
import hostile_daemons
from fleet_gateway import Gateway, paths_of, unreachable_of
from grpcurl_test import GRPCURL
from harness import StackdTest, eventually

PREPARE = (fleet_gateway.build_gateway,)
SHOP = {"namespace": "shop", "workload": "checkout"}


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class FleetTest(StackdTest):
    """A daemon and a program for each pod, each with a folder of its own."""

    limit_s = 600

    def setUp(self):
        super().setUp()
        self.assertIsNotNone(GRPCURL, "grpcurl is missing: deploy/install-deps.sh --tests builds it")
        self.daemons = {}
        self.victims = {}

    def start_pod(self, pod, program, *args):
        folder = self.dir / pod
        folder.mkdir()
        self.daemons[pod] = self.start_daemon(folder)
        self.victims[pod] = self.start_victim(program, *args, directory=folder)

    def start_pods(self, programs):
        """{pod: (program, arguments...)}"""
        for pod, command in programs.items():
            self.start_pod(pod, *command)
        for pod in programs:
            self.daemons[pod].await_process(self.victims[pod].pid)

    def targets(self):
        return {pod: (f"127.0.0.1:{daemon.port}", SHOP) for pod, daemon in self.daemons.items()}

    def start_gateway(self, targets, *args):
        gateway = Gateway(self.dir, targets, *args)
        self.addCleanup(gateway.kill)
        return gateway.start()

    def test_findings_and_odd_ones_of_many_pods_are_in_one_answer(self):
        programs = {f"checkout-{i}": ("waiting_threads", "3") for i in range(9)}
        programs |= {f"checkout-{i}": ("two_locks", "normal") for i in (10, 11)}
        programs["checkout-12"] = ("c_calls",)
        self.start_pods(programs)
        gateway = self.start_gateway(self.targets())

        listed = gateway.call("ListTargets")[0]
        self.assertEqual([f"targets/shop/{pod}" for pod in sorted(programs)], [one["name"] for one in listed["targets"]])
        messages = gateway.call("CreateFleetDump", {"selector": "workload=checkout", "timeout": "60s"}, options=["-plaintext", "-max-time", 100])
        dump = messages[-1]["fleetDump"]
        self.assertEqual("COMPLETE", dump["state"], dump["lines"])
        self.assertEqual(12, messages[0]["progress"]["selected"])
        self.assertEqual((12, 12), (dump["selected"], dump["answered"]))

        deadlocks = [one for one in dump["findings"] if one["kind"] == "DEADLOCK"]
        self.assertEqual(1, len(deadlocks), deadlocks)
        self.assertEqual("2", deadlocks[0]["counts"]["pods"])
        self.assertEqual(["checkout-10", "checkout-11"], [one["pod"] for one in deadlocks[0]["examples"]])
        # A dump of an example is at its daemon, by the name that is in the answer.
        example = deadlocks[0]["examples"][0]
        self.assertIn("first", self.daemons["checkout-10"].ctl("show", example["dump"]).out)

        odd = {tuple(pod["pod"] for pod in one["pods"]): one for one in dump["oddPods"]}
        self.assertEqual({("checkout-10", "checkout-11"), ("checkout-12",)}, set(odd), dump["lines"])
        self.assertEqual("HAS_FINDING", odd["checkout-10", "checkout-11"]["differences"][0]["kind"])

        waiters = [node for path, node in paths_of(dump).items() if path.endswith("wait_for_work > ___pthread_cond_wait")]
        self.assertEqual([("27", "9", "9")], [(n["counts"]["threads"], n["counts"]["processes"], n["counts"]["pods"]) for n in waiters])
        self.assertEqual(3, len(waiters[0]["examples"]))
        text = "\n".join(dump["lines"])
        self.assertIn("DEADLOCK in 2 pods", text)
        self.assertNotIn("stackd-agent", text)

        self.assertEqual(dump, gateway.call("GetFleetDump", {"name": dump["name"]})[0])
        self.assertEqual(dump, gateway.call("GetFleetDump")[0])
        one = gateway.dump({"selector": "pod in (checkout-10)", "timeout": "60s"})
        self.assertEqual((1, "1"), (one["selected"], one["counts"]["pods"]))
        none = gateway.dump({"process": "nothing_of_this_name", "timeout": "60s"})
        self.assertEqual({"NO_PROCESS"}, set(unreachable_of(none).values()))
        audited = {(c["caller"], c["role"], c["method"], c["resource"], c["status"]) for c in gateway.calls()}
        self.assertIn(("loopback", "dump", "CreateFleetDump", "workload=checkout", "OK"), audited)

    def test_who_does_not_answer_is_named_and_the_rest_is_answered_in_time(self):
        self.start_pods({f"pod-{name}": ("waiting_threads", "2") for name in ("well", "also-well", "killed", "hung", "program-hung", "gone")})
        targets = self.targets()
        hostile = hostile_daemons.start(self)
        targets |= {pod: (address, SHOP) for pod, (address, _) in hostile.items()}
        gateway = self.start_gateway(targets)
        self.daemons["pod-killed"].kill()
        os.kill(self.daemons["pod-hung"].process.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.daemons["pod-hung"].process.pid, signal.SIGCONT)
        # Its daemon answers for it, in part.
        self.victims["pod-program-hung"].signal(signal.SIGSTOP)
        self.victims["pod-gone"].kill()
        eventually("the daemon has noticed", lambda: not self.daemons["pod-gone"].processes())

        began = time.monotonic()
        dump = gateway.dump({"timeout": "10s"}, options=["-plaintext", "-max-time", 60])
        took_s = time.monotonic() - began
        self.assertEqual("PARTIAL", dump["state"])
        expected = {"shop/pod-killed": "NO_CONNECTION", "shop/pod-hung": "TIMED_OUT", "shop/pod-gone": "NO_PROCESS"}
        expected |= {f"shop/{pod}": reason for pod, (_, reason) in hostile.items()}
        found = unreachable_of(dump)
        stopped = found.pop("shop/pod-program-hung", None)
        self.assertEqual(set(expected), set(found))
        for target, reason in expected.items():
            self.assertIn(found[target], reason.split("|"), target)
        self.assertEqual(len(targets), dump["answered"] + len(dump["unreachable"]))
        self.assertIn(stopped, (None, "TIMED_OUT"))
        self.assertLess(took_s, 40)
        for line in dump["lines"]:
            self.assertTrue(line.isprintable() or not line, repr(line))

        # The gateway is as small as before, and answers.
        resident_kb = int(next(line.split()[1] for line in open(f"/proc/{gateway.process.pid}/status") if line.startswith("VmHWM")))
        self.assertLess(resident_kb, 200 << 10)
        self.assertEqual("COMPLETE", gateway.dump({"selector": "pod in (pod-well,pod-also-well)", "timeout": "60s"})["state"])

    def test_pods_come_and_go_without_a_restart(self):
        self.start_pods({"pod-a": ("waiting_threads", "1"), "pod-b": ("waiting_threads", "1")})
        targets = self.targets()
        gateway = self.start_gateway({"pod-a": targets["pod-a"]})
        self.assertEqual(1, gateway.dump({"timeout": "60s"})["answered"])
        gateway.write_targets(targets)
        self.assertEqual(2, gateway.dump({"timeout": "60s"})["answered"])
        gateway.file.write_text('[{"targets": ["127.0.')
        self.assertEqual(2, gateway.dump({"timeout": "60s"})["answered"])
        self.assertIn("targets.json", gateway.call("ListTargets")[0]["problems"][0])
        gateway.write_targets({})
        refused = gateway.grpcurl("CreateFleetDump")
        self.assertIn("FailedPrecondition", refused.stderr)
        self.assertIn("NO_TARGET", refused.stderr)
        # A daemon that was restarted is connected anew.
        self.daemons["pod-a"].restart()
        self.daemons["pod-a"].await_process(self.victims["pod-a"].pid)
        gateway.write_targets(self.targets())
        self.assertEqual("COMPLETE", gateway.dump({"timeout": "60s"})["state"])

    def test_bad_requests_are_refused_with_a_reason(self):
        gateway = self.start_gateway({"pod-a": ("127.0.0.1:1", SHOP)})
        for method, request, code, word in (
                ("CreateFleetDump", {"selector": "a in b"}, "InvalidArgument", "BAD_SELECTOR"),
                ("CreateFleetDump", {"selector": "pod=x"}, "FailedPrecondition", "NO_TARGET"),
                ("CreateFleetDump", {"timeout": "-1s"}, "InvalidArgument", "BAD_TIMEOUT"),
                ("GetFleetDump", {}, "NotFound", "FLEET_DUMP_NOT_FOUND"),
                ("GetFleetDump", {"name": "dumps/1"}, "InvalidArgument", "BAD_NAME"),
                ("ListTargets", {"page_size": -1}, "InvalidArgument", "BAD_PAGE_SIZE"),
                ("ListTargets", {"page_token": "x"}, "InvalidArgument", "BAD_PAGE_TOKEN"),
                ("CreateFleetDump", {"selector": "x" * 100_000}, "ResourceExhausted", "")):
            with self.subTest(method, **{key: str(value)[:20] for key, value in request.items()}):
                refused = gateway.grpcurl(method, request)
                self.assertNotEqual(0, refused.returncode)
                self.assertIn(code, refused.stderr)
                self.assertIn(word, refused.stderr)
        self.assertEqual(0, gateway.stop())


class ModuleTest(unittest.TestCase):
    """The module's own tests, and what is generated."""

    @unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
    def test_its_unit_tests_pass(self):
        done = fleet_gateway.run_go("test", "-count=1", "./...", timeout=280)
        self.assertEqual(4, done.stdout.count("ok  \t"), done.stdout)


if __name__ == "__main__":
    unittest.main()
