"""Exports for viewers of profiles: `go tool pprof` and speedscope open them, and count what the dump has.

    export_formats: cpp_calls      12 threads,   0 tasks,  80 frames as in the dump
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import go_programs
import pprof_tool
import pythons
from harness import OK, PROGRAMS, ROOT, StackdTest

# Where deploy/install-deps.sh --tests puts the page and what drives a browser.
SPEEDSCOPE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/speedscope/node_modules"
SCHEMA = SPEEDSCOPE / "speedscope/dist/release/file-format-schema.json"
OPENS = ROOT / "tests/e2e/speedscope_opens.mjs"
PYTHON_TASKS = ROOT / "tests/languages/python/tasks.py"


def prepare():
    for toolchain, _ in go_programs.toolchains()[-1:]:
        go_programs.kept(toolchain, "states")


PREPARE = [prepare]


def name_of(frame):
    """As folded stacks have it, but for what it does to semicolons."""
    if frame.get("function"):
        return frame["function"]
    return frame["module"] + (f"+{frame['moduleOffset']}" if frame.get("moduleOffset") else "")


def threads_of(dump):
    """{tid: thread}, without the agent's own."""
    return {tid: thread for tid, thread in dump.threads.items() if not thread.get("isAgent")}


def folded_counts(text):
    """{"thread;outermost;…;innermost": threads}"""
    counts = collections.Counter()
    for line in text.splitlines():
        stack, count = line.rsplit(" ", 1)
        counts[stack.partition(";")[2]] += int(count)
    return counts


def joined(root, names):
    """`names`: outermost first."""
    return ";".join(name.replace(";", ":") for name in [root, *names])


class ExportFormatsTest(StackdTest):

    def exported(self, daemon, dump, name):
        file = self.dir / f"exported-{name}"
        outcome = daemon.ctl("export", dump.name, "-f", name, "--to", file)
        self.assertEqual(OK, outcome.code, outcome.err)
        return file

    def dumped(self, program, *args, **kwargs):
        """(daemon, a dump of the program)"""
        daemon = self.start_daemon()
        victim = self.start_victim(program, *args, **kwargs)
        daemon.await_process(victim.pid)
        return daemon, daemon.dump(victim.pid)

    def dumped_go(self):
        if not go_programs.toolchains():
            self.skipTest("no Go of 1.21 to 1.26 is here, and no registry of Go modules")
        toolchain, _ = go_programs.toolchains()[-1]
        return self.dumped(go_programs.kept(toolchain, "states"), preload=False, stdin="")

    def dumped_python(self):
        if not pythons.found():
            self.skipTest("no CPython of 3.8 to 3.14 is here")
        return self.dumped(pythons.found()[-1].path, PYTHON_TASKS)

    def say(self, dump, frames):
        program = dump.resource["process"]["displayName"]
        tasks = dump.resource.get("taskCount", 0)
        print(f"export_formats: {program:<14} {len(threads_of(dump)):>3} threads, {tasks:>3} tasks, {frames:>4} frames as in "
              "the dump", file=sys.stderr, flush=True)


@unittest.skipUnless(pprof_tool.available(), "there is no go tool pprof")
class PprofTest(ExportFormatsTest):

    def check_threads(self, dump, raw):
        """Returns how many frames were compared."""
        self.assertEqual(set(threads_of(dump)), set(raw.threads()))
        compared = 0
        for tid, sample in raw.threads().items():
            thread = dump.threads[tid]
            expected = [pprof_tool.Line(name_of(frame), frame.get("file", ""), frame.get("line", 0)) for frame in dump.frames(tid)]
            self.assertEqual(1, sample.value)
            self.assertEqual(expected, sample.lines, f"thread {tid}")
            wait = {"wait": thread["wait"]["kind"]} if "wait" in thread else {}
            labels = {"thread": thread["name"], "tid": str(tid), "state": thread["state"],
                      "process": dump.resource["process"]["displayName"], **wait}
            self.assertEqual(labels, {key: value for key, value in sample.labels.items() if key != "language"})
            compared += len(expected)
        return compared

    def check_locations(self, dump, raw):
        """Each native place is in the module that the dump names, at an address of the dump's."""
        modules = {int(module["address"], 16): module for module in dump.modules}
        for mapping in raw.mappings.values():
            module = modules.pop(mapping.start)
            self.assertEqual((module["path"], module.get("buildId", "")), (mapping.path, mapping.build_id))
        self.assertFalse(modules, "modules that the file does not have")
        frames = {(int(frame["address"], 16), name_of(frame)): frame for tid in threads_of(dump) for frame in dump.frames(tid)
                  if frame["origin"] not in ("RUNTIME", "RUNTIME_UNPLACED")}
        inlined = 0
        for location in raw.locations.values():
            if location.address == 0:
                continue
            function = location.lines[-1].function
            frame = frames.get((location.address, function)) or frames[location.address + 1, function]
            self.assertEqual(frame["module"], os.path.basename(raw.mappings[location.mapping].path), f"{location}")
            inlined += len(location.lines) - 1
        return inlined

    def check_counts(self, daemon, dump, file, raw):
        """The numbers of the text, of folded stacks and of pprof's reports are the same."""
        folded = folded_counts(daemon.ctl("export", dump.name, "-f", "folded").out)
        stacks = collections.Counter(joined(sample.labels["thread"], [line.function for line in reversed(sample.lines)])
                                     for sample in raw.threads().values())
        self.assertEqual(folded, stacks)
        text = daemon.ctl("export", dump.name, "-f", "text").out
        self.assertEqual(int(re.search(r"(\d+) threads?, all captured", text)[1]), len(raw.threads()))
        for note in dump.notes:
            self.assertTrue(any(note in comment for comment in raw.comments), note)

        flat, cumulative = pprof_tool.top(file, "-tagfocus=thread")
        self.assertEqual(sum(folded.values()), sum(flat.values()))
        self.assertEqual(collections.Counter(sample.lines[0].function for sample in raw.threads().values()), flat)
        self.assertEqual(collections.Counter(name for sample in raw.threads().values()
                                             for name in {line.function for line in sample.lines}), cumulative)
        traces = pprof_tool.ask("-traces", file)
        self.assertEqual(len(raw.samples), len(re.findall(r"^ *process:", traces, re.MULTILINE)))

    def check(self, daemon, dump):
        file = self.exported(daemon, dump, "pprof")
        raw = pprof_tool.Raw(file)
        self.assertEqual("threads/count", raw.type)
        compared = self.check_threads(dump, raw)
        inlined = self.check_locations(dump, raw)
        self.check_counts(daemon, dump, file, raw)
        self.say(dump, compared)
        return file, raw, inlined

    def test_threads_of_cpp_with_what_is_inlined(self):
        _, _, inlined = self.check(*self.dumped("cpp_calls"))
        self.assertGreater(inlined, 5)

    def test_equal_threads_are_counted(self):
        file, raw, _ = self.check(*self.dumped("waiting_threads", 40))
        self.assertEqual(41, len(raw.threads()))
        self.assertEqual(40, pprof_tool.top(file)[1]["wait_for_work"])

    def test_a_deadlock_is_found_by_its_labels(self):
        daemon, dump = self.dumped("demo_orders")
        file, raw, _ = self.check(daemon, dump)
        waits = collections.Counter(thread["wait"]["kind"] for thread in threads_of(dump).values() if "wait" in thread)
        self.assertGreaterEqual(waits["MUTEX"], 2)
        for kind, count in waits.items():
            self.assertEqual(count, sum(pprof_tool.top(file, f"-tagfocus=wait=^{kind}$")[0].values()), kind)
        idle = [thread for thread in threads_of(dump).values() if thread["name"].startswith("idle-")]
        self.assertEqual(len(idle), sum(pprof_tool.top(file, "-tagfocus=thread=^idle-")[0].values()))
        self.assertEqual(1, sum(pprof_tool.top(file, f"-tagfocus=tid={idle[0]['tid']}")[0].values()))
        self.assertTrue(any(comment.startswith("HANG: ") for comment in raw.comments), raw.comments)

    def test_goroutines_are_samples_of_their_own(self):
        daemon, dump = self.dumped_go()
        file, raw, _ = self.check(daemon, dump)
        expected = {task["id"]: task for task in dump.resource["tasks"]}
        self.assertGreater(len(expected), 15)
        self.assertEqual(set(expected), {sample.labels["task_id"] for sample in raw.tasks()})
        for sample in raw.tasks():
            task = expected[sample.labels["task_id"]]
            frames = dump.stacks[task["stack"]]["frames"] if "stack" in task else []
            if frames:
                self.assertEqual([name_of(frame) for frame in frames], [line.function for line in sample.lines])
            self.assertEqual(task.get("waitReason", ""), sample.labels.get("wait", ""))
        self.assertEqual(len(expected), sum(pprof_tool.top(file, "-tagfocus=task=^goroutine$")[0].values()))
        receiving = [task for task in expected.values() if task.get("waitReason") == "chan receive"]
        self.assertEqual(len(receiving), sum(pprof_tool.top(file, "-tagfocus=wait=^chan.receive$")[0].values()))

    def test_tasks_and_functions_of_python(self):
        daemon, dump = self.dumped_python()
        file, raw, _ = self.check(daemon, dump)
        names = {sample.labels["task_name"] for sample in raw.tasks() if sample.labels["task"] == "asyncio task"}
        self.assertLessEqual({"order-0", "order-1", "order-2", "waits"}, names)
        main, = [sample for sample in raw.threads().values() if sample.labels.get("language") == "Python"]
        managed = [frame for frame in dump.frames(int(main.labels["tid"])) if frame.get("language") == "PYTHON"]
        self.assertGreater(len(managed), 3)
        self.assertEqual(3, pprof_tool.top(file, "-tagfocus=task_name=^order-")[1]["fetch"])


class SpeedscopeTest(ExportFormatsTest):

    def counts(self, profile, frames):
        self.assertEqual(sum(profile["weights"]), profile["endValue"])
        counts = collections.Counter()
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            counts[joined(frames[stack[0]]["name"], [frames[frame]["name"] for frame in stack[1:]])] += weight
        return counts

    def check(self, daemon, dump):
        path = self.exported(daemon, dump, "speedscope")
        file = json.loads(path.read_text())
        self.validate(file)
        self.assertEqual(daemon.ctl("--version").out.split()[1], file["exporter"].split()[1])
        frames = file["shared"]["frames"]
        folded = folded_counts(daemon.ctl("export", dump.name, "-f", "folded").out)
        self.assertEqual(folded, self.counts(file["profiles"][0], frames))
        self.assertEqual(len(threads_of(dump)), file["profiles"][0]["endValue"])
        tasks = int(dump.resource.get("taskCount", 0))
        self.assertEqual(tasks, sum(self.counts(file["profiles"][1], frames).values()) if tasks else 0)
        self.assertEqual(1 + bool(tasks), len(file["profiles"]))
        self.say(dump, sum(len(stack) for profile in file["profiles"] for stack in profile["samples"]))
        return path

    def validate(self, file):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("no python3-jsonschema: deploy/install-deps.sh --tests installs it")
        if not SCHEMA.exists():
            self.skipTest("no speedscope: deploy/install-deps.sh --tests installs it where there is npm")
        jsonschema.validate(file, json.loads(SCHEMA.read_text()))

    def opened(self, path):
        """What speedscope's page shows of the file: its title, and {function: threads that are in it or in what it calls}."""
        if not shutil.which("chromium") or not shutil.which("node"):
            self.skipTest("no chromium or no node")
        done = subprocess.run(["node", OPENS, SPEEDSCOPE, path], capture_output=True, text=True, check=False, timeout=200)
        self.assertEqual(0, done.returncode, done.stderr)
        shown = json.loads(done.stdout)
        self.assertEqual([], shown["errors"])
        # A frame has a row: a function one for each line that threads are at.
        totals = collections.Counter()
        for row in shown["rows"]:
            found = re.fullmatch(r"\s*([\d,]+) \(.*?\)\s+[\d,]+ \(.*?\)\s+(.*?)\s*", row, re.DOTALL)
            if found:
                totals[found[2]] += int(found[1].replace(",", ""))
        return shown["title"], totals

    def test_threads_of_cpp_with_what_is_inlined(self):
        self.check(*self.dumped("cpp_calls"))

    def test_equal_threads_are_counted(self):
        path = self.check(*self.dumped("waiting_threads", 40))
        self.assertEqual({1, 40}, set(json.loads(path.read_text())["profiles"][0]["weights"]))

    def test_goroutines(self):
        self.check(*self.dumped_go())

    def test_tasks_of_python(self):
        self.check(*self.dumped_python())

    def test_its_page_shows_the_threads_of_a_deadlock(self):
        daemon, dump = self.dumped("demo_orders")
        path = self.check(daemon, dump)
        title, totals = self.opened(path)
        self.assertIn(f"demo_orders (pid {dump.resource['process']['pid']})", title)
        file = json.loads(path.read_text())
        threads = file["profiles"][0]
        expected = collections.Counter()
        for stack, weight in zip(threads["samples"], threads["weights"], strict=True):
            for frame in set(stack):
                expected[file["shared"]["frames"][frame]["name"]] += weight
        self.assertGreater(len(expected), 20)
        self.assertEqual(expected, totals)

    def test_its_page_shows_names_that_are_meant_to_do_harm(self):
        # Neither slash nor space, which would end the name.
        program = self.dir / '<img\x0csrc=x\x0conerror=alert(1)>"\u202e'
        shutil.copy(PROGRAMS / "two_locks", program)
        daemon, dump = self.dumped(program)
        path = self.check(daemon, dump)
        self.assertIn("\u202e", dump.resource["process"]["displayName"])
        self.assertNotIn("<", path.read_text())
        title, _ = self.opened(path)
        self.assertIn(r'<img\x0csrc=x\x0conerror=alert(1)>"\u{202e}', title)
