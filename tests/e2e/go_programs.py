"""Programs of tests/languages/go, built by each Go that is here or that a registry has; and Go's own tracebacks, read."""

import dataclasses
import functools
import os
import re
import shutil
import subprocess

from built import built
from harness import ROOT

SOURCES = ROOT / "tests/languages/go"
# Its goroutine answers the daemon, and moves while others stand.
OWN_PACKAGE = "stackd.example/go."
# The last of each release whose layout is known, and whatever is installed.
TOOLCHAINS = ("go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.5", "local")


def go_command():
    return shutil.which("go") or ("/usr/local/go/bin/go" if os.path.exists("/usr/local/go/bin/go") else None)


def has_c():
    """Whether there is a C compiler for programs with cgo."""
    return shutil.which("gcc") is not None


def environment_of(toolchain, cgo=False):
    return {**os.environ, "GOTOOLCHAIN": toolchain, "CGO_ENABLED": "1" if cgo else "0", "GOFLAGS": ""}


def run_go(toolchain, *args, cgo=False, cwd=SOURCES, **kwargs):
    return subprocess.run([go_command(), *map(str, args)], cwd=cwd, env=environment_of(toolchain, cgo), capture_output=True,
                          text=True, check=False, **kwargs)


@functools.cache
def version_of(toolchain):
    """go1.25.5; empty where this toolchain cannot be had."""
    asked = run_go(toolchain, "env", "GOVERSION", timeout=300)
    return asked.stdout.strip() if asked.returncode == 0 else ""


@functools.cache
def toolchains():
    """(name for GOTOOLCHAIN, version) of those that run here."""
    found = []
    for name in TOOLCHAINS if go_command() else ():
        version = version_of(name)
        known = re.match(r"go1\.(\d+)", version)
        if known and 21 <= int(known[1]) <= 26 and version not in (v for _, v in found):
            found.append((name, version))
    return found


def kept(toolchain, program, *flags, cgo=False):
    """The program, built once for all tests."""

    def compile_into(folder):
        done = run_go(toolchain, "build", *flags, "-o", folder / program, f"./{program}", cgo=cgo, timeout=600)
        if done.returncode != 0:
            raise AssertionError(f"{program} by {toolchain}: {done.stderr}")

    # Its line table has the sources by their paths.
    inputs = [SOURCES, ROOT / "agent/go", str(ROOT), toolchain, version_of(toolchain), str(cgo), *flags]
    return built(f"go-{program}", inputs, compile_into) / program


def build(toolchain, program, output, *flags, cgo=False):
    """A copy of the program at `output`: some tests change it."""
    shutil.copy(kept(toolchain, program, *flags, cgo=cgo), output)
    return output


def run_shell(toolchain, script, cwd):
    """With this Go as `go`. The last command must end well."""
    environment = environment_of(toolchain)
    environment["PATH"] = f"{os.path.dirname(go_command())}:{environment['PATH']}"
    done = subprocess.run(["sh", "-c", script], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise AssertionError(f"by {toolchain}: {script}\n{done.stderr}")


@dataclasses.dataclass
class Goroutine:
    state: str
    frames: list  # (function, "file:line")
    creator: int


# What the runtime prints for functions of its own.
PRINTED = {"panic": "runtime.gopanic"}


def read_traceback(text):
    """Goroutines of runtime.Stack, by id."""
    goroutines = {}
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        head = re.match(r"goroutine (\d+) \[([^\],]*)", lines[0])
        goroutine = Goroutine(head[2], [], 0)
        for function, place in zip(lines[1::2], lines[2::2]):
            created = re.match(r"created by (.*) in goroutine (\d+)", function)
            if created:
                goroutine.creator = int(created[2])
                continue
            name = re.sub(r"\([^()]*\)$", "", function)
            goroutine.frames.append((PRINTED.get(name, name), place.strip().rsplit(" +0x", 1)[0]))
        goroutines[int(head[1])] = goroutine
    return goroutines


def whole(frames):
    """With recursion written out again."""
    result = []
    pending = list(frames)
    while pending:
        length = max(1, pending[0].get("repeatLength", 1))
        count = max(1, int(pending[0].get("repeatCount", 1)))
        result += pending[:length] * count
        pending = pending[length:]
    return result


def goroutines_of(dump):
    """Goroutines of a dump, in the same form."""
    goroutines = {}
    for task in dump.resource.get("tasks", []):
        if task.get("kind") != "GOROUTINE":
            continue
        frames = dump.stacks[task["stack"]].get("frames", []) if "stack" in task else []
        goroutines[int(task["id"])] = Goroutine(
            task.get("waitReason") or task.get("state", ""),
            [(f.get("function", ""), f"{f.get('file', '')}:{f.get('line', 0)}") for f in whole(frames)],
            int(task.get("creatorId", 0)))
    return goroutines
