#!/usr/bin/python3
"""Which blocking calls return early because of a dump: the table in agent/README.md, measured."""

import errno
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

# The kernel restarts all others after a handler with SA_RESTART.
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


class Eintr(unittest.TestCase):
    def test_the_table_is_what_happens(self):
        with stand.Stand() as place:
            program = place.start([os.path.abspath("tests/safety/eintr_matrix")], "eintr", stdin=-1)
            ready = program.stdout.readline()
            self.assertEqual(ready, "ready\n", program.stderr.read() if ready != "ready\n" else "")
            place.ask("wait eintr")
            dump = place.ask("hammer 1 eintr")
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
            self.assertEqual(interrupted, INTERRUPTED)


if __name__ == "__main__":
    unittest.main()
