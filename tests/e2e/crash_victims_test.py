"""Each way to die has its crash: the right cause, and a sentence that says it. The thread that died has the frames that gdb finds
in the core file of the same death.

    crash: divide                  ARITHMETIC              8 of   8 frames as in the core
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import struct
import sys
import unittest

import crash_core
import elf_variants
from crashes import CrashTest, crash_of, crashes, environment, leaves_cores, run_to_end
from harness import PROGRAMS, ROOT, eventually


@dataclasses.dataclass(frozen=True)
class Death:
    """What the crash must say. `functions`: on the stack, one behind the other, inlined ones or others before them."""

    name: str
    cause: str
    signal: str
    code: str
    says: str  # found in the explanation, whatever its case
    functions: tuple = ()
    message: str = ""  # found in the abort message
    # gdb's walk ends or goes astray there: only this many frames are compared.
    frames: int | None = None


NULL = ("NULL_DEREFERENCE", "SIGSEGV", "SEGV_MAPERR", "null")

C_DEATHS = [
    Death("null_pointer", *NULL, ("null_pointer", "die_as_told")),
    Death("wild_pointer", "BAD_ADDRESS", "SIGSEGV", "SEGV_MAPERR", "nothing is mapped", ("wild_pointer",)),
    Death("use_after_unmap", "BAD_ADDRESS", "SIGSEGV", "SEGV_MAPERR", "nothing is mapped", ("use_after_unmap",)),
    Death("non_canonical", "NON_CANONICAL_ADDRESS", "SIGSEGV", "SI_KERNEL", "canonical|cannot exist", ("non_canonical",)),
    Death("write_to_constant", "PERMISSION", "SIGSEGV", "SEGV_ACCERR", "read-only|only be read|code", ("write_to_constant",)),
    Death("write_to_code", "PERMISSION", "SIGSEGV", "SEGV_ACCERR", "read-only|only be read|code", ("write_to_code",)),
    Death("stack_pointer_garbage", "BAD_ADDRESS", "SIGSEGV", "SEGV_MAPERR", "the stack pointer is wrong",
          ("stack_pointer_garbage",), frames=1),
    Death("jump_to_null", "BAD_JUMP", "SIGSEGV", "SEGV_MAPERR", "null", ("call", "jump_to_null")),
    Death("jump_to_data", "BAD_JUMP", "SIGSEGV", "SEGV_ACCERR", "not code|no code|not executable|jump",
          ("call", "jump_to_data")),
    Death("jump_to_nothing", "BAD_JUMP", "SIGSEGV", "SEGV_MAPERR", "not mapped|unmapped|no memory|no code|jump",
          ("call", "jump_to_nothing")),
    Death("double_free", "HEAP_CORRUPTION", "SIGABRT", "SI_TKILL", "double free", ("double_free",), "free\\(\\): double free"),
    Death("free_of_no_block", "HEAP_CORRUPTION", "SIGABRT", "SI_TKILL", "invalid pointer", ("free_of_no_block",),
          "free\\(\\): invalid pointer"),
    Death("too_much_for_the_buffer", "FORTIFY", "SIGABRT", "SI_TKILL", "buffer overflow", ("too_much_for_the_buffer",),
          "buffer overflow detected"),
    Death("stack_smashing", "FORTIFY", "SIGABRT", "SI_TKILL", "stack smashing", ("stack_smashing",),
          "stack smashing detected"),
    Death("failed_assertion", "ASSERTION", "SIGABRT", "SI_TKILL", "answer == 42", ("failed_assertion",),
          "failed_assertion: Assertion `answer == 42"),
    Death("call_abort", "ABORT", "SIGABRT", "SI_TKILL", "abort", ("call_abort",)),
    Death("divide", "ARITHMETIC", "SIGFPE", "FPE_INTDIV", "divi", ("divide",)),
    Death("illegal", "ILLEGAL_INSTRUCTION", "SIGILL", "ILL_ILLOPN", "illegal|instruction", ("illegal",)),
    Death("breakpoint", "BREAKPOINT", "SIGTRAP", "SI_KERNEL", "breakpoint|trap", ("breakpoint",)),
    Death("truncated_file", "BUS_ERROR", "SIGBUS", "BUS_ADRERR", "file|mapping", ("truncated_file",)),
    Death("forbidden_call", "BAD_SYSTEM_CALL", "SIGSYS", "SYS_SECCOMP", "seccomp|system call", ("forbidden_call",)),
    Death("sent_by_another", "SENT", "SIGABRT", "SI_USER", "sent|process", ("sent_by_another",)),
]

STARVED_DEATHS = [
    Death("no_address_space", *NULL, ("null_pointer", "no_address_space")),
    Death("no_pending_signal", *NULL, ("null_pointer", "no_pending_signal")),
    Death("no_process", *NULL, ("null_pointer", "no_process")),
]

ABORTED = ("SIGABRT", "SI_TKILL")
CPP_DEATHS = [
    Death("uncaught", "UNCAUGHT_EXCEPTION", *ABORTED, "orders::OutOfStock", ("orders::Take", "orders::Uncaught")),
    Death("uncaught_int", "UNCAUGHT_EXCEPTION", *ABORTED, "exception.*int", ("orders::TakeInt", "orders::UncaughtInt")),
    Death("noexcept", "UNCAUGHT_EXCEPTION", *ABORTED, "orders::OutOfStock", ("orders::ThrowsThroughNoexcept",)),
    Death("pure_virtual", "ABORT", *ABORTED, "pure virtual", ("__cxa_pure_virtual", "orders::Base::Base")),
    Death("out_of_range", "UNCAUGHT_EXCEPTION", *ABORTED, "std::out_of_range", ("orders::OutOfRange",)),
    Death("bad_alloc", "UNCAUGHT_EXCEPTION", *ABORTED, "std::bad_alloc", ("orders::BadAlloc",)),
]
EXCEPTION_TYPES = {"uncaught": "orders::OutOfStock", "uncaught_int": "int", "noexcept": "orders::OutOfStock",
                   "out_of_range": "std::out_of_range", "bad_alloc": "std::bad_alloc"}

RUST_DEATHS = [
    Death("panic", "ABORT", *ABORTED, "panic|abort", ("crash_rust::panic_now",)),
    Death("index", "ABORT", *ABORTED, "panic|abort", ("crash_rust::index_out_of_range",)),
    Death("null_pointer", *NULL, ("crash_rust::null_pointer",)),
]


class CrashVictimsTest(CrashTest):

    def setUp(self):
        super().setUp()
        # Equal crashes are all kept.
        self.daemon = self.start_daemon(extra_args=["--store-crashes-per-group", "500"])
        # Programs that give up root must reach it.
        os.chmod(self.dir, 0o711)

    def program(self, name):
        return PROGRAMS / name

    def die(self, program, *words, wrap=(), env=None, label=None):
        """(Ending, Dump, folder of its core) of a program under the agent, which must leave as many crashes as it dies: one."""
        folder = self.dir / (label or "-".join(map(str, [os.path.basename(program), *words[:2]])))
        # For cores of those who are not root.
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        ending = run_to_end([*wrap, program, *words, "await"], folder, environment(self.dir, **(env or {})))
        self.assertNotEqual(signal.SIGKILL, ending.signal, "the kernel killed it: that is no crash")
        return ending, crash_of(self.daemon, ending.pid), folder

    def check_crash(self, death, ending, dump):
        crash = dump.resource["crash"]
        self.assertEqual(death.signal, ending.manner.split()[2].rstrip(","), ending.err.decode()[-1000:])
        self.assertEqual((death.cause, death.signal, death.code),
                         (crash.get("cause"), crash.get("signalName"), crash.get("codeName")), crash)
        self.assertRegex(crash["explanation"].lower(), death.says.lower())
        self.assert_is_a_sentence(crash["explanation"])
        self.assertTrue(re.search(death.message, crash.get("abortMessage", "")), crash)
        self.assertEqual("CAPTURED", dump.status(crash["tid"]))
        functions = [re.sub(r"\(.*", "", name) for name in dump.functions(crash["tid"])]
        if death.functions:
            self.assert_in_order(death.functions, functions)
        self.assertTrue(crash.get("fingerprint"), crash)
        self.assertFalse(crash.get("fromSpool"), crash)
        return crash

    def assert_is_a_sentence(self, text):
        self.assertNotIn("\n", text)
        self.assertLess(len(text), 400)
        self.assertFalse(re.search(r"  |\(\)\s*$|%|UNSPECIFIED|\?\?", text), text)

    def assert_in_order(self, expected, functions):
        at = 0
        for name in functions:
            at += at < len(expected) and name == expected[at]
        self.assertEqual(len(expected), at, f"{expected} are not in this order in {functions}")

    def compare_with_core(self, death, program, ending, dump, folder, in_handler=False):
        """The frames are gdb's on the core, if there can be one; if that was written `in_handler`, those that called it."""
        if not leaves_cores():
            return
        self.assertTrue(ending.has_core, f"{death.name} left no core")
        tid = dump.resource["crash"]["tid"]
        theirs = crash_core.frames_of_core(program, folder / "core", tid)
        if in_handler:
            theirs = crash_core.below_handler(theirs)
        result = crash_core.compare(dump, tid, theirs, death.frames)
        explained = sum(result.explained.values())
        print(f"crash: {folder.name:<32} {dump.resource['crash']['cause']:<22} {result.exact:>3} of {result.frames:>3} frames as "
              f"in the core{f', {explained} explained' if explained else ''}", file=sys.stderr, flush=True)
        if result.unexplained:
            self.fail(f"{len(result.unexplained)} differences from gdb:\n" + "\n".join(result.unexplained[:20]))

    def check(self, death, program, *words, **kwargs):
        ending, dump, folder = self.die(program, death.name, *words, **kwargs)
        crash = self.check_crash(death, ending, dump)
        self.compare_with_core(death, program, ending, dump, folder)
        return crash

    # C

    def test_deaths_in_c(self):
        for death in C_DEATHS:
            # A signal that is sent to the process comes to the main thread.
            for words in ([], ["thread"]) if death.cause != "SENT" else ([],):
                with self.subTest(death=death.name, thread=bool(words)):
                    self.check(death, self.program("crash_deaths"), *words)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to make PID namespaces")
    def test_the_first_process_of_a_pid_namespace_gives_up_as_any_other(self):
        """The kernel keeps SIGABRT from it: there abort() goes on, and dies of an instruction that it may not use."""
        namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        program = self.program("crash_deaths")
        for count, name in enumerate(("call_abort", "failed_assertion", "free_of_no_block", "stack_smashing"), 1):
            with self.subTest(death=name):
                expected = self.die(program, name)[1].resource["crash"]
                run_to_end([*namespace, program, name, "await"], self.dir / f"first-{name}", environment(self.dir))

                def explained(count=count):
                    found = [dump["crash"] for dump in crashes(self.daemon) if dump["process"]["pid"] == 1]
                    return found[0] if len(found) == count and found[0].get("explanation") else None

                crash = eventually(f"the crash of {name} as process 1 is explained", explained)
                same = ("cause", "explanation", "abortMessage", "fingerprint")
                self.assertEqual([expected.get(key) for key in same], [crash.get(key) for key in same])
                self.assertEqual("SIGABRT", crash["signalName"])

    def test_who_sent_the_signal_is_named(self):
        _, dump, _ = self.die(self.program("crash_deaths"), "sent_by_another")
        crash = dump.resource["crash"]
        self.assertGreater(crash["senderPid"], 0)
        self.assertIn(str(crash["senderPid"]), crash["explanation"])
        self.assertFalse(crash.get("faultAddress"))

    def test_the_fault_address_is_the_one_that_was_touched(self):
        for name, address in (("null_pointer", 0x18), ("wild_pointer", 0x123456789000), ("jump_to_nothing", 0x7654321000)):
            _, dump, _ = self.die(self.program("crash_deaths"), name)
            self.assertEqual(address, int(dump.resource["crash"]["faultAddress"], 16))

    def test_deaths_of_the_starved(self):
        # Where any user may read it, as programs are.
        program = shutil.copy(self.program("crash_deaths"), self.dir / "starves")
        os.chmod(program, 0o755)
        for death in STARVED_DEATHS:
            with self.subTest(death=death.name):
                self.check(death, program)

    def test_death_with_a_full_fd_table(self):
        """The process cannot open a file then. So names that the daemon has not asked for before are missing, and that is said."""
        program = self.program("crash_deaths")
        ending, dump, folder = self.die(program, "no_fd")
        crash = self.check_crash(Death("no_fd", *NULL), ending, dump)
        theirs = crash_core.frames_of_core(program, folder / "core", crash["tid"])
        ours = [int(frame["address"], 16) for frame in dump.frames(crash["tid"])]
        self.assertEqual(list(dict.fromkeys(frame.pc for frame in theirs)), list(dict.fromkeys(ours)))
        if "null_pointer" not in dump.functions(crash["tid"]):
            self.assertTrue(any("no function names for crash_deaths" in note for note in dump.notes), dump.notes)

    def test_death_at_the_limit_of_a_memory_cgroup(self):
        group = pathlib.Path(f"/sys/fs/cgroup/memory/stackd-test-{os.getpid()}")
        limit = group / "memory.limit_in_bytes"
        try:
            group.mkdir()
            self.addCleanup(self.remove_group, group)
            limit.write_text(str(48 << 20))
        except OSError as error:
            self.skipTest(f"no memory cgroup (v1) can be made here: {error}")
        # Without a core: the kernel needs memory of the group to write one, and kills for it, agent or not.
        join = ["sh", "-c", f'ulimit -c 0; echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        ending, dump, _ = self.die(self.program("crash_deaths"), "no_memory", limit, group / "memory.usage_in_bytes", wrap=join,
                                   label="no_memory")
        self.check_crash(Death("no_memory", *NULL, ("null_pointer", "no_memory")), ending, dump)

    def remove_group(self, group):
        def removed():
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()

        eventually("the cgroup is empty", removed)

    def test_death_where_seccomp_kills_for_any_call_that_the_handler_does_not_list(self):
        numbers = handler_calls()
        self.check(Death("only_listed_calls", *NULL, ("null_pointer", "only_listed_calls")), self.program("crash_deaths"),
                   *numbers, label="only_listed_calls")

    def test_eight_threads_that_die_at_once_are_one_crash(self):
        ending, dump, _ = self.die(self.program("crash_deaths"), "null_pointer", "threads")
        self.check_crash(Death("null_pointer", *NULL, ("null_pointer",)), ending, dump)
        dying = [tid for tid in dump.threads if "null_pointer" in dump.functions(tid)]
        self.assertIn(dump.resource["crash"]["tid"], dying)

    def test_crash_before_the_agent_is_registered(self):
        """The test does not wait for the ring: some die before they have one. Each is there in the end, once."""
        endings = [run_to_end([self.program("crash_deaths"), "null_pointer"], self.dir / f"early-{n}", environment(self.dir))
                   for n in range(40)]
        # It takes in what it did not see at its start at the latest.
        self.daemon.restart()
        expected = sorted(ending.pid for ending in endings)
        eventually("all are there", lambda: sorted(dump["process"]["pid"] for dump in crashes(self.daemon)) == expected)
        early = sum(bool(dump["crash"].get("fromSpool")) for dump in crashes(self.daemon))
        print(f"crash: {early} of {len(endings)} died before the daemon knew them", file=sys.stderr, flush=True)

    # Stacks that overflow

    def check_overflow(self, program, words, functions, *, deep, in_handler=False):
        """`functions`: of one round of the recursion, in any order. `deep`: more than what is copied of a stack."""
        depth_file = self.dir / f"depth-{os.path.basename(program)}-{'-'.join(words)}"
        ending, dump, folder = self.die(program, *words, env={"CRASH_DEPTH_FILE": str(depth_file)})
        crash = dump.resource["crash"]
        tid = crash["tid"]
        self.assertEqual("STACK_OVERFLOW", crash["cause"], crash)
        self.assertRegex(crash["explanation"].lower(), "stack overflow|overflow.* stack|ran out of stack")
        self.assert_is_a_sentence(crash["explanation"])
        folded = [(names, count) for names, count in crash_core.folds(dump, tid)
                  if {re.sub(r"\(.*| const", "", name) for name in names} == functions]
        stack = dump.stack(tid)
        self.assertTrue(folded, f"no fold of {functions} in {dump.functions(tid)[:30]}")
        self.assertLess(len(dump.frames(tid)), 60, "what is left is short")
        self.assertEqual(deep, int(stack.get("omittedBytes", 0)) > 0, stack.get("omittedBytes"))
        if deep:
            self.assertGreater(folded[0][1], 100)
            self.assertEqual("ROOT", stack["end"], "the outermost end is there")
        elif depth_file.exists():
            depth = struct.unpack("<q", depth_file.read_bytes()[:8])[0]
            rounds = max(self.occurrences(dump, tid, name) for name in functions)
            # The innermost may have faulted before it wrote its depth.
            self.assertIn(rounds, (depth, depth + 1))
        self.compare_with_core(Death("overflow", "", "", "", ""), program, ending, dump, folder, in_handler)
        print(f"crash: {folder.name}: {crash['explanation']}", file=sys.stderr, flush=True)
        return ending

    def occurrences(self, dump, tid, name):
        frames = dump.frames(tid)
        total = at = 0
        while at < len(frames):
            length = max(frames[at].get("repeatLength", 0), 1)
            count = int(frames[at].get("repeatCount", 0)) or 1
            total += count * sum(frame.get("function", "") == name for frame in frames[at:at + length])
            at += length
        return total

    def test_stack_overflow_in_c(self):
        program = self.program("crash_deaths")
        self.check_overflow(program, ["overflow"], {"descend"}, deep=True)
        self.check_overflow(program, ["overflow", "thread"], {"descend"}, deep=False)

    def test_stack_overflow_of_two_functions_that_call_each_other(self):
        program = self.program("crash_deaths")
        self.check_overflow(program, ["overflow_of_two"], {"ping", "pong"}, deep=True)
        self.check_overflow(program, ["overflow_of_two", "thread"], {"ping", "pong"}, deep=False)

    def test_stack_overflow_by_one_big_frame(self):
        death = Death("one_big_frame", "STACK_OVERFLOW", "SIGSEGV", "SEGV_MAPERR", "overflow", ("one_big_frame",), frames=1)
        self.check(death, self.program("crash_deaths"))

    def test_stack_overflow_in_cpp(self):
        for words in (["overflow"], ["overflow", "thread"]):
            self.check_overflow(self.program("crash_cpp"), words, {"orders::Node::Length"}, deep=True)

    def rust_program(self):
        program = build_rust()
        if program is None:
            self.skipTest("no rustc")
        return program

    def test_stack_overflow_in_rust(self):
        program = self.rust_program()
        for words in (["overflow"], ["overflow", "thread"]):
            alone = run_to_end([program, *words], self.dir / f"alone-{len(words)}", environment())
            ending = self.check_overflow(program, words, {"crash_rust::depth"}, deep=True, in_handler=True)
            # Rust's own handler says so, and aborts.
            self.assertIn(b"has overflowed its stack", ending.err)
            self.assertEqual(*(re.sub(rb"\(\d+\)", b"", text) for text in (alone.err, ending.err)))
            self.assertEqual(alone.manner, ending.manner)

    # C++ and Rust

    def test_deaths_in_cpp(self):
        for death in CPP_DEATHS:
            with self.subTest(death=death.name):
                crash = self.check(death, self.program("crash_cpp"))
                self.assertEqual(EXCEPTION_TYPES.get(death.name, ""), crash.get("exceptionType", ""))
                self.assertNotIn("secret", str(crash))

    def test_deaths_in_rust(self):
        program = self.rust_program()
        for death in RUST_DEATHS:
            for words in ([], ["thread"]):
                with self.subTest(death=death.name, thread=bool(words)):
                    self.check(death, program, *words)


def build_rust():
    """The program that dies in Rust; None without a compiler."""
    return elf_variants.rust(ROOT / "tests/programs/crash_rust.rs", "--edition", "2021", "-C", "panic=abort")


PREPARE = [build_rust]


def handler_calls():
    """The numbers of the system calls that the crash handler may make, by its written list."""
    text = (ROOT / "agent/sys/syscalls.h").read_text()
    listed = re.search(r"The calls that a dump handler makes(.*?)\*/", text, re.DOTALL).group(1)
    header = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", header))
    return [numbers[name] for name in re.findall(r"\w+", listed) if name in numbers]


if __name__ == "__main__":
    unittest.main()
