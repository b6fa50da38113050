"""Floods of HTTP/2 and of connections, some of which end a gRPC of 2022 in a second. The daemon lives, within its limit, and others
are served."""

import json
import os
import signal
import socket
import statistics
import time
import unittest
import urllib.request

import pytest

from authority import Authority
from harness import LIMIT_S, OK, StackdTest, free_port
from crashes import crash_of
from http2_floods import BARE_FLOODS, FLOODS, HELD, Flood
from memory_cgroup import memory_limit
from overload_test import memory_mib
from tier import FLOOD_S

PEAK_MIB = 200
STRANGER = 65534
# The floods that ended the daemon; each did it in less than four seconds.
DEADLY = ("rapid reset", "headers without end")
ACCESS = f"""access:
  - {{uid: {STRANGER}, role: read}}
  - {{dns: dashboard.test, role: read}}
"""


CONNECTIONS = {"connections that are silent": 10000, "slowloris": 1000}


def own_address():
    """An address that is not loopback's, so that the flood and the probe come from two hosts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anywhere:
        try:
            anywhere.connect(("192.0.2.1", 9))
        except OSError:
            raise unittest.SkipTest("this machine has no address but loopback's") from None
        return anywhere.getsockname()[0]


class Flooded(StackdTest):
    def start(self, *extra_args):
        # Users other than root pass through it.
        self.dir.chmod(0o755)
        access = self.dir / "access.yaml"
        access.write_text(ACCESS)
        self.daemon = self.start_daemon(wrap=memory_limit(self), extra_args=["--access", access, "--log-format", "json",
                                                                              *extra_args])
        self.pid = self.daemon.process.pid
        self.socket = f"unix:{self.dir}/api.sock"
        self.loopback = f"127.0.0.1:{self.daemon.port}"

    def survive(self, kind, address, polite, meanwhile=lambda: None, **kwargs):
        """`polite` is called again and again while the flood comes, and must succeed; `meanwhile` once."""
        flood = Flood(kind, address, uid=STRANGER if os.geteuid() == 0 and "certificate" not in kwargs else None, **kwargs)
        times = []
        try:
            meanwhile()
            begin = time.monotonic()
            while len(times) < 10 or time.monotonic() - begin < FLOOD_S:
                start = time.monotonic()
                polite()
                times.append((time.monotonic() - start) * 1000)
                self.assertIsNone(self.daemon.process.poll(), self.daemon.log())
        finally:
            outcome = flood.stop()
        now, peak = memory_mib(self.pid)
        print(f"{kind} at {address.split(':')[0]}: {outcome}; memory {now:.0f} MiB now, {peak:.0f} MiB at most; another "
              f"caller: median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms", flush=True)
        self.assertGreater(outcome["made"], 0)
        if kind not in HELD:
            self.assertGreater(outcome["ended"], 0, "the flood was not ended")
        self.assertLess(peak, PEAK_MIB)

    def ps(self, address=None):
        called = self.daemon.ctl("ps", address=address)
        self.assertEqual(OK, called.code, called.err)

    def start_with_tls(self):
        authority = Authority(self.dir / "tls", "authority")
        server = authority.issue("server", "DNS:localhost,IP:127.0.0.1")
        self.certificates = {name: (authority.own.crt, made.crt, made.key) for name, made in
                             ((name, authority.issue(name, f"DNS:{name}.test")) for name in ("dashboard", "nobody"))}
        self.start("--tls-cert", server.crt, "--tls-key", server.key, "--tls-client-ca", authority.own.crt)

    def start_with_probes(self):
        self.health_port, self.metrics_port = free_port(), free_port()
        self.start("--health-listen", f"0.0.0.0:{self.health_port}", "--metrics-listen", f"0.0.0.0:{self.metrics_port}")

    def probe(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/livez", timeout=LIMIT_S) as answer:
            self.assertEqual(200, answer.status)


# Each takes all the processor time that there is.
@pytest.mark.alone
class FloodTest(Flooded):
    def test_deadly_floods_at_loopback(self):
        self.start()
        for kind in DEADLY:
            with self.subTest(kind):
                self.survive(kind, self.loopback, self.ps)

    def test_other_floods_at_loopback(self):
        self.start()
        for kind in sorted(FLOODS.keys() - set(DEADLY)):
            with self.subTest(kind):
                self.survive(kind, self.loopback, self.ps)

    def test_deadly_floods_at_the_socket(self):
        self.start()
        for kind in DEADLY:
            with self.subTest(kind):
                self.survive(kind, self.socket, self.ps)

    def test_a_flood_of_many_connections(self):
        self.start()
        for kind in ("rapid reset", "calls within the settings"):
            with self.subTest(kind):
                self.survive(kind, self.loopback, self.ps, connections=100)

    def test_deadly_floods_over_tls_with_a_role(self):
        self.start_with_tls()
        for kind in DEADLY:
            with self.subTest(kind):
                self.survive(kind, self.loopback, self.ps, certificate=self.certificates["dashboard"])

    def test_a_certificate_without_a_role_cannot_send_a_frame(self):
        self.start_with_tls()
        for kind in DEADLY:
            with self.subTest(kind):
                self.survive(kind, self.loopback, self.ps, certificate=self.certificates["nobody"])
        lines = [json.loads(line) for line in self.daemon.log_path.read_text().splitlines() if line.startswith("{")]
        self.assertTrue([line for line in lines if line.get("method") == "TLS handshake" and
                         line["caller"] == "dns:nobody.test" and line["role"] == "none"])
        # Nothing was left for the guard to do.
        self.assertFalse([line for line in lines if "no client of stackd's" in line["msg"]])

    def test_deadly_floods_where_anybody_may_ask(self):
        self.start_with_probes()
        for kind in DEADLY:
            for port in (self.health_port, self.metrics_port):
                with self.subTest(kind, port=port):
                    self.survive(kind, f"127.0.0.1:{port}", self.probe)


@pytest.mark.alone
@pytest.mark.thorough
class EachFloodTest(Flooded):
    """Each flood at each listener. A program crashes meanwhile, and that is stored."""

    limit_s = 3600

    def survive_each(self, address, polite, **kwargs):
        for kind in (*FLOODS, *BARE_FLOODS, *HELD):
            with self.subTest(kind):
                self.survive_with_a_crash(kind, address, polite, **kwargs)

    def survive_with_a_crash(self, kind, address, polite, **kwargs):
        victim = self.start_victim("two_locks")
        self.daemon.await_process(victim.pid)

        def crash():
            victim.process.send_signal(signal.SIGSEGV)
            victim.process.wait(LIMIT_S)

        self.survive(kind, address, polite, crash, connections=CONNECTIONS.get(kind, 4), **kwargs)
        crash_of(self.daemon, victim.pid)

    def test_at_loopback(self):
        self.start()
        self.survive_each(self.loopback, self.ps)

    def test_at_the_socket(self):
        self.start()
        self.survive_each(self.socket, self.ps)

    def test_over_tls_with_a_role(self):
        self.start_with_tls()
        self.survive_each(self.loopback, self.ps, certificate=self.certificates["dashboard"])

    def test_over_tls_without_a_role(self):
        self.start_with_tls()
        self.survive_each(self.loopback, self.ps, certificate=self.certificates["nobody"])

    def test_at_the_port_of_health(self):
        self.start_with_probes()
        self.survive_each(f"{own_address()}:{self.health_port}", self.probe)

    def test_at_the_port_of_metrics(self):
        self.start_with_probes()
        self.survive_each(f"{own_address()}:{self.metrics_port}", self.probe)


if __name__ == "__main__":
    unittest.main()
