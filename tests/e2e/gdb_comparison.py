"""Compares stacks of blocked threads with gdb's, frame by frame, for the tests that promise what a dump says of them.

Differences are allowed for a stated reason only (EXPLAINED). A difference without one fails the test.
"""

import collections
import dataclasses
import os
import subprocess
import sys

import oracle
import symbol_aliases
from harness import StackdTest, blocked_at, blocks_signal, eventually, thread_names

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


def is_below_a_fiber(difference, context):
    """__start_context, to which a fiber's first function returns, ends the stack. gdb reads on into what makecontext left there."""
    last = context.ours[-1]
    path = symbol_aliases.mapped_path(context.pid, last.module)
    return (difference.kind == "MISSING" and difference.depth >= len(context.ours) and path is not None and
            symbol_aliases.is_at(path, "__start_context", last.module_offset))


# For programs that have such code.
BELOW_A_FIBER = [("below a fiber's first function", is_below_a_fiber)]
NO_UNWIND_TABLES = [
    ("gdb loses its way in code without symbols and unwind tables",
     lambda difference, _: difference.kind == "EXTRA" or not (difference.theirs and difference.theirs.function)),
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
    """What was compared: stacks, gdb's frames, and differences by their reason."""

    def __init__(self):
        self.stacks = self.exact_stacks = self.frames = self.exact_frames = 0
        # "program thread" of those that end at an unknown register.
        self.short = []
        self.reasons = collections.Counter()

    def add(self, other):
        for field in vars(self):
            setattr(self, field, getattr(self, field) + getattr(other, field))

    def count(self, label, context, differences):
        self.stacks += 1
        self.exact_stacks += not differences
        self.short += [label] * (context.end == "UNKNOWN_REGISTER")
        self.frames += len(context.theirs)
        self.exact_frames += len(context.theirs) - sum(d.kind != "EXTRA" for d in differences)

    def print(self, name):
        lines = [f"right: {name:<22} {self.exact_stacks:>3} of {self.stacks:>3} stacks exact, "
                 f"{self.exact_frames:>5} of {self.frames:>5} frames"]
        lines += [f"       {count} differences: {reason}" for reason, count in self.reasons.items()]
        if self.short:
            lines.append(f"       {len(self.short)} end at an unknown register: {', '.join(sorted(set(self.short)))}")
        print("\n".join(lines), file=sys.stderr, flush=True)


class GdbComparison(StackdTest):
    """Test case that compares. `total` has the rates of all its cases, by how the threads were read."""

    ways = ("never", "only")
    prints_each_process = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.total = {way: Rates() for way in cls.ways}

    @classmethod
    def tearDownClass(cls):
        for way, rates in cls.total.items():
            rates.print({"never": "all, by signal", "only": "all, asleep"}[way])

    def compare_process(self, daemon, pid, name, *, debug_dir=None, gdb=None, symbols_from=None, explained=(),
                        least_threads=1):
        """Dumps process `pid` and compares with gdb. `gdb`: its frames, where gdb was asked before. `symbols_from`: the program
        with its debug information, where the one that runs has none."""
        daemon.await_process(pid)

        def blocked():
            where = {tid: blocked_at(pid, tid) for tid, name in thread_names(pid).items() if name != AGENT_THREAD}
            return where if sum(map(bool, where.values())) >= least_threads else None

        before = eventually(f"{least_threads} threads are blocked", blocked)
        dumps = {way: daemon.dump(pid, "--native-only", "--quiet", way) for way in self.ways}
        if "never" in dumps:
            self.assertEqual("COMPLETE", dumps["never"].state, dumps["never"].notes)
        theirs = gdb or oracle.of_gdb(pid, debug_dir)
        names = thread_names(pid)

        def stand_still():
            """Threads that are where they were. One that the dump's signal woke is back there as soon as it has had a CPU."""
            still = [tid for tid, at in before.items()
                     if at and tid in theirs and blocked_at(pid, tid) == at]
            return still if len(still) >= least_threads else None

        still = eventually(f"{least_threads} threads are blocked where they were", stand_still)
        for way, dump in dumps.items():
            self.compare_threads(dump, way, pid, name, still, names, theirs, symbols_from, explained)
        return dumps[self.ways[0]]

    def compare_threads(self, dump, way, pid, name, still, names, theirs, symbols_from, explained):
        rates, unexplained = Rates(), []
        for tid in still:
            if way == "only":
                self.assertTrue(dump.threads[tid].get("readAsleep"), f"{names[tid]}: {dump.threads[tid]}")
            elif blocks_signal(pid, tid, DUMP_SIGNAL):
                self.assertEqual("SIGNAL_BLOCKED", dump.status(tid), f"{names[tid]}: {dump.threads[tid]}")
                print(f"       {names[tid]} blocks all signals: {len(dump.frames(tid))} of {len(theirs[tid])} frames",
                      file=sys.stderr)
                continue
            self.assertEqual("CAPTURED", dump.status(tid), f"{names[tid]}: {dump.threads[tid]}")
            ours = oracle.of_stackd(dump, tid)
            context = Context(pid, ours, theirs[tid], symbols_from, dump.stack(tid).get("end"))
            differences = oracle.compare(tid, ours, theirs[tid], aliases_in(pid))
            rates.count(f"{name} {names[tid]}", context, differences)
            for difference in differences:
                reason = next((why for why, applies in [*explained, *EXPLAINED] if applies(difference, context)), None)
                if reason:
                    rates.reasons[reason] += 1
                else:
                    unexplained.append(f"{names[tid]}: {difference}")
        self.total[way].add(rates)
        if self.prints_each_process:
            rates.print(name if way == "never" else name + ", asleep")
        self.assertFalse(unexplained, f"{len(unexplained)} differences from gdb:\n" + "\n".join(unexplained[:60]))
