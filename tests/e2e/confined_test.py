"""What the daemon and its symbol worker give up. Other processes of the daemon's user do not read its memory, and the
worker has none of its environment. Programs that the daemon runs are free. What a kernel does not offer is said."""

import ctypes
import errno
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import unittest

from built import built
from harness import ROOT, STACKD, eventually
from metrics_test import Served

DAEMON_UID = 20003

# Runs its arguments on a kernel without filters of system calls and without Landlock, as far as these can tell.
OLD_KERNEL = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
EPERM, ALLOW = 0x50001, 0x7fff0000
program = b"".join([
    call(0x20, 0, 0, 0),      # the number
    call(0x15, 4, 0, 444),    # landlock_create_ruleset
    call(0x15, 0, 2, 157),    # prctl
    call(0x20, 0, 0, 16),     # its first argument
    call(0x15, 1, 0, 22),     # PR_SET_SECCOMP
    call(0x06, 0, 0, ALLOW),
    call(0x06, 0, 0, EPERM)])
class Filter(ctypes.Structure): _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_char_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Filter(len(program) // 8, program)), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""

READ_MEMORY = 'for name in mem environ maps; do (: < "/proc/$1/$name") 2> /dev/null && echo $name; done; true'


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def landlock_version():
    landlock_create_ruleset, ask_for_version = 444, 1
    return ctypes.CDLL(None).syscall(landlock_create_ruleset, None, 0, ask_for_version)


def intruder():
    source = ROOT / "tests/programs/daemon_intruder.c"

    def make(folder):
        subprocess.run(["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", folder / "intruder.so", source], check=True)

    return built("daemon_intruder", [source], make) / "intruder.so"


PREPARE = [intruder]


class ConfinedTest(Served):

    def confined(self):
        metrics = self.scrape()
        return {(part, by): metrics.get("stackd_confined", part=part, by=by)
                for part, by in (("daemon", "dumpable"), ("daemon", "seccomp"), ("daemon", "landlock"),
                                 ("symbol_worker", "seccomp"), ("symbol_worker", "landlock"))}

    @unittest.skipUnless(os.geteuid() == 0, "needs root to run the daemon and its neighbour as another user")
    def test_others_of_its_user_do_not_read_its_memory(self):
        os.chmod(self.dir, 0o711)
        stackd = shutil.copy(STACKD, self.dir)
        folder = self.dir / "of-the-daemon"
        folder.mkdir()
        os.chown(folder, DAEMON_UID, DAEMON_UID)
        as_user = ["setpriv", f"--reuid={DAEMON_UID}", f"--regid={DAEMON_UID}", "--clear-groups"]
        daemon = self.start_daemon(folder, stackd=stackd, wrap=as_user)
        neighbour = lambda pid: subprocess.run([*as_user, "sh", "-c", READ_MEMORY, "sh", str(pid)], check=True,
                                               capture_output=True, text=True).stdout.split()
        sleeper = subprocess.Popen([*as_user, "sleep", "1000"])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        # A process that has changed its user shows its memory from its next program on.
        eventually("the other process sleeps", lambda: status_of(sleeper.pid)["Name"] == "sleep")
        self.assertEqual(["mem", "environ", "maps"], neighbour(sleeper.pid), "as it is with a process that is not closed")
        self.assertEqual([], neighbour(daemon.process.pid))

    def test_what_is_given_up_is_shown(self):
        daemon = self.serve()
        self.assertEqual("2", status_of(daemon.process.pid)["Seccomp"])
        self.assertEqual("1", status_of(daemon.process.pid)["NoNewPrivs"])
        confined = self.confined()
        self.assertEqual(landlock_version() > 1, confined.pop(("daemon", "landlock")))
        self.assertEqual(landlock_version() > 0, confined.pop(("symbol_worker", "landlock")))
        self.assertEqual({1}, set(confined.values()))

    def test_a_kernel_that_does_not_confine_is_told_of_and_names_are_there(self):
        daemon = self.serve(wrap=["python3", "-c", OLD_KERNEL])
        self.assertEqual([1, 0, 0, 0, 0], list(self.confined().values()))
        self.assertEqual(1, daemon.log().count("less confined than it could be"))
        self.assertIn("the symbol worker has no filter of system calls", daemon.log())
        self.assertIn("it may write all files of its user", daemon.log())
        self.assertIn("the symbol worker has no Landlock", daemon.log())
        victim = self.start_victim("cpp_calls")
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        self.assertTrue(any("main" in dump.functions(tid) for tid in dump.threads))

    def intrude(self, *extra_args):
        """What code in the daemon may do: the errno of each attempt, 0 where it succeeds."""
        own, elsewhere, report = (self.dir / name for name in ("own", "elsewhere", "report"))
        own.mkdir(exist_ok=True)
        elsewhere.mkdir(exist_ok=True)
        report.write_text("")
        victim = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(victim.wait)
        self.addCleanup(victim.kill)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        daemon = self.serve(*extra_args, directory=own, env={
            **os.environ, "LD_PRELOAD": str(intruder()), "INTRUDER_OWN": str(own), "INTRUDER_ELSEWHERE": str(elsewhere),
            "INTRUDER_REPORT": str(report), "INTRUDER_VICTIM": str(victim.pid), "INTRUDER_PORT": str(listener.getsockname()[1])})
        daemon.process.send_signal(signal.SIGUSR2)
        eventually("all was tried", lambda: report.read_text().endswith("end\n"))
        daemon.kill()
        return {what: int(outcome) for what, outcome in
                (line.rsplit(" ", 1) for line in report.read_text().splitlines()[:-1])}

    def test_what_takes_over_the_daemon_keeps_to_its_folder(self):
        free = self.intrude("--on-dump", "/bin/true")
        self.assertEqual({0}, set(free.values()), "as it is with a daemon that is not confined")
        if landlock_version() < 2:
            self.skipTest("the kernel has no Landlock of 5.19 or later")
        confined = self.intrude()
        self.assertEqual({"write below its folder": 0, "write elsewhere": errno.EACCES, "execute": errno.EACCES,
                          "connect": errno.EACCES, "signal": errno.EPERM, "write memory": errno.EACCES,
                          "look at its program": errno.EACCES}, confined)

    def test_programs_that_the_daemon_runs_are_free(self):
        report = self.dir / "report"
        program = self.dir / "on-dump"
        program.write_text(f"#!/bin/sh\ncp /proc/self/status {report}.new && mv {report}.new {report}\n")
        program.chmod(0o755)
        daemon = self.serve("--on-dump", str(program))
        victim = self.start_victim("cpp_calls")
        daemon.await_process(victim.pid)
        daemon.dump(victim.pid)
        eventually("the program has run", report.exists)
        self.assertIn("NoNewPrivs:\t0\nSeccomp:\t0", report.read_text())
        self.assertEqual((0, 0), (self.confined()["daemon", "seccomp"], self.confined()["daemon", "landlock"]))

