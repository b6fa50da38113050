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


def least_ns(arguments, environments, rounds):
    """The shortest round for each, measured in turn: the machine may have other work."""
    times = {name: [] for name in environments}
    for _ in range(RUNS):
        for name, environment in environments.items():
            result = subprocess.run(
                [VICTIM, *arguments], env=dict(os.environ, ROUNDS=str(rounds), **environment), capture_output=True, check=True
            )
            times[name].append(int(re.match(rb"(\d+) ns a round", result.stdout)[1]))
    return {name: min(values) for name, values in times.items()}


class CrashCost(unittest.TestCase):
    def compare(self, how, action, rounds):
        under = {"LD_PRELOAD": stand.AGENT, "STACKD_DIR": "/nonexistent"}
        ns = least_ns([how, action, "main"], {"without": {}, "with": under}, rounds)
        print(f"{how} {action}: {ns['without']} ns without, {ns['with']} ns with the agent")
        return ns["with"] / ns["without"]

    def test_a_recovered_fault_costs_less_than_three(self):
        self.assertLess(self.compare("protected", "repairs", 3000), 3)
        self.assertLess(self.compare("protected", "repairs+onstack", 3000), 3)
        self.assertLess(self.compare("protected", "longjmps", 10000), 3)
        self.assertLess(self.compare("raise_SEGV", "returns", 10000), 3)

    def test_a_thread_costs_hardly_more(self):
        self.assertLess(self.compare("thread", "default", 2000), 2)


if __name__ == "__main__":
    unittest.main()
