"""Callers who take more than they should: the daemon's memory stays bounded, and others are served meanwhile."""

import contextlib
import functools
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import threading
import time
import unittest

import pytest

from grpc_peer import grpc, needs_grpcio, reason, text_field, unary
from hang_victims_test import Cgroup
from harness import LIMIT_S, OK, PARTIAL, STACKCTL, StackdTest, agent_held, eventually

MIB = 1 << 20

# The sidecar's limit in deploy/ is 256 MiB.
MEMORY_LIMIT_MIB = 200


def memory_mib(pid):
    """(now, at most so far)"""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


def forget_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def frame(kind, flags, stream_id, payload=b""):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4


def literal(name, value):
    """A header that HPACK does not index."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class SlowReader:
    """Speaks HTTP/2 by itself, and never gives the daemon leave to send more than `window` bytes of an answer."""

    def __init__(self, port, window=1):
        self.socket = socket.create_connection(("127.0.0.1", port))
        # INITIAL_WINDOW_SIZE
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b"\x00\x04" + window.to_bytes(4, "big")))
        self.next_stream = 1

    def call(self, method, request=b""):
        headers = b"".join(literal(*pair) for pair in (
            (":method", "POST"), (":scheme", "http"), (":path", f"/stackd.v1.Stackd/{method}"), (":authority", "localhost"),
            ("content-type", "application/grpc"), ("te", "trailers")))
        body = b"\x00" + len(request).to_bytes(4, "big") + request
        self.socket.sendall(frame(HEADERS, 4, self.next_stream, headers) + frame(DATA, 1, self.next_stream, body))
        self.next_stream += 2

    def close(self):
        self.socket.close()


@needs_grpcio
class OverloadTest(StackdTest):
    def setUp(self):
        super().setUp()
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self.daemon = self.start_daemon(extra_args=["--log-format", "json"])
        self.address = f"127.0.0.1:{self.daemon.port}"
        self.pid = self.daemon.process.pid

    def channel(self, address=None):
        channel = grpc.insecure_channel(address or self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return channel

    def counters(self):
        return {k: int(v) for k, v in self.daemon.ctl_json("version")["counters"].items()}

    def calls(self):
        lines = [json.loads(line) for line in self.daemon.log_path.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["msg"] == "call"]

    def served_meanwhile(self, channel=None):
        """Times of another caller's calls, in ms: of the operator at the Unix socket unless a channel is given."""
        channel = channel or self.channel(self.daemon.address)
        times = []
        for _ in range(20):
            start = time.monotonic()
            unary(channel, "ListProcesses")(b"", timeout=LIMIT_S)
            times.append((time.monotonic() - start) * 1000)
        return times

    def say(self, what, times=None):
        now, peak = memory_mib(self.pid)
        others = "" if times is None else (f"; another caller: median {statistics.median(times):.1f} ms, "
                                           f"longest {max(times):.1f} ms")
        print(f"{what}: memory {now:.0f} MiB now, {peak:.0f} MiB at most{others}", flush=True)
        self.assertLess(peak, MEMORY_LIMIT_MIB)
        if times is not None:
            self.assertLess(statistics.median(times), 1000)

    def big_dump(self):
        """A stored dump whose answer has megabytes."""
        victim = self.start_victim("waiting_threads", 10_000)
        self.daemon.await_process(victim.pid)
        name = self.daemon.ctl_json("dump", victim.pid, allowed=(OK, PARTIAL))["name"]
        victim.kill()
        return name

    def test_1000_idle_connections(self):
        before, _ = memory_mib(self.pid)
        with contextlib.ExitStack() as stack:
            for _ in range(1000):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", self.daemon.port)))
                one.sendall(PREFACE + frame(SETTINGS, 0, 0))
                # Its own settings: it is a connection for the daemon, too.
                self.assertTrue(one.recv(9))
            after, _ = memory_mib(self.pid)
            print(f"1000 idle connections: {(after - before) * 1024 / 1000:.1f} KiB each")
            self.say("1000 idle connections", self.served_meanwhile())
            self.say("1000 idle connections", self.served_meanwhile(self.channel()))

    def test_more_connections_than_there_is_room_for(self):
        with contextlib.ExitStack() as stack:
            for _ in range(3000):
                stack.enter_context(socket.create_connection(("127.0.0.1", self.daemon.port)))
            eventually("the rest is refused", lambda: "a connection is refused" in self.daemon.log())
            self.say("3000 connections", self.served_meanwhile())
        eventually("there is room again", lambda: self.daemon.ctl("ps", address=self.address).code == OK)

    def test_half_open_connections_are_ended(self):
        """Connections that never say what they want."""
        with contextlib.ExitStack() as stack:
            halves = [stack.enter_context(socket.create_connection(("127.0.0.1", self.daemon.port))) for _ in range(200)]
            for one in halves[:100]:
                one.sendall(PREFACE[:10])
            self.say("200 half-open connections", self.served_meanwhile(self.channel()))
            start = time.monotonic()
            for one in halves:
                one.settimeout(LIMIT_S)
                while True:
                    try:
                        if not one.recv(4096):
                            break
                    except ConnectionResetError:
                        break
            print(f"half-open connections: ended after {time.monotonic() - start:.0f} s")

    def test_100_calls_for_a_dump_share_one_capture(self):
        victim = self.start_victim("waiting_threads", 50)
        self.daemon.await_process(victim.pid)
        before = self.counters()
        channel = self.channel()
        # It answers nothing, so that all calls are there before the first one ends.
        with agent_held(victim.pid):
            calls = [unary(channel, "CreateDump").future(b"", timeout=8) for _ in range(100)]
            eventually("all calls are there",
                       lambda: self.counters()["dumps_shared"] - before["dumps_shared"] == 99)
            times = self.served_meanwhile()
        answers = {call.result()[:60] for call in calls}
        after = self.counters()
        captures = after["captures"] - before["captures"]
        print(f"100 CreateDump of one process: {captures} capture, {len(answers)} dump, "
              f"{after['dumps_shared'] - before['dumps_shared']} shared it")
        self.assertEqual((1, 1), (captures, len(answers)))
        self.say("100 CreateDump of one process", times)

    def test_100_calls_for_a_dump_of_a_running_process_are_all_answered(self):
        victim = self.start_victim("waiting_threads", 50)
        self.daemon.await_process(victim.pid)
        before = self.counters()["captures"]
        channel = self.channel()
        calls = [unary(channel, "CreateDump").future(b"", timeout=LIMIT_S) for _ in range(100)]
        for call in calls:
            call.result()
        print(f"100 CreateDump of a running process: {self.counters()['captures'] - before} captures")
        self.say("100 CreateDump of a running process")

    def test_a_flood_of_one_caller_leaves_the_others_alone(self):
        channel = self.channel()
        served, refused = [0], {}

        def flood(own):
            calls = [unary(own, "ListProcesses").future(b"", timeout=LIMIT_S) for _ in range(50)]
            for call in calls:
                try:
                    call.result()
                    served[0] += 1
                except grpc.RpcError as error:
                    refused[reason(error)] = refused.get(reason(error), 0) + 1

        stop = self.keep_doing(*(functools.partial(flood, self.channel()) for _ in range(4)))
        eventually("the flood is refused", lambda: sum(refused.values()) > 5000)
        times = self.served_meanwhile()
        with self.assertRaises(grpc.RpcError) as error:
            for _ in range(50):
                unary(channel, "ListProcesses")(b"", timeout=LIMIT_S)
        stop()
        self.assertEqual(grpc.StatusCode.RESOURCE_EXHAUSTED, error.exception.code())
        self.assertIn(b"google.rpc.RetryInfo", dict(error.exception.trailing_metadata())["grpc-status-details-bin"])
        lines = lambda: [c for c in self.calls() if c["status"] == "RESOURCE_EXHAUSTED"]
        # And the one of the channel above.
        total = sum(refused.values()) + 1
        eventually("all of them are told of", lambda: sum(c["count"] for c in lines()) == total)
        print(f"flood: {served[0]} served, refused {refused}, {len(lines())} audit lines for them")
        self.assertEqual({"CALL_RATE_LIMITED"}, set(refused) - {"TOO_MANY_CALLS"})
        self.assertLess(len(lines()), 30)
        self.say("flood", times)

    def test_a_flood_of_calls_that_need_another_role_is_a_few_lines(self):
        delete = unary(self.channel(), "DeleteDump")
        for _ in range(300):
            self.assertEqual(grpc.StatusCode.PERMISSION_DENIED, delete.future(b"", timeout=LIMIT_S).code())
        lines = lambda: [c for c in self.calls() if c["status"] == "PERMISSION_DENIED"]
        eventually("all of them are told of", lambda: sum(c["count"] for c in lines()) == 300)
        print(f"300 calls of a role that is missing: {len(lines())} audit lines")
        self.assertLess(len(lines()), 30)

    @unittest.skipUnless(os.geteuid() == 0, "only root can call as other users")
    def test_two_callers_cannot_have_all_threads(self):
        """Each has as many calls under way as one may, and all of them wait."""
        access = self.dir / "access.yaml"
        access.write_text("access: [{uid: 1001, role: read}]\n")
        self.dir.chmod(0o755)
        self.daemon.kill()
        self.daemon.extra_args += ["--access", str(access)]
        self.daemon.start()
        victim = self.start_victim("waiting_threads", 1)
        self.daemon.await_process(victim.pid)
        Cgroup(self, "freezer", victim.pid).freeze()
        calls = [unary(channel, "CreateDump").future(b"", timeout=30)
                 for channel in (self.channel(), self.channel(self.daemon.address)) for _ in range(128)]
        for call in calls:
            self.addCleanup(call.cancel)
        is_refused = lambda call: call.done() and call.exception() and reason(call.exception()) == "TOO_MANY_CALLS"
        eventually("there are no more threads for them", lambda: any(map(is_refused, calls)))
        third = subprocess.run(["setpriv", "--reuid=1001", "--clear-groups", STACKCTL, "--address", self.daemon.address, "ps"],
                               capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(OK, third.returncode, third.stderr)
        refused = sum(call.done() for call in calls)
        self.assertTrue(all(is_refused(call) for call in calls if call.done()))
        print(f"two callers with 128 calls each: {refused} refused, {sum(not call.done() for call in calls)} under way, "
              "a third one is served")

    def test_calls_of_reflection_that_never_end_are_in_nobodys_way(self):
        """Each holds a thread: these are bounded, and no other call needs one of them."""
        with contextlib.ExitStack() as stack:
            end = threading.Event()
            stack.callback(end.set)

            def says_nothing():
                end.wait()
                yield from ()

            reflections = [
                self.channel().stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(says_nothing())
                for _ in range(100)]
            for call in reflections:
                stack.callback(call.cancel)
            threads = lambda: len(os.listdir(f"/proc/{self.pid}/task"))
            full = lambda: any(call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED for call in reflections if call.done())
            eventually("no more are taken", full)
            times = self.served_meanwhile(self.channel())
            health = self.channel().unary_unary("/grpc.health.v1.Health/Check")
            for _ in range(20):
                self.assertEqual(b"\x08\x01", health(b"", timeout=5))
            print(f"100 calls of reflection: {sum(call.done() for call in reflections)} refused, {threads()} threads")
            self.assertLess(threads(), 350)
            self.say("100 calls of reflection", times)

    def test_dumps_are_limited_by_caller_and_the_operator_is_not(self):
        access = self.dir / "access.yaml"
        access.write_text("limits: {captures_per_minute: 6}\n")
        self.daemon.kill()
        self.daemon.extra_args += ["--access", str(access)]
        self.daemon.start()
        victim = self.start_victim("waiting_threads", 1)
        self.daemon.await_process(victim.pid)
        codes = [self.daemon.ctl("dump", address=self.address).code for _ in range(6)]
        self.assertEqual([OK] * 6, codes)
        seventh = self.daemon.ctl("dump", address=self.address)
        self.assertIn("loopback asks for more than 6 dumps a minute", seventh.err)
        with self.assertRaises(grpc.RpcError) as error:
            unary(self.channel(), "ResymbolizeDump")(b"", timeout=LIMIT_S)
        self.assertEqual("CAPTURE_RATE_LIMITED", reason(error.exception))
        self.assertEqual(OK, self.daemon.ctl("dump").code)

    def test_requests_of_10_mb(self):
        forget_peak(self.pid)
        channels = [self.channel() for _ in range(10)]
        request = text_field(1, "x") + b"\x12\x80\x80\x80\x05" + b"y" * (10 << 20)
        calls = [unary(channel, "CreateDump").future(request, timeout=LIMIT_S) for channel in channels for _ in range(2)]
        times = self.served_meanwhile()
        for call in calls:
            self.assertEqual(grpc.StatusCode.RESOURCE_EXHAUSTED, call.code())
        self.say("20 requests of 10 MB", times)

    def test_readers_that_do_not_read(self):
        name = self.big_dump()
        size = len(unary(self.channel(), "GetDump")(text_field(1, name), timeout=LIMIT_S))
        forget_peak(self.pid)
        readers = [SlowReader(self.daemon.port) for _ in range(4)]
        for reader in readers:
            self.addCleanup(reader.close)
            for _ in range(40):
                reader.call("GetDump", text_field(1, name))
        # Exports, too: each has a thread until it is ended.
        for _ in range(8):
            readers[0].call("ExportDump", text_field(1, name))
        times = self.served_meanwhile()
        print(f"160 unread answers of {size / MIB:.1f} MiB and 8 unread exports")
        unread = lambda: [c for c in self.calls() if c["reason"] in ("ANSWERS_UNREAD", "TOO_MANY_CALLS")]
        eventually("they are told that they have too much unread", unread)
        self.say("readers that do not read", times)
        # Another caller gets the same large answer.
        start = time.monotonic()
        unary(self.channel(self.daemon.address), "GetDump")(text_field(1, name), timeout=LIMIT_S)
        print(f"the operator's own GetDump meanwhile: {time.monotonic() - start:.2f} s")
        self.assertLess(time.monotonic() - start, 5)
        for reader in readers:
            reader.close()
        eventually("loopback is served again",
                   lambda: self.daemon.ctl("show", name, address=self.address).code == OK)

    @pytest.mark.thorough
    def test_a_reader_that_does_not_read_is_ended_after_a_minute(self):
        name = self.big_dump()
        reader = SlowReader(self.daemon.port)
        self.addCleanup(reader.close)
        reader.call("GetDump", text_field(1, name))
        done = lambda: any(c["method"] == "GetDump" and c["caller"] == "loopback" for c in self.calls())
        start = time.monotonic()
        eventually("the call is over, and audited", done, 90)
        print(f"an unread answer was dropped after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    unittest.main()
