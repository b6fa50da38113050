"""The comparison itself: names that mean the same are equal, others are not, and what is apart is reported once."""

import re
import subprocess
import unittest

import harness
import oracle
from oracle import Frame, compare


def frame(function, line=0, inlined=False):
    return Frame(function, "a.c" if line else "", line, inlined, "a")


class ComparableTest(unittest.TestCase):

    def test_equal_for_what_demangler_and_debug_information_write_differently(self):
        for demangled, debug in [
            ("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "std::condition_variable::wait"),
            ("orders::Queue::Pop() const", "orders::Queue::Pop"),
            ("double orders::Nested<double, 4>::Descend(double const&)", "orders::Nested<double, 4>::Descend"),
            ("void f<int, 3ul>(int)", "f<int, 3>"),
            ("std::vector<std::vector<int> > g<int>()", "g<int>"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("msort_with_tmp.part.0", "msort_with_tmp"),
            ("f(int) [clone .isra.0]", "f"),
            ("A::operator()(int) const", "A::operator()"),
            ("A::operator<(A const&) const", "A::operator<"),
            ("main::{lambda(int)#2}::operator()(int) const", "<lambda(int)>::operator()"),
            ("orders::AllCases()::{lambda()#3}::operator()() const", "operator()"),
            ("std::function<void ()>::operator()() const", "std::function<void()>::operator()"),
            ("f[abi:cxx11](int)", "f"),
            ("rust::transfer::h0123456789abcdef", "rust::transfer"),
            ("operator new(unsigned long)", "operator new"),
            ("", "??"),
        ]:
            with self.subTest(demangled):
                self.assertEqual(oracle.comparable(demangled), oracle.comparable(debug))

    def test_different_for_different_functions(self):
        for one, other in [("f<int>", "f<long>"), ("A::f", "B::f"), ("f", ""), ("operator()", "operator[]"),
                           ("A::operator<", "A::operator<<"), ("orders::f()::g", "orders::f()::h")]:
            with self.subTest(one):
                self.assertNotEqual(oracle.comparable(one), oracle.comparable(other))


class CompareTest(unittest.TestCase):

    def kinds(self, ours, theirs):
        return [d.kind for d in compare(1, ours, theirs)]

    def test_equal_stacks_have_no_difference(self):
        stack = [frame("read", 3, inlined=True), frame("f", 4), frame("main", 9)]
        self.assertEqual([], self.kinds(stack, list(stack)))

    def test_a_line_that_gdb_lacks_is_no_difference(self):
        self.assertEqual([], self.kinds([frame("read", 3)], [frame("read")]))

    def test_each_kind_is_told(self):
        main = frame("main", 9)
        self.assertEqual(["NAME"], self.kinds([frame("f"), main], [frame("g"), main]))
        self.assertEqual(["MISSING"], self.kinds([main], [frame("g"), main]))
        self.assertEqual(["EXTRA"], self.kinds([frame("f"), main], [main]))
        self.assertEqual(["LINE"], self.kinds([frame("f", 1)], [frame("f", 2)]))
        self.assertEqual(["LINE"], self.kinds([frame("f")], [frame("f", 2)]))
        self.assertEqual(["INLINE"], self.kinds([frame("f")], [frame("f", inlined=True)]))
        self.assertEqual(["MISSING", "MISSING"], self.kinds([], [frame("f"), main]))

    def test_a_renamed_frame_is_one_difference_though_its_name_comes_again_further_out(self):
        ours = [frame("__libc_read"), frame("read", 3, inlined=True), frame("f")]
        theirs = [frame("read"), frame("read", 3, inlined=True), frame("f")]
        self.assertEqual(["NAME"], self.kinds(ours, theirs))
        aliases = {("__libc_read", "read")}
        differences = compare(1, ours, theirs, lambda a, b: (a.function, b.function) in aliases)
        self.assertEqual(["ALIAS"], [d.kind for d in differences])

    def test_one_missing_frame_is_one_difference_and_not_all_that_follow(self):
        stack = [frame(name) for name in "abcdef"]
        self.assertEqual(["MISSING"], self.kinds(stack[:2] + stack[3:], stack))


class GdbTest(unittest.TestCase):
    """gdb as it is read here agrees with eu-stack, which shares nothing with it."""

    def test_frames_equal_those_of_eu_stack(self):
        victim = harness.Victim([harness.PROGRAMS / "c_calls"], preload=False)
        self.addCleanup(victim.kill)
        text = subprocess.run(["eu-stack", "-p", str(victim.pid)], capture_output=True, text=True).stdout
        threads = {}
        for line in text.splitlines():
            if line.startswith("TID "):
                names = threads[int(line.split()[1].rstrip(":"))] = []
            elif line.startswith("#"):
                # "#1  0x00007f1234567890 name"; " - 1" behind the address of a caller.
                names.append(re.sub(r"^#\d+\s+0x[0-9a-f]+( - 1)?\s*", "", line).strip())
        gdb = {tid: [frame for frame in frames if not frame.inlined] for tid, frames in oracle.of_gdb(victim.pid).items()}
        self.assertEqual({tid: len(names) for tid, names in threads.items()}, {tid: len(f) for tid, f in gdb.items()})
        same = [(ours, frame.function) for tid in gdb for ours, frame in zip(threads[tid], gdb[tid])
                if oracle.comparable(ours) == frame.function]
        # The rest are libc's aliases: eu-stack prints read where gdb prints __GI___libc_read.
        self.assertGreater(len(same), 200)


if __name__ == "__main__":
    unittest.main()
