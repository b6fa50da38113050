"""A child of fork() gets none of the locks that other threads had: no child hangs for what the agent does in it. One that lives on
is listed, and its crash is stored, although a child does next to nothing at its start."""

import shutil
import unittest

from crashes import crash_of
from harness import PROGRAMS, StackdTest, eventually
from tier import FULL

FORKS = 500
CHILDREN = 1000 if FULL else 100
NOBODY = 65534


class ForkTest(StackdTest):
    def test_each_child_of_a_program_with_busy_threads_ends(self):
        for with_daemon in (False, True):
            if with_daemon:
                self.start_daemon()
            self.start_victim("forks_among_threads", FORKS).kill()

    def parent_of(self, *arguments):
        """It, and the pids of its children: where another user may read it, as the agent has to for the daemon."""
        self.dir.chmod(0o755)
        program = shutil.copy(PROGRAMS / "living_children", self.dir)
        parent = self.start_victim(program, *arguments, stdin="")
        return parent, [int(word) for word in parent.output.split()[1:]]

    def crash(self, parent):
        parent.process.stdin.write(b"\n")
        parent.process.stdin.flush()
        parent.read_until("ended by 11")

    def check_crash(self, daemon, pid):
        dump = crash_of(daemon, pid)
        self.assertEqual("living_children", dump.resource["process"]["displayName"])
        self.assertIn("crash_in_child", dump.functions(pid))
        # It opened what it may not open any more.
        self.assertEqual([], dump.resource["process"].get("limits", []))

    def test_all_children_that_live_are_listed(self):
        daemon = self.start_daemon()
        parent, children = self.parent_of(CHILDREN)
        eventually("each child is listed",
                   lambda: {process.get("pid") for process in daemon.processes()} >= {parent.pid, *children})

    def test_the_crash_of_a_child_that_no_daemon_knows(self):
        parent, children = self.parent_of(2)
        self.crash(parent)
        self.check_crash(self.start_daemon(), children[0])

    def test_the_crash_of_a_child_that_became_another_user_before_the_daemon_came(self):
        parent, children = self.parent_of(2, NOBODY)
        daemon = self.start_daemon()
        self.crash(parent)
        self.check_crash(daemon, children[0])


if __name__ == "__main__":
    unittest.main()
