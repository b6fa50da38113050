"""One dump of a process without an agent, from the start of the command to its end: 1,000 threads asleep, and Python's."""

import pythons
from dump_rows import MS, THREADS, WHOLE_OR_PARTIAL, watched_gap_ms
from stand import REPEAT, ROOT, STACKCTL, eu_stack, gdb, has, program, say, seconds_of, stand
from table import Figure, Row, skipped, times_faster

PYTHON_THREADS, PYTHON_DEPTH = 200, 44


def outside(pid, *options):
    return [STACKCTL, "dump", "--pid", pid, "--no-daemon", *options]


def outside_rows():
    peers = {name: command for name, command in {"gdb": gdb, "eu-stack": eu_stack}.items() if has(name)}
    commands = {"ours": outside, **peers}
    times, gaps = ({name: [] for name in commands} for _ in range(2))
    undisturbed = []
    with stand(keep_running=False) as nowhere, program(nowhere, "hung_program", THREADS, "watch", preload=False,
                                                       stdin="") as victim:
        for i in range(REPEAT):
            say(f"outside: {i + 1} of {REPEAT}")
            undisturbed.append(watched_gap_ms(victim, ["sleep", "0.1"]))
            for name, command in commands.items():
                times[name].append(seconds_of(command(victim.pid), (1, *WHOLE_OR_PARTIAL)) * MS)
                gaps[name].append(watched_gap_ms(victim, command(victim.pid)))
    what = f"`stackctl dump --pid`, no agent, no daemon, {THREADS:,} threads asleep and one busy"
    rows = [times_faster(what, Figure(times["ours"], "ms"), Figure(times[name], "ms", name), None) for name in peers]
    seen = Figure(gaps["ours"], "ms")
    rows.append(Row("longest gap of the busy thread meanwhile", seen, Figure(undisturbed, "ms", "no dump")))
    rows += [times_faster("the same", seen, Figure(gaps[name], "ms", name), None) for name in peers]
    return rows + python_rows()


def python_rows():
    what = f"the same, Python, {PYTHON_THREADS} threads of {PYTHON_DEPTH} functions"
    if not pythons.PY_SPY.exists():
        return [skipped(what, "py-spy is not installed")]
    python = pythons.found()[-1]
    times = {"ours": [], "py-spy dump --native": [], "py-spy dump": []}
    with stand(keep_running=False) as nowhere, program(nowhere, python.path, ROOT / "tests/languages/python/many.py",
                                                       PYTHON_THREADS, PYTHON_DEPTH, preload=False) as victim:
        for i in range(REPEAT):
            say(f"outside, python {python}: {i + 1} of {REPEAT}")
            times["ours"].append(seconds_of(outside(victim.pid), WHOLE_OR_PARTIAL) * MS)
            for name in list(times)[1:]:
                options = name.split()[2:]
                command = [pythons.PY_SPY, "dump", *options, "--pid", victim.pid]
                times[name].append(seconds_of(command, allowed=(0, 1)) * MS)
    ours = Figure(times["ours"], "ms")
    return [times_faster(what, ours, Figure(times[name], "ms", name), None) for name in list(times)[1:]]
