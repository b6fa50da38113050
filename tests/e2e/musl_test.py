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

    def build(self, *flags, name="waits_in_libc"):
        program = self.dir / name
        subprocess.run(["musl-gcc", "-g", *flags, "-o", program, ROOT / f"tests/programs/{name}.c"], check=True)
        return program

    def in_order(self, expected, functions):
        """Also that no other function of the program is among them."""
        ours = [name for name in functions if name.startswith("in_") or name in ("main", "run", "compare", *expected)]
        self.assertEqual(list(expected), ours, functions)

    def all_wait(self, pid, expected=EXPECTED):
        """Whether each thread is in its system call, for good."""
        tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
        names = {(task / "comm").read_text().strip() for task in tasks}
        return set(expected) <= names and not any((task / "syscall").read_text().startswith("running") for task in tasks)

    def check_stacks(self, program):
        daemon = self.start_daemon()
        victim = self.start_victim(program)
        self.addCleanup(daemon.kill)
        daemon.await_process(victim.pid)
        eventually("all threads wait", lambda: self.all_wait(victim.pid))
        for quiet in ("never", "only"):
            dump = daemon.dump(victim.pid, "--quiet", quiet)
            for name, expected in EXPECTED.items():
                with self.subTest(name, quiet=quiet):
                    tid = dump.named(name)
                    self.in_order(expected, dump.functions(tid))
                    self.assertEqual("ROOT", dump.stack(tid)["end"])
                    self.assertEqual(quiet == "only", dump.threads[tid].get("readAsleep", False))
            self.assertEqual("in a system call (read)", dump.threads[dump.named("waits_in_libc")]["state"])
            eventually("all threads wait again", lambda: self.all_wait(victim.pid))
        victim.kill()
        daemon.kill()

    def test_stacks_reach_the_first_function(self):
        for flags in (["-O1"], ["-O2"], ["-O0"], ["-O2", "-fno-omit-frame-pointer"]):
            with self.subTest(flags=flags):
                self.check_stacks(self.build(*flags))

    def two_locks(self, daemon, program, kind):
        victim = self.start_victim(program, kind)
        daemon.await_process(victim.pid)
        eventually("both threads wait", lambda: self.all_wait(victim.pid, ("first", "second")))
        dump = daemon.dump(victim.pid)
        return dump, [dump.threads[dump.named(name)]["wait"] for name in ("first", "second")]

    def test_a_deadlock_is_found_where_the_mutexes_keep_their_owner(self):
        program = self.build("-O2", name="two_locks")
        daemon = self.start_daemon()
        for kind in ("recursive", "errorcheck"):
            with self.subTest(kind):
                dump, waits = self.two_locks(daemon, program, kind)
                finding = dump.resource["findings"][0]
                self.assertEqual(("DEADLOCK", "HANG"), (finding["kind"], finding["severity"]), finding)
                tids = [dump.named("first"), dump.named("second")]
                self.assertEqual(sorted(tids), sorted(finding["tids"]))
                self.assertEqual(tids[::-1], [wait["ownerTid"] for wait in waits])
                self.assertEqual([kind] * 2, [wait["lockKind"] for wait in waits])
                self.assertIn(": ledger", waits[0]["place"])
                self.assertIn(": account", waits[1]["place"])

    def test_a_mutex_that_keeps_no_owner_is_said_to(self):
        daemon = self.start_daemon()
        dump, waits = self.two_locks(daemon, self.build("-O2", name="two_locks"), "normal")
        for wait, lock in zip(waits, ("ledger", "account"), strict=True):
            self.assertEqual("NOT_RECORDED", wait["owner"])
            self.assertTrue(wait["place"].endswith(": " + lock), wait)
            self.assertIn("musl's normal mutex keeps none", wait["explanation"])

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
