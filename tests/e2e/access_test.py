"""Who may do what: over mutual TLS, over the Unix socket by uid, on loopback; who may not is refused, and audited."""

import contextlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import time
import unittest

from access_fixture import ACCESS, AccessFixture, own_address
from authority import Authority
from grpc_peer import grpc, needs_grpcio, reason, text_field, unary
from harness import CANNOT_CONNECT, FAILURE, LIMIT_S, OK, STACKCTL, STACKD, Daemon, Outcome, eventually, free_port

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "stackd", "bin")
GRPCURL = shutil.which("grpcurl") or shutil.which("grpcurl", path=CACHE)


class AccessTest(AccessFixture):
    def start_with_tls(self, access=ACCESS):
        return self.start_daemon(extra_args=[*self.tls_flags(), "--access", self.write_access(access), "--log-format", "json"])

    def client(self, certificate, authority=None):
        flags = ["--tls-ca", (authority or self.authority).own.crt]
        return flags + (["--tls-cert", certificate.crt, "--tls-key", certificate.key] if certificate else [])

    def remote(self, daemon, certificate, *args, **kwargs):
        return daemon.ctl(*self.client(certificate, **kwargs), *args, address=f"localhost:{daemon.port}")

    def test_roles_of_certificates_are_cumulative(self):
        daemon = self.start_with_tls()
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)

        read = self.remote(daemon, self.dashboard, "ps")
        self.assertEqual(OK, read.code, read.err)
        self.assertIn("waiting_threads", read.out)
        refused = self.remote(daemon, self.dashboard, "dump", victim.pid)
        self.assertEqual(FAILURE, refused.code)
        self.assertIn("dns:dashboard.test has the role read, and CreateDump needs dump", refused.err)
        self.assert_audited(daemon, caller="dns:dashboard.test", role="read", method="CreateDump",
                            status="PERMISSION_DENIED", reason="ROLE_MISSING", level="warning")

        dumped = self.remote(daemon, self.oncall, "dump", victim.pid, "-o", "json")
        self.assertEqual(OK, dumped.code, dumped.err)
        name = json.loads(dumped.out)["name"]
        self.assertEqual(FAILURE, self.remote(daemon, self.oncall, "delete", name).code)
        minidump = self.remote(daemon, self.oncall, "export", name, "-f", "minidump", "--to", self.dir / "x.dmp")
        self.assertEqual(FAILURE, minidump.code)
        self.assertIn("needs admin", minidump.err)
        self.assertEqual(OK, self.remote(daemon, self.oncall, "export", name, "-f", "text").code)

        self.assertEqual(OK, self.remote(daemon, self.admin, "export", name, "-f", "minidump", "--to",
                                         self.dir / "y.dmp").code)
        self.assertEqual(OK, self.remote(daemon, self.admin, "delete", name).code)
        self.assert_audited(daemon, caller="uri:spiffe://test/ops/alice", role="admin", method="DeleteDump",
                            resource=name, status="OK", level="info")

    def test_whoever_has_no_good_certificate_is_refused_and_audited(self):
        daemon = self.start_with_tls()
        stranger = Authority(self.dir / "other", "stranger")
        expired = self.authority.issue("expired", "URI:spiffe://test/ops/bob", days=-1)
        forged = stranger.issue("forged", "URI:spiffe://test/ops/alice")

        none = self.remote(daemon, None, "ps")
        self.assertEqual(CANNOT_CONNECT, none.code)
        self.assertIn("the daemon asks for a certificate", none.err)
        self.assert_audited(daemon, caller="unauthenticated", status="UNAUTHENTICATED",
                            reason="peer did not return a certificate")
        late = self.remote(daemon, expired, "ps")
        self.assertEqual(CANNOT_CONNECT, late.code)
        self.assertIn("has expired", late.err)
        self.assert_audited(daemon, caller="unauthenticated", status="UNAUTHENTICATED", reason="certificate verify failed")
        strange = self.remote(daemon, forged, "ps")
        self.assertEqual(CANNOT_CONNECT, strange.code)
        self.assertIn("does not accept the certificate", strange.err)
        plain = daemon.ctl("ps", address=f"localhost:{daemon.port}")
        self.assertEqual(CANNOT_CONNECT, plain.code)
        self.assertIn("speaks TLS there", plain.err)
        wrong = self.remote(daemon, self.admin, "ps", authority=stranger)
        self.assertEqual(CANNOT_CONNECT, wrong.code)
        self.assertIn("--tls-ca", wrong.err)
        self.assertFalse([c for c in self.calls(daemon) if c["method"] == "ListProcesses" and c["caller"] != "uid:0"])

    def test_a_certificate_without_a_role_is_refused_in_the_handshake(self):
        daemon = self.start_with_tls()
        nobody = self.authority.issue("nobody", "DNS:elsewhere.test")
        self.assertEqual(CANNOT_CONNECT, self.remote(daemon, nobody, "ps").code)
        self.assert_audited(daemon, caller="dns:elsewhere.test", role="none", method="TLS handshake",
                            status="PERMISSION_DENIED", reason="the certificate has no role")
        self.assertFalse([c for c in self.calls(daemon) if c["caller"] == "dns:elsewhere.test" and
                          c["method"] != "TLS handshake"])
        # Once it has a role it needs no new daemon.
        self.write_access(ACCESS + "  - {dns: elsewhere.test, role: read}\n")
        eventually("it may call", lambda: self.remote(daemon, nobody, "ps").code == OK)

    def test_without_tls_no_address_but_loopback_is_served(self):
        for flags, code, sentence in (([], 1, "needs mutual TLS"),
                                      (["--tls-cert", self.server.crt], 2, "go together"),
                                      (["--tls-cert", self.server.crt, "--tls-key", self.admin.key, "--tls-client-ca",
                                        self.authority.own.crt], 1, "this is not the key of")):
            with self.subTest(sentence):
                started = subprocess.run([STACKD, "--dir", self.dir, "--listen", "0.0.0.0:0", *map(str, flags)],
                                         capture_output=True, text=True, timeout=LIMIT_S)
                self.assertEqual(code, started.returncode)
                self.assertIn(sentence, started.stderr)
                self.assertEqual(1, len(started.stderr.strip().splitlines()))
        self.assertFalse((self.dir / "api.sock").exists())

    def test_with_tls_another_address_is_served(self):
        address = own_address()
        if address is None:
            self.skipTest("this machine has no address but loopback")
        self.server = self.authority.issue("server", f"IP:{address}")
        port = free_port()
        daemon = Daemon(self.dir, port=port, extra_args=[*self.tls_flags(), "--access", self.write_access(ACCESS)])
        daemon.command = lambda: [str(STACKD), "--dir", str(self.dir), "--listen", f"0.0.0.0:{port}", *daemon.extra_args]
        self.addCleanup(daemon.kill)
        daemon.start()
        answer = daemon.ctl(*self.client(self.dashboard), "ps", address=f"{address}:{port}")
        self.assertEqual(OK, answer.code, answer.err)
        self.assertEqual(CANNOT_CONNECT, daemon.ctl("ps", address=f"{address}:{port}").code)

    def as_user(self, uid, daemon, *args):
        done = subprocess.run(["setpriv", f"--reuid={uid}", "--clear-groups", STACKCTL, "--address", daemon.address,
                               *map(str, args)], capture_output=True, text=True, timeout=LIMIT_S)
        return Outcome(done.returncode, done.stdout, done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can call as other users")
    def test_users_at_the_unix_socket_have_the_roles_of_their_uids(self):
        daemon = self.start_daemon(extra_args=["--access", self.write_access(
            "access:\n  - {uid: 1001, role: read}\n  - {uid: 1002, role: dump}\n"), "--log-format", "json"])
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)
        self.assertEqual(OK, self.as_user(1001, daemon, "ps").code)
        self.assertIn("uid:1001 has the role read", self.as_user(1001, daemon, "dump").err)
        dumped = self.as_user(1002, daemon, "dump", "-o", "json")
        self.assertEqual(OK, dumped.code, dumped.err)
        self.assertIn("needs admin", self.as_user(1002, daemon, "delete", json.loads(dumped.out)["name"]).err)
        self.assertIn("uid:1003 has the role none", self.as_user(1003, daemon, "ps").err)
        self.assert_audited(daemon, caller="uid:1003", status="PERMISSION_DENIED")
        self.assertEqual(OK, daemon.ctl("delete", json.loads(dumped.out)["name"]).code)

    def connection_of(self, uid, daemon):
        """A user connects: (the user's process, the number that the connection has in the daemon)."""
        folder = f"/proc/{daemon.process.pid}/fd"
        path = str(daemon.dir / "api.sock")

        def connections():
            """Connections of users, {socket: number}: the daemon may be opening sockets of its own, and numbers are used again."""
            lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()]
            sockets = {f"socket:[{line[6]}]" for line in lines if line[5] == "03" and line[7:] == [path]}
            found = {}
            for number in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    found[os.readlink(f"{folder}/{number}")] = int(number)
            return {socket: number for socket, number in found.items() if socket in sockets}

        before = connections()
        code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"
        user = subprocess.Popen(["setpriv", f"--reuid={uid}", "--clear-groups", "/usr/bin/python3", "-c", code, path],
                                stdin=subprocess.PIPE)
        self.addCleanup(user.kill)
        socket, = eventually("the connection is there", lambda: connections().keys() - before.keys())
        return user, connections()[socket], lambda: socket not in connections()

    @unittest.skipUnless(os.geteuid() == 0, "only root can call as other users")
    def test_no_user_gets_the_number_of_another_users_connection(self):
        """gRPC knows a connection by it, and a call may outlive its connection."""
        daemon = self.start_daemon(extra_args=["--access", self.write_access(
            "access: [{uid: 1001, role: read}, {uid: 1002, role: read}]")])
        numbers = {}
        for uid in (1001, 1002, 1001, 1002):
            user, number, is_gone = self.connection_of(uid, daemon)
            numbers.setdefault(uid, set()).add(number)
            user.kill()
            user.wait()
            eventually("the connection is gone", is_gone)
        self.assertFalse(numbers[1001] & numbers[1002], numbers)

    @unittest.skipUnless(os.geteuid() == 0, "only root can make namespaces")
    def test_root_of_another_container_may_nothing_unless_it_is_named(self):
        """As in a pod: the daemon is in a PID namespace of its own, and who has its volume calls from outside of it."""
        daemon = self.start_daemon(wrap=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
                                   extra_args=["--access", self.write_access("loopback: dump\n"), "--log-format", "json"])
        refused = daemon.ctl("ps")
        self.assertEqual(FAILURE, refused.code)
        self.assertIn("uid:0 in another container has the role none, and ListProcesses needs read: call from the daemon's own "
                      "container", refused.err)
        self.assert_audited(daemon, caller="uid:0 in another container", role="none", method="ListProcesses",
                            status="PERMISSION_DENIED", reason="ROLE_MISSING", level="warning")
        # As kubectl exec does.
        inside, = map(int, pathlib.Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split())
        own = subprocess.run(["nsenter", f"--target={inside}", "--pid", STACKCTL, "--address", daemon.address, "ps"],
                             capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(OK, own.returncode, own.stderr)
        self.assert_audited(daemon, caller="uid:0", role="admin", method="ListProcesses", status="OK")
        self.write_access("access: [{uid: 0, role: read}]\n")
        eventually("the rule holds", lambda: daemon.ctl("ps").code == OK, 10)
        self.assertIn("needs dump", daemon.ctl("dump").err)

    @unittest.skipUnless(os.geteuid() == 0, "only root can call as other users")
    def test_users_without_a_role_take_no_numbers_from_others(self):
        """However many of them connect."""
        daemon = self.start_daemon(extra_args=["--access", self.write_access("access: [{uid: 1001, role: read}]")])
        numbers = []
        for uid in (1001, *range(2001, 2007)):
            user, number, is_gone = self.connection_of(uid, daemon)
            numbers.append(number)
            user.kill()
            user.wait()
            eventually("the connection is gone", is_gone)
        self.assertNotIn(numbers[0], numbers[1:])
        self.assertLessEqual(len(set(numbers[1:])), 2, numbers)
        self.assertIn("uid:2001 has the role none", self.as_user(2001, daemon, "ps").err)

    @unittest.skipUnless(os.geteuid() == 0, "only root can call as other users")
    def test_without_rules_nobody_else_can_connect(self):
        daemon = self.start_daemon()
        self.assertEqual(0o600, stat.S_IMODE((self.dir / "api.sock").stat().st_mode))
        refused = self.as_user(1001, daemon, "ps")
        self.assertEqual(CANNOT_CONNECT, refused.code)
        self.assertIn("Permission denied", refused.err)

    def test_loopback_may_dump_and_not_delete_unless_the_rules_say_so(self):
        daemon = self.start_daemon(extra_args=["--log-format", "json"])
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)
        address = f"127.0.0.1:{daemon.port}"
        name = json.loads(daemon.ctl("dump", "-o", "json", address=address).out)["name"]
        refused = daemon.ctl("delete", name, address=address)
        self.assertEqual(FAILURE, refused.code)
        self.assertIn("loopback has the role dump, and DeleteDump needs admin", refused.err)
        self.assert_audited(daemon, caller="loopback", method="DeleteDump", status="PERMISSION_DENIED")
        daemon.kill()
        daemon.extra_args += ["--access", str(self.write_access("loopback: admin\n"))]
        daemon.start()
        self.assertEqual(OK, daemon.ctl("delete", name, address=address).code)

    def test_rules_are_read_again_when_they_change_and_a_broken_file_changes_nothing(self):
        path = self.write_access("loopback: dump\n")
        daemon = self.start_daemon(extra_args=["--access", path])
        address = f"127.0.0.1:{daemon.port}"
        self.assertEqual(OK, daemon.ctl("ps", address=address).code)
        path.write_text("loopback: none\n")
        eventually("the new rules hold", lambda: daemon.ctl("ps", address=address).code == FAILURE, 10)
        path.write_text("loopback: everything\n")
        eventually("it is told", lambda: daemon.ctl("ps", address=address) and "has faults" in daemon.log(), 10)
        self.assertEqual(FAILURE, daemon.ctl("ps", address=address).code)

    def test_check_access_says_what_is_wrong_and_where(self):
        path = self.write_access("access:\n  - {uid: 1000, role: reader}\n  - {dns: \"a*b\", role: read}\n")
        checked = subprocess.run([STACKD, "check-access", path], capture_output=True, text=True)
        self.assertEqual(1, checked.returncode)
        self.assertIn(f'{path}:2:23: unknown role "reader" in role; did you mean "read"?', checked.stderr)
        self.assertIn(f"{path}:3:11: dns: a \"*\" stands at the end only", checked.stderr)
        started = subprocess.run([STACKD, "--dir", self.dir, "--access", path], capture_output=True, text=True,
                                 timeout=LIMIT_S)
        self.assertEqual(1, started.returncode)
        self.assertIn("unknown role", started.stderr)

    def channel(self, daemon, certificate):
        credentials = grpc.ssl_channel_credentials(self.authority.own.crt.read_bytes(), certificate.key.read_bytes(),
                                                   certificate.crt.read_bytes())
        # A connection of its own.
        return grpc.secure_channel(f"localhost:{daemon.port}", credentials,
                                   options=[("grpc.use_local_subchannel_pool", 1)])

    @needs_grpcio
    def test_a_page_token_of_another_caller_is_refused_and_audited(self):
        daemon = self.start_with_tls()
        for _ in range(2):
            self.start_victim("waiting_threads", 3)
        eventually("both are registered", lambda: len(daemon.processes()) == 2)
        page_of_1 = b"\x08\x01"
        with self.channel(daemon, self.dashboard) as mine, self.channel(daemon, self.oncall) as other:
            first = unary(mine, "ListProcesses")(page_of_1, timeout=LIMIT_S)
            # next_page_token: the last field, 2.
            token = first[first.rindex(b"\x12", 0, len(first) - 40):]
            size = token[1] if token[1] < 128 else (token[1] & 127) | token[2] << 7
            token = token[-size:].decode()
            replay = page_of_1 + text_field(2, token)
            self.assertTrue(unary(mine, "ListProcesses")(replay, timeout=LIMIT_S))
            with self.assertRaises(grpc.RpcError) as refused:
                unary(other, "ListProcesses")(replay, timeout=LIMIT_S)
            self.assertEqual(grpc.StatusCode.INVALID_ARGUMENT, refused.exception.code())
            self.assertEqual("BAD_PAGE_TOKEN", reason(refused.exception))
        self.assert_audited(daemon, caller="dns:oncall.test", method="ListProcesses", status="INVALID_ARGUMENT",
                            reason="BAD_PAGE_TOKEN", level="warning")

    @needs_grpcio
    def test_certificates_rotate_under_load_without_a_failed_call(self):
        daemon = self.start_with_tls()
        failed, done = [], [0]

        def load():
            # A new connection each time: only these see the daemon's files. An admin, who has no rate limit.
            with self.channel(daemon, self.admin) as channel:
                for _ in range(5):
                    try:
                        unary(channel, "GetDaemon")(b"", timeout=20)
                        done[0] += 1
                    except grpc.RpcError as error:
                        failed.append(f"{error.code()}: {error.details()}")

        stop = self.keep_doing(load, load, load)
        for generation in range(3):
            fresh = self.authority.issue(f"server{generation}", "DNS:localhost")
            # The worst of what renews certificates: one file, and the other when the daemon has seen the first.
            os.replace(fresh.key, self.server.key)
            eventually("it is told", lambda: daemon.log_path.read_text().count("this is not the key of") > generation, 10)
            os.replace(fresh.crt, self.server.crt)
            wanted = self.server.crt.read_text().strip()

            def is_served():
                shown = subprocess.run(["openssl", "s_client", "-connect", f"localhost:{daemon.port}", "-alpn", "h2"],
                                       stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
                return wanted in shown

            eventually("the new certificate is served", is_served, 20)
            count = done[0]
            eventually("calls go on", lambda: done[0] > count + 30 or failed, 30)
        stop()
        print(f"rotation: {done[0]} calls on {done[0] // 5} connections over 3 rotations, {len(failed)} failed")
        self.assertEqual([], failed[:3])

    @needs_grpcio
    def test_half_of_a_renewal_changes_nothing(self):
        daemon = self.start_with_tls()

        def served():
            with self.channel(daemon, self.dashboard) as channel:
                unary(channel, "GetDaemon")(b"", timeout=20)

        fresh = self.authority.issue("fresh", "DNS:localhost")
        os.replace(fresh.key, self.server.key)
        eventually("it is told", lambda: "this is not the key of" in daemon.log(), 10)
        # gRPC looks each second.
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            served()
        os.replace(fresh.crt, self.server.crt)
        eventually("the pair is used", lambda: "are used from now on" in daemon.log(), 10)
        served()
        self.server.crt.unlink()
        eventually("it is told", lambda: "server.crt: cannot be read" in daemon.log(), 10)
        served()

    def test_a_new_client_authority_counts_without_a_restart(self):
        daemon = self.start_with_tls()
        later = Authority(self.dir / "later", "later")
        newcomer = later.issue("newcomer", "DNS:dashboard.test")
        self.assertEqual(CANNOT_CONNECT,
                         daemon.ctl("--tls-ca", self.authority.own.crt, "--tls-cert", newcomer.crt, "--tls-key",
                                    newcomer.key, "ps", address=f"localhost:{daemon.port}").code)
        both = self.tls / "both.crt"
        both.write_text(self.authority.own.crt.read_text() + later.own.crt.read_text())
        os.replace(both, self.tls / "authority.crt")
        eventually("the newcomer is served",
                   lambda: self.remote(daemon, newcomer, "ps").code == OK, 20)
        self.assertEqual(OK, self.remote(daemon, self.dashboard, "ps").code)


if __name__ == "__main__":
    unittest.main()
