"""grpcurl, the stock client: what an operator types at 3 a.m. works, over TCP and over the Unix socket."""

import json
import os
import shutil
import signal
import subprocess
import unittest

import pytest

from harness import Dump, StackdTest, eventually

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "stackd", "bin")
GRPCURL = shutil.which("grpcurl") or shutil.which("grpcurl", path=CACHE)
METHODS = ["CompareDumps", "CreateDump", "DeleteDump", "ExportDump", "GetDaemon", "GetDump", "GetProcess", "GetStackGroup",
           "ListDumps", "ListProcesses", "ListStackGroups", "ResymbolizeDump", "WatchDumps"]


def resource(text):
    """What grpcurl printed, with the keys of proto3 JSON: it writes display_name where the others write displayName."""

    def camel(key):
        head, *tail = key.split("_")
        return head + "".join(word.capitalize() for word in tail)

    return json.loads(text, object_hook=lambda found: {camel(key): value for key, value in found.items()})


class GrpcurlTest(StackdTest):

    def setUp(self):
        super().setUp()
        self.assertIsNotNone(GRPCURL, "grpcurl is missing: deploy/install-deps.sh --tests builds it")

    def grpcurl(self, where, *arguments, options=()):
        command = [GRPCURL, "-plaintext", *options, *where, *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def call(self, daemon, method, request="{}", options=()):
        done = self.grpcurl([f"127.0.0.1:{daemon.port}"], method, options=["-d", request, *options])
        self.assertEqual(0, done.returncode, done.stderr)
        return resource(done.stdout or "{}")

    def addresses(self, daemon):
        return {"TCP": [f"127.0.0.1:{daemon.port}"], "Unix socket": ["-unix", str(daemon.dir / "api.sock")]}

    def test_everything_over_both_addresses(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10)
        daemon.await_process(victim.pid)
        for name, where in self.addresses(daemon).items():
            with self.subTest(name):
                run = lambda *arguments, options=(): self.grpcurl(where, *arguments, options=options)
                services = run("list").stdout.split()
                for service in ("stackd.v1.Stackd", "grpc.health.v1.Health"):
                    self.assertIn(service, services)
                self.assertEqual([f"stackd.v1.Stackd.{method}" for method in METHODS],
                                 sorted(run("list", "stackd.v1.Stackd").stdout.split()))
                self.assertIn("rpc CreateDump", run("describe", "stackd.v1.Stackd").stdout)
                self.assertIn("int32 max_stack_bytes = 4", run("describe", "stackd.v1.CreateDumpRequest").stdout)
                self.assertEqual({"status": "SERVING"},
                                 json.loads(run("grpc.health.v1.Health/Check", options=["-d", "{}"]).stdout))

                # The only process there is, without a word of request.
                listed = resource(run("stackd.v1.Stackd/ListProcesses", options=["-d", "{}"]).stdout)["processes"]
                self.assertEqual([victim.pid], [process["pid"] for process in listed])
                self.assertEqual("waiting_threads", listed[0]["displayName"])
                dump = Dump(resource(run("stackd.v1.Stackd/CreateDump", options=["-d", "{}"]).stdout))
                self.assert_whole(dump, victim.pid)
                self.assertEqual(10, dump.groups[0]["threadCount"])
                for method in ("GetProcess", "GetDump", "ListDumps", "GetDaemon", "ExportDump"):
                    done = run(f"stackd.v1.Stackd/{method}", options=["-d", "{}"])
                    self.assertEqual(0, done.returncode, f"{method}: {done.stderr}")
                    self.assertTrue(json.loads(done.stdout))

    def test_health_of_each_name(self):
        daemon = self.start_daemon()
        for service in ("", "liveness", "readiness", "stackd.v1.Stackd"):
            with self.subTest(service):
                reply = self.call(daemon, "grpc.health.v1.Health/Check", json.dumps({"service": service}))
                self.assertEqual({"status": "SERVING"}, reply)
        unknown = self.grpcurl([f"127.0.0.1:{daemon.port}"], "grpc.health.v1.Health/Check",
                               options=["-d", '{"service": "nobody"}'])
        self.assertIn("NotFound", unknown.stderr)

    def test_text_view_is_lines_for_people(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10)
        daemon.await_process(victim.pid)
        reply = self.call(daemon, "stackd.v1.Stackd/CreateDump", '{"view": "DUMP_VIEW_TEXT"}')
        self.assertTrue(any("wait_for_work" in line for line in reply["lines"]))
        self.assertNotIn("threads", reply)

    def test_equal_request_ids_are_one_dump(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10)
        daemon.await_process(victim.pid)
        request = json.dumps({"request_id": "3d2f1a"})
        first = self.call(daemon, "stackd.v1.Stackd/CreateDump", request)
        second = self.call(daemon, "stackd.v1.Stackd/CreateDump", request)
        other = self.call(daemon, "stackd.v1.Stackd/CreateDump", "{}")
        self.assertEqual(first["name"], second["name"])
        self.assertNotEqual(first["name"], other["name"])

    def test_10000_threads_stay_below_the_message_limit_of_stock_clients(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10000)
        daemon.await_process(victim.pid)
        # grpcurl's own limit is off by default: set it to what every other client has.
        limit = ["-max-msg-sz", str(4 << 20)]
        reply = self.call(daemon, "stackd.v1.Stackd/CreateDump", "{}", limit)
        dump = Dump(reply)
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        self.assertEqual(10002, dump.counts["listed"])
        self.assertEqual(10000, dump.groups[0]["threadCount"])
        again = self.call(daemon, "stackd.v1.Stackd/GetDump", json.dumps({"name": dump.name}), limit)
        self.assertEqual(dump.counts, again["threadCounts"])

    def check_deadline_of_50_ms(self, daemon, victim):
        """Time and again, not each time: on a busy machine 50 ms may be gone before the daemon has the request."""
        partial = 0
        for _ in range(60):
            if partial == 6:
                break
            # Not grpcurl's -max-time, which counts its own start: the deadline as the protocol carries it.
            outcome = daemon.ctl("dump", victim.pid, "-o", "json", "--timeout", "50ms")
            self.assertEqual(5, outcome.code, outcome.err)
            if outcome.out:
                dump = Dump(json.loads(outcome.out))
                self.assertEqual("PARTIAL", dump.state)
                self.assertTrue(dump.notes)
                partial += 1
        self.assertEqual(6, partial, outcome.err)

    def test_deadline_of_50_ms_gives_a_partial_dump_of_a_stopped_process(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1000)
        daemon.await_process(victim.pid)
        # Once without haste, so that no part of the 50 ms goes into first use.
        self.call(daemon, "stackd.v1.Stackd/CreateDump")
        victim.signal(signal.SIGSTOP)
        eventually("it is stopped", lambda: "State:\tT" in open(f"/proc/{victim.pid}/status").read())
        self.check_deadline_of_50_ms(daemon, victim)

    @pytest.mark.alone
    def test_deadline_of_50_ms_gives_a_partial_dump_of_10000_threads(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10000)
        daemon.await_process(victim.pid)
        self.call(daemon, "stackd.v1.Stackd/CreateDump")
        self.check_deadline_of_50_ms(daemon, victim)


if __name__ == "__main__":
    unittest.main()
