"""How long a thread that is due has to wait for a CPU on this machine at the time. A bound in milliseconds leaves that out of
account. Asked of a process on each CPU that does nothing but sleep for 5 ms, look how late it is, and sleep again. (The kernel's
own count, /proc/PID/schedstat, now and then takes a second asleep for one in wait: seen with Linux 6.18.)"""

import os
import subprocess
import sys
import tempfile
import time

SLEEPER = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
while True:
    due = time.monotonic() + 0.005
    time.sleep(0.005)
    now = time.monotonic()
    if now - due > 0.002:
        os.write(2, f"{due} {now}\\n".encode())
"""


# How often a process needs a CPU before it has died of a crash that the daemon does not take. It is for the signal, when the hold
# is over, after the write to its file; and once its parent, to hear of it.
TURNS = 4


class Busyness:
    """Watches as long as it is open."""

    def __enter__(self):
        self.sleepers = []
        for cpu in os.sched_getaffinity(0):
            late = tempfile.TemporaryFile()
            sleeper = subprocess.Popen([sys.executable, "-S", "-c", SLEEPER, str(cpu)], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=late)
            self.sleepers.append((sleeper, late))
        for sleeper, _ in self.sleepers:
            sleeper.stdout.readline()
        return self

    def __exit__(self, *_):
        for sleeper, late in self.sleepers:
            sleeper.kill()
            sleeper.wait()
            sleeper.stdout.close()
            late.close()

    def longest_wait_s(self, begin_s, end_s):
        """The longest that one of them was late in this span of monotonic time."""
        longest_s = 0
        for _, late in self.sleepers:
            # Without a seek: the sleeper writes where this fd stands.
            for line in os.pread(late.fileno(), os.fstat(late.fileno()).st_size, 0).splitlines():
                due_s, now_s = map(float, line.split())
                if due_s < end_s and now_s > begin_s:
                    longest_s = max(longest_s, now_s - due_s)
        return longest_s

    def allowance_s(self, begin_s, end_s):
        """What the end of a process that died in this span may be late for the machine's sake."""
        return TURNS * self.longest_wait_s(begin_s, end_s)


class BusyTime:
    """The CPU time that was used at all on this machine since it was made: no process can have waited longer for a CPU. It is the
    right allowance where the processes of a test keep every CPU busy themselves."""

    def __init__(self):
        self.begin_s = time.monotonic()
        self.begin_idle_s = idle_s()

    def allowance_s(self):
        all_s = (time.monotonic() - self.begin_s) * os.cpu_count()
        return max(0.0, all_s - (idle_s() - self.begin_idle_s))


def idle_s():
    """Idle time of all CPUs, waiting for disks included."""
    with open("/proc/stat", encoding="ascii") as stat:
        return sum(map(int, stat.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")
