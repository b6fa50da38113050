"""Right: what stackd says of a blocked thread is what gdb says, frame by frame: function, inlined or not, file, line.

Each case takes a dump, then has gdb walk the same threads, and compares those that did not move in between. Differences
are allowed for a stated reason only (gdb_comparison.py); a difference without one fails the test. The rates are printed:

    right: c_calls               7 of   7 stacks exact,   312 of   312 frames

A stack is exact without any difference, explained or not.
"""

import os
import shutil
import unittest

import elf_variants
import oracle
import servers
from gdb_comparison import BELOW_A_FIBER, NO_UNWIND_TABLES, GdbComparison
from harness import AGENT, PROGRAMS, ROOT, eventually


class RightTest(GdbComparison):

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
        dump = self.check_program("fiber", explained=BELOW_A_FIBER)
        tid = next(t for t in dump.threads if "fiber_main" in dump.functions(t))
        self.assert_functions(dump, tid, ["fiber_waits", "fiber_main"])

    def test_code_without_unwind_tables_but_with_frame_pointers(self):
        dump = self.check_program("jit", explained=NO_UNWIND_TABLES)
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
