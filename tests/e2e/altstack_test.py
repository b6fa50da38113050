"""Alternate stacks are the program's: programs whose threads share one, or have hardly any stack, are dumped hundreds of times and
notice nothing."""

import concurrent.futures
import pathlib
import re
import shutil
import signal
import unittest
import urllib.request

from harness import AGENT, FAILURE, NOT_FOUND, OK, PARTIAL, StackdTest, Victim, eventually, free_port
from side_by_side import children

DUMPS = 500
WORKERS = 3


class AltstackTest(StackdTest):

    def dump_often(self, daemon, pid, count=DUMPS, *args):
        """Returns how many were taken, whole or not."""

        def dump(_):
            outcome = daemon.ctl("dump", pid, *args)
            self.assertIn(outcome.code, (OK, PARTIAL, FAILURE, NOT_FOUND), outcome.text)
            return outcome.code in (OK, PARTIAL)

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            return sum(pool.map(dump, range(count)))

    def end_of(self, victim):
        """Its exit code and what it says after a line from the test."""
        victim.output = b""
        victim.process.stdin.write(b"hello\n")
        victim.process.stdin.close()
        output = victim.process.stdout.read().decode()
        return victim.process.wait(), output

    def test_threads_that_share_one(self):
        daemon = self.start_daemon()
        victim = self.start_victim("shared_altstack", stdin="")
        daemon.await_process(victim.pid)
        self.assertEqual(DUMPS, self.dump_often(daemon, victim.pid), victim.error_text())
        self.assertEqual((7, "hello\nwrong 0\n"), self.end_of(victim))

    def test_many_threads_have_most_mappings_for_themselves(self):
        """A process may have 65,530: with two more for each thread one of 30,000 threads would not start."""

        def mappings(**how):
            victim = self.start_victim("waiting_threads", 6000, **how)
            count = pathlib.Path(f"/proc/{victim.pid}/maps").read_text().count("\n")
            victim.kill()
            return count

        self.start_daemon()
        alone = mappings(preload=False)
        self.assertGreater(alone, 6000)
        self.assertLess(mappings(), alone + 5000)

    def test_threads_with_hardly_any_stack(self):
        """They are read asleep, and a signal has the alternate stack that the agent or the program made."""
        self.check_small_stacks({"prefer": ("CAPTURED", True), "only": ("CAPTURED", True), "never": ("CAPTURED", False)})

    def test_threads_with_hardly_any_stack_and_no_other(self):
        """The kernel ends a program in which it finds no room for a signal: no such thread is signalled. In a futex others are,
        since that does no harm."""
        self.check_small_stacks({"prefer": ("CAPTURED", True), "only": ("CAPTURED", True), "never": ("AGENT_FAULT", True)},
                                "futex", env={"STACKD_CRASH_SIGNALS": "none"})

    def test_threads_that_run_with_hardly_any_stack(self):
        """A signal has the alternate stack, and they are signalled however they are dumped; without a signal they are not read."""
        self.check_small_stacks({"prefer": ("CAPTURED", False), "only": ("RUNNING", False), "never": ("CAPTURED", False)}, "running")

    def check_small_stacks(self, expected, *args, **how):
        """`expected`: of each way to dump, the status of such threads, and whether they are read asleep."""
        daemon = self.start_daemon()
        victim = self.start_victim("small_stack", *args, stdin="", **how)
        tids = [int(word) for word in victim.output.split()[1:3]]
        daemon.await_process(victim.pid)
        for quiet, (status, is_read_asleep) in expected.items():
            with self.subTest(quiet):
                dump = daemon.dump(victim.pid, "--quiet", quiet)
                self.assertEqual([status] * 2, [dump.status(tid) for tid in tids], dump.notes)
                self.assertEqual([is_read_asleep] * 2, [dump.threads[tid].get("readAsleep", False) for tid in tids], dump.notes)
                self.dump_often(daemon, victim.pid, 25, "--quiet", quiet)
        self.assertEqual((7, "hello\n"), self.end_of(victim))

    def test_varnish(self):
        """Its cache process ends where a dump interrupts its poll(), and its first process aborts where one interrupts its
        waitpid(): neither does. None of its threads finds on its stack what another one has written there."""
        if shutil.which("varnishd") is None and not pathlib.Path("/usr/sbin/varnishd").exists():
            self.skipTest("no varnishd: deploy/install-deps.sh --tests installs it")
        # Its workers are another user, who may not see the folders above a build.
        self.dir.chmod(0o755)
        agent = self.dir / AGENT.name
        shutil.copy(AGENT, agent)
        agent.chmod(0o755)
        port = free_port()
        (self.dir / "vcl").write_text('vcl 4.1;\nbackend default none;\nsub vcl_recv { return(synth(200, "well")); }\n')
        daemon = self.start_daemon()
        varnish = Victim(["/usr/sbin/varnishd", "-F", "-n", self.dir / "varnish", "-a", f"127.0.0.1:{port}", "-f", self.dir / "vcl",
                          "-s", "malloc,8m"], directory=self.dir, ready=None, agent=agent)
        self.addCleanup(varnish.kill)

        def get():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as reply:
                    return reply.reason == "well"
            except OSError:
                return False

        eventually("varnish serves", get)
        self.keep_doing(get)
        workers = set(children(varnish.pid))
        self.assertTrue(workers)
        taken = []

        def dumped():
            self.assertTrue(varnish.alive(), varnish.error_text())
            taken.extend(self.dump_often(daemon, process["pid"], 2) for process in daemon.processes())
            return sum(taken) >= DUMPS // 10

        eventually("it is dumped often enough", dumped)
        eventually("varnish serves", get)
        self.assertEqual(workers, set(children(varnish.pid)), varnish.error_text())
        said = varnish.error_text()
        self.assertFalse(re.findall(r".*(?:died signal|[Pp]anic).*", said), said)
        varnish.signal(signal.SIGTERM)
        self.assertIn(varnish.process.wait(60), (0, 2), varnish.error_text())


if __name__ == "__main__":
    unittest.main()
