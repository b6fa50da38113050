"""Programs that are started with some of the fds 0, 1 and 2 closed end as they do without the agent. Nothing of the agent's is
where they look. By default each is started once in each way, and a thousand times by `tests/run.sh --all`."""

import concurrent.futures
import itertools
import os
import re
import select
import shutil
import signal
import unittest

import pytest

from harness import AGENT, LIMIT_S, StackdTest

TEXT = "one\ntwo\nthree\n"
TIMES = 1000
SUBSETS = [set(closed) for count in range(4) for closed in itertools.combinations(range(3), count)]

PROGRAMS = [
    ["node", "-e", "console.log(require('fs').fstatSync(0).isFile())"],
    ["/usr/bin/python3", "-c", "import sys; print(sys.stdin and sys.stdin.read(), sys.stdout is None, sys.stderr is None)"],
    ["bash", "-c", "cat; echo out; echo err >&2; exit 3"],
    ["sh", "-c", "read x; echo \"$x\"; echo err >&2; exit 4"],
    ["perl", "-e", "print <STDIN>; print STDERR 'err'; exit 5"],
    ["git", "--version"],
    ["cat"],
    ["sort", "-r"],
    ["tar", "cf", "-", "text"],
    ["ssh", "-V"],
    ["sshd", "-t", "-f", "/dev/null"],
    ["cron", "-x", "none"],
    ["sed", "s/o/0/g"],
    ["awk", "{ print NR, $0 } END { print \"err\" >\"/dev/stderr\" }"],
    ["grep", "-c", "t"],
    ["gzip", "-nc"],
    ["sqlite3", ":memory:", "select 1 + 1"],
    ["openssl", "sha256"],
    ["jq", "-R", "length"],
    ["gpg", "--version"],
    ["curl", "file:///no/such/file"],
    ["php", "-r", "echo 6 * 7;"],
    ["ruby", "-e", "puts STDIN.read.size; warn 'err'"],
    ["lua5.4", "-e", "print(io.read('a')); io.stderr:write('err')"],
    ["gcc", "-E", "-x", "c", "-"],
]


class ClosedFdsTest(StackdTest):
    limit_s = 3600  # of the longest of those that are started a thousand times

    def setUp(self):
        super().setUp()
        self.text = self.dir / "text"
        self.text.write_text(TEXT)
        self.environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "HOME": str(self.dir), "LANG": "C.UTF-8", "TZ": "UTC"}

    def end_of(self, command, closed, directory):
        """(status, output, errors) of a program that is started without the fds in `closed`; under the agent with a directory."""
        folder = self.dir / f"{os.path.basename(command[0])}-{''.join(map(str, sorted(closed)))}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        out, err = folder / "out", folder / "err"
        actions = [(os.POSIX_SPAWN_OPEN, 0, str(self.text), os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                   (os.POSIX_SPAWN_OPEN, 2, str(err), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                   *((os.POSIX_SPAWN_CLOSE, fd) for fd in sorted(closed))]
        environment = self.environment | ({"LD_PRELOAD": str(AGENT), "STACKD_DIR": str(directory)} if directory else {})
        program = self.find(command)
        pid = os.posix_spawn(program, [program, *command[1:]], environment, file_actions=actions, setsid=True)
        pidfd = os.pidfd_open(pid)
        try:
            in_time = bool(select.select([pidfd], [], [], LIMIT_S)[0])
            if not in_time:
                os.killpg(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if in_time else "it did not end"
        finally:
            os.close(pidfd)
        # Numbers of processes and threads.
        return status, *(re.sub(r"[0-9A-F]{3,}", "N", path.read_text(errors="replace")) for path in (out, err))

    def find(self, command):
        return shutil.which(command[0], path=self.environment["PATH"])

    def compare(self, commands, times):
        """Starts each in each way, so many times with and without a daemon."""
        daemon = self.start_daemon()
        os.chdir(self.dir)
        self.addCleanup(os.chdir, os.path.dirname(__file__))

        def differences(start):
            command, closed = start
            alone = self.end_of(command, closed, None)
            return [(command, closed, which, alone, end) for which, directory in
                    [("no daemon", self.dir / "absent"), ("a daemon", daemon.dir)] * times
                    if (end := self.end_of(command, closed, directory)) != alone]

        starts = [(command, closed) for command in commands for closed in SUBSETS]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            differ = [difference for found in pool.map(differences, starts) for difference in found]
        self.assertEqual([], differ[:20], f"{len(differ)} of (program, closed, with, alone, under the agent)")

    def test_each_program_ends_as_alone(self):
        programs = [command for command in PROGRAMS if self.find(command)]
        self.assertGreaterEqual(len(programs), 20, "deploy/install-deps.sh --tests installs them")
        self.compare(programs, 1)


def a_thousand_times(command):
    @pytest.mark.thorough
    def case(self):
        if not self.find(command):
            self.skipTest(f"no {command[0]}: deploy/install-deps.sh --tests installs it")
        self.compare([command], TIMES)

    return case


def add_cases():
    for command in PROGRAMS:
        setattr(ClosedFdsTest, f"test_{os.path.basename(command[0])}_a_thousand_times", a_thousand_times(command))


add_cases()


if __name__ == "__main__":
    unittest.main()
