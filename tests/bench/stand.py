"""What every measurement stands on: the built programs, a daemon, programs under the agent, a clock around commands."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from harness import AGENT, BIN, STACKCTL, Daemon, Victim  # noqa: E402  (from the folder just added)

BENCH = BIN / "tests/bench"
REPEAT = int(os.environ.get("STACKD_BENCH_REPEAT", "7"))

# No debugger may go and ask the network for symbols: a peer's time must be its own.
os.environ.pop("DEBUGINFOD_URLS", None)
os.environ.pop("LD_PRELOAD", None)


def say(text):
    print(text, file=sys.stderr, flush=True)


def has(tool):
    return shutil.which(tool) is not None


@contextlib.contextmanager
def stand(*, keep_running=True, arguments=()):
    """A folder and, unless told otherwise, a daemon on it."""
    directory = tempfile.mkdtemp(prefix="stackd-bench-")
    daemon = Daemon(directory, extra_args=arguments)
    try:
        if keep_running:
            daemon.start()
        yield daemon
    finally:
        daemon.kill()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def program(daemon, name, *arguments, preload=True, count=1, stdin=None, ready="ready"):
    """Programs of this folder, ready and, where preloaded, registered. Yields one, or a list if count > 1."""
    path = name if "/" in str(name) else BENCH / name
    victims = []
    try:
        for _ in range(count):
            victims.append(Victim([path, *arguments], directory=daemon.dir, preload=preload, stdin=stdin, ready=ready))
        if preload:
            for victim in victims:
                daemon.await_process(victim.pid)
        yield victims[0] if count == 1 else victims
    finally:
        for victim in victims:
            victim.kill()


def seconds_of(command, allowed=(0,), codes=None):
    """Wall time of a command from its start to its end, its output going nowhere. Its exit code is added to `codes`."""
    begin = time.perf_counter()
    code = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode
    took = time.perf_counter() - begin
    if codes is not None:
        codes.append(code)
    if code not in allowed:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {code}")
    return took


def numbers_from(name, *arguments):
    """Runs a program of this folder which prints numbers in one line."""
    command = [str(BENCH / name), *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    if done.stderr:
        say(f"{name}: {done.stderr.strip()}")
    return [float(word) for word in done.stdout.split()]


def stackctl(daemon, *arguments):
    return [STACKCTL, "--address", daemon.address, *arguments]


def gdb(pid):
    return ["gdb", "-nx", "-batch", "-p", pid, "-ex", "thread apply all bt"]


def eu_stack(pid, *options):
    # Exits with 1 when one frame of one thread has no unwind information.
    return ["eu-stack", "-p", pid, *options]


def kib_of(pid, field, file="smaps_rollup"):
    """A field of /proc/PID/smaps_rollup or status, in KiB."""
    for line in pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(f"{field} in /proc/{pid}/{file}")


def children(pid):
    """Children of all threads."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def cpu_seconds(pids):
    """CPU time of processes, to the nanosecond: /proc/PID/stat counts in ticks of 10 ms."""
    total_ns = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


__all__ = ["AGENT", "BENCH", "REPEAT", "ROOT", "STACKCTL", "Daemon", "Victim", "children", "cpu_seconds", "eu_stack", "gdb", "has",
           "kib_of", "numbers_from", "program", "say", "seconds_of", "stackctl", "stand"]
