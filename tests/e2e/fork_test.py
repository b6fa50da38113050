"""A child of fork() gets none of the locks that other threads had: no child hangs for what the agent does in it."""

import unittest

from harness import StackdTest

FORKS = 500


class ForkTest(StackdTest):
    def test_each_child_of_a_program_with_busy_threads_ends(self):
        for with_daemon in (False, True):
            if with_daemon:
                self.start_daemon()
            self.start_victim("forks_among_threads", FORKS).kill()


if __name__ == "__main__":
    unittest.main()
