"""What a dump takes with more threads, frames, modules and processes. Besides the table there is a plot, made by gnuplot."""

import math
import pathlib
import subprocess
import tempfile

from debug_data_rows import FOLDER
from harness import eventually
from stand import REPEAT, has, program, say, seconds_of, stackctl, stand
from table import Figure, Row

MS = 1e3
WHOLE_OR_PARTIAL = (0, 5)
THREADS_OF_DEEP_STACKS = 100
PLOT = FOLDER / "curve.svg"
# Twice as many may take so much more than twice as long: noise of shared machines.
MAX_EXPONENT = 1.2
COUNTS = {
    "threads": (1, 10, 100, 1000, 3000, 10_000, 30_000),
    "frames of each of 100 threads": (5, 10, 30, 100, 200, 500),
    "modules": (5, 20, 100, 500, 1000, 2000),
    "processes that are connected": (1, 10, 100, 300, 1000),
}


def timed(daemon, pid, repeat):
    command = stackctl(daemon, "dump", pid)
    for _ in range(2):
        seconds_of(command, WHOLE_OR_PARTIAL)
    return Figure([seconds_of(command, WHOLE_OR_PARTIAL) * MS for _ in range(repeat)], "ms")


def of_program(name, *arguments):
    with stand() as daemon, program(daemon, name, *arguments) as victim:
        return timed(daemon, victim.pid, REPEAT)


def of_threads(count):
    return of_program("hung_program", count)


def of_frames(count):
    return of_program("recursive_program", THREADS_OF_DEEP_STACKS, count)


def of_modules(count):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "module.c"
        source.write_text("int in_module(int x) { return x + 1; }\n", encoding="ascii")
        module = source.with_suffix(".o")
        subprocess.run(["gcc", "-fPIC", "-g", "-O1", "-c", source, "-o", module], check=True)
        for i in range(count):
            subprocess.run(["ld", "-shared", f"--build-id=0x{i:040x}", module, "-o", f"{folder}/{i}.so"], check=True)
        return of_program("modules_program", folder, count)


def of_processes(count):
    with stand(arguments=("--max-processes", count + 16)) as daemon, program(daemon, "idle_program", count) as first:
        eventually(f"{count} processes are connected", lambda: len(daemon.processes()) == count)
        return timed(daemon, first.pid, REPEAT)


MEASURED_BY = dict(zip(COUNTS, (of_threads, of_frames, of_modules, of_processes), strict=True))


def exponent(earlier, later):
    """1: twice as many take twice as long."""
    (count, figure), (next_count, next_figure) = earlier, later
    return math.log(next_figure.median / figure.median) / math.log(next_count / count)


def plot(curves):
    """Time over count, both logarithmic, a panel for each."""
    if not has("gnuplot"):
        say("curve: gnuplot is not installed, so there is no plot")
        return
    commands = ["set term svg size 900,640 font 'sans,11' background '#ffffff'", f"set output '{PLOT}'",
                "set multiplot layout 2,2", "set logscale xy", "set grid", "set ylabel 'ms'", "set key top left"]
    for what, points in curves.items():
        commands += ["$points << END", *(f"{count} {figure.median}" for count, figure in points), "END"]
        count, figure = points[-1]
        line = f"{figure.median / count} * x"
        commands += [f"set xlabel '{what}'", "set yrange [1:*]",
                     f"plot $points with linespoints pt 7 title 'stackctl dump', {line} dt 2 title 'linear'"]
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gnuplot"], input="\n".join(commands), text=True, check=True)
    say(f"curve: {PLOT}")


def curve_rows():
    curves = {}
    for what, counts in COUNTS.items():
        curves[what] = []
        for count in counts:
            say(f"curve: {count:,} {what}")
            curves[what].append((count, MEASURED_BY[what](count)))
    plot(curves)
    rows = []
    for what, points in curves.items():
        for i, (count, figure) in enumerate(points):
            if i == 0:
                rows.append(Row(f"`stackctl dump`, {count:,} {what}", figure))
                continue
            power = exponent(points[i - 1], (count, figure))
            rows.append(Row(f"`stackctl dump`, {count:,} {what}", figure, "", f"count^{power:.2f}", "linear or better",
                            power <= MAX_EXPONENT))
    return rows
