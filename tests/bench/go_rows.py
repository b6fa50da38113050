"""One dump of a Go program of many goroutines, from the start of the command to its end. Beside it is the profile that the
program makes of itself (pprof, debug=2), which stops all of it for that time."""

import pathlib
import tempfile

import go_programs
from stand import REPEAT, program, say, seconds_of, stackctl, stand
from table import Figure, below, skipped

MS = 1e3
WHOLE_OR_PARTIAL = (0, 5)
LIMITS_MS = {10_000: 15, 100_000: 120}


def row_of(path, version, count, limit_ms):
    what = f"`stackctl dump`, {version}, {count:,} goroutines"
    ours, peer = [], []
    with stand() as daemon, program(daemon, path, count, preload=False, stdin="") as victim:
        daemon.await_process(victim.pid)
        dump = stackctl(daemon, "dump", victim.pid)
        seconds_of(dump, WHOLE_OR_PARTIAL)
        for i in range(REPEAT):
            say(f"go {count:,}: {i + 1} of {REPEAT}")
            ours.append(seconds_of(dump, WHOLE_OR_PARTIAL) * MS)
            peer.append(float(victim.ask("profile")))
    return below(what, Figure(ours, "ms"), limit_ms, peer=Figure(peer, "ms", "pprof debug=2, the world stopped"))


def go_rows():
    found = go_programs.toolchains()
    if not found:
        return [skipped("`stackctl dump`, goroutines", "no Go of 1.21 to 1.26 is here", "below 15 ms")]
    toolchain, version = found[-1]
    with tempfile.TemporaryDirectory() as directory:
        path = go_programs.build(toolchain, "many", pathlib.Path(directory) / "many")
        return [row_of(path, version, count, limit_ms) for count, limit_ms in LIMITS_MS.items()]
