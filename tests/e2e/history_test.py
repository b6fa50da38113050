"""Crashes and hangs outlive their pods. Real daemons send them by OTLP to a store. The gateway lists them and opens their dumps when
daemons and programs are gone. A store that lies, or that is none, is named."""

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import pytest

import documents
import fleet_gateway
import page_test
import telemetry
from fleet_gateway import Gateway
from grpc_peer import grpc
from grpcurl_test import GRPCURL, resource
from harness import BIN, LIMIT_S, ROOT, STACKCTL, StackdTest, eventually, free_port
from log_store import LogStore
from metrics_test import Metrics
from otlp_receiver import logs_service_pb2, logs_service_pb2_grpc, needs_protos

PREPARE = (fleet_gateway.build_gateway, page_test.prepare)
CRASH = ("crash_matrix", "signal=SEGV", "way=fault", "thread=main", "before=default", "await")
HANG = BIN / "tests/hangs/hang_mutex"


# How stackctl shows a dump, at its daemon and at the gateway.
SHOWS = (("show",), ("show", "--all"), ("show", "--native-only"), ("export", "-f", "folded"))


class HistoryCase(StackdTest):

    limit_s = 600

    def setUp(self):
        super().setUp()
        self.assertIsNotNone(GRPCURL, "grpcurl is missing: deploy/install-deps.sh --tests builds it")
        self.victims = {}

    def start_pod(self, pod, endpoint, *args):
        folder = self.dir / pod
        folder.mkdir()
        place = {"POD_NAME": pod, "POD_NAMESPACE": "shop", "NODE_NAME": "node-1"}
        return self.start_daemon(folder, extra_args=["--otlp-endpoint", endpoint, *args], env={**os.environ, **place})

    def crash(self, daemon, version="1.4"):
        variables = {"OTEL_SERVICE_NAME": "checkout", "OTEL_RESOURCE_ATTRIBUTES": f"service.version={version}"}
        return self.start_victim(*CRASH, ready=None, directory=daemon.dir, env=variables)

    def start_gateway(self, url, *args):
        gateway = Gateway(self.dir, {"pod-gone": ("127.0.0.1:1", {})}, "--history-loki", url, *args)
        self.addCleanup(gateway.kill)
        return gateway.start()

    def refused(self, gateway, method, request, code, reason):
        done = gateway.grpcurl(method, request)
        self.assertNotEqual(0, done.returncode, done.stdout)
        self.assertIn(f"Code: {code}", done.stderr)
        self.assertIn(reason, done.stderr)
        return done.stderr


def exported(daemon, name):
    """A dump as its daemon exports it, in bytes."""
    path = daemon.dir / "exported.json"
    outcome = daemon.ctl("export", name, "-f", "json", "--to", path)
    assert outcome.code == 0, outcome.err
    return path.read_bytes()


def metrics_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        return Metrics(answer.read().decode())


@needs_protos
@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class HistoryTest(HistoryCase):

    def setUp(self):
        super().setUp()
        self.store = LogStore(self)
        self.endpoint = f"http://127.0.0.1:{self.store.receiver.port}"

    def sent(self, kind):
        """Records of the store: "event" or "dump"."""
        return [record for record in self.store.receiver.records if (record.event == "stackd.dump") == (kind == "dump")]

    def await_sent(self, events, dumps):
        eventually(f"{events} events and {dumps} dumps are sent", lambda: (len(self.sent("event")), len(self.sent("dump"))) == (events, dumps))

    def test_crashes_are_listed_and_dumps_open_when_pods_are_gone(self):
        daemons = {pod: self.start_pod(pod, self.endpoint, "--otlp-dumps", "1") for pod in ("checkout-1", "checkout-2")}
        self.crash(daemons["checkout-1"], "1.3")
        self.await_sent(1, 1)
        self.crash(daemons["checkout-1"])
        self.await_sent(2, 1)
        self.crash(daemons["checkout-2"])
        self.await_sent(3, 2)
        before, shown = {}, {}
        for record in self.sent("dump"):
            # The body is what the daemon exports, to the byte.
            export = exported(daemons[record.resource["k8s.pod.name"]], record.attributes["stackd.dump.name"])
            self.assertEqual(export, gzip.decompress(base64.b64decode(record.body, validate=True)))
            self.assertEqual("sha256:" + hashlib.sha256(export).hexdigest(), record.attributes["stackd.dump.digest"])
            self.assertEqual(len(export), record.attributes["stackd.dump.bytes"])
            before[record.resource["k8s.pod.name"]] = export
            shown[record.resource["k8s.pod.name"]] = {args: daemons[record.resource["k8s.pod.name"]].ctl(*args, record.attributes["stackd.dump.name"]).out
                                                      for args in SHOWS}
        for daemon in daemons.values():
            daemon.kill()

        gateway = self.start_gateway(self.store.url)
        listed = gateway.call("ListCrashes")[0]
        self.assertEqual(("3", 1), (listed["totalCount"], listed["totalSize"]), listed)
        group, = listed["groups"]
        self.assertEqual([record.attributes["stackd.fingerprint"] for record in self.sent("event")], 3 * [group["fingerprint"]])
        self.assertEqual(("3", "2", "SIGSEGV"), (group["count"], group["podCount"], group["cause"]))
        self.assertEqual([("shop/checkout-1", "2"), ("shop/checkout-2", "1")], [(pod["name"], pod["count"]) for pod in group["pods"]])
        self.assertEqual([("1.4", "2"), ("1.3", "1")], [(version["name"], version["count"]) for version in group["versions"]])
        self.assertEqual([("checkout", "3")], [(service["name"], service["count"]) for service in group["services"]])
        self.assertIn("null", group["explanation"].lower())
        self.assertLess(group["firstSeenTime"], group["lastSeenTime"])
        self.assertEqual(["checkout-2", "checkout-1"], [one["pod"] for one in group["dumps"]])
        for one in group["dumps"]:
            opened = gateway.call("GetDump", {"name": one["dump"], "selector": f"pod={one['pod']}"})[0]
            self.assertEqual(resource(before[one["pod"]].decode()), opened)
            name = f"{one['target']}/{one['dump']}"
            self.assertEqual(opened, gateway.call("GetDump", {"name": name})[0])
            for args, text in shown[one["pod"]].items():
                done = gateway.ctl(*args, name)
                self.assertEqual((0, text, b""), (done.returncode, done.stdout.decode(), done.stderr))
            self.assertEqual(0, gateway.ctl("export", name, "-f", "json", "--to", self.dir / "again.json").returncode)
            self.assertEqual(before[one["pod"]], (self.dir / "again.json").read_bytes())
            refused = gateway.ctl("export", name, "-f", "minidump", "--to", self.dir / "again.dmp")
            self.assertIn(b"is a gateway, and has no minidumps", refused.stderr)
        self.assertEqual("1", gateway.call("ListCrashes", {"selector": "pod=checkout-2", "window": "600s"})[0]["totalCount"])
        self.assertNotIn("groups", gateway.call("ListCrashes", {"end_time": "2026-01-01T00:00:00Z"})[0])
        self.assertNotIn("groups", gateway.call("ListHangs")[0])
        self.assertIn(("GetDump", group["dumps"][0]["dump"], "OK"), {(call["method"], call["resource"], call["status"]) for call in gateway.calls()})

    def test_a_hang_is_listed_and_its_dump_opens(self):
        daemon = self.start_pod("checkout-1", self.endpoint, "--otlp-dumps", "3")
        victim = self.start_victim(HANG, "cycle_2", directory=daemon.dir)
        daemon.await_process(victim.pid)
        self.await_sent(1, 1)
        export = exported(daemon, self.sent("dump")[0].attributes["stackd.dump.name"])
        daemon.kill()
        gateway = self.start_gateway(self.store.url)
        group, = gateway.call("ListHangs")[0]["groups"]
        self.assertEqual(("1", "DEADLOCK"), (group["count"], group["cause"]))
        opened = gateway.call("GetDump", {"name": group["dumps"][0]["dump"]})[0]
        self.assertEqual(resource(export.decode()), opened)
        self.assertEqual("DEADLOCK", opened["hang"]["cause"])
        self.assertNotIn("groups", gateway.call("ListCrashes")[0])

    @unittest.skipUnless(shutil.which("npm") and page_test.node() and os.path.exists(page_test.CHROMIUM), "there is no npm, Node.js or Chromium")
    def test_its_page_opens_a_dump_of_a_pod_that_is_gone(self):
        daemon = self.start_pod("checkout-1", self.endpoint, "--otlp-dumps", "1")
        daemon.await_process(self.start_victim(HANG, "cycle_2", directory=daemon.dir).pid)
        self.await_sent(1, 1)
        daemon.kill()
        gateway = self.start_gateway(self.store.url)
        page_test.run_in_browser("with_gateway.mjs", STACKD_PAGE_URL=f"http://127.0.0.1:{gateway.port}/")

    def test_no_dump_is_sent_whole_unless_it_is_asked_for(self):
        daemon = self.start_pod("checkout-1", self.endpoint)
        self.crash(daemon)
        self.await_sent(1, 0)
        gateway = self.start_gateway(self.store.url)
        group, = gateway.call("ListCrashes")[0]["groups"]
        self.assertNotIn("dumps", group)
        name = self.sent("event")[0].attributes["stackd.dump.name"]
        self.assertIn("--otlp-dumps", self.refused(gateway, "GetDump", {"name": name}, "NotFound", "DUMP_NOT_FOUND"))

    def test_dumps_are_counted_in_the_metrics(self):
        port = free_port()
        daemon = self.start_pod("checkout-1", self.endpoint, "--otlp-dumps", "1", "--metrics-listen", f"127.0.0.1:{port}")
        for events in (1, 2):
            self.crash(daemon)
            self.await_sent(events, 1)
        eventually("two records are counted", lambda: metrics_at(port).get("stackd_otlp_records_total", outcome="sent") == 2)
        self.assertEqual(1, metrics_at(port).get("stackd_otlp_dumps_total", outcome="sent"))

    def test_the_commands_of_the_guide(self):
        """deploy/docs/history.md."""
        daemon = self.start_pod("checkout-1", self.endpoint, "--otlp-dumps", "1")
        self.crash(daemon)
        self.await_sent(1, 1)
        guide = ROOT / "deploy/docs/history.md"
        listing, opening, showing = [block.text for block in documents.fenced(guide, "history.md") if block.language == "sh"]
        gateway = self.start_gateway(self.store.url)
        # The gateway of the guide's first line runs already; its options are those that there are.
        known = set(re.findall(r"-([a-z-]+) ", subprocess.run([fleet_gateway.build_gateway(), "--help"], capture_output=True, text=True).stdout))
        named = set(re.findall(r"--(history-[a-z-]+)", guide.read_text()))
        self.assertEqual({option for option in known if option.startswith("history-")}, named)
        script = "\n".join([*listing.splitlines()[1:], opening, showing]).replace("127.0.0.1:7447", f"127.0.0.1:{gateway.port}")
        environment = {**os.environ, "PATH": f"{os.path.dirname(GRPCURL)}:{STACKCTL.parent}:{os.environ['PATH']}", "POD": "checkout-1",
                       "DUMP": self.sent("dump")[0].attributes["stackd.dump.name"]}
        done = subprocess.run(["bash", "-euc", script], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('"totalCount": "1"', done.stdout)
        self.assertIn('"trigger": "CRASH"', done.stdout)
        self.assertIn("SIGSEGV", done.stdout[done.stdout.rindex("}"):])

    def test_a_store_that_lies_is_named(self):
        daemon = self.start_pod("checkout-1", self.endpoint, "--otlp-dumps", "1")
        self.crash(daemon)
        self.await_sent(1, 1)
        record, = self.sent("dump")
        named = {"name": record.attributes["stackd.dump.name"]}
        gateway = self.start_gateway(self.store.url)
        self.assertEqual(named["name"], gateway.call("GetDump", named)[0]["name"])
        dump = json.loads(gzip.decompress(base64.b64decode(record.body)))
        dump["crash"]["explanation"] = "all is well"
        record.body = base64.b64encode(gzip.compress(json.dumps(dump).encode())).decode()
        self.refused(gateway, "GetDump", named, "DataLoss", "DUMP_DAMAGED")
        for instead, code, reason in (((200, "text/html", b"<h1>login</h1>"), "Internal", "HISTORY_BAD_ANSWER"),
                                      ((400, "text/plain", b"query too long"), "FailedPrecondition", "query too long"),
                                      ((503, "text/plain", b"starting"), "Unavailable", "HISTORY_UNAVAILABLE")):
            self.store.instead = instead
            for method, request in (("ListCrashes", {}), ("ListHangs", {}), ("GetDump", named)):
                self.assertNotIn("login", self.refused(gateway, method, request, code, reason))
        for method, request, word in (("ListCrashes", {"window": "-1s"}, "BAD_WINDOW"), ("ListHangs", {"fingerprint": "x"}, "BAD_NAME"),
                                      ("GetDump", {"name": "dumps/1"}, "BAD_NAME"), ("ListCrashes", {"page_token": "x"}, "BAD_PAGE_TOKEN")):
            self.refused(gateway, method, request, "InvalidArgument", word)


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class MistakeTest(HistoryCase):

    def test_a_mistake_is_a_sentence(self):
        targets = self.dir / "targets.json"
        targets.write_text("[]")
        for code, sentence, args in (
                (1, '--history-loki: "loki:3100" is no address of Loki', ["--history-loki", "loki:3100"]),
                (1, "/nonexistent", ["--history-loki", "http://loki:3100", "--history-loki-token", "/nonexistent"]),
                (1, "selects no streams", ["--history-loki", "http://loki:3100", "--history-loki-streams", "app"]),
                (2, "need --history-loki", ["--history-loki-tenant", "stackd"])):
            done = subprocess.run([fleet_gateway.build_gateway(), "--targets-file", targets, *args], capture_output=True, text=True, timeout=60)
            self.assertEqual((code, 1), (done.returncode, len(done.stderr.strip().splitlines())), done.stderr)
            self.assertIn(sentence, done.stderr)

    def test_a_store_that_is_not_there_or_was_not_given_is_said(self):
        gateway = self.start_gateway(f"http://127.0.0.1:{free_port()}")
        self.refused(gateway, "ListCrashes", {}, "Unavailable", "HISTORY_UNAVAILABLE")
        folder = self.dir / "without"
        folder.mkdir()
        without = Gateway(folder, {"pod-gone": ("127.0.0.1:1", {})})
        self.addCleanup(without.kill)
        self.assertIn("--history-loki", self.refused(without.start(), "ListHangs", {}, "FailedPrecondition", "NO_HISTORY"))


# Records of a storm, as daemons would send them.
STORM, STORM_FINGERPRINTS, STORM_PODS = 10_000, 300, 500


def storm():
    """Requests of 100 records each."""
    now_ns = time.time_ns()
    pair = lambda key, value: {"key": key, "value": {"string_value": value}}
    for first in range(0, STORM, 100):
        resources = []
        for i in range(first, first + 100):
            resource_pairs = [pair("service.name", "storm"), pair("k8s.pod.name", f"storm-{i % STORM_PODS}"), pair("k8s.namespace.name", "shop")]
            attributes = [pair("stackd.trigger", "CRASH"), pair("stackd.fingerprint", f"{i % STORM_FINGERPRINTS:032x}"),
                          pair("stackd.dump.name", f"processes/1-1/dumps/20261121T020000000Z-{i}"), pair("exception.type", "SIGSEGV"),
                          pair("exception.stacktrace", "in f\n" * 200)]
            record = {"time_unix_nano": now_ns - i * 1_000_000, "body": {"string_value": f"crash {i}"}, "attributes": attributes}
            resources.append({"resource": {"attributes": resource_pairs}, "scope_logs": [{"log_records": [record]}]})
        yield logs_service_pb2.ExportLogsServiceRequest(resource_logs=resources)


@pytest.mark.thorough
@needs_protos
@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class RealStoreTest(HistoryCase):
    """A real collector and a real Loki, with the configurations that the guide shows."""

    limit_s = 7200

    def setUp(self):
        super().setUp()
        self.loki = telemetry.Loki(self)
        self.collector = telemetry.Collector(self, self.loki)
        self.endpoint = f"http://127.0.0.1:{self.collector.port}"

    def listed(self, gateway, method, count, request=None):
        """Answers are whole when Loki has indexed what it took."""

        def whole():
            answer = gateway.call(method, request or {})[0]
            return answer if answer.get("totalCount") == str(count) else None

        return eventually(f"{method} has {count}", whole, 180)

    def test_history_is_whole_through_restarts_and_dumps_open(self):
        first = self.start_pod("checkout-1", self.endpoint, "--otlp-dumps", "1")
        gateway = self.start_gateway(self.loki.url, "--history-loki-tenant", "stackd")
        self.crash(first, "1.3")
        group, = self.listed(gateway, "ListCrashes", 1)["groups"]
        before = exported(first, group["dumps"][0]["dump"])
        first.kill()
        self.collector.restart()
        self.loki.restart()
        second = self.start_pod("checkout-2", self.endpoint, "--otlp-dumps", "1")
        self.crash(second)
        self.crash(second)
        victim = self.start_victim(HANG, "cycle_2", directory=second.dir)
        second.await_process(victim.pid)
        hang, = self.listed(gateway, "ListHangs", 1)["groups"]
        self.assertEqual("DEADLOCK", hang["cause"])
        group, = self.listed(gateway, "ListCrashes", 3)["groups"]
        self.assertEqual(("3", "2", "SIGSEGV"), (group["count"], group["podCount"], group["cause"]))
        self.assertEqual([("1.4", "2"), ("1.3", "1")], [(version["name"], version["count"]) for version in group["versions"]])
        self.assertEqual({"checkout-1", "checkout-2"}, {one["pod"] for one in group["dumps"]})
        opened = gateway.call("GetDump", {"name": group["dumps"][-1]["dump"], "selector": "pod=checkout-1"})[0]
        self.assertEqual(resource(before.decode()), opened)
        # Without the gateway, as the guide says.
        query = urllib.parse.urlencode({"query": '{k8s_pod_name="checkout-1"} | stackd_dump_digest!=""', "since": "1h"})
        asked = urllib.request.Request(f"{self.loki.url}/loki/api/v1/query_range?{query}", headers={"X-Scope-OrgID": "stackd"})
        stream, = json.load(urllib.request.urlopen(asked, timeout=LIMIT_S))["data"]["result"]
        self.assertEqual(before, gzip.decompress(base64.b64decode(stream["values"][0][1])))
        self.assertIn("no org id", self.refused(self.start_other_gateway(), "ListCrashes", {}, "FailedPrecondition", "HISTORY_REFUSED"))

    def start_other_gateway(self):
        folder = self.dir / "other"
        folder.mkdir()
        gateway = Gateway(folder, {"pod-gone": ("127.0.0.1:1", {})}, "--history-loki", self.loki.url)
        self.addCleanup(gateway.kill)
        return gateway.start()

    def test_a_storm_is_counted(self):
        stub = logs_service_pb2_grpc.LogsServiceStub(grpc.insecure_channel(f"127.0.0.1:{self.collector.port}"))
        for request in storm():
            stub.Export(request, timeout=LIMIT_S)
        gateway = self.start_gateway(self.loki.url, "--history-loki-tenant", "stackd")
        answer = self.listed(gateway, "ListCrashes", STORM, {"page_size": 1000})
        self.assertEqual(STORM_FINGERPRINTS, answer["totalSize"])
        counts = {group["fingerprint"]: int(group["count"]) for group in answer["groups"]}
        expected = {f"{i:032x}": len(range(i, STORM, STORM_FINGERPRINTS)) for i in range(STORM_FINGERPRINTS)}
        self.assertEqual(expected, counts)
        pods = {(i % STORM_FINGERPRINTS, i % STORM_PODS) for i in range(STORM)}
        self.assertEqual(len(pods), sum(int(group["podCount"]) for group in answer["groups"]))
