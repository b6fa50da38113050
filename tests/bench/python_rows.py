"""One dump of a Python program, from the start of the command to its end. The program has 200 threads, 44 functions deep each,
with frames of C between them."""

import pythons
from stand import REPEAT, ROOT, program, say, seconds_of, stackctl, stand
from table import Figure, skipped, times_faster

THREADS = 200
DEPTH = 44
TARGET = 20
MS = 1e3
WHOLE_OR_PARTIAL = (0, 5)
# They take seconds.
PEER_REPEAT = min(REPEAT, 3)

PEERS = {
    "py-spy dump --native": (pythons.PY_SPY, lambda pid: [pythons.PY_SPY, "dump", "--native", "--pid", pid]),
    "pystack remote --native": (pythons.PYSTACK, lambda pid: [pythons.PYSTACK, "remote", "--native", pid]),
}


def rows_of(python):
    times = {name: [] for name in ("ours", *PEERS)}
    with stand() as daemon, program(daemon, python.path, ROOT / "tests/languages/python/many.py", THREADS, DEPTH) as victim:
        ours = stackctl(daemon, "dump", victim.pid)
        seconds_of(ours, WHOLE_OR_PARTIAL)
        for i in range(REPEAT):
            say(f"python {python}: {i + 1} of {REPEAT}")
            times["ours"].append(seconds_of(ours, WHOLE_OR_PARTIAL) * MS)
            for name, (tool, command) in PEERS.items():
                if tool.exists() and i < PEER_REPEAT:
                    times[name].append(seconds_of([str(word) for word in command(victim.pid)], allowed=(0, 1)) * MS)
    what = f"`stackctl dump`, CPython {python.name}, {THREADS} threads of {DEPTH} functions"
    rows = []
    for name in PEERS:
        if times[name]:
            rows.append(times_faster(what, Figure(times["ours"], "ms"), Figure(times[name], "ms", name), TARGET))
        else:
            rows.append(skipped(what, f"{name.split()[0]} is not installed", f"{TARGET}x faster"))
    return rows


def python_rows():
    found = pythons.found()
    # One with frames that are objects, and the newest.
    chosen = [python for python in found if python.version[:2] == (3, 8)][:1] + found[-1:]
    return [row for python in chosen for row in rows_of(python)]
