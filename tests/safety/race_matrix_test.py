#!/usr/bin/python3
"""Programs that a badly timed signal would break, each under dumps as fast as they go.

STACKD_TEST_SECONDS is the time for each (5 by default, 600 with tests/run.sh --all).
"""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

SECONDS = float(os.environ.get("STACKD_TEST_SECONDS", "600" if os.environ.get("STACKD_TEST_TIER") == "all" else "5"))

# Case, and the least number of captures a second that makes the result worth something.
CASES = [
    ("malloc", 5),
    ("dlopen", 5),
    ("fork", 10),
    ("fork_long", 10),
    ("vfork_exec", 5),
    ("spawn", 5),
    ("thread_churn", 5),
    ("throw", 5),
    ("longjmp", 5),
    ("fibers", 5),
    ("nested_signals", 5),
    ("setuid", 5),
    ("close_all", 1),
    ("exec", 1),
    ("signal_resets", 5),
    ("cancel", 5),
    ("sigwait", 5),
    ("main_exits", 5),
    ("tiny_stacks", 5),
    ("shared_stacks", 5),
    ("state", 5),
    ("long_stacks", 5),
    ("seccomp", 5),
    ("seccomp_no_read", 5),
]


class RaceMatrix(unittest.TestCase):
    def run_case(self, case, least_captures):
        with stand.Stand() as place:
            victim = place.start([stand.VICTIMS, case, str(SECONDS)], "victim-" + case, env={"STACKD_SECCOMP_DUMPS": "1"})
            place.begin(f"hammer {max(1, int(SECONDS))} victim-{case}")
            try:
                out, err = victim.communicate(timeout=SECONDS + 30)
            except subprocess.TimeoutExpired:
                victim.kill()
                self.fail(f"hangs: {victim.communicate()}")
            results = stand.counts(place.answer())
            print(case, results, file=sys.stderr)
            self.assertEqual(victim.returncode, 0, f"{stand.describe_exit(victim.returncode)}: {err}")
            self.assertEqual(out, "ok\n", err)
            self.assertEqual(err, "")
            self.assertGreaterEqual(results["captures"], least_captures * SECONDS)
            self.assertEqual(results["unaccounted"], 0)
            self.assertEqual(results["counter_ring_corrupt_records"], 0)


for case_name, least in CASES:
    setattr(
        RaceMatrix,
        f"test_{case_name}",
        lambda self, case_name=case_name, least=least: self.run_case(case_name, least),
    )

if __name__ == "__main__":
    unittest.main()
