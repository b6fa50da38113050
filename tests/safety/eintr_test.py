#!/usr/bin/python3
"""Which blocking calls return early because of a dump: the table in agent/README.md, measured."""

import errno
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

# By a signal: what is left of their timeout is not known, or their number. The kernel or the handler repeats all others.
INTERRUPTED = {
    "clock_nanosleep",
    "epoll_wait",
    "futex wait, timeout",
    "io_getevents",
    "nanosleep",
    "poll",
    "recv with SO_RCVTIMEO",
    "semtimedop",
    "sigtimedwait",
    "usleep",
}


# Made by syscall(), which keeps the number of the call nowhere: what is not known is not made again.
INTERRUPTED_ONCE = {"futex wait, timeout", "io_getevents"}

SA_ONSTACK = 0x08000000

MATRIX = os.path.abspath("tests/safety/eintr_matrix")

# So many captures leave the threads asleep.
CAPTURES = 1000


def eventually(what, condition, limit_s=30):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def read(path):
    with open(path) as file:
        return file.read()


def state(pid):
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]


def thread_names(pid):
    return [read(f"/proc/{pid}/task/{tid}/comm").strip() for tid in os.listdir(f"/proc/{pid}/task")]


class Eintr(unittest.TestCase):
    def interrupted(self, quiet, captures):
        """The calls that returned while their threads were captured so often."""
        with stand.Stand() as place:
            program = place.start([MATRIX], "eintr", stdin=-1)
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
                self.assertEqual(int(outcome.split()[1]), errno.EINTR, line)
            return interrupted

    def test_the_table_is_what_happens(self):
        self.assertEqual(INTERRUPTED, self.interrupted("", 1))

    def test_preferring_quiet_interrupts_nothing(self):
        self.assertEqual(set(), self.interrupted("prefer", CAPTURES))

    def test_quiet_only_interrupts_nothing(self):
        self.assertEqual(set(), self.interrupted("only", CAPTURES))

    def test_long_timeouts_of_threads_that_run_and_sleep_in_turns_end_early_in_no_dump(self):
        with stand.Stand() as place:
            program = place.start([MATRIX, "--in-turns"], "turns", stdin=-1)
            self.assertEqual("ready\n", program.stdout.readline())
            place.ask("wait turns")
            figures = stand.counts(place.ask("hammer 5 turns prefer"))
            self.assertGreater(figures["captures"], 20, figures)
            out, err = program.communicate("\n", timeout=30)
            self.assertEqual((0, "0\n"), (program.returncode, out), err)
            print(figures)

    def see_first_dump(self, place, number, call):
        """Has a program without threads dumped while it is in that call."""
        name = f"alone-{number}"
        with place.start([MATRIX, call], name) as program:
            try:
                self.assertEqual("ready\n", program.stdout.readline())
                eventually(f"it waits in {call}", lambda: state(program.pid) == "S")
                self.assertEqual([], place.ask(f"wait {name}"))
                self.assertEqual(["eintr_matrix"], thread_names(program.pid))
                dump = place.ask(f"once {name} prefer")
                # On a busy machine the process may be woken after the deadline of the first.
                if dump[0] == "partial 1" and state(program.pid) == "S":
                    dump = place.ask(f"once {name} prefer")
                # A call that ended lets the program run to its end; one that did not leaves it asleep.
                eventually("it sleeps or ends", lambda: state(program.pid) in "SZ")
                program.send_signal(signal.SIGUSR1)
                out, err = program.communicate(timeout=30)
                self.assertEqual(0, program.returncode, err)
            finally:
                program.kill()
        if call in INTERRUPTED_ONCE:
            self.assertEqual(f"{call}: -1 {errno.EINTR}\n", out)
        else:
            self.assertEqual(f"{call}: undisturbed\n", out)
            self.assertEqual("partial 0", dump[0], dump)

    def test_the_first_dump_of_a_program_without_threads(self):
        calls = subprocess.run([MATRIX, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        self.assertGreater(len(calls), 35)
        with stand.Stand() as place:
            for number, call in enumerate(calls):
                with self.subTest(call):
                    self.see_first_dump(place, number, call)

    def test_a_call_that_a_handler_of_the_program_has_ended_is_not_made_again(self):
        """The agent's signal comes when that handler has just ended: the program waits for the end of the call."""
        with stand.Stand() as place:
            for name, flags in (("own-stack", 0), ("alternate-stack", SA_ONSTACK)):
                with self.subTest(name), place.start([MATRIX, "--woken", str(flags)], name) as program:
                    try:
                        self.assertEqual("ready\n", program.stdout.readline())
                        self.assertEqual([], place.ask(f"wait {name}"))
                        eventually("it sleeps", lambda: state(program.pid) == "S")
                        program.send_signal(signal.SIGUSR1)
                        eventually("the handler runs", lambda: state(program.pid) == "R")
                        place.ask(f"once {name} prefer")
                        self.assertEqual("woken\n", program.communicate(timeout=30)[0])
                    finally:
                        program.kill()

    def test_the_first_dump_does_not_end_pythons_pause(self):
        """Python's handlers run on an alternate stack, and block no signal."""
        code = ("import signal\n"
                "signal.signal(signal.SIGUSR1, lambda *_: print('woken'))\n"
                "print('ready', flush=True)\n"
                "signal.pause()\n"
                "print('ended')\n")
        with stand.Stand() as place, place.start(["/usr/bin/python3", "-c", code], "python") as program:
            try:
                self.assertEqual("ready\n", program.stdout.readline())
                self.assertEqual([], place.ask("wait python"))
                eventually("it sleeps", lambda: state(program.pid) == "S")
                self.assertEqual("partial 0", place.ask("once python prefer")[0])
                eventually("it sleeps or ends", lambda: state(program.pid) in "SZ")
                program.send_signal(signal.SIGUSR1)
                self.assertEqual("woken\nended\n", program.communicate(timeout=30)[0])
            finally:
                program.kill()


if __name__ == "__main__":
    unittest.main()
