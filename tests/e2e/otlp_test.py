"""Crashes and hangs reach a receiver that was made from OpenTelemetry's published protos, with the resource of the process that
they are about. What cannot be sent is counted, and holds up nothing."""

import json
import os
import pathlib
import subprocess
import threading
import time

from authority import Authority
from grpc_peer import grpc
from grpcurl_test import GRPCURL
from harness import BIN, LIMIT_S, STACKD, StackdTest, eventually, free_port
from otlp_receiver import Receiver, needs_protos

HANGS = BIN / "tests/hangs"
CRASH = ("crash_matrix", "signal=SEGV", "way=fault", "thread=main", "before=default", "await")

# Environment of a container in a pod, as deploy/kubernetes sets it.
POD = {"POD_NAME": "checkout-6d4cf56db6-x2x7k", "POD_NAMESPACE": "shop", "NODE_NAME": "node-1"}
CONTAINER = {"STACKD_CONTAINER_NAME": "app", "STACKD_CONTAINER_IMAGE": "registry.example/checkout:1.4"}


class OtlpCase(StackdTest):

    def receive(self, port=0, credentials=None):
        receiver = Receiver(f"127.0.0.1:{port}", credentials)
        self.addCleanup(receiver.close)
        return receiver

    def send_to(self, port, *extra_args, scheme="http", host="127.0.0.1", env=None):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        environment.update(env or {})
        return self.start_daemon(extra_args=["--otlp-endpoint", f"{scheme}://{host}:{port}", *extra_args], env=environment)

    def counters(self, daemon):
        done = subprocess.run([GRPCURL, "-plaintext", f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/GetDaemon"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        return {name: int(value) for name, value in json.loads(done.stdout)["counters"].items()}

    def crash(self, **kwargs):
        return self.start_victim(*CRASH, ready=None, **kwargs)


@needs_protos
class OtlpTest(OtlpCase):

    def test_a_crash_arrives_with_the_resource_of_its_process(self):
        receiver = self.receive()
        podinfo = self.dir / "podinfo"
        podinfo.mkdir()
        (podinfo / "labels").write_text('pod-template-hash="6d4cf56db6"\n')
        (podinfo / "annotations").write_text('resource.opentelemetry.io/team="payments"\n')
        daemon = self.send_to(receiver.port, "--pod-info", podinfo, env=POD)
        victim = self.crash(env=CONTAINER)
        record, = receiver.expect(1)
        self.assertEqual(("exception", 21, "stackd"), (record.event, record.severity, record.scope))
        self.assertEqual("SIGSEGV", record.attributes["exception.type"])
        self.assertIn("null", record.attributes["exception.message"].lower())
        self.assertEqual(record.body, record.attributes["exception.message"])
        self.assertIn("crash_matrix", record.attributes["exception.stacktrace"])
        self.assertAlmostEqual(time.time(), record.time_s, delta=60)
        self.assertEqual(victim.pid, record.attributes["thread.id"])
        expected = {
            "service.name": "checkout", "service.namespace": "shop", "service.version": "1.4",
            "service.instance.id": "shop.checkout-6d4cf56db6-x2x7k.app", "k8s.pod.name": POD["POD_NAME"],
            "k8s.namespace.name": "shop", "k8s.node.name": "node-1", "k8s.container.name": "app",
            "container.image.name": "registry.example/checkout", "container.image.tags": ["1.4"], "team": "payments",
            "process.pid": victim.pid, "process.executable.name": "crash_matrix", "host.name": os.uname().nodename}
        self.assertEqual(expected, {key: record.resource.get(key) for key in expected})
        self.assertRegex(record.resource["process.executable.build_id.gnu"], "^[0-9a-f]{32,}$")
        # What it names is there.
        dump = daemon.ctl_json("show", record.attributes["stackd.dump.name"])
        self.assertEqual(dump["crash"]["fingerprint"], record.attributes["stackd.fingerprint"])
        eventually("it is counted", lambda: self.counters(daemon)["otlp_sent"] == 1)

    def test_a_hang_arrives_and_a_dump_on_request_does_not(self):
        receiver = self.receive()
        daemon = self.send_to(receiver.port)
        victim = self.start_victim(HANGS / "hang_mutex", "cycle_2")
        daemon.await_process(victim.pid)
        daemon.dump(victim.pid)
        record, = receiver.expect(1)
        self.assertEqual(("stackd.hang", 17, "DEADLOCK"),
                         (record.event, record.severity, record.attributes["stackd.hang.cause"]))
        self.assertEqual("unknown_service:hang_mutex", record.resource["service.name"])
        dump = daemon.ctl_json("show", record.attributes["stackd.dump.name"])
        self.assertRegex(dump["hang"]["fingerprint"], "^[0-9a-f]{32}$")
        self.assertEqual((dump["hang"]["fingerprint"], "HANG"),
                         (record.attributes["stackd.fingerprint"], record.attributes["stackd.trigger"]))

    def test_nothing_is_sent_unless_it_is_asked_for(self):
        receiver = self.receive()
        daemon = self.start_daemon(env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}"})
        self.crash()
        eventually("the crash is stored", lambda: daemon.ctl_json("list").get("dumps"))
        self.assertEqual([], receiver.records)
        self.assertNotIn("otlp_sent", self.counters(daemon))

    def test_over_tls_with_a_header_from_the_environment(self):
        authority = Authority(self.dir / "tls", "authority")
        issued = authority.issue("collector", "DNS:localhost,IP:127.0.0.1")
        files = [pathlib.Path(path).read_bytes() for path in (issued.key, issued.crt)]
        receiver = self.receive(credentials=grpc.ssl_server_credentials([tuple(files)]))
        daemon = self.send_to(receiver.port, "--otlp-ca", authority.own.crt, scheme="https", host="localhost",
                              env={"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret-token"})
        self.crash()
        receiver.expect(1)
        self.assertEqual("Bearer secret-token", receiver.metadata["authorization"])
        self.assertNotIn("secret-token", daemon.log())

    def test_a_collector_that_another_authority_vouches_for_gets_nothing(self):
        authority, other = Authority(self.dir / "tls", "authority"), Authority(self.dir / "other", "other")
        issued = other.issue("collector", "DNS:localhost")
        files = [pathlib.Path(path).read_bytes() for path in (issued.key, issued.crt)]
        receiver = self.receive(credentials=grpc.ssl_server_credentials([tuple(files)]))
        daemon = self.send_to(receiver.port, "--otlp-ca", authority.own.crt, scheme="https", host="localhost")
        self.crash()
        eventually("it is said", lambda: "cannot be sent to the OpenTelemetry collector" in daemon.log())
        self.assertEqual([], receiver.records)

    def test_a_collector_that_comes_late_gets_what_waited(self):
        port = free_port()
        daemon = self.send_to(port)
        self.crash()
        eventually("it is said", lambda: "cannot be sent to the OpenTelemetry collector" in daemon.log())
        self.assertEqual(1, self.counters(daemon)["otlp_waiting"])
        receiver = self.receive(port)
        receiver.expect(1)
        eventually("it is said", lambda: "takes crashes and hangs again" in daemon.log())

    def test_a_collector_that_refuses_is_counted(self):
        receiver = self.receive()
        receiver.answer = lambda context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
        daemon = self.send_to(receiver.port)
        self.crash()
        eventually("it is counted", lambda: self.counters(daemon)["otlp_refused"] == 1)
        self.assertIn("who are you", daemon.log())

    def test_a_collector_that_never_answers_holds_up_neither_dumps_nor_the_end(self):
        receiver = self.receive()
        over = threading.Event()
        self.addCleanup(over.set)
        receiver.answer = lambda context: over.wait()
        daemon = self.send_to(receiver.port)
        for _ in range(3):
            self.crash()
        eventually("three crashes are stored", lambda: len(daemon.ctl_json("list").get("dumps", [])) == 3)
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        self.assertEqual("COMPLETE", daemon.dump(victim.pid).state)
        begin = time.monotonic()
        self.assertEqual(0, daemon.stop())
        # It does not end because it ends whatever still runs, which it would after 4.5 s.
        self.assertLess(time.monotonic() - begin, 4)
        self.assertNotIn("stackd ends with work unfinished", daemon.log())
        self.assertIn("stackd has stopped", daemon.log())


class MistakeTest(OtlpCase):

    def test_a_mistake_is_a_sentence(self):
        for flags, sentence in (
                (["--otlp-endpoint", "localhost:4317"], '--otlp-endpoint "localhost:4317" is not understood'),
                (["--otlp-endpoint", "http://x", "--otlp-ca", "/x"], "--otlp-ca is for"),
                (["--otlp-endpoint", "https://x", "--otlp-ca", "/nonexistent"], "cannot be read from /nonexistent")):
            done = subprocess.run([str(STACKD), "--dir", str(self.dir), "--listen", "none", *flags], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual((1, 1), (done.returncode, done.stderr.count("\n")), done.stderr)
            self.assertIn(sentence, done.stderr)


class WhereTest(OtlpCase):
    """Where it happened: in each dump, in the head line and in the log."""

    def test_each_dump_says_where(self):
        daemon = self.start_daemon(env={**os.environ, **POD}, extra_args=["--log-format", "json"])
        victim = self.start_victim("waiting_threads", 1, env=CONTAINER)
        process = daemon.await_process(victim.pid)
        self.assertEqual("shop", process["resourceAttributes"]["k8s.namespace.name"])
        dump = daemon.dump(victim.pid)
        place = dump.resource["process"]["resourceAttributes"]
        self.assertEqual({"k8s.pod.name": POD["POD_NAME"], "k8s.container.name": "app",
                          "container.image.name": "registry.example/checkout"},
                         {key: place.get(key) for key in ("k8s.pod.name", "k8s.container.name", "container.image.name")})
        head = daemon.ctl("show", dump.name).out.splitlines()[0]
        self.assertIn(f"(pid {victim.pid} in container app of pod shop/{POD['POD_NAME']} on node-1)", head)
        line = next(line for line in map(json.loads, daemon.log().splitlines()) if line["msg"] == "dump stored")
        self.assertEqual(("app", POD["POD_NAME"]), (line["k8s.container.name"], line["k8s.pod.name"]))

    def test_it_is_known_of_crashes_of_files_and_after_a_restart(self):
        environment = {**os.environ, **POD}
        victim = self.start_victim(*CRASH[:-1], ready=None, env=CONTAINER)
        eventually("it has left a file", lambda: not victim.alive() and list((self.dir / "spool").iterdir()))
        daemon = self.start_daemon(env=environment)
        dump = eventually("it is taken in", lambda: daemon.ctl_json("list").get("dumps"))[0]
        self.assertEqual(POD["POD_NAME"], dump["process"]["resourceAttributes"]["k8s.pod.name"])
        daemon.restart()
        again = daemon.ctl_json("show", dump["name"])
        self.assertEqual(dump["process"]["resourceAttributes"], again["process"]["resourceAttributes"])

    def test_nothing_else_of_the_environment_leaves_the_process(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1, env={"PASSWORD": "hunter2-in-the-environment",
                                                              "POD_SECRET": "hunter2-in-the-environment", **CONTAINER})
        daemon.await_process(victim.pid)
        daemon.dump(victim.pid)
        for file in self.dir.glob("store.db*"):
            self.assertNotIn(b"hunter2", file.read_bytes())

    def test_an_image_that_is_too_long_costs_nothing_but_itself(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1, env={
            "STACKD_CONTAINER_IMAGE": "x" * 100_000, "STACKD_CONTAINER_NAME": "app",
            "OTEL_RESOURCE_ATTRIBUTES": ",".join(f"key{i}={'v' * 20}" for i in range(60))})
        process = daemon.await_process(victim.pid)
        self.assertEqual("app", process["resourceAttributes"]["k8s.container.name"])
        self.assertNotIn("container.image.name", process["resourceAttributes"])
        self.assertLessEqual(len(process["resourceAttributes"]), 32)
