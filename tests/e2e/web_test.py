"""The page and the API over plain HTTP: the answers are those of gRPC, and a browser cannot be used against it."""

import base64
import http.client
import json
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import urllib.request

import nodes
from access_fixture import ACCESS, AccessFixture, own_address
from built import built
from grpcurl_test import GRPCURL, resource
from harness import LIMIT_S, ROOT, STACKD, StackdTest, eventually, free_port

JSON = "application/json"
STREAM = "application/connect+json"
# Connect's number of the code, which is gRPC's.
NOT_FOUND = 5
UNARY = ["GetDaemon", "ListProcesses", "GetProcess", "GetDump", "ListDumps", "CompareDumps", "ListStackGroups"]


CONNECT_CLIENT = pathlib.Path(__file__).parent / "connect_client"


def connect_client():
    """A folder with call.mjs, its packages, and the code that Connect's generator makes of our proto. None without npm."""
    if not shutil.which("npm") or not nodes.found():
        return None

    def make(folder):
        shutil.copytree(CONNECT_CLIENT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        (folder / "gen").mkdir()
        for command in (["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                        ["protoc", "--plugin=node_modules/.bin/protoc-gen-es", "--es_out=gen", f"-I{ROOT}/proto",
                         "stackd/v1/stackd.proto"]):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
            if done.returncode != 0:
                raise AssertionError(f"{command[0]}: {done.stderr[-2000:]}")

    files = [path for path in sorted(CONNECT_CLIENT.iterdir()) if path.is_file()]
    return built("connect-client", [*files, ROOT / "proto/stackd/v1/stackd.proto"], make)


PREPARE = [connect_client]


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.fields = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class WebTest(StackdTest):
    def serve(self, *extra_args):
        self.port = free_port()
        return self.start_daemon(extra_args=["--web-listen", f"127.0.0.1:{self.port}", "--log-format", "json", *extra_args])

    def serve_victim(self, *extra_args):
        daemon = self.serve(*extra_args)
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)
        return daemon, victim

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        self.addCleanup(connection.close)
        return connection

    def ask(self, verb, path, body=None, fields=None):
        connection = self.connect()
        connection.request(verb, path, body, fields or {})
        return Answer(connection.getresponse())

    def call(self, method, request="{}", fields=None):
        return self.ask("POST", f"/stackd.v1.Stackd/{method}", request, {"Content-Type": JSON, **(fields or {})})

    def open_stream(self, method, request):
        body = json.dumps(request).encode()
        connection = self.connect()
        connection.request("POST", f"/stackd.v1.Stackd/{method}", struct.pack(">BI", 0, len(body)) + body,
                           {"Content-Type": STREAM})
        response = connection.getresponse()
        self.assertEqual((200, STREAM), (response.status, response.getheader("Content-Type")))
        return connection, response

    def next_message(self, response):
        """The flags and the message of the next envelope."""
        flags, length = struct.unpack(">BI", response.read(5))
        return flags, json.loads(response.read(length))

    def audited(self, daemon, **expected):
        def find():
            lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines() if line.startswith("{")]
            return any(all(line.get(key) == value for key, value in expected.items()) for line in lines)

        eventually(f"{expected} is audited", find)


class AnswersTest(WebTest):
    def test_every_unary_method_answers_as_over_grpc(self):
        daemon, victim = self.serve_victim()
        created = [self.call("CreateDump").json() for _ in range(2)]
        self.assertEqual(victim.pid, created[0]["process"]["pid"])
        for method in UNARY:
            with self.subTest(method):
                over_http = self.call(method)
                self.assertEqual(200, over_http.status, over_http.body)
                over_grpc = subprocess.run([GRPCURL, "-plaintext", "-d", "{}", f"127.0.0.1:{daemon.port}",
                                            f"stackd.v1.Stackd/{method}"], capture_output=True, text=True, timeout=60)
                self.assertEqual(0, over_grpc.returncode, over_grpc.stderr)
                answers = [over_http.json(), resource(over_grpc.stdout)]
                for answer in answers:
                    # What each question itself changes.
                    answer.pop("counters", None)
                self.assertEqual(*answers)
        renamed = self.call("ResymbolizeDump", json.dumps({"name": created[0]["name"]}))
        self.assertEqual((200, created[0]["name"]), (renamed.status, renamed.json().get("name")))

    def test_connect_web_gets_the_same_answers(self):
        folder = connect_client()
        if folder is None:
            self.skipTest("no npm, or no Node.js")
        daemon, _ = self.serve_victim()
        for kind in ("json", "binary"):
            with self.subTest(kind):
                done = subprocess.run([nodes.found()[-1].path, folder / "call.mjs", f"http://127.0.0.1:{self.port}", kind],
                                      capture_output=True, text=True, check=False, timeout=60)
                self.assertEqual(0, done.returncode, done.stderr)
                told = json.loads(done.stdout)
                # Nothing has crashed: there is no group.
                self.assertEqual(NOT_FOUND, told["answers"].pop("GetStackGroup")["code"])
                for method, answer in told["answers"].items():
                    ours = self.call(method).json()
                    for one in (answer, ours):
                        one.pop("counters", None)
                    self.assertEqual(ours, answer, method)
                self.assertIn("needs admin", told["refused"])
                self.assertEqual([told["second"], told["first"]], [told["watched"], told["renamed"]])
                self.assertIn("waiting_threads", told["exported"])

    def test_curl_needs_nothing_but_a_body_and_a_type(self):
        _, victim = self.serve_victim()
        done = subprocess.run(["curl", "-sS", "--fail", "-d", "{}", "-H", "Content-Type: application/json",
                               f"http://localhost:{self.port}/stackd.v1.Stackd/CreateDump"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(victim.pid, json.loads(done.stdout)["process"]["pid"])

    def test_protobuf_is_answered_in_protobuf(self):
        self.serve()
        answer = self.call("GetDaemon", b"", {"Content-Type": "application/proto"})
        self.assertEqual((200, "application/proto"), (answer.status, answer.fields["content-type"]))
        # Field 1, the version, comes first.
        self.assertEqual(0x0A, answer.body[0])

    def test_an_export_comes_whole(self):
        daemon, victim = self.serve_victim()
        name = daemon.dump(victim.pid).name
        _, response = self.open_stream("ExportDump", {"name": name, "format": "JSON"})
        data = b""
        while True:
            flags, message = self.next_message(response)
            if flags == 2:
                break
            data += base64.b64decode(message["data"])
        self.assertEqual({}, message)
        self.assertEqual(b"", response.read())
        self.assertEqual(daemon.ctl("export", name, "-f", "json").out, data.decode())

    def test_calls_are_counted_as_those_over_grpc(self):
        metrics_port = free_port()
        self.serve("--metrics-listen", f"127.0.0.1:{metrics_port}")
        self.assertEqual(200, self.call("ListDumps").status)
        self.assertEqual(404, self.call("GetDump", json.dumps({"name": "processes/1-2/dumps/x"})).status)
        lines = [f'grpc_server_handled_total{{grpc_type="unary",grpc_service="stackd.v1.Stackd",grpc_method="{method}",'
                 f'grpc_code="{code}"}} 1\n' for method, code in (("ListDumps", "OK"), ("GetDump", "NotFound"))]
        lines.append('stackd_http_requests_total{server="web"} 2\n')

        def all_counted():
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=LIMIT_S) as page:
                counted = page.read().decode()
            return all(line in counted for line in lines)

        # A call ends after its answer has left.
        eventually("both calls are counted", all_counted)

    def test_a_watch_tells_of_each_dump_and_ends_with_its_client_or_the_daemon(self):
        daemon, victim = self.serve_victim()
        connection, response = self.open_stream("WatchDumps", {})
        name = daemon.dump(victim.pid).name
        self.assertEqual((0, name), (lambda flags, message: (flags, message["dump"]["name"]))(*self.next_message(response)))
        connection.close()
        response.close()
        self.audited(daemon, method="WatchDumps", status="CANCELLED")

        _, response = self.open_stream("WatchDumps", {"after": name})
        self.assertEqual(0, daemon.stop())
        flags, end = self.next_message(response)
        self.assertEqual((2, "unavailable"), (flags, end["error"]["code"]))

    def test_a_wrong_request_is_told_what_to_change(self):
        self.serve_victim()
        for request, fields, status, code, words in (
                ('{"title": "x"}', {}, 400, "invalid_argument", 'Cannot find field'),
                ("nonsense", {}, 400, "invalid_argument", "is no stackd.v1.GetDumpRequest in JSON"),
                ('{"name": "x"}', {}, 400, "invalid_argument", '"x" is not the name of a dump'),
                ('{"name": "processes/1-2/dumps/x"}', {}, 404, "not_found", "processes/1-2/dumps/x"),
                ("{}", {"Connect-Timeout-Ms": "soon"}, 400, "invalid_argument", "Connect-Timeout-Ms"),
                ("{}", {"Connect-Protocol-Version": "2"}, 400, "invalid_argument", "must be 1"),
                ("{}", {"Content-Encoding": "gzip"}, 501, "unimplemented", "compressed")):
            with self.subTest(request=request, fields=fields):
                answer = self.call("GetDump", request, fields)
                self.assertEqual((status, code), (answer.status, answer.json()["code"]), answer.body)
                self.assertIn(words, answer.json()["message"])
        missing = self.call("GetDump", '{"name": "processes/1-2/dumps/x"}').json()["details"]
        self.assertEqual("DUMP_NOT_FOUND", missing[0]["debug"]["reason"])
        self.assertEqual(404, self.call("NoSuchMethod").status)
        self.assertEqual(405, self.ask("GET", "/stackd.v1.Stackd/GetDump").status)
        self.assertEqual(413, self.call("GetDump", '{"name": "' + "x" * 100_000 + '"}').status)
        for method, kind in (("GetDump", STREAM), ("WatchDumps", JSON), ("GetDump", "text/plain")):
            answer = self.call(method, "{}", {"Content-Type": kind})
            self.assertEqual(415, answer.status)
            self.assertIn("application/", answer.fields["accept-post"])
        _, response = self.open_stream("ExportDump", {"name": "processes/1-2/dumps/x"})
        self.assertEqual((2, "not_found"), (lambda flags, end: (flags, end["error"]["code"]))(*self.next_message(response)))

    def test_a_deadline_gives_what_there_is(self):
        daemon, victim = self.serve_victim()
        victim.signal(19)
        eventually("it is stopped", lambda: "State:\tT" in open(f"/proc/{victim.pid}/status").read())
        answer = self.call("CreateDump", "{}", {"Connect-Timeout-Ms": "2000"})
        self.assertEqual(200, answer.status, answer.body)
        self.assertTrue(answer.json()["notes"])
        victim.signal(18)

    def test_the_daemon_ends_while_a_call_is_under_way(self):
        daemon, victim = self.serve_victim()
        victim.signal(19)
        connection = self.connect()
        connection.request("POST", "/stackd.v1.Stackd/CreateDump", "{}", {"Content-Type": JSON})
        eventually("the call is under way", lambda: self.call("GetDaemon").json()["counters"].get("dumps_running") == "1")
        self.assertEqual(0, daemon.stop())
        victim.signal(18)


class BrowserTest(WebTest):
    def test_the_page_comes_with_a_policy_that_lets_nothing_else_in(self):
        self.serve()
        page = self.ask("GET", "/")
        self.assertEqual((200, "text/html; charset=utf-8"), (page.status, page.fields["content-type"]))
        self.assertIn("default-src 'none'; script-src 'self'", page.fields["content-security-policy"])
        self.assertEqual("nosniff", page.fields["x-content-type-options"])
        self.assertNotIn("set-cookie", page.fields)
        for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
            self.assertIn(f"./{name}", page.body.decode())
            self.assertTrue(self.ask("GET", f"/{name}").fields["content-type"].startswith(kind))
        self.assertEqual(404, self.ask("GET", "/../etc/passwd").status)

    def test_other_sites_and_names_that_were_rebound_are_refused_and_audited(self):
        daemon, _ = self.serve_victim("--web-host", "stackd.ops.example")
        for fields in ({"Host": "evil.example"}, {"Host": f"evil.example:{self.port}"}, {"Origin": "http://evil.example"},
                       {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            with self.subTest(fields):
                for answer in (self.call("CreateDump", "{}", fields), self.ask("GET", "/", None, fields)):
                    self.assertEqual((403, "permission_denied"), (answer.status, answer.json()["code"]))
        self.audited(daemon, method="HTTP request", status="PERMISSION_DENIED", reason="OTHER_SITE", caller="loopback")
        # What a form or a script of another site may send without being asked first.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            self.assertEqual(415, self.call("CreateDump", "{}", {"Content-Type": kind}).status)
        asked_first = self.ask("OPTIONS", "/stackd.v1.Stackd/CreateDump", None,
                               {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"})
        self.assertEqual(403, asked_first.status)
        self.assertNotIn("access-control-allow-origin", asked_first.fields)
        self.assertEqual({}, self.call("ListDumps").json())
        for fields in ({"Host": "stackd.ops.example"}, {"Host": "10.0.0.7", "Origin": "https://stackd.ops.example"},
                       {"Host": "localhost:1", "Origin": "http://localhost:1"}):
            self.assertEqual(200, self.call("GetDaemon", "{}", fields).status, fields)


class HostileClientTest(WebTest):
    def test_a_polite_caller_is_answered_beside_silent_and_endless_ones(self):
        self.serve_victim()
        sockets = []
        for index in range(200):
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
            self.addCleanup(connection.close)
            if index % 2:
                connection.sendall(b"POST /stackd.v1.Stackd/GetDump HTTP/1.1\r\nContent-Length: 60000\r\n\r\n{")
            sockets.append(connection)
        for _ in range(20):
            self.assertEqual(200, self.call("GetDaemon").status)

    def test_answers_that_are_not_read_hold_up_no_other(self):
        daemon, victim = self.serve_victim()
        self.assertEqual(200, self.call("CreateDump").status)
        stuck = []
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.addCleanup(connection.close)
            connection.sendall(b"POST /stackd.v1.Stackd/GetDump HTTP/1.1\r\nHost: localhost\r\n"
                               b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            stuck.append(connection)
        self.assertEqual(200, self.call("GetDaemon").status)

    def test_a_flood_of_calls_is_limited(self):
        daemon = self.serve()
        statuses = []

        def flood():
            for _ in range(100):
                statuses.append(self.call("GetDaemon").status)

        threads = [threading.Thread(target=flood) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIn(429, statuses)
        self.assertLessEqual(set(statuses), {200, 429})
        eventually("the caller may call again", lambda: self.call("GetDaemon").status == 200)
        self.audited(daemon, method="GetDaemon", status="RESOURCE_EXHAUSTED", caller="loopback")


class RolesTest(AccessFixture):
    """Callers have the roles that they have over gRPC."""

    def serve(self, *extra_args, host="127.0.0.1"):
        self.port = free_port()
        return self.start_daemon(extra_args=[*extra_args, "--web-listen", f"{host}:{self.port}", "--log-format", "json"])

    def https(self, certificate, method, request="{}"):
        context = ssl.create_default_context(cafile=self.authority.own.crt)
        if certificate is not None:
            context.load_cert_chain(certificate.crt, certificate.key)
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=LIMIT_S, context=context)
        self.addCleanup(connection.close)
        connection.request("POST", f"/stackd.v1.Stackd/{method}", request, {"Content-Type": JSON})
        return Answer(connection.getresponse())

    def test_loopback_may_dump_and_not_delete(self):
        daemon = self.serve()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        self.addCleanup(connection.close)
        connection.request("POST", "/stackd.v1.Stackd/DeleteDump", '{"name": "x"}', {"Content-Type": JSON})
        answer = Answer(connection.getresponse())
        self.assertEqual((403, "permission_denied"), (answer.status, answer.json()["code"]))
        self.assertIn("loopback has the role dump, and DeleteDump needs admin", answer.json()["message"])
        self.assert_audited(daemon, caller="loopback", method="DeleteDump", status="PERMISSION_DENIED")

    def test_certificates_have_their_roles(self):
        daemon = self.serve(*self.tls_flags(), "--access", self.write_access(ACCESS))
        self.assertEqual(200, self.https(self.dashboard, "GetDaemon").status)
        refused = self.https(self.dashboard, "CreateDump")
        self.assertEqual(403, refused.status)
        self.assert_audited(daemon, caller="dns:dashboard.test", method="CreateDump", reason="ROLE_MISSING")
        self.assertEqual("failed_precondition", self.https(self.oncall, "CreateDump").json()["code"])
        self.assertEqual(404, self.https(self.admin, "DeleteDump", '{"name": "processes/1-2/dumps/x"}').status)
        self.assert_audited(daemon, caller="uri:spiffe://test/ops/alice", method="DeleteDump")

    def test_a_certificate_without_a_role_or_none_has_no_connection(self):
        daemon = self.serve(*self.tls_flags(), "--access", self.write_access(ACCESS))
        elsewhere = self.authority.issue("elsewhere", "DNS:elsewhere.test")
        for certificate in (None, elsewhere):
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                self.https(certificate, "GetDaemon")
        self.assert_audited(daemon, caller="dns:elsewhere.test", method="TLS handshake", status="PERMISSION_DENIED")
        self.assert_audited(daemon, caller="unauthenticated", method="TLS handshake", reason="peer did not return a certificate")

    def test_a_renewed_certificate_is_shown_without_a_restart(self):
        self.serve(*self.tls_flags(), "--access", self.write_access(ACCESS))
        self.assertEqual(200, self.https(self.dashboard, "GetDaemon").status)
        before = ssl.get_server_certificate(("127.0.0.1", self.port))
        self.server = self.authority.issue("server", "DNS:localhost,IP:127.0.0.1")
        eventually("the new certificate is shown",
                   lambda: ssl.get_server_certificate(("127.0.0.1", self.port)) != before)
        self.assertEqual(200, self.https(self.dashboard, "GetDaemon").status)

    def test_another_address_needs_tls(self):
        address = own_address()
        if address is None:
            self.skipTest("this machine has loopback addresses only")
        done = subprocess.run([STACKD, "--dir", self.dir, "--listen", "none", "--web-listen", f"{address}:0"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(1, done.returncode)
        self.assertIn(f"--web-listen {address}:0: anything but a loopback address needs mutual TLS", done.stderr)
        self.serve(*self.tls_flags(), "--access", self.write_access(ACCESS), host=address)
