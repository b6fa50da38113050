"""A real OpenTelemetry collector and a real Loki, built of their modules once: half an hour of CPU time. They run with the examples of
deploy/history."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import urllib.request

import fleet_gateway
import go_programs
from built import built
from harness import ROOT, die_with_parent, eventually
from ports import free_port

LOKI = "v3.7.8"
COLLECTOR = "v0.161.0"
# Makes a collector's main program of a list of its parts.
BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.164.0"
PARTS = """
dist: {name: otelcol, output_path: dist}
receivers: [{gomod: "go.opentelemetry.io/collector/receiver/otlpreceiver VERSION"}]
exporters: [{gomod: "go.opentelemetry.io/collector/exporter/otlphttpexporter VERSION"}]
""".replace("VERSION", COLLECTOR)
BUILD_LIMIT_S = 7200


def go(folder, *args):
    return fleet_gateway.run_go(*args, module=folder, timeout=BUILD_LIMIT_S).stdout


def build_loki():
    """Its module replaces others, which holds for its own programs only: a module here repeats that."""

    def compile_into(folder):
        with tempfile.TemporaryDirectory() as work:
            loki = "github.com/grafana/loki/v3"
            theirs = pathlib.Path(json.loads(go(work, "mod", "download", "-json", f"{loki}@{LOKI}"))["GoMod"]).read_text()
            replaced = [line for line in re.findall(r"^\s*(?:replace )?(\S+(?: v\S+)? => \S+(?: \S+)?)", theirs, re.M) if "=> ./" not in line]
            version = re.search(r"^go (\S+)", theirs, re.M)[1]
            lines = ["module loki.example", f"go {version}", f"require {loki} {LOKI}", *(f"replace {line}" for line in replaced)]
            pathlib.Path(work, "go.mod").write_text("\n".join(lines) + "\n")
            pathlib.Path(work, "programs.go").write_text(f'//go:build programs\n\npackage programs\n\nimport _ "{loki}/cmd/loki"\n')
            go(work, "mod", "tidy")
            go(work, "build", "-p", "2", "-trimpath", "-ldflags=-s -w", "-o", folder / "loki", f"{loki}/cmd/loki")

    return built("loki", [LOKI, go_programs.version_of("local")], compile_into) / "loki"


def build_collector():

    def compile_into(folder):
        with tempfile.TemporaryDirectory() as work:
            pathlib.Path(work, "builder.yaml").write_text(PARTS)
            go(work, "run", BUILDER, "--config", "builder.yaml", "--skip-compilation", "--skip-strict-versioning")
            go(pathlib.Path(work, "dist"), "build", "-p", "2", "-trimpath", "-ldflags=-s -w", "-o", folder / "otelcol", ".")

    return built("otelcol", [PARTS, BUILDER, go_programs.version_of("local")], compile_into) / "otelcol"


class Program:
    """Runs with its configuration until the test ends."""

    def __init__(self, test, name, command, is_ready):
        self.log_path = test.dir / f"{name}.log"
        self.command = command
        self.is_ready = is_ready
        self.process = None
        test.addCleanup(self.end, signal.SIGKILL)
        self.start()

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(list(map(str, self.command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=die_with_parent)

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.command} ended with {self.process.returncode}: {self.log_path.read_text()[-3000:]}")
            try:
                return self.is_ready()
            except OSError:
                return False

        eventually(f"{self.command[0]} is ready", ready, 180)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait(60)

    def restart(self):
        self.end()
        self.start()


class Loki(Program):

    def __init__(self, test):
        self.port = free_port()
        text = (ROOT / "deploy/history/loki.yaml").read_text()
        text = text.replace("/var/loki", str(test.dir / "loki"))
        text = text.replace("http_listen_port: 3100", f"http_listen_port: {self.port}, http_listen_address: 127.0.0.1, "
                            f"grpc_listen_port: {free_port()}, grpc_listen_address: 127.0.0.1")
        text = text.replace("ring: {", "instance_addr: 127.0.0.1\n  ring: {")
        config = test.dir / "loki.yaml"
        config.write_text(text)
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(test, "loki", [build_loki(), f"-config.file={config}"], lambda: urllib.request.urlopen(f"{self.url}/ready", timeout=10))


class Collector(Program):

    def __init__(self, test, loki):
        self.port = free_port()
        text = (ROOT / "deploy/history/collector.yaml").read_text()
        text = text.replace("0.0.0.0:4317", f"127.0.0.1:{self.port}").replace("http://loki.monitoring:3100", loki.url)
        config = test.dir / "collector.yaml"
        config.write_text(text)
        super().__init__(test, "collector", [build_collector(), f"--config={config}", "--set=service.telemetry.metrics.level=none"],
                         lambda: "Everything is ready" in self.log_path.read_text())
