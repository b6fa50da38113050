"""The agent's thread leaves a program that has none of its own, seconds after a dump. Nothing is lost by that: the next dump, or a
crash, has it come back."""

import pathlib
import time
import unittest

import pytest

from crashes import crash_of
from harness import LIMIT_S, StackdTest, eventually

AGENT_THREAD = "stackd-agent\n"


def has_agent_thread(pid):
    return any(comm.read_text() == AGENT_THREAD for comm in pathlib.Path(f"/proc/{pid}/task").glob("*/comm"))


def count_threads(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))


class HelperLeavesTest(StackdTest):

    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def start(self, *arguments, **how):
        victim = self.start_victim(*arguments, stdin="", **how)
        self.daemon.await_process(victim.pid)
        return victim

    def dump(self, pid, function):
        dump = self.daemon.dump(pid)
        self.assertEqual("CAPTURED", dump.status(pid), dump.notes)
        self.assertIn(function, dump.functions(pid))

    def await_leave(self, pid):
        eventually(f"process {pid} has one thread again", lambda: count_threads(pid) == 1)

    def test_it_leaves_and_comes_back(self):
        victim = self.start("living_children", 1)
        self.assertEqual(1, count_threads(victim.pid))
        for _ in range(2):
            self.dump(victim.pid, "main")
            self.assertTrue(has_agent_thread(victim.pid))
            self.await_leave(victim.pid)
        listed = [process for process in self.daemon.processes() if process.get("pid") == victim.pid]
        self.assertEqual(1, len(listed))

    def test_it_stays_where_there_is_a_thread_or_dumps_were_asked_for(self):
        """For as long as it takes to leave another process, which was dumped last."""
        staying = [self.start("waiting_threads", 1), self.start("living_children", 1, env={"STACKD_SECCOMP_DUMPS": "1"})]
        leaving = self.start("living_children", 1)
        for victim in (*staying, leaving):
            self.daemon.dump(victim.pid)
        self.await_leave(leaving.pid)
        self.assertEqual([True, True], [has_agent_thread(victim.pid) for victim in staying])

    def test_a_crash_after_it_left_is_stored(self):
        parent = self.start("living_children", 1)
        child = int(parent.output.split()[1])
        self.daemon.await_process(child)
        self.dump(child, "live")
        self.await_leave(child)
        parent.process.stdin.write(b"\n")
        parent.process.stdin.flush()
        parent.read_until("ended by 11")
        self.assertIn("crash_in_child", crash_of(self.daemon, child).functions(child))

    @pytest.mark.thorough
    def test_no_dump_is_lost_at_the_moment_when_it_leaves(self):
        """Dumps come as long after each other as it takes to leave, a little more or less."""
        victim = self.start("living_children", 1)
        self.dump(victim.pid, "main")
        begin = time.monotonic()
        self.await_leave(victim.pid)
        stays_s = time.monotonic() - begin
        self.assertLess(stays_s, LIMIT_S / 4)
        for early_ms in (60, 30, 10, 0):
            self.dump(victim.pid, "main")
            begin = time.monotonic()
            while time.monotonic() - begin < stays_s - early_ms / 1000:
                time.sleep(0.002)
            begin = time.monotonic()
            self.dump(victim.pid, "main")
            self.assertLess(time.monotonic() - begin, LIMIT_S / 4)


if __name__ == "__main__":
    unittest.main()
