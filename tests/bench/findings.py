"""What stackd says of a hung program, beside what gdb with a script, eu-stack, pystack, py-spy and jstack say: one table.

    tests/bench/run.sh findings              all victims
    tests/bench/run.sh findings cycle_2      those whose name holds this

Each tool is a fresh run of its command, output read to the end. The median of STACKD_BENCH_REPEAT runs counts, 3 unless said. A
tool's words are its own, cut to those about waiting. Of stackd it is the first finding. "stopped" is the longest time that one
thread of the program could not run. For stackd it is the time in its handler, for jstack the safepoint's by HotSpot's log. Else
it is as long as /proc says that a debugger stopped it. /proc is looked at every half millisecond, 16 threads at most.
"""

import collections
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

from stand import BIN, ROOT, Victim, has, stackctl, stand

import elf_variants  # of tests/e2e, where stand looks as well

REPEAT = int(os.environ.get("STACKD_BENCH_REPEAT", "3"))
WATCHED_THREADS = 16
LOOK_MS = 0.5
MAX_CELL = 300
PEERS = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/bench/peers"
PYTHON = "/usr/bin/python3"


@dataclasses.dataclass
class Case:
    what: str
    name: str
    tools: tuple
    command: object  # words, or a function that gives them, built in a folder; None: it cannot be built here


@dataclasses.dataclass
class Answer:
    took_ms: float
    stopped_ms: float | None
    says: str


class StopWatch(threading.Thread):
    """The longest time that one thread of a process is stopped by a debugger while this runs."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        tasks = sorted(pathlib.Path(f"/proc/{pid}/task").iterdir())[:WATCHED_THREADS]
        self.stats = [open(task / "stat", "rb", buffering=0) for task in tasks]
        self.over = threading.Event()
        self.longest_s = 0.0

    def run(self):
        since = {}
        while not self.over.wait(LOOK_MS / 1e3):
            now = time.monotonic()
            for stat in self.stats:
                if self.is_stopped(stat):
                    since.setdefault(stat, now)
                    self.longest_s = max(self.longest_s, now - since[stat])
                else:
                    since.pop(stat, None)

    def is_stopped(self, stat):
        try:
            return os.pread(stat.fileno(), 512, 0).rsplit(b") ", 1)[1][:1] in b"tT"
        except OSError:
            return False

    def stop(self):
        self.over.set()
        self.join()
        for stat in self.stats:
            stat.close()
        return self.longest_s * 1e3


def run(command, env=None):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=120, env=env).stdout


def ask(pid, command, env=None):
    """(text, took_ms, stopped_ms)"""
    watch = StopWatch(pid)
    watch.start()
    begin = time.perf_counter()
    text = run(command, env)
    took_ms = (time.perf_counter() - begin) * 1e3
    return text, took_ms, watch.stop()


def say_stackd(daemon, victim):
    command = [*map(str, stackctl(daemon, "dump", victim.pid, "-o", "json"))]
    begin = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    took_ms = (time.perf_counter() - begin) * 1e3
    dump = json.loads(done.stdout)
    findings = dump.get("findings", [])
    says = [findings[0]["explanation"], *findings[0].get("details", [])] if findings else ["nothing"]
    return Answer(took_ms, float(dump.get("pause", {}).get("max", "0s").rstrip("s")) * 1e3, " ".join(says))


def say_gdb(_, victim):
    script = pathlib.Path(__file__).resolve().parent / "gdb_deadlock.py"
    text, took_ms, stopped_ms = ask(victim.pid, ["gdb", "-nx", "-batch", "-p", victim.pid, "-x", script])
    lines = re.findall(r"^(?:LWP \d+ waits|DEADLOCK|\d+ of \d+ threads).*", text, re.M)
    circles = [line for line in lines if line.startswith("DEADLOCK")]
    waits = [line for line in lines if line.startswith("LWP")]
    if len(waits) > 3:
        waits = [*waits[:1], f"... {len(waits) - 1} more such lines"]
    return Answer(took_ms, stopped_ms, "; ".join([*circles, *waits, *lines[-1:]]) or text[-300:])


def say_eu_stack(_, victim):
    text, took_ms, stopped_ms = ask(victim.pid, ["eu-stack", "-p", victim.pid])
    stacks = collections.Counter()
    for block in re.split(r"^TID \d+:$", text, flags=re.M)[1:]:
        names = re.findall(r"^#\d+ +0x[0-9a-f]+ *(\S*)", block, re.M)
        stacks[" < ".join(name or "??" for name in names[:3])] += 1
    return Answer(took_ms, stopped_ms, "stacks only: " + "; ".join(f"{count} x {names}" for names, count in
                                                                     stacks.most_common(4)))


def of_peers(tool):
    """(path, environment) of a tool that pip may have put among the benchmark's own things; None: it is not there."""
    path = PEERS / "bin" / tool
    if path.exists():
        return path, {**os.environ, "PYTHONPATH": str(PEERS)}
    return (shutil.which(tool), None) if has(tool) else None


def say_pystack(_, victim):
    path, env = of_peers("pystack")
    text, took_ms, stopped_ms = ask(victim.pid, [PYTHON, path, "remote", victim.pid], env)
    says = []
    for block in text.split("Traceback for thread ")[1:]:
        frames = re.findall(r'File "[^"]*?([^"/]+)", line (\d+), in (\S+)\n +(.*)', block)
        if frames:
            name, line, function, source = frames[-1]
            flags = re.search(r"\[(.*)\]", block.splitlines()[0])
            says.append(f"{function} ({name}:{line}) `{source}`" + (f" [{flags[1]}]" if flags and flags[1] else ""))
    return Answer(took_ms, stopped_ms, "; ".join(says) or text[-300:])


def say_py_spy(_, victim):
    path, env = of_peers("py-spy")
    text, took_ms, stopped_ms = ask(victim.pid, [path, "dump", "--pid", victim.pid], env)
    threads = re.findall(r"^Thread \S+ \((.*?)\)(.*)\n +(.*)", text, re.M)
    return Answer(took_ms, stopped_ms,
                  "; ".join(f"{state}{name}: {frame}" for state, name, frame in threads) or text[-300:])


def say_jstack(_, victim):
    log = pathlib.Path(victim.directory) / "safepoints"
    seen_bytes = log.stat().st_size
    begin = time.perf_counter()
    text = run(["jstack", victim.pid])
    took_ms = (time.perf_counter() - begin) * 1e3
    stops_ns = [int(ns) for ns in re.findall(r"Total: +(\d+) ns", log.read_text()[seen_bytes:])]
    found = re.search(r"Found one Java-level deadlock:\n=+\n(.*?)\nJava stack", text, re.S)
    says = re.sub(r"\s+", " ", found[1]) if found else "no deadlock; stacks only"
    return Answer(took_ms, max(stops_ns) / 1e6 if stops_ns else None, says)


TOOLS = {
    "stackd": say_stackd,
    "gdb + script": say_gdb,
    "eu-stack": say_eu_stack,
    "pystack": say_pystack,
    "py-spy": say_py_spy,
    "jstack": say_jstack,
}
NATIVE = ("stackd", "gdb + script", "eu-stack")


def is_there(tool):
    if tool in ("pystack", "py-spy"):
        return of_peers(tool) is not None
    return tool == "stackd" or has(tool.split()[0])


def hang(what, program, mode):
    return Case(what, mode, NATIVE, [BIN / "tests/hangs" / program, mode])


def hang_rust(what, mode):

    def build(folder):
        program = elf_variants.rust(ROOT / "tests/hangs/hang_rust.rs", folder)
        return program and [program, mode]

    return Case(what, mode, NATIVE, build)


PROGRAMS = ROOT / "tests/programs"
CASES = [
    hang("two threads, two mutexes", "hang_mutex", "cycle_2"),
    hang("a circle of ten", "hang_mutex", "cycle_10_on_heap"),
    hang("a thread locks its own mutex again", "hang_mutex", "self_normal"),
    hang("the owner has ended", "hang_mutex", "abandoned"),
    hang("500 threads want one mutex", "hang_mutex", "convoy_500"),
    hang("the owner sleeps", "hang_mutex", "owner_asleep"),
    hang("reader, writer and a mutex in a circle", "hang_sync", "mixed_cycle"),
    hang("a reader wants to write", "hang_sync", "rwlock_upgrade"),
    hang("two threads wait for each other's end", "hang_sync", "join_cycle"),
    hang("a condition that nobody signals any more", "hang_sync", "lost_wakeup"),
    hang("all workers of a pool wait for the pool", "hang_cpp", "starved_pool"),
    hang("a pool that waits for work: no hang", "hang_cpp", "idle_pool"),
    hang("a pipe whose other end it holds itself", "hang_kernel", "pipe_with_own_writer"),
    hang_rust("Rust: two threads, two std::sync::Mutex", "mutex_cycle"),
    Case("Python: two threads, two locks", "python", (*NATIVE, "pystack", "py-spy"), [PYTHON, PROGRAMS / "crossed_locks.py"]),
    Case("Java: two threads, two monitors", "java", (*NATIVE, "jstack"),
         ["java", "-Xmx64m", "-Xlog:safepoint:file=safepoints", PROGRAMS / "CrossedLocks.java"]),
]


def rows_of(daemon, case):
    command = case.command(daemon.dir) if callable(case.command) else case.command
    if command is None:
        yield case.what, "", "", "", "(its compiler is not installed)"
        return
    victim = Victim(command, directory=daemon.dir, cwd=daemon.dir)
    victim.directory = daemon.dir
    try:
        daemon.await_process(victim.pid)
        for tool in case.tools:
            if not is_there(tool):
                yield case.what, tool, "", "", "(not installed)"
                continue
            answers = [TOOLS[tool](daemon, victim) for _ in range(REPEAT)]
            took = statistics.median(answer.took_ms for answer in answers)
            stopped = [answer.stopped_ms for answer in answers if answer.stopped_ms is not None]
            yield (case.what, tool, f"{took:.0f} ms", milliseconds(statistics.median(stopped)) if stopped else "?",
                   answers[-1].says)
    finally:
        victim.kill()


def milliseconds(stopped_ms):
    if stopped_ms == 0:
        return f"below {LOOK_MS} ms"
    return f"{stopped_ms:.0f} ms" if stopped_ms >= 10 else f"{stopped_ms:.2g} ms"


def plain(text):
    """A cell of a Markdown table."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
    return text if len(text) <= MAX_CELL else text[:MAX_CELL - 3] + "..."


def main():
    wanted = sys.argv[1:]
    print("| victim | tool | took | stopped | says |\n| --- | --- | --- | --- | --- |")
    for case in CASES:
        if wanted and not any(word in case.name for word in wanted):
            continue
        with stand() as daemon:
            last = None
            for what, *cells in rows_of(daemon, case):
                print("| " + " | ".join(plain(cell) for cell in (what if what != last else "", *cells)) + " |", flush=True)
                last = what
    return 0


if __name__ == "__main__":
    sys.exit(main())
