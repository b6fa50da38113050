"""Loops of the daemon that stand still are seen from outside: a file system that never answers holds one up for real."""

import contextlib
import os
import urllib.error
import urllib.request

import pytest

from harness import LIMIT_S, eventually
from metrics_test import Served

# Longer than a loop may be at one piece of work (LoopWatch::kStuckNs), on a machine that is busy with other things.
STUCK_LIMIT_S = 150

# Mounts a file system at its first argument, in a mount namespace of its own, and runs the rest. It is one of FUSE whose
# server never answers; it ends with the process.
ON_STUCK_DISK = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
done = (libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0 and
        libc.mount(b"stuck", sys.argv[1].encode(), b"fuse.stuck", 0, options) == 0)
if not done:
    sys.exit(99)
os.set_inheritable(device, True)
if sys.argv[2:]:
    os.execv(sys.argv[2], sys.argv[2:])
"""


def on_stuck_disk(folder):
    """A prefix for a command."""
    return ["python3", "-c", ON_STUCK_DISK, str(folder)]


def can_mount(folder):
    return os.path.exists("/dev/fuse") and os.geteuid() == 0 and os.spawnvp(os.P_WAIT, "python3",
                                                                           on_stuck_disk(folder)) == 0


class WatchedTest(Served):

    def setUp(self):
        super().setUp()
        self.folder = self.dir / "debug"
        self.folder.mkdir()
        if not can_mount(self.folder):
            self.skipTest("FUSE file systems cannot be mounted here")

    def age_s(self, loop):
        return self.scrape().get("stackd_loop_age_seconds", loop=loop)

    def serve_with_a_loop_that_is_stuck(self):
        """The worker for names asks for a debug file, which the daemon opens."""
        daemon = self.serve("--debug-dir", str(self.folder), wrap=on_stuck_disk(self.folder))
        victim = self.start_victim("cpp_calls")
        daemon.await_process(victim.pid)
        self.assertEqual(0, self.age_s("symbol_names"))
        daemon.ctl("dump", victim.pid, "--timeout", "1s")
        return daemon, victim

    def live(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/livez", timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                return error.code, error.read().decode()

    def test_the_age_of_a_loop_that_stands_still_is_a_metric_and_the_others_go_on(self):
        daemon, victim = self.serve_with_a_loop_that_is_stuck()
        first = eventually("the loop ages", lambda: self.age_s("symbol_names"))
        eventually("it ages on", lambda: self.age_s("symbol_names") > first + 1)
        self.assertEqual((200, "ok\n"), self.live(), "a few seconds are no reason to end the daemon")
        self.assertIn(daemon.ctl("dump", victim.pid, "--timeout", "1s").code, (0, 5), "dumps are made, without names")
        self.assertEqual(0, self.age_s("agents"))

    @pytest.mark.thorough
    def test_a_loop_that_stands_still_for_long_makes_the_daemon_ill(self):
        daemon, _ = self.serve_with_a_loop_that_is_stuck()
        eventually("the daemon is not alive", lambda: self.live()[0] == 503, STUCK_LIMIT_S)
        self.assertRegex(self.live()[1], 'the loop "symbol_(names|lines)" of stackd has been stuck for [0-9]+ s')
        doctor = daemon.ctl("doctor")
        self.assertIn('FAIL  the loop "symbol_', doctor.out)
        self.assertEqual(1, doctor.code)
