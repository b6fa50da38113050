"""One dump of a hung program with 1,000 threads, from the start of the command to its end."""

import json
import subprocess

from stand import REPEAT, eu_stack, gdb, has, program, say, seconds_of, stackctl, stand
from table import Figure, Row, below, skipped, times_faster

THREADS = 1000
MANY_THREADS = 10_000
# Takes as long as all the others together.
SLOW_REPEAT = min(REPEAT, 3)
MS = 1e3
# A partial dump took its time too; how many there were is a row of its own.
WHOLE_OR_PARTIAL = (0, 5)


def longest_pause_ms(daemon, victim):
    reply = subprocess.run([str(w) for w in stackctl(daemon, "dump", victim.pid, "-o", "json")], capture_output=True,
                           check=False).stdout
    return float(json.loads(reply)["pause"]["max"].rstrip("s")) * MS


def watched_gap_ms(victim, command):
    """The longest time for which a thread of the victim, which does nothing but look at the clock, could not."""
    victim.ask("")
    seconds_of(command, allowed=(0, 1, *WHOLE_OR_PARTIAL))
    return int(victim.ask("")) / 1e6


def dump_rows():
    peers = {"gdb": gdb, "eu-stack": eu_stack, "eu-stack -l -i": lambda pid: eu_stack(pid, "-l", "-i")}
    peers = {name: command for name, command in peers.items() if has(name.split()[0])}
    times = {name: [] for name in ("cold", "warm", *peers)}
    codes = []
    with stand() as daemon, program(daemon, "hung_program", THREADS) as victim:
        for i in range(REPEAT):
            say(f"dump: {i + 1} of {REPEAT}")
            daemon.restart()
            daemon.await_process(victim.pid)
            ours = stackctl(daemon, "dump", victim.pid)
            cold, _, warm = (seconds_of(ours, WHOLE_OR_PARTIAL, codes) * MS for _ in range(3))
            times["cold"].append(cold)
            times["warm"].append(warm)
            for name, command in peers.items():
                if len(times[name]) < (SLOW_REPEAT if name == "eu-stack -l -i" else REPEAT):
                    times[name].append(seconds_of(command(victim.pid), allowed=(0, 1)) * MS)
    figures = {name: Figure(values, "ms", name if name in peers else "") for name, values in times.items()}
    targets = [("warm", "gdb", 200), ("warm", "eu-stack", None), ("warm", "eu-stack -l -i", None), ("cold", "gdb", None)]
    limits_ms = {"warm": 15, "cold": 40}
    rows = [below(f"`stackctl dump`, {THREADS:,} hung threads, {how} symbols", figures[how], limit_ms)
            for how, limit_ms in limits_ms.items()]
    for ours, peer, factor in targets:
        what = f"the same, {ours} symbols"
        if peer not in figures:
            rows.append(skipped(what, f"{peer.split()[0]} is not installed", f"{factor}x faster"))
        else:
            rows.append(times_faster(what, figures[ours], figures[peer], factor))
    rows.append(below("partial ones among these dumps", Figure([sum(code != 0 for code in codes)], ""), 0, strict=False))
    return rows + many_threads_rows() + stop_rows(peers)


def many_threads_rows():
    with stand() as daemon, program(daemon, "hung_program", MANY_THREADS) as victim:
        ours = stackctl(daemon, "dump", victim.pid)
        times = [seconds_of(ours, WHOLE_OR_PARTIAL) * MS for _ in range(REPEAT + 2)][2:]
    return [below(f"`stackctl dump`, {MANY_THREADS:,} hung threads, warm symbols", Figure(times, "ms"), 120)]


def stop_rows(peers):
    """How long threads stand still meanwhile, ours by its own account and seen from a thread of the program."""
    rows = []
    gaps = {name: [] for name in ("none", "stackctl", *peers)}
    pauses = []
    with stand() as daemon, program(daemon, "hung_program", THREADS, "watch", stdin="") as victim:
        ours = stackctl(daemon, "dump", victim.pid)
        seconds_of(ours, WHOLE_OR_PARTIAL)
        for i in range(REPEAT):
            say(f"stop: {i + 1} of {REPEAT}")
            gaps["none"].append(watched_gap_ms(victim, ["sleep", "0.1"]))
            gaps["stackctl"].append(watched_gap_ms(victim, ours))
            pauses.append(longest_pause_ms(daemon, victim))
            for name, command in peers.items():
                if name != "eu-stack -l -i" or not gaps[name]:
                    gaps[name].append(watched_gap_ms(victim, command(victim.pid)))
    rows.append(Row("longest pause of one of the 1,000 threads in a dump (time in the handler)", Figure(pauses, "ms")))
    undisturbed = Figure(gaps["none"], "ms", "no dump")
    seen = Figure(gaps["stackctl"], "ms")
    rows.append(Row("longest gap of a busy thread of that program during a dump", seen, undisturbed))
    for name in peers:
        rows.append(times_faster("the same", seen, Figure(gaps[name], "ms", name), None))
    return rows
