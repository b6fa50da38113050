"""Python: functions of Python and C in one stack, as py-spy and pystack see them, for every CPython that is here.

    python: 3.11.7                 11 of  11 stacks as py-spy has them, 52 frames
"""

import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import zipfile
from xml.etree import ElementTree

import pytest

import pythons
import tier
from crashes import crash_of, environment, run_to_end
from harness import AGENT, ROOT, StackdTest, eventually, thread_names

PROGRAMS = ROOT / "tests/languages/python"
BLOCKED = PROGRAMS / "blocked.py"
DIES = PROGRAMS / "dies.py"
RAISES = PROGRAMS / "raises.py"


def is_python(frame):
    return frame.get("language") == "PYTHON"


def line_of(frame):
    return pythons.Line(frame.get("function", ""), os.path.basename(frame.get("file", "")), frame.get("line", 0))


def frames_of(dump, tid):
    """With recursion written out again."""
    frames = []
    pending = list(dump.frames(tid))
    while pending:
        length = max(1, pending[0].get("repeatLength", 1))
        count = max(1, int(pending[0].get("repeatCount", 1)))
        frames += pending[:length] * count
        pending = pending[length:]
    return frames


def python_lines(dump, tid):
    return [line_of(frame) for frame in frames_of(dump, tid) if is_python(frame)]


def for_each_python(test):
    """test(self, python), as a subtest for each that is here."""

    @functools.wraps(test)
    def run(self):
        for python in self.pythons:
            with self.subTest(python=str(python)):
                test(self, python)

    return run


def plain(kind, function):
    """A frame as pystack has it: without the class or function around, without what a compiler adds to clones."""
    name = function.rsplit(".", 1)[-1] if kind == "Python" else function.split("(")[0].split("@")[0].split(".")[0]
    return kind, name


class PythonTest(StackdTest):
    limit_s = 600 + 2 * tier.CHURN_S
    NAP = "import time\ndef nap():\n print('ready', flush=True)\n time.sleep(999)\nnap()"

    def setUp(self):
        super().setUp()
        self.daemon = None
        self.pythons = tier.versions(pythons.found())
        if not self.pythons:
            self.skipTest("no CPython of 3.8 to 3.14 is here")

    def the_daemon(self):
        """One for all of a test."""
        if self.daemon is None:
            self.daemon = self.start_daemon()
        return self.daemon

    def say(self, python, what):
        print(f"python: {python!s:<22} {what}", file=sys.stderr, flush=True)

    def need(self, tool):
        if not tool.exists():
            self.skipTest(f"{tool.name} is not here: deploy/install-deps.sh --tests installs it where PyPI can be reached")

    def start(self, python, *arguments, **kwargs):
        return self.start_victim(python.path, *arguments, **kwargs)

    def two_dumps(self, daemon, pid, between):
        """What `between` gives, and the threads that stood still around it: {tid: frames}."""
        process = daemon.await_process(pid)["name"]
        before = daemon.dump(process)
        result = between()
        after = daemon.dump(process)
        still = {tid for tid in before.threads if tid in after.threads and
                 [f.get("address") for f in before.frames(tid)] == [f.get("address") for f in after.frames(tid)] and
                 python_lines(before, tid) == python_lines(after, tid)}
        return after, still, result


class FramesTest(PythonTest):

    @for_each_python
    def test_each_thread_has_the_frames_that_py_spy_gives_it(self, python):
        self.need(pythons.PY_SPY)
        daemon = self.the_daemon()
        victim = self.start(python, BLOCKED, "busy")
        dump, still, theirs = self.two_dumps(daemon, victim.pid, lambda: pythons.ask_py_spy(victim.pid))
        compared = 0
        frames = 0
        for tid, (lines, has_gil) in theirs.items():
            spins = any(line.function.endswith("spin") for line in lines)
            ours = python_lines(dump, tid)
            if spins:
                # Its line changes all the time.
                self.assertEqual([line.function for line in ours], [line.function for line in lines])
                # Others want it only for the moment after a dump's signal. (Debian's 3.11.2: py-spy may see no holder at all.)
                eventually("the thread that spins has the GIL",
                           lambda tid=tid: daemon.dump(victim.pid).threads[tid].get("holdsGil"))
            elif tid in still:
                self.assertEqual(ours, lines, f"thread {tid}")
                self.assertEqual((False, False), (has_gil, dump.threads[tid].get("holdsGil", False)))
            else:
                continue
            compared += 1
            frames += len(ours)
        victim.kill()
        self.say(python, f"{compared} of {len(theirs)} stacks as py-spy has them, {frames} frames")
        self.assertGreaterEqual(compared, 10)
        (runtime,) = dump.resource["runtimes"]
        # Before 3.11 an interpreter tells who asks, and it is not asked.
        known = python.name if python.version >= (3, 11) else python.name.rsplit(".", 1)[0]
        self.assertEqual(runtime["name"], f"CPython {known}")
        self.assertEqual(runtime["language"], "PYTHON")
        self.assertNotIn("problem", runtime)

    @for_each_python
    def test_frames_of_c_and_python_stand_in_the_order_that_pystack_gives(self, python):
        self.need(pythons.PYSTACK)
        daemon = self.the_daemon()
        # pystack fails on other letters with 3.14, and has none before.
        victim = self.start(python, BLOCKED, "ascii")
        dump, still, theirs = self.two_dumps(daemon, victim.pid, lambda: pythons.ask_pystack(victim.pid))
        victim.kill()
        compared = 0
        for tid in still & set(theirs):
            ours = [plain("Python" if is_python(frame) else "C", frame.get("function", ""))
                    for frame in frames_of(dump, tid) if frame.get("origin") != "INLINED"]
            stack = [plain(*frame) for frame in theirs[tid]]
            self.assertEqual([name for kind, name in ours if kind == "Python"],
                             [name for kind, name in stack if kind == "Python"])
            # It leaves out what it takes for the interpreter's own; what both have must come in one order.
            common = set(ours) & set(stack)
            self.assertEqual([frame for frame in ours if frame in common], [frame for frame in stack if frame in common])
            self.assertNotIn(("C", "_PyEval_EvalFrameDefault"), ours)
            compared += any(kind == "C" for kind, _ in common)
        if not any(kind == "C" for stack in theirs.values() for kind, _ in stack):
            self.skipTest(f"pystack gives no C functions of {python}, which has no symbols")
        self.say(python, f"{compared} stacks of both languages in the order that pystack gives")
        self.assertGreaterEqual(compared, 8)

    @for_each_python
    def test_whoever_waits_for_the_gil_is_said_to_wait_for_its_holder(self, python):
        daemon = self.the_daemon()
        victim = self.start(python, BLOCKED, "regex")
        process = daemon.await_process(victim.pid)["name"]

        def waiters():
            dump = daemon.dump(process)
            if not dump.threads[victim.pid].get("holdsGil"):
                return None
            waits = [thread["wait"] for thread in dump.threads.values() if thread.get("wait", {}).get("kind") == "GIL"]
            return (dump, waits) if len(waits) >= 3 else None

        dump, waits = eventually("three threads wait for the GIL", waiters)
        self.assertEqual({wait.get("ownerTid") for wait in waits}, {victim.pid})
        self.assertIn("match", [line.function for line in python_lines(dump, victim.pid)])
        (convoy,) = [finding for finding in dump.resource["findings"] if finding["kind"] == "LOCK_CONVOY"]
        self.assertIn(f"{len(waits)} threads wait for the GIL", convoy["explanation"])
        self.assertIn(convoy["explanation"], daemon.ctl("show", dump.name).out)
        victim.kill()

    @for_each_python
    def test_a_dump_may_be_shown_with_the_functions_of_python_alone(self, python):
        daemon = self.the_daemon()
        victim = self.start(python, BLOCKED, "regex")
        process = daemon.await_process(victim.pid)["name"]
        dump = eventually("it runs the expression", lambda: next(
            (d for d in [daemon.dump(process, "--managed-only")] if "match" in self.python_functions(d, victim.pid)), None))
        frames = dump.frames(victim.pid)
        self.assertEqual({frame["language"] for frame in frames}, {"PYTHON"})
        whole = daemon.ctl_json("export", dump.name, "-f", "json")
        self.assertIn("C_CPP", {frame.get("language") for stack in whole["stacks"] for frame in stack["frames"]})
        victim.kill()

    def python_functions(self, dump, tid):
        return [line.function for line in python_lines(dump, tid)]

    @for_each_python
    def test_an_interpreter_that_was_loaded_late_and_for_one_library_alone_is_found(self, python):
        asked = subprocess.run([python.path, "-c", "import sysconfig as s; "
                                "print(*map(s.get_config_var, ('LIBDIR', 'INSTSONAME', 'prefix')))"],
                               capture_output=True, text=True, check=True)
        folder, name, prefix = asked.stdout.split()
        library = pathlib.Path(folder, name)
        if not library.name.startswith("libpython3.") or not library.exists():
            self.skipTest(f"{python} has no shared library")
        program = self.dir / f"embeds-{python.name}"
        subprocess.run(["gcc", PROGRAMS / "embeds.c", "-ldl", "-o", program], check=True)
        daemon = self.the_daemon()
        victim = self.start_victim(program, library, self.NAP.replace("ready", "set"), stdin="", env={"PYTHONHOME": prefix})
        process = daemon.await_process(victim.pid)["name"]
        self.assertNotIn("runtimes", daemon.dump(process).resource)
        victim.process.stdin.write(b"\n")
        victim.process.stdin.flush()
        victim.read_until("set")
        # An agent looks at what is mapped at most ten times in a second, and did so for the dump before.
        found = eventually("the interpreter is found", lambda: python_lines(daemon.dump(process), victim.pid))
        self.assertEqual([line.function for line in found], ["nap", "<module>"])

    def test_a_version_that_is_not_known_shows_c_functions_and_says_why(self):
        too_new = pythons.too_new()
        if not too_new:
            self.skipTest("no CPython that is newer than stackd knows is here")
        daemon = self.the_daemon()
        for python in too_new:
            with self.subTest(python=str(python)):
                victim = self.start(python, BLOCKED)
                dump = daemon.dump(daemon.await_process(victim.pid)["name"])
                (runtime,) = dump.resource["runtimes"]
                self.assertEqual(runtime["name"], f"CPython {python.name}")
                self.assertIn("C functions alone", runtime["problem"])
                self.assertIn("C functions alone", daemon.ctl("show", dump.name).out)
                self.assertFalse(any(is_python(frame) for tid in dump.threads for frame in dump.frames(tid)))
                self.assertIn("Py_BytesMain", dump.functions(victim.pid))
                self.assertTrue(victim.alive())
                victim.kill()
                self.say(python, "is not known, and the dump says so")

    def test_a_program_that_may_not_read_its_own_memory_has_c_functions_and_says_why(self):
        daemon = self.the_daemon()
        victim = self.start(self.pythons[-1], PROGRAMS / "forbids_reading.py", env={"STACKD_SECCOMP_DUMPS": "1"})
        name = daemon.await_process(victim.pid)["name"]
        dump = daemon.dump(name, "--quiet", "never")
        (runtime,) = dump.resource["runtimes"]
        self.assertIn("seccomp", runtime.get("problem", ""))
        self.assertEqual([], python_lines(dump, victim.pid))
        self.assertIn("Py_BytesMain", dump.functions(victim.pid))
        # The filter is the main thread's alone.
        self.assertTrue(any(python_lines(dump, tid) for tid in dump.threads))
        # Asleep, it is read by a thread that has none.
        self.assertTrue(python_lines(daemon.dump(name), victim.pid))

    def test_values_do_not_leave_the_process(self):
        daemon = self.start_daemon()
        secret = "hunter2-" + "x" * 20
        program = self.dir / "secret.py"
        program.write_text(f"import time\ndef pay(card={secret!r}):\n    name = card * 2\n    print('ready', flush=True)\n"
                           "    time.sleep(1000)  # a comment of the source\npay()\n")
        victim = self.start(self.pythons[-1], program)
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        self.assertIn("pay", [line.function for line in python_lines(dump, victim.pid)])
        # What the agent writes is in the dump, decoded; bytes of memory are not copied (secrets_test).
        for private in (secret, "a comment of the source"):
            self.assertNotIn(private, str(dump.resource))


class TasksTest(PythonTest):
    """asyncio, beside what the program says of its tasks, and from 3.14 on the interpreter's own `python -m asyncio ps`. With each
    version in each tier: each keeps them in another way."""

    def setUp(self):
        super().setUp()
        self.pythons = pythons.found()

    @for_each_python
    def test_tasks_have_the_coroutines_that_the_interpreter_gives_them(self, python):
        daemon = self.the_daemon()
        victim = self.start(python, PROGRAMS / "tasks.py")
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        tasks = {task["name"]: task for task in dump.resource["tasks"]}
        self.assertEqual({"ASYNCIO_TASK"}, {task["kind"] for task in tasks.values()})

        def frames(name):
            return [line_of(frame) for frame in dump.resource["stacks"][tasks[name]["stack"]]["frames"]]

        said = [line.split()[1:] for line in victim.output.decode().splitlines() if line.startswith("task ")]
        self.assertEqual({name: theirs for name, *theirs in said},
                         {name: [f"{line.function}:{line.line}" for line in frames(name)] for name in tasks})
        if python.version >= (3, 14):
            self.check_beside_ps(python, victim, {name: [line.function for line in frames(name)] for name in tasks})
        self.assertEqual("awaits task order-2", tasks["waits"].get("waitReason"))
        self.assertEqual({"waiting"}, {task["state"] for task in tasks.values()})
        groups = [group for group in dump.resource["groups"] if int(group.get("taskCount", 0)) == 3]
        self.assertEqual(["fetch", "order"], [frame["function"] for frame in groups[0]["stack"]["frames"]])
        self.assertRegex(daemon.ctl("show", dump.name).out,
                         r"3 asyncio tasks\n  named order-\d, order-\d, order-\d\n  awaits a future\n")
        self.say(python, f"{len(tasks)} asyncio tasks as the interpreter has them")
        victim.kill()

    def check_beside_ps(self, python, victim, ours):
        asked = subprocess.run([python.path, "-m", "asyncio", "ps", str(victim.pid)], capture_output=True,
                               text=True)
        self.assertEqual(0, asked.returncode, asked.stderr)
        theirs = {}
        for line in asked.stdout.splitlines():
            if row := re.match(r"\d+ +0x[0-9a-f]+ +(\S+) +(.+?)(  |$)", line):
                theirs[row[1]] = row[2].strip().split(" -> ")
        # It does not follow generators.
        self.assertEqual(theirs.pop("generator"), ours.pop("generator")[-1:])
        self.assertEqual(theirs, ours)


class TasksChurnTest(PythonTest):

    @for_each_python
    def test_no_coroutine_is_another_tasks_while_they_come_and_go(self, python):
        daemon = self.the_daemon()
        victim = self.start(python, PROGRAMS / "tasks_churn.py")
        process = daemon.await_process(victim.pid)["name"]
        dumps = stacks = 0
        until = time.monotonic() + tier.CHURN_S
        while time.monotonic() < until:
            next_s = time.monotonic() + 0.1
            dump = daemon.dump(process)
            dumps += 1
            for task in dump.resource.get("tasks", []):
                if "stack" not in task or task["name"] == "main":
                    continue
                functions = [frame["function"] for frame in dump.resource["stacks"][task["stack"]]["frames"]]
                own = {function for function in functions if function not in ("sleep", "__sleep0")}
                self.assertLessEqual(own, {task["name"], f"{task['name']}_inside", f"{task['name']}_deep"}, functions)
                self.assertEqual(task["name"], functions[-1])
                stacks += 1
            time.sleep(max(0, next_s - time.monotonic()))
        self.assertTrue(victim.alive())
        self.assertGreater(stacks, dumps)
        self.say(python, f"{stacks} stacks of tasks in {dumps} dumps, while tasks come and go, none of another")


class LayoutTest(PythonTest):
    """The agent's table of offsets against the headers of each version that is here with headers."""

    def table(self):
        """{version: {field: value}} of agent/runtimes/cpython/cpython_layout.c."""
        text = (ROOT / "agent/runtimes/cpython/cpython_layout.c").read_text()
        tables = {}
        for body in re.findall(r"\{\s*\.version = (.*?)\n    \}", text, re.S):
            fields = dict(re.findall(r"\.(\w+) = (\d+),", ".version = " + body))
            tables[int(body.split(",")[0], 16)] = {name: int(value) for name, value in fields.items() if name != "version"}
        names = re.findall(r"uint16_t (.*?);", re.search(r"struct places \{(.*?)\n\};", text, re.S)[1], re.S)
        fields = [name.strip() for line in names for name in line.split(",") if name.strip() != "version"]
        for row in re.findall(r"\{(0x30[d-f], [^}]+)\}", text):
            version, *places = [int(word, 0) for word in row.split(",")]
            tables[version] = dict(zip(fields, places, strict=True))
        return tables

    def objects(self, version):
        """{field: value} of daemon/managed/cpython, where CPython does not publish it."""
        objects = (ROOT / "daemon/managed/cpython/cpython_objects.cc").read_text()
        names = re.findall(r"uint16_t (.*?);", re.search(r"struct OlderLayout \{(.*?)\n\};", objects, re.S)[1])
        rows = re.findall(r"\{(\d[^}]+)\}", re.search(r"kOlder = (.*?)\}\);", objects, re.S)[1])
        modules = re.search(r"kModules = \{(.*?)\}", (ROOT / "daemon/managed/cpython/task_finder.cc").read_text())[1].split(",")
        self.assertEqual((6, 6), (len(rows), len(modules)))
        if version >= 0x30e:
            return {}
        values = map(int, rows[version - 0x308].split(","))
        return dict(zip(", ".join(names).split(", "), values, strict=True), modules=int(modules[version - 0x308]))

    @for_each_python
    def test_offsets_are_those_of_the_headers(self, python):
        tables = self.table()
        self.assertEqual(sorted(tables), list(range(0x308, 0x30f)))
        asked = subprocess.run([python.path, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"],
                               capture_output=True, text=True, check=True)
        include = pathlib.Path(asked.stdout.strip())
        if not (include / "internal").exists():
            self.skipTest(f"{python} has no headers")
        program = self.dir / f"layout-{python.name}"
        folders = [f"-I{folder}" for folder in (include, include / "internal", include.parent)]
        built = subprocess.run(["gcc", "-w", *folders, PROGRAMS / "layout.c", "-o", program], capture_output=True,
                               text=True)
        self.assertEqual(built.returncode, 0, built.stderr)
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        theirs = {name: int(value) for name, value in map(str.split, printed.splitlines())}
        version = python.version[0] << 8 | python.version[1]
        of_objects = {name: theirs.pop(name) for name in list(theirs) if name.startswith("objects.")}
        objects = self.objects(version)
        self.assertEqual({f"objects.{name}": value for name, value in objects.items() if value},
                         {name: value for name, value in of_objects.items() if value})
        ours = tables[version]
        self.assertGreater(len(theirs), 20)
        # A field that is 0 may be left out of ours.
        self.assertEqual({name: ours.get(name, 0) for name in theirs}, theirs)


class CrashTest(PythonTest):

    def die(self, python, way, *options, **env):
        daemon = self.start_daemon(directory=self.dir / f"{python.name}-{way}")
        ending = run_to_end([python.path, *options, DIES, way], daemon.dir / "cwd", environment(daemon.dir, **env))
        dump = crash_of(daemon, ending.pid)
        daemon.kill()
        return ending, dump

    def start_daemon(self, directory=None, **kwargs):
        if directory is not None:
            directory.mkdir()
        return super().start_daemon(directory, **kwargs)

    def functions_of_crash(self, dump):
        return [line.function for line in python_lines(dump, dump.resource["crash"]["tid"])]

    @for_each_python
    def test_a_crash_in_c_code_has_the_python_functions_that_called_it(self, python):
        for way, outermost in (("segv", "<module>"), ("segv_in_thread", "_bootstrap")):
            ending, dump = self.die(python, way)
            self.assertEqual(ending.manner.split(",")[0], "killed by SIGSEGV")
            functions = [name.rsplit(".", 1)[-1] for name in self.functions_of_crash(dump)]
            self.assertEqual(functions[:3], ["string_at", "read_at_null", "pay"])
            self.assertEqual(functions[-1], outermost)
            self.assertTrue(any(line.function == "bystander" for tid in dump.threads for line in python_lines(dump, tid)))

    @for_each_python
    def test_the_runtimes_own_end_has_its_stack(self, python):
        for way in ("abort", "fatal"):
            ending, dump = self.die(python, way)
            self.assertEqual(ending.manner.split(",")[0], "killed by SIGABRT")
            functions = self.functions_of_crash(dump)
            self.assertEqual(functions[-1], "<module>")
            if way == "fatal":
                self.assertEqual(functions[0], "fatal")
                self.assertIn(b"Fatal Python error", ending.err)

    @for_each_python
    def test_an_overflow_of_the_c_stack_has_the_function_that_recursed(self, python):
        if python.version >= (3, 14):
            daemon = self.start_daemon(directory=self.dir / f"{python.name}-overflow")
            ending = run_to_end([python.path, DIES, "overflow"], daemon.dir / "cwd", environment(daemon.dir))
            alone = run_to_end([python.path, DIES, "overflow"], self.dir / f"alone-{python.name}", environment())
            self.assertEqual((alone.manner, alone.out, alone.err), (ending.manner, ending.out, ending.err))
            self.assertEqual("exit code 0", ending.manner)
            self.assertEqual([], daemon.ctl_json("list").get("dumps", []))
            daemon.kill()
            return
        ending, dump = self.die(python, "overflow")
        self.assertEqual(ending.manner.split(",")[0], "killed by SIGSEGV")
        functions = {name.rsplit(".", 1)[-1] for name in self.functions_of_crash(dump)}
        self.assertTrue(functions & {"recurse", "deeper"}, functions)

    @for_each_python
    def test_faulthandler_says_what_it_says_without_the_agent(self, python):
        command = [python.path, "-X", "faulthandler", DIES, "segv"]
        alone = run_to_end(command, self.dir / f"alone-{python.name}", environment())
        ending, dump = self.die(python, "segv", "-X", "faulthandler")
        self.assertEqual(ending.manner.split(",")[0], alone.manner.split(",")[0])

        def plain(text):
            # From 3.14 on it shows C functions, with their addresses: among these the agent that called it.
            return [re.sub(r" \[0x[0-9a-f]+\]$", "", line) for line in text.decode().splitlines()
                    if not line.startswith(("Thread 0x", "Current thread")) and AGENT.name not in line]

        self.assertIn(b"Fatal Python error: Segmentation fault", ending.err)
        self.assertEqual(plain(ending.err), plain(alone.err))
        self.assertEqual(self.functions_of_crash(dump)[0], "string_at")


class CollectionTest(PythonTest):
    """The collector has C functions between Python's, and moves objects' counts and marks while it looks at them."""

    COLLECTS = PROGRAMS / "collects.py"
    # From <module> on.
    STACKS = (("gather", "__init__"), ("gather", "__del__", *4 * ("deeper",)), ("gather", "forgotten", *4 * ("deeper",)))
    # Static functions of gcmodule.c, later gc.c, by what the compiler left of them.
    COLLECTOR = ("collect", "gc_collect", "gc_select_generation")

    @for_each_python
    def test_a_dump_in_a_collection_has_the_frames_around_it(self, python):
        texts = self.COLLECTS.read_text().splitlines()
        line = 1 + texts.index("    gc.collect()  # the collection")
        daemon = self.the_daemon()
        victim = self.start(python, self.COLLECTS)
        maps = pathlib.Path(f"/proc/{victim.pid}/maps").read_text()
        files = set(re.findall(r"/\S*/(?:libpython|python)3\.\S*", maps))
        symbols = subprocess.run(["nm", *files], capture_output=True, text=True).stdout
        has_names = any(name in symbols for name in (" t collect", " t gc_collect"))
        process = daemon.await_process(victim.pid)["name"]
        seen = {"collector": 0, "__del__": 0, "forgotten": 0}

        def look():
            dump = daemon.dump(process)
            frames = frames_of(dump, victim.pid)
            # From 3.13 on a constructor has a frame of the interpreter's own around it, which has no line.
            lines = [line_of(frame) for frame in reversed(frames) if is_python(frame) and frame.get("line")]
            names = [each.function.rsplit(".", 1)[-1] for each in lines]
            self.assertEqual("<module>", names[0])
            self.assertTrue(any(tuple(names[1:]) == stack[:len(names) - 1] for stack in self.STACKS), names)
            if len(lines) < 2 or lines[1].line != line:
                return False
            gather = next(at for at, frame in enumerate(frames) if frame.get("function") == "gather")
            inner = [at for at, frame in enumerate(frames[:gather]) if is_python(frame)]
            between = [frame.get("function", "") for frame in frames[inner[-1] + 1 if inner else 0:gather]]
            if between:
                self.assertTrue(not has_names or any(name.startswith(self.COLLECTOR) for name in between), between)
                seen[names[2] if len(names) > 2 else "collector"] += 1
            return all(seen.values())

        eventually(f"dumps in collections: {seen}", look)
        self.assertTrue(victim.alive())
        victim.kill()
        self.say(python, f"dumps in collections: {seen}, {'with' if has_names else 'without'} names of C functions")


class UnhandledTest(PythonTest):
    """Unhandled exceptions, which a program may have dumped."""

    def setUp(self):
        super().setUp()
        self.packages = self.dir / "packages"
        shutil.copytree(ROOT / "agent/python/stackd", self.packages / "stackd")
        self.runs = 0

    def end(self, python, *arguments, env=None):
        self.runs += 1
        env = environment(self.dir) if env is None else env
        return run_to_end([python.path, RAISES, *arguments], self.dir / f"run{self.runs}",
                          {**env, "PYTHONPATH": str(self.packages)})

    @for_each_python
    def test_they_are_crashes_with_the_functions_that_they_went_through_and_without_their_message(self, python):
        daemon = self.the_daemon()
        fingerprints = []
        for way, kind, functions in (("raise", "ValueError", ["pay", "sell", "<module>"]), ("raise", "ValueError", []),
                                     ("thread", "ValueError", ["pay", "sell", "run", "_bootstrap_inner"]),
                                     ("memory", "MemoryError", ["fill", "run_out_of_memory", "<module>"])):
            ending = self.end(python, way, "dump")
            self.assertEqual(ending.manner, "exit code 0" if way == "thread" else "exit code 1", ending.err)
            self.assertIn(kind.encode(), ending.err)
            dump = crash_of(daemon, ending.pid)
            crash = dump.resource["crash"]
            self.assertEqual(("UNCAUGHT_EXCEPTION", kind), (crash["cause"], crash["exceptionType"]))
            self.assertRegex(crash["explanation"], f"^unhandled {kind} in thread [^ ]+")
            self.assertEqual(way == "thread", crash["tid"] != ending.pid)
            lines = python_lines(dump, crash["tid"])
            names = [line.function.rsplit(".", 1)[-1] for line in lines]
            at = names.index(f"unhandled {kind}") + 1
            self.assertEqual(functions, names[at:at + len(functions)])
            if way != "memory":
                self.assertEqual(pythons.Line(lines[at].function, "raises.py", 25), lines[at])
            self.assertNotIn("Mallory", str(dump.resource))
            self.assertIn(f"crashed: unhandled {kind}", daemon.ctl("show", dump.name).out)
            self.assertIn(f"unhandled {kind}", daemon.ctl("list", "--crashes").out)
            fingerprints.append(crash["fingerprint"])
        self.assertEqual(fingerprints[0], fingerprints[1], "the same again is of one group")
        self.assertEqual(3, len(set(fingerprints)))
        self.say(python, "unhandled exceptions are crashes")

    @for_each_python
    def test_an_end_that_was_asked_for_is_none(self, python):
        daemon = self.the_daemon()
        for way in ("exit", "interrupt"):
            alone = self.end(python, way, env=environment())
            ending = self.end(python, way, "dump")
            self.assertEqual((alone.manner, alone.out, alone.err), (ending.manner, ending.out, ending.err))
            self.assertEqual([], [dump for dump in daemon.ctl_json("list").get("dumps", [])
                                  if dump["process"]["pid"] == ending.pid])

    @for_each_python
    def test_a_program_that_does_not_ask_for_them_has_none_and_ends_as_without_the_agent(self, python):
        daemon = self.the_daemon()
        for way in ("raise", "memory"):
            alone = self.end(python, way, env=environment())
            ending = self.end(python, way)
            self.assertEqual((alone.manner, alone.out, alone.err), (ending.manner, ending.out, ending.err))
            self.assertIn(b"Error", ending.err)
            self.assertEqual([], [dump for dump in daemon.ctl_json("list").get("dumps", [])
                                  if dump["process"]["pid"] == ending.pid])

    def test_the_program_for_dumps_is_run(self):
        told = self.dir / "told"
        program = self.dir / "on-dump"
        program.write_text(f"#!/bin/sh\necho $STACKD_TRIGGER > {told}.new && mv {told}.new {told}\n")
        program.chmod(0o700)
        self.start_daemon(extra_args=["--on-dump", program])
        self.end(self.pythons[-1], "raise", "dump")
        eventually("the program has run", told.exists)
        self.assertEqual("CRASH\n", told.read_text())


class HarmlessTest(PythonTest):
    limit_s = 600 + 20 * tier.CHURN_S  # for each Python that is here

    @for_each_python
    def test_dumps_under_churn_are_whole_and_change_nothing(self, python):
        """While code, threads, frames and garbage come and go: no frame that cannot be, and every result right."""
        known = {"recurse", "make_code", "make_garbage", "sort_with_callbacks", "make_threads", "main", "<module>",
                 "<listcomp>", "<genexpr>", "<lambda>"}
        known |= {f"made_{number}" for number in range(50)}
        daemon = self.the_daemon()
        victim = self.start(python, PROGRAMS / "churn.py", stdin="")
        process = daemon.await_process(victim.pid)["name"]
        stacks = odd_roots = 0
        strange = set()

        def look():
            nonlocal stacks, odd_roots
            dump = daemon.dump(process)
            self.assertFalse([runtime for runtime in dump.resource.get("runtimes", []) if runtime.get("problem")])
            for tid in dump.threads:
                lines = python_lines(dump, tid)
                if not lines:
                    continue
                stacks += 1
                odd_roots += lines[-1].function.rsplit(".", 1)[-1] not in ("<module>", "_bootstrap", "_shutdown")
                strange.update(line.function for line in lines if line.file == "churn.py" and
                               line.function.rsplit(".", 1)[-1] not in known)
            return False

        until = time.monotonic() + tier.CHURN_S
        while time.monotonic() < until:
            next_s = time.monotonic() + 0.1
            look()
            time.sleep(max(0, next_s - time.monotonic()))
        victim.process.stdin.close()
        victim.read_until("well")
        self.assertEqual(victim.process.wait(60), 0)
        self.say(python, f"{stacks} stacks under churn, all whole")
        self.assertFalse(strange)
        self.assertEqual(odd_roots, 0)
        self.assertGreater(stacks, 10)


@pytest.mark.thorough
class OwnTestsTest(PythonTest):
    """CPython's own tests of what the agent has a hand in, where they are installed."""

    MODULES = ("test_thread", "test_threadsignals", "test_signal", "test_subprocess")
    # They take half a minute each by sleeping, or need a machine that is idle.
    LEFT_OUT = ("*stress*", "*itimer*", "*test_siginterrupt_off*", "*ProcessTestCaseNoPoll*", "*test_communicate_pipe_buf*")

    def run_them(self, python, name, env):
        """How many ran, and the names of those that failed."""
        folder = self.dir / name
        folder.mkdir()
        options = [word for pattern in self.LEFT_OUT for word in ("-i", pattern)]
        subprocess.run([python.path, "-m", "test", "-q", "--junit-xml", folder / "results.xml", *self.MODULES, *options],
                       cwd=folder, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=280)
        cases = list(ElementTree.parse(folder / "results.xml").iter("testcase"))
        ran = [case for case in cases if case.find("skipped") is None]
        return len(ran), {case.get("name") for case in ran
                          if case.find("failure") is not None or case.find("error") is not None}

    def test_they_end_under_the_agent_as_they_do_without(self):
        having = [python for python in self.pythons if subprocess.run(
            [python.path, "-c", "import test.test_subprocess"], capture_output=True).returncode == 0]
        if not having:
            self.skipTest("no CPython with its own tests is here: deploy/install-deps.sh --tests installs Debian's")
        self.the_daemon()
        chosen = having if tier.FULL else having[-1:]
        for python in chosen:
            with self.subTest(python=str(python)):
                env = {"LD_PRELOAD": str(AGENT), "STACKD_DIR": str(self.dir)}
                count, failed = self.run_them(python, f"with-{python.name}", env)
                if failed:
                    _, failed_alone = self.run_them(python, f"alone-{python.name}", {})
                    self.assertEqual(set(), failed - failed_alone)
                self.say(python, f"{count} of its own tests end as without the agent, {len(failed)} of them failing")
                self.assertGreater(count, 150)


class PackageTest(PythonTest):
    """agent/python: what pip installs."""

    def install(self, python):
        wheels = self.dir / "wheels"
        wheels.mkdir(exist_ok=True)
        subprocess.run([sys.executable, ROOT / "agent/python/build_wheel.py", wheels], check=True, capture_output=True,
                       env={**os.environ, "STACKD_AGENT_LIBRARY": str(AGENT)})
        folder = self.dir / f"venv-{python.name}"
        # With its own pip, which comes with it: that of another version need not know it.
        made = subprocess.run([python.path, "-m", "venv", folder], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest(f"{python} cannot make a virtual environment: {made.stdout}{made.stderr}")
        (wheel,) = wheels.glob("*.whl")
        installed = subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", wheel],
                                   capture_output=True, text=True)
        self.assertEqual(installed.returncode, 0, installed.stderr)
        return pythons.Python(str(folder / "bin/python"), python.version)

    def understood(self, daemon, name):
        """The text of a dump; it is stored before it is unwound."""

        def text():
            out = daemon.ctl("export", name, "-f", "text").out
            return None if "not unwound yet" in out else out

        return eventually("the dump is unwound", text)

    def test_every_python_of_an_environment_with_the_wheel_can_be_dumped(self):
        daemon = self.start_daemon()
        for python in (self.pythons[0], self.pythons[-1]):
            with self.subTest(python=str(python)):
                installed = self.install(python)
                victim = self.start(installed, "-c", self.NAP, preload=False)
                dump = daemon.dump(daemon.await_process(victim.pid)["name"])
                self.assertEqual([line.function for line in python_lines(dump, victim.pid)], ["nap", "<module>"])
                victim.kill()
                off = self.start(installed, "-c", "print(open('/proc/self/maps').read()); print('ready', flush=True)",
                                 preload=False, env={"STACKD_DISABLE": "1"})
                self.assertNotIn(b"libstackd_agent", off.output)

    def test_a_name_that_is_given_while_the_process_is_being_registered_is_its_name(self):
        daemon = self.start_daemon()
        folder = self.dir / "packages"
        shutil.copytree(ROOT / "agent/python/stackd", folder / "stackd")
        shutil.copy(AGENT, folder / "stackd")
        program = ("import time, stackd; stackd.install(); print('ready', flush=True); input()\n"
                   "stackd.name_process('billing'); print('named', flush=True); time.sleep(999)")
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            victim = self.start(self.pythons[-1], "-c", program, preload=False, stdin="", env={"PYTHONPATH": str(folder)})
            ppoll = "271"
            eventually("the agent waits for the daemon's answer", lambda: [
                pathlib.Path(f"/proc/{victim.pid}/task/{tid}/syscall").read_text().split()[0]
                for tid, name in thread_names(victim.pid).items() if name == "stackd-agent"] == [ppoll])
            self.assertEqual(victim.ask(""), "named")
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        eventually("its name", lambda: daemon.await_process(victim.pid)["displayName"] == "billing", limit_s=10)

    def test_an_event_loop_that_stands_still_is_a_hang(self):
        daemon = self.start_daemon()
        installed = self.install(self.pythons[-1])
        program = self.dir / "loop.py"
        program.write_text("import asyncio, stackd, time\n"
                           "def blocks():\n    time.sleep(999)\n"
                           "async def main():\n    stackd.watch_asyncio(name='main loop', limit=0.2)\n"
                           "    await asyncio.sleep(0.5)\n    print('ready', flush=True)\n    blocks()\n"
                           "asyncio.run(main())\n")
        victim = self.start(installed, program, preload=False)

        def hang():
            reply = daemon.ctl_json("list")
            return [dump for dump in reply.get("dumps", []) if dump.get("trigger") == "HANG"]

        found = eventually("the loop's silence is a hang", hang)
        self.assertEqual(found[-1]["hang"]["heartbeat"], "main loop")
        self.assertIn("blocks", self.understood(daemon, found[-1]["name"]))
        self.assertTrue(victim.alive())

    def test_equal_inputs_give_equal_wheels(self):
        made = []
        for name in ("one", "two"):
            folder = self.dir / name
            folder.mkdir()
            subprocess.run([sys.executable, ROOT / "agent/python/build_wheel.py", folder], check=True, capture_output=True,
                           env={**os.environ, "STACKD_AGENT_LIBRARY": str(AGENT)})
            (wheel,) = folder.glob("*.whl")
            self.assertIsNone(zipfile.ZipFile(wheel).testzip())
            made.append(wheel.read_bytes())
        self.assertEqual(*made)


if __name__ == "__main__":
    unittest.main()
