"""Delve, a debugger of Go that we did not write, and what it says of the goroutines of a process.

It stops the process while it looks. It knows functions, lines and what is inlined from the debug information, where stackd reads
the runtime's own tables.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import socket
import subprocess

from harness import LIMIT_S, die_with_parent, eventually

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/delve"
# As deploy/install-deps.sh --tests builds them: (first and last minor version of Go that it supports, its own).
RELEASES = ((21, 24, "v1.24.2"), (25, 27, "v1.27.2"))

# Beyond the deepest of the victims.
_MOST_FRAMES = 500
_SCANNED = 0x1000  # a bit of a status: the collector looks at the stack
_STATUS = {1: "runnable", 2: "running", 3: "syscall", 4: "waiting", 9: "preempted", 11: "dead"}
_USER_GOROUTINES = {"Kind": 7}


@dataclasses.dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int

    def __str__(self):
        return f"{self.function} {self.file}:{self.line}"


@dataclasses.dataclass
class Goroutine:
    state: str
    wait_reason: str  # where it waits, else empty
    tid: int
    frames: list
    creator: int
    created_at: Frame


def command(go_version):
    """The one that supports this version of Go; None: it is not here."""
    minor = int(re.match(r"go1\.(\d+)", go_version)[1])
    for first, last, release in RELEASES:
        path = CACHE / release / "dlv"
        if first <= minor <= last and path.exists():
            return path
    return None


class _Session:
    """JSON-RPC: one question, one answer."""

    def __init__(self, stream):
        self.stream = stream
        self.asked = 0

    def ask(self, method, **arguments):
        self.asked += 1
        self.stream.write(json.dumps({"id": self.asked, "method": f"RPCServer.{method}", "params": [arguments]}) + "\n")
        self.stream.flush()
        answer = json.loads(self.stream.readline())
        if answer["error"]:
            raise AssertionError(f"delve, {method} {arguments}: {answer['error']}")
        return answer["result"]

    def evaluate(self, expression, goroutine=-1):
        return self.ask("Eval", Expr=expression, Scope={"GoroutineID": goroutine, "Frame": 0},
                        Cfg={"MaxStringLen": 200, "MaxArrayValues": 200})["Variable"]


@contextlib.contextmanager
def _attached(dlv, pid, directory):
    """The process stands still until the end."""
    address = pathlib.Path(directory) / f"delve-{pid}.sock"
    output = pathlib.Path(directory) / f"delve-{pid}.log"
    environment = {**os.environ, "XDG_CONFIG_HOME": str(directory)}
    with open(output, "wb") as log:
        process = subprocess.Popen([dlv, "attach", str(pid), "--headless", "--api-version=2", f"--listen=unix:{address}"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                   preexec_fn=die_with_parent)

    def ready():
        if process.poll() is not None:
            raise AssertionError(f"delve ended with {process.returncode}: {output.read_text()}")
        # It takes one connection and no more: none may be made to see whether it listens.
        return "listening" in output.read_text()

    try:
        eventually("delve listens", ready)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT_S)
            connection.connect(str(address))
            session = _Session(connection.makefile("rw"))
            yield session
            session.ask("Detach", Kill=False)
        process.wait(LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _place(location):
    """The compiler gives some jumps a line below 0, which is none."""
    return location["file"], max(0, location["line"])


def _frame(location):
    return Frame(location.get("function", {}).get("name", ""), *_place(location))


@dataclasses.dataclass
class Seen:
    goroutines: dict  # by id: those of the program, not of the runtime
    places: dict  # (file, line) by address


def look(dlv, pid, directory, addresses=()):
    """`addresses`: of instructions, whose lines it is asked for as well."""
    with _attached(dlv, pid, directory) as session:
        reasons = [entry["value"] for entry in session.evaluate("runtime.waitReasonStrings")["children"]]
        found, places = {}, {}
        for one in session.ask("ListGoroutines", Start=0, Count=0, Filters=[_USER_GOROUTINES])["Goroutines"]:
            number = one["id"]
            state = _STATUS[one["status"] & ~_SCANNED]
            found[number] = Goroutine(
                state, reasons[one["waitReason"]] if state == "waiting" else "", one["threadID"],
                [_frame(location) for location in session.ask("Stacktrace", Id=number, Depth=_MOST_FRAMES)["Locations"]],
                int(session.evaluate("runtime.curg.parentGoid", number)["value"]), _frame(one["goStatementLoc"]))
        for address in addresses:
            location, = session.ask("FindLocation", Scope={"GoroutineID": -1}, Loc=f"*{address:#x}")["Locations"]
            places[address] = _place(location)
        return Seen(found, places)
