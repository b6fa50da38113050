"""Accounted: each thread that the kernel lists is in the dump with a status, and every blocked one with its stack."""

import contextlib
import os
import stat
import unittest

from harness import StackdTest, task_ids, thread_names


class AccountedTest(StackdTest):

    def check_threads(self, count):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", count - 1)
        daemon.await_process(victim.pid)
        self.assert_ring_is_1_mib(daemon)
        # In a program without threads the first dump brings the agent's.
        daemon.dump(victim.pid)
        listed = task_ids(victim.pid)
        own = {tid for tid, name in thread_names(victim.pid).items() if name != "stackd-agent"}
        self.assertEqual(count, len(own))

        dump = daemon.dump(victim.pid)

        self.assertEqual("COMPLETE", dump.state, dump.notes)
        self.assert_whole(dump, victim.pid)
        self.assertEqual(listed, set(dump.threads))
        not_captured = {tid: dump.status(tid) for tid in own if dump.status(tid) != "CAPTURED"}
        self.assertFalse(not_captured, dump.notes)
        for tid in own - {victim.pid}:
            self.assertIn("wait_for_work", dump.functions(tid))
        if count > 1:
            # All waiters stand in one place: one group, the largest, before all others.
            largest = dump.groups[0]
            self.assertEqual(count - 1, largest["threadCount"])
            self.assertEqual(own - {victim.pid}, set(largest["tids"]))
        self.assertEqual(len(dump.threads) - len([t for t in dump.threads if dump.stack(t) is None]),
                         sum(group["threadCount"] for group in dump.groups))

    def assert_ring_is_1_mib(self, daemon):
        folder = f"/proc/{daemon.process.pid}/fd"
        sizes = []
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            # Fds come and go meanwhile; a ring's stays as long as the process is connected.
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(path).startswith("/memfd:stackd-ring"):
                    sizes.append(os.stat(path)[stat.ST_SIZE])
        self.assertIn(1 << 20, sizes)
        self.assertEqual(1 << 20, max(sizes))

    def test_1_thread(self):
        self.check_threads(1)

    def test_100_threads(self):
        self.check_threads(100)

    def test_1000_threads(self):
        self.check_threads(1000)

    def test_10000_threads(self):
        self.check_threads(10000)

    def test_a_thread_that_blocks_all_signals_is_told_apart_and_waited_for_by_nobody(self):
        daemon = self.start_daemon()
        victim = self.start_victim("blocks_signals")
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        self.assertEqual("CAPTURED", dump.status(dump.named("deaf")), "it sleeps")
        dump = daemon.dump(victim.pid, "--quiet", "never")
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        self.assertEqual("SIGNAL_BLOCKED", dump.status(dump.named("deaf")))
        self.assertEqual("CAPTURED", dump.status(dump.named("hears")))
        seconds = float(dump.resource["captureDuration"].rstrip("s"))
        self.assertLess(seconds, 1)

    def test_a_stack_longer_than_the_limit_is_cut_and_says_so(self):
        daemon = self.start_daemon()
        victim = self.start_victim("deep_stack")
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        tid = dump.named("deep")
        self.assertEqual("CAPTURED", dump.status(tid))
        self.assertEqual("TRUNCATED", dump.stack(tid)["end"])
        # 256 KiB of frames of 3 KiB, folded.
        turns = [frame.get("repeatCount", 1) for frame in dump.frames(tid) if frame["function"].startswith("descend")]
        self.assertGreater(sum(map(int, turns)), 80)


if __name__ == "__main__":
    unittest.main()
