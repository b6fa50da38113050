"""Dumps that leave threads asleep (--quiet): what is read is of one moment, and nothing is interrupted."""

import os
import subprocess
import time
import unittest

import pytest
from harness import OK, StackdTest, die_with_parent
from tier import FULL

THREADS = 24
# So many stacks of sleepers are worth a verdict.
STACKS = 100_000 if FULL else 2_000
DEPTH = 12


def fault_of(functions):
    """Why the stack of a thread of call_paths cannot be; None: it can."""
    if "Sleep" not in functions:
        return None if functions and functions[-1] in ("clone3", "start_thread", "_start") else "no root"
    path = functions[functions.index("Sleep"):]
    end, turns, worker = path[1], path[2:2 + DEPTH], path[2 + DEPTH]
    if set(turns) - {"Left", "Right"} or worker != "Worker":
        return "not a path"
    return None if end == ("OddEnd" if turns.count("Right") % 2 else "EvenEnd") else "of two moments"


def plain(function):
    return function.split("::")[-1].split("(")[0]


class QuietTest(StackdTest):
    limit_s = 900

    def test_stacks_are_of_one_moment(self):
        daemon = self.start_daemon()
        victim = self.start_victim("call_paths", THREADS)
        daemon.await_process(victim.pid)
        stacks = whole = 0
        faults = []
        until = time.monotonic() + self.limit_s / 2
        while stacks < STACKS and time.monotonic() < until:
            dump = daemon.dump(victim.pid, "--quiet", "only")
            for tid, thread in dump.threads.items():
                if not thread.get("readAsleep") or tid == victim.pid:
                    continue
                stacks += 1
                self.assertEqual("ROOT", dump.stack(tid).get("end"), dump.functions(tid))
                # "Step" is inlined in all others.
                functions = [name for name in map(plain, dump.functions(tid)) if name != "Step"]
                whole += "Sleep" in functions
                if fault := fault_of(functions):
                    faults.append(f"{fault}: {' '.join(functions)}")
        self.assertGreaterEqual(stacks, STACKS)
        self.assertGreater(whole, stacks / 2)
        self.assertFalse(faults, f"{len(faults)} of {stacks}:\n" + "\n".join(faults[:10]))

    def test_a_thread_that_runs_is_left_alone_and_said_to_run(self):
        daemon = self.start_daemon()
        victim = self.start_victim("vdso_loop")
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid, "--quiet", "only")
        running = [tid for tid in dump.threads if dump.status(tid) == "RUNNING"]
        self.assertTrue(running, dump.threads)
        for tid in running:
            self.assertIsNone(dump.stack(tid))
            self.assertEqual("running", dump.threads[tid]["state"])
        self.assertEqual(len(running), dump.counts["running"])
        self.assertTrue(any("--quiet prefer" in note for note in dump.notes), dump.notes)

    # Else it may wait for its processor for longer than the agent does.
    @pytest.mark.alone
    def test_a_thread_that_was_woken_has_the_signal_that_woke_it(self):
        """A signal of the agent's would be taken first, and sigsuspend() return without the other."""
        daemon = self.start_daemon()
        victim = self.start_victim("suspends", stdin="")
        daemon.await_process(victim.pid)
        # It waits for its processor for some milliseconds each time.
        os.sched_setaffinity(victim.pid, {0})
        os.setpriority(os.PRIO_PROCESS, victim.pid, 10)
        busy = subprocess.Popen(["taskset", "-c", "0", "sh", "-c", "while :; do :; done"], preexec_fn=die_with_parent)
        waker = subprocess.Popen(["sh", "-c", f"while kill -USR2 {victim.pid}; do sleep 0.002; done"], preexec_fn=die_with_parent)
        for _ in range(300):
            self.assertEqual(OK, daemon.ctl("dump", victim.pid, "--quiet", "prefer").code)
        for process in (waker, busy):
            process.kill()
            process.wait()
        woken_with, woken_without = map(int, victim.ask("").split())
        self.assertGreater(woken_with, 10)
        self.assertEqual(0, woken_without)

    def test_what_was_not_interrupted_is_said(self):
        daemon = self.start_daemon()
        victim = self.start_victim("c_calls")
        daemon.await_process(victim.pid)
        text = daemon.ctl("dump", victim.pid, "--quiet", "only").out
        self.assertRegex(text, r"\d+ threads, all captured \(\d+ asleep, without a signal\), in")
        self.assertNotIn("longest pause", text)
        self.assertIn("--quiet", daemon.ctl("dump", victim.pid, "--quiet", "perhaps").err)


if __name__ == "__main__":
    unittest.main()
