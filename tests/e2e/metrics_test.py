"""Metrics and health for clients from outside. Each event is caused for real and its counter moves, and promtool finds nothing
to say. A client that is slow, silent or speaks nonsense is in no other's way."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from grpcurl_test import GRPCURL
from harness import BIN, LIMIT_S, STACKCTL, STACKD, StackdTest, agent_held, eventually, free_port
from overload_test import SlowReader

HANGS = BIN / "tests/hangs"
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """A scrape, parsed: values by name and labels."""

    def __init__(self, text):
        self.text = text
        self.values = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, labels, value = SAMPLE.match(line).groups()
                self.values[name, frozenset(LABEL.findall(labels or ""))] = float(value)

    def get(self, name, **labels):
        return self.values[name, frozenset(labels.items())]

    def sum(self, name):
        return sum(value for (other, _), value in self.values.items() if other == name)

    def names(self):
        return {name for name, _ in self.values}


class Served(StackdTest):

    def serve(self, *extra_args, **kwargs):
        self.metrics_port, self.health_port = free_port(), free_port()
        return self.start_daemon(extra_args=["--metrics-listen", f"127.0.0.1:{self.metrics_port}", "--health-listen",
                                             f"127.0.0.1:{self.health_port}", *extra_args], **kwargs)

    def page(self, path="/metrics", timeout_s=LIMIT_S):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=timeout_s) as answer:
            return answer.read().decode()

    def scrape(self):
        return Metrics(self.page())

    def expect(self, what, condition):
        """Scrapes until the condition holds for what was scraped."""

        def look():
            metrics = self.scrape()
            return metrics if condition(metrics) else None

        return eventually(what, look)


class MetricsTest(Served):

    def test_promtool_finds_nothing_to_say(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool is missing: deploy/install-deps.sh --tests installs it")
        daemon = self.serve(env={**os.environ, "POD_NAME": "shop-0", "POD_NAMESPACE": "a", "NODE_NAME": "n\"\\1"})
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)
        daemon.dump(victim.pid)
        text = self.page()
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))
        labels = {name for _, pairs in Metrics(text).values for name, _ in pairs}
        self.assertFalse(labels & {"pid", "tid", "process", "fingerprint", "dump", "caller"}, "labels without a bound")
        self.assertEqual(1, Metrics(text).get("target_info", service_name="stackd", k8s_pod_name="shop-0",
                                              k8s_namespace_name="a", k8s_node_name="n\\\"\\\\1"))

    def test_labels_do_not_grow_with_processes_and_dumps(self):
        daemon = self.serve()
        # The first of its kind adds the histograms of the calls that are made.
        victims = [self.start_victim("waiting_threads", 1)]
        daemon.await_process(victims[0].pid)
        daemon.dump(victims[0].pid)
        before = set(self.scrape().values)
        for _ in range(5):
            victims.append(self.start_victim("waiting_threads", 2))
            daemon.await_process(victims[-1].pid)
            daemon.dump(victims[-1].pid)
        self.assertEqual(before, set(self.scrape().values))

    def test_a_dump_moves_its_counters(self):
        daemon = self.serve()
        before = self.scrape()
        self.assertEqual(0, before.get("stackd_agents"))
        victim = self.start_victim("waiting_threads", 5)
        daemon.await_process(victim.pid)
        connected = self.scrape()
        self.assertEqual(1, connected.get("stackd_agents"))
        self.assertEqual(1, connected.get("stackd_agent_connections_total", outcome="accepted"))
        self.assertEqual(1 << 20, connected.get("stackd_ring_capacity_bytes") + 8192)
        dump = daemon.dump(victim.pid)
        after = self.scrape()
        self.assertEqual(1, after.get("stackd_captures_total", trigger="request", outcome="complete"))
        self.assertEqual(1, after.get("stackd_capture_duration_seconds_count"))
        self.assertGreater(after.get("stackd_capture_duration_seconds_sum"), 0)
        self.assertEqual(1, after.get("stackd_symbolize_duration_seconds_count"))
        self.assertEqual(len(dump.threads), after.get("stackd_ring_records_total"))
        self.assertEqual(len(dump.threads), after.get("stackd_unwind_stacks_total", end="root"))
        self.assertGreater(after.get("stackd_frames_total"), 0)
        self.assertGreater(after.get("stackd_symbol_cache_requests_total", result="miss"), 0)
        self.assertEqual(1, after.get("stackd_store_dumps"))
        self.assertGreater(after.get("stackd_store_used_bytes"), 0)
        daemon.dump(victim.pid)
        self.assertGreater(self.scrape().get("stackd_symbol_cache_requests_total", result="hit"), 0)
        victim.kill()
        self.expect("the agent is gone", lambda metrics: metrics.get("stackd_agents") == 0)

    def test_dumps_that_are_partial_or_fail_are_told_apart(self):
        daemon = self.serve()
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        outcomes = lambda metrics: tuple(int(metrics.get("stackd_captures_total", trigger="request", outcome=name))
                                         for name in ("complete", "partial", "failed"))
        with agent_held(victim.pid):
            # It waits for the agent; another one, which is not the same, waits for it, and cannot even begin.
            first = subprocess.Popen([STACKCTL, "--address", daemon.address, "dump", str(victim.pid), "--timeout", "6s"],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(first.wait)
            self.addCleanup(first.kill)
            self.expect("the first is being made", lambda metrics: metrics.get("stackd_captures_running") == 1)
            second = subprocess.run([GRPCURL, "-plaintext", "-max-time", "1", "-d",
                                     json.dumps({"process": str(victim.pid), "max_stack_bytes": 4096}),
                                     f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/CreateDump"],
                                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
            self.assertIn("DeadlineExceeded", second.stderr)
            self.expect("it is counted", lambda metrics: outcomes(metrics) == (0, 0, 1))
            self.expect("the first ends", lambda metrics: outcomes(metrics) == (0, 1, 1))

    def test_a_crash_moves_its_counters(self):
        self.serve()
        self.start_victim("crash_matrix", "signal=SEGV", "way=fault", "thread=main", "before=default", "await", ready=None)
        metrics = self.expect("the crash is counted",
                              lambda metrics: metrics.get("stackd_captures_total", trigger="crash", outcome="complete") +
                              metrics.get("stackd_captures_total", trigger="crash", outcome="partial") == 1)
        self.assertEqual(1, metrics.get("stackd_crashes_total"))

    def test_a_crash_without_a_daemon_is_counted_when_it_is_taken_in(self):
        victim = self.start_victim("crash_matrix", "signal=SEGV", "way=fault", "thread=main", "before=default", ready=None)
        eventually("it has crashed", lambda: not victim.alive())
        self.assertTrue(list((self.dir / "spool").iterdir()))
        self.serve()
        self.expect("the file is taken", lambda metrics: metrics.get("stackd_spool_files_total", outcome="taken") == 1)
        (self.dir / "spool" / ("0" * 32 + ".crash")).write_bytes(b"nonsense")
        self.expect("the other is refused", lambda metrics: metrics.get("stackd_spool_files_total", outcome="refused") == 1)

    def test_a_hang_moves_its_counters_and_a_heartbeat_its_time(self):
        daemon = self.serve()
        loop = self.start_victim(HANGS / "heartbeats", 1000, stdin="")
        daemon.await_process(loop.pid)
        self.expect("the heartbeat was seen to beat",
                    lambda metrics: abs(metrics.get("stackd_agent_last_heartbeat_timestamp_seconds") - time.time()) < 10)
        self.start_victim(HANGS / "hang_mutex", "cycle_2")
        self.expect("the deadlock is counted", lambda metrics: metrics.get("stackd_hangs_total", cause="deadlock") == 1 and
                    metrics.get("stackd_hang_dumps_total", outcome="made") == 1 and
                    metrics.get("stackd_captures_total", trigger="hang", outcome="complete") == 1)
        self.assertGreater(self.scrape().get("stackd_hang_looks_total"), 0)

    def test_calls_are_counted_by_method_and_status(self):
        daemon = self.serve()
        handled = lambda metrics, method, code, type="unary": metrics.values.get(
            ("grpc_server_handled_total", frozenset({"grpc_type": type, "grpc_service": "stackd.v1.Stackd",
                                                     "grpc_method": method, "grpc_code": code}.items())), 0)
        before = self.scrape()
        subprocess.run([GRPCURL, "-plaintext", "-d", '{"name": "processes/1-1/dumps/20261121T000000Z-1"}',
                        f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/GetDump"], capture_output=True, timeout=LIMIT_S)
        daemon.ctl_json("ps")
        after = self.scrape()
        self.assertEqual(handled(before, "ListProcesses", "OK") + 1, handled(after, "ListProcesses", "OK"))
        self.assertEqual(handled(before, "GetDump", "NotFound") + 1, handled(after, "GetDump", "NotFound"))
        self.assertEqual(handled(after, "GetDump", "NotFound"),
                         after.get("grpc_server_handling_seconds_count", grpc_type="unary", grpc_service="stackd.v1.Stackd",
                                   grpc_method="GetDump"))
        watch = subprocess.Popen([GRPCURL, "-plaintext", f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/WatchDumps"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(watch.kill)
        started = {"grpc_type": "server_stream", "grpc_service": "stackd.v1.Stackd", "grpc_method": "WatchDumps"}
        self.expect("the stream has begun", lambda metrics: metrics.get("grpc_server_started_total", **started) == 1)
        watch.kill()
        watch.wait()
        self.expect("its end is counted", lambda metrics: handled(metrics, "WatchDumps", "Canceled", "server_stream") == 1)

    def test_what_is_evicted_and_what_is_run_is_counted(self):
        script = self.dir / "on_dump"
        script.write_text("#!/bin/sh\nexit 3\n")
        script.chmod(0o755)
        daemon = self.serve("--store-max-dumps", 2, "--on-dump", script)
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        for _ in range(4):
            daemon.dump(victim.pid)
        metrics = self.expect("the program was run each time",
                              lambda metrics: metrics.get("stackd_on_dump_runs_total", outcome="failed") == 4)
        self.assertEqual(2, metrics.get("stackd_store_evictions_total", reason="count"))
        self.assertEqual(0, metrics.get("stackd_store_evictions_total", reason="bytes"))
        self.assertEqual(2, metrics.get("stackd_store_dumps"))

    def test_they_agree_with_what_the_api_tells(self):
        daemon = self.serve()
        victim = self.start_victim("waiting_threads", 4)
        daemon.await_process(victim.pid)
        for _ in range(3):
            daemon.dump(victim.pid)
        same = {"ring_records": "stackd_ring_records_total", "frames": "stackd_frames_total",
                "frames_unnamed": "stackd_frames_unnamed_total", "agents_accepted": ("stackd_agent_connections_total", "outcome",
                                                                                     "accepted"),
                "dumps_request": ("stackd_captures_total", "trigger", "request"),
                "store_evicted": "stackd_store_evictions_total", "symbolizer_restarts": "stackd_symbol_worker_restarts_total"}

        def told():
            done = subprocess.run([GRPCURL, "-plaintext", f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/GetDaemon"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
            counters = json.loads(done.stdout)["counters"]
            return {counter: int(counters.get(counter, 0)) for counter in same}

        def told_while_nothing_was_counted():
            """The daemon looks at the process by itself, too."""
            before, metrics = told(), self.scrape()
            return (before, metrics) if before == told() else None

        counters, metrics = eventually("nothing is counted between two looks", told_while_nothing_was_counted)
        for counter, name in same.items():
            if isinstance(name, tuple):
                family, label, wanted = name
                value = sum(v for (other, labels), v in metrics.values.items()
                            if other == family and (label, wanted) in labels and ("outcome", "failed") not in labels)
            else:
                value = metrics.sum(name)
            self.assertEqual(counters[counter], value, counter)

    def test_the_daemon_itself(self):
        daemon = self.serve()
        metrics = self.scrape()
        self.assertAlmostEqual(time.time(), metrics.get("process_start_time_seconds"), delta=30)
        rss_kib = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{daemon.process.pid}/status").read()).group(1))
        self.assertAlmostEqual(rss_kib * 1024, metrics.get("process_resident_memory_bytes"), delta=16 << 20)
        self.assertAlmostEqual(len(os.listdir(f"/proc/{daemon.process.pid}/fd")), metrics.get("process_open_fds"), delta=5)
        self.assertGreater(metrics.get("process_cpu_seconds_total"), 0)

    def test_curl_gets_the_pages(self):
        self.serve()
        curl = lambda *args: subprocess.run(["curl", "-sS", "-m", "20", *args], capture_output=True, text=True).stdout
        base = f"http://127.0.0.1:{self.metrics_port}"
        self.assertEqual("ok\n", curl(base + "/healthz"))
        self.assertIn("text/plain; version=0.0.4", curl("-D-", "-o/dev/null", base + "/metrics"))
        self.assertEqual("404", curl("-o/dev/null", "-w%{http_code}", base + "/"))
        self.assertEqual("405", curl("-o/dev/null", "-w%{http_code}", "-X", "DELETE", base + "/metrics"))
        self.assertEqual("405", curl("-o/dev/null", "-w%{http_code}", "-d", "a=b", base + "/metrics"))

    def test_nobody_is_in_the_way_of_the_scraper(self):
        """Connections that say nothing have all places for five seconds, and no longer; those that speak nonsense none."""
        daemon = self.serve()
        failed = []

        def page():
            try:
                return self.page(timeout_s=5)
            except OSError as error:
                failed.append(error)
                return None

        begin = time.monotonic()
        for _ in range(200):
            peer = socket.create_connection(("127.0.0.1", self.metrics_port))
            self.addCleanup(peer.close)
        eventually("the silent ones are given up", page, 15)
        given_up_s = time.monotonic() - begin

        shouts = [0]

        def shout():
            shouts[0] += 1
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.metrics_port), timeout=5) as peer:
                peer.sendall(os.urandom(20_000))
                peer.recv(1)

        failed.clear()
        stop = self.keep_doing(*[shout] * 20)
        scrapes = 0
        while scrapes < 30 or shouts[0] < 500:
            page()
            scrapes += 1
        stop()
        print(f"200 silent connections: given up after {given_up_s:.1f} s; {len(failed)} of {scrapes} scrapes failed beside "
              f"{shouts[0]} connections that speak nonsense")
        self.assertEqual([], failed)
        metrics = self.expect("all are gone", lambda metrics: metrics.get("process_open_fds") < 100)
        self.assertLess(metrics.get("process_resident_memory_bytes"), 256 << 20)
        daemon.ctl_json("ps")

    def test_an_address_that_cannot_be_had_is_a_sentence(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for flag, address, sentence in (
                    ("--metrics-listen", f"127.0.0.1:{port}", "--metrics-listen: cannot listen on"),
                    ("--health-listen", f"127.0.0.1:{port}", "--health-listen: cannot listen on"),
                    ("--metrics-listen", "nonsense", '--metrics-listen "nonsense" is not understood'),
                    ("--health-listen", ":99999", '--health-listen ":99999" is not understood')):
                done = subprocess.run([str(STACKD), "--dir", str(self.dir), "--listen", "none", flag, address],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
                self.assertEqual(1, done.returncode)
                self.assertIn(sentence, done.stderr)
                self.assertEqual(1, done.stderr.count("\n"), done.stderr)


class HealthListenerTest(Served):

    def ask(self, path, port=None):
        """As a probe: the status."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port or self.health_port}{path}", timeout=LIMIT_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_probes_are_answered(self):
        daemon = self.serve()
        for port in (self.health_port, self.metrics_port):
            for path in ("/livez", "/readyz", "/healthz", "/process/nobody"):
                self.assertEqual(200, self.ask(path, port), path)
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        self.assertEqual(200, self.ask("/process/waiting_threads"))

    def test_it_tells_of_a_process_that_hangs(self):
        daemon = self.serve()
        self.start_victim(HANGS / "hang_mutex", "cycle_2")
        eventually("the deadlock is told", lambda: self.ask("/process/hang_mutex") == 503)
        self.assertEqual(503, self.ask("/process/hang%5Fmutex", self.metrics_port))
        self.assertEqual(200, self.ask("/livez"))
        self.assertTrue(daemon.ctl_json("list", "--hangs"))

    def test_it_serves_nothing_else(self):
        self.serve()
        for path in ("/metrics", "/", "/process", "/stackd.v1.Stackd/ListProcesses"):
            self.assertEqual(404, self.ask(path), path)
        with socket.create_connection(("127.0.0.1", self.health_port), timeout=LIMIT_S) as peer:
            peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            self.assertIn(b"400 Bad Request", peer.recv(1 << 16))

    def test_readiness_ends_before_liveness(self):
        daemon = self.serve()
        before = self.scrape().sum("grpc_server_started_total")
        # A call whose answer is not read holds up the end.
        reader = SlowReader(daemon.port)
        self.addCleanup(reader.close)
        reader.call("GetDaemon")
        self.expect("the call runs", lambda metrics: metrics.sum("grpc_server_started_total") > before)
        self.assertEqual((200, 200), (self.ask("/readyz"), self.ask("/livez")))
        daemon.process.send_signal(signal.SIGTERM)
        eventually("it is not ready any more", lambda: self.ask("/readyz") == 503, 3)
        self.assertEqual(200, self.ask("/livez"))
        self.assertIsNone(daemon.process.poll(), "it still runs")
        self.assertEqual(0, daemon.process.wait(LIMIT_S))

    def test_it_listens_on_the_address_of_the_pod(self):
        port = free_port()
        self.start_daemon(extra_args=["--health-listen", f":{port}"])
        asked = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
        for address in ["127.0.0.1", *(a for a in asked if "." in a)]:
            with socket.create_connection((address, port), timeout=10):
                pass
        self.assertEqual(200, self.ask("/livez", port))

    def test_idle_connections_do_not_keep_a_probe_out(self):
        self.serve()
        with contextlib.ExitStack() as idle:
            for _ in range(100):
                idle.enter_context(socket.create_connection(("127.0.0.1", self.health_port), timeout=LIMIT_S))
            self.assertEqual(200, self.ask("/livez"))


if __name__ == "__main__":
    unittest.main()
