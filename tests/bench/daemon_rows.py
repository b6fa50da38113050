"""What the daemon costs while nothing happens."""

import time

from stand import children, cpu_seconds, kib_of, program, say, stand
from table import Figure, Row, below

PROCESSES = 10
SECONDS = 20


def rss_mib(pids, field="VmRSS"):
    return sum(kib_of(pid, field, "status") for pid in pids) / 1024


def daemon_rows():
    say(f"daemon: idle with {PROCESSES} processes for {SECONDS} s")
    with stand() as daemon, program(daemon, "idle_program", count=PROCESSES) as victims:
        # Idle after work is what counts: caches are filled, and the workers, which end when they have nothing to do, are gone.
        for victim in victims:
            daemon.ctl("dump", victim.pid)
        while children(daemon.process.pid):
            time.sleep(0.1)
        pids = [daemon.process.pid]
        before = cpu_seconds(pids)
        time.sleep(SECONDS)
        percent = (cpu_seconds(pids) - before) / SECONDS * 100
        what = f"daemon, idle with {PROCESSES} processes, each dumped once"
        return [
            below(f"{what}: CPU", Figure([percent], "%"), 0.1),
            below(f"{what}: memory (RSS)", Figure([rss_mib(pids)], "MiB"), 40),
            Row("of that, not backed by files", Figure([rss_mib(pids, "RssAnon") + rss_mib(pids, "RssShmem")], "MiB")),
        ]
