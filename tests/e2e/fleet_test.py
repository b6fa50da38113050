"""One answer for many pods: real daemons with real programs, merged by the gateway and asked for by grpcurl. What hangs, ends, lies
or never was there is named with its reason, and the rest is answered in time."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

import pytest

import documents
import fleet_gateway
import hostile_daemons
from access_fixture import ACCESS, AccessFixture
from authority import Authority
from fleet_gateway import Gateway, paths_of, unreachable_of
from grpcurl_test import GRPCURL
from harness import LIMIT_S, ROOT, StackdTest, eventually, free_port
from metrics_test import Metrics

PREPARE = (fleet_gateway.build_gateway, fleet_gateway.build_plugin)
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
        shown = self.daemons["checkout-10"].ctl("show", example["dump"]).out
        self.assertIn("first", shown)
        for name in (f"{example['target']}/{example['dump']}", example["dump"]):
            opened = gateway.ctl("show", name)
            self.assertEqual((0, shown), (opened.returncode, opened.stdout.decode()), opened.stderr)
        self.assertEqual(example["dump"], gateway.call("GetDump", {"name": example["dump"], "selector": "pod=checkout-10"})[0]["name"])
        elsewhere = gateway.ctl("show", f"targets/shop/checkout-11/{example['dump']}")
        self.assertEqual(3, elsewhere.returncode)
        self.assertIn(b"no daemon that fits has it: 1 asked", elsewhere.stderr)

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

    def test_gateways_that_share_the_work_give_the_answer_of_one(self):
        programs = {f"checkout-{i}": ("waiting_threads", "3") for i in range(4)} | {"checkout-7": ("two_locks", "normal")}
        self.start_pods(programs)
        targets = self.targets() | {"checkout-gone": ("127.0.0.1:1", SHOP)}
        (self.dir / "second").mkdir()
        second = Gateway(self.dir / "second", targets)
        self.addCleanup(second.kill)
        gateways = [self.start_gateway(targets), second.start()]
        whole = gateways[0].dump({"timeout": "60s"})
        slices = [gateway.grpcurl("CreateFleetDump", {"timeout": "60s", "slice": {"index": i, "count": 2}}).stdout for i, gateway in enumerate(gateways)]
        parts = [fleet_gateway.messages_of(text)[-1]["fleetDump"] for text in slices]
        self.assertEqual(6, sum(part.get("selected", 0) for part in parts))
        self.assertTrue(all(part.get("selected") for part in parts), "this test needs names that fall into both slices")

        def content(dump):
            """What does not change from one dump of a process to the next."""
            nodes = {path: (node["counts"], node["innermost"], [one["target"] for one in node["examples"]]) for path, node in paths_of(dump).items()}
            odd = [([pod["pod"] for pod in one["pods"]], one["differences"], one["score"]) for one in dump["oddPods"]]
            findings = [{**one, "examples": [example["target"] for example in one["examples"]]} for one in dump["findings"]]
            return {**{key: dump[key] for key in ("state", "selected", "answered", "counts", "unreachable", "request")},
                    "nodes": nodes, "odd": odd, "findings": findings, "lines": dump["lines"][1:]}

        for order in (slices, slices[::-1]):
            joined = second.call("MergeStacks", "".join(order))[0]
            self.assertEqual(content(whole), content(joined))
        self.assertNotIn("name", joined)
        some = second.call("MergeStacks", slices[1])[0]
        self.assertIn("1 of 2 slices of the targets are in it", some["notes"])
        self.assertEqual(content(whole), content(second.call("MergeStacks", slices[0] + json.dumps({"fleetDump": some}))[0]))
        for text in ("", "".join(slices) + slices[0], json.dumps({"fleetDump": whole})):
            self.assertIn("BAD_PART", second.grpcurl("MergeStacks", text).stderr)

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


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class FleetAccessTest(AccessFixture):
    """Callers and daemons beyond loopback: by certificates, with roles."""

    def start_pod_with_tls(self, server, access=ACCESS):
        self.server = server
        daemon = self.start_daemon(extra_args=[*self.tls_flags(), "--access", self.write_access(access)])
        self.victim = self.start_victim("waiting_threads", 2)
        daemon.await_process(self.victim.pid)
        return daemon

    def start_gateway(self, daemon, *args):
        folder = self.dir / "gateway"
        folder.mkdir()
        gateway = Gateway(folder, {"pod-a": (f"127.0.0.1:{daemon.port}", {})}, "--parallel", 4, *args)
        self.addCleanup(gateway.kill)
        return gateway.start()

    def towards_daemons(self, certificate, name="localhost"):
        return ["--daemon-tls-cert", certificate.crt, "--daemon-tls-key", certificate.key, "--daemon-tls-ca", self.authority.own.crt,
                "--daemon-tls-name", name]

    def towards_callers(self, access):
        path = self.dir / "callers.yaml"
        path.write_text(access)
        return ["--tls-cert", self.server.crt, "--tls-key", self.server.key, "--tls-client-ca", self.authority.own.crt, "--access", path]

    def caller(self, certificate):
        """Options of grpcurl."""
        own = ["-cert", certificate.crt, "-key", certificate.key] if certificate else []
        return ["-cacert", self.authority.own.crt, "-authority", "localhost", *own]

    def test_a_daemon_refuses_with_a_reason_and_new_certificates_need_no_restart(self):
        daemon = self.start_pod_with_tls(self.authority.issue("server", "DNS:localhost"))
        mine = self.authority.issue("gateway", "DNS:dashboard.test")
        gateway = self.start_gateway(daemon, *self.towards_daemons(mine))
        ask = lambda: gateway.dump({"timeout": "60s"})
        self.assertEqual({"pod-a": "PERMISSION_DENIED"}, unreachable_of(ask()))
        # Another certificate, in the same files.
        better = self.authority.issue("better", "DNS:oncall.test")
        for new, old in ((better.crt, mine.crt), (better.key, mine.key)):
            new.rename(old)
        daemon.restart()
        daemon.await_process(self.victim.pid)
        better_known = ask()
        self.assertEqual("COMPLETE", better_known["state"], better_known["lines"])
        # One of another authority.
        stranger = Authority(self.dir / "other", "stranger").issue("forged", "DNS:oncall.test")
        for new, old in ((stranger.crt, mine.crt), (stranger.key, mine.key)):
            new.rename(old)
        daemon.restart()
        refused = ask()
        self.assertEqual({"pod-a": "TLS"}, unreachable_of(refused), refused)

    def test_a_daemon_of_another_name_is_not_believed(self):
        daemon = self.start_pod_with_tls(self.authority.issue("server", "DNS:elsewhere.test"))
        gateway = self.start_gateway(daemon, *self.towards_daemons(self.oncall))
        dump = gateway.dump({"timeout": "60s"})
        self.assertEqual({"pod-a": "TLS"}, unreachable_of(dump))
        self.assertIn("elsewhere.test", dump["unreachable"][0]["explanation"])

    def test_callers_have_roles_by_their_certificates_and_are_audited(self):
        daemon = self.start_pod_with_tls(self.authority.issue("server", "DNS:localhost,IP:127.0.0.1"))
        gateway = self.start_gateway(daemon, *self.towards_daemons(self.oncall), *self.towards_callers(ACCESS))

        def call(method, certificate):
            return gateway.grpcurl(method, options=self.caller(certificate))

        self.assertEqual(0, call("CreateFleetDump", self.oncall).returncode)
        self.assertEqual(0, call("ListTargets", self.dashboard).returncode)
        refused = call("CreateFleetDump", self.dashboard)
        self.assertIn("PermissionDenied", refused.stderr)
        self.assertIn("dns:dashboard.test has the role read, and CreateFleetDump needs dump", refused.stderr)
        self.assertIn("ROLE_MISSING", refused.stderr)
        nobody = self.authority.issue("nobody", "DNS:unknown.test")
        self.assertIn("PermissionDenied", call("ListTargets", nobody).stderr)
        for certificate in (None, Authority(self.dir / "other", "stranger").issue("forged", "DNS:oncall.test")):
            self.assertNotEqual(0, gateway.grpcurl("ListTargets", options=[*self.caller(certificate), "-connect-timeout", 2]).returncode)
        self.assertNotEqual(0, gateway.grpcurl("ListTargets", options=["-plaintext", "-connect-timeout", 2]).returncode)

        audited = [(c["caller"], c["role"], c["method"], c["status"], c.get("reason"), c["level"]) for c in gateway.calls()]
        self.assertEqual([
            ("dns:oncall.test", "dump", "CreateFleetDump", "OK", None, "info"),
            ("dns:dashboard.test", "read", "ListTargets", "OK", None, "info"),
            ("dns:dashboard.test", "read", "CreateFleetDump", "PERMISSION_DENIED", "ROLE_MISSING", "warning"),
            ("dns:unknown.test", "none", "ListTargets", "PERMISSION_DENIED", "ROLE_MISSING", "warning")], audited)


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class ServedTest(StackdTest):
    """What the one port speaks, and how the program starts and ends."""

    def start_gateway(self, address="127.0.0.1:1"):
        gateway = Gateway(self.dir, {"pod-a": (address, {})})
        self.addCleanup(gateway.kill)
        return gateway.start()

    def test_grpc_connect_reflection_and_health_on_one_port(self):
        gateway = self.start_gateway()
        run = lambda *args: subprocess.run([GRPCURL, "-plaintext", *args], capture_output=True, text=True, timeout=60)
        address = f"127.0.0.1:{gateway.port}"
        services = run(address, "list").stdout.split()
        self.assertEqual(["grpc.health.v1.Health", "stackd.v1.Fleet"], [name for name in services if "reflection" not in name])
        self.assertIn("rpc CreateFleetDump", run(address, "describe", "stackd.v1.Fleet").stdout)
        self.assertIn("SERVING", run("-d", "{}", address, "grpc.health.v1.Health/Check").stdout)

        def post(headers, path="/stackd.v1.Fleet/ListTargets", body="{}"):
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()

        status, body = post({"Content-Type": "application/json"})
        self.assertEqual((200, "targets/pod-a"), (status, json.loads(body)["targets"][0]["name"]))
        status, body = post({"Content-Type": "application/grpc-web+proto"}, body=bytes(5))
        self.assertEqual(200, status)
        self.assertIn(b"targets/pod-a", body)
        self.assertIn(b"grpc-status: 0", body.lower())
        # Pages of other sites, and names that were bound to this address.
        self.assertEqual(403, post({"Content-Type": "application/json", "Origin": "http://evil.example"})[0])
        self.assertEqual(403, post({"Content-Type": "application/json", "Host": "rebound.example"})[0])
        self.assertEqual(415, post({"Content-Type": "text/plain"})[0])

    def test_metrics_and_probes_are_on_a_port_of_their_own(self):
        port = free_port()
        gateway = Gateway(self.dir, {"pod-a": ("127.0.0.1:1", {})}, "--metrics-listen", f"127.0.0.1:{port}")
        self.addCleanup(gateway.kill)
        gateway.start()

        def page(path):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
                return answer.read().decode()

        self.assertEqual(("ok\n", "ok\n"), (page("/livez"), page("/readyz")))
        before = Metrics(page("/metrics"))
        self.assertEqual({"pod-a": "NO_CONNECTION"}, unreachable_of(gateway.dump()))
        # A call is counted when its answer is out already.
        eventually("the call is counted", lambda: "grpc_server_handling_seconds_count" in page("/metrics"))
        text = page("/metrics")
        after = Metrics(text)
        self.assertEqual(set(), {name for name in before.names() if name.startswith("stackd_")} - after.names())
        moved = {"stackd_gateway_targets_asked_total": {}, "stackd_gateway_targets_unreachable_total": {"reason": "no_connection"},
                 "stackd_gateway_fleet_dumps_total": {"state": "partial"}}
        for name, labels in moved.items():
            self.assertEqual((0, 1), (before.get(name, **labels), after.get(name, **labels)), name)
        self.assertEqual(1, after.get("stackd_gateway_discovery_targets", source=str(gateway.file)))
        labels = {name for _, pairs in after.values for name, _ in pairs}
        self.assertFalse(labels & {"pod", "target", "caller", "selector"}, "labels without a bound")
        gateway.file.write_text("<html>")
        eventually("what is known becomes old", lambda: Metrics(page("/metrics")).get(
            "stackd_gateway_discovery_age_seconds", source=str(gateway.file)) > 0.5)
        promtool = shutil.which("promtool")
        if promtool:
            done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))

    def test_it_ends_in_order_and_says_what_is_wrong(self):
        gateway = self.start_gateway()
        self.assertEqual(0, gateway.stop())
        program = fleet_gateway.build_gateway()
        faulty = self.dir / "faulty.json"
        faulty.write_text("<html>")
        for code, sentence, args in (
                (2, "which daemons?", []),
                (2, "needs mutual TLS", ["--targets-file", gateway.file, "--listen", "0.0.0.0:7447"]),
                (2, "go together", ["--targets-file", gateway.file, "--tls-cert", "x"]),
                (2, "--nonsense", ["--nonsense"]),
                (1, "there is no such file", ["--targets-file", "/nonexistent.json"]),
                (1, "not the form of file_sd", ["--targets-file", faulty]),
                (1, "dns:///stackd", ["--targets-dns", "stackd:7443"]),
                (1, "/nonexistent.yaml", ["--targets-file", gateway.file, "--access", "/nonexistent.yaml"])):
            with self.subTest(sentence):
                done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=60)
                self.assertEqual((code, 1), (done.returncode, len(done.stderr.strip().splitlines())), done.stderr)
                self.assertIn(sentence, done.stderr)
        shown = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60)
        self.assertLess(shown.stdout.index("Examples:"), shown.stdout.index("Options:"))
        self.assertEqual("", shown.stderr)

    def test_the_commands_of_the_guide(self):
        """deploy/docs/fleet.md, from nothing to the first fleet dump."""
        daemon = self.start_daemon()
        daemon.await_process(self.start_victim("two_locks", "normal").pid)
        first, plugin, secured, _, sliced = [block.text for block in documents.fenced(ROOT / "deploy/docs/fleet.md", "fleet.md") if block.language == "sh"]
        bin_dir = self.dir / "bin"
        bin_dir.mkdir()
        (bin_dir / "stackd-gateway").symlink_to(fleet_gateway.build_gateway())
        (bin_dir / "grpcurl").symlink_to(GRPCURL)
        port = free_port()
        script = first.replace("127.0.0.1:7443", f"127.0.0.1:{daemon.port}").replace("127.0.0.1:7447", f"127.0.0.1:{port}")
        script = script.replace("stackd-gateway ", f"stackd-gateway --listen 127.0.0.1:{port} ")
        # A person types more slowly than a shell.
        lines = script.splitlines()
        started = next(i for i, line in enumerate(lines) if line.endswith("&"))
        lines.insert(started + 1, f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.05; done")
        script = "\n".join(["trap 'kill $(jobs -p)' EXIT", *lines])
        done = subprocess.run(["bash", "-euc", script], cwd=self.dir, env={**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('"targets/checkout-1"', done.stdout)
        self.assertIn("DEADLOCK in 1 pod: # threads wait for each other in a circle: thread first, thread second", done.stdout)

        gateway = self.start_gateway(json.loads((self.dir / "targets.json").read_text())[0]["targets"][0])
        done = subprocess.run(["bash", "-euc", sliced.replace("127.0.0.1:7447", f"127.0.0.1:{gateway.port}")], stdin=subprocess.DEVNULL,
                              env={**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("COMPLETE", json.loads(done.stdout)["state"])

        for line in plugin.splitlines():
            # What the plugin would be called with; PATH has no kubectl, which it says then.
            said = subprocess.run([fleet_gateway.build_plugin(), *line.split()[2:]], env={"PATH": ""}, capture_output=True, text=True)
            self.assertIn("kubectl is not in PATH", said.stderr)
        options = set(re.findall(r"--[a-z-]+", secured))
        known = set(re.findall(r"-([a-z-]+) ", subprocess.run([bin_dir / "stackd-gateway", "--help"], capture_output=True, text=True).stdout))
        self.assertGreater(len(options), 7)
        self.assertEqual(set(), {option.removeprefix("--") for option in options} - known)


class ModuleTest(unittest.TestCase):
    """The module's own tests, and what is generated."""

    limit_s = 600

    @unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
    def test_its_unit_tests_pass(self):
        done = fleet_gateway.run_go("test", "-count=1", "./...", timeout=500)
        self.assertEqual(5, done.stdout.count("ok  \t"), done.stdout)

    @pytest.mark.thorough
    @unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
    def test_its_fuzzers_find_nothing(self):
        for package, target in (("merge", "FuzzMerge"), ("merge", "FuzzPart"), ("targets", "FuzzSelector"), ("targets", "FuzzFile"), ("gateway", "FuzzRules"),
                                ("history", "FuzzAnswer"), ("history", "FuzzBody")):
            with self.subTest(target):
                done = fleet_gateway.run_go("test", "-run", "^$", "-fuzz", f"^{target}$", "-fuzztime", "15s", f"./{package}", timeout=200)
                self.assertRegex(done.stdout, r"execs: [1-9]")

    @unittest.skipUnless(fleet_gateway.go_is_here() and shutil.which("protoc"), "there is no Go 1.26 or no protoc")
    def test_what_is_checked_in_is_what_the_protos_generate(self):
        with tempfile.TemporaryDirectory() as folder:
            fleet_gateway.generate(folder)
            here = fleet_gateway.MODULE / "api"
            files = sorted(path.relative_to(here) for path in here.rglob("*.go"))
            self.assertEqual(files, sorted(path.relative_to(folder) for path in pathlib.Path(folder).rglob("*.go")))
            for file in files:
                # Each says which protoc it came from.
                text = [re.sub(r"^// \t?-? *protoc +v.*", "", (root / file).read_text(), flags=re.M) for root in (here, pathlib.Path(folder))]
                self.assertEqual(text[0], text[1], f"{file}: run client/fleet/generate.sh")


if __name__ == "__main__":
    unittest.main()
