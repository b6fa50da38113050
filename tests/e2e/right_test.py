"""Right: what stackd says of a blocked thread is what gdb says, frame by frame: function, inlined or not, file, line.

Each case takes a dump, then has gdb walk the same threads, and compares those that did not move in between. Differences
are allowed for a stated reason only (EXPLAINED); a difference without one fails the test. The rates are printed:

    right: c_calls               7 of   7 stacks exact,   312 of   312 frames

A stack is exact without any difference, explained or not.
"""

import collections
import dataclasses
import os
import shutil
import subprocess
import sys
import unittest

import elf_variants
import oracle
import servers
import symbol_aliases
from harness import AGENT, PROGRAMS, ROOT, StackdTest, blocked_at, blocks_signal, eventually, thread_names

# What stackd runs in the process itself: at the time of the dump it takes the dump, when gdb looks it waits for the next.
AGENT_THREAD = "stackd-agent"


DUMP_SIGNAL = 34


def aliases_in(pid):
    """libc and others give one function several names; gdb and stackd may take different ones of the same address."""

    def is_alias(ours, theirs):
        if not ours.function or not theirs.function:
            return False
        path = symbol_aliases.mapped_path(pid, ours.module)
        return (path is not None and os.path.exists(path) and
                symbol_aliases.same_function(path, ours.function, theirs.function))

    return is_alias


def is_at_the_system_call(difference, context):
    """The kernel has an interrupted thread repeat its system call. A thread in a signal handler finds its program counter at the
    instruction `syscall`, 2 bytes, and gdb finds it behind. Only the innermost function and what is inlined there."""
    frame = difference.ours or difference.theirs
    innermost = context.ours[0].pc if difference.ours else context.theirs[0].pc
    return context.ours[0].pc + 2 == context.theirs[0].pc and frame.pc == innermost


def is_row_that_gdb_skips(difference, context):
    """gdb takes only those rows of the line table that begin a statement. The row that does hold at the address is another
    one, and binutils' addr2line, which shares nothing with either, takes it as we do."""
    if difference.kind != "LINE":
        return False
    path = context.symbols_from or symbol_aliases.mapped_path(context.pid, difference.ours.module)
    offset = difference.ours.module_offset - (not difference.ours.interrupted)
    text = subprocess.run(["addr2line", "-i", "-e", path, hex(offset)], capture_output=True, text=True).stdout
    places = {os.path.basename(line.split(" ")[0]) for line in text.splitlines()}
    return f"{difference.ours.file}:{difference.ours.line}" in places


def is_other_name_of_rust(difference, context):
    """gdb composes a Rust name from the debug information: with type arguments, and implementations of traits as {impl#3}.
    We demangle the symbol, as Rust's own backtraces do. File, line and the last part of the name must be equal."""
    del context
    if difference.kind != "NAME" or not difference.theirs.file.endswith(".rs"):
        return False
    return (oracle.rust_last_part(difference.ours.function) == oracle.rust_last_part(difference.theirs.function) and
            (difference.ours.file, difference.ours.line, difference.ours.inlined) ==
            (difference.theirs.file, difference.theirs.line, difference.theirs.inlined))


def is_behind_an_unknown_register(difference, context):
    """A stack that was read asleep ends at a frame that needs a register which no callee saved."""
    return difference.kind == "MISSING" and difference.depth >= len(context.ours) and context.end == "UNKNOWN_REGISTER"


# (reason, function of (difference, context) that says whether it applies)
EXPLAINED = [
    ("another name of the same address", lambda difference, context: difference.kind == "ALIAS"),
    ("interrupted at the system call, not behind it", is_at_the_system_call),
    ("a row of the line table that gdb skips, confirmed by addr2line", is_row_that_gdb_skips),
    ("Rust: the symbol's name, not one made from debug information", is_other_name_of_rust),
    ("read asleep: a register is not known", is_behind_an_unknown_register),
]


@dataclasses.dataclass
class Context:
    """What an explanation may look at."""

    pid: int
    ours: list
    theirs: list
    symbols_from: str | None
    end: str


class Rates:
    """What was compared, over all cases."""

    def __init__(self):
        self.stacks = self.exact_stacks = self.frames = self.exact_frames = 0

    def add(self, other):
        for field in vars(self):
            setattr(self, field, getattr(self, field) + getattr(other, field))

    def line(self, name):
        return (f"right: {name:<22} {self.exact_stacks:>3} of {self.stacks:>3} stacks exact, "
                f"{self.exact_frames:>5} of {self.frames:>5} frames")


class RightTest(StackdTest):
    # By how the threads were read.
    total = {"never": Rates(), "only": Rates()}

    @classmethod
    def tearDownClass(cls):
        print(cls.total["never"].line("all, by signal"), file=sys.stderr)
        print(cls.total["only"].line("all, asleep"), file=sys.stderr, flush=True)

    def compare_process(self, daemon, pid, name, *, debug_dir=None, gdb=None, symbols_from=None, explained=(),
                        least_threads=1):
        """Dumps process `pid` and compares with gdb. `gdb`: its frames, where gdb was asked before. `symbols_from`: the program
        with its debug information, where the one that runs has none."""
        daemon.await_process(pid)

        def blocked():
            where = {tid: blocked_at(pid, tid) for tid, name in thread_names(pid).items() if name != AGENT_THREAD}
            return where if sum(map(bool, where.values())) >= least_threads else None

        before = eventually(f"{least_threads} threads are blocked", blocked)
        dump = daemon.dump(pid, "--native-only", "--quiet", "never")
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        asleep = daemon.dump(pid, "--native-only", "--quiet", "only")
        theirs = gdb or oracle.of_gdb(pid, debug_dir)
        names = thread_names(pid)

        def stand_still():
            """Threads that are where they were. One that the dump's signal woke is back there as soon as it has had a CPU."""
            still = [tid for tid, at in before.items()
                     if at and tid in theirs and blocked_at(pid, tid) == at]
            return still if len(still) >= least_threads else None

        still = eventually(f"{least_threads} threads are blocked where they were", stand_still)
        for how, taken in (("never", dump), ("only", asleep)):
            self.compare_threads(taken, how, pid, name, still, names, theirs, symbols_from, explained)
        return dump

    def compare_threads(self, dump, how, pid, name, still, names, theirs, symbols_from, explained):
        rates, unexplained, reasons, deaf = Rates(), [], collections.Counter(), []
        for tid in still:
            if how == "only":
                self.assertTrue(dump.threads[tid].get("readAsleep"), f"{names[tid]}: {dump.threads[tid]}")
            elif blocks_signal(pid, tid, DUMP_SIGNAL):
                self.assertEqual("SIGNAL_BLOCKED", dump.status(tid), f"{names[tid]}: {dump.threads[tid]}")
                deaf.append((names[tid], tid))
                continue
            self.assertEqual("CAPTURED", dump.status(tid), f"{names[tid]}: {dump.threads[tid]}")
            ours = oracle.of_stackd(dump, tid)
            context = Context(pid, ours, theirs[tid], symbols_from, dump.stack(tid).get("end"))
            differences = oracle.compare(tid, ours, theirs[tid], aliases_in(pid))
            rates.stacks += 1
            rates.exact_stacks += not differences
            rates.frames += len(theirs[tid])
            rates.exact_frames += len(theirs[tid]) - sum(d.kind != "EXTRA" for d in differences)
            for difference in differences:
                reason = next((why for why, applies in [*explained, *EXPLAINED] if applies(difference, context)), None)
                if reason:
                    reasons[reason] += 1
                else:
                    unexplained.append(f"{names[tid]}: {difference}")
        self.total[how].add(rates)
        print(rates.line(name if how == "never" else name + ", asleep"), file=sys.stderr, flush=True)
        for name, tid in deaf:
            print(f"       {name} blocks all signals: {len(dump.frames(tid))} of {len(theirs[tid])} frames", file=sys.stderr)
        for reason, count in reasons.items():
            print(f"       {count} differences: {reason}", file=sys.stderr, flush=True)
        self.assertFalse(unexplained, f"{len(unexplained)} differences from gdb:\n" + "\n".join(unexplained[:60]))

    def check_program(self, program, *args, name=None, least_threads=2, **kwargs):
        daemon = self.start_daemon()
        victim = self.start_victim(program, *args)
        return self.compare_process(daemon, victim.pid, name or os.path.basename(str(program)),
                                    least_threads=least_threads, **kwargs)

    # Own victims.

    def test_c(self):
        self.check_program("c_calls", least_threads=7)

    def test_cpp(self):
        self.check_program("cpp_calls", least_threads=12)

    def test_rust(self):
        program = elf_variants.rust(ROOT / "tests/programs/rust_locks.rs")
        if program is None:
            self.skipTest("no rustc")
        self.check_program(program, least_threads=6)

    def test_static_pie_with_the_agent_linked_in(self):
        daemon = self.start_daemon()
        victim = self.start_victim("static_pie", preload=False)
        self.compare_process(daemon, victim.pid, "static_pie", least_threads=5)

    def test_signal_handlers(self):
        self.check_program("in_signal_handler", least_threads=4)

    def check_with_debug_dir(self, program, debug_dir, name):
        daemon = self.start_daemon(extra_args=["--debug-dir", debug_dir, "--debug-dir", "/usr/lib/debug"])
        victim = self.start_victim(program)
        return self.compare_process(daemon, victim.pid, name, debug_dir=debug_dir, symbols_from=PROGRAMS / "cpp_calls",
                                    least_threads=12)

    def test_stripped_with_debug_file_by_build_id(self):
        program, debug_dir = elf_variants.by_build_id(PROGRAMS / "cpp_calls", self.dir)
        dump = self.check_with_debug_dir(program, debug_dir, "by build-id")
        self.assert_functions(dump, dump.named("inlined"), INLINED_CHAIN)

    def test_stripped_with_debug_file_by_debuglink(self):
        program, debug_dir = elf_variants.by_debuglink(PROGRAMS / "cpp_calls", self.dir)
        dump = self.check_with_debug_dir(program, debug_dir, "by .gnu_debuglink")
        self.assert_functions(dump, dump.named("inlined"), INLINED_CHAIN)

    def test_stripped_with_mini_debug_info(self):
        program = elf_variants.by_debugdata(PROGRAMS / "c_calls", self.dir)
        dump = self.check_program(program, name="by .gnu_debugdata", least_threads=7)
        self.assertIn("recurse", dump.functions(dump.named("recursion")))

    def test_stripped_of_everything(self):
        program = elf_variants.stripped_only(PROGRAMS / "c_calls", self.dir)
        dump = self.check_program(program, name="stripped", least_threads=7)
        frame = next(f for f in dump.frames(dump.named("recursion")) if f.get("module") == "c_calls")
        self.assertFalse(frame.get("function"))
        self.assertTrue(frame.get("unnamedReason"))
        self.assertTrue(frame.get("moduleOffset"))

    def test_deleted_executable(self):
        program = self.dir / "soon_gone"
        shutil.copy(PROGRAMS / "cpp_calls", program)
        victim = self.start_victim(program)
        gdb = oracle.of_gdb(victim.pid)
        program.unlink()
        # Only now is there a daemon that the agent could pass the file to.
        daemon = self.start_daemon()
        self.compare_process(daemon, victim.pid, "deleted executable", gdb=gdb, symbols_from=PROGRAMS / "cpp_calls",
                             least_threads=12)

    def test_clone_wrappers(self):
        """gdb cannot be asked: it waits for ever for the thread in vfork, which the kernel will not stop."""
        daemon = self.start_daemon()
        victim = self.start_victim("clone_wrappers")
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        self.assert_whole(dump, victim.pid)
        self.assertEqual("UNINTERRUPTIBLE", dump.status(dump.named("vfork")))
        raw_clone = next(tid for tid in dump.threads
                         if any("block_in_clone" in name for name in dump.functions(tid)))
        functions = [oracle.comparable(name) for name in dump.functions(raw_clone)]
        self.assertEqual(["block_in_clone", "clone_main"], functions[functions.index("block_in_clone"):][:2])
        self.assertEqual("ROOT", dump.stack(raw_clone)["end"])

    def test_fiber(self):
        dump = self.check_program("fiber", explained=[
            ("below a fiber's first function lies __start_context, which ends the stack; gdb goes on into what makecontext "
             "left above it", lambda d, _: d.kind in ("MISSING", "NAME") and not d.theirs.function),
            ("gdb has no name for __start_context", lambda d, _: d.ours and d.ours.function == "__start_context"),
        ])
        tid = next(t for t in dump.threads if "fiber_main" in dump.functions(t))
        self.assert_functions(dump, tid, ["fiber_waits", "fiber_main"])

    def test_code_without_unwind_tables_but_with_frame_pointers(self):
        dump = self.check_program("jit", explained=[
            ("gdb loses its way in code without symbols and unwind tables",
             lambda d, _: d.kind == "EXTRA" or not (d.theirs and d.theirs.function)),
        ])
        tid = next(t for t in dump.threads if "called_by_jit" in dump.functions(t))
        # Three functions of the JIT, then the C function that called the outermost.
        functions = dump.functions(tid)
        start = functions.index("called_by_jit")
        self.assertEqual(["called_by_jit", "", "", "", "run_jitted"], functions[start:start + 5])
        origins = [frame["origin"] for frame in dump.frames(tid)[start + 2:start + 5]]
        self.assertEqual(["FRAME_POINTER"] * 3, origins)
        self.assertEqual("ROOT", dump.stack(tid)["end"])

    def test_vdso(self):
        """The thread never stands still, so gdb's answer is another one; what must be there is known."""
        daemon = self.start_daemon()
        victim = self.start_victim("vdso_loop")
        daemon.await_process(victim.pid)

        def dump_inside_vdso():
            dump = daemon.dump(victim.pid)
            tid = dump.named("clock")
            return (dump, tid) if dump.frames(tid)[0].get("module") == "[vdso]" else None

        dump, tid = eventually("a dump finds the thread inside the vDSO", dump_inside_vdso)
        functions = [oracle.comparable(name) for name in dump.functions(tid)]
        self.assertIn(functions[0], ("__vdso_clock_gettime", "clock_gettime", "do_hres", ""))
        self.assert_functions(dump, tid, ["read_the_clock", "spin", "victim_thread_main"])
        self.assertEqual("ROOT", dump.stack(tid)["end"])

    # Debian's programs.

    def check_family(self, victim, name, daemon, *, processes, **kwargs):
        self.addCleanup(victim.kill)
        members = servers.family(victim.pid)
        self.assertGreaterEqual(len(members), processes)
        for pid in members:
            try:
                label = servers.command_name(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # one of those that postgres starts for a moment
            with self.subTest(process=label):
                self.compare_process(daemon, pid, f"{name} {label}" if processes > 1 else name, **kwargs)

    def test_redis(self):
        daemon = self.start_daemon()
        self.check_family(servers.redis(self.dir), "redis-server", daemon, processes=1, least_threads=4)

    def test_memcached(self):
        daemon = self.start_daemon()
        self.check_family(servers.memcached(self.dir), "memcached", daemon, processes=1, least_threads=5)

    def test_nginx(self):
        daemon = self.start_daemon()
        self.check_family(servers.nginx(self.dir), "nginx", daemon, processes=3)

    def test_postgres(self):
        # Its user is not the one that owns our files.
        os.chmod(self.dir, 0o711)
        agent = self.dir / AGENT.name
        shutil.copy(AGENT, agent)
        os.chmod(agent, 0o755)
        daemon = self.start_daemon()
        self.check_family(servers.postgres(self.dir, agent), "postgres", daemon, processes=5)

    def test_python(self):
        daemon = self.start_daemon()
        victim = servers.python3(self.dir)
        self.addCleanup(victim.kill)
        self.compare_process(daemon, victim.pid, "python3", least_threads=9)

    def test_node(self):
        if shutil.which("node") is None:
            self.skipTest("no node")
        daemon = self.start_daemon()
        victim = servers.node(self.dir)
        self.addCleanup(victim.kill)
        dump = self.compare_process(daemon, victim.pid, "node", least_threads=6, explained=[
            ("gdb loses its way in V8's code, which has frame pointers but no unwind tables",
             lambda d, context: any(frame.function.startswith("Builtins_") for frame in context.theirs[:d.depth]) and
             (d.kind == "EXTRA" or not d.theirs.function)),
        ])
        # Where gdb gives up, ours goes on to the thread's first function.
        workers = [tid for tid in dump.threads if "node::worker::Worker::Run()" in dump.functions(tid)]
        self.assertEqual(2, len(workers))
        for tid in workers:
            self.assertEqual("ROOT", dump.stack(tid)["end"])
            self.assertGreater(sum("Builtins_InterpreterEntryTrampoline" in f for f in dump.functions(tid)), 10)


# Functions of cpp_calls, with the debug information.
INLINED_CHAIN = [f"orders::Level{level}()" for level in (5, 4, 3, 2, 1)]

if __name__ == "__main__":
    unittest.main()
