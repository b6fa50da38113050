"""The matrix of fatal signals. A program that is killed by one, handles it, ignores it or jumps out of its handler notices nothing
of the agent.

Each case is a run of tests/programs/crash_matrix.c on its own and one under the agent, with a daemon there. Equal must be the exit
code or the signal that killed it, and whether it left a core. So must every byte of what it printed (its handler's arguments,
masks, stack, what sigaction() answers, the state afterwards). The daemon has one crash of it if it died of the signal or ended
inside its handler, and none otherwise.
"""

import collections
import concurrent.futures
import dataclasses
import itertools
import re
import shutil
import signal
import sys
import unittest

from crashes import CRASH_SIGNALS, CrashTest, crashes, environment, run_to_end
from harness import PROGRAMS, eventually

FAULTS = {"SEGV": ("fault", "protected"), "BUS": ("fault",), "ILL": ("fault",), "FPE": ("fault",), "TRAP": ("fault",),
          "SYS": ("fault",), "ABRT": ("abort",)}
SENDERS = ("kill", "tgkill", "sigqueue", "child")
# The signal that the agent takes for dumps: the program's all the same, when another process sends it. No crash.
DUMP_SIGNAL = "RTMIN"

# What a program can have done about a signal, with the flags of its handler.
PLAIN = ""
USUAL = "siginfo,restart"
COMMON = [("default", PLAIN), ("ignore", PLAIN), ("blocked", PLAIN), ("return", USUAL), ("return", "siginfo,resethand"),
          ("longjmp", USUAL), ("exit_now", USUAL), ("reset_raise", USUAL)]
SPECIAL = [("return", PLAIN), ("longjmp", PLAIN), ("reset_raise", PLAIN), ("plain_longjmp", USUAL), ("exit", USUAL),
           ("exec", USUAL), ("reset_return", USUAL), ("reset_return", "siginfo,nodefer"), ("nested", USUAL),
           ("nested", "siginfo,nodefer"), ("fault_inside", USUAL), ("abort_inside", USUAL), ("previous", USUAL),
           ("return", "siginfo,onstack"), ("longjmp", "siginfo,onstack"), ("exit_now", "siginfo,onstack"),
           ("reset_raise", "siginfo,onstack"), ("reset_raise", "siginfo,nodefer"), ("return", "siginfo,mask"),
           ("longjmp", "siginfo,mask"), ("return", "siginfo,deep"), ("return", "siginfo,onstack,deep"),
           ("exit_now", "siginfo,resethand")]
THREAD_ONLY = [("pthread_exit", USUAL), ("pthread_exit", "siginfo,onstack")]
# Without the means of repair a fault comes again and again.
NEEDS_REPAIR = ("SEGV", "BUS", "ILL", "FPE")


@dataclasses.dataclass(frozen=True)
class Case:
    signal: str
    way: str
    thread: str
    before: str
    flags: str
    order: str  # preload, or the linked-in agent first or last

    @property
    def is_fault(self):
        return self.way in ("fault", "protected")

    def makes_sense(self):
        returns_unrepaired = self.before in ("return", "nested") and "siginfo" not in self.flags
        if self.signal == "ABRT" and self.before == "abort_inside":
            return False  # abort() calls the handler, which calls abort()
        return not (self.is_fault and self.signal in NEEDS_REPAIR and returns_unrepaired)

    @property
    def words(self):
        return [f"signal={self.signal}", f"way={self.way}", f"thread={self.thread}", f"before={self.before}",
                f"flags={self.flags}"]

    def __str__(self):
        return " ".join(self.words + [f"order={self.order}"])


def all_cases():
    cases = []
    for name, faults in FAULTS.items():
        for way, thread in itertools.product((*faults, "raise"), ("main", "other")):
            special = SPECIAL + (THREAD_ONLY if thread == "other" else [])
            cases += [Case(name, way, thread, *what, "preload") for what in COMMON + special]
        for way, thread in itertools.product(SENDERS, ("main", "other")):
            cases += [Case(name, way, thread, *what, "preload") for what in COMMON]
        for way, order in itertools.product((faults[0], "raise"), ("first", "last")):
            cases += [Case(name, way, "main", *what, order) for what in COMMON]
    for way, thread in itertools.product(("raise", *SENDERS), ("main", "other")):
        special = SPECIAL + (THREAD_ONLY if thread == "other" else []) if way == "raise" else []
        cases += [Case(DUMP_SIGNAL, way, thread, *what, "preload") for what in COMMON + special]
    return [case for case in cases if case.makes_sense()]


def died_of_it(case, alone):
    """Whether the process ended in a way that is a crash and that a handler in it is told of. That is by a signal of ours, or
    inside its handler."""
    if case.signal == DUMP_SIGNAL and alone.signal not in CRASH_SIGNALS:
        return False
    if case.before in ("blocked", "ignore") and case.is_fault:
        return False  # the kernel kills without calling a handler
    if case.before == "ignore" and case.way == "abort":
        return False  # the same: the C library sets the default action past the agent
    if case.order == "first" and case.before not in ("default", "blocked"):
        return False  # the program's own action has replaced the agent's
    if case.signal == "SYS" and case.way == "fault" and "resethand" not in case.flags:
        # What a filter refuses is left to the program's handler alone, and only a default action that it sets is seen.
        unseen = ("exit_now", "exit", "exec", "fault_inside") + (("reset_raise",) if case.order == "last" else ())
        if case.before in unseen:
            return False
    if alone.signal in CRASH_SIGNALS:
        return True
    return alone.signal == 0 and case.before in ("exit_now", "exit", "exec") and b"handler: delivery" in alone.out


class CrashMatrixTest(CrashTest):

    def run_case(self, number, case, under_agent):
        folder = self.dir / ("with" if under_agent else "without") / str(number)
        program = PROGRAMS / ("crash_matrix" if case.order == "preload" else "crash_matrix_static")
        words = list(case.words)
        if not under_agent:
            env = environment()
        elif case.order == "preload":
            env = environment(self.dir, STACKD_NAME=f"case-{number}")
            words.append("await")
        else:
            env = environment(self.dir, agent=None, STACKD_NAME=f"case-{number}")
            words += [f"agent={case.order}", "await"]
        ending = run_to_end([program, *words], folder, env)
        shutil.rmtree(folder)
        return ending

    def run_all(self, cases, under_agent):
        # More than there are CPUs: a process that dies waits for the daemon.
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            return list(pool.map(lambda pair: self.run_case(*pair, under_agent), enumerate(cases)))

    def lines(self, case, text):
        lines = text.decode().splitlines()
        # Nothing stands between a program that links the agent and sigaction(): there it sees the agent's handler.
        return lines if case.order == "preload" else [line for line in lines if not re.match(r"\w+: handler \w+", line)]

    def differences(self, case, alone, watched):
        if alone.manner != watched.manner:
            yield f"it was {alone.manner}, and is {watched.manner} with the agent"
        for stream in ("out", "err"):
            before = self.lines(case, getattr(alone, stream))
            after = self.lines(case, getattr(watched, stream))
            for old, new in itertools.zip_longest(before, after, fillvalue="(nothing)"):
                if old != new:
                    yield f"it printed {old!r}, and {new!r} with the agent"

    def counted_crashes(self, daemon, cases):
        """How many crashes of each case the daemon has, when it has done all that it was given."""
        last = self.run_case(len(cases), Case("SEGV", "fault", "main", "default", PLAIN, "preload"), True)
        self.assertEqual(signal.SIGSEGV, last.signal)

        def all_done():
            counts = collections.Counter(dump["process"]["displayName"] for dump in crashes(daemon))
            return counts if counts[f"case-{len(cases)}"] and not daemon.processes() else None

        counts = eventually("the daemon has the last crash and no process any more", all_done)
        return [counts[f"case-{number}"] for number in range(len(cases))]

    def test_matrix(self):
        # All crashes here are a few to the store, which keeps the first and the last of equal ones.
        daemon = self.start_daemon(extra_args=["--store-crashes-per-group", "500"])
        cases = all_cases()
        alone = self.run_all(cases, under_agent=False)
        watched = self.run_all(cases, under_agent=True)
        counts = self.counted_crashes(daemon, cases)

        failures = []
        for case, before, after, count in zip(cases, alone, watched, counts):
            wrong = list(self.differences(case, before, after))
            expected = int(died_of_it(case, before))
            if count != expected:
                wrong.append(f"it was {before.manner}, and the daemon has {count} crashes of it, not {expected}")
            failures += [f"{case}:\n    " + "\n    ".join(wrong)] if wrong else []
        died = sum(ending.signal != 0 for ending in alone)
        print(f"matrix: {len(cases)} cases, {died} of them killed, {sum(counts)} crashes counted, {len(failures)} failed",
              file=sys.stderr, flush=True)
        if failures:
            self.fail(f"{len(failures)} of {len(cases)} cases:\n" + "\n".join(failures[:100]))


if __name__ == "__main__":
    unittest.main()
