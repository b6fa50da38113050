"""Harmless to programs that use the fatal signals themselves. They have the same output and end as without the agent. No crash
is stored of what they recovered from, and of those that die the true fault is. The cost of a recovered fault is printed."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from crashes import CrashTest, crash_of, crashes, environment, run_to_end
from harness import PROGRAMS, ROOT, eventually

SOURCES = ROOT / "tests/programs"


class CrashHarmlessTest(CrashTest):

    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def run_both(self, command, *, words=("await",), env=None, same=lambda text: text):
        """Runs a command on its own and under the agent, and compares how both ended. `words` are for the second run only;
        `same` takes out of the output what no two runs have in common. Returns both Endings."""
        alone = run_to_end(command, self.dir / "without", environment(**(env or {})))
        watched = run_to_end([*command, *words], self.dir / "with", environment(self.dir, **(env or {})))
        self.assertEqual(alone.manner, watched.manner, watched.err.decode()[-2000:])
        self.assertEqual(same(alone.out.decode()), same(watched.out.decode()))
        self.assertEqual(same(alone.err.decode()), same(watched.err.decode()))
        eventually("the daemon has seen the end of it", lambda: not self.daemon.processes())
        return alone, watched

    def assert_no_crash(self):
        """None, though the daemon would have it: the one of a program that does die is there."""
        died = run_to_end([PROGRAMS / "crash_deaths", "null_pointer", "await"], self.dir / "dies", environment(self.dir))
        crash_of(self.daemon, died.pid)
        eventually("the daemon has seen the end of it", lambda: not self.daemon.processes())
        self.assertEqual([died.pid], [dump["process"]["pid"] for dump in crashes(self.daemon)])

    def check_recovers(self, how, count, threads=1, **kwargs):
        costs = []

        def without_cost(text):
            costs.extend(re.findall(r"ns per fault: (\d+)\n", text))
            return re.sub(r"ns per fault: \d+\n", "", text)

        endings = self.run_both([PROGRAMS / "crash_recovers", how, count, threads], same=without_cost, **kwargs)
        if costs:
            alone, watched = map(int, costs)
            print(f"harmless: {how:<10} {threads} x {count}: {alone} ns per fault, {watched} with the agent "
                  f"({watched / alone:.1f} times)", file=sys.stderr, flush=True)
        return endings

    def test_100000_faults_whose_handler_jumps_out(self):
        self.check_recovers("jump", 100000)
        self.assert_no_crash()

    def test_100000_faults_whose_handler_rewrites_the_context(self):
        self.check_recovers("rewrite", 100000)
        self.assert_no_crash()

    def test_faults_whose_handler_leaves_by_setcontext(self):
        self.check_recovers("context", 20000)
        self.assert_no_crash()

    def test_four_threads_that_jump_out_at_once(self):
        self.check_recovers("jump", 20000, 4)
        self.assert_no_crash()

    def test_four_threads_that_rewrite_the_context_at_once(self):
        self.check_recovers("rewrite", 20000, 4)
        self.assert_no_crash()

    def test_write_barriers_of_four_threads(self):
        self.check_recovers("barrier", 20000, 4)
        self.assert_no_crash()

    def test_10000_threads_with_alternate_stacks_of_their_own(self):
        self.check_recovers("altstack", 10000, 16)
        self.assert_no_crash()

    def test_a_crash_after_faults_that_were_recovered_is_the_one_that_counts(self):
        _, watched = self.check_recovers("then_die", 1000)
        dump = crash_of(self.daemon, watched.pid)
        self.assertEqual("die_at_last", dump.functions(dump.resource["crash"]["tid"])[0])
        self.assertEqual([dump.name], [other["name"] for other in crashes(self.daemon)])

    def test_exit_inside_the_last_handler_is_a_crash_there(self):
        _, watched = self.check_recovers("then_exit", 1000)
        dump = crash_of(self.daemon, watched.pid)
        self.assertEqual("load", dump.functions(dump.resource["crash"]["tid"])[0])
        self.assertEqual([dump.name], [other["name"] for other in crashes(self.daemon)])

    def test_exceptions_thrown_out_of_the_handler(self):
        self.run_both([PROGRAMS / "crash_throws", 1000])
        self.assert_no_crash()

    def test_go_program_that_recovers_nil_dereferences(self):
        go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
        if go is None:
            self.skipTest("no go")
        program = self.dir / "recovers"
        subprocess.run([go, "build", "-o", program, SOURCES / "crash_recovers.go"], check=True, cwd=self.dir,
                       env=dict(os.environ, CGO_ENABLED="1", GO111MODULE="off", GOFLAGS=""))
        self.run_both([program, 5000])
        self.assert_no_crash()

    def check_sanitized(self, error, env=None, *options):
        source = self.dir / "sanitized.c"
        source.write_text(SANITIZED)
        program = self.dir / "sanitized"
        built = subprocess.run(["gcc", "-O1", "-g", "-fsanitize=address", *options, "-o", program, source],
                               capture_output=True, text=True)
        if built.returncode:
            self.skipTest(f"no address sanitizer: {built.stderr[:200]}")

        def same(text):
            return re.sub(r"\bT?-?\d+\b", "N", re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"==\d+==", "==", text)))

        _, watched = self.run_both([program, error], words=(), env=env, same=same)
        self.assertIn(b"ERROR: AddressSanitizer", watched.err)

    def test_address_sanitizer_reports_a_heap_error_itself(self):
        self.check_sanitized("heap", None, "-static-libasan")
        self.assert_no_crash()

    def test_address_sanitizer_reports_a_null_pointer_itself(self):
        self.check_sanitized("null", None, "-static-libasan")

    def test_address_sanitizer_in_a_library_reports_a_null_pointer_itself(self):
        # It wants to be the first library of all, which no LD_PRELOAD lets it be.
        self.check_sanitized("null", {"ASAN_OPTIONS": "verify_asan_link_order=0"})

    def test_python_faulthandler_prints_its_text_and_the_crash_is_the_true_fault(self):
        command = ["/usr/bin/python3", "-X", "faulthandler", "-c", "import ctypes\ndef f(): ctypes.string_at(8)\nf()"]
        _, watched = self.run_both(command, words=(), same=lambda text: re.sub(r"0x[0-9a-f]+", "0x", text))
        self.assertIn(b"Fatal Python error: Segmentation fault", watched.err)
        dump = crash_of(self.daemon, watched.pid)
        crash = dump.resource["crash"]
        self.assertEqual(("SIGSEGV", "SEGV_MAPERR", 8),
                         (crash["signalName"], crash["codeName"], int(crash["faultAddress"], 16)))
        self.assertEqual(1, len(crashes(self.daemon)))


# Without a wait for the agent's ring: it may be there or not when the error comes.
SANITIZED = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static void heap(void) {
  volatile char* volatile block = malloc(10);
  free((void*)block);
  block[3] = 1;
}
__attribute__((noinline)) static void null(void) {
  volatile int* volatile nowhere = NULL;
  *nowhere = 1;
}
int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "heap") == 0) heap();
  null();
  return 0;
}
"""

if __name__ == "__main__":
    unittest.main()
