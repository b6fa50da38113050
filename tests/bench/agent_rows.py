"""What the agent costs a program that is not dumped."""

import pathlib
import subprocess
import time

from stand import REPEAT, has, kib_of, program, say, stand
from table import Figure, Row, below

IDLE_SECONDS = 10
# The helper looks for runtimes that were loaded after it, the last time 15 s after its start.
LOOKS_SECONDS = 16
SYSCALLS = f"system calls of an idle program's agent in {IDLE_SECONDS} s"


def count_syscalls(pid):
    """All threads of a process. perf counts in the kernel; strace would stop the threads and so make system calls restart."""
    done = subprocess.run(["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", str(pid), "--", "sleep",
                           str(IDLE_SECONDS)], capture_output=True, text=True, check=False)
    fields = [line.split(",") for line in done.stderr.splitlines() if "raw_syscalls" in line]
    # "<not counted>": no thread of it ever ran.
    if fields and fields[0][0] == "<not counted>":
        return 0
    return int(fields[0][0]) if fields and fields[0][0].isdigit() else None


def switches(pid):
    total = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        total += sum(int(line.split()[1]) for line in status.read_text().splitlines() if "ctxt_switches" in line)
    return total


def syscall_row(daemon):
    with program(daemon, "idle_program") as victim:
        time.sleep(LOOKS_SECONDS)
        before = switches(victim.pid)
        calls = count_syscalls(victim.pid) if has("perf") else None
        if calls is not None:
            return below(SYSCALLS + " (perf stat)", Figure([calls], ""), 0, strict=False)
        time.sleep(max(0, IDLE_SECONDS))
        return below(f"context switches of an idle program's agent in {IDLE_SECONDS} s (perf cannot count system calls here)",
                     Figure([switches(victim.pid) - before], ""), 0, strict=False)


def private_kib(pid):
    return kib_of(pid, "Private_Clean") + kib_of(pid, "Private_Dirty")


def memory_rows(daemon):
    added, dirty = [], []
    for _ in range(REPEAT):
        with program(daemon, "idle_program", preload=False) as plain, program(daemon, "idle_program") as watched:
            daemon.ctl("dump", watched.pid)  # the agent's tables are there after a dump
            added.append(private_kib(watched.pid) - private_kib(plain.pid))
            dirty.append(kib_of(watched.pid, "Private_Dirty") - kib_of(plain.pid, "Private_Dirty"))
    return [below("private memory that the agent adds, after a dump", Figure(added, "KiB"), 256),
            Row("of that, not its code, which is private as long as one process has it", Figure(dirty, "KiB"))]


def agent_rows():
    say("agent: memory, idle")
    with stand() as daemon:
        return [*memory_rows(daemon), syscall_row(daemon)]
