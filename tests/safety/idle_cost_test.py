#!/usr/bin/python3
"""What the agent costs a program that is not dumped: it does not wake, and has hardly any memory. (What a start costs is counted
in system calls by footprint_test, and measured by tests/bench.)"""

import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

PPOLL = "271"  # x86-64


def helper_of(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as comm:
            if comm.read() == "stackd-agent\n":
                return tid
    raise AssertionError("no helper thread")


def context_switches(pid, tid):
    with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as status:
        return [int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", status.read())]


def await_rest(pid, tid):
    """Until it waits for the daemon without a limit: in its first 15 s it also looks whether a runtime has come."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="utf-8") as syscall:
            # "running", or the call that it sleeps in and its arguments.
            words = syscall.read().split()
            if words[0] == PPOLL and words[3] == "0x0":
                return
        time.sleep(0.1)
    raise AssertionError("the helper still looks around after 30 s")


def anonymous_kb(smaps):
    """Memory of the process's own; the ring is the daemon's. Not Private_Dirty, which counts the pages of a library that
    was built so recently that it is not on disk yet."""
    return sum(int(n) for n in re.findall(r"Anonymous:\s+(\d+)", smaps))


class IdleCost(unittest.TestCase):
    def test_an_idle_helper_sleeps(self):
        with stand.Stand() as place:
            # Else it leaves a program that has no thread of its own.
            program = place.start(["/bin/sleep", "60"], "idle", env={"STACKD_SECCOMP_DUMPS": "1"})
            place.ask("wait idle")
            self.assertEqual(len(os.listdir(f"/proc/{program.pid}/task")), 1)
            place.ask("once idle")
            tid = helper_of(program.pid)
            await_rest(program.pid, tid)
            before = context_switches(program.pid, tid)
            time.sleep(3)
            self.assertEqual(context_switches(program.pid, tid), before)
            with open(f"/proc/{program.pid}/smaps", encoding="utf-8") as smaps:
                private_kb = anonymous_kb(smaps.read())
            program.kill()
            program.communicate()
            plain = subprocess.Popen(["/bin/sleep", "60"])
            time.sleep(0.2)
            with open(f"/proc/{plain.pid}/smaps", encoding="utf-8") as smaps:
                plain_kb = anonymous_kb(smaps.read())
            plain.kill()
            plain.wait()
            more_kb = private_kb - plain_kb
            print(f"private memory besides the ring: {more_kb} KiB more than without the agent")
            self.assertLess(more_kb, 240)


if __name__ == "__main__":
    unittest.main()
