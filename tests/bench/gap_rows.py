"""The longest time for which a thread that does nothing but look at the clock could not, while 1,000 others, which sleep, are
dumped. It has a processor of its own; everything else shares the other one."""

import os
import pathlib
import time

from stand import REPEAT, program, say, seconds_of, stackctl, stand
from table import Figure, Row, skipped

THREADS = 1000
ROUNDS = REPEAT * 8
WINDOW_S = 0.1
WHOLE_OR_PARTIAL = (0, 5)
WHAT = f"longest gap of a busy thread within {WINDOW_S * 1000:.0f} ms, {THREADS:,} others asleep"


def cpu_ns_of_threads(pid):
    return {int(task.name): int((task / "schedstat").read_text().split()[0])
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def busiest_thread(pid):
    before = cpu_ns_of_threads(pid)
    time.sleep(WINDOW_S)
    after = cpu_ns_of_threads(pid)
    return max(before, key=lambda tid: after[tid] - before[tid])


def pin_all(pid, cpus):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cpus)


def gap_us(victim, command):
    victim.ask("")
    until = time.monotonic() + WINDOW_S
    if command:
        seconds_of(command, WHOLE_OR_PARTIAL)
    time.sleep(max(0, until - time.monotonic()))
    return int(victim.ask("")) / 1e3


def rows_where(daemon, victim, where):
    commands = {"no dump": None}
    for quiet in ("only", "prefer", "never"):
        commands[quiet] = stackctl(daemon, "dump", victim.pid, "--quiet", quiet)
        seconds_of(commands[quiet], WHOLE_OR_PARTIAL)
    gaps = {how: [] for how in commands}
    for i in range(ROUNDS):
        say(f"gap, {where}: {i + 1} of {ROUNDS}")
        for how, command in commands.items():
            gaps[how].append(gap_us(victim, command))
    none = Figure(gaps.pop("no dump"), "us", "no dump")
    return [Row(f"{WHAT}, {where}, --quiet {how}", Figure(values, "us"), none, f"{Figure(values, '').median / none.median:.2f}x")
            for how, values in gaps.items()]


def gap_rows():
    if os.cpu_count() < 2:
        return [skipped(WHAT, "there is one processor only")]
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {0})
        with stand() as daemon, program(daemon, "hung_program", THREADS, "watch", stdin="") as victim:
            busy = busiest_thread(victim.pid)
            os.sched_setaffinity(busy, {1})
            rows = rows_where(daemon, victim, "on a processor of its own")
            pin_all(victim.pid, {1})
            return rows + rows_where(daemon, victim, "all of the process on one processor")
    finally:
        os.sched_setaffinity(0, own)
