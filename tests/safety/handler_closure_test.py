#!/usr/bin/python3
"""What the handlers can reach in the linked agent: proved on the machine code, not on trust.

From the two signal handlers and the pointer filters, every direct call and jump must stay inside functions that the sources mark
STACKD_HANDLER. Indirect calls are only those known here. The deepest chain of calls fits the stack that the handler makes sure of.
The library has no thread-local storage.
"""

import glob
import re
import subprocess
import unittest

AGENT = "agent/libstackd_agent.so"
SECTION = ".text.stackd_handler"
FILTERS = ["stackd_filter_avx2", "stackd_filter_scalar"]
ROOTS = ["stackd_on_dump_signal", "stackd_on_wake_signal", "stackd_on_crash_signal", "stackd_crash_before_end", "stackd_crash_before_jump"] + FILTERS
# What stands in front of the program's handlers of SIGTERM, one piece of code for each.
TRAMPOLINES = "stackd_sigterm_trampolines"
TRAMPOLINE = [r"endbr64", r"incq +0x[0-9a-f]+\(%rip\).*<stackd_sigterm_count>", r"jmp +\*0x[0-9a-f]+\(%rip\).*<stackd_sigterm_handlers.*>"]
# The filter, chosen at install; the program's own handler for signals that are not ours; what a new thread begins with.
CALLS_FILTER = {"copy_stack"}
MAY_CALL_INDIRECTLY = CALLS_FILTER | {"stackd_chain_run", "stackd_clone_thread"}


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def base_name(symbol):
    """Without what the compiler adds to clones: .part.0, .constprop.0, .isra.0, .cold."""
    return symbol.split(".")[0]


class Function:
    def __init__(self, name):
        self.name = name
        self.frame_bytes = 0
        self.targets = []
        self.indirect = []
        self.instructions = []


def disassemble():
    functions = {}
    current = None
    for line in run("objdump", "-d", "--no-show-raw-insn", "-j", ".text", "-j", ".plt", "-j", ".plt.got", "-j", ".plt.sec", AGENT).splitlines():
        start = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        if start:
            current = functions.setdefault(start[1], Function(start[1]))
            continue
        instruction = re.match(r"\s+[0-9a-f]+:\s+(?:(?:lock|bnd|notrack|rep) )*(\S+)\s*(.*)$", line)
        if not instruction or current is None:
            continue
        mnemonic, operands = instruction.groups()
        current.instructions.append(f"{mnemonic} {operands}".strip())
        if mnemonic.startswith("push"):
            current.frame_bytes += 8
        reserve = re.match(r"\$0x([0-9a-f]+),%rsp", operands)
        # Subtracting -128 is the shorter way to add 128.
        if reserve and mnemonic.startswith("sub") and int(reserve[1], 16) < 1 << 63:
            current.frame_bytes += int(reserve[1], 16)
        align = re.match(r"\$0x(f+[0-9a-f]*0),%rsp", operands)
        if align and mnemonic.startswith("and"):
            current.frame_bytes += (1 << 64) - int(align[1], 16)
        if not re.match(r"(call|j)", mnemonic):
            continue
        if operands.startswith("*"):
            current.indirect.append(line.strip())
            continue
        target = re.search(r"<([^>+]+)(\+0x[0-9a-f]+)?>", operands)
        assert target, line
        if target[1] != current.name:
            current.targets.append(target[1])
    return functions


def handler_functions():
    names = set()
    for archive in glob.glob("agent/libhandler*.a"):
        for line in run("objdump", "-t", archive).splitlines():
            if SECTION in line and " F " in line:
                names.add(line.split()[-1])
    return names


class HandlerClosure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.functions = disassemble()
        cls.allowed = handler_functions()

    def is_allowed(self, name):
        return base_name(name) in {base_name(a) for a in self.allowed}

    def reach(self):
        reached = []
        to_do = list(ROOTS)
        while to_do:
            name = to_do.pop()
            if name in reached:
                continue
            reached.append(name)
            if self.is_allowed(name):
                to_do += self.functions[name].targets
        return reached

    def test_calls_stay_in_handler_code(self):
        self.assertGreater(len(self.allowed), 8)
        for name in self.reach():
            callers = [f.name for f in self.functions.values() if name in f.targets]
            self.assertTrue(self.is_allowed(name), f"{name}, which is not handler code, is called by {callers}")

    def test_indirect_calls_are_the_known_ones(self):
        found = 0
        for name in self.reach():
            if not self.is_allowed(name):
                continue
            for line in self.functions[name].indirect:
                self.assertIn(base_name(name), MAY_CALL_INDIRECTLY, line)
                found += 1
        self.assertGreaterEqual(found, 2)
        self.assertLessEqual(found, 5)

    def test_a_trampoline_counts_and_jumps_and_does_nothing_else(self):
        code = [i for i in self.functions[TRAMPOLINES].instructions if not re.match(r"(nop|xchg +%ax,%ax|data16|cs nop)", i)]
        self.assertEqual(len(code), 16 * len(TRAMPOLINE))
        for i, instruction in enumerate(code):
            self.assertRegex(instruction, TRAMPOLINE[i % len(TRAMPOLINE)])
        jumps = [re.search(r"# ([0-9a-f]+)", i)[1] for i in code if i.startswith("jmp")]
        self.assertEqual([int(at, 16) - int(jumps[0], 16) for at in jumps], list(range(0, 16 * 8, 8)))

    def deepest(self, name, path=()):
        self.assertNotIn(name, path, "recursion")
        function = self.functions[name]
        deepest_callee = max((self.deepest(t, path + (name,)) for t in function.targets), default=(0, ()))
        # Every call pushes a return address; an indirect one may be the filter.
        callees = [deepest_callee]
        if function.indirect and base_name(name) in CALLS_FILTER:
            callees += [self.deepest(f, path + (name,)) for f in FILTERS]
        bytes_below, names = max(callees)
        return function.frame_bytes + 8 + bytes_below, (name,) + names

    def check_stack(self, root, header, constant):
        with open(header, encoding="utf-8") as file:
            budget = int(re.search(rf"#define {constant} (\d+)", file.read())[1])
        needed, path = self.deepest(root)
        print(f"{root} needs {needed} of {budget} bytes: {' > '.join(path)}")
        self.assertLessEqual(needed, budget)

    def test_the_stack_that_a_handler_needs_is_what_it_makes_sure_of(self):
        self.check_stack("stackd_on_dump_signal", "agent/capture/capture.h", "STACKD_CAPTURE_STACK_BYTES")
        self.check_stack("stackd_on_crash_signal", "agent/crash/crash_record.h", "STACKD_CRASH_STACK_BYTES")

    def test_threads_of_the_program_have_no_frame_of_the_agent_at_their_root(self):
        for name in ("begin_thread", "begin_c11_thread"):
            (line,) = self.functions[name].indirect
            self.assertRegex(line, r"\bjmp\b", "the program's routine is jumped to")

    def test_the_library_needs_libc_alone(self):
        needed = re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-dW", AGENT))
        self.assertEqual(needed, ["libc.so.6"])

    def test_no_thread_local_storage_and_no_stack_protector_in_the_handler(self):
        self.assertNotRegex(run("readelf", "-lW", AGENT), r"\bTLS\b")
        self.assertNotRegex(run("readelf", "-rW", AGENT), r"TPOFF|DTPMOD|TLSDESC")
        for name in self.reach():
            self.assertNotIn("__stack_chk_fail", " ".join(self.functions[name].targets))


if __name__ == "__main__":
    unittest.main()
