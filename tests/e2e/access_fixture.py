"""Certificates with roles, and the audit of calls."""

import json
import subprocess

from authority import Authority
from harness import StackdTest, eventually

ACCESS = """access:
  - {uri: "spiffe://test/ops/*", role: admin}
  - {dns: oncall.test, role: dump}
  - {dns: dashboard.test, role: read}
"""


def own_address():
    """An address of this machine that is not loopback, or None."""
    asked = subprocess.run(["hostname", "-I"], capture_output=True, text=True)
    return next((a for a in asked.stdout.split() if "." in a and not a.startswith("127.")), None)


class AccessFixture(StackdTest):
    def setUp(self):
        super().setUp()
        # Users other than root pass through it.
        self.dir.chmod(0o755)
        self.tls = self.dir / "tls"
        self.authority = Authority(self.tls, "authority")
        self.server = self.authority.issue("server", "DNS:localhost,IP:127.0.0.1")
        self.admin = self.authority.issue("admin", "URI:spiffe://test/ops/alice")
        self.oncall = self.authority.issue("oncall", "DNS:oncall.test")
        self.dashboard = self.authority.issue("dashboard", "DNS:dashboard.test")

    def write_access(self, text):
        path = self.dir / "access.yaml"
        path.write_text(text)
        return path

    def tls_flags(self):
        return ["--tls-cert", self.server.crt, "--tls-key", self.server.key, "--tls-client-ca", self.authority.own.crt]

    def calls(self, daemon):
        """The audit."""
        lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["msg"] == "call"]

    def assert_audited(self, daemon, **expected):
        def find():
            return next((c for c in self.calls(daemon) if all(c.get(k) == v for k, v in expected.items())), None)

        try:
            return eventually("the call is audited", find, 5)
        except AssertionError:
            self.fail(f"{expected} is not in {self.calls(daemon)}")
