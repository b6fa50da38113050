"""Programs that people have do their work under the agent while they are dumped all the time. They have the same output, result,
status and standard error as alone.

By default those that are quick; all of ordinary_jobs by `tests/run.sh --all`.
"""

import unittest

import pytest

from harness import free_port
from ordinary_jobs import JOBS
from side_by_side import ALONE, DUMPS, SideBySideTest
from tier import FULL

# How often a job is done while it is dumped: some last for a fraction of a second.
REPEATS = 3


class OrdinaryProgramsTest(SideBySideTest):
    kinds = (ALONE, DUMPS)

    def do(self, job):
        self.need(*job.programs.split())
        self.environment["PORT"] = str(free_port())
        end = self.side_by_side(["bash", "-c", job.script], dumped=True, repeats=REPEATS,
                                at_least_s=60 if FULL and job.minute else 0)
        self.assertIsNotNone(end)
        self.assertEqual(0, end.status, end)
        self.assertIn(job.result, end.out, end)


def case_of(job):
    def case(self):
        self.do(job)

    return case if job.quick else pytest.mark.thorough(case)


def add_cases():
    for job in JOBS:
        setattr(OrdinaryProgramsTest, "test_" + job.name.replace("-", "_"), case_of(job))


add_cases()


if __name__ == "__main__":
    unittest.main()
