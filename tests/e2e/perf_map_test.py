"""Code that a runtime has made has the names of its /tmp/perf-PID.map: where the agent passes it, and where stackctl reads it."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

from crashes import crash_of
from harness import OK, ROOT, StackdTest, eventually, task_ids
from outside import Outside

OTHER_UID = 20022
ANYTHING = "0 7fffffffffff anything\n"


class PerfMapTest(StackdTest):
    preload = True

    def reader(self):
        return self.start_daemon()

    def start(self, program, *args, **extra):
        """The process, and where it would write its perf map."""
        victim = self.start_victim(program, *args, preload=self.preload, **extra)
        perf_map = pathlib.Path(f"/tmp/perf-{victim.pid}.map")
        self.addCleanup(perf_map.unlink, missing_ok=True)
        return victim, perf_map

    @unittest.skipUnless(shutil.which("erlc"), "there is no Erlang")
    def test_a_process_of_erlang(self):
        reader = self.reader()
        subprocess.run(["erlc", "-o", self.dir, ROOT / "tests/languages/erlang/running.erl"], check=True, timeout=60)
        victim, _ = self.start(shutil.which("erl"), "+JPperf", "map", "-noshell", "-pa", self.dir, "-s", "running", "main")
        reader.await_process(victim.pid)
        in_erlang = re.search(r"^at (.*)$", victim.output.decode(), re.MULTILINE)[1].split()
        self.assertEqual(["running:loop/1", "running:outer/1"], in_erlang[:2])

        def seen():
            dump = reader.dump(victim.pid)
            stacks = ([name.lstrip("$") for name in dump.functions(tid)] for tid in dump.threads if dump.stack(tid))
            stack = next((stack for stack in stacks if "running:loop/1" in stack), [])
            # In the first instructions of a function its caller is missing: the frame pointer is that of the one before.
            self.assertLessEqual({name for name in stack if name.startswith("running:")}, set(in_erlang))
            return stack[:len(in_erlang)] == in_erlang

        eventually("its stack is as Erlang has it", seen)

    def test_no_file_but_that_of_the_process_and_its_user(self):
        reader = self.reader()
        victim, perf_map = self.start("jit", "frame_pointers")
        reader.await_process(victim.pid)
        jit = max(task_ids(victim.pid) - {victim.pid})

        def functions():
            return reader.dump(victim.pid).functions(jit)

        self.assertNotIn("anything", functions())
        perf_map.write_text(ANYTHING)
        self.assertEqual(3, functions().count("anything"))
        elsewhere = self.dir / "elsewhere"
        elsewhere.write_text(ANYTHING)
        perf_map.unlink()
        perf_map.symlink_to(elsewhere)
        self.assertNotIn("anything", functions())
        perf_map.unlink()
        os.link(elsewhere, perf_map)
        self.assertNotIn("anything", functions())
        elsewhere.unlink()
        self.assertIn("anything", functions())
        if os.geteuid() == 0:
            os.chown(perf_map, OTHER_UID, OTHER_UID)
            self.assertNotIn("anything", functions())

    def test_what_names_no_code_is_counted(self):
        reader = self.reader()
        victim, perf_map = self.start("jit", "frame_pointers")
        reader.await_process(victim.pid)
        perf_map.write_text(ANYTHING + "what\n" * 3)
        self.assertIn("3 lines of its perf map name no code: they are no such lines, or there was no room",
                      reader.dump(victim.pid).resource["notes"])


class PerfMapFromOutsideTest(PerfMapTest):
    preload = False

    def reader(self):
        return Outside()


class PerfMapOfTheAgentTest(StackdTest):
    def start(self, *options, **extra):
        victim = self.start_victim("jit", "frame_pointers", *options, **extra)
        perf_map = pathlib.Path(f"/tmp/perf-{victim.pid}.map")
        self.addCleanup(perf_map.unlink, missing_ok=True)
        perf_map.write_text(ANYTHING)
        return victim

    def test_names_stay_in_a_process_that_shares_its_stacks_alone(self):
        daemon = self.start_daemon()
        victim = self.start(env={"STACKD_SHARE": "stacks"})
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        self.assertNotIn("anything", [name for tid in dump.threads for name in dump.functions(tid)])

    def check_crash(self, *options):
        daemon = self.start_daemon()
        victim = self.start(*options)
        jit = max(task_ids(victim.pid) - {victim.pid})
        daemon.await_process(victim.pid)
        os.kill(victim.pid, signal.SIGSEGV)
        dump = crash_of(daemon, victim.pid)
        self.assertEqual(3, dump.functions(jit).count("anything"))
        pathlib.Path(f"/tmp/perf-{victim.pid}.map").unlink()
        self.assertEqual(OK, daemon.ctl("resymbolize", dump.name).code)
        self.assertEqual(3, crash_of(daemon, victim.pid).functions(jit).count("anything"))

    def test_a_crash_and_its_names_when_all_else_is_gone(self):
        self.check_crash()

    def test_a_crash_of_code_in_a_file_in_memory(self):
        self.check_crash("memfd")


if __name__ == "__main__":
    unittest.main()
