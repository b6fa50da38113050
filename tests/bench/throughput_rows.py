"""Stacks per second of one process with 1,000 threads, without a break."""

from stand import AGENT, BENCH, REPEAT, numbers_from, say
from table import Figure, at_least, below

THREADS = 1000
SECONDS = 2


def throughput_rows():
    ours = {"raw": [], "full": []}
    partial = 0
    peers = {(how, what): [] for how in ("step", "backtrace") for what in ("raw", "names")}
    program = (BENCH / "hung_program", THREADS)
    for i in range(REPEAT):
        say(f"throughput: {i + 1} of {REPEAT}")
        ours["raw"].append(numbers_from("capture_loop", AGENT, SECONDS, 0, *program)[0])
        full = numbers_from("dump_loop", AGENT, SECONDS, *program)
        ours["full"].append(full[0])
        partial += full[5]
        for how, what in peers:
            peers[how, what].append(numbers_from("baseline_inprocess", how, what, THREADS, SECONDS)[0])

    def best_peer(what):
        figures = [Figure(peers[how, what], "/s", f"in process, unw_{how}") for how in ("step", "backtrace")]
        return max(figures, key=lambda figure: figure.median)

    return [
        at_least("stacks per second, raw", Figure(ours["raw"], "/s"), 150_000, peer=best_peer("raw")),
        at_least("stacks per second, unwound, symbolized, grouped, stored", Figure(ours["full"], "/s"), 100_000,
                 peer=best_peer("names")),
        below("partial ones among these dumps", Figure([partial], ""), 0, strict=False),
    ]
