"""What the agent costs programs that begin, fork and end: in turns with runs without it."""

import os
import pathlib
import subprocess
import tempfile

from stand import AGENT, BENCH, REPEAT, numbers_from, say, stand
from table import Figure, Row, below

EMPTY = BENCH / "libempty.so"
STARTS = 200
START_LIMIT_MS = 0.2
FORKS = 500
FORK_LIMIT_US = 20
# What a shell script of many short commands takes longer, in percent.
SCRIPT_COMMANDS = 1000
SCRIPT_LIMIT_PERCENT = 5


def run_times(library, starts, path):
    """(without, with) `library`: what a program takes from start to end, the median of `starts`, in ms; of each repetition."""
    pairs = [numbers_from("start_time", starts, library, path) for _ in range(REPEAT)]
    return [without_ns / 1e6 for without_ns, _ in pairs], [with_ns / 1e6 for _, with_ns in pairs]


def fork_times(library):
    """What a fork takes in the parent, and until its child has ended: (without, with) `library`, in us; for each repetition."""
    def once(**environment):
        done = subprocess.run([BENCH / "fork_time", str(FORKS)], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=True)
        return [int(word) / 1e3 for word in done.stdout.split()]

    without, under = zip(*[(once(), once(LD_PRELOAD=str(library))) for _ in range(REPEAT)])
    return list(zip(zip(*without), zip(*under)))


def ratio(without, under):
    """What each pair of runs has."""
    return str(Figure([b / a for a, b in zip(without, under)], "")) + "x"


def added(without, under, unit):
    return Figure([b - a for a, b in zip(without, under)], unit)


def make_script(folder):
    script = pathlib.Path(folder) / "script"
    script.write_text(f"#!/bin/sh\ni=0\nwhile [ $i -lt {SCRIPT_COMMANDS} ]; do /bin/true; i=$((i + 1)); done\n")
    script.chmod(0o755)
    return script


def rows_of(what, library):
    rows = []
    without, under = run_times(library, STARTS, "/bin/true")
    rows.append(below(f"added to the run of /bin/true ({STARTS} times), {what}", added(without, under, "ms"), START_LIMIT_MS,
                      strict=False, peer=Figure(without, "ms", "without")))
    rows[-1].ratio = ratio(without, under)
    for until, (without, under) in zip(("until it returns", "until its child, which ends at once, has ended"), fork_times(library)):
        rows.append(below(f"added to a fork {until} ({FORKS} times), {what}", added(without, under, "us"), FORK_LIMIT_US,
                          strict=False, peer=Figure(without, "us", "without")))
        rows[-1].ratio = ratio(without, under)
    with tempfile.TemporaryDirectory() as folder:
        without, under = run_times(library, 1, make_script(folder))
    rows.append(below(f"added to a shell script of {SCRIPT_COMMANDS:,} short commands, {what}",
                      Figure([100 * (b / a - 1) for a, b in zip(without, under)], "%"), SCRIPT_LIMIT_PERCENT, strict=False,
                      peer=Figure(without, "ms", "without")))
    rows[-1].ratio = ratio(without, under)
    return rows


def without_target(row):
    return Row(row.what, row.ours, row.peer, row.ratio)


def start_rows():
    say("start: an empty library")
    rows = [without_target(row) for row in rows_of("an empty library instead of the agent", EMPTY)]
    for what, keep_running in (("no daemon", False), ("a daemon runs", True)):
        say(f"start: {what}")
        with stand(keep_running=keep_running) as daemon:
            os.environ["STACKD_DIR"] = str(daemon.dir)
            rows += rows_of(what, AGENT)
            del os.environ["STACKD_DIR"]
    return rows
