"""Programs of two languages, one calling the other and called back by it: all layers are in one stack, in order.

Each program prints its own traceback before it waits, as its runtime has it: names and lines of the managed frames are
compared with that. The native frames between are compared by what the program must have called.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

import go_programs
import jdks
import nodes
import pythons
import tier
from harness import ROOT, StackdTest, eventually, task_ids

PROGRAMS = ROOT / "tests/languages/mixed"
BUILD_LIMIT_S = 300


def find_tool(name, *folders):
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(os.path.expanduser, folders)))


def run(*command, **kwargs):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=BUILD_LIMIT_S, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"{command}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def jdk_with_headers():
    return next((jdk.home for jdk in jdks.found() if os.path.exists(jdk.home / "bin/javac") and
                 os.path.exists(jdk.home / "include/jni.h")), None)


def last_part(function):
    """`innermost` of "Mixed.innermost", "main.innermost", "Mixed::innermost(int)"."""
    return re.sub(r"\(.*", "", function).replace("::", ".").rsplit(".", 1)[-1]


def reader_of_stdin(pid):
    """The thread that is in read(0), which has the number 0 too; None: no thread is."""
    for tid in task_ids(pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[:2] == ["0", "0x0"]:
                return tid
    return None


class MixedTest(StackdTest):
    limit_s = 1200

    def dump_of_new_code(self, daemon, pid):
        """An agent looks at what is mapped at most ten times in a second. Return addresses in a library that was loaded since
        are not copied, and a note says where the stack ends. Such a dump is made again, for a second."""
        end = time.monotonic() + 1
        while True:
            dump = daemon.dump(pid)
            if time.monotonic() > end or not any("outside all code" in note for note in dump.notes):
                return dump

    def check(self, label, command, language, layers, env=None):
        """`layers`, innermost first: names of functions, those of `language` marked by a star in front."""
        daemon = self.start_daemon()
        victim = self.start_victim(command[0], *command[1:], env=env, stdin="")
        daemon.await_process(victim.pid)
        said = [line.split()[1:] for line in victim.output.decode().splitlines() if line.startswith("own ")]
        managed = [layer[1:] for layer in layers if layer.startswith("*")]
        # Java gives a native method a line below zero.
        own = [(last_part(name), max(int(line), 0)) for name, line in said if last_part(name) in managed]
        self.assertEqual(managed, [name for name, _ in own], "the program's own traceback")

        tid = eventually("it waits in read(0)", lambda: reader_of_stdin(victim.pid))
        dump = self.dump_of_new_code(daemon, victim.pid)
        seen = [(last_part(frame.get("function", "")), frame.get("language", ""), frame.get("line", 0))
                for frame in dump.frames(tid)]
        text = "\n".join(map(str, seen))

        at = 0
        for layer in layers:
            name, wanted = layer.lstrip("*"), language if layer.startswith("*") else None
            at = next((i for i in range(at, len(seen)) if seen[i][0] == name and
                       (seen[i][1] == wanted or wanted is None and seen[i][1] != language)), None)
            self.assertIsNotNone(at, f"{label}: {layer} is missing or out of order in\n{text}\n{dump.notes} "
                                     f"{dump.resource.get('runtimes')}")
            at += 1
        lines = [(name, 0 if i == 0 else line) for i, (name, line) in
                 enumerate((name, line) for name, spoken, line in seen if spoken == language and name in managed)]
        self.assertEqual(own, lines, label)
        print(f"mixed: {label}: {len(layers)} layers in order", file=sys.stderr, flush=True)
        victim.kill()
        daemon.kill()
        return dump

    def test_python_calls_rust_which_calls_python(self):
        rustc = find_tool("rustc", "~/.cargo/bin")
        if rustc is None:
            self.skipTest("there is no rustc")
        if not pythons.found():
            self.skipTest("no CPython of 3.8 to 3.14 is here")
        library = self.dir / "libmiddle.so"
        run(rustc, "--edition", "2021", "-O", "-g", "--crate-type", "cdylib", PROGRAMS / "middle.rs", "-o", library)
        for python in tier.versions(pythons.found()):
            with self.subTest(python=str(python)):
                self.check(f"python {python}", [python.path, PROGRAMS / "mixed_python.py", library], "PYTHON",
                           ["*innermost", "*called_back", "through_rust", "rust_calls_back", "*outermost", "*<module>"])

    def test_java_calls_cpp_which_calls_java(self):
        home = jdk_with_headers()
        if home is None:
            self.skipTest("there is no JDK with jni.h")
        # For the oldest: the interface has not changed since.
        run(f"{home}/bin/javac", "-source", "8", "-target", "8", "-nowarn", "-d", self.dir, PROGRAMS / "Mixed.java")
        library = self.dir / "libmixed.so"
        run("g++", "-O1", "-g", "-fPIC", "-shared", f"-I{home}/include", f"-I{home}/include/linux",
            PROGRAMS / "mixed_java.cc", "-o", library)
        for jdk in tier.versions(jdks.found()):
            with self.subTest(java=str(jdk)):
                self.check(f"java {jdk}", [jdk.java, "-cp", self.dir, "Mixed", library], "JAVA",
                           ["*innermost", "*calledBack", "CallBack", "Java_Mixed_throughCpp", "*throughCpp", "*outermost",
                            "*main"])

    def test_go_calls_c_which_calls_go(self):
        """The functions of C lie on another stack than the thread is on."""
        if not go_programs.toolchains():
            self.skipTest("no Go of 1.21 to 1.26 is here, and no registry of Go modules")
        for toolchain, version in tier.versions(go_programs.toolchains()):
            with self.subTest(go=version):
                program = self.dir / f"mixed-{version}"
                run(go_programs.go_command(), "build", "-o", program, PROGRAMS / "mixed_go.go",
                    env=dict(os.environ, CGO_ENABLED="1", GOTOOLCHAIN=toolchain))
                called_back = ["*calledBack", "*cgocallback", "calledBack", "through_c"]
                called = [*called_back, "c_calls_back", "*outermost"]
                self.check(version, [program], "GO", ["*innermost", *called, "*main", "*main"])
                self.check(f"{version} twice", [program, "twice"], "GO", ["*innermost", *called, *called, "*main", "*main"])
                self.check(f"{version} thread", [program, "thread"], "GO", ["*innermost", *called_back, "c_thread", "start_thread"])

    def test_javascript_calls_cpp_which_calls_javascript(self):
        if not nodes.found():
            self.skipTest("no Node.js of 18, 20, 22, 24 is here")
        addon = self.dir / "mixed.node"
        run("g++", "-O1", "-g", "-fPIC", "-shared", PROGRAMS / "mixed_node.cc", "-o", addon)
        for node in tier.versions(nodes.found()):
            with self.subTest(node=str(node)):
                self.check(f"node {node}", [node.path, PROGRAMS / "mixed_node.js", addon], "JAVASCRIPT",
                           ["*innermost", "*calledBack", "CallBack", "ThroughCpp", "*outermost"])


if __name__ == "__main__":
    unittest.main()
