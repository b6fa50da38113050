"""One thread, one at a time: from the request to the copy in the daemon's hands."""

from stand import AGENT, BENCH, REPEAT, numbers_from, say
from table import Figure, times_slower

ROUNDS = 5000
SPARSE_ROUNDS = 500
PAUSE_US = 2000


def roundtrip_rows():
    figures = {name: [] for name in ("dense", "sparse", "bare dense", "bare sparse")}
    program = BENCH / "idle_program"
    for i in range(REPEAT):
        say(f"roundtrip: {i + 1} of {REPEAT}")
        figures["dense"].append(numbers_from("capture_loop", AGENT, 0.5, 0, program)[3] / 1e3)
        # Where cores are busy, watching is slower than sleeping: the peer is whichever is faster.
        bare = (numbers_from("bare_roundtrip", how, ROUNDS, 0)[1] / 1e3 for how in ("spin", "sleep"))
        figures["bare dense"].append(min(bare))
        figures["sparse"].append(numbers_from("capture_loop", AGENT, 0.1, PAUSE_US, program)[3] / 1e3)
        figures["bare sparse"].append(numbers_from("bare_roundtrip", "sleep", SPARSE_ROUNDS, PAUSE_US)[1] / 1e3)
    return [
        times_slower("round trip of one thread, one after the other (median)", Figure(figures["dense"], "us"),
                     Figure(figures["bare dense"], "us", "bare, spinning or sleeping"), 2),
        times_slower(f"the same with {PAUSE_US / 1000:.0f} ms between two, so that all sleep", Figure(figures["sparse"], "us"),
                     Figure(figures["bare sparse"], "us", "bare, sleeping"), 1.5),
    ]
