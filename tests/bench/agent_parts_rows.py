"""The inner parts of the handler by themselves. No target: they show where the pause goes."""

from stand import REPEAT, numbers_from, say
from table import Figure, Row


def agent_parts_rows():
    say("agent-parts")
    avx2, scalar, memcpy, ring = zip(*(numbers_from("agent_parts") for _ in range(REPEAT)))
    peer = Figure(list(memcpy), "ns/KiB", "memcpy")
    return [
        Row("pointer filter, AVX2", Figure(list(avx2), "ns/KiB"), peer),
        Row("pointer filter, scalar", Figure(list(scalar), "ns/KiB"), peer),
        Row("claim, commit and free a record of two slots", Figure(list(ring), "ns")),
    ]
