"""A process that crashes ends in time: never more than the hold and 100 ms later than without the agent, whatever the daemon
does. The first process of a PID namespace, whom the kernel spares much, ends as it would.

    time: daemon stopped, hold 500 ms      null_pointer                512 ms (without the agent 1 ms)
"""

import contextlib
import os
import signal
import statistics
import struct
import subprocess
import sys
import threading
import unittest

from crashes import CrashTest, await_end, crashes, environment
from harness import AGENT, PROGRAMS, eventually

HOLD_MS = 2000
SLACK_MS = 100

# One that faults, one that aborts, one with threads that die at the same time, one without stack.
DEATHS = [["null_pointer"], ["call_abort"], ["null_pointer", "threads"], ["overflow", "thread"]]


class CrashTimeTest(CrashTest):

    def setUp(self):
        super().setUp()
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
        process.stdin.write(b"\n")
        process.stdin.flush()
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
            self.assertLess(ms, alone_ms + (hold_ms or HOLD_MS) + SLACK_MS)

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
                daemon.process.send_signal(signal.SIGCONT)
                self.check("daemon stopped", words, at_death=lambda: daemon.process.send_signal(signal.SIGSTOP),
                           hold_ms=hold_ms)
        daemon.process.send_signal(signal.SIGCONT)
        self.assert_all_are_there(daemon, 2 * len(DEATHS))

    @contextlib.contextmanager
    def slowed(self, daemon):
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

    def test_daemon_slow(self):
        daemon = self.start_daemon()
        with self.slowed(daemon):
            for words in DEATHS:
                self.check("daemon slow", words)
        self.assert_all_are_there(daemon, len(DEATHS))

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


if __name__ == "__main__":
    unittest.main()
