#!/usr/bin/python3
"""What the agent costs a program that lives on faults, and one that creates threads."""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand

VICTIM = os.path.abspath("tests/safety/crash_victim")
RUNS = 12
# A machine with other work needs more runs until one of each kind was left alone.
MAX_RUNS = 60


def round_ns(arguments, environment, rounds):
    result = subprocess.run(
        [VICTIM, *arguments], env=dict(os.environ, ROUNDS=str(rounds), **environment), capture_output=True, check=True
    )
    return int(re.match(rb"(\d+) ns a round", result.stdout)[1])


class CrashCost(unittest.TestCase):
    def compare(self, how, action, rounds, limit):
        """The shortest round of each, measured in turn."""
        under = {"LD_PRELOAD": stand.AGENT, "STACKD_DIR": "/nonexistent"}
        without, with_agent = [], []
        while len(without) < RUNS or (min(with_agent) >= limit * min(without) and len(without) < MAX_RUNS):
            without.append(round_ns([how, action, "main"], {}, rounds))
            with_agent.append(round_ns([how, action, "main"], under, rounds))
        print(f"{how} {action}: {min(without)} ns without, {min(with_agent)} ns with the agent ({len(without)} runs)")
        self.assertLess(min(with_agent) / min(without), limit)

    def test_a_recovered_fault_costs_less_than_three(self):
        self.compare("protected", "repairs", 3000, 3)
        self.compare("protected", "repairs+onstack", 3000, 3)
        self.compare("protected", "longjmps", 10000, 3)
        self.compare("raise_SEGV", "returns", 10000, 3)

    def test_a_thread_costs_hardly_more(self):
        self.compare("thread", "default", 2000, 2)


if __name__ == "__main__":
    unittest.main()
