"""What an operator is told of a crash without asking: a line of the log, and a program of their own."""

import json
import os
import resource

from harness import AGENT, STACKCTL, StackdTest, eventually


class OnDumpTest(StackdTest):

    def setUp(self):
        super().setUp()
        limit = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, limit[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_CORE, limit)

    def program(self, script):
        path = self.dir / "on-dump"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        return path

    def crash(self, count=1):
        victim = self.start_victim("crash_together", AGENT, count, 0, preload=False, stdin="\n")
        victim.read_until("over", 60)
        return [int(line.split()[0]) for line in victim.output.decode().splitlines() if line[0].isdigit()]

    def log_lines(self, daemon, message):
        lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["msg"] == message]

    def test_the_program_finds_the_crash_by_name_and_asks_the_daemon_for_it(self):
        program = self.program(f'{STACKCTL} show "$1" > {self.dir}/new && echo $STACKD_TRIGGER >> {self.dir}/new && '
                               f'mv {self.dir}/new {self.dir}/shown')
        daemon = self.start_daemon(extra_args=["--on-dump", program])
        pid, = self.crash()
        eventually("the program has run", (self.dir / "shown").exists)
        shown = (self.dir / "shown").read_text()
        self.assertIn(f"pid {pid}", shown)
        self.assertIn("crash_now", shown)
        self.assertEqual(shown.splitlines()[-1], "CRASH")
        line, = self.log_lines(daemon, "process crashed")
        self.assertEqual(line["level"], "warning")
        self.assertEqual(line["pid"], pid)
        self.assertEqual(line["signal"], "SIGSEGV")
        self.assertIn("0x8", line["explanation"])
        self.assertRegex(line["fingerprint"], "^[0-9a-f]{32}$")
        self.assertRegex(line["dump"], f"^processes/{pid}-[0-9]+/dumps/")

    def test_a_storm_of_crashes_is_no_storm_of_programs(self):
        program = self.program(f"echo run >> {self.dir}/runs; sleep 0.05")
        daemon = self.start_daemon(extra_args=["--on-dump", program])
        self.crash(40)
        eventually("all are told", lambda: len(self.log_lines(daemon, "process crashed")) == 40)
        eventually("what was not run is told", lambda: self.log_lines(daemon, "on-dump program not run: too many dumps"))
        self.assertLess(len((self.dir / "runs").read_text().splitlines()), 40)

    def test_what_is_no_program_is_refused_at_the_start(self):
        daemon = self.start_daemon()
        daemon.kill()
        daemon.extra_args = ["--on-dump", os.devnull]
        with self.assertRaisesRegex(AssertionError, "is not a program that can be run"):
            daemon.start()
