"""Node.js: functions of JavaScript and C++ in one stack, as V8's own Error().stack tells them, for every version that is here.

    node: 20.20.2     blocked      14 frames as Error().stack has them
"""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import nodes
import tier
from crashes import crash_of, environment, run_to_end
from harness import AGENT, BIN, ROOT, StackdTest, eventually
from inspector import Inspector

VICTIM = ROOT / "tests/languages/node/victim.js"
RAISES = ROOT / "tests/languages/node/raises.js"
STACK_LINE = re.compile(r"^    at (?:async )?(?:(?P<function>.*) \()?(?P<file>[^()]*?):(?P<line>\d+):\d+\)?$")


def is_javascript(frame):
    return frame.get("language") == "JAVASCRIPT"


def frames_of(dump, tid):
    """Frames of JavaScript, with recursion written out again: (function, file, line)."""
    frames = []
    pending = list(dump.frames(tid))
    while pending:
        length = max(1, pending[0].get("repeatLength", 1))
        frames += pending[:length] * max(1, int(pending[0].get("repeatCount", 1)))
        pending = pending[length:]
    return [(f.get("function", ""), f.get("file", ""), f.get("line", 0)) for f in frames if is_javascript(f)]


def told(stack):
    """Frames of an Error().stack in the same form, without the function that made it; builtins have no place there."""
    lines = []
    for line in stack.split("\n")[2:]:
        match = STACK_LINE.match(line)
        if match:
            # "Object.handle [as alias]", "new Service", "Function.run": what it was called by, then its own name.
            name = re.sub(r" \[as .*\]$", "", match["function"] or "").removeprefix("new ").split(".")[-1]
            lines.append((name, match["file"], int(match["line"])))
    return lines


def for_each_node(test):
    """test(self, node), as a subtest for each that is here."""

    @functools.wraps(test)
    def run(self):
        for node in self.nodes:
            with self.subTest(node=str(node)):
                test(self, node)

    return run


class NodeTest(StackdTest):
    limit_s = 600 + 4 * tier.CHURN_S

    def setUp(self):
        super().setUp()
        self.daemon = None
        self.nodes = tier.versions(nodes.found())
        if not self.nodes:
            self.skipTest("no Node.js of 18, 20, 22, 24 is here")

    def the_daemon(self):
        if self.daemon is None:
            self.daemon = self.start_daemon()
        return self.daemon

    def say(self, node, what):
        print(f"node: {node!s:<11} {what}", file=sys.stderr, flush=True)

    def start(self, node, situation, *arguments, **kwargs):
        """The victim, and the stack that it told of the place where it is."""
        # A function whose lines V8 has not kept has none for us: the error's stack makes it keep them.
        victim = self.start_victim(node.path, VICTIM, situation, *arguments, ready='{"ready"', **kwargs)
        line = next(line for line in victim.output.decode().split("\n") if line.startswith('{"ready"'))
        return victim, told(json.loads(line)["stack"])

    def dump(self, victim):
        return self.the_daemon().dump(self.the_daemon().await_process(victim.pid)["name"])

    def await_function(self, victim, function):
        """The first dump with this function on the main thread."""

        def look():
            dump = self.dump(victim)
            return dump if any(f[0] == function for f in frames_of(dump, victim.pid)) else None

        return eventually(f"{function} is on the stack", look)

    def assert_told(self, ours, theirs):
        """Theirs are there in their order, with the same files and lines. Ours has also builtins, which have no file, and does
        not tell what an anonymous function is called by."""
        ours = [frame for frame in ours if frame[1]]
        self.assertEqual([file for _, file, _ in ours], [file for _, file, _ in theirs], (ours, theirs))
        # A call in node's loader that is written over two lines has the second for us, the first for V8 (18 to 22).
        own = [(mine[2], line) for mine, (_, file, line) in zip(ours, theirs) if not file.startswith("node:")]
        self.assertEqual([mine for mine, _ in own], [line for _, line in own], (ours, theirs))
        for (mine, *_), (name, *_) in zip(ours, theirs):
            if mine != "(anonymous)":
                self.assertEqual(mine.split(".")[-1], name)


class Frames(NodeTest):

    @for_each_node
    def test_a_blocked_call_has_the_frames_that_an_error_has(self, node):
        self.the_daemon()
        pipe = self.dir / f"pipe{node.version[0]}"
        os.mkfifo(pipe)
        victim, theirs = self.start(node, "blocked", pipe)
        dump = self.await_function(victim, "openSync")
        ours = frames_of(dump, victim.pid)
        self.assertEqual(ours[0][0], "openSync")
        # The error was made in the function that then calls openSync, on the same line.
        self.assert_told(ours[1:], theirs)
        native = [f.get("function", "") for f in dump.frames(victim.pid)]
        self.assertTrue(any(name.startswith("node::fs::Open") for name in native), native)
        self.assertFalse([name for name in native if "InterpreterEntryTrampoline" in name], "what runs a function is not shown")
        (runtime,) = dump.resource["runtimes"]
        self.assertEqual((runtime["language"], runtime.get("problem", "")), ("JAVASCRIPT", ""))
        self.assertIn(node.v8, runtime["name"])
        self.say(node, f"blocked: {len(theirs)} frames as Error().stack has them")

    @for_each_node
    def test_compiled_functions_have_lines_and_those_that_were_compiled_into_others_frames(self, node):
        self.the_daemon()
        compiled = ["innermost", "middle", "outermost"]
        for situation, functions in (("optimized", compiled), ("baseline", compiled), ("wide", ["wide"])):
            pipe = self.dir / f"{situation}{node.version[0]}"
            os.mkfifo(pipe)
            victim, theirs = self.start(node, situation, pipe)
            self.assertEqual([name for name, *_ in theirs[1:1 + len(functions)]], functions)
            dump = self.await_function(victim, "openSync")
            self.assert_told(frames_of(dump, victim.pid)[1:], theirs)
            self.say(node, f"{situation}: {len(theirs)} frames as Error().stack has them")
            victim.kill()

    @for_each_node
    def test_of_optimized_code_that_was_given_up_nothing_wrong_is_told(self, node):
        self.the_daemon()
        pipe = self.dir / f"given-up{node.version[0]}"
        os.mkfifo(pipe)
        victim, theirs = self.start(node, "givenUp", pipe)
        dump = self.await_function(victim, "openSync")
        ours = [frame for frame in frames_of(dump, victim.pid)[1:] if frame[1]]
        # What was compiled into it is missing, and so is its line.
        at = [name for name, *_ in theirs].index("outermost")
        self.assertEqual([name for name, *_ in theirs[:at]], ["tellAndOpen", "givesUp", "innermost", "middle"])
        self.assertEqual(ours[2], ("outermost", theirs[at][1], 0))
        self.assert_told(ours[:2] + ours[3:], theirs[:2] + theirs[at + 1:])

    @for_each_node
    def test_a_thread_that_never_comes_back_shows_what_it_does(self, node):
        self.the_daemon()
        for situation, function in (("loop", "countingLoop"), ("math", "addUp"), ("inlined", "hotOuter"), ("regex", "evilRegex"),
                                    ("atomics", "atomics"), ("sort", "sortsForEver")):
            victim, theirs = self.start(node, situation)
            dump = self.await_function(victim, function)
            functions = [frame[0] for frame in frames_of(dump, victim.pid) if frame[1]]
            # From where the error was made outwards all is as it was.
            outer = [name for name, *_ in theirs[1:]]
            for mine, name in zip(functions[-len(outer):], outer):
                if mine != "(anonymous)":
                    self.assertEqual(mine.split(".")[-1], name)
            self.say(node, f"{situation}: {' < '.join(functions[:3])}")
            victim.kill()

    def with_lines(self, victim, function):
        """The frames that have a file, once `function` is among them and those below the innermost have lines. A source that a
        collection has moved since the thread was captured gives none."""
        frames = frames_of(self.dump(victim), victim.pid)
        ours = [frame for frame in frames if frame[1]]
        return ours if any(frame[0] == function for frame in frames) and all(line for *_, line in ours[1:]) else None

    @for_each_node
    def test_a_thread_that_runs_has_the_frames_that_the_debugger_has(self, node):
        """Whom the debugger interrupts while it runs, it asks V8 itself."""
        self.the_daemon()
        for situation, function in (("loop", "countingLoop"), ("math", "addUp"), ("atomics", "atomics"), ("deep", "deeper")):
            with self.subTest(situation=situation):
                victim = self.start_victim(node.path, "--no-enable-lazy-source-positions", "--inspect=127.0.0.1:0", VICTIM,
                                            situation, ready='{"ready"')
                ours = eventually(f"{function} is on the stack, below it lines", lambda: self.with_lines(victim, function))
                debugger = Inspector(victim.error_text())
                theirs = [(name.split(".")[-1], *place) for name, *place in debugger.paused_frames() if place[0]]
                debugger.close()
                victim.kill()
                count = min(len(ours), len(theirs))
                self.assertGreater(count, 7, (ours[:12], theirs[:12]))
                # A loop that was optimized while it ran may have no line for us.
                optimized = int(ours[0][2] == 0)
                self.assert_told(ours[optimized:count], theirs[optimized:count])
                self.say(node, f"{situation}: {count} frames as the debugger has them")

    @for_each_node
    def test_worker_threads_have_stacks_of_their_own(self, node):
        self.the_daemon()
        victim, _ = self.start(node, "workers")

        def look():
            dump = self.dump(victim)
            tops = {name for tid in dump.threads for name, *_ in frames_of(dump, tid)[:2]}
            return {"atomics", "countingLoop"} <= tops

        eventually("both workers are where they are to be", look)

    @for_each_node
    def test_names_may_have_any_characters(self, node):
        self.the_daemon()
        pipe = self.dir / f"names{node.version[0]}"
        os.mkfifo(pipe)
        victim, _ = self.start(node, "names", pipe)
        self.await_function(victim, "größe λ 😀")

    @for_each_node
    def test_deep_recursion_shows_its_inner_end(self, node):
        self.the_daemon()
        victim, _ = self.start(node, "deep")
        dump = self.await_function(victim, "deeper")
        self.assertGreater(sum(name == "deeper" for name, *_ in frames_of(dump, victim.pid)), 200)


class Endings(NodeTest):

    def crash(self, node, *arguments, options=()):
        daemon = self.the_daemon()
        ending = run_to_end([node.path, *options, VICTIM, *arguments], self.dir / f"{arguments[0]}{node.version[0]}",
                            environment(self.dir))
        return ending, crash_of(daemon, ending.pid)

    @for_each_node
    def test_an_abort_shows_the_javascript_that_did_it(self, node):
        _, dump = self.crash(node, "abort")
        crashed = dump.resource["crash"]["tid"]
        self.assertIn("abortsHere", [name for name, *_ in frames_of(dump, crashed)])

    @for_each_node
    def test_a_fault_in_an_addon_shows_who_loaded_it(self, node):
        addon = self.dir / "faults.node"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", addon, ROOT / "tests/languages/node/faults.c"], check=True)
        ending, dump = self.crash(node, "segv", addon)
        self.assertEqual(ending.status, signal.SIGSEGV)
        frames = dump.frames(dump.resource["crash"]["tid"])
        functions = [frame.get("function", "").split(".")[-1] for frame in frames]
        self.assertEqual(functions[0], "addon_faults")
        native = [i for i, name in enumerate(functions) if name.startswith("node::binding::DLOpen")]
        self.assertTrue(native, functions)
        self.assertGreater(functions.index("faultsHere"), native[0])

    @for_each_node
    def test_a_heap_that_is_full_shows_who_filled_it(self, node):
        ending, dump = self.crash(node, "memory", options=["--max-old-space-size=32"])
        crashed = dump.resource["crash"]["tid"]
        self.assertIn("eatsMemory", [name for name, *_ in frames_of(dump, crashed)])
        self.assertIn(b"heap out of memory", ending.err, "node's own words are there as ever")

    @for_each_node
    def test_an_abort_for_what_nobody_catches_shows_who_threw_it(self, node):
        daemon = self.the_daemon()
        command = [node.path, "--abort-on-uncaught-exception", RAISES, "error"]
        folder = self.dir / f"aborts{node.version[0]}"
        alone = run_to_end(command, folder / "alone", environment())
        ending = run_to_end(command, folder / "dumped", environment(self.dir))
        self.assertEqual((alone.signal, alone.out), (ending.signal, ending.out))
        self.assertNotEqual(ending.signal, 0)
        dump = crash_of(daemon, ending.pid)
        names = [name.split(".")[-1] for name, *_ in frames_of(dump, dump.resource["crash"]["tid"])]
        self.assertEqual(["pay", "sell", "error"], names[names.index("pay"):names.index("pay") + 3])

    @for_each_node
    def test_the_report_that_node_itself_writes_is_as_without_the_agent(self, node):
        daemon = self.the_daemon()
        # Reports of an uncaught exception, and of a fatal error of V8's.
        for option, crashes, command in (("--report-uncaught-exception", False, [RAISES, "error"]),
                                         ("--report-on-fatalerror", True, ["--max-old-space-size=32", VICTIM, "memory"])):
            with self.subTest(option=option):
                command = [node.path, option, "--report-filename=report.json", *command]
                folder = self.dir / f"reports{option}{node.version[0]}"
                endings, reports = [], []
                for name, env in (("alone", environment()), ("dumped", environment(self.dir))):
                    endings.append(run_to_end(command, folder / name, env))
                    report = json.loads((folder / name / "report.json").read_text())
                    reports.append((sorted(report), report["header"]["event"], report["header"]["trigger"],
                                    report["javascriptStack"].get("stack")))
                self.assertEqual(*reports)
                self.assertEqual(endings[0].signal, endings[1].signal)
                self.assertEqual(crashes, endings[1].signal != 0)
                if crashes:
                    dump = crash_of(daemon, endings[1].pid)
                    self.assertIn("eatsMemory", [name for name, *_ in frames_of(dump, dump.resource["crash"]["tid"])])
        self.say(node, "its own reports are as without the agent")

    @for_each_node
    def test_what_node_catches_itself_is_no_crash(self, node):
        self.the_daemon()
        for situation, count in (("overflow", 20), ("traps", 10000)):
            ending = run_to_end([node.path, VICTIM, situation], self.dir / f"{situation}{node.version[0]}", environment(self.dir))
            self.assertEqual((ending.status, ending.out), (0, f"caught {count}\n".encode()), ending.err)


class Harmless(NodeTest):

    @for_each_node
    def test_dumps_in_a_collection_have_the_frames_that_asked_for_it(self, node):
        daemon = self.the_daemon()
        victim = self.start_victim(node.path, "--expose-gc", VICTIM, "collects", ready='{"ready"')
        process = daemon.await_process(victim.pid)["name"]
        collecting = dumps = 0
        while collecting < 10 and dumps < 200:
            dump = daemon.dump(process)
            dumps += 1
            own = [name.split(".")[-1] for name, file, _ in frames_of(dump, victim.pid) if file == str(VICTIM)]
            in_collection = any("::Heap::CollectGarbage" in frame.get("function", "") for frame in dump.frames(victim.pid))
            collecting += in_collection
            # The first dumps may come before the loop.
            if in_collection or "collectAll" in own:
                self.assertEqual(["collectAll", "collectForEver", "collects"], own[:3])
        self.assertEqual(10, collecting)
        self.say(node, f"{collecting} of {dumps} dumps in a collection, all with the functions that asked for it")

    @for_each_node
    def test_dumps_at_ten_a_second_under_garbage_and_new_code_break_nothing(self, node):
        daemon = self.the_daemon()
        victim, _ = self.start(node, "churn", str(tier.CHURN_S))
        process = daemon.await_process(victim.pid)["name"]
        known = set(re.findall(r"[\w$.]+", VICTIM.read_text()))
        dumps = 0
        frames = 0
        end = time.monotonic() + tier.CHURN_S - 2
        while time.monotonic() < end:
            next_s = time.monotonic() + 0.1
            dump = daemon.dump(process)
            dumps += 1
            for name, file, _ in frames_of(dump, victim.pid):
                frames += 1
                if file == str(VICTIM) or name.startswith("churn"):
                    self.assertTrue(name == "(anonymous)" or set(name.split(".")) <= known, f"{name} is no function of the program")
                elif file:
                    self.assertRegex(file, r"^(node:|evalmachine|$)")
            time.sleep(max(0, next_s - time.monotonic()))
        victim.read_until("churned")
        self.assertEqual(victim.process.wait(60), 0, victim.error_text())
        self.say(node, f"churn: {dumps} dumps, {frames} frames, none wrong")


class Secrets(NodeTest):

    def test_values_do_not_leave_the_process(self):
        self.the_daemon()
        secret = "hunter2-" + "x" * 20
        program = self.dir / "secret.js"
        program.write_text(f"function pay(card = {secret!r}) {{ const twice = card + card; require('fs').writeSync(1, 'ready\\n');\n"
                           "  for (;;) { /* a comment of the source */ }\n}\npay();\n")
        victim = self.start_victim(self.nodes[-1].path, program)
        dump = self.await_function(victim, "pay")
        for private in (secret, "a comment of the source"):
            self.assertNotIn(private, str(dump.resource))

    def test_a_script_in_a_url_does_not_leave_the_process(self):
        self.the_daemon()
        secret = "hunter2-" + "x" * 20
        # With 2,000 bytes more it is longer than what is copied of a name, of which the end is.
        for padding in (0, 2000):
            with self.subTest(padding=padding):
                source = f"/*{secret}*/export function pay(){{console.log('ready');for(;;);}}pay();//{'y' * padding}{secret}"
                program = self.dir / f"url{padding}.mjs"
                program.write_text(f"await import({'data:text/javascript,' + source!r});\n")
                victim = self.start_victim(self.nodes[-1].path, program)
                dump = self.await_function(victim, "pay")
                self.assertEqual({file for name, file, _ in frames_of(dump, victim.pid) if name == "pay"}, {"data:"})
                self.assertNotIn(secret, str(dump.resource))
                victim.kill()


class Package(NodeTest):

    def package(self):
        """The folder of the package as npm would have it."""
        addon = self.dir / "stackd"
        addon.mkdir(exist_ok=True)
        built = BIN / "agent/node/stackd.node"
        if not built.exists():
            self.skipTest("//agent/node:addon is not built")
        for file in (*ROOT.glob("agent/node/*.js*"), *ROOT.glob("agent/node/*.d.ts"), ROOT / "agent/node/README.md", built, AGENT):
            if not (addon / file.name).exists():
                shutil.copy(file, addon / file.name)
        return addon

    @for_each_node
    def test_a_loop_that_is_stuck_misses_its_heartbeat(self, node):
        for after_ms in (1500, 1):  # of its beats by a timer, or before the first
            with self.subTest(after_ms=after_ms):
                self.check_stuck_loop(node, after_ms)

    def check_stuck_loop(self, node, after_ms):
        daemon = self.the_daemon()
        victim = self.start_victim(
            node.path, "--require", self.package() / "register.js", "-e",
            f"console.log('ready'); setTimeout(function stuckLoop() {{ for (;;) {{}} }}, {after_ms})", ready="ready",
            preload=False, env={"STACKD_EVENT_LOOP_MS": "500"})

        def hang():
            reply = daemon.ctl_json("list", "--hangs")
            listed = reply if isinstance(reply, list) else reply.get("dumps", [])
            return [dump for dump in listed if dump["process"]["pid"] == victim.pid]

        found = eventually("the hang", hang)[0]
        self.assertEqual(("event loop", "HEARTBEAT_MISSED"), (found["hang"].get("heartbeat"), found["hang"].get("cause")))
        # Without its line: the loop is optimized while it runs.
        eventually("its frames", lambda: "stuckLoop at [eval]" in daemon.ctl("show", found["name"]).out)

    @for_each_node
    def test_what_nobody_catches_is_a_crash_with_the_functions_that_it_went_through_and_without_its_message(self, node):
        daemon = self.the_daemon()
        for way, kind, functions in (("error", "TypeError", ["sell", "error"]), ("promise", "TypeError", ["sell", "sellLater"]),
                                     ("long", "TypeError", ["sell", "long"]), ("value", "String", []), ("odd", "Error", [])):
            with self.subTest(way=way):
                command = [node.path, "--require", self.package() / "register.js", RAISES, way]
                folder = self.dir / f"{way}{node.version[0]}"
                alone = run_to_end(command, folder / "alone", environment())
                ending = run_to_end(command, folder / "dumped", environment(self.dir, STACKD_UNCAUGHT_EXCEPTIONS="1"))
                self.assertEqual((alone.manner, alone.out, alone.err), (ending.manner, ending.out, ending.err))
                self.assertIn(b"card", ending.err)
                dump = crash_of(daemon, ending.pid)
                crash = dump.resource["crash"]
                self.assertEqual(("UNCAUGHT_EXCEPTION", kind), (crash["cause"], crash["exceptionType"]))
                self.assertRegex(crash["explanation"], f"^unhandled {kind} in thread [^ ]+$")
                frames = frames_of(dump, crash["tid"])
                at = [name for name, *_ in frames].index(f"unhandled {kind}") + 1
                told = [(name.split(".")[-1], line) for name, file, line in frames[at:] if file == str(RAISES)]
                self.assertEqual(functions, [name for name, _ in told[:len(functions)]])
                if functions:
                    self.assertEqual(("sell", 11), told[0])
                self.assertNotIn("Mallory", str(dump.resource))
                self.assertIn(f"unhandled {kind}", daemon.ctl("list", "--crashes").out)
        self.say(node, "what nobody catches is a crash")

    @for_each_node
    def test_what_npm_installs_names_and_dumps(self, node):
        if shutil.which("npm") is None:
            self.skipTest("there is no npm")
        daemon = self.the_daemon()
        app = self.dir / f"app{node.version[0]}"
        app.mkdir()
        npm = functools.partial(subprocess.run, check=True, cwd=app, capture_output=True, text=True,
                                env=dict(os.environ, npm_config_cache=str(self.dir / "npm"), npm_config_update_notifier="false"))
        packed = npm(["npm", "pack", "--offline", self.package()]).stdout.split()[-1]
        npm(["npm", "install", "--offline", "--no-audit", "--no-fund", f"./{packed}"])
        shutil.copy(ROOT / "tests/languages/node/package.js", app)
        victim = self.start_victim(node.path, app / "package.js", ready='{"ready":true}', preload=False, stdin="")
        process = daemon.await_process(victim.pid)
        eventually("it has its name", lambda: any(p.get("displayName") == "billing" for p in daemon.processes()))
        self.assertEqual(victim.ask(""), '{"dumped":true}')

        def own_dump():
            reply = daemon.ctl_json("list")
            listed = reply if isinstance(reply, list) else reply.get("dumps", [])
            name = next((d["name"] for d in listed if d["name"].startswith(process["name"])), None)
            shown = daemon.ctl("show", name).out if name else ""
            return shown if all(what in shown for what in ("importer", "exporter", "dumpsItself")) else None

        eventually("its dump, with the names of its threads and who asked for it", own_dump)

    @for_each_node
    def test_the_addon_brings_the_agent_where_nothing_is_preloaded(self, node):
        daemon = self.the_daemon()
        addon = self.package()
        victim = self.start_victim(node.path, "--require", addon / "register.js", VICTIM, "loop", ready='{"ready"', preload=False,
                                   env={"STACKD_EVENT_LOOP_MS": "0"})
        self.await_function(victim, "countingLoop")
        is_loaded = "fs.readFileSync('/proc/self/maps', 'utf8').includes('libstackd_agent')"
        for value, loaded in (("1", "false"), ("yes", "false"), ("0", "true"), ("", "true")):
            asked = subprocess.run([node.path, "--require", addon / "register.js", "-p", is_loaded], capture_output=True,
                                   text=True, env=dict(os.environ, STACKD_DISABLE=value), check=True)
            self.assertEqual(asked.stdout, f"{loaded}\n", f"STACKD_DISABLE={value}")
        self.assertIsNotNone(daemon)
