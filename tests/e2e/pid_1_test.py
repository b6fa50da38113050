"""A program that dies as the first process of a PID namespace, as it is in a pod, has the crash of any other. Cause, explanation,
threads and fingerprint are the same. So has one under an init, whatever its language.

    pid 1: java 21.0.8 segv           27 threads
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest

import go_programs
import jdks
import nodes
import pythons
import tier
from built import built
from crashes import CrashTest, crashes, environment, run_to_end, whole_crash
from crash_victims_test import C_DEATHS, CPP_DEATHS, RUST_DEATHS, build_rust
from harness import LIMIT_S, PROGRAMS, ROOT, eventually
from java_test import classes

NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
# As `docker run --init` puts one into a container.
INIT = [*NAMESPACE, "tini", "--"]
LANGUAGES = ROOT / "tests/languages"

# A signal that a process sends itself does not reach it as process 1; these are the deaths by a fault, and those of abort().
ENDS_AS_PID_1 = [death.name for death in C_DEATHS if death.cause != "SENT"]

# What ends a program of Go's by its own runtime.
GO_ENDS = ("nil", "index", "panic", "overflow", "maps", "memory")

FEW_ENDS = ("null_pointer", "call_abort", "free_of_no_block", "failed_assertion", "breakpoint")


@functools.cache
def shared_library(name, compiler, source):
    """A library that faults in code of C or C++, built once."""

    def compile_into(folder):
        subprocess.run([compiler, "-O2", "-g", "-shared", "-fPIC", "-o", folder / name, source], check=True)

    return built(f"pid-1-{name}", [source, compiler], compile_into) / name


def node_addon():
    return shared_library("faults.node", "gcc", LANGUAGES / "node/faults.c")


def java_library():
    return shared_library("libnative.so", "g++", LANGUAGES / "java/native.cc")


def prepare():
    node_addon()
    java_library()
    for toolchain, _ in tier.versions(go_programs.toolchains()):
        for cgo in (False, True):
            go_programs.kept(toolchain, "ends", cgo=cgo)


PREPARE = [prepare]


def without_numbers(text):
    return re.sub(r"0x[0-9a-f]+|\d+", "N", text)


def what_happened(dump):
    crash = dump.resource["crash"]
    return {"cause": crash["cause"], "signal": crash.get("signalName"), "explanation": without_numbers(crash["explanation"]),
            "message": without_numbers(crash.get("abortMessage", ""))}


def facts_of(dump):
    """All that does not depend on where the process ran."""
    return what_happened(dump) | {"fingerprint": dump.resource["crash"].get("fingerprint"), "state": dump.state,
                                  "threads": len(dump.threads), "captured": dump.counts.get("captured", 0)}


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("tini"), "needs root and tini: deploy/install-deps.sh --tests installs it")
class Pid1Test(CrashTest):
    limit_s = 600

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o711)
        self.daemon = self.start_daemon()
        self.runs = 0
        self.is_over = False

    def run_once(self, wrap, command, under_agent):
        """A program that waits for its standard input to end lives until the daemon knows it."""
        self.runs += 1
        read_end, write_end = os.pipe()
        known = {process["name"] for process in self.daemon.processes()}
        name = pathlib.Path(command[0]).name

        def let_it_die():
            deadline = time.monotonic() + LIMIT_S
            while under_agent and not self.is_over and time.monotonic() < deadline:
                # Go's package gives it another name: ends-c.
                if any(process["name"] not in known and process["displayName"].startswith(name)
                       for process in self.daemon.processes()):
                    break
                time.sleep(0.01)
            os.close(write_end)

        self.is_over = False
        waiter = threading.Thread(target=let_it_die)
        waiter.start()
        try:
            with open(read_end, "rb") as stdin:
                return run_to_end([*wrap, *command], self.dir / f"run{self.runs}", environment(self.dir if under_agent else None),
                                  stdin=stdin)
        finally:
            self.is_over = True
            waiter.join()

    def die(self, wrap, command, pid=None):
        """The crash of the program, which is process `pid` of its namespace, and how `wrap` ended."""
        known = {dump["name"] for dump in crashes(self.daemon)}
        ending = self.run_once(wrap, command, under_agent=True)

        # unshare has the agent too, and ends itself by the signal that its child died of.
        def find():
            return [dump["name"] for dump in crashes(self.daemon)
                    if dump["name"] not in known and dump["process"]["pid"] == (pid or ending.pid)]

        name, = eventually(f"the crash of {command} is stored", find)
        return whole_crash(self.daemon, name), ending

    def check(self, what, command, compared=facts_of):
        alone, _ = self.die([], command)
        print(f"pid 1: {what:<30} {len(alone.threads)} threads", file=sys.stderr, flush=True)
        for where, wrap, pid in (("first process", NAMESPACE, 1), ("under an init", INIT, 2)):
            with self.subTest(program=what, where=where):
                # "await": for the agent.
                expected_ending = self.run_once(wrap, [word for word in command if word != "await"], under_agent=False)
                dump, ending = self.die(wrap, command, pid)
                self.assertEqual(expected_ending.manner, ending.manner)
                self.assertEqual(compared(alone), compared(dump))

    def test_c(self):
        for name in ENDS_AS_PID_1 if tier.FULL else FEW_ENDS:
            self.check(f"C {name}", [PROGRAMS / "crash_deaths", name, "await"])

    def test_cpp(self):
        for death in CPP_DEATHS if tier.FULL else CPP_DEATHS[::3]:
            self.check(f"C++ {death.name}", [PROGRAMS / "crash_cpp", death.name, "await"])

    def test_rust(self):
        program = build_rust()
        if program is None:
            self.skipTest("no rustc is here")
        for death in RUST_DEATHS:
            self.check(f"Rust {death.name}", [program, death.name])

    def test_python(self):
        for python in tier.versions(pythons.found()):
            for way in ("segv", "segv_in_thread", "abort", "fatal"):
                self.check(f"{python} {way}", [python.path, LANGUAGES / "python/dies.py", way])

    def test_node(self):
        for node in tier.versions(nodes.found()):
            self.check(f"{node} abort", [node.path, LANGUAGES / "node/victim.js", "abort"])
            self.check(f"{node} segv", [node.path, LANGUAGES / "node/victim.js", "segv", node_addon()])
            self.check(f"{node} memory", [node.path, "--max-old-space-size=32", LANGUAGES / "node/victim.js", "memory"])

    def test_java(self):
        for jdk in tier.versions(jdks.found()):
            java = [jdk.java, "-Xmx64m", "-cp", classes()]
            self.check(f"{jdk} segv", [*java, "Dies", "segv"])
            self.check(f"{jdk} library", [*java, "Dies", "library", java_library()])
            self.check(f"{jdk} exhaust", [*java, "-XX:+CrashOnOutOfMemoryError", "Dies", "exhaust"])

    def test_go(self):
        """Go ends by a system call of its own, at which nothing holds it. Whether its memory could still be read, and with it
        the callers of the function, is a matter of time everywhere."""
        for toolchain, version in tier.versions(go_programs.toolchains()):
            self.check(f"{version} c", [go_programs.kept(toolchain, "ends", cgo=True), "c"], compared=what_happened)
            # By its own runtime, which tells since Go 1.23.
            if version < "go1.23":
                continue
            for cgo in (False, True) if tier.FULL else (False,):
                for word in GO_ENDS if tier.FULL else GO_ENDS[::2]:
                    self.check(f"{version} {word}{' with cgo' if cgo else ''}", [go_programs.kept(toolchain, "ends", cgo=cgo), word],
                               compared=what_happened)


if __name__ == "__main__":
    unittest.main()
