"""What noticing hangs costs, while there is none: the daemon, the agents, the threads that are watched, a beat."""

import contextlib
import os
import pathlib
import subprocess
import time

from stand import AGENT, BENCH, REPEAT, cpu_seconds, has, numbers_from, program, say, stand
from table import Figure, Row, below

SECONDS = 60
# Until what was new to the detector is not any more.
SETTLE_SECONDS = 15
HELPER = "stackd-agent"
BEAT_SECONDS = 2
WITHOUT = ("--no-hang-detection",)


def tasks(pid):
    """(path, name) of the threads of a process."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            yield task, (task / "comm").read_text().strip()


def helper_cpu_seconds(pids):
    total_ns = 0
    for pid in pids:
        total_ns += sum(int((task / "schedstat").read_text().split()[0]) for task, name in tasks(pid) if name == HELPER)
    return total_ns / 1e9


def watched_switches(pids):
    """Context switches of all threads that are the program's own."""
    total = 0
    for pid in pids:
        for task, name in tasks(pid):
            if name != HELPER:
                lines = (task / "status").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return total


def cost(processes, threads, awake, period_ms, arguments=()):
    """Percent of a core that daemon and helpers use, and context switches of the watched threads."""
    parked = threads - awake - 1  # and the main thread
    with stand(arguments=arguments) as daemon, program(daemon, "pool_program", parked, awake, period_ms,
                                                       count=processes) as started:
        pids = [victim.pid for victim in (started if processes > 1 else [started])]
        time.sleep(SETTLE_SECONDS)
        before = (cpu_seconds([daemon.process.pid]), helper_cpu_seconds(pids), watched_switches(pids))
        begin = time.monotonic()
        time.sleep(SECONDS)
        took = time.monotonic() - begin
        daemon_s, helper_s = cpu_seconds([daemon.process.pid]) - before[0], helper_cpu_seconds(pids) - before[1]
        switches = watched_switches(pids) - before[2]
        if daemon.ctl_json("list").get("dumps"):
            raise RuntimeError(f"a program that is well was dumped: {daemon.ctl('list').out}")
        return daemon_s / took * 100, helper_s / took * 100, switches


def cost_rows(what, processes, threads, awake=0, period_ms=1000, limit=None):
    say(f"detection: {what} for {SECONDS} s, with detection and without")
    daemon, helpers, switches = cost(processes, threads, awake, period_ms)
    without = sum(cost(processes, threads, awake, period_ms, WITHOUT)[:2])
    ours = Figure([daemon + helpers - without], "%")
    peer = Figure([without], "%", "without detection, in all")
    what = f"{what}: CPU of daemon and agent, more than without detection, percent of a core"
    rows = [below(what, ours, limit, peer=peer) if limit else Row(what, ours, peer),
            Row("of that, in the process (the agent's thread)", Figure([helpers], "%"))]
    # Threads that wake up by themselves switch by themselves.
    if awake == 0:
        what = f"context switches of the watched threads in {SECONDS} s"
        rows.append(below(what, Figure([switches], ""), 0, strict=False))
    return rows


def look_rows():
    say("detection: one look at a process of 1,000 threads")
    sched_stats, sample, reader, helper = [], [], [], []
    for _ in range(REPEAT):
        figures = numbers_from("look_loop", AGENT, 50, BENCH / "pool_program", 999, 0, 1000)
        for values, ns in zip((sched_stats, sample, reader, helper), figures):
            values.append(ns / 1e6)
    return [
        Row("have 1,000 threads run? (ReadSchedStats), CPU time of the daemon", Figure(sched_stats, "ms")),
        Row("what do 1,000 threads wait for? (SampleWaits), until it is known", Figure(sample, "ms")),
        Row("CPU time of the daemon for that", Figure(reader, "ms")),
        Row("CPU time of the agent's thread for that", Figure(helper, "ms")),
    ]


@contextlib.contextmanager
def environment(name, value):
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def syscalls_of_beats(daemon):
    """While one thread beats as fast as it can; None where perf cannot count."""
    if not has("perf"):
        return None
    with program(daemon, "beat_time", "for-ever", preload=False) as victim:
        done = subprocess.run(["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-t", str(victim.pid), "--", "sleep",
                               str(BEAT_SECONDS)], capture_output=True, text=True, check=False)
    fields = [line.split(",") for line in done.stderr.splitlines() if "raw_syscalls" in line]
    return int(fields[0][0]) if fields and fields[0][0].isdigit() else None


def beat_rows():
    say("detection: a beat")
    beat, suspend, clock, add = [], [], [], []
    with stand() as daemon, environment("STACKD_DIR", str(daemon.dir)):
        for _ in range(REPEAT):
            for values, ns in zip((beat, suspend, clock, add), numbers_from("beat_time")):
                values.append(ns)
        calls = syscalls_of_beats(daemon)
    ours = Figure(beat, "ns")
    rows = [below("a beat", ours, 5, peer=Figure(clock, "ns", "clock_gettime")),
            Row("a beat", ours, Figure(add, "ns", "atomic addition")),
            Row("a suspension, and the beat after it", Figure(suspend, "ns"))]
    if calls is not None:
        rows.append(below(f"system calls of a thread that does nothing but beat, {BEAT_SECONDS} s (perf stat)",
                          Figure([calls], ""), 0, strict=False))
    return rows


def detection_rows():
    return (beat_rows() + look_rows() +
            cost_rows("1,000 threads that wait for work", 1, 1000, limit=0.2) +
            cost_rows("the same, 100 of them awake ten times a second", 1, 1000, 100, 100, limit=0.2) +
            # Each time one looks, many have run and sleep anew: the worst that there is for the detector.
            cost_rows("the same, 900 of them awake every 5 s", 1, 1000, 900, 5000, limit=0.2) +
            cost_rows("100 processes of 20 threads", 100, 20))
