"""Programs for musl have whole stacks too, though musl has no unwind tables: gdb ends inside of it."""

import pathlib
import shutil
import subprocess
import unittest

from crashes import CrashTest, crash_of
from harness import ROOT, eventually

LOADER = pathlib.Path("/lib/ld-musl-x86_64.so.1")
# thread: functions that follow each other in its stack, others between them
EXPECTED = {
    "waits_in_libc": ("read", "in_read", "main", "_start"),
    "in_cond_wait": ("pthread_cond_timedwait", "in_cond_wait", "run"),
    "in_sem_wait": ("sem_timedwait", "in_sem_wait", "run"),
    "in_poll": ("poll", "in_poll", "run"),
    "in_sleep": ("clock_nanosleep", "nanosleep", "sleep", "in_sleep", "run"),
    "in_mutex_lock": ("pthread_mutex_timedlock", "in_mutex_lock", "run"),
    "in_fprintf": ("vfprintf", "fprintf", "in_fprintf", "run"),
    "in_qsort": ("read", "compare", "qsort_r", "in_qsort", "run"),
}


@unittest.skipIf(not LOADER.exists() or shutil.which("musl-gcc") is None, "no musl, or no musl-gcc (package musl-tools)")
class MuslTest(CrashTest):

    def build(self, *flags):
        program = self.dir / "waits_in_libc"
        subprocess.run(["musl-gcc", "-g", *flags, "-o", program, ROOT / "tests/programs/waits_in_libc.c"], check=True)
        return program

    def in_order(self, expected, functions):
        """Also that no other function of the program is among them."""
        ours = [name for name in functions if name.startswith("in_") or name in ("main", "run", "compare", *expected)]
        self.assertEqual(list(expected), ours, functions)

    def all_wait(self, pid):
        """Whether each thread is in its system call, for good."""
        tasks = [task for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        names = {(task / "comm").read_text().strip() for task in tasks}
        return set(EXPECTED) <= names and not any((task / "syscall").read_text().startswith("running") for task in tasks)

    def check_stacks(self, program):
        daemon = self.start_daemon()
        victim = self.start_victim(program)
        self.addCleanup(daemon.kill)
        daemon.await_process(victim.pid)
        eventually("all threads wait", lambda: self.all_wait(victim.pid))
        dump = daemon.dump(victim.pid)
        for name, expected in EXPECTED.items():
            with self.subTest(name):
                tid = dump.named(name)
                self.in_order(expected, dump.functions(tid))
                self.assertEqual("ROOT", dump.stack(tid)["end"])
        self.assertEqual("in a system call (read)", dump.threads[dump.named("waits_in_libc")]["state"])
        victim.kill()
        daemon.kill()

    def test_stacks_reach_the_first_function(self):
        for flags in (["-O1"], ["-O2"], ["-O0"], ["-O2", "-fno-omit-frame-pointer"]):
            with self.subTest(flags=flags):
                self.check_stacks(self.build(*flags))

    def test_a_crash_in_the_library_has_its_caller(self):
        program = self.build("-O2")
        daemon = self.start_daemon()
        for how, signal_name, expected in (("abort", "SIGABRT", ("raise", "abort", "main", "_start")),
                                           ("free", "SIGSEGV", ("free", "main", "_start"))):
            with self.subTest(how):
                victim = self.start_victim(program, how, stdin="", cwd=self.dir)
                daemon.await_process(victim.pid)
                victim.process.stdin.write(b"x")
                victim.process.stdin.flush()
                victim.process.wait()
                dump = crash_of(daemon, victim.pid)
                crash = dump.resource["crash"]
                self.assertEqual(signal_name, crash["signalName"])
                functions = list(dict.fromkeys(dump.functions(crash["tid"])))
                self.in_order(expected, functions)


if __name__ == "__main__":
    unittest.main()
