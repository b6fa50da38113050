"""Right without a signal: stacks that were read asleep (`stackctl dump --quiet only`) are gdb's, frame by frame.

Each victim of tests/hangs is compared, and the victims in C as two compilers build them (build_matrix.py). A stack may end
early where its reason says so. Any other difference fails the test, but for the reasons of gdb_comparison.py. Servers and
programs of other languages are compared in right_test.
"""

import re
import shutil
import unittest

import pytest

import build_matrix
import hang_programs
import hang_table
from gdb_comparison import BELOW_A_FIBER, NO_UNWIND_TABLES, GdbComparison
from harness import ROOT

PREPARE = [*hang_programs.PREPARE, build_matrix.prepare]

PROGRAMS = ("hang_cpp", "hang_cpu", "hang_kernel", "hang_mutex", "hang_parking_lot", "hang_rust", "hang_shared", "hang_sync", "idle",
            "leaders")
ROWS = [*hang_table.VICTIMS, *hang_table.IDLE]
# What is done to the others stops them: they are asleep in no call. gdb waits for ever for a thread in vfork.
ASLEEP = ("", "in_child", "beside_child")
IN_VFORK = ("owner_uninterruptible",)
# How a stack ends where the next frame is not sure.
UNSURE = ("NO_UNWIND_INFO", "UNKNOWN_REGISTER")
BY_DEFAULT = ("hang_sync",)
EXPLAINED = {"fiber": BELOW_A_FIBER, "jit": NO_UNWIND_TABLES}
# Threads whose stacks may end at a register that is not known, by program: above the last frame more than one place could be right.
# A stack of another thread that ends so fails the test.
NOT_SURE = {
    "jit": {"jit"},
    "luajit": {"luajit"},
    "odd_frames": {"aligned", "aligned-deep", "array", "array-deep", "arrays", "branch", "branch-deep", "growing", "loop", "loop-deep",
                   # By chance of the compiler, a byte before its function looks like a jump to it.
                   "one"},
    "odd_frames_static": {"array", "array-deep", "loop", "loop-deep"},
}
MADE_CODE = ("no_frame_pointers", "number_in_rbp")
# The thread of jit.c, from the function that its made code called.
CALLED_BY_JIT = ["called_by_jit", "", "", "", "run_jitted", "victim_thread_main", "start_thread", "clone3"]


def modes_of(program):
    """(mode, whether its child is meant) of a program of tests/hangs."""
    if program == "leaders":
        return [(mode, False) for mode in hang_programs.LEADERS]
    return sorted({(row.mode, row.then == "in_child") for row in ROWS
                   if row.program == program and row.then in ASLEEP and row.mode not in IN_VFORK})


class QuietRightTest(GdbComparison):
    ways = ("only",)
    prints_each_process = False
    limit_s = 900

    def compare_process(self, daemon, pid, name, **kwargs):
        dump = super().compare_process(daemon, pid, name, **kwargs)
        early = {thread["name"] for tid, thread in dump.threads.items()
                 if thread.get("readAsleep") and dump.stack(tid)["end"] == "UNKNOWN_REGISTER"}
        self.assertLessEqual(early, NOT_SURE.get(name.split(" ", maxsplit=1)[0], set()))
        return dump

    def compare_program(self, daemon, path, *args, in_child=False, **kwargs):
        victim = self.start_victim(path, *args, env={"STACKD_SECCOMP_DUMPS": "1"})
        pid = int(re.search(rb"child (\d+)", victim.output).group(1)) if in_child else victim.pid
        with self.subTest(program=path.name, args=args):
            dump = self.compare_process(daemon, pid, path.name, **kwargs)
        victim.kill()
        return dump

    def compare_hangs(self, daemon, path):
        for mode, in_child in modes_of(path.name):
            self.compare_program(daemon, path, mode, in_child=in_child)

    def check_hangs(self, program):
        path = hang_programs.path_of(program)
        if path is None:
            self.skipTest("there is no Rust compiler, or no crate registry, to build it with")
        self.compare_hangs(self.start_daemon(), path)

    def need(self, build):
        """The folder of its programs."""
        return build.folder() or self.skipTest(f"no {build.compiler}")

    def check_programs_of(self, build):
        folder, daemon = self.need(build), self.start_daemon()
        for name in build_matrix.SOURCES["tests/programs"]:
            dump = self.compare_program(daemon, folder / name, explained=EXPLAINED.get(name, ()))
            if name == "jit":
                self.check_made_code(dump)
        for shape in MADE_CODE:
            victim = self.start_victim(folder / "jit", shape)
            daemon.await_process(victim.pid)
            for quiet in ("never", "only"):
                with self.subTest(shape, quiet=quiet):
                    dump = daemon.dump(victim.pid, "--native-only", "--quiet", quiet)
                    self.check_ends_in_made_code(dump, "called_by_jit")
            victim.kill()

    def check_hangs_of(self, build):
        folder, daemon = self.need(build), self.start_daemon()
        for name in build_matrix.SOURCES["tests/hangs"]:
            self.compare_hangs(daemon, folder / name)

    def check_made_code(self, dump):
        """gdb cannot be asked here: all frames are right, or the stack ends with its reason."""
        tid = next(tid for tid in dump.threads if CALLED_BY_JIT[0] in dump.functions(tid))
        functions = dump.functions(tid)
        found = functions[functions.index(CALLED_BY_JIT[0]):]
        self.assertEqual(CALLED_BY_JIT[:len(found)], found)
        self.assertIn(dump.stack(tid)["end"], ("ROOT",) if found == CALLED_BY_JIT else UNSURE)

    def check_ends_in_made_code(self, dump, caller):
        """The stack of the thread that made code called `caller` from is right up to the first frame of that code, and ends there."""
        tid = next(tid for tid in dump.threads if caller in dump.functions(tid))
        functions = dump.functions(tid)
        self.assertEqual([caller, ""], functions[functions.index(caller):])
        self.assertIn(dump.stack(tid)["end"], UNSURE)

    def test_code_made_at_run_time(self):
        daemon = self.start_daemon()
        for shape in MADE_CODE:
            with self.subTest(shape):
                victim = self.start_victim("jit", shape)
                dump = self.compare_process(daemon, victim.pid, f"jit {shape}", explained=NO_UNWIND_TABLES, least_threads=2)
                self.check_ends_in_made_code(dump, "called_by_jit")

    def test_trace_of_luajit(self):
        if shutil.which("luajit") is None:
            self.skipTest("no luajit")
        daemon = self.start_daemon()
        victim = self.start_victim(shutil.which("luajit"), ROOT / "tests/programs/waits_in_trace.lua")
        dump = self.compare_process(daemon, victim.pid, "luajit", explained=NO_UNWIND_TABLES)
        self.check_ends_in_made_code(dump, dump.functions(victim.pid)[0])

    def test_says_which_frames_were_searched_for(self):
        daemon = self.start_daemon()
        victim = self.start_victim("odd_frames")
        dump = self.compare_process(daemon, victim.pid, "odd_frames", least_threads=15)
        for name, callee in (("block", "with_aligned_block"), ("one", "called_from_one_place")):
            with self.subTest(name):
                frames = dump.frames(dump.named(name))
                origins = [frame["origin"] for frame in frames]
                self.assertEqual(1, origins.count("SEARCH"), origins)
                self.assertEqual(callee, frames[origins.index("SEARCH") - 1]["function"])
                self.assertEqual("ROOT", dump.stack(dump.named(name))["end"])

    def test_static_program(self):
        daemon = self.start_daemon()
        victim = self.start_victim("odd_frames_static", preload=False)
        self.compare_process(daemon, victim.pid, "odd_frames_static", least_threads=15)


def add_case(name, check, what, is_default):

    def case(self):
        check(self, what)

    setattr(QuietRightTest, name, case if is_default else pytest.mark.thorough(case))


def add_cases():
    for program in PROGRAMS:
        add_case(f"test_{program}", QuietRightTest.check_hangs, program, program in BY_DEFAULT)
    for build in build_matrix.BUILDS:
        add_case(f"test_programs_{build.name}", QuietRightTest.check_programs_of, build, build in build_matrix.BY_DEFAULT)
        add_case(f"test_hangs_{build.name}", QuietRightTest.check_hangs_of, build, False)


add_cases()

if __name__ == "__main__":
    unittest.main()
