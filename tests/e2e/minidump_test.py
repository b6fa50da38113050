"""Minidumps: minidump-stackwalk, which shares nothing with us, finds in ours the threads, the modules and the names that we
say are there.

It unwinds and names by itself, with the same binaries. Compared are the physical frames of each thread, innermost first, up to the
thread's first function. What it goes on to guess behind that is its own. Victims with signal frames or code without unwind tables
are not asked for: there it guesses in the middle.
"""

import json
import os
import shutil
import subprocess
import unittest

import crash_core
import oracle
import symbol_aliases
from crashes import CrashTest, crash_of, environment, run_to_end
from harness import OK, PROGRAMS

STACKWALK = shutil.which("minidump-stackwalk")


class Stackwalk:
    """What minidump-stackwalk says of a minidump."""

    def __init__(self, minidump):
        done = subprocess.run([STACKWALK, "--json", "--use-local-debuginfo", str(minidump)], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"minidump-stackwalk ended with {done.returncode}: {done.stderr}")
        self.report = json.loads(done.stdout)
        self.threads = {thread["thread_id"]: thread for thread in self.report["threads"]}
        self.modules = {int(module["base_addr"], 16): module for module in self.report["modules"]}
        self.crash = self.report["crash_info"]
        self.crashing_tid = self.report.get("crashing_thread", {}).get("thread_id")


def physical(frames):
    """Without what was inlined: a minidump knows of frames in memory only."""
    return [frame for frame in frames if frame.get("origin") != "INLINED"]


def same_function(our, their, paths):
    """Whether both frames have the same name, or two names of one address."""
    one, other = oracle.comparable(our.get("function")), oracle.comparable(their["function"])
    if not one:
        # Where no symbol covers an address they make up a name.
        return not other or other.startswith("fun_")
    # They take a leading underscore off, as if every file came from a Mac.
    path = paths.get(our["module"], "")
    return one == other or any(symbol_aliases.same_function(path, one, name) for name in (other, "_" + other))


@unittest.skipIf(STACKWALK is None, "no minidump-stackwalk: deploy/install-deps.sh --tests builds it where there is a cargo")
class MinidumpTest(CrashTest):

    def export(self, daemon, dump):
        file = self.dir / "exported.dmp"
        outcome = daemon.ctl("export", dump.name, "-f", "minidump", "--to", file)
        self.assertEqual(OK, outcome.code, outcome.err)
        return Stackwalk(file)

    def paths(self, dump):
        return {os.path.basename(module["path"]): module["path"] for module in dump.modules}

    def assert_same_modules(self, dump, walk):
        for module in dump.modules:
            theirs = walk.modules.get(int(module["address"], 16))
            self.assertIsNotNone(theirs, f"{module} is not in the minidump")
            self.assertEqual(module.get("buildId", ""), theirs["code_id"])
            if module["path"].startswith("/"):
                self.assertEqual(os.path.basename(module["path"]), theirs["filename"])

    def assert_same_stack(self, dump, tid, walk):
        """Returns how many frames were compared."""
        ours, theirs = physical(crash_core.unfolded(dump, tid)), walk.threads[tid]["frames"]
        paths = self.paths(dump)
        for depth, (our, their) in enumerate(zip(ours, theirs)):
            where = f"thread {tid} ({dump.threads[tid].get('name')}), frame {depth}: {our} is not {their}"
            # They show the call, we the address that it returns to.
            self.assertIn(int(our["address"], 16) - int(their["offset"], 16), (0, 1), where)
            self.assertEqual(our["module"], their["module"], where)
            self.assertTrue(same_function(our, their, paths), where)
        self.assertGreaterEqual(len(theirs), len(ours), f"thread {tid}: {theirs[-1]} is their last, not {ours[-1]}")
        return len(ours)

    def check_live(self, program, least_frames):
        daemon = self.start_daemon()
        victim = self.start_victim(program)
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        walk = self.export(daemon, dump)
        self.assertEqual(victim.pid, walk.report["pid"])
        self.assertIsNone(walk.crashing_tid)
        self.assertEqual(program, walk.report["modules"][0]["filename"])
        self.assert_same_modules(dump, walk)
        with_stack = {tid for tid in dump.threads if dump.stack(tid)}
        self.assertEqual(with_stack, set(walk.threads))
        self.assertEqual({tid: dump.threads[tid]["name"] for tid in with_stack},
                         {tid: thread["thread_name"] for tid, thread in walk.threads.items()})
        frames = {tid: self.assert_same_stack(dump, tid, walk) for tid in sorted(with_stack)}
        # How many the agent's own thread has is the compiler's affair.
        compared = sum(count for tid, count in frames.items() if dump.threads[tid]["name"] != "stackd-agent")
        print(f"minidump: {program:<18} {len(with_stack):>3} stacks, {compared:>4} frames", flush=True)
        self.assertGreaterEqual(compared, least_frames)

    def test_cpp(self):
        self.check_live("cpp_calls", 80)

    def test_deep_recursion(self):
        self.check_live("c_calls", 250)

    def test_fiber(self):
        self.check_live("fiber", 9)

    def check_crash(self, daemon, crash_type, death, *words):
        ending = run_to_end([PROGRAMS / "crash_deaths", death, *words, "await"], self.dir / death, environment(self.dir))
        dump = crash_of(daemon, ending.pid)
        walk = self.export(daemon, dump)
        crash = dump.resource["crash"]
        self.assertEqual(ending.signal, crash["signal"])
        self.assertEqual(crash_type, walk.crash["type"])
        self.assertEqual(int(crash.get("faultAddress") or "0", 16), int(walk.crash["address"], 16))
        self.assertEqual(crash["tid"], walk.crashing_tid)
        self.assertEqual(ending.pid, walk.report["pid"])
        self.assert_same_modules(dump, walk)
        return dump, crash["tid"], walk

    def check_whole_crash(self, daemon, crash_type, death, *words):
        dump, tid, walk = self.check_crash(daemon, crash_type, death, *words)
        compared = self.assert_same_stack(dump, tid, walk)
        print(f"minidump: {death:<18} {crash_type}, {compared} frames", flush=True)

    def test_crashes_of_the_main_thread(self):
        daemon = self.start_daemon()
        for death, crash_type in (("null_pointer", "SIGSEGV / SEGV_MAPERR"), ("divide", "SIGFPE / FPE_INTDIV"),
                                  ("truncated_file", "SIGBUS / BUS_ADRERR"), ("illegal", "SIGILL / ILL_ILLOPN"),
                                  ("failed_assertion", "SIGABRT / SI_TKILL")):
            with self.subTest(death=death):
                self.check_whole_crash(daemon, crash_type, death)

    def test_crash_of_another_thread(self):
        self.check_whole_crash(self.start_daemon(), "SIGABRT / SI_TKILL", "double_free", "thread")

    def test_stack_overflow(self):
        """Both ends of the stack are there; they do not find the way over the gap."""
        _, tid, walk = self.check_crash(self.start_daemon(), "SIGSEGV / SEGV_MAPERR", "overflow")
        self.assertEqual({"descend"}, {frame["function"] for frame in walk.threads[tid]["frames"][:100]})


if __name__ == "__main__":
    unittest.main()
