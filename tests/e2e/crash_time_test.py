"""A process that crashes ends in time: never more than the hold and 100 ms later than without the agent, whatever the daemon
does. The first process of a PID namespace, whom the kernel spares much, ends as it would.

    time: daemon stopped, hold 500 ms      null_pointer                512 ms (without the agent 1 ms)
    time: 156 ways to die, hold 400 ms, daemon stopped: median 101 ms, longest 122 ms (wild_pointer) more than without ...

On a busy machine it may be later by a few waits for a CPU, as long as those are at that time (busyness.py).
"""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import threading
import time
import unittest

import pytest

import ring_view
from busyness import Busyness
from crash_matrix_test import FAULTS, SENDERS
from crash_victims_test import C_DEATHS, CPP_DEATHS, RUST_DEATHS, STARVED_DEATHS, build_rust, handler_calls
from crashes import CrashTest, await_end, crashes, environment
from harness import AGENT, LIMIT_S, PROGRAMS, eventually

HOLD_MS = 2000
SHORT_HOLD_MS = 400
SLACK_MS = 100
# More than there are CPUs: a process that dies waits for the daemon.
AT_ONCE = 4
# Rust's own takes half a second.
NO_BACKTRACE = {"RUST_BACKTRACE": "0"}

# Deaths: a fault, an abort, threads that die at the same time, a fault without stack.
DEATHS = [["null_pointer"], ["call_abort"], ["null_pointer", "threads"], ["overflow", "thread"]]


def tell(process):
    process.stdin.write(b"\n")
    process.stdin.flush()


def reads_stdin(pid):
    """Whether its main thread is asleep in read(0, ...)."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ")


@contextlib.contextmanager
def slowed(daemon):
    """Stops it for 95 of 100 ms, again and again."""
    over = threading.Event()

    def slow():
        while not over.wait(0.005):
            daemon.process.send_signal(signal.SIGSTOP)
            over.wait(0.095)
            daemon.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def is_stopped(pid):
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


@contextlib.contextmanager
def stopped(daemon):
    daemon.process.send_signal(signal.SIGSTOP)
    eventually("the daemon is stopped", lambda: is_stopped(daemon.process.pid))
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


class CrashTimeTest(CrashTest):

    def setUp(self):
        super().setUp()
        self.busyness = self.enterContext(Busyness())
        self.runs = 0

    def start(self, words, env, prefix=()):
        """(process, its folder): a program that dies when it is told to."""
        self.runs += 1
        folder = self.dir / f"run-{self.runs}"
        folder.mkdir()
        command = [*prefix, PROGRAMS / "crash_deaths", *words, "told"]
        with open(folder / "out", "w+b") as out, open(folder / "err", "w+b") as err:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=out, stderr=err,
                                       env=dict(env, CRASH_DEPTH_FILE=str(folder / "file")))
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.kill)
        eventually("it waits to be told", lambda: b"ready\n" in (folder / "out").read_bytes())
        return process, folder

    def fault_to_exit(self, process, folder):
        """Tells it to die: (Ending, milliseconds from just before its death, which it wrote down, to its end)."""
        tell(process)
        ending = await_end(process, folder)
        died_ns, = struct.unpack_from("<q", (folder / "file").read_bytes(), 8)
        return ending, ending.end_s * 1e3 - died_ns / 1e6

    def alone(self, words, prefix=()):
        """(how it ends, median of its times) without the agent."""
        endings, times = zip(*(self.fault_to_exit(*self.start(words, environment(), prefix)) for _ in range(3)))
        return endings[0].manner, statistics.median(times)

    def check(self, what, words, *, at_death=lambda: None, hold_ms=None, registered=True, prefix=()):
        """`at_death` is called when the program is registered and about to die."""
        manner, alone_ms = self.alone(words, prefix)
        env = environment(self.dir, **({"STACKD_CRASH_HOLD_MS": str(hold_ms)} if hold_ms else {}))
        # Through env(1) where something wraps the program: the wrapper is not what the agent should be in.
        if prefix:
            del env["LD_PRELOAD"]
            prefix = [*prefix, "env", f"LD_PRELOAD={AGENT}"]
        process, folder = self.start([*words, "await"] if registered else words, env, prefix)
        at_death()
        ending, ms = self.fault_to_exit(process, folder)
        what += f", hold {hold_ms} ms" if hold_ms else ""
        print(f"time: {what:<32} {'-'.join(words):<22} {ms:>5.0f} ms (without the agent {alone_ms:.0f} ms)", file=sys.stderr,
              flush=True)
        with self.subTest(what, words=words):
            self.assertEqual(manner, ending.manner)
            busy_ms = self.busyness.allowance_s(ending.end_s - ms / 1e3, ending.end_s) * 1e3
            self.assertLess(ms, alone_ms + (hold_ms or HOLD_MS) + SLACK_MS + busy_ms)

    def assert_all_are_there(self, daemon, count):
        eventually(f"{count} crashes are there", lambda: len(crashes(daemon)) >= count)
        eventually("nobody is connected", lambda: not daemon.processes())
        self.assertEqual(count, len(crashes(daemon)))

    def test_daemon_present(self):
        daemon = self.start_daemon()
        for words in DEATHS:
            self.check("daemon present", words)
        self.assert_all_are_there(daemon, len(DEATHS))

    def test_daemon_never_there(self):
        for hold_ms in (None, 500):
            for words in DEATHS:
                self.check("no daemon ever", words, registered=False, hold_ms=hold_ms)
        self.assert_all_are_there(self.start_daemon(), 2 * len(DEATHS))

    def test_daemon_killed(self):
        daemon = self.start_daemon()
        for words in DEATHS:
            self.check("daemon killed", words, at_death=daemon.kill)
            daemon.restart()
        self.assert_all_are_there(daemon, len(DEATHS))

    def test_daemon_stopped(self):
        daemon = self.start_daemon()
        for hold_ms in (None, 500):
            for words in DEATHS:
                with contextlib.ExitStack() as state:
                    self.check("daemon stopped", words, at_death=lambda state=state: state.enter_context(stopped(daemon)),
                               hold_ms=hold_ms)
        self.assert_all_are_there(daemon, 2 * len(DEATHS))

    def test_daemon_slow(self):
        daemon = self.start_daemon()
        with slowed(daemon):
            for words in DEATHS:
                self.check("daemon slow", words)
        self.assert_all_are_there(daemon, len(DEATHS))

    def crash_taken_and_not_stored(self, daemon, act):
        """A process crashes, and `act` is called between TAKEN and STORED: the store is locked meanwhile."""
        manner, alone_ms = self.alone(["no_address_space"])
        process, folder = self.start(["no_address_space", "await"], environment(self.dir))
        ring, = ring_view.rings_of(daemon)
        phases = []
        store = sqlite3.connect(daemon.store, isolation_level=None, check_same_thread=False)
        self.addCleanup(store.close)
        store.execute("BEGIN IMMEDIATE")

        def watch():
            eventually("the daemon has taken the crash", lambda: ring.number(ring_view.CRASH_PHASE))
            act()
            phases.append(ring.number(ring_view.CRASH_PHASE))
            store.execute("ROLLBACK")

        watcher = threading.Thread(target=watch)
        watcher.start()
        ending, ms = self.fault_to_exit(process, folder)
        watcher.join()
        self.assertEqual([ring_view.CRASH_TAKEN], phases)
        print(f"time: {self.id().split('.')[-1]}: {ms:.0f} ms", file=sys.stderr, flush=True)
        self.assertEqual(manner, ending.manner)
        busy_ms = self.busyness.allowance_s(ending.end_s - ms / 1e3, ending.end_s) * 1e3
        self.assertLess(ms, alone_ms + HOLD_MS + SLACK_MS + busy_ms)

    def spooled(self):
        return [path for path in (self.dir / "spool").iterdir() if path.stat().st_size > 0]

    def test_daemon_stopped_when_it_has_taken_a_crash_and_not_stored_it(self):
        daemon = self.start_daemon()
        with contextlib.ExitStack() as state:
            self.crash_taken_and_not_stored(daemon, lambda: state.enter_context(stopped(daemon)))
            self.assertEqual(1, len(self.spooled()))
        self.assert_all_are_there(daemon, 1)
        eventually("it is in the spool no more", lambda: not self.spooled())

    def test_daemon_killed_when_it_has_taken_a_crash_and_not_stored_it(self):
        daemon = self.start_daemon()
        self.crash_taken_and_not_stored(daemon, daemon.kill)
        self.assertEqual(1, len(self.spooled()))
        self.assert_all_are_there(daemon.start(), 1)
        eventually("it is in the spool no more", lambda: not self.spooled())

    def test_daemon_told_to_end_when_it_has_taken_a_crash_and_not_stored_it(self):
        daemon = self.start_daemon()
        self.crash_taken_and_not_stored(daemon, daemon.process.terminate)
        daemon.process.wait(LIMIT_S)
        self.assert_all_are_there(daemon.start(), 1)
        eventually("it is in the spool no more", lambda: not self.spooled())

    @unittest.skipUnless(os.geteuid() == 0, "needs root to make a PID namespace")
    def test_first_process_of_a_pid_namespace(self):
        daemon = self.start_daemon()
        prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        deaths = [["null_pointer"], ["call_abort"], ["overflow"], ["illegal", "thread"]]
        for words in deaths:
            self.check("PID 1, daemon present", words, prefix=prefix)
        # The kernel keeps from it what it sends itself: it goes on, and ends by itself.
        self.check("PID 1, daemon present", ["raise_segv"], prefix=prefix)
        self.assert_all_are_there(daemon, len(deaths))
        daemon.kill()
        for words in [*deaths, ["raise_segv"]]:
            self.check("PID 1, no daemon", words, prefix=prefix, registered=False)


class EveryDeathTimeTest(CrashTest):
    """Each way to die of the other tests, under each kind of daemon."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.alone = None

    def setUp(self):
        super().setUp()
        self.busyness = self.enterContext(Busyness())
        os.chmod(self.dir, 0o711)
        self.deaths = list(self.all_deaths())

    def all_deaths(self):
        """The commands."""
        program = PROGRAMS / "crash_deaths"
        for death in C_DEATHS:
            yield [program, death.name]
            if death.cause != "SENT":  # to the process, and so to its main thread
                yield [program, death.name, "thread"]
        for name in ("overflow", "overflow_of_two", "one_big_frame"):
            yield [program, name]
            yield [program, name, "thread"]
        yield [program, "null_pointer", "threads"]
        for death in STARVED_DEATHS:
            if death.name != "no_process" or os.geteuid() == 0:
                yield [program, death.name]
        yield [program, "no_fd"]
        yield [program, "only_listed_calls", *handler_calls()]
        for death in CPP_DEATHS:
            yield [PROGRAMS / "crash_cpp", death.name]
        rust = build_rust()
        for program, names in ((PROGRAMS / "crash_cpp", ["overflow"]), (rust, ["overflow", *(d.name for d in RUST_DEATHS)])):
            for name in names if program is not None else ():
                yield [program, name]
                yield [program, name, "thread"]
        for name, faults in FAULTS.items():
            for way in (*faults, "raise", *SENDERS):
                for thread in ("main", "other"):
                    yield [PROGRAMS / "crash_matrix", f"signal={name}", f"way={way}", f"thread={thread}"]

    def start_all(self, name, env, *words):
        """(process, its folder) of each, when all wait to be told."""
        started = []
        for i, command in enumerate(self.deaths):
            folder = self.dir / f"{name}-{i}"
            folder.mkdir()
            # For cores of those who are not root.
            folder.chmod(0o777)
            with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
                process = subprocess.Popen([*map(str, command), *words, "told"], cwd=folder, stdin=subprocess.PIPE, stdout=out,
                                           stderr=err, env=env)
            self.addCleanup(process.stdin.close)
            self.addCleanup(process.kill)
            started.append((process, folder))
        for process, _ in started:
            eventually("it waits to be told", lambda pid=process.pid: reads_stdin(pid))
        return started

    @staticmethod
    def tell_all(started):
        """(Ending, milliseconds from when it was told to its end) of each."""

        def fault_to_exit(process, folder):
            told_s = time.monotonic()
            tell(process)
            ending = await_end(process, folder)
            return ending, (ending.end_s - told_s) * 1e3

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda pair: fault_to_exit(*pair), started))

    def check(self, what, started, state=contextlib.nullcontext()):
        with state:
            results = self.tell_all(started)
        if self.alone is None:
            type(self).alone = self.tell_all(self.start_all("alone", environment(**NO_BACKTRACE)))
        more = [ms - alone_ms for (_, ms), (_, alone_ms) in zip(results, self.alone)]
        busy = [self.busyness.allowance_s(ending.end_s - ms / 1e3, ending.end_s) * 1e3 for ending, ms in results]
        slowest = self.deaths[more.index(max(more))]
        print(f"time: {len(results)} ways to die, hold {SHORT_HOLD_MS} ms, {what}: median {statistics.median(more):.0f} ms, "
              f"longest {max(more):.0f} ms ({' '.join(slowest[1:4])}) more than without the agent; up to {max(busy):.0f} ms "
              "allowed for a busy machine", file=sys.stderr, flush=True)
        for command, (ending, _), (alone, _), more_ms, busy_ms in zip(self.deaths, results, self.alone, more, busy):
            with self.subTest(what, words=command[1:4]):
                self.assertEqual(alone.manner, ending.manner, command[1:4])
                self.assertLess(more_ms, SHORT_HOLD_MS + SLACK_MS + busy_ms)

    def under_agent(self):
        return environment(self.dir, STACKD_CRASH_HOLD_MS=str(SHORT_HOLD_MS), **NO_BACKTRACE)

    def daemon(self):
        # Equal crashes are all kept.
        return self.start_daemon(extra_args=["--store-crashes-per-group", "500"])

    def assert_each_is_there(self, daemon, started, but=()):
        expected = sorted(process.pid for (process, _), command in zip(started, self.deaths) if command[1] not in but)

        def found():
            pids = sorted(dump["process"]["pid"] for dump in crashes(daemon))
            return pids if len(pids) >= len(expected) and not daemon.processes() else None

        self.assertEqual(expected, eventually("all crashes are there", found))

    def test_daemon_present(self):
        daemon = self.daemon()
        started = self.start_all("present", self.under_agent(), "await")
        self.check("daemon present", started)
        self.assert_each_is_there(daemon, started)

    def test_daemon_absent(self):
        started = self.start_all("absent", self.under_agent())
        self.check("no daemon", started)
        # Only root may write to this spool.
        self.assert_each_is_there(self.daemon(), started, but=["no_process"])

    def test_daemon_stopped(self):
        daemon = self.daemon()
        started = self.start_all("stopped", self.under_agent(), "await")
        self.check("daemon stopped", started, stopped(daemon))
        self.assert_each_is_there(daemon, started)

    @pytest.mark.alone
    def test_daemon_slow(self):
        daemon = self.daemon()
        started = self.start_all("slow", self.under_agent(), "await")
        self.check("daemon slow", started, slowed(daemon))
        self.assert_each_is_there(daemon, started)


if __name__ == "__main__":
    unittest.main()
