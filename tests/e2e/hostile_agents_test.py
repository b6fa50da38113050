"""Programs that cost the daemon as much as they can. It lives within the memory of the manifests. Honest programs are dumped
beside them, and their crashes are stored."""

import concurrent.futures
import signal
import sys
import unittest

import pytest

from harness import OK, PARTIAL, StackdTest, eventually
from memory_cgroup import memory_limit
from overload_test import memory_mib

PEAK_MIB = 200


# Each takes all the processor time that there is.
@pytest.mark.alone
class HostileAgentsTest(StackdTest):
    def setUp(self):
        super().setUp()
        limit = memory_limit(self)
        if not limit:
            self.skipTest("no memory cgroup (v1) can be made here")
        self.daemon = self.start_daemon(wrap=limit)

    def check_that_others_are_served(self):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log())
        honest = self.start_victim("two_locks")
        self.daemon.await_process(honest.pid)
        dump = self.daemon.dump(honest.pid)
        self.assertIn("take", dump.functions(dump.named("first")))
        self.assertFalse(any("memory" in note for note in dump.notes), dump.notes)
        honest.process.send_signal(signal.SIGSEGV)
        eventually("its crash is stored", lambda: self.daemon.ctl_json("list", "--crashes").get("dumps"))
        now, peak = memory_mib(self.daemon.process.pid)
        print(f"memory {now:.0f} MiB now, {peak:.0f} MiB at most", flush=True)
        self.assertLess(peak, PEAK_MIB)

    def test_images(self):
        """Code without a file, 60 MiB in each of 64 programs: more than there is memory for is not copied."""
        hostile = [self.start_victim("hostile_images", "60", "1", env={"STACKD_SHARE": "memory"}) for _ in range(64)]
        for victim in hostile:
            self.daemon.await_process(victim.pid)
        for victim in hostile[:8]:
            notes = self.daemon.dump(victim.pid).notes
            self.assertTrue(any("code of /memfd:image-0 (deleted) could not be had" in note for note in notes), notes)
        self.check_that_others_are_served()

    def test_an_image_that_fits_is_copied(self):
        victim = self.start_victim("hostile_images", "8", "1", env={"STACKD_SHARE": "memory"})
        self.daemon.await_process(victim.pid)
        self.assertEqual([], [note for note in self.daemon.dump(victim.pid).notes if "could not be had" in note])

    def test_stacks(self):
        """2,000,000 frames, none like another, in each of three programs that are dumped at a time."""
        hostile = [self.start_victim("hostile_stacks", "2000", "1000") for _ in range(3)]
        for victim in hostile:
            self.daemon.await_process(victim.pid)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            dumped = list(pool.map(lambda victim: self.daemon.ctl("dump", victim.pid), hostile * 3))
        for result in dumped:
            self.assertIn(result.code, (OK, PARTIAL), result.err)
            self.assertRegex(result.text, "this daemon has no memory for all frames of its stacks: each was cut to its [0-9]+ innermost")
        self.check_that_others_are_served()

    def test_connections(self):
        """More than there are fds for, and none says a word."""
        connect = ("import socket, sys, time\nsilent = []\nfor _ in range(3000):\n"
                   "    silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))\n"
                   "    try: silent[-1].connect(sys.argv[1])\n    except BlockingIOError: pass\n"
                   "print('ready', flush=True)\ntime.sleep(1000)")
        self.start_victim(sys.executable, "-c", connect, str(self.dir / "stackd.sock"), env={"STACKD_DISABLE": "1"})
        self.check_that_others_are_served()


if __name__ == "__main__":
    unittest.main()
