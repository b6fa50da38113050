"""Runs the tests of tests/e2e and tests/deploy: all, or those named, as "order_test", "order_test.OrderTest" or
"order_test.OrderTest.test_x".

Prints a line for each case as it ends, and what went wrong at the end. --counts FILE: writes "PASSED FAILED SKIPPED".
"""

import argparse
import pathlib
import signal
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Tests in the others import from the first.
FOLDERS = [HERE, HERE.parent / "deploy"]

# Unless a case has a limit_s of its own.
CASE_LIMIT_S = 300


def on_alarm(number, frame):
    raise AssertionError("the case did not end in its time")


class LineResult(unittest.TestResult):
    """One line for each case, with the time it took."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.started = 0.0

    def line(self, word, test, detail=""):
        print(f"{word:<7} {test.id()} ({time.monotonic() - self.started:.1f} s){detail}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        # A case that hangs is a failure like others: with a trace of where, and the next one gets its turn.
        signal.alarm(getattr(test, "limit_s", CASE_LIMIT_S))
        self.started = time.monotonic()
        self.case_failed = False

    def stopTest(self, test):
        signal.alarm(0)
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
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()

    sys.path[:0] = map(str, FOLDERS)
    names = arguments.names or [path.stem for folder in FOLDERS for path in sorted(folder.glob("*_test.py"))]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    if arguments.list:
        for test in flatten(suite):
            print(test.id())
        return 0

    signal.signal(signal.SIGALRM, on_alarm)
    result = LineResult()
    suite.run(result)
    for test, trace in result.failures + result.errors:
        print(f"\n--- {test.id()}\n{trace}")
    # A case with several failed parts is one failure, and a fault outside any case (setUpClass) is one, too.
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    if arguments.counts:
        pathlib.Path(arguments.counts).write_text(f"{result.passed} {failed} {len(result.skipped)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
