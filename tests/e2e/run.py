"""Runs the tests of tests/e2e and tests/deploy: all, or those named, as "order_test", "order_test.OrderTest" or
"order_test.OrderTest.test_x".

Prints a line for each case as it ends, and what went wrong at the end. --counts FILE: writes "PASSED FAILED SKIPPED";
--skipped FILE: writes "MODULE: REASON" for each that was skipped.

With STACKD_TEST_MAY_SKIP, a list of words with commas between, a case that is skipped fails, unless one of them is in its name
or its reason: STACKD_TEST_MAY_SKIP=STACKD_TEST_FULL,go_test.

SIGTERM and Ctrl-C end it as soon as what the case has begun is cleaned up; the second time, at once.
"""

import argparse
import os
import pathlib
import re
import signal
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Tests in the others import from the first.
FOLDERS = [HERE, HERE.parent / "deploy"]

# Unless a case has a limit_s of its own.
CASE_LIMIT_S = 300
# Of a case that was ended, for each thing that it has to clean up.
CLEANUP_LIMIT_S = 60


def on_alarm(number, frame):
    signal.alarm(CLEANUP_LIMIT_S)
    raise AssertionError("the case did not end in its time")


def skip_line(test, reason):
    # Of a class it is "setUpClass (module_test.Class)".
    module = re.search(r"[A-Za-z]\w*_test", test.id())[0]
    return f"{module}: {reason.splitlines()[0]}\n"


def words_of(variable):
    """None where it is not set."""
    text = os.environ.get(variable)
    return None if text is None else [word for word in text.split(",") if word]


class LineResult(unittest.TestResult):
    """One line for each case, with the time it took."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.started = 0.0
        self.in_a_case = False
        self.ended_by = None
        self.may_skip = words_of("STACKD_TEST_MAY_SKIP")

    def on_end(self, number, frame):
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_DFL)
        self.ended_by = signal.Signals(number).name
        self.stop()
        # Else the next subTest of this case has its turn.
        self.failfast = True
        if self.in_a_case:
            # Not as KeyboardInterrupt, for which unittest cleans nothing up.
            signal.alarm(CLEANUP_LIMIT_S)
            raise AssertionError(f"ended by {self.ended_by}")

    def line(self, word, test, detail=""):
        print(f"{word:<7} {test.id()} ({time.monotonic() - self.started:.1f} s){detail}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        # A case that hangs is a failure like others: with a trace of where, and the next one gets its turn.
        signal.alarm(getattr(test, "limit_s", CASE_LIMIT_S))
        self.started = time.monotonic()
        self.case_failed = False
        self.in_a_case = True

    def stopTest(self, test):
        signal.alarm(0)
        self.in_a_case = False
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        if not self.case_failed:
            self.passed += 1
            self.line("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line("FAILED", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.line("FAILED", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.case_failed = True
            self.line("FAILED", subtest)

    def addSkip(self, test, reason):
        if self.may_skip is not None and not any(word in f"{test.id()}: {reason}" for word in self.may_skip):
            self.failures.append((test, f"skipped, which STACKD_TEST_MAY_SKIP does not allow: {reason}\n"))
            self.line("FAILED", test, f": skipped: {reason}")
            return
        super().addSkip(test, reason)
        self.line("skipped", test, f": {reason}")


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--counts")
    parser.add_argument("--skipped")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()

    # Under nohup it is ignored, and so by all that is started here: not what programs expect.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.path[:0] = map(str, FOLDERS)
    names = arguments.names or [path.stem for folder in FOLDERS for path in sorted(folder.glob("*_test.py"))]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    if arguments.list:
        for test in flatten(suite):
            print(test.id())
        return 0

    result = LineResult()
    signal.signal(signal.SIGALRM, on_alarm)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, result.on_end)
    suite.run(result)
    for test, trace in result.failures + result.errors:
        print(f"\n--- {test.id()}\n{trace}")
    # A case with several failed parts is one failure, and a fault outside any case (setUpClass) is one, too.
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    if result.ended_by:
        print(f"\nended by {result.ended_by}: the cases after this were not run")
        failed = max(failed, 1)
    if arguments.counts:
        pathlib.Path(arguments.counts).write_text(f"{result.passed} {failed} {len(result.skipped)}\n")
    if arguments.skipped:
        pathlib.Path(arguments.skipped).write_text("".join(skip_line(*skip) for skip in result.skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
