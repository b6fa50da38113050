"""What a crash costs: the time until the process is gone, beside the kernel's core file and Breakpad's minidump. How many a
daemon takes, and how much it keeps of each."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import tempfile
import time

from breakpad import breakpad_library
from stand import AGENT, BENCH, REPEAT, say, stackctl, stand
from table import Figure, Row, at_least, below, skipped, times_faster

THREADS = 100
# What the end of a process may come later, by its threads.
LIMITS_MS = {0: 1, THREADS: 4}
STACK_BYTES = 4096
AT_ONCE = 200
# The crash program and the agent's helper.
OTHER_THREADS = 2


@contextlib.contextmanager
def crash_program(stack_bytes, threads, directory=None, core=False, preload=None):
    """The program, ready to crash, in a folder of its own. With `directory` it is under the agent of the daemon there."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("STACKD_")}
    if directory is not None:
        preload = AGENT
        env.update(STACKD_DIR=str(directory))
    if preload is not None:
        env.update(LD_PRELOAD=str(preload))
    core_bytes = resource.RLIM_INFINITY if core else 0
    with tempfile.TemporaryDirectory(prefix="stackd-bench-") as folder:
        process = subprocess.Popen([BENCH / "crash_program", str(stack_bytes), str(threads)], cwd=folder, env=env,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (core_bytes, core_bytes)))
        try:
            process.stdout.readline()
            yield process, folder
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def tell(process):
    process.stdin.write(b"\n")
    process.stdin.flush()


def fault_to_exit_ms(process):
    tell(process)
    if process.wait() != -signal.SIGSEGV:
        raise RuntimeError(f"crash_program ended with {process.returncode}")
    gone_ns = time.monotonic_ns()
    return (gone_ns - int(process.stdout.readline())) / 1e6


def ask(daemon, *arguments):
    reply = subprocess.run([str(word) for word in stackctl(daemon, *arguments, "-o", "json")], capture_output=True, check=True)
    return json.loads(reply.stdout)


def await_crashes(daemon, count):
    """Until so many are unwound, named and stored."""
    while int(ask(daemon, "version")["counters"].get("dumps_crash", 0)) < count:
        time.sleep(0.01)


def sizes(folder, mark):
    """Sizes of the files in a folder that have `mark` in their name, as they lie on the disk."""
    return [entry.stat().st_blocks * 512 for entry in os.scandir(folder) if mark in entry.name]


class Exits:
    """How long the program takes from its fault to its end, and what it leaves: under the agent, and instead of it."""

    def __init__(self, threads, breakpad):
        self.under_agent, self.with_core, self.with_minidump, self.alone = [], [], [], []
        self.core_bytes, self.minidump_bytes = [], []
        with stand() as daemon:
            for i in range(REPEAT + 1):
                with crash_program(STACK_BYTES, threads, daemon.dir) as (process, _):
                    daemon.await_process(process.pid)
                    self.under_agent.append(fault_to_exit_ms(process))
                await_crashes(daemon, i + 1)
                with crash_program(STACK_BYTES, threads, core=True) as (process, folder):
                    self.with_core.append(fault_to_exit_ms(process))
                    self.core_bytes += sizes(folder, "core")
                if breakpad is not None:
                    with crash_program(STACK_BYTES, threads, preload=breakpad) as (process, folder):
                        self.with_minidump.append(fault_to_exit_ms(process))
                        self.minidump_bytes += sizes(folder, ".dmp")
                with crash_program(STACK_BYTES, threads) as (process, _):
                    self.alone.append(fault_to_exit_ms(process))

    @staticmethod
    def figure(times_ms, who=""):
        # The first crash makes the daemon read the program's files.
        return Figure(times_ms[1:], "ms", who)


def time_rows():
    rows = []
    breakpad = breakpad_library()
    for threads in (0, THREADS):
        say(f"crash: from fault to exit, {threads} other threads")
        exits = Exits(threads, breakpad)
        ours = exits.figure(exits.under_agent)
        what = f"from fault to exit, {threads} other threads"
        rows.append(Row(what, ours, exits.figure(exits.with_core, "core file" if exits.core_bytes else "core files are off here")))
        if breakpad is not None:
            rows.append(times_faster("the same", ours, exits.figure(exits.with_minidump, "Breakpad, minidump"), None))
        else:
            rows.append(skipped("the same", "Breakpad could not be built", ""))
        alone = exits.figure(exits.alone, "neither")
        more = Figure([value - alone.median for value in ours.values], "ms")
        rows.append(below("of that, more than without the agent", more, LIMITS_MS[threads], peer=alone))
    for what, file_bytes in (("the core file", exits.core_bytes), ("Breakpad's minidump", exits.minidump_bytes)):
        if file_bytes:
            rows.append(Row(f"size of {what}, {THREADS} other threads", "", Figure([n / 1024 for n in file_bytes], "KiB")))
    return rows


def handler_rows():
    rows = []
    with stand() as daemon:
        for i, stack_bytes in enumerate((4 << 10, 64 << 10, 1 << 20)):
            times_us = []
            for j in range(REPEAT):
                with crash_program(stack_bytes, 0, daemon.dir) as (process, _):
                    daemon.await_process(process.pid)
                    fault_to_exit_ms(process)
                await_crashes(daemon, i * REPEAT + j + 1)
                dump = ask(daemon, "show")
                crashed = next(thread for thread in dump["threads"] if thread["tid"] == dump["crash"]["tid"])
                times_us.append(float(crashed["pause"].rstrip("s")) * 1e6)
            rows.append(Row(f"copying the crashed thread, {stack_bytes >> 10} KiB of stack in use", Figure(times_us, "us")))
    return rows


def storm_rows():
    rates, kept_bytes = [], []
    for i in range(min(REPEAT, 3)):
        say(f"crash: {AT_ONCE} processes at once, {i + 1}")
        with stand() as daemon, contextlib.ExitStack() as programs:
            processes = [programs.enter_context(crash_program(STACK_BYTES, 0, daemon.dir))[0] for _ in range(AT_ONCE)]
            for process in processes:
                daemon.await_process(process.pid)
            begin = time.monotonic()
            for process in processes:
                tell(process)
            await_crashes(daemon, AT_ONCE)
            rates.append(AT_ONCE / (time.monotonic() - begin))
            about = ask(daemon, "version")
            kept_bytes.append(int(about["storeBytes"]) / int(about["dumpCount"]) / 1024)
    return [
        at_least(f"crashes a second, {AT_ONCE} processes at once, until all are named and stored", Figure(rates, "/s"), 1000),
        Row(f"kept of each crash that is kept, {OTHER_THREADS} threads", Figure(kept_bytes, "KiB")),
    ]


def crash_rows():
    return time_rows() + handler_rows() + storm_rows()
