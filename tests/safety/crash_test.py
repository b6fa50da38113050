#!/usr/bin/python3
"""Crashes under the agent: recorded once, and for the program as if it had not been watched.

Each case runs twice, without the agent and with it: exit status and output must be the same. The daemon is fake_daemon.py, or
there is none.
"""

import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.abspath("tests/e2e"))
import fake_daemon
import stand
from busyness import Busyness

VICTIM = os.path.abspath("tests/safety/crash_victim")
SPOOL_HEADER_BYTES = 1488
HOLD_S = 2.0

busyness = Busyness()


def setUpModule():
    unittest.enterModuleContext(busyness)


SIGNALS = {
    "null": signal.SIGSEGV,
    "jump": signal.SIGSEGV,
    "overflow": signal.SIGSEGV,
    "bus": signal.SIGBUS,
    "ill": signal.SIGILL,
    "fpe": signal.SIGFPE,
    "trap": signal.SIGTRAP,
    "sys": signal.SIGSYS,
    "abort": signal.SIGABRT,
    "throw": signal.SIGABRT,
    "raise_ABRT": signal.SIGABRT,
    "raise_SEGV": signal.SIGSEGV,
    "kill_BUS": signal.SIGBUS,
    "queue_FPE": signal.SIGFPE,
}
FAULTS = {"null", "jump", "overflow", "bus", "ill", "fpe"}
RAISED_SYS = "sys, raised again"
SENT = {"abort", "throw", "raise_ABRT", "raise_SEGV", "kill_BUS", "queue_FPE", RAISED_SYS}
ENDING_HANDLERS = ["_exits", "exits", "reraises", "aborts", "crashes", "execs", "reraises+onstack", "_exits+nodefer"]


def spooled(folder):
    """The crashes in the spool files of a folder."""
    spool = os.path.join(folder, "spool")
    crashes = []
    for name in sorted(os.listdir(spool)) if os.path.isdir(spool) else []:
        path = os.path.join(spool, name)
        with open(path, "rb") as file:
            data = file.read()
        if not data:
            continue
        # Closed by its folder: a daemon of another user that opens the folder to others must be able to read it.
        assert os.stat(spool).st_mode & 0o777 == 0o700, spool
        magic, abi, header_bytes, slots, maps_bytes, images, _, wall_ns = struct.unpack_from("<QIIIIIIQ", data)
        assert magic == 0x31676C7053646B53 and abi == 1 and header_bytes == SPOOL_HEADER_BYTES
        at = header_bytes
        crash = fake_daemon.Crash([data[at + 2048 * i : at + 2048 * (i + 1)] for i in range(slots)])
        at += 2048 * slots
        crash.maps = data[at : at + maps_bytes].decode()
        at += maps_bytes
        crash.images = {}
        for _ in range(images):
            address, size, _ = struct.unpack_from("<QII", data, at)
            crash.images[address] = data[at + 16 : at + 16 + size]
            at += 16 + size
        assert at == len(data), (at, len(data))
        assert abs(wall_ns / 1e9 - time.time()) < 60
        crash.pid = struct.unpack_from("<i", data, 40 + 16)[0]
        crash.exe = fake_daemon.text(data[40 + 424 : 40 + 1448])
        assert crash.id != (0, 0)
        crash.path = path
        crashes.append(crash)
    return crashes


def core_of(path):
    """Registers and signal of the thread that a core file was written for: rip and rsp, and si_signo, si_errno and si_code."""
    with open(path, "rb") as file:
        data = file.read()
    header_offset, header_count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    registers = siginfo = None
    for i in range(header_count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, header_offset + 56 * i)
        if kind != 4:  # PT_NOTE
            continue
        at = offset
        while at < offset + size:
            name_size, desc_size, note = struct.unpack_from("<III", data, at)
            desc = at + 12 + (name_size + 3) // 4 * 4
            if note == 1 and registers is None:  # NT_PRSTATUS, of that thread first
                registers = struct.unpack_from("<27Q", data, desc + 112)
            if note == 0x53494749 and siginfo is None:  # NT_SIGINFO
                siginfo = struct.unpack_from("<iii", data, desc)
            at = desc + (desc_size + 3) // 4 * 4
    return registers[16], registers[19], siginfo


class Outcome:
    def __init__(self, completed, seconds, busy_s, daemon, crashes):
        self.code = completed.returncode
        self.out = completed.stdout
        self.err = completed.stderr
        self.seconds = seconds
        self.busy_s = busy_s  # of these, for which the machine had no CPU for it
        self.daemon = daemon
        self.spooled = crashes


def run(arguments, daemon_options=None, wrap=(), wait_s=0.03, **environment):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        daemon = fake_daemon.FakeDaemon(folder, **daemon_options) if daemon_options is not None else None
        under = dict(os.environ, LD_PRELOAD=stand.AGENT, STACKD_DIR=folder, **environment)
        under = [f"{k}={v}" for k, v in under.items()]
        begin = time.monotonic()
        completed = subprocess.run(
            [*wrap, "/usr/bin/env", "-i", *under, VICTIM, *arguments, str(wait_s)],
            capture_output=True,
            timeout=30,
            check=False,
        )
        end = time.monotonic()
        if daemon is not None:
            if daemon.connected.is_set():
                daemon.over.wait(5)
            daemon.close()
        return Outcome(completed, end - begin - wait_s, busyness.allowance_s(begin, end), daemon, spooled(folder))


def run_plain(arguments, wrap=(), **environment):
    return subprocess.run(
        [*wrap, VICTIM, *arguments], env=dict(os.environ, **environment), capture_output=True, timeout=30, check=False
    )


class CrashTest(unittest.TestCase):
    def assert_took_less(self, outcome, seconds):
        self.assertLess(outcome.seconds - outcome.busy_s, seconds)

    def assert_same(self, outcome, arguments, **options):
        plain = run_plain(arguments, **options)
        # The kernel's own words for a signal differ by nothing.
        self.assertEqual((outcome.code, outcome.out, outcome.err), (plain.returncode, plain.stdout, plain.stderr))

    def one_crash(self, outcome):
        self.assertEqual(outcome.spooled, [])
        self.assertEqual(len(outcome.daemon.crashes), 1)
        self.assertEqual(outcome.daemon.tentative, [])
        self.assertEqual(outcome.daemon.ring.free_slots(), outcome.daemon.ring.slots, "slots are lost")
        return outcome.daemon.crashes[0]

    def check_fields(self, how, crash):
        self.assertEqual(crash.signal, signal.SIGSYS if how == RAISED_SYS else SIGNALS[how])
        self.assertEqual(bool(crash.flags & fake_daemon.SENT), how in SENT)
        self.assertEqual(crash.thread.tid, crash.tid)
        self.assertEqual(crash.thread.seq, 0)
        self.assertNotEqual(crash.id, (0, 0))
        if how == "jump":
            self.assertEqual(crash.thread.registers[fake_daemon.RIP], 0)
            self.assertEqual(crash.address, 0)
        if how == "null":
            self.assertEqual((crash.address, crash.trap_number, crash.trap_error & 2), (0, 14, 2))
        if how == "throw":
            self.assertEqual(crash.exception_type, "St13runtime_error")
            self.assertNotIn("secret", crash.abort_message)
        if how == "overflow":
            self.assertLess(abs(crash.address - crash.stack_start), 4096)
            self.assertGreater(crash.stack_end - crash.stack_start, 4 << 20)
            self.assertTrue(crash.thread.flags & fake_daemon.BOTH_ENDS)
            self.assertGreaterEqual(crash.thread.stack_words * 8, 64 << 10)
            self.assertGreaterEqual(crash.thread.outer_words * 8, 16 << 10)
        elif how not in ("throw", "abort"):
            self.assertLess(crash.stack_start, crash.thread.registers[fake_daemon.RSP])
            self.assertLess(crash.thread.registers[fake_daemon.RSP], crash.stack_end)

    def test_a_crash_by_default_action_is_recorded_once_with_all_threads(self):
        for how in SIGNALS:
            for where in ("main", "thread"):
                with self.subTest(how=how, where=where):
                    # A process with a filter of its own is asked nothing otherwise.
                    outcome = run([how, "default", where], {"dump": True}, STACKD_SECCOMP_DUMPS="1")
                    self.assert_same(outcome, [how, "default", where])
                    crash = self.one_crash(outcome)
                    self.check_fields(how, crash)
                    self.assertEqual(crash.flags & fake_daemon.HANDLED, 0)
                    self.assertNotIn(crash.tid, outcome.daemon.threads, "it was asked too")
                    self.assertEqual(outcome.daemon.listed, len(outcome.daemon.threads))
                    if where == "main":
                        self.assertEqual(len(outcome.daemon.threads), 1)
                    elif not how.startswith(("kill", "queue")):  # these reach the main thread, and the other may be gone
                        self.assertEqual(len(outcome.daemon.threads), 2)
                    self.assert_took_less(outcome, 1)

    def test_a_crash_before_the_agent_is_connected_is_recorded_all_the_same(self):
        for where in ("main", "thread"):
            outcome = run(["null", "default", where], {"dump": True}, wait_s=0)
            self.one_crash(outcome)

    def test_what_the_handler_was_called_for_is_recorded_if_it_does_not_recover(self):
        for how in ("null", "fpe", "abort", "trap", "raise_SEGV"):
            for action in ENDING_HANDLERS:
                with self.subTest(how=how, action=action):
                    outcome = run([how, action, "thread"], {"dump": True})
                    self.assert_same(outcome, [how, action, "thread"])
                    crash = self.one_crash(outcome)
                    self.check_fields(how, crash)
                    self.assertTrue(crash.flags & fake_daemon.HANDLED)

    def test_a_fault_that_is_met_again_is_recorded(self):
        for how in ("null", "ill", "bus"):
            for action in ("resets", "returns+resethand"):
                with self.subTest(how=how, action=action):
                    outcome = run([how, action, "main"], {})
                    self.assert_same(outcome, [how, action, "main"])
                    self.check_fields(how, self.one_crash(outcome))

    def test_abort_kills_after_its_handler_has_returned_and_raise_does_not(self):
        outcome = run(["abort", "returns", "main"], {})
        self.assert_same(outcome, ["abort", "returns", "main"])
        self.assertEqual(self.one_crash(outcome).signal, signal.SIGABRT)
        outcome = run(["raise_ABRT", "returns", "main"], {})
        self.assert_same(outcome, ["raise_ABRT", "returns", "main"])
        self.assertEqual((outcome.daemon.crashes, outcome.daemon.tentative), ([], []))

    def test_a_process_killed_in_its_handler_leaves_a_tentative_record(self):
        outcome = run(["null", "killed", "thread"], {}, wait_s=0.2)
        self.assertEqual(outcome.code, -signal.SIGKILL)
        self.assertEqual(outcome.daemon.crashes, [])
        self.assertEqual([c.signal for c in outcome.daemon.tentative], [signal.SIGSEGV])

    def test_recovered_faults_leave_nothing(self):
        with open("/proc/cpuinfo", encoding="ascii") as cpus:
            wide = "wide" if " avx " in cpus.read() else "protected"
        for how, action in (("protected", "repairs"), (wide, "repairs"), (wide, "repairs+onstack"), ("protected", "longjmps"),
                            ("raise_SEGV", "returns")):
            with self.subTest(how=how, action=action):
                outcome = run([how, action, "main"], {}, ROUNDS="20000", wait_s=0.1)
                self.assertEqual(outcome.code, 0, outcome.err)
                self.assertEqual((outcome.daemon.crashes, outcome.daemon.tentative, outcome.spooled), ([], [], []))
                self.assertEqual(outcome.daemon.ring.free_slots(), outcome.daemon.ring.slots)

    def test_a_program_that_is_ended_after_a_fault_that_it_jumped_out_of_has_not_crashed(self):
        outcome = run(["null_once", "longjmps", "main"], {}, wait_s=0.2)
        self.assertEqual(outcome.code, -signal.SIGTERM)
        self.assertEqual((outcome.daemon.crashes, outcome.daemon.tentative), ([], []))

    def test_a_daemon_that_does_not_welcome_the_process_delays_one_fault_only(self):
        outcome = run(["protected", "longjmps", "main"], {"welcome": False}, ROUNDS="1000")
        self.assertEqual(outcome.code, 0)
        self.assert_took_less(outcome, 1)

    def test_ignored_signals_stay_ignored(self):
        for how in ("raise_SEGV", "kill_BUS", "null", "abort"):
            with self.subTest(how=how):
                outcome = run([how, "ignore", "main"], {})
                self.assert_same(outcome, [how, "ignore", "main"])
                self.assertEqual(outcome.daemon.crashes, [])

    def test_threads_that_crash_together_are_one_crash_and_the_other_is_in_the_dump(self):
        for how in ("null", "overflow", "abort"):
            with self.subTest(how=how):
                outcome = run([how, "default", "together"], {"dump": True})
                self.assert_same(outcome, [how, "default", "together"])
                crash = self.one_crash(outcome)
                self.assertNotIn(crash.tid, outcome.daemon.threads)
                self.assertEqual(len(outcome.daemon.threads), 3)

    def test_the_core_file_shows_the_crash_and_not_the_agent(self):
        with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
            if not file.read().startswith("core"):
                self.skipTest("core files go elsewhere here")
        for how in ("null", "overflow", "trap", "abort", "sys", "raise_SEGV"):
            for with_daemon in (True, False):
                with self.subTest(how=how, with_daemon=with_daemon), tempfile.TemporaryDirectory() as folder:
                    limit = ["/usr/bin/prlimit", "--core=unlimited", "/usr/bin/env", "--chdir=" + folder]
                    outcome = run([how, "default", "thread"], {"dump": True} if with_daemon else None, wrap=limit)
                    (crash,) = outcome.daemon.crashes if with_daemon else outcome.spooled
                    (name,) = os.listdir(folder)
                    rip, rsp, siginfo = core_of(os.path.join(folder, name))
                    self.assertEqual(rip, crash.thread.registers[fake_daemon.RIP])
                    self.assertEqual(rsp, crash.thread.registers[fake_daemon.RSP])
                    self.assertEqual((siginfo[0], siginfo[2]), (crash.signal, crash.code))

    def test_a_thread_that_ends_the_process_meanwhile_does_not_hide_the_crash(self):
        for where in ("return", "exit", "_exit", "exec"):
            with self.subTest(where=where):
                outcome = run(["null", "default", where], {"delay_s": 0.1, "dump": True})
                self.assertEqual(outcome.code, -signal.SIGSEGV)
                self.one_crash(outcome)
                self.assert_took_less(outcome, 1)

    def test_without_a_daemon_there_is_a_spool_file(self):
        for how in SIGNALS:
            for action in ("default", "reraises"):
                with self.subTest(how=how, action=action):
                    outcome = run([how, action, "thread"])
                    self.assert_same(outcome, [how, action, "thread"])
                    if (how, action) == ("overflow", "reraises"):
                        self.assertEqual(len(outcome.spooled), 1, "there was no room for the handler")
                        continue
                    (crash,) = outcome.spooled
                    # A refused call is left to the program's handler alone: what it raises is all that is seen.
                    self.check_fields(RAISED_SYS if (how, action) == ("sys", "reraises") else how, crash)
                    self.assertEqual(crash.exe, VICTIM if os.path.realpath(VICTIM) == VICTIM else os.path.realpath(VICTIM))
                    self.assertIn(os.path.basename(VICTIM), crash.maps)
                    self.assertGreaterEqual(len(crash.images), 3)
                    for image in crash.images.values():
                        self.assertEqual(image[:4], b"\x7fELF")
                    self.assert_took_less(outcome, 1)

    def test_a_daemon_that_does_not_take_the_crash_costs_half_a_second(self):
        outcome = run(["null", "default", "main"], {"take": False})
        self.assertEqual(len(outcome.spooled), 1)
        self.assertEqual(outcome.spooled[0].id, outcome.daemon.crashes[0].id)
        self.assertGreater(outcome.seconds, 0.45)
        self.assert_took_less(outcome, 0.6 + 0.5)

    def test_a_daemon_that_does_not_store_it_costs_the_hold_and_no_more(self):
        outcome = run(["null", "default", "main"], {"store": False})
        self.assertEqual(len(outcome.spooled), 1)
        self.assert_took_less(outcome, HOLD_S + 0.5)
        outcome = run(["null", "default", "main"], {"store": False}, STACKD_CRASH_HOLD_MS="300")
        self.assert_took_less(outcome, 1)
        outcome = run(["null", "default", "main"], {"store": False}, STACKD_CRASH_HOLD_MS="0")
        self.assertEqual(len(outcome.spooled), 1)
        self.assert_took_less(outcome, 0.5)

    def test_a_daemon_that_dies_meanwhile_is_noticed(self):
        outcome = run(["null", "default", "main"], {"die": True})
        self.assertEqual(len(outcome.spooled), 1)
        self.assert_took_less(outcome, 1)

    def test_the_daemons_file_is_used_where_it_gave_one(self):
        outcome = run(["null", "default", "main"], {"take": False, "spool": True})
        (crash,) = outcome.spooled
        self.assertEqual(os.path.basename(crash.path), "0" * 32 + ".crash")

    def test_hard_times(self):
        for how in ("no_fds", "no_pending", "no_pending_abort", "no_memory"):
            for with_daemon in (True, False):
                with self.subTest(how=how, with_daemon=with_daemon):
                    outcome = run([how, "default", "main"], {} if with_daemon else None)
                    self.assert_same(outcome, [how, "default", "main"])
                    crashes = outcome.daemon.crashes if with_daemon else outcome.spooled
                    if how == "no_memory":
                        # On a busy machine the limit may come before the agent has mapped its ring, which then it cannot.
                        crashes = crashes or outcome.spooled
                    self.assertEqual(len(crashes), 1)
                    self.assert_took_less(outcome, 1)

    def test_no_system_call_but_those_on_the_list(self):
        for how in ("seccomp", "seccomp_no_read"):
            for with_daemon in (True, False):
                with self.subTest(how=how, with_daemon=with_daemon):
                    outcome = run([how, "default", "thread"], {} if with_daemon else None)
                    self.assertEqual(outcome.code, -signal.SIGSEGV)
                    crashes = outcome.daemon.crashes if with_daemon else outcome.spooled
                    self.assertEqual([c.signal for c in crashes], [signal.SIGSEGV])
                    self.assertGreater(crashes[0].thread.stack_words, 100)

    def test_a_fault_of_the_handler_leaves_what_there_is(self):
        outcome = run(["unmapped_ring", "default", "main"], {})
        self.assertEqual(outcome.code, -signal.SIGSEGV)
        (crash,) = outcome.spooled
        self.assertTrue(crash.flags & fake_daemon.AGENT_FAULT)
        self.assertNotEqual(crash.thread.registers[fake_daemon.RIP], 0)
        outcome = run(["unmapped_ring_abort", "default", "main"], {})
        self.assertEqual(outcome.code, -signal.SIGABRT, "the program's handler of SIGSEGV was called for it")
        self.assertEqual([c.signal for c in outcome.spooled], [signal.SIGABRT])

    def test_every_thread_has_an_alternate_stack_and_none_is_left_behind(self):
        outcome = run(["altstacks", "default", "main"])
        stacks, more = map(int, re.match(rb"(\d+) stacks, (-?\d+) mappings more", outcome.out).groups())
        self.assertEqual(stacks, 300)
        self.assertLess(more, 40)
        outcome = run(["altstacks", "default", "main"], STACKD_CRASH_SIGNALS="none")
        self.assertTrue(outcome.out.startswith(b"0 stacks"))

    def test_a_bad_stack_pointer_gives_registers(self):
        outcome = run(["sp", "default", "main"], {})
        self.assert_same(outcome, ["sp", "default", "main"])
        crash = self.one_crash(outcome)
        self.assertEqual(crash.thread.registers[fake_daemon.RSP], 0x1234)
        self.assertTrue(crash.thread.flags & fake_daemon.NO_STACK)

    def test_children_crash_for_themselves(self):
        outcome = run(["vfork", "default", "main"])
        self.assertEqual((outcome.code, outcome.spooled), (0, []))
        outcome = run(["fork", "default", "main"])
        self.assertEqual(outcome.code, 0)
        self.assertEqual([c.signal for c in outcome.spooled], [signal.SIGSEGV])

    def test_only_the_signals_that_are_listed(self):
        for listed, how, count in (("SEGV,BUS", "null", 1), ("SEGV,BUS", "ill", 0), ("none", "null", 0)):
            with self.subTest(listed=listed, how=how):
                outcome = run([how, "default", "main"], STACKD_CRASH_SIGNALS=listed)
                self.assert_same(outcome, [how, "default", "main"])
                self.assertEqual(len(outcome.spooled), count)

    def test_signal_and_its_kin_give_back_what_was_set_before(self):
        program = (
            "import ctypes\n"
            "libc = ctypes.CDLL(None)\n"
            "for name in ('signal', 'ssignal', 'sysv_signal', '__sysv_signal'):\n"
            "    function = libc[name]\n"
            "    function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)\n"
            "    print(name, [function(number, action) for number in (7, 11, 15, 10) for action in (1, 0, 0, 1, 0)])\n"
        )
        alone = subprocess.run(["/usr/bin/python3", "-c", program], capture_output=True, text=True, check=True)
        with tempfile.TemporaryDirectory() as folder:
            variables = {"LD_PRELOAD": os.path.abspath("agent/libstackd_agent.so"), "STACKD_DIR": folder}
            watched = subprocess.run(["/usr/bin/python3", "-c", program], capture_output=True, text=True, check=True,
                                     env={**os.environ, **variables})
        self.assertIn("signal [None, 1, None, None, 1", alone.stdout)
        self.assertEqual(alone.stdout, watched.stdout)

    def test_the_first_process_of_a_namespace_ends(self):
        wrap = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child"]
        if subprocess.run([*wrap, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("needs a PID namespace of its own")
        for how in ("null", "abort", "trap", "fpe", "overflow", "sys", "raise_SEGV", "kill_BUS"):
            with self.subTest(how=how):
                outcome = run([how, "default", "main"], wrap=wrap)
                self.assert_same(outcome, [how, "default", "main"], wrap=wrap)
                sent = how in ("raise_SEGV", "kill_BUS")
                self.assertEqual(len(outcome.spooled), 0 if sent else 1)
                for crash in outcome.spooled:
                    self.assertTrue(crash.flags & fake_daemon.INIT)


if __name__ == "__main__":
    unittest.main()
