"""Dumps of many processes at once, each a program with files of its own, beside one whose debug data takes seconds to read."""

import concurrent.futures
import contextlib
import pathlib
import shutil
import statistics
import tempfile
import time

from debug_data_rows import debug_data_program
from stand import BENCH, program, say, seconds_of, stackctl, stand
from table import Figure, Row

PROCESSES = 50
THREADS = 100
MS = 1e3
WHOLE_OR_PARTIAL = (0, 5)


def dumps_ms(daemon, victims, at_once):
    def one(victim):
        return seconds_of(stackctl(daemon, "dump", victim.pid), WHOLE_OR_PARTIAL) * MS

    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        each = list(pool.map(one, victims))
    return each, (time.perf_counter() - begin) * MS


def cold(at_once, slow=None):
    """Times of the first dumps of all, each and together; with `slow`, that program's first dump has just begun."""
    with stand() as daemon, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as programs:
        victims = []
        for i in range(PROCESSES):
            copy = shutil.copy(BENCH / "hung_program", pathlib.Path(folder) / f"hung_{i}")
            victims.append(programs.enter_context(program(daemon, copy, THREADS)))
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            if slow:
                victim = programs.enter_context(program(daemon, slow, 16))
                beside.submit(seconds_of, stackctl(daemon, "dump", victim.pid), WHOLE_OR_PARTIAL)
            return dumps_ms(daemon, victims, at_once)


def many_rows():
    say("many: one after the other")
    alone, alone_ms = cold(1)
    say("many: at once")
    together, together_ms = cold(PROCESSES)
    say("many: one after the other, beside a program with large debug data")
    beside, _ = cold(1, debug_data_program())
    what = f"first dump of each of {PROCESSES} processes of {THREADS} threads"
    return [
        Row(f"{what}, one after the other: all", Figure([alone_ms], "ms")),
        Row(f"{what}, at once: all", Figure([together_ms], "ms"), Figure([alone_ms], "ms", "one after the other"),
            f"{together_ms / alone_ms:.2f}x"),
        Row(f"{what}, at once: each", Figure(together, "ms")),
        Row(f"{what}, one after the other: each", Figure(alone, "ms")),
        Row("the same beside the first dump of a program with 1.13 GiB of debug data: each", Figure(beside, "ms"),
            Figure(alone, "ms", "without"), f"{statistics.median(beside) / statistics.median(alone):.2f}x"),
    ]
