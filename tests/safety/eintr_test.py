#!/usr/bin/python3
"""Which blocking calls return early because of a dump: the table in agent/README.md, measured."""

import errno
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

# By a signal. The kernel restarts all others after a handler with SA_RESTART.
INTERRUPTED = {
    "clock_nanosleep",
    "epoll_wait",
    "futex wait, timeout",
    "io_getevents",
    "msgrcv",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect",
    "recv with SO_RCVTIMEO",
    "select",
    "sem_timedwait",
    "semop",
    "semtimedop",
    "sigsuspend",
    "sigtimedwait",
    "sleep",
    "usleep",
}


# So many captures leave the threads asleep.
CAPTURES = 1000


class Eintr(unittest.TestCase):
    def interrupted(self, quiet, captures):
        """The calls that returned while their threads were captured so often."""
        with stand.Stand() as place:
            program = place.start([os.path.abspath("tests/safety/eintr_matrix")], "eintr", stdin=-1)
            ready = program.stdout.readline()
            self.assertEqual(ready, "ready\n", program.stderr.read() if ready != "ready\n" else "")
            place.ask("wait eintr")
            dump = []
            while captures > 0:
                dump = place.ask(f"hammer 1 eintr {quiet}")
                figures = dict(line.split(" ", 1) for line in dump)
                self.assertEqual("0", figures["partial"], dump)
                captures -= int(figures["captures"])
            out, err = program.communicate("\n", timeout=30)
            self.assertEqual(program.returncode, 0, err)
            print("\n".join(dump) + "\n" + out)
            interrupted = set()
            for line in out.splitlines():
                name, outcome = line.rsplit(": ", 1)
                if outcome == "undisturbed":
                    continue
                interrupted.add(name)
                if name != "sleep":
                    self.assertEqual(int(outcome.split()[1]), errno.EINTR, line)
            return interrupted

    def test_the_table_is_what_happens(self):
        self.assertEqual(INTERRUPTED, self.interrupted("", 1))

    def test_preferring_quiet_interrupts_nothing(self):
        self.assertEqual(set(), self.interrupted("prefer", CAPTURES))

    def test_quiet_only_interrupts_nothing(self):
        self.assertEqual(set(), self.interrupted("only", CAPTURES))


if __name__ == "__main__":
    unittest.main()
