"""Settings that each end-to-end test runs under: its time limit, its turn, and how its result is counted.

--counts FILE writes "PASSED FAILED SKIPPED"; --skipped FILE writes "MODULE: REASON" for each skipped case.

With STACKD_TEST_MAY_SKIP, a list of words with commas between, a skipped case fails unless its name or its reason contains one of
the words: STACKD_TEST_MAY_SKIP=go_test,docker.
"""

import json
import os
import pathlib
import re
import signal
import sys
import threading

import pytest

import quick

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "e2e"), str(HERE / "deploy")]

# Unless the class of a case has a limit_s of its own.
CASE_LIMIT_S = 300
# Unless a case has a marker of its own.
CASE_BUDGET_S = 60
DURATIONS = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd/test-durations.json"


def pytest_addoption(parser):
    parser.addoption("--counts", help="write PASSED FAILED SKIPPED into this file")
    parser.addoption("--skipped", help="write MODULE: REASON of each skipped case into this file")


def words_of(variable):
    """The words of an environment variable; None if it is not set."""
    text = os.environ.get(variable)
    return None if text is None else [word for word in text.split(",") if word]


def case_name(nodeid):
    """module.Class.case of tests/e2e/module.py::Class::case; a group of xdist follows a last "@"."""
    path, _, rest = nodeid.partition("::")
    return ".".join([pathlib.Path(path).stem, *re.sub(r"@\w+$", "", rest).split("::")])


# --- What runs, and when ---


def known_durations():
    try:
        return json.loads(DURATIONS.read_text())
    except (OSError, ValueError):
        return {}


# First: options select by the marks that are given here.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Gives each case its limit. Puts the longest first: begun last, a case of minutes keeps one worker while others are idle."""
    for item in items:
        item.add_marker(pytest.mark.timeout(getattr(item.cls, "limit_s", CASE_LIMIT_S)))
        if case_name(item.nodeid) in quick.CASES:
            item.add_marker(pytest.mark.quick)
    # As the whole run began with them: another run beside this one writes them, and all workers must have one order.
    durations = json.loads(config.workerinput["durations"]) if is_worker(config) else known_durations()
    items.sort(key=lambda item: -durations.get(case_name(item.nodeid), 10.0))


# --- Ending a run ---


def pytest_sessionstart(session):
    # execnet 1.9 runs a worker in another thread if the main one is not back yet from what it was first asked.
    if threading.current_thread() is not threading.main_thread():
        return
    # Under nohup the signal is ignored, and so by all that is started here: not what programs expect.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if is_worker(session.config):
        signal.signal(signal.SIGINT, ender_of(session))
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def is_worker(config):
    return hasattr(config, "workerinput")


def ender_of(session):
    """Ends the running case by an AssertionError: for KeyboardInterrupt, unittest calls none of the case's cleanups."""

    def on_signal(number, frame):
        session.shouldstop = "ended by a signal"
        signal.signal(number, signal.SIG_IGN)
        raise AssertionError("ended by a signal")

    return on_signal


# --- Results ---


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    may_skip = words_of("STACKD_TEST_MAY_SKIP")
    if not report.skipped or may_skip is None:
        return
    reason = reason_of(report)
    if not any(word in f"{case_name(report.nodeid)}: {reason}" for word in may_skip):
        report.outcome = "failed"
        report.longrepr = f"skipped, which STACKD_TEST_MAY_SKIP does not allow: {reason}"


def reason_of(report):
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


class Results:
    """What became of each case, in the process that the workers report to."""

    def __init__(self):
        self.seconds = {}
        self.outcomes = {}
        self.reasons = {}

    def pytest_runtest_logreport(self, report):
        name = case_name(report.nodeid)
        self.seconds[name] = self.seconds.get(name, 0) + report.duration
        if report.failed:
            self.outcomes[name] = "failed"
        elif report.skipped:
            self.outcomes.setdefault(name, "skipped")
            self.reasons[name] = reason_of(report)
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")

    def pytest_collectreport(self, report):
        if report.failed:
            self.outcomes[report.nodeid] = "failed"

    def count(self, outcome):
        return sum(one == outcome for one in self.outcomes.values())


def pytest_configure(config):
    if not is_worker(config):
        config.pluginmanager.register(Results(), "stackd-results")
        config.durations = json.dumps(known_durations())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["durations"] = node.config.durations


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    results = config.pluginmanager.get_plugin("stackd-results")
    late = {name: s for name, s in results.seconds.items() if s > CASE_BUDGET_S}
    if late:
        terminalreporter.section(f"over the budget of {CASE_BUDGET_S} s")
        for name, seconds in sorted(late.items(), key=lambda pair: -pair[1]):
            terminalreporter.line(f"{seconds:6.0f} s  {name}")


# Last: a run that has no test to run ends with an exit status of its own.
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    config = session.config
    if is_worker(config):
        return
    results = config.pluginmanager.get_plugin("stackd-results")
    if path := config.getoption("counts"):
        failed = results.count("failed")
        # A fault of the run itself, or its end by a signal, must not pass for "none failed".
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            failed = max(failed, 1)
        pathlib.Path(path).write_text(f"{results.count('passed')} {failed} {results.count('skipped')}\n")
    if path := config.getoption("skipped"):
        lines = [f"{name.split('.')[0]}: {(reason.splitlines() or [''])[0]}\n" for name, reason in results.reasons.items()
                 if results.outcomes[name] == "skipped"]
        pathlib.Path(path).write_text("".join(lines))
    if results.seconds:
        DURATIONS.parent.mkdir(parents=True, exist_ok=True)
        DURATIONS.write_text(json.dumps({**known_durations(), **results.seconds}, indent=0, sort_keys=True))
