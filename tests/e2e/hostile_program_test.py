"""What a program may do to its own procfs, and what the daemon makes of it: nothing, and no other process notices."""

import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from harness import BIN, LIMIT_S, StackdTest, eventually

HANGS = BIN / "tests/hangs"
NO_THREAD = 4_000_000


def may_mount():
    return os.geteuid() == 0 and shutil.which("nsenter") and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0


@unittest.skipUnless(may_mount(), "mounts cannot be made here")
class OwnMountsTest(StackdTest):
    """A mount namespace of its own gives any user the right to mount over its own procfs."""

    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()
        self.hostile = self.start_victim("waiting_threads", 1, wrap=["unshare", "-m", "--propagation", "private"])
        self.pid = self.daemon.await_process(self.hostile.pid)["pid"]

    def within(self, script):
        """Runs a script in the program's mounts."""
        done = subprocess.run(["nsenter", "-m", "-t", str(self.pid), "sh", "-ec", script], capture_output=True, text=True,
                              timeout=LIMIT_S)
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def cover_tasks(self, files):
        """A folder of the program's in the place of its threads, with a thread that does not exist, and `files` in it."""
        thread = f"/proc/{self.pid}/task/{NO_THREAD}"
        self.within(f"mount -t tmpfs none /proc/{self.pid}/task; mkdir {thread}; cd {thread}; {files}")

    def dump_stopped(self):
        """What is told of the program when it answers nothing, so that the daemon looks at its threads itself."""
        self.hostile.process.send_signal(signal.SIGSTOP)
        try:
            dumped = self.daemon.ctl("dump", str(self.pid), "--timeout", "3s", "-o", "json")
        finally:
            self.hostile.process.send_signal(signal.SIGCONT)
        return dumped.out + dumped.err + self.daemon.log_path.read_text()

    def test_a_link_shows_no_file_of_the_daemons(self):
        secret = self.dir / "secret"
        secret.write_text("the first line of a file\n")
        secret.chmod(0o600)
        self.cover_tasks(f"cp /proc/{self.pid}/stat stat; ln -s {secret} comm; ln -s {secret} wchan; ln -s {secret} schedstat")
        self.assertNotIn("the first line", self.dump_stopped())

    def test_a_fifo_stops_nobody(self):
        self.cover_tasks("for file in comm stat status schedstat wchan; do mkfifo $file; done")
        self.daemon.ctl("dump", str(self.pid))
        hung = self.start_victim(HANGS / "hang_mutex", "cycle_2")
        pid = self.daemon.await_process(hung.pid)["pid"]
        eventually("a deadlock elsewhere is noticed", lambda: str(pid) in self.daemon.ctl("list", "--hangs", "-o", "json").out)
        self.assertTrue(pathlib.Path(f"/proc/{self.daemon.process.pid}").exists())


if __name__ == "__main__":
    unittest.main()
