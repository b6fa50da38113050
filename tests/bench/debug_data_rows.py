"""Memory of the daemon and its worker while they dump a program with more than 1 GiB of debug information."""

import os
import pathlib
import subprocess
import threading

from daemon_rows import rss_mib
from stand import children, program, say, seconds_of, stackctl, stand
from table import Figure, Row, below

THREADS = 16
FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "stackd/bench"


def debug_gib(path):
    sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    sizes = [line[line.index("]") + 1:].split() for line in sections.splitlines() if " .debug_" in line]
    return sum(int(fields[4], 16) for fields in sizes) / 2**30


class Watch:
    """The largest memory of a daemon and its workers at one time, from outside."""

    def __init__(self, pid):
        self.pid = pid
        self.largest_mib = self.largest_private_mib = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.stop.wait(0.01):
            try:
                pids = [self.pid]
                for pid in pids:
                    pids += children(pid)
                self.largest_mib = max(self.largest_mib, rss_mib(pids))
                self.largest_private_mib = max(self.largest_private_mib, rss_mib(pids, "RssAnon"))
            except (OSError, KeyError):
                continue  # a worker ended meanwhile

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def debug_data_program():
    say("debug-data: making the program (the first time: some minutes)")
    made = subprocess.run([pathlib.Path(__file__).with_name("make_debug_data.sh"), FOLDER], capture_output=True, text=True,
                          check=False)
    if made.returncode != 0:
        raise RuntimeError(f"make_debug_data.sh failed: {made.stderr}")
    return made.stdout.strip()


def debug_data_rows():
    path = debug_data_program()
    dumps = 5
    with stand() as daemon, program(daemon, path, THREADS) as victim, Watch(daemon.process.pid) as watch:
        first_s = seconds_of(stackctl(daemon, "dump", victim.pid))
        # What was not named in time is looked up in the background.
        for _ in range(dumps):
            named = daemon.ctl("dump", victim.pid).out
    missing = named.count("not named")
    what = f"program with {debug_gib(path):.2f} GiB of debug information, {THREADS} threads"
    return [
        below(f"{what}: memory of daemon and worker (RSS), largest", Figure([watch.largest_mib], "MiB"), 256),
        Row("of that, not backed by files", Figure([watch.largest_private_mib], "MiB")),
        Row("its first dump", Figure([first_s], "s")),
        Row("addresses without a name after that", Figure([missing], "")),
    ]
