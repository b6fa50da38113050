"""Time that a thread spends in the handler, with 4 KiB of stack in use."""

import json
import subprocess

from stand import REPEAT, program, say, stackctl, stand
from table import Figure, Row, below

THREADS = 100
STACK_BYTES = 4096
DUMPS = 20


def handler_us(daemon, victim):
    """Pauses of the threads that answered themselves, in one dump."""
    reply = subprocess.run([str(w) for w in stackctl(daemon, "dump", victim.pid, "-o", "json")], capture_output=True,
                           check=False).stdout
    return [float(thread["pause"].rstrip("s")) * 1e6 for thread in json.loads(reply)["threads"] if "pause" in thread]


def pause_rows():
    medians, p99s, longest = [], [], []
    with stand() as daemon, program(daemon, "deep_program", THREADS, STACK_BYTES) as victim:
        handler_us(daemon, victim)
        for i in range(REPEAT):
            say(f"pause: {i + 1} of {REPEAT}")
            pauses = sorted(us for _ in range(DUMPS) for us in handler_us(daemon, victim))
            medians.append(pauses[len(pauses) // 2])
            p99s.append(pauses[len(pauses) * 99 // 100])
            longest.append(pauses[-1])
    what = "time in the handler, 4 KiB of stack in use"
    return [
        Row(what + ", median", Figure(medians, "us")),
        below(what + ", p99", Figure(p99s, "us"), 15),
        Row(what + f", longest of {THREADS * DUMPS}", Figure(longest, "us")),
    ]
