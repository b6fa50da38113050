"""The gateway of a fleet, built once for all tests, and the calls of grpcurl to it."""

import json
import os
import pathlib
import signal
import subprocess

import go_programs
from built import built
from grpcurl_test import GRPCURL, resource
from harness import LIMIT_S, ROOT, STACKCTL, die_with_parent, eventually
from ports import free_port

MODULE = ROOT / "client/fleet"


def go_is_here():
    """The module needs a Go that knows HTTP/2 without TLS."""
    return bool(go_programs.version_of("local")) and int(go_programs.version_of("local").split(".")[1]) >= 26


def run_go(*args, module=MODULE, **kwargs):
    done = go_programs.run_go("local", *args, cwd=module, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"go {' '.join(map(str, args))}: {done.stderr}")
    return done


def build(program, module=MODULE):
    def compile_into(folder):
        run_go("build", "-trimpath", "-o", folder, f"./cmd/{program}", module=module, timeout=600)

    inputs = [MODULE, ROOT / "client/page/dist", go_programs.version_of("local")]
    return built(f"{module.name}-{program}", inputs, compile_into) / program


def build_gateway():
    return build("stackd-gateway")


def build_plugin():
    return build("kubectl-stackd")


def build_gateway_of_cluster():
    """With client-go: 43 s of CPU time where Go's cache has nothing of it, 5 s later."""
    return build("stackd-gateway", MODULE / "kubernetes")


def generate(folder):
    """Runs the module's generate.sh into a folder."""
    environment = go_programs.environment_of("local")
    environment["PATH"] = f"{os.path.dirname(go_programs.go_command())}:{environment['PATH']}"
    done = subprocess.run([MODULE / "generate.sh", folder], env=environment, capture_output=True, text=True, timeout=500)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


class Gateway:
    """A running stackd-gateway."""

    def __init__(self, folder, targets, *args, port=None, program=None):
        self.port = port or free_port()
        self.file = pathlib.Path(folder) / "targets.json"
        self.log_path = pathlib.Path(folder) / "gateway.log"
        known = ()
        if targets is not None:
            self.write_targets(targets)
            known = ("--targets-file", self.file)
        self.command = [program or build_gateway(), "--listen", f"127.0.0.1:{self.port}", *known, *args]
        self.process = None

    def write_targets(self, targets):
        """{pod: (address, other labels)}, put there at once, as an operator's tool does."""
        groups = [{"targets": [address], "labels": {"pod": pod, **labels}} for pod, (address, labels) in targets.items()]
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(groups))
        new.rename(self.file)

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(list(map(str, self.command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=die_with_parent)

        def serves():
            if self.process.poll() is not None:
                raise AssertionError(f"the gateway ended with {self.process.returncode}: {self.log_path.read_text()}")
            return any(line["msg"] == "serving" for line in self.log())

        eventually("the gateway serves", serves)
        return self

    def log(self):
        return [json.loads(line) for line in self.log_path.read_text().splitlines() if line.startswith("{")]

    def calls(self):
        """The audit."""
        return [line for line in self.log() if line["msg"] == "call"]

    def kill(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.process.wait(LIMIT_S)

    def grpcurl(self, method, request="{}", options=("-plaintext",), limit_s=LIMIT_S):
        """Runs grpcurl; never fails by itself."""
        text = request if isinstance(request, str) else json.dumps(request)
        return subprocess.run([GRPCURL, *map(str, options), "-d", text, f"127.0.0.1:{self.port}", f"stackd.v1.Fleet/{method}"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s)

    def call(self, method, request="{}", **kwargs):
        """The messages of an answer."""
        done = self.grpcurl(method, request, **kwargs)
        if done.returncode != 0:
            raise AssertionError(f"{method}: {done.stderr}\n{self.log_path.read_text()[-3000:]}")
        return messages_of(done.stdout)

    def ctl(self, *args):
        """Runs stackctl against the gateway; standard output as bytes."""
        return subprocess.run([STACKCTL, "--address", f"127.0.0.1:{self.port}", *map(str, args)], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT_S)

    def dump(self, request="{}", **kwargs):
        """A new fleet dump."""
        return self.call("CreateFleetDump", request, **kwargs)[-1]["fleetDump"]


def messages_of(text):
    """grpcurl prints one JSON object behind the other."""
    decoder = json.JSONDecoder()
    messages = []
    text = text.strip()
    while text:
        _, end = decoder.raw_decode(text)
        messages.append(resource(text[:end]))
        text = text[end:].strip()
    return messages


def unreachable_of(dump):
    """{target: reason}"""
    return {one["target"].removeprefix("targets/"): one["reason"] for one in dump.get("unreachable", [])}


def paths_of(dump):
    """{"main > serve > read": node}, by functions from the thread's first on."""
    paths = []
    for node in dump.get("nodes", []):
        parent = node.get("parent", 0)
        paths.append((paths[parent] + " > " if parent >= 0 else "") + node["function"])
    return dict(zip(paths, dump.get("nodes", [])))

