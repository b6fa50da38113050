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


class OthersTime:
    """The CPU time that all but these processes and their children have had since it was made. On one CPU no process waited
    longer for their sake. `children` of theirs have not been waited for at that time."""

    # Below this part of all CPU time the machine is quiet: interrupts and the kernel's own threads are in it too.
    QUIET = 0.1

    def __init__(self, pids, children):
        self.pids = [os.getpid(), *pids]
        # What they have used is counted when they are waited for.
        before_s = sum(map(life_s, children))
        self.begin_s = time.monotonic()
        self.begin_idle_s = idle_s()
        self.begin_own_s = self.own_s() + before_s

    def own_s(self):
        return sum(cpu_s(pid) for pid in self.pids)

    def allowance_s(self):
        """What that may have delayed a process since; 0 if the machine was quiet."""
        all_s = (time.monotonic() - self.begin_s) * os.cpu_count()
        others_s = all_s - (idle_s() - self.begin_idle_s) - (self.own_s() - self.begin_own_s)
        return others_s if others_s > self.QUIET * all_s else 0.0


def idle_s():
    """Idle time of all CPUs, waiting for disks included."""
    with open("/proc/stat", encoding="ascii") as stat:
        return sum(map(int, stat.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")


def life_s(pid):
    """CPU time of all threads of a process, to the nanosecond."""
    total_ns = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as schedstat:
            total_ns += int(schedstat.read().split()[0])
    return total_ns / 1e9


def cpu_s(pid):
    """CPU time of a process and the children that it has waited for."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return sum(map(int, stat.read().rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
