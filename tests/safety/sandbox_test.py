#!/usr/bin/python3
"""Programs whose own filter of system calls refuses nearly all: they end as without the agent, with a daemon, without one, and
under dumps."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

VICTIM = os.path.abspath("tests/safety/sandbox_victim")
BROKERS = ("broker", "broker_on_stack", "broker_nodefer")
CASES = (*BROKERS, "return", "exit", "immediate_exit", "quick_exit", "recovered")
SECONDS = "1"


class SandboxTest(unittest.TestCase):
    def assert_well(self, victim):
        out, err = victim.communicate(timeout=60)
        self.assertEqual((0, "ok\n", ""), (victim.returncode, out, err), stand.describe_exit(victim.returncode))

    def run_alone(self, **environment):
        for case in CASES:
            with self.subTest(case):
                environment = dict(os.environ, **environment)
                self.assert_well(subprocess.Popen([VICTIM, case, "0.1"], env=environment, stdout=subprocess.PIPE,
                                                  stderr=subprocess.PIPE, text=True))

    def test_without_the_agent(self):
        self.run_alone()

    def test_without_a_daemon(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_alone(LD_PRELOAD=stand.AGENT, STACKD_DIR=folder)

    def test_with_a_daemon(self):
        with stand.Stand() as place:
            for case in CASES:
                with self.subTest(case):
                    victim = place.start([VICTIM, case, SECONDS], "sandbox-" + case)
                    place.ask("wait sandbox-" + case)
                    self.assert_well(victim)

    def test_under_dumps(self):
        with stand.Stand() as place:
            for case in BROKERS:
                with self.subTest(case):
                    victim = place.start([VICTIM, case, SECONDS], "sandbox-" + case)
                    place.begin(f"hammer 1 sandbox-{case}")
                    self.assert_well(victim)
                    results = stand.counts(place.answer())
                    self.assertGreater(results["captures"], 0)


if __name__ == "__main__":
    unittest.main()
