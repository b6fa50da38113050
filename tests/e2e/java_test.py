"""Java: its methods between the native frames, as jstack has them, and its locks, for every HotSpot that is here.

    java: 21.0.8           11 of 11 stacks as jstack has them, 184 frames
"""

import functools
import json
import signal
import subprocess
import sys
import time

import jdks
import tier
from built import built
from crashes import crash_of, environment, run_to_end
from harness import AGENT, OK, ROOT, Dump, StackdTest, eventually, thread_names

PROGRAMS = ROOT / "tests/languages/java"
PACKAGE = ROOT / "agent/java/src/main/java"
JAVA_AGENT = AGENT.with_name("libstackd_java.so")


def is_java(frame):
    return frame.get("language") == "JAVA"


def frames_of(dump, tid):
    """With recursion written out again."""
    frames, pending = [], list(dump.frames(tid))
    while pending:
        length = max(1, pending[0].get("repeatLength", 1))
        count = max(1, int(pending[0].get("repeatCount", 1)))
        frames += pending[:length] * count
        pending = pending[length:]
    return frames


def java_lines(dump, tid):
    """Lines of methods; what has no "." in its name is a stub of the VM's."""
    return [jdks.Line(jdks.plain(frame["function"]), frame.get("line", 0)) for frame in frames_of(dump, tid)
            if is_java(frame) and "." in frame["function"] and " " not in frame["function"]]


def each_vm(at_least=jdks.OLDEST):
    """Calls the case with each VM, as a subtest: one that fails does not hide how the others are."""

    def wrap(case):
        @functools.wraps(case)
        def run(self):
            fitting = tier.versions([jdk for jdk in jdks.found() if jdk.release >= at_least])
            if not fitting:
                self.skipTest(f"no HotSpot of release {at_least} or later is here")
            for jdk in fitting:
                with self.subTest(java=str(jdk)):
                    case(self, jdk)

        return run

    return wrap


def classes():
    """The folder with the classes of the programs and of the package."""

    def compile_into(folder):
        # The package with what release 8 has and no more. Programs want some things of the VM's own.
        subprocess.run([jdks.tool("javac"), "--release", "8", "-d", folder, *PACKAGE.rglob("*.java")], check=True,
                       capture_output=True)
        subprocess.run([jdks.tool("javac"), "-source", "8", "-target", "8", "-XDignore.symbol.file", "-nowarn",
                        "-cp", folder, "-d", folder, *PROGRAMS.glob("*.java")], check=True, capture_output=True)

    return built("java-classes", [PACKAGE, PROGRAMS, str(jdks.tool("javac"))], compile_into)


def prepare():
    if jdks.found() and jdks.tool("javac"):
        classes()


PREPARE = [prepare]


class JavaTest(StackdTest):
    limit_s = 900 + 6 * tier.CHURN_S

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not jdks.found() or not jdks.tool("javac") or not jdks.tool("jstack"):
            return
        cls.classes = classes()

    def setUp(self):
        super().setUp()
        if not jdks.found():
            self.skipTest("no HotSpot of release 8 or later is here: deploy/install-deps.sh --tests installs one")
        if not jdks.tool("javac") or not jdks.tool("jstack"):
            self.skipTest("no javac and jstack are here: deploy/install-deps.sh --tests installs them")

    def say(self, jdk, what):
        print(f"java: {jdk!s:<16} {what}", file=sys.stderr, flush=True)

    def start(self, jdk, program, *arguments, options=(), **kwargs):
        return self.start_victim(jdk.java, *options, "-cp", self.classes, program, *arguments, **kwargs)

    def steady_dumps(self, daemon, pid, between):
        """What `between` gives, a dump, and the threads that stood still around it."""
        process = daemon.await_process(pid)["name"]
        before = daemon.dump(process)
        result = between()
        after = daemon.dump(process)
        still = {tid for tid in before.threads if tid in after.threads and
                 java_lines(before, tid) == java_lines(after, tid)}
        return result, after, still

    @each_vm()
    def test_every_thread_that_stands_still_has_the_frames_that_jstack_has(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Blocked", "quiet")
        text, dump, still = self.steady_dumps(daemon, victim.pid, lambda: jdks.jstack(victim.pid))
        expected = jdks.parse_jstack(text)
        equal = 0
        for tid in sorted(still & set(expected)):
            self.assertEqual(expected[tid], java_lines(dump, tid), f"{jdk}: {dump.threads[tid].get('name')}")
            equal += 1
        self.assertGreaterEqual(equal, 8, "threads that could be compared")
        self.say(jdk, f"{equal} of {len(expected)} stacks as jstack has them, "
                      f"{sum(len(expected[tid]) for tid in still & set(expected))} frames")
        self.assertTrue(any("HotSpot" in r.get("name", "") for r in dump.resource.get("runtimes", [])))
        self.assertTrue(dump.named("a thread with a long name"))
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_native_and_java_frames_are_in_order(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Blocked", "quiet")
        process = daemon.await_process(victim.pid)["name"]

        def accepting():
            dump = daemon.dump(process)
            functions = [frame.get("function") or f"in {frame.get('module')}" for frame in dump.frames(dump.named("accept"))]
            # Code that was loaded just before is known from the next look at the maps on.
            # A C library without symbols has names only of what it exports.
            return functions if any("accept" in name for name in functions[:4]) and len(functions) > 4 else None

        functions = eventually("a thread is in accept()", accepting)
        wanted = ["accept", "sun.nio.ch.", "Blocked.accept", "java.lang.Thread.run"]
        # Debian's release 8 has no symbols.
        wanted += ["JavaCalls::call", "thread_native_entry"] if jdk.release >= 11 else ["in libjvm.so"]
        order = [next((i for i, name in enumerate(functions) if part in name), -1) for part in wanted]
        self.assertEqual(sorted(order), order, functions)
        self.assertNotIn(-1, order, functions)
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_deadlocks_are_those_that_jstack_finds(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Blocked", "quiet")
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        expected = jdks.deadlocks(jdks.jstack(victim.pid))
        self.assertEqual(2, len(expected))
        findings = [f for f in dump.resource.get("findings", []) if "DEADLOCK" in f.get("kind", "")]
        cycles = {frozenset(dump.threads[tid]["name"] for tid in f["tids"]) for f in findings}
        self.assertEqual(expected, cycles, json.dumps(findings, indent=1))
        waits = [dump.threads[dump.named(name)].get("wait", {}) for name in ("monitor-left", "lock-first")]
        self.assertEqual(["MONITOR", "MONITOR"], [wait.get("kind") for wait in waits])
        victim.kill()
        daemon.kill()

    # How objects are kept, by the options that make it so.
    HEAPS = (["-XX:+UseSerialGC"], ["-XX:+UseParallelGC"], ["-XX:+UseG1GC"], ["-XX:+UseShenandoahGC"], ["-XX:+UseZGC"],
             ["-XX:+UseZGC", "-XX:+ZGenerational"], ["-XX:-UseCompressedOops"], ["-XX:-UseCompressedClassPointers"],
             ["-XX:+UseCompactObjectHeaders"], ["-XX:+UseCompactObjectHeaders", "-XX:+UseZGC"])

    @each_vm()
    def test_deadlocks_are_found_or_denied_with_each_way_to_keep_objects(self, jdk):
        daemon = self.start_daemon()
        found = []
        for heap in self.HEAPS:
            options = ["-XX:+UnlockExperimentalVMOptions", *heap]
            for collections in (0, 1) if jdk.takes(*options) else ():
                victim = self.start(jdk, "Blocked", "quiet", options=[*options, f"-Dcollections={collections}"])
                dump = daemon.dump(daemon.await_process(victim.pid)["name"])
                names = {thread["name"] for thread in dump.threads.values()}
                cycles = {frozenset(dump.threads[tid]["name"] for tid in finding["tids"])
                          for finding in dump.resource.get("findings", []) if "DEADLOCK" in finding.get("kind", "")}
                expected = {frozenset({"monitor-left", "monitor-right"}), frozenset({"lock-first", "lock-second"})}
                is_whole = cycles == expected and "a thread with a long name" in names
                is_said = any("the collector has moved objects" in note for note in dump.notes)
                # Only ZGC leaves references as they were until a thread reads them.
                is_moved = collections > 0 and "-XX:+UseZGC" in heap
                self.assertLessEqual(cycles, expected)
                self.assertTrue(is_whole or is_moved and is_said, f"{options} {cycles} {names} {dump.notes}")
                found.append(is_whole)
                victim.kill()
        self.say(jdk, f"both deadlocks found with {sum(found)} of {len(found)} ways to keep objects, a note with the others")
        daemon.kill()

    @each_vm()
    def test_threads_that_only_contend_are_in_no_deadlock(self, jdk):
        daemon = self.start_daemon()
        for options in ([], ["-XX:+UnlockExperimentalVMOptions", "-XX:+UseZGC", "-Dcollects=true"]):
            if not jdk.takes(*options):
                continue
            victim = self.start(jdk, "Contend", options=options)
            process = daemon.await_process(victim.pid)["name"]
            dumps = owned = 0
            while dumps < 20 or owned < 20:
                dump = daemon.dump(process)
                dumps += 1
                self.assertEqual([], [f for f in dump.resource.get("findings", []) if "DEADLOCK" in f.get("kind", "")])
                for tid, thread in dump.threads.items():
                    wait = thread.get("wait", {})
                    self.assertNotEqual(tid, wait.get("ownerTid"))
                    owned += wait.get("kind") == "MONITOR" and "ownerTid" in wait
            self.say(jdk, f"{owned} waits for locks with their owners in {dumps} dumps, none in a circle {options}")
            victim.kill()
        daemon.kill()

    @each_vm()
    def test_locks_that_go_back_and_forth_make_no_circle(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Turns")
        process = daemon.await_process(victim.pid)["name"]
        owned = 0
        for _ in range(tier.DUMPS_OF_TURNS):
            dump = daemon.dump(process)
            self.assertEqual([], [f for f in dump.resource.get("findings", []) if f["severity"] == "HANG"])
            owned += any(t.get("wait", {}).get("kind") == "MONITOR" and "ownerTid" in t["wait"]
                         for t in dump.threads.values())
        self.assertGreater(owned, 0)
        self.say(jdk, f"{tier.DUMPS_OF_TURNS} dumps, {owned} of them with an owner, none with a circle")
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_a_counted_loop_is_seen_while_it_runs(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Blocked")
        process = daemon.await_process(victim.pid)["name"]

        def counting():
            dump = daemon.dump(process)
            functions = [line.function for line in java_lines(dump, dump.named("count"))]
            return functions[:2] == ["Blocked.countOnce", "Blocked.count"]

        eventually("the loop is on the stack", counting)
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_what_the_vm_recovers_from_stays_its_own(self, jdk):
        daemon = self.start_daemon()
        for number, options in enumerate(([], ["-Xcheck:jni"])):
            ending = run_to_end([jdk.java, *options, "-cp", self.classes, "Survives"],
                                self.dir / f"survives-{jdk}-{number}", environment(self.dir))
            self.assertEqual(("exit code 0", b"200000 20\n", b""), (ending.manner, ending.out, ending.err))
        self.assertEqual([], daemon.ctl_json("list").get("dumps", []))
        daemon.kill()

    @each_vm()
    def test_a_crash_has_java_frames_and_the_vm_its_own_report(self, jdk):
        daemon = self.start_daemon()
        folder = self.dir / f"crash-{jdk}"
        folder.mkdir()
        options = ["-XX:-CreateCoredumpOnCrash"] if jdk.release >= 9 else []
        victim = self.start(jdk, "Dies", "segv", options=options, stdin="", cwd=folder)
        daemon.await_process(victim.pid)
        victim.process.stdin.write(b"\n")
        victim.process.stdin.flush()
        victim.process.wait(60)
        dump = crash_of(daemon, victim.pid)
        functions = [line.function for line in java_lines(dump, dump.resource["crash"]["tid"])]
        self.assertIn("Dies.writeNowhere", functions)
        self.assertEqual("Dies.main", functions[-1])
        self.assertTrue((folder / f"hs_err_pid{victim.pid}.log").exists())
        daemon.kill()

    @each_vm()
    def test_a_crash_in_a_library_has_its_functions_above_javas(self, jdk):
        library = self.dir / "libnative.so"
        subprocess.run(["g++", "-O2", "-g", "-shared", "-fPIC", PROGRAMS / "native.cc", "-o", library], check=True)
        daemon = self.start_daemon()
        folder = self.dir / f"crash-{jdk}"
        folder.mkdir()
        options = ["-XX:-CreateCoredumpOnCrash"] if jdk.release >= 9 else []
        victim = self.start(jdk, "Dies", "library", library, options=options, stdin="\n", cwd=folder)
        victim.process.wait(60)
        dump = crash_of(daemon, victim.pid)
        functions = dump.functions(dump.resource["crash"]["tid"])
        self.assertIn("WriteTo", functions[0])
        self.assertEqual(["Java_Dies_crashInLibrary", "Dies.crashInLibrary", "Dies.main"], functions[1:4])
        self.assertTrue((folder / f"hs_err_pid{victim.pid}.log").exists())
        daemon.kill()

    @each_vm()
    def test_a_vm_that_is_told_to_crash_when_its_heap_is_exhausted_does(self, jdk):
        daemon = self.start_daemon()
        folder = self.dir / f"crash-{jdk}"
        ending = run_to_end([jdk.java, "-Xmx64m", "-XX:+CrashOnOutOfMemoryError", "-cp", self.classes, "Dies", "exhaust"],
                            folder, environment(self.dir))
        self.assertEqual(signal.SIGABRT, ending.signal)
        dump = crash_of(daemon, ending.pid)
        functions = [line.function for line in java_lines(dump, dump.resource["crash"]["tid"])]
        self.assertEqual(["Dies.exhaust", "Dies.main"], functions)
        self.assertTrue((folder / f"hs_err_pid{ending.pid}.log").exists())
        daemon.kill()

    def test_a_vm_that_does_not_say_what_is_needed_is_named_with_what_it_lacks(self):
        library = self.dir / "libjvm.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", PROGRAMS / "unknown_vm.c", "-o", library], check=True)
        daemon = self.start_daemon()
        load = f"import ctypes, time; ctypes.CDLL('{library}'); print('ready', flush=True); time.sleep(1000)"
        victim = self.start_victim(sys.executable, "-c", load)
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        self.assertEqual([("HotSpot", "this HotSpot does not say where it has Method._constMethod")],
                         [(runtime["name"], runtime.get("problem")) for runtime in dump.resource["runtimes"]
                          if runtime["language"] == "JAVA"])
        self.assert_whole(dump, victim.pid)

    def own_dump(self, daemon, pid):
        """That the process asked for."""

        def self_dumps():
            return [d for d in daemon.ctl_json("list").get("dumps", [])
                    if d.get("trigger") == "SELF" and d["process"]["pid"] == pid]

        name = eventually("a dump that the process asked for", self_dumps)[0]["name"]

        def unwound():
            exported = daemon.ctl("export", name, "-f", "json")
            self.assertEqual(OK, exported.code, exported.err)
            dump = Dump(json.loads(exported.out))
            return dump if dump.threads else None

        # It is listed once its stacks are stored.
        return eventually("its stacks are unwound", unwound)

    @each_vm()
    def test_a_heap_that_is_exhausted_is_dumped_where_it_was(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Dies", "heap", options=["-Xmx64m", f"-agentpath:{JAVA_AGENT}"], stdin="")
        daemon.await_process(victim.pid)
        victim.process.stdin.write(b"\n")
        victim.process.stdin.flush()
        victim.read_until("caught")

        dump = self.own_dump(daemon, victim.pid)
        functions = {line.function for tid in dump.threads for line in java_lines(dump, tid)}
        self.assertIn("Dies.fillHeap", functions)
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_a_vm_that_ends_of_an_exhausted_heap_has_its_methods_in_the_dump(self, jdk):
        daemon = self.start_daemon()
        ending = run_to_end([jdk.java, "-Xmx64m", f"-agentpath:{JAVA_AGENT}", "-cp", self.classes, "Dies", "exhaust"],
                            self.dir / f"exits-{jdk}", environment(self.dir, agent=None))
        self.assertEqual("exit code 1", ending.manner)
        dump = self.own_dump(daemon, ending.pid)
        functions = {line.function for tid in dump.threads for line in java_lines(dump, tid)}
        self.assertIn("Dies.exhaust", functions)
        daemon.kill()

    @each_vm()
    def test_a_program_asks_through_the_package(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Asks", options=[f"-agentpath:{JAVA_AGENT}"], preload=False, stdin="")
        self.assertEqual("loaded true", victim.ask("loaded"))
        victim.ask("process orders")
        eventually("the process is called orders", lambda: daemon.await_process(victim.pid).get("displayName") == "orders")
        victim.ask("thread a thread that imports orders")
        self.assertEqual("dump true", victim.ask("dump"))
        dump = self.own_dump(daemon, victim.pid)
        functions = [line.function for line in java_lines(dump, dump.named("a thread that imports orders"))]
        self.assertEqual(["Asks.dump", "Asks.main"], functions[-2:])

        victim.ask("heartbeat")
        victim.ask("beat")
        found = eventually("the missed heartbeat", lambda: daemon.ctl_json("list", "--hangs").get("dumps", []))
        self.assertEqual(("orders", "HEARTBEAT_MISSED"), (found[0]["hang"].get("heartbeat"), found[0]["hang"].get("cause")))
        victim.ask("suspend")
        victim.ask("close")
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_the_kill_switch_leaves_the_program_alone_as_no_agent_does(self, jdk):
        daemon = self.start_daemon()
        for options, env in (([f"-agentpath:{JAVA_AGENT}"], {"STACKD_DISABLE": "1"}), ([], {})):
            victim = self.start(jdk, "Asks", options=options, preload=False, stdin="", env=env)
            self.assertNotIn("stackd-agent", thread_names(victim.pid).values())
            self.assertEqual(f"loaded {options != []}".lower(), victim.ask("loaded"))
            for question in ("process orders", "thread importer", "heartbeat", "beat", "suspend", "close"):
                self.assertEqual(question.split()[0], victim.ask(question))
            self.assertEqual("dump false", victim.ask("dump"))
            self.assertEqual([], daemon.processes())
            victim.process.stdin.close()
            self.assertEqual((0, ""), (victim.process.wait(60), victim.error_text()))
        daemon.kill()

    @each_vm()
    def test_an_agent_of_the_environment_alone_dumps_on_request(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Blocked", "quiet", preload=False, env={"JAVA_TOOL_OPTIONS": f"-agentpath:{JAVA_AGENT}"})
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        self.assert_whole(dump, victim.pid)
        functions = [line.function for line in java_lines(dump, dump.named("a thread with a long name"))]
        self.assertEqual(101, functions.count("Blocked.recurse"), functions)
        self.assertEqual("java.lang.Thread.run", functions[-1])
        victim.kill()
        daemon.kill()

    @each_vm(at_least=11)
    def test_another_agent_that_calls_its_own_functions_by_name_still_does(self, jdk):
        if not jdks.tool("jcmd"):
            self.skipTest("no jcmd is here: deploy/install-deps.sh --tests installs it with javac")
        library = self.dir / f"other-{jdk}.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", PROGRAMS / "other_agent.c", "-o", library], check=True)
        for options in ([], [f"-agentpath:{JAVA_AGENT}"]):
            victim = self.start(jdk, "Dies", "nothing", options=options, stdin="")
            done = subprocess.run([jdks.tool("jcmd"), str(victim.pid), "JVMTI.agent_load", library], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            victim.read_until("other agent")
            victim.kill()

    @each_vm()
    def test_dumps_under_compilation_collection_and_class_loading_have_whole_stacks(self, jdk):
        # The program's methods that can be on each thread, beside that which calls all others and lambdas of its.
        methods = {"reflect": {"Churn.throwFrom"}, "allocate": set(), "sort": set(), "load": {"Churn$1.<init>"}}
        daemon = self.start_daemon()
        victim = self.start(jdk, "Churn", options=["-Xmx256m"], stdin="")
        process = daemon.await_process(victim.pid)["name"]
        dumps = whole = looked = brief = 0
        end = time.monotonic() + tier.CHURN_S
        while time.monotonic() < end:
            dump = daemon.dump(process)
            dumps += 1
            for name, own in methods.items():
                functions = [line.function for line in java_lines(dump, dump.named(name))]
                looked += 1
                whole += f"Churn.{name}" in functions and functions[-1] == "java.lang.Thread.run"
                for function in functions:
                    if not function.startswith(("Churn.lambda$" + name, "Churn$$Lambda")) and function.startswith("Churn"):
                        self.assertIn(function, {f"Churn.{name}", *own}, functions)
            for tid in [tid for tid, thread in dump.threads.items() if thread.get("name") == "brief"]:
                functions = [line.function for line in java_lines(dump, tid)]
                brief += "Churn.brief" in functions
                self.assertLessEqual({function for function in functions if function.startswith("Churn.")}, {"Churn.brief"})
            self.assertTrue(victim.alive(), victim.error_text())
            time.sleep(0.05)
        victim.process.stdin.write(b"q")
        victim.process.stdin.flush()
        victim.read_until("well true")
        self.say(jdk, f"{whole} of {looked} stacks whole in {dumps} dumps under churn, and {brief} of threads that live for "
                      "a moment, no method on another's thread")
        self.assertGreaterEqual(whole, 0.98 * looked)
        self.assertGreater(brief, 0)
        victim.kill()
        daemon.kill()

    @each_vm()
    def test_dumps_while_the_vm_collects_have_whole_stacks(self, jdk):
        outer = ["Collects.recurse"] * 21 + ["Collects.lambda$start$0"]
        daemon = self.start_daemon()
        for options in ([], ["-Xint"]):
            victim = self.start(jdk, "Collects", options=["-XX:+UseSerialGC", "-Xmx256m", *options], stdin="")
            process = daemon.await_process(victim.pid)["name"]
            # As the kernel calls them: the VM's names move with the heap.
            tids = {name: tid for tid, name in thread_names(victim.pid).items()}
            halted = collecting = whole = 0
            for _ in range(20):
                dump = daemon.dump(process)
                for name in ("compute", "allocate", "sleep", "collect"):
                    tid = tids[name]
                    functions = [line.function for line in java_lines(dump, tid)]
                    own = [function for function in functions if function.startswith("Collects.")]
                    self.assertEqual((outer, "java.lang.Thread.run"), (own[-len(outer):], functions[-1]), functions)
                    self.assertEqual(name, dump.threads[tid]["name"])
                    whole += own == ["Collects." + name, *outer]
                    halted += any("afepoint" in frame.get("function", "") for frame in dump.frames(tid))
                collecting += any("ollect" in frame.get("function", "") for frame in dump.frames(tids["VM Thread"]))
            victim.process.stdin.write(b"q")
            victim.process.stdin.flush()
            victim.read_until("collected")
            share = int(victim.output.split()[-1])
            # Without symbols of the VM (Debian's release 8) only what is compiled says that it waits for a safepoint's end.
            self.assertTrue(halted > 0 or jdk.release == 8 and options)
            self.assertTrue(collecting > 0 or jdk.release == 8)
            self.assertGreater(share, 5)
            self.assertGreaterEqual(whole, 78)
            self.say(jdk, f"{options} {whole} of 80 stacks whole, {halted} in a safepoint, {collecting} of 20 dumps in a "
                          f"collection, while the VM collected for {share} % of the time")
            victim.kill()
        daemon.kill()

    @each_vm(at_least=21)
    def test_a_virtual_thread_shows_on_its_carrier(self, jdk):
        daemon = self.start_daemon()
        victim = self.start(jdk, "Virtual")
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        stacks = [[line.function for line in java_lines(dump, tid)] for tid in dump.threads]
        spinning = [functions for functions in stacks if "Virtual.spin" in functions]
        self.assertEqual(1, len(spinning))
        self.assertIn("jdk.internal.vm.Continuation.run", spinning[0])
        number = victim.output.split()[1].decode()
        self.assertLessEqual({task.get("name") for task in dump.resource["tasks"]}, {"spinner", "sleeper"})
        tasks = [task for task in dump.resource["tasks"] if task.get("name") == "spinner"]
        self.assertEqual([("VIRTUAL_THREAD", number, "running")],
                         [(task["kind"], task["id"], task["state"]) for task in tasks])
        self.assertEqual(spinning[0], [line.function for line in java_lines(dump, tasks[0]["tid"])])
        text = daemon.ctl("export", dump.name, "-f", "text").out
        self.assertIn(f"  id {number}: spinner: running on thread {tasks[0]['tid']}\n", text)
        victim.kill()
        daemon.kill()


if __name__ == "__main__":
    import unittest

    unittest.main()
