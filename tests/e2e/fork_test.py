"""A child of fork() gets none of the locks that other threads had: no child hangs for what the agent does in it. One that lives on
is listed, and its crash is stored, although a child does next to nothing at its start. A program without threads never has one."""

import os
import shutil
import subprocess
import unittest

import c_libraries
from crashes import crash_of
from harness import AGENT, LIMIT_S, PROGRAMS, StackdTest, eventually
from tier import FULL

FORKS = 10_000 if FULL else 500
FORKS_LIMIT_S = 1200
CHILDREN = 1000 if FULL else 100
NOBODY = 65534
# Forks, children that exec, a pipe, and one that lives on for a moment.
SCRIPT = "for i in 1 2 3 4 5; do /bin/true; (:); echo $i | cat; done; sleep 0.1 & wait"


def prepare():
    c_libraries.prepare("forks_among_threads")


PREPARE = [prepare]


class ForkTest(StackdTest):
    limit_s = 2 * FORKS_LIMIT_S + 300

    def check_forks(self, library):
        if c_libraries.why_not(library):
            self.skipTest(c_libraries.why_not(library))
        program = c_libraries.program_with(library, "forks_among_threads")
        for with_daemon in (False, True):
            if with_daemon:
                self.start_daemon()
            victim = self.start_victim(program, FORKS, ready=None)
            victim.read_until("ready", FORKS_LIMIT_S)
            victim.kill()

    def test_each_child_ends_with_glibc_2_31(self):
        self.check_forks("glibc_2_31")

    def test_each_child_ends_with_glibc_2_36(self):
        self.check_forks("glibc_2_36")

    def test_each_child_ends_with_glibc_2_43(self):
        self.check_forks("glibc_2_43")

    def test_each_child_ends_with_musl(self):
        self.check_forks("musl")

    def threads_made(self, command, daemon_dir, meanwhile=lambda pid: None):
        """How often a process made a thread, of the command and all that it starts, from its first moment to its last."""
        trace = self.dir / "trace"
        environment = {"LD_PRELOAD": str(AGENT), "STACKD_DIR": str(daemon_dir)}
        process = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=clone,clone3", "-e", "signal=none", "-o", trace,
                                    *[word for pair in environment.items() for word in ("-E", "=".join(pair))], *command],
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        meanwhile(process)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(0, process.returncode)
        return trace.read_text().count("CLONE_THREAD")

    @unittest.skipUnless(shutil.which("strace"), "there is no strace")
    def test_a_program_without_threads_has_one_at_every_moment(self):
        """But for the one that a dump has asked for."""
        daemon = self.start_daemon()
        script = ["/bin/sh", "-c", SCRIPT]
        self.assertEqual(0, self.threads_made(script, self.dir / "none"))
        self.assertEqual(0, self.threads_made(script, daemon.dir))

        def dump(process):
            def listed():
                return [other["pid"] for other in daemon.processes() if other.get("displayName") == "cat"]

            daemon.dump(eventually("it is listed", listed)[0])

        self.assertEqual(1, self.threads_made(["/bin/cat"], daemon.dir, dump))

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
