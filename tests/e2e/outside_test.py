"""stackctl dump --pid: a process without an agent, read from outside, is shown as gdb and the agent show it, and notices nothing.

    outside: 100 kills, 5000 signals taken, none lost
"""

import ctypes
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import pytest

import elf_variants
import oracle
import quiet_test
import servers
import tier
from gdb_comparison import BELOW_A_FIBER, NO_UNWIND_TABLES, GdbComparison
from hang_victims_test import HangVictimsTest, text_of
from harness import FAILURE, NOT_FOUND, OK, PARTIAL, PROGRAMS, STACKCTL, StackdTest, eventually, task_ids
from outside import Outside, WithoutAgent
from privilege_test import POWERLESS
from python_test import python_lines

_LIBC = ctypes.CDLL(None)
UID, OTHER_UID = 20021, 20022
COUNTED_SIGNAL = 40
KILLS = 500 if tier.FULL else 100
DUMPS_OF_PATHS = 500 if tier.FULL else 20
QUIET_DUMPS, QUIET_SERIES = 200, 100
# How long a reader takes from its start to the end of its reading. Behind that it has no hold of the process.
READING_S = 0.08


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *POWERLESS, "--"]


def needs_root(case):
    return unittest.skipUnless(os.geteuid() == 0, "needs root")(case)


class OutsideRightTest(WithoutAgent, GdbComparison):
    """Frames are gdb's."""

    ways = ("only",)

    def check(self, program, *args, name=None, least_threads=2, wrap=(), **kwargs):
        victim = self.start_victim(program, *args, wrap=wrap)
        return self.compare_process(Outside(), victim.pid, name or os.path.basename(str(program)),
                                    least_threads=least_threads, **kwargs)

    def test_c_without_frame_pointers(self):
        self.check("c_calls", least_threads=7)

    def test_cpp(self):
        self.check("cpp_calls", least_threads=12)

    def test_signal_handlers(self):
        self.check("in_signal_handler", least_threads=4)

    def test_fiber(self):
        self.check("fiber", explained=BELOW_A_FIBER)

    def test_code_without_unwind_tables(self):
        self.check("jit", explained=NO_UNWIND_TABLES)

    def test_stripped(self):
        program = elf_variants.stripped_only(PROGRAMS / "c_calls", self.dir)
        dump = self.check(program, name="stripped", least_threads=7)
        frame = next(f for f in dump.frames(dump.named("recursion")) if f.get("module") == "c_calls")
        self.assertTrue(frame.get("moduleOffset"))

    def test_static(self):
        self.check("odd_frames_static", least_threads=15)

    def test_static_pie(self):
        self.check("static_pie", least_threads=5)

    def test_deleted_executable(self):
        program = self.dir / "soon_gone"
        shutil.copy(PROGRAMS / "c_calls", program)
        victim = self.start_victim(program)
        gdb = oracle.of_gdb(victim.pid)
        program.unlink()
        self.compare_process(Outside(), victim.pid, "deleted", gdb=gdb, symbols_from=PROGRAMS / "c_calls", least_threads=7)

    def test_python(self):
        victim = servers.python3(self.dir)
        self.addCleanup(victim.kill)
        self.compare_process(Outside(), victim.pid, "python3", least_threads=9)

    @needs_root
    def test_of_another_user(self):
        os.chmod(self.dir, 0o711)
        program = self.dir / "c_calls"
        shutil.copy(PROGRAMS / "c_calls", program)
        os.chmod(program, 0o755)
        self.check(program, name="another uid", least_threads=7, wrap=as_user(UID))

    @needs_root
    def test_in_another_mount_namespace(self):
        """The program and its folder exist there alone, below another root."""
        root = self.dir / "root"
        root.mkdir()
        setup = f"mount --rbind / {root} && mount -t tmpfs none {root}/mnt && cp {PROGRAMS}/c_calls {root}/mnt/inside"
        dump = self.check("/mnt/inside", name="chroot", least_threads=7, symbols_from=PROGRAMS / "c_calls",
                          wrap=["unshare", "-m", "sh", "-ec", f'{setup}\nexec chroot {root} "$@"', "sh"])
        self.assertFalse(os.path.exists("/mnt/inside"))
        frames = [f for tid in dump.threads for f in dump.frames(tid) if f.get("module") == "inside"]
        self.assertTrue(frames and all(f.get("file") for f in frames if f.get("function") == "recurse"))


@pytest.mark.thorough
class OutsideHangTest(WithoutAgent, HangVictimsTest):
    """Each victim of hang_victims_test has the same verdict: the cases are its own."""


class OutsideOneMomentTest(StackdTest):
    """A stack is of one moment, of a thread asleep as of one that runs."""

    def test_of_threads_that_wake_and_sleep_all_the_time(self):
        victim = self.start_victim("call_paths", quiet_test.THREADS, preload=False)
        stacks, faults = 0, []
        for _ in range(DUMPS_OF_PATHS):
            dump = Outside().dump(victim.pid)
            for tid, thread in dump.threads.items():
                if tid == victim.pid or dump.stack(tid) is None or "Sleep" not in str(dump.functions(tid)):
                    continue
                stacks += 1
                functions = [name for name in map(quiet_test.plain, dump.functions(tid)) if name != "Step"]
                if fault := quiet_test.fault_of(functions):
                    faults.append(f"{fault}, asleep {thread.get('readAsleep', False)}: {' '.join(functions)}")
        self.assertGreater(stacks, DUMPS_OF_PATHS * quiet_test.THREADS / 4)
        self.assertFalse(faults, f"{len(faults)} of {stacks}:\n" + "\n".join(faults[:10]))
        print(f"outside: {stacks} stacks of threads that come and go, each of one moment", file=sys.stderr)


class OutsideSameTest(StackdTest):
    """What is said of one process from outside is what is said of it with its agent."""

    def test_of_a_deadlock(self):
        daemon = self.start_daemon()
        victim = self.start_victim(PROGRAMS.parent / "hangs/hang_mutex", "cycle_2")
        daemon.await_process(victim.pid)
        with_agent, outside = daemon.dump(victim.pid), Outside().dump(victim.pid)
        # The agent's own thread is one more that is idle.
        texts = [[text_of(f) for f in dump.resource["findings"] if f["severity"] != "HARMLESS"]
                 for dump in (with_agent, outside)]
        self.assertEqual(*texts)
        self.assertTrue(any(f["kind"] == "DEADLOCK" for f in outside.resource["findings"]))

    def test_of_python(self):
        daemon = self.start_daemon()
        victim = servers.python3(self.dir)
        self.addCleanup(victim.kill)
        daemon.await_process(victim.pid)
        with_agent, outside = daemon.dump(victim.pid), Outside().dump(victim.pid)
        compared = 0
        for tid, thread in with_agent.threads.items():
            if thread.get("isAgent"):
                continue
            self.assertEqual(python_lines(with_agent, tid), python_lines(outside, tid), thread)
            compared += bool(python_lines(outside, tid))
        self.assertGreaterEqual(compared, 9)
        self.assertEqual(with_agent.resource["runtimes"], outside.resource["runtimes"])

    def test_the_daemon_is_asked_where_it_knows_the_process(self):
        daemon = self.start_daemon()
        victim = self.start_victim("c_calls")
        daemon.await_process(victim.pid)
        stored = daemon.ctl_json("dump", "--pid", victim.pid)
        self.assertEqual(stored["name"], daemon.ctl_json("list")["dumps"][0]["name"])
        outside = daemon.ctl("dump", "--pid", victim.pid, "--no-daemon")
        self.assertEqual(OK, outside.code, outside.err)
        self.assertIn("the dump is not stored", outside.err)
        self.assertEqual(1, len(daemon.ctl_json("list")["dumps"]))


class OutsideHarmlessTest(StackdTest):
    """The process loses nothing and is told nothing."""

    limit_s = 900

    def start(self, spinning):
        return self.start_victim("watched_from_outside", spinning, preload=False, stdin="")

    def counts(self, victim):
        """Signals taken, sleeps that ended early, threads that move."""
        return tuple(map(int, victim.ask("").split()))

    def test_no_sleep_ends_early(self):
        victim = self.start(0)
        for _ in range(QUIET_DUMPS // QUIET_SERIES):
            taken = Outside().ctl("dump", victim.pid, "--samples", QUIET_SERIES, "--every", "100ms")
            self.assertEqual(OK, taken.code, taken.err)
            self.assertEqual(QUIET_SERIES, taken.err.count(": 6 threads\n"), taken.err)
        self.assertEqual((0, 0, 0), self.counts(victim))

    def test_threads_that_run_are_read_too(self):
        victim = self.start(3)
        dump = Outside().dump(victim.pid, allowed=(OK,))
        spinning = [tid for tid, thread in dump.threads.items() if thread["name"] == "spins"]
        self.assertEqual(3, len(spinning))
        for tid in spinning:
            self.assertEqual("CAPTURED", dump.status(tid), dump.threads[tid])
            self.assertEqual(["spin", "victim_thread_main"], dump.functions(tid)[:2])
        quiet = Outside().dump(victim.pid, "--no-ptrace", allowed=(OK,))
        self.assertEqual({"RUNNING"}, {quiet.status(tid) for tid in spinning})
        self.assertEqual((0, 0, 3), self.counts(victim))

    def test_killed_at_any_moment_it_leaves_all_threads_at_work_and_takes_no_signal(self):
        victim = self.start(4)
        tids = [tid for tid in task_ids(victim.pid)
                if pathlib.Path(f"/proc/{victim.pid}/task/{tid}/comm").read_text().strip() == "spins"]
        dice = random.Random(20261126)
        sent = 0
        for _ in range(KILLS):
            reader = subprocess.Popen(Outside().command(victim.pid), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            end = time.monotonic() + dice.uniform(0, READING_S)
            while time.monotonic() < end:
                # Queued ones: each counts.
                signal_thread(victim.pid, dice.choice(tids), COUNTED_SIGNAL)
                sent += 1
                time.sleep(0.0005)
            reader.kill()
            reader.wait()
        eventually("each signal is taken", lambda: self.counts(victim)[0] >= sent)
        self.assertEqual((sent, 0, 4), self.counts(victim))
        self.assertNotIn("t", {state_of(victim.pid, tid) for tid in task_ids(victim.pid)})
        print(f"outside: {KILLS} kills, {sent} signals taken, none lost", file=sys.stderr)

    def test_what_is_traced_by_another_is_left_alone(self):
        victim = self.start(2)
        debugger = subprocess.Popen(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(victim.pid), "-ex",
                                     "echo attached\\n", "-ex", "shell sleep 3600"], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(debugger.wait)
        self.addCleanup(os.killpg, debugger.pid, signal.SIGKILL)
        while b"attached" not in debugger.stdout.readline():
            self.assertIsNone(debugger.poll())
        dump = Outside().dump(victim.pid, allowed=(OK,))
        self.assertIn(f"process {debugger.pid} (gdb) traces process {victim.pid}", "\n".join(dump.notes))
        for tid in task_ids(victim.pid):
            self.assertEqual("STOPPED", dump.status(tid), dump.threads[tid])
            self.assertEqual("t", state_of(victim.pid, tid))
            self.assertTrue(dump.frames(tid))
        debugger.stdout.close()


def signal_thread(pid, tid, number):
    if _LIBC.tgkill(pid, tid, number) != 0:
        raise AssertionError(f"thread {tid} of {pid} cannot be signalled")


def is_asleep_in(pid, program):
    """Whether the process runs this program by now, and sleeps."""
    comm = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return comm == program and state_of(pid, pid) == "S"


def state_of(pid, tid):
    return re.search(r"^State:\s+(\w)", pathlib.Path(f"/proc/{pid}/task/{tid}/status").read_text(), re.M).group(1)


# The kernel counts what a process was before exec as well: started from here, that would be the memory of the tests.
STATUS_AND_PEAK = """
import resource, subprocess, sys
print(subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
      resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class OutsideHostileTest(StackdTest):
    """A process that lies, changes or ends costs bounded time and memory."""

    def read(self, pid, *args, limit_s=30, allowed=(OK, PARTIAL)):
        """The dump, and the seconds that it took."""
        begin = time.monotonic()
        dump = Outside().dump(pid, *args, allowed=allowed)
        took_s = time.monotonic() - begin
        self.assertLess(took_s, limit_s)
        return dump, took_s

    def test_memory_that_changes_and_stacks_that_are_none(self):
        victim = self.start_victim("liar", preload=False)
        for _ in range(20):
            dump, _ = self.read(victim.pid)
            self.assertEqual(set(dump.threads), task_ids(victim.pid))
            for name in ("nowhere", "end"):
                self.assertLessEqual(len(dump.frames(dump.named(name))), 1)
        self.assertTrue(victim.alive())

    def test_five_thousand_threads(self):
        victim = self.start_victim("waiting_threads", 5000, preload=False)
        dump, took_s = self.read(victim.pid, allowed=(OK,))
        self.assertEqual(5001, dump.counts["captured"])
        status, peak_kib = map(int, subprocess.check_output([sys.executable, "-c", STATUS_AND_PEAK, *Outside().command(victim.pid)]).split())
        self.assertEqual(OK, status)
        self.assertLess(peak_kib / 1024, 512)
        print(f"outside: 5,001 threads in {took_s:.2f} s", file=sys.stderr)

    def test_stacks_of_which_none_is_like_another(self):
        victim = self.start_victim("hostile_stacks", 200, 400, preload=False)
        dump, _ = self.read(victim.pid)
        self.assertEqual(201, dump.counts["captured"])

    def test_a_process_that_ends_while_it_is_read(self):
        dice = random.Random(7)
        for _ in range(20):
            victim = self.start_victim("waiting_threads", 300, preload=False)
            reader = subprocess.Popen(Outside().command(victim.pid), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(dice.uniform(0, 0.06))
            victim.kill()
            _, said = reader.communicate(timeout=30)
            self.assertIn(reader.returncode, (OK, PARTIAL, FAILURE, NOT_FOUND), said)
            if reader.returncode != OK:
                self.assertRegex(said, r"ended|no process|could not be read|partial")

    def test_the_deadline_holds(self):
        victim = self.start_victim("waiting_threads", 3000, preload=False)
        outcome = Outside().ctl("dump", victim.pid, "--timeout", "1ms")
        self.assertIn(outcome.code, (OK, PARTIAL), outcome.err)


@needs_root
class OutsideAllowedTest(StackdTest):
    """What is refused is said before it fails, by the control that refuses it."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o711)
        for binary in (STACKCTL, PROGRAMS / "c_calls"):
            shutil.copy(binary, self.dir)
            os.chmod(self.dir / binary.name, 0o755)

    def victim(self, *wrap):
        return self.start_victim(self.dir / "c_calls", wrap=wrap, preload=False)

    def reader(self, *wrap):
        return Outside(wrap, self.dir / STACKCTL.name)

    def assert_refused(self, outcome, pattern, code=FAILURE):
        self.assertEqual(code, outcome.code, outcome.text)
        self.assertRegex(outcome.err, pattern)
        self.assertEqual(1, len(outcome.err.strip().splitlines()), outcome.err)

    def test_the_same_user_needs_no_right(self):
        victim = self.victim(*as_user(UID))
        dump = self.reader(*as_user(UID)).dump(victim.pid, allowed=(OK,))
        self.assertEqual({"CAPTURED"}, {dump.status(tid) for tid in dump.threads})

    def test_another_user(self):
        victim = self.victim(*as_user(UID))
        refused = self.reader(*as_user(OTHER_UID)).ctl("dump", victim.pid)
        self.assert_refused(refused, f"it belongs to uid {UID} and stackctl runs as uid {OTHER_UID}: run stackctl as that user")

    def test_the_capability_to_trace_alone(self):
        victim = self.victim(*as_user(UID))
        only_trace = ["setpriv", f"--reuid={OTHER_UID}", "--clear-groups", "--inh-caps=-all,+sys_ptrace",
                      "--ambient-caps=-all,+sys_ptrace", "--bounding-set=-all,+sys_ptrace", "--"]
        refused = self.reader(*only_trace).ctl("dump", victim.pid)
        self.assert_refused(refused, "CAP_SYS_PTRACE alone does not open .* give it CAP_DAC_READ_SEARCH too")

    def test_not_dumpable(self):
        # Executable, and not readable by its user: the kernel makes that process not dumpable.
        program = self.dir / "unreadable"
        shutil.copy(shutil.which("sleep"), program)
        os.chmod(program, 0o711)
        victim = self.start_victim(program, "3600", wrap=as_user(UID), preload=False, ready=None)
        eventually("it sleeps", lambda: is_asleep_in(victim.pid, "unreadable"))
        refused = self.reader(*as_user(UID)).ctl("dump", victim.pid)
        self.assert_refused(refused, "it is not dumpable.*: run stackctl as root")
        self.assertEqual(OK, self.reader().ctl("dump", victim.pid).code)

    def test_more_capabilities(self):
        victim = self.victim("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=+net_bind_service",
                             "--ambient-caps=+net_bind_service", "--")
        refused = self.reader(*as_user(UID)).ctl("dump", victim.pid)
        self.assert_refused(refused, "it has capabilities that stackctl has not")

    def test_no_such_process(self):
        self.assert_refused(self.reader().ctl("dump", 4_000_000), "there is no process 4000000 here", NOT_FOUND)

    def test_a_thread_is_no_process(self):
        victim = self.victim()
        tid = max(task_ids(victim.pid))
        self.assert_refused(self.reader().ctl("dump", tid), f"{tid} is a thread of process {victim.pid}: say --pid {victim.pid}", NOT_FOUND)

    def test_a_thread_of_the_kernel(self):
        stat = pathlib.Path("/proc/2/stat")
        if not stat.exists() or "(kthreadd)" not in stat.read_text():
            self.skipTest("threads of the kernel are not visible here")
        self.assert_refused(self.reader().ctl("dump", 2), "process 2 is a thread of the kernel", NOT_FOUND)

    def test_a_zombie(self):
        zombie = subprocess.Popen(["true"])
        self.addCleanup(zombie.wait)
        eventually("it has ended", lambda: state_of(zombie.pid, zombie.pid) == "Z")
        self.assert_refused(self.reader().ctl("dump", zombie.pid), "has ended .*zombie", NOT_FOUND)

    def test_a_hidden_process(self):
        victim = self.victim(*as_user(UID))
        hidden = ["unshare", "-m", "sh", "-ec", "mount -t proc -o hidepid=2 proc /proc\nexec \"$@\"", "sh", *as_user(OTHER_UID)]
        self.assert_refused(self.reader(*hidden).ctl("dump", victim.pid), r"is hidden from uid \d+ .*hidepid", NOT_FOUND)

    def test_doctor_says_the_same(self):
        victim = self.victim(*as_user(UID))
        for uid, expected in ((OTHER_UID, "FAIL  dump --pid: .*belongs to uid"), (UID, "ok    dump --pid may read it")):
            done = subprocess.run([*as_user(uid), self.dir / STACKCTL.name, "doctor", "--pid", str(victim.pid)],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertRegex(done.stdout, expected)


# Else its cases are collected here once more, with a daemon.
del HangVictimsTest

if __name__ == "__main__":
    unittest.main()
