"""Rust programs with the agent linked in by its crate, for glibc, musl and as static-pie. Names of both manglings are as Rust's own
demangler and gdb have them. Deadlocks, panics and deaths; what the crate offers; tasks of tokio.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

import oracle
from crashes import CrashTest, crash_of, environment, run_to_end
from harness import ROOT, Dump, Victim, eventually, thread_names
from tier import CHURN_S

CRATE = ROOT / "agent/rust"
PROGRAMS = ROOT / "tests/languages/rust"
# Kept from run to run, as cargo keeps it: compiling the crate takes a minute on a busy machine.
TARGET_DIR = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/rust"
MUSL = "x86_64-unknown-linux-musl"
# A build may also wait for the lock of another one.
BUILD_LIMIT_S = 900
OLDEST_RUST = (1, 70)

# (name, target, profile, flags of rustc)
BUILDS = [
    ("glibc", None, "release", ""),
    ("static-pie", "x86_64-unknown-linux-gnu", "release", "-C target-feature=+crt-static -C relocation-model=pie"),
    ("musl", MUSL, "abort", "-C symbol-mangling-version=v0"),
]


def find_tool(name):
    return shutil.which(name) or shutil.which(name, path=os.path.expanduser("~/.cargo/bin"))


def crate_is_impossible(oldest=OLDEST_RUST):
    """Why the crate cannot be built here; None: it can."""
    cargo_program = find_tool("cargo")
    if cargo_program is None:
        return "there is no cargo"
    said = subprocess.run([cargo_program, "--version"], capture_output=True, text=True).stdout
    version = re.match(r"cargo (\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < oldest:
        return f"the crate needs Rust {'.'.join(map(str, oldest))}; here is {said.strip()}"
    return None


def musl_is_missing():
    """Why nothing can be built for musl here; None: it can."""
    if shutil.which("musl-gcc") is None:
        return "no musl-gcc (package musl-tools)"
    root = subprocess.run([find_tool("rustc"), "--print", "sysroot"], capture_output=True, text=True).stdout.strip()
    return None if pathlib.Path(root, "lib/rustlib", MUSL).exists() else f"this Rust has no standard library for {MUSL}"


def cargo(*arguments, folder=PROGRAMS, **variables):
    env = {**os.environ, "CARGO_TARGET_DIR": str(TARGET_DIR), **variables}
    env["PATH"] += os.pathsep + os.path.expanduser("~/.cargo/bin")
    env.pop("LD_PRELOAD", None)
    return subprocess.run([find_tool("cargo"), *arguments], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=BUILD_LIMIT_S)


def build(name):
    """The folder with the programs of this build."""
    _, target, profile, flags = next(build for build in BUILDS if build[0] == name)
    where = ["--target", target] if target else []
    folder = TARGET_DIR / name
    done = cargo("build", "--locked", "--profile", profile, *where, CARGO_TARGET_DIR=str(folder), RUSTFLAGS=flags)
    if done.returncode != 0:
        raise AssertionError(f"cargo build ({name}):\n{done.stderr[-3000:]}")
    return folder / (target or "") / profile


def run_tests(*options):
    return cargo("test", "--quiet", *options, folder=CRATE)


def prepare():
    if crate_is_impossible():
        return
    run_tests("--no-run")
    for name, target, _, _ in BUILDS:
        if target != MUSL or not musl_is_missing():
            build(name)


PREPARE = [prepare]


def demangled(folder, program):
    """{address: names that Rust's demangler gives to its symbols} of an ELF file."""
    lines = subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [line.split()[::2] for line in lines if len(line.split()) == 3 and line.split()[1] in "tTwW"]
    text = "".join(f"{name}\n" for _, name in symbols)
    names = subprocess.run([folder / "demangle"], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for (address, _), name in zip(symbols, names, strict=True):
        found.setdefault(int(address, 16), set()).add(name)
    return found


class RustTest(CrashTest):
    limit_s = BUILD_LIMIT_S

    def setUp(self):
        super().setUp()
        if missing := crate_is_impossible():
            self.skipTest(missing)
        self.daemon = self.start_daemon(extra_args=["--store-crashes-per-group", "500"])

    def start(self, folder, *words, **kwargs):
        victim = self.start_victim(folder / "situations", *words, preload=False, **kwargs)
        self.daemon.await_process(victim.pid)
        return victim

    def builds(self):
        """(name, folder) of each build that can be made here."""
        for name, target, _, _ in BUILDS:
            missing = musl_is_missing() if target == MUSL else None
            if missing:
                print(f"rust: {name} left out: {missing}", file=sys.stderr, flush=True)
                continue
            yield name, build(name)

    # The package

    def test_the_crate_compiles_the_sources_that_bazel_compiles(self):
        """All but those of the libraries that are loaded: by LD_PRELOAD, or by a Java VM."""
        sources = {}

        def rule(name="", srcs=(), **_):
            sources[name] = {source for source in srcs if source.endswith(".c")}

        others = dict.fromkeys(("load", "package", "exports_files", "filegroup"), lambda *args, **kwargs: None)
        code = (ROOT / "agent/BUILD").read_text()
        exec(code, {**others, "cc_library": rule, "cc_binary": rule, "cc_test": rule, "glob": lambda *args: []})
        rooms = re.findall(r'^    "(.+)",$', (CRATE / "build.rs").read_text().split("const ROOMS")[1].split("];")[0], re.M)
        compiled = {f"{room}/{path.name}" for room in rooms for path in (ROOT / "agent" / room).glob("*.c")}
        self.assertEqual(sources["handler"] | sources["stackd_agent"], compiled - {"install/java_agent.c"})

    def test_the_crate_makes_a_package_with_all_it_needs(self):
        made = subprocess.run([CRATE / "package.sh", self.dir, "--list"], capture_output=True, text=True, timeout=BUILD_LIMIT_S,
                              env=dict(os.environ, PATH=os.environ["PATH"] + ":" + os.path.expanduser("~/.cargo/bin")))
        self.assertEqual(0, made.returncode, made.stderr)
        packed = set(made.stdout.split())
        for file in ("agent/install/install.c", "agent/include/stackd/agent.h", "src/lib.rs", "README.md", "build.rs"):
            self.assertIn(file, packed)
        self.assertFalse([file for file in packed if "preload" in file])

    def test_the_crate_passes_its_own_tests(self):
        done = run_tests()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    # Stacks

    def test_deadlock_of_two_mutexes(self):
        for _, folder in self.builds():
            victim = self.start(folder, "locks")
            dump = self.daemon.dump(victim.pid)
            self.assert_whole(dump, victim.pid)
            for name in ("transfer-1", "transfer-2"):
                functions = dump.functions(dump.named(name))
                self.assertTrue(any("lock_contended" in function for function in functions), functions)
                self.assertIn("situations::transfer", functions)
            self.assertTrue([f for f in dump.resource.get("findings", []) if f.get("severity") == "HANG"],
                            dump.resource.get("findings"))
            victim.kill()

    def test_a_thread_that_runs_shows_where(self):
        for _, folder in self.builds():
            victim = self.start(folder, "busy", stdin="")
            dump = eventually("it spins", lambda: next(
                (d for d in [self.daemon.dump(victim.pid)] if "busy" in (t.get("name") for t in d.threads.values())
                 and "situations::spins" in d.functions(d.named("busy"))), None))
            self.assert_whole(dump, victim.pid)
            self.assertEqual("running", dump.threads[dump.named("busy")]["state"])
            victim.kill()

    def test_names_are_those_of_rust(self):
        """Names of all frames with a symbol of their own: what the standard library's demangler makes of that symbol. Where the
        debug information says more about a frame than the symbol (inlined ones), gdb is asked in test_stacks_are_gdbs."""
        for name, folder in self.builds():
            victim = self.start(folder, "names")
            dump = self.daemon.dump(victim.pid)
            self.assertIn("größter Faden", [thread.get("name") for thread in dump.threads.values()])
            known = demangled(folder, folder / "situations")
            all_names = set().union(*known.values())
            compared = 0
            for stack in dump.stacks:
                for frame in stack.get("frames", []):
                    if frame.get("module") != "situations" or frame.get("origin") == "INLINED" or not frame.get("function"):
                        continue
                    compared += 1
                    self.assertIn(frame["function"], all_names, "no symbol has this name")
            self.assertGreater(compared, 20)
            self.assertIn("situations::naïve::größe", {f for tid in dump.threads for f in dump.functions(tid)})
            print(f"rust: {name}: {compared} names as Rust has them", file=sys.stderr, flush=True)
            victim.kill()

    def test_stacks_are_gdbs(self):
        """Functions of the program, in order, inlined ones and lines included, by the last part of their names: gdb composes
        names from the debug information."""
        for name, folder in self.builds():
            victim = self.start(folder, "names")
            dump = self.daemon.dump(victim.pid)
            theirs = oracle.of_gdb(victim.pid)
            frames = 0
            for tid, thread_name in thread_names(victim.pid).items():
                if thread_name == "stackd-agent":
                    continue
                mine, gdbs = ([(oracle.rust_last_part(f.function), f.file, f.line, f.inlined) for f in stack
                               if f.file == "situations.rs"] for stack in (oracle.of_stackd(dump, tid), theirs[tid]))
                self.assertTrue(mine or thread_name == "stackd-agent", thread_name)
                self.assertEqual(gdbs, mine, f"{name}: {thread_name}")
                frames += len(mine)
            print(f"rust: {name}: {frames} frames of the program as gdb has them", file=sys.stderr, flush=True)
            victim.kill()

    # Panics

    def own_dumps(self, pid):
        reply = self.daemon.ctl_json("list")
        dumps = reply if isinstance(reply, list) else reply.get("dumps", [])
        return [dump for dump in dumps if dump.get("trigger") == "SELF" and dump["process"]["pid"] == pid]

    def whole(self, name):
        def unwound():
            exported = Dump(self.daemon.ctl_json("export", name, "-f", "json"))
            return exported if exported.threads else None

        return eventually(f"{name} is unwound", unwound)

    def test_a_panic_that_unwinds_is_dumped_and_goes_on_as_ever(self):
        victim = self.start(build("glibc"), "panics", stdin="", env={"SECRET": "nobody-may-know"})
        victim.output = b""
        victim.process.stdin.write(b"go\n")
        victim.process.stdin.flush()
        victim.read_until("caught")
        self.assertIn("the program's own hook", victim.error_text())
        found = eventually("a dump of the panic", lambda: self.own_dumps(victim.pid))
        self.assertEqual(1, len(found))
        dump = self.whole(found[0]["name"])
        functions = dump.functions(dump.named("panics"))
        self.assertTrue(any("stackd::panic_hook::dump_panicking_thread" in function for function in functions), functions)
        self.assertTrue(any("situations::takes_order" in function for function in functions), functions)
        self.assertNotIn("nobody-may-know", str(dump.resource))

    def test_a_panic_right_after_the_start_is_dumped(self):
        """Before the process can be registered."""
        for name, folder in self.builds():
            if name == "musl":  # its panics abort
                continue
            ending = run_to_end([folder / "situations", "dies", "panic", "alone"], self.dir / f"{name}-at-once",
                                environment(self.dir, agent=None, RUST_BACKTRACE="0"))
            found = eventually("a dump of the panic", lambda: self.own_dumps(ending.pid))
            self.assertEqual(1, len(found))
            dump = self.whole(found[0]["name"])
            self.assertIn("situations::unwrap_none", dump.functions(dump.named("situations")))

    # Deaths

    def die(self, folder, label, *words):
        return run_to_end([folder / "situations", "dies", *words], self.dir / label,
                          environment(self.dir, agent=None, RUST_BACKTRACE="0"))

    def die_alone(self, folder, label, *words):
        env = dict(environment(), STACKD_DISABLE="1", RUST_BACKTRACE="0")
        # With the agent off there is no ring to wait for.
        return run_to_end([folder / "situations", "dies", *words, "alone"], self.dir / label, env)

    def test_deaths_end_as_without_the_agent_and_are_recorded_once(self):
        for name, folder in self.builds():
            aborts = name == "musl"
            for how, function in (("panic", "situations::unwrap_none"), ("null_pointer", "situations::null_pointer"),
                                  ("overflow", "situations::depth"), ("memory", "situations::fill_memory")):
                for words in ([how], [how, "thread"]):
                    with self.subTest(build=name, death=words):
                        label = "-".join([name, *words])
                        ending = self.die(folder, label, *words)
                        alone = self.die_alone(folder, f"{label}-alone", *words)
                        self.assertEqual(alone.manner, ending.manner)
                        self.assertEqual(*(re.sub(rb"\(\d+\)", b"", run.err) for run in (alone, ending)))
                        if how == "panic" and not aborts:
                            self.assertEqual(1, len(eventually("a dump", lambda: self.own_dumps(ending.pid))))
                            continue
                        dump = crash_of(self.daemon, ending.pid)
                        functions = dump.functions(dump.resource["crash"]["tid"])
                        self.assertIn(function, functions, dump.resource["crash"])
                        self.assertFalse(self.own_dumps(ending.pid), "a crash is dumped as a crash, and once")

    # What the crate offers

    def test_a_heartbeat_that_is_missed_is_dumped(self):
        victim = self.start(build("glibc"), "beats", stdin="")
        self.assertIn("rust-beats", [process.get("displayName") for process in self.daemon.processes()])
        victim.process.stdin.write(b"go\n")
        victim.process.stdin.flush()

        def hangs():
            reply = self.daemon.ctl_json("list")
            dumps = reply if isinstance(reply, list) else reply.get("dumps", [])
            return [dump for dump in dumps if dump.get("trigger") == "HANG" and dump["process"]["pid"] == victim.pid]

        found = eventually("a dump of the missed heartbeat", hangs)
        self.assertEqual("orders", found[0]["hang"].get("heartbeat"), found[0]["hang"])
        dump = self.whole(found[0]["name"])
        self.assertIn("situations::stuck_in_the_loop", dump.functions(found[0]["hang"]["tid"]))

    def test_a_program_asks_for_its_own_dump(self):
        victim = self.start(build("glibc"), "asks", stdin="")
        self.assertEqual("Ok(())", victim.ask("now"))
        self.assertEqual(1, len(eventually("its dump", lambda: self.own_dumps(victim.pid))))

    def test_a_preloaded_agent_serves_the_crate(self):
        victim = self.start_victim(build("glibc") / "situations", "asks", stdin="")
        self.daemon.await_process(victim.pid)
        self.assertEqual("Ok(())", victim.ask("now"))
        self.assertEqual(["situations", "stackd-agent"], sorted(thread_names(victim.pid).values()))
        self.assertEqual([victim.pid], [process["pid"] for process in self.daemon.processes()])

    def test_the_kill_switch_leaves_the_program_alone(self):
        victim = Victim([build("glibc") / "situations", "asks"], directory=self.dir, preload=False, stdin="",
                        env={"STACKD_DISABLE": "1"})
        self.addCleanup(victim.kill)
        self.assertEqual("Err(NotConnected)", victim.ask("now"))
        self.assertEqual(["situations"], sorted(thread_names(victim.pid).values()))


TOKIO_PROGRAMS = ROOT / "tests/languages/rust_tokio"
OLDEST_RUST_OF_TOKIO = (1, 85)
# A limit for dumps, of which 50 ms may go by for a task that does not answer.
DUMP_LIMIT_S = 2


def is_waiting(task):
    return task["state"] == "waiting"


def build_tokio():
    folder = TARGET_DIR / "tokio"
    done = cargo("build", "--locked", "--release", folder=TOKIO_PROGRAMS, CARGO_TARGET_DIR=str(folder))
    if done.returncode != 0:
        raise AssertionError(f"cargo build (tokio):\n{done.stderr[-3000:]}")
    return folder / "release/tasks"


def run_tests_with_tokio(*options):
    # Other flags of the compiler than build_tokio's: in one folder, each would build all that the other has built.
    return cargo("test", "--quiet", "--features", "tokio", *options, folder=CRATE, RUSTFLAGS="--cfg tokio_unstable",
                 CARGO_TARGET_DIR=str(TARGET_DIR / "tokio-tests"))


def prepare_tokio():
    if not crate_is_impossible(OLDEST_RUST_OF_TOKIO):
        build_tokio()
        run_tests_with_tokio("--no-run")


PREPARE.append(prepare_tokio)


class TokioTest(CrashTest):
    """The feature `tokio` of the crate."""

    limit_s = BUILD_LIMIT_S

    def setUp(self):
        super().setUp()
        if missing := crate_is_impossible(OLDEST_RUST_OF_TOKIO):
            self.skipTest(missing)
        self.daemon = self.start_daemon()

    def start(self, *words, **kwargs):
        kwargs.setdefault("preload", False)
        victim = self.start_victim(build_tokio(), *words, stdin="", **kwargs)
        self.daemon.await_process(victim.pid)
        return victim

    @staticmethod
    def tasks(dump):
        return dump.resource.get("tasks", [])

    def by_function(self, dump):
        """{last part of the type: task}"""
        return {task["name"].removesuffix("::{{closure}}").rsplit("::", 1)[-1]: task for task in self.tasks(dump)}

    @staticmethod
    def stacks(dump, task):
        """The functions of each of its stacks, innermost first."""
        numbers = ([task["stack"]] if "stack" in task else []) + task.get("otherStacks", [])
        return [[frame.get("function", "") for frame in dump.stacks[number]["frames"]] for number in numbers]

    def assert_own_functions(self, dump, task, *expected):
        """Functions of the program, innermost first, and nothing outside of the outermost."""
        for stack in self.stacks(dump, task):
            own = [function for function in stack if function.startswith("tasks::")]
            if own == [f"tasks::{name}::{{{{closure}}}}" for name in expected] and stack[-1] == own[-1]:
                return
        self.fail(f"{task}: {self.stacks(dump, task)}")

    def test_the_crate_passes_its_own_tests_with_the_feature(self):
        done = run_tests_with_tokio()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_tasks_that_wait_show_their_functions_in_order(self):
        victim = self.start("idle")
        dump = self.daemon.dump(victim.pid)
        self.assertEqual("COMPLETE", dump.resource["state"], dump.resource.get("notes"))
        found = self.by_function(dump)
        self.assertEqual({"on_channel", "on_mutex", "on_sleep", "on_join", "on_two"}, set(found))
        self.assertTrue(all(is_waiting(task) for task in found.values()), found)
        self.assert_own_functions(dump, found["on_channel"], "next_order", "receive_orders", "on_channel")
        self.assert_own_functions(dump, found["on_mutex"], "change_balance", "on_mutex")
        self.assert_own_functions(dump, found["on_sleep"], "take_a_break", "on_sleep")
        self.assert_own_functions(dump, found["on_join"], "wait_for_worker", "on_join")
        self.assertEqual(2, len(self.stacks(dump, found["on_two"])))
        self.assert_own_functions(dump, found["on_two"], "first_of_two", "on_two::{{closure}}", "on_two")
        self.assert_own_functions(dump, found["on_two"], "second_of_two", "on_two::{{closure}}", "on_two")
        source = (TOKIO_PROGRAMS / "src/tasks.rs").read_text().splitlines()
        for name, task in found.items():
            self.assertEqual("TOKIO_TASK", task["kind"])
            file, line = task["createdBy"].rsplit(":", 1)
            self.assertEqual("src/tasks.rs", file)
            self.assertIn(f"spawn({name}(", source[int(line) - 1])
        text = self.daemon.ctl("show", dump.resource["name"]).text
        self.assertRegex(text, r"tokio; 5 tokio tasks")
        self.assertIn("tasks::receive_orders::{{closure}}", text)

    def test_stacks_are_those_of_tokios_own_dump(self):
        """By the last part of each name: tokio makes names of symbols, the daemon of the debug information."""
        victim = self.start("idle")
        dump = self.daemon.dump(victim.pid)
        mine = {(task["id"], tuple(map(oracle.rust_last_part, stack)))
                for task in self.tasks(dump) for stack in self.stacks(dump, task)}
        theirs = set()
        for line in filter(None, victim.ask("dump").split(";")):
            task, *functions = line.split()
            names = [re.sub(r"::h[0-9a-f]{16}$", "", function.replace("~", " ")) for function in functions]
            # Tasks that are not wrapped have none of the crate's functions.
            if "stackd::tasks::Traced" in names[-1]:
                theirs.add((task, tuple(map(oracle.rust_last_part, names[:-1]))))
        self.assertEqual(6, len(theirs), theirs)
        self.assertEqual(theirs, mine)

    def test_a_blocked_worker_holds_up_neither_the_dump_nor_the_others(self):
        victim = self.start("blocked")
        before, _ = map(int, victim.ask("turns").split())
        slowest_s = 0
        for _ in range(5):
            begin = time.monotonic()
            dump = self.daemon.dump(victim.pid)
            slowest_s = max(slowest_s, time.monotonic() - begin)
            self.assertEqual("COMPLETE", dump.resource["state"], dump.resource.get("notes"))
            found = self.by_function(dump)
            self.assertEqual({"on_sleep", "blocks_its_worker", "yields"}, set(found))
            self.assertEqual("running", found["blocks_its_worker"]["state"])
            self.assertNotIn("stack", found["blocks_its_worker"])
            functions = dump.functions(found["blocks_its_worker"]["tid"])
            self.assertIn("tasks::lock_the_ledger", functions)
            for other in ("on_sleep", "yields"):
                self.assertTrue(is_waiting(found[other]), found[other])
        self.assert_own_functions(dump, found["on_sleep"], "take_a_break", "on_sleep")
        text = self.daemon.ctl("show", dump.resource["name"]).text
        self.assertRegex(text, r"tasks::blocks_its_worker::\{\{closure\}\}.*running on thread")
        self.assertLess(slowest_s, DUMP_LIMIT_S)
        after, longest_us = map(int, victim.ask("turns").split())
        print(f"rust: tokio: {before} turns a second before, {after} after five dumps, the slowest {slowest_s * 1000:.0f} ms; "
              f"meanwhile one turn came {longest_us} us late", file=sys.stderr, flush=True)
        # A quarter, since the machine does other things too; where a dump stops the runtime there is none.
        self.assertGreater(after, before / 4)

    def test_tasks_of_a_runtime_that_is_blocked_are_said_to_be_due(self):
        victim = self.start("one_worker")
        found = self.by_function(self.daemon.dump(victim.pid))
        self.assertEqual({"blocks_its_worker": "running", "on_sleep": "woken, not run since", "take_a_break": "not run yet"},
                         {name: task["state"] for name, task in found.items()})

    def starvations(self, *words):
        """(dump, its findings of starved pools) once the workers are seen to wait."""
        victim = self.start(*words)

        def found():
            dump = self.daemon.dump(victim.pid)
            starved = [f for f in dump.resource.get("findings", []) if f["kind"] == "STARVED_POOL"]
            return (dump, starved) if starved else None

        return eventually(f"the workers of {words} wait", found)

    def test_workers_that_all_wait_for_messages_of_tasks_are_starved(self):
        dump, (starved,) = self.starvations("starved")
        self.assertEqual({tid for tid in dump.threads if "tasks::wait_for_answer" in dump.functions(tid)}, set(starved["tids"]))
        self.assertRegex(starved["explanation"], r"^all 2 workers of tokio wait inside of tasks, as thread .*wait_for_answer.* none is "
                         "left to run another task$")

    def test_workers_that_wait_for_a_lock_of_a_task_that_sleeps_are_starved(self):
        dump, (starved,) = self.starvations("starved_by_guard")
        self.assertEqual({tid for tid in dump.threads if "tasks::lock_the_ledger" in dump.functions(tid)}, set(starved["tids"]))
        self.assertEqual(2, len(starved["tids"]))

    def test_a_runtime_of_one_thread_that_waits_in_a_task_is_blocked(self):
        dump, (blocked,) = self.starvations("blocked_loop")
        self.assertEqual({tid for tid in dump.threads if "tasks::wait_for_answer" in dump.functions(tid)}, set(blocked["tids"]))
        self.assertRegex(blocked["explanation"], r"^the event loop of tokio is blocked: thread .* in tasks::wait_for_answer .* waits ")

    def test_a_runtime_with_a_worker_left_is_not_starved(self):
        for words in (("blocked",), ("idle",), ("idle_loop",)):
            victim = self.start(*words)
            dump = self.daemon.dump(victim.pid)
            self.assertNotIn("STARVED_POOL", [f["kind"] for f in dump.resource.get("findings", [])], words)

    def test_a_recording_asks_no_task(self):
        """A task says where it waits when it is run."""
        victim = self.start("idle")
        taken = self.daemon.ctl("record", victim.pid, "--for", "1s", "-f", "folded")
        self.assertEqual(0, taken.code, taken.err)
        self.assertIn("tokio", taken.out)
        self.assertNotIn("on_channel", taken.out)
        self.assertIn("on_channel", self.by_function(self.daemon.dump(victim.pid)))

    def test_of_very_many_tasks_those_that_are_listed_are_said(self):
        victim = self.start("many", "12000")
        before, _ = map(int, victim.ask("turns").split())
        dump = self.daemon.dump(victim.pid)
        self.assertEqual(10_000, int(dump.resource["taskCount"]))
        self.assertIn("tokio has 12001 tasks: 10000 are listed", dump.resource["notes"])
        states = collections.Counter(task["state"] for task in self.tasks(dump))
        after, longest_us = map(int, victim.ask("turns").split())
        print(f"rust: tokio: of 12001 tasks {dict(states)}; {before} turns a second before, {after} after, one {longest_us} us late",
              file=sys.stderr, flush=True)
        self.assertGreater(states["waiting"], 100)
        self.assertGreater(after, before / 4)

    def test_dumps_while_tasks_come_and_go(self):
        victim = self.start("churn")
        self.daemon.dump(victim.pid)
        done, resident_kib, fds = map(int, victim.ask("count").split())
        listed = 0
        end = time.monotonic() + CHURN_S
        dumps = 0
        while time.monotonic() < end:
            begin = time.monotonic()
            dump = self.daemon.dump(victim.pid)
            self.assertEqual("COMPLETE", dump.resource["state"], dump.resource.get("notes"))
            listed += len(self.tasks(dump))
            dumps += 1
            time.sleep(max(0, begin + 0.1 - time.monotonic()))  # ten a second
        self.assertTrue(victim.alive(), victim.error_text())
        done_after, resident_after_kib, fds_after = map(int, victim.ask("count").split())
        print(f"rust: tokio: {dumps} dumps of {listed} tasks, while {done_after - done} came and went; "
              f"{resident_kib} KiB resident before, {resident_after_kib} after", file=sys.stderr, flush=True)
        self.assertGreater(done_after, done + 1000)
        self.assertGreater(listed, dumps)
        self.assertEqual(fds, fds_after)
        self.assertLess(resident_after_kib, resident_kib + 4096)
        self.assertEqual("", victim.error_text())

    def test_a_preloaded_agent_asks_the_tasks_too(self):
        victim = self.start("idle", preload=True)
        self.assertEqual(5, len(self.tasks(self.daemon.dump(victim.pid))))

    def test_tasks_are_found_by_a_daemon_that_comes_later(self):
        victim = self.start("idle")
        self.daemon.restart()
        self.daemon.await_process(victim.pid)
        self.assertEqual(5, len(self.tasks(self.daemon.dump(victim.pid))))

    def test_the_kill_switch_leaves_no_thread(self):
        victim = Victim([build_tokio(), "idle"], directory=self.dir, preload=False, stdin="", env={"STACKD_DISABLE": "1"})
        self.addCleanup(victim.kill)
        self.assertFalse([name for name in thread_names(victim.pid).values() if name.startswith("stackd")])


if __name__ == "__main__":
    unittest.main()
