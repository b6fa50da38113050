"""Go: goroutines read out of memory against what the runtime itself says of them; its last words as a crash.

    go: go1.26.8 stripped          19 goroutines as runtime.Stack has them, 97 frames
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

import crashes
import delve
import delve_compare
import go_programs
import tier
from harness import AGENT, ROOT, StackdTest, blocked_at, die_with_parent, eventually, task_ids


def is_own(goroutine):
    return any(function.startswith(go_programs.OWN_PACKAGE) for function, _ in goroutine.frames)


def prepare():
    for toolchain, _ in tier.versions(go_programs.toolchains()):
        for program in ("asleep", "churn", "ends", "hangs", "many", "secrets", "states", "threads"):
            go_programs.kept(toolchain, program)
        for program in ("cgo", "ends"):
            go_programs.kept(toolchain, program, cgo=True)
        go_programs.kept(toolchain, "states", "-ldflags=-s -w")
        go_programs.kept(toolchain, "states", "-buildmode=pie", cgo=True)


PREPARE = [prepare]


class GoTest(StackdTest):
    limit_s = 600 + tier.CHURN_S

    def setUp(self):
        super().setUp()
        self.toolchains = tier.versions(go_programs.toolchains())
        if not self.toolchains:
            self.skipTest("no Go of 1.21 to 1.26 is here, and no registry of Go modules")

    def say(self, version, what):
        print(f"go: {version:<26} {what}", file=sys.stderr, flush=True)

    def build(self, toolchain, program, *flags, cgo=False):
        return go_programs.build(toolchain, program, self.dir / f"{program}-{toolchain}{len(flags)}{cgo}", *flags, cgo=cgo)

    def start(self, path, *args, **kwargs):
        return self.start_victim(path, *args, preload=False, stdin="", **kwargs)

    def newest(self):
        return self.toolchains[-1]

    # --- Goroutines ---

    def test_goroutines_are_as_the_runtime_has_them(self):
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            for kind, flags in (("", ()), ("stripped", ("-ldflags=-s -w",)), ("pie", ("-buildmode=pie",))):
                with self.subTest(go=version, kind=kind):
                    path = self.build(toolchain, "states", *flags, cgo=kind == "pie")
                    said = self.dir / "said.txt"
                    victim = self.start(path, "-compare", said)
                    daemon.await_process(victim.pid)
                    seen = go_programs.goroutines_of(daemon.dump(victim.pid))
                    expected = go_programs.read_traceback(said.read_text())
                    # The first wrote the file meanwhile; the package's own one answers the daemon.
                    compared = {i: g for i, g in expected.items() if i != 1 and not is_own(g)}
                    self.assertGreater(len(compared), 15)
                    for number, goroutine in compared.items():
                        self.assertEqual(seen.get(number), goroutine, f"goroutine {number}")
                    others = {i for i, g in seen.items() if i not in expected and not is_own(g)}
                    self.assertFalse(others, "goroutines that the runtime does not have")
                    frames = sum(len(g.frames) for g in compared.values())
                    self.say(f"{version} {kind}", f"{len(compared)} goroutines as runtime.Stack has them, {frames} frames")
                    victim.kill()

    def test_how_long_goroutines_wait_is_what_the_runtime_has_noted(self):
        """For a goroutine that a collection finds waiting the runtime notes the time of the collection before. It does so by the
        clock that Python has too."""
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start(self.build(toolchain, "states"), env={"GOGC": "off"})
                daemon.await_process(victim.pid)
                self.assertEqual(set(self.waits(daemon.dump(victim.pid))), {None})
                earliest = time.monotonic()
                self.assertEqual(victim.ask("collect"), "collected")
                latest = time.monotonic()
                self.assertEqual(victim.ask("collect"), "collected")
                begun = time.monotonic()
                dump = daemon.dump(victim.pid)
                waits = self.waits(dump)
                self.assertGreater(len(waits), 15)
                self.assertGreaterEqual(min(waits), begun - latest)
                self.assertLessEqual(max(waits), time.monotonic() - earliest)
                self.assertRegex(daemon.ctl("show", dump.name).out, r"\n3 goroutines\n  ids .*\n  chan receive; the longest for about "
                                 r"[\d.]+ m?s\n  created by main\.main at main\.go:\d+\n  #0  main\.receiveInlined")
                self.say(version, f"{len(waits)} goroutines waited for {min(waits) * 1000:.1f} to {max(waits) * 1000:.1f} ms")
                victim.kill()

    def waits(self, dump):
        """In seconds, of the program's goroutines but the first; None: not known."""
        numbers = {i for i, goroutine in go_programs.goroutines_of(dump).items()
                   if i != 1 and any(function.startswith("main.") for function, _ in goroutine.frames)}
        return [float(task["waitDuration"][:-1]) if "waitDuration" in task else None
                for task in dump.resource["tasks"] if int(task["id"]) in numbers]

    def test_goroutines_are_seen_where_the_program_cannot_stop_its_own(self):
        """One goroutine never gives way and has the only processor: the runtime could not stop the world any more."""
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start(self.build(toolchain, "many"), "10000", "spin",
                                    env={"GODEBUG": "asyncpreemptoff=1", "GOMAXPROCS": "2"})
                daemon.await_process(victim.pid)
                # The program is ready before each goroutine has come to where it stays. Once one spins, no goroutine may be left
                # that opens the program's file for the daemon.
                before = eventually("10,000 wait", lambda: self.many_and(None, daemon, victim.pid))
                self.assertEqual("spins", victim.ask("spin"))
                dump = eventually("one spins", lambda: self.many_and("main.spin", daemon, victim.pid))
                group = max(dump.groups, key=lambda g: int(g.get("taskCount", 0)))
                self.assertEqual(int(group["taskCount"]), 10000)
                # As the runtime lists them, whichever of the daemon's threads has read them.
                self.assertEqual(self.waiting(dump), self.waiting(before))
                victim.kill()

    def many_and(self, running_function, daemon, pid):
        """The dump, if it has 10,000 that wait, and one that runs in this function."""
        dump = daemon.dump(pid)
        tasks = dump.resource["tasks"]
        waits = [t.get("waitReason") for t in tasks]
        running = [self.functions(dump, t["tid"]) for t in tasks if t.get("state") == "running" and "tid" in t]
        all_wait = waits.count("sync.Mutex.Lock") + waits.count("semacquire") == 10000
        runs = running_function is None or [running_function, "runtime.goexit"] in running
        return dump if all_wait and runs else None

    def waiting(self, dump):
        return [t["id"] for t in dump.resource["tasks"] if t.get("waitReason") in ("sync.Mutex.Lock", "semacquire")]

    def functions(self, dump, tid):
        """Functions of a thread; none of one that came after its dump began."""
        frames = dump.frames(tid) if tid in dump.threads else []
        return [frame.get("function", "") for frame in go_programs.whole(frames)]

    def test_running_goroutines_are_seen_on_their_threads(self):
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start(self.build(toolchain, "threads"), "40", "spin", env={"GODEBUG": "asyncpreemptoff=1",
                                                                                      "GOMAXPROCS": "2"})
                daemon.await_process(victim.pid)
                spin = ["main.turn"] + 31 * ["main.spinDeep"] + ["main.main", "runtime.main", "runtime.goexit"]
                # It may be asked while it is on the way there.
                dump = eventually("it spins", lambda: next(
                    (d for d in [daemon.dump(victim.pid)]
                     if spin in [self.functions(d, t["tid"]) for t in d.resource["tasks"] if "tid" in t]), None))
                self.assertEqual({dump.status(tid) for tid in dump.threads}, {"CAPTURED"}, dump.notes)
                reading = [f for f in (self.functions(dump, tid) for tid in dump.threads) if "main.readNothing" in f]
                self.assertEqual(len(reading), 40)
                for functions in reading:
                    caller = "main.main.func1" if version < "go1.22" else "main.main.gowrap1"
                    self.assertEqual(functions[functions.index("main.readNothing"):],
                                     ["main.readNothing", caller, "runtime.goexit"])
                self.say(version, f"{len(dump.threads)} threads without cgo, each with its stack")
                victim.kill()

    def assert_order(self, functions, *wanted):
        places = [next((i for i, function in enumerate(functions) if part in function), -1) for part in wanted]
        self.assertNotIn(-1, places, functions)
        self.assertEqual(sorted(places), places, functions)

    def test_c_functions_go_on_in_the_go_functions_that_called_them(self):
        """Under the agent for native code."""
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start_victim(self.build(toolchain, "cgo", cgo=True), stdin="")
                daemon.await_process(victim.pid)
                dump = daemon.dump(victim.pid)
                (blocked,) = [f for f in (self.functions(dump, tid) for tid in dump.threads) if "main.blockInC" in f]
                self.assert_order(blocked, "read", "c_blocks", "asmcgocall", "main._Cfunc_c_blocks", "main.blockInC")
                self.say(version, " < ".join(blocked))
                victim.kill()

    def test_c_functions_never_go_on_in_go_functions_that_called_others(self):
        """The threads go from one call to the next while the daemon reads."""
        daemon = self.start_daemon()
        toolchain, version = self.newest()
        victim = self.start_victim(self.build(toolchain, "cgo", cgo=True), "turns", stdin="")
        daemon.await_process(victim.pid)
        joined = dumps = 0
        end = time.monotonic() + tier.CHURN_S
        while time.monotonic() < end:
            dump = daemon.dump(victim.pid)
            dumps += 1
            for functions in (self.functions(dump, tid) for tid in dump.threads):
                # The switch itself may be what a thread is at, on the goroutine's stack.
                if "runtime.asmcgocall" not in functions[1:]:
                    continue
                for in_c, in_go in (("c_naps", "main.napInC"), ("c_dozes", "main.dozeInC")):
                    if in_go in functions:
                        self.assertIn(in_c, functions)
                        joined += 1
        self.assertGreater(joined, dumps / 2)
        self.say(version, f"{dumps} dumps, {joined} stacks of C that go on in Go, none in functions that called others")

    def test_a_program_in_which_no_goroutine_can_run_is_read_all_the_same(self):
        daemon = self.start_daemon()
        victim = self.start(self.build(self.newest()[0], "threads"), "1", "spin when told",
                            env={"GODEBUG": "asyncpreemptoff=1", "GOMAXPROCS": "1"})
        daemon.await_process(victim.pid)
        # The daemon asks for the files of a program that has just come.
        daemon.dump(victim.pid)
        victim.ask("")
        dump = eventually("nothing else runs", lambda: next(
            (d for d in [daemon.dump(victim.pid)] if any("no goroutine of it came to run" in n for n in d.notes)), None))
        states = [t.get("waitReason") or t["state"] for t in dump.resource["tasks"]]
        self.assertIn("syscall", states)
        self.assertIn("running", states)

    def test_the_package_passes_its_own_tests(self):
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                done = go_programs.run_go(toolchain, "test", "-count=1", ".", cwd=ROOT / "agent/go", timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_no_frame_is_wrong_under_churn(self):
        toolchain, version = self.newest()
        churn = self.dump_churn(self.start_daemon(), toolchain, tier.CHURN_S)
        self.assertGreater(churn["stacks"], churn["dumps"])
        self.assertGreater(churn["of threads"], churn["dumps"] / 2)
        self.say(version, f"{churn['dumps']} dumps under churn, {churn['stacks']} stacks, {churn['of threads']} of running goroutines, "
                          "none wrong")

    def test_no_frame_is_wrong_while_garbage_is_collected(self):
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                # One collection follows the other.
                churn = self.dump_churn(daemon, toolchain, tier.CHURN_S / 4, GOGC="1")
                self.assertGreater(churn["in a collection"], 0)
                self.say(version, f"{churn['dumps']} dumps, {churn['in a collection']} of them in a collection, {churn['stacks']} stacks, "
                                  "none wrong")

    def dump_churn(self, daemon, toolchain, seconds, **environment):
        """How often what was seen. Each dump is whole, and no function stands under one that does not call it. A machine that has
        no CPU for the package's goroutine for a second may have a few dumps that say so."""
        victim = self.start(self.build(toolchain, "churn"), env=environment)
        daemon.await_process(victim.pid)
        # What may call what.
        callers = {"main.churnDeep": {"main.churnDeep", "main.churnBriefly"}, "main.churnBriefly": {"main.main.func1"},
                   "main.churnTree": {"main.churnTree", "main.main.func2"}}
        seen = collections.Counter()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            next_s = time.monotonic() + 0.1
            dump = daemon.dump(victim.pid)
            unheard = any("no goroutine of it came to run" in note for note in dump.notes)
            seen["unheard"] += unheard
            if not unheard:
                self.assertEqual("COMPLETE", dump.resource["state"], dump.notes)
            goroutines = go_programs.goroutines_of(dump).values()
            # The first, the four and the one.
            self.assertGreaterEqual(len(goroutines), 6)
            of_goroutines = [[function for function, _ in goroutine.frames] for goroutine in goroutines]
            of_threads = [self.functions(dump, tid) for tid in dump.threads]
            for functions in of_goroutines + of_threads:
                for callee, caller in zip(functions, functions[1:]):
                    if callee in callers:
                        self.assertIn(caller, callers[callee], functions)
            seen["dumps"] += 1
            seen["stacks"] += sum(map(bool, of_goroutines))
            seen["of threads"] += sum("runtime.goexit" in functions for functions in of_threads)
            seen["in a collection"] += any(function.startswith("runtime.gc") for functions in of_threads for function in functions)
            time.sleep(max(0, next_s - time.monotonic()))
        self.assertLessEqual(seen["unheard"], seen["dumps"] / 5)
        self.assertTrue(victim.alive())
        victim.kill()
        return seen

    # --- Against Delve ---

    def dump_at_rest(self, daemon, victim, in_calls, running):
        """A dump in which so many goroutines are in system calls, at one place before and after it, and these functions run.
        None: not yet. The package's own goroutine may be anywhere."""
        before = {tid: blocked_at(victim.pid, tid) for tid in task_ids(victim.pid)}
        dump = daemon.dump(victim.pid)
        on_threads = [t for t in dump.resource["tasks"] if "tid" in t and not self.is_of_the_package(dump, t)]
        rests = {t["tid"] for t in on_threads if t["state"] == "syscall" and before.get(t["tid"]) and
                 before[t["tid"]] == blocked_at(victim.pid, t["tid"])}
        runs = [self.functions(dump, t["tid"])[:1] for t in on_threads if t["tid"] not in rests]
        return dump if len(rests) == in_calls and runs == [[function] for function in running] else None

    def is_of_the_package(self, dump, task):
        frames = dump.stacks[task["stack"]].get("frames", []) if "stack" in task else []
        functions = [frame.get("function", "") for frame in frames] + self.functions(dump, task["tid"])
        return any(function.startswith(go_programs.OWN_PACKAGE) for function in functions)

    def compare_with_delve(self, daemon, victim, version, name, in_calls, running=()):
        """The dump first: Delve stops the process."""
        dlv = delve.command(version)
        if dlv is None:
            self.skipTest(f"no delve for {version} is here: deploy/install-deps.sh --tests builds it")
        daemon.await_process(victim.pid)
        dump = eventually("each goroutine is where it stays", lambda: self.dump_at_rest(daemon, victim, in_calls, running))
        seen = delve.look(dlv, victim.pid, self.dir, delve_compare.innermost_addresses(dump))
        self.assertTrue(victim.alive())
        compared = delve_compare.Comparison(victim.pid, dump, seen)
        self.assertFalse(compared.differences, f"{len(compared.differences)} differences from delve:\n" +
                         "\n".join(compared.differences[:20]))
        self.say(version, f"{name}: {compared.goroutines} goroutines as delve has them, {compared.on_threads} of them on threads"
                          f" too: {compared.frames} frames of its, {compared.reasons.total()} differ for a reason")
        return compared

    def say_reasons(self, reasons):
        for reason, count in sorted(reasons.items()):
            print(f"       {count} differences: {reason}", file=sys.stderr, flush=True)

    def test_goroutines_that_wait_are_as_delve_has_them(self):
        """In channels, mutexes (two in a deadlock), a select, a sleep, system calls; inlined frames, generics, deferred calls."""
        daemon = self.start_daemon()
        reasons = collections.Counter()
        for toolchain, version in self.toolchains:
            for kind, flags in (("", ()), ("pie", ("-buildmode=pie",))):
                with self.subTest(go=version, kind=kind):
                    victim = self.start(self.build(toolchain, "states", *flags, cgo=kind == "pie"))
                    compared = self.compare_with_delve(daemon, victim, version, f"states {kind}".strip(), in_calls=2)
                    self.assertEqual(compared.goroutines, 20)
                    reasons += compared.reasons
                    victim.kill()
        self.say_reasons(reasons)

    def test_goroutines_that_run_are_as_delve_has_them(self):
        """One never gives way, the others are in system calls: all of them on threads."""
        daemon = self.start_daemon()
        reasons = collections.Counter()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start(self.build(toolchain, "threads"), "10", "spin", env={"GODEBUG": "asyncpreemptoff=1",
                                                                                      "GOMAXPROCS": "2"})
                compared = self.compare_with_delve(daemon, victim, version, "threads", 10, ["main.turn"])
                self.assertEqual((compared.goroutines, compared.on_threads), (11, 11))
                reasons += compared.reasons
                victim.kill()
        self.say_reasons(reasons)

    def test_goroutines_that_call_c_and_are_called_by_it_are_as_delve_has_them(self):
        daemon = self.start_daemon()
        reasons = collections.Counter()
        for toolchain, version in self.toolchains:
            for how, running in (((), ()), (("spin",), ("main.spin",))):
                with self.subTest(go=version, how=how):
                    victim = self.start_victim(self.build(toolchain, "cgo", cgo=True), *how, stdin="",
                                               env={"GODEBUG": "asyncpreemptoff=1"})
                    compared = self.compare_with_delve(daemon, victim, version, " ".join(("cgo", *how)), 2, running)
                    self.assertEqual(compared.goroutines, 4)
                    reasons += compared.reasons
                    victim.kill()
        self.say_reasons(reasons)

    # --- The package ---

    def test_an_overlay_adds_it_to_sources_that_stay_as_they_are(self):
        """By the commands that the package's README.md has."""
        readme = (ROOT / "agent/go/README.md").read_text()
        _, text = readme.split("Without a change of sources", 1)
        commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        self.assertIn("-overlay=", commands[-1])
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                folder = self.dir / toolchain
                sources = folder / "sources"
                shutil.copytree(go_programs.SOURCES / "overlaid", sources)
                before = {path.name: path.read_bytes() for path in sources.iterdir()}
                script = "\n".join(commands).replace("/tmp/", f"{folder}/").replace("=PATH", f"={ROOT}/agent/go")
                go_programs.run_shell(toolchain, script, cwd=sources)
                self.assertEqual({path.name: path.read_bytes() for path in sources.iterdir() if path.name in before}, before)
                self.assertEqual({path.name for path in sources.iterdir()}, {*before, "program"})
                victim = self.start(sources / "program")
                daemon.await_process(victim.pid)
                waiting = [g for g in go_programs.goroutines_of(daemon.dump(victim.pid)).values()
                           if "main.waitForNobody" in (function for function, _ in g.frames)]
                self.assertEqual([g.state for g in waiting], ["chan receive"])
                self.say(version, "an overlay adds the package to a program that is not changed")
                victim.kill()

    def test_the_kill_switch_keeps_it_away(self):
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                path = self.build(toolchain, "many")
                off = self.start(path, "1", env={"STACKD_DISABLE": "1"})
                other = self.start(path, "1")
                daemon.await_process(other.pid)
                self.assertNotIn(off.pid, [p["pid"] for p in daemon.processes()])
                off.kill()
                other.kill()

    def test_a_program_finds_the_next_daemon(self):
        daemon = self.start_daemon()
        victims = [self.start(self.build(toolchain, "many"), "10") for toolchain, _ in self.toolchains]
        for victim in victims:
            daemon.await_process(victim.pid)
        daemon.restart()
        for victim, (_, version) in zip(victims, self.toolchains):
            with self.subTest(go=version):
                daemon.await_process(victim.pid)
                self.assertGreater(len(go_programs.goroutines_of(daemon.dump(victim.pid))), 10)

    # --- Harmless ---

    @pytest.mark.thorough
    def test_gos_own_tests_of_signals_and_c_end_under_the_agent_as_they_do_without(self):
        self.start_daemon()
        under_agent = self.dir / "under_agent"
        under_agent.write_text(f'#!/bin/sh\nexport LD_PRELOAD={AGENT} STACKD_DIR={self.dir}\nexec "$@"\n')
        under_agent.chmod(0o755)
        packages = ("os/signal", "os/exec", "cmd/cgo/internal/test")

        def run(toolchain, *flags):
            done = go_programs.run_go(toolchain, "test", "-count=1", "-short", "-json", *flags, *packages, cgo=True, timeout=280)
            events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            return {(event["Package"], event.get("Test", "")): event["Action"] for event in events
                    if event["Action"] in ("pass", "fail")}

        # They take half a minute to build.
        chosen = self.toolchains if tier.FULL else dict.fromkeys(
            (self.toolchains[0], self.newest()))
        for toolchain, version in chosen:
            with self.subTest(go=version):
                ended = run(toolchain, "-exec", under_agent)
                if "fail" in ended.values():
                    self.assertEqual(run(toolchain), ended)
                self.assertEqual({package for package, _ in ended}, set(packages))
                self.say(version, f"{len(ended)} of its own tests end as without the agent")
                self.assertGreater(len(ended), 100)

    # --- Ends ---

    def run_to_end(self, path, word, directory, preload=False, is_named=True, traceback="single"):
        """Exit code and what it wrote to standard error."""
        environment = {**os.environ, "STACKD_DIR": str(directory), "GOTRACEBACK": traceback}
        if preload:
            environment["LD_PRELOAD"] = str(AGENT)
        with subprocess.Popen([path, word], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment, preexec_fn=die_with_parent) as process:
            process.stdout.readline()
            if directory == self.dir:
                # Beside the agent for native code the package has its own connection, and the name comes by that.
                name = f"ends-{word}" if is_named else os.path.basename(path)
                eventually("its name", lambda: self.daemon.await_process(process.pid)["displayName"] == name)
            try:
                _, errors = process.communicate("\n", timeout=60)
            finally:
                process.kill()
            return process.pid, process.returncode, errors

    def with_last_words(self):
        return [(toolchain, version) for toolchain, version in self.toolchains if version >= "go1.23"]

    def test_the_last_words_of_the_runtime_become_a_crash(self):
        self.daemon = self.start_daemon()
        if not self.with_last_words():
            self.skipTest("debug.SetCrashOutput came with Go 1.23, and no such Go is here")
        # The runtime keeps the first line of a fatal error out of debug.SetCrashOutput.
        fatal = "fatal error: (its message is on the program's standard error)"
        for toolchain, version in self.with_last_words():
            path = self.build(toolchain, "ends")
            for word, function, said in (("nil", "main.fail", "invalid memory address or nil pointer dereference"),
                                         ("index", "main.fail", "slice bounds out of range"),
                                         ("panic", "main.fail", "panic: (its message is on the program's standard error)"),
                                         ("overflow", "main.overflow", fatal), ("maps", "main.writeMaps.func1", fatal),
                                         ("memory", "main.fillMemory", fatal)):
                with self.subTest(go=version, end=word):
                    _, code_alone, errors_alone = self.run_to_end(path, word, "/nonexistent")
                    pid, code, errors = self.run_to_end(path, word, self.dir)
                    self.assertEqual(code, code_alone)
                    self.assertEqual(self.first_words(errors), self.first_words(errors_alone))
                    name = eventually("the crash is stored", lambda: self.find_crash(pid))
                    shown = self.daemon.ctl("show", name)
                    self.assertIn(function, shown.text)
                    # It is all that there is: there is nothing between which it could stand.
                    self.assertNotIn("called somewhere above", shown.text)
                    self.assertNotIn("unknown reason", shown.text)
                    self.assertIn(said, shown.text)
                    exported = self.daemon.ctl("export", name, "-f", "json").out
                    self.assertNotIn("hunter2", exported)
                    if word == "panic":
                        self.assertIn("hunter2", errors)

    def first_words(self, errors):
        return re.sub(r"\d+ in use", "N in use", errors.splitlines()[0])

    def test_under_the_agent_for_native_code_too_and_once(self):
        self.daemon = self.start_daemon()
        for toolchain, version in self.with_last_words():
            path = self.build(toolchain, "ends", cgo=True)
            for word, functions in (("nil", ["main.fail", "main.main"]), ("panic", ["main.fail", "main.main"]),
                                    ("c", ["c_fails", "main.fail", "main.main"])):
                with self.subTest(go=version, end=word):
                    _, code_alone, errors_alone = self.run_to_end(path, word, "/nonexistent")
                    pid, code, errors = self.run_to_end(path, word, self.dir, preload=True, traceback="all")
                    self.assertEqual(code, code_alone)
                    self.assertEqual(self.first_words(errors), self.first_words(errors_alone))
                    dump = crashes.crash_of(self.daemon, pid)
                    (crashed,) = [tid for tid in dump.threads if tid == dump.resource["crash"]["tid"]]
                    self.assert_order(self.functions(dump, crashed), *functions)
                    (report,) = dump.resource["reports"]
                    self.assertIn("main.main(...)", report["lines"])
                    waiting = [g for g in go_programs.goroutines_of(dump).values()
                               if "main.waitForNobody" in (function for function, _ in g.frames)]
                    self.assertEqual(len(waiting), 2)
                    self.assertNotIn("hunter2", self.daemon.ctl("export", dump.name, "-f", "json").out)

    def test_before_go_1_23_a_crash_in_c_has_the_functions_of_c(self):
        """The package has no last words to pass, and no name."""
        self.daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            if version >= "go1.23":
                break
            with self.subTest(go=version):
                path = self.build(toolchain, "ends", cgo=True)
                _, code_alone, errors_alone = self.run_to_end(path, "c", "/nonexistent")
                pid, code, errors = self.run_to_end(path, "c", self.dir, preload=True, is_named=False)
                self.assertEqual(code, code_alone)
                self.assertEqual(self.first_words(errors), self.first_words(errors_alone))
                dump = crashes.crash_of(self.daemon, pid)
                self.assert_order(self.functions(dump, dump.resource["crash"]["tid"]), "c_fails", "asmcgocall")

    def test_a_crash_in_c_right_after_the_start_has_names(self):
        """Go ends the process by itself, when its modules are not loaded yet."""
        self.daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            path = self.build(toolchain, "cgo", cgo=True)
            for count in range(3):
                with self.subTest(go=version, count=count):
                    ending = crashes.run_to_end([path, "crash"], self.dir / f"{toolchain}-{count}",
                                                crashes.environment(self.dir, GOTRACEBACK="single"))
                    self.assertEqual("exit code 2", ending.manner)
                    dump = crashes.crash_of(self.daemon, ending.pid)
                    self.assert_order(dump.functions(dump.resource["crash"]["tid"]), "c_crashes", "asmcgocall")
                    # The package would have what called them.
                    self.assertIn("Go: its memory cannot be read: its goroutines are not known", dump.notes)

    def test_the_runtime_reports_a_deadlock_under_the_agent_for_native_code_as_without(self):
        """With cgo it never does. Without, but position independent, a program has a dynamic linker and hence the agent."""
        self.daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                path = self.build(toolchain, "asleep", "-buildmode=pie")
                _, code_alone, errors_alone = self.run_to_end(path, "", "/nonexistent")
                _, code, errors = self.run_to_end(path, "", self.dir, preload=True, is_named=False)
                self.assertIn("fatal error: all goroutines are asleep - deadlock!", errors_alone)
                self.assertEqual((code, self.without_addresses(errors)), (code_alone, self.without_addresses(errors_alone)))

    def without_addresses(self, text):
        return re.sub(r"0x[0-9a-f]+\??", "0x", text)

    def test_with_the_package_the_runtime_reports_no_deadlock_and_a_dump_shows_it(self):
        """A goroutine that waits for the daemon is one that may go on."""
        daemon = self.start_daemon()
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start(self.build(toolchain, "ends"), "deadlock")
                daemon.await_process(victim.pid)
                victim.process.stdin.close()
                eventually("all of its own wait for ever", lambda: self.states(daemon.dump(victim.pid)) == {"select (no cases)"})
                self.assertTrue(victim.alive())
                victim.kill()

    # What is to be said where none of the program's goroutines runs.
    def test_threads_of_gos_runtime_wait_in_functions_that_are_known(self):
        daemon = self.start_daemon()
        toolchain, _ = self.toolchains[-1]
        victim = self.start_victim(self.build(toolchain, "hangs"), "mutex_cycle")
        daemon.await_process(victim.pid)
        eventually("one is parked", lambda: "CONDITION_VARIABLE" in self.kinds_of_waits(daemon.dump(victim.pid)))
        self.assertNotIn("FUTEX", self.kinds_of_waits(daemon.dump(victim.pid)))

    def kinds_of_waits(self, dump):
        return {thread["wait"]["kind"] for thread in dump.threads.values() if "wait" in thread}

    def states(self, dump):
        """States of the program's goroutines."""
        return {goroutine.state for goroutine in go_programs.goroutines_of(dump).values() if not is_own(goroutine)}

    def find_crash(self, pid):
        return next((d["name"] for d in crashes.crashes(self.daemon) if d.get("process", {}).get("pid") == pid), None)

    def test_recovered_panics_are_none(self):
        self.daemon = self.start_daemon()
        victims = []
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim = self.start(self.build(toolchain, "ends"), "recovered")
                self.daemon.await_process(victim.pid)
                self.assertEqual(victim.ask(""), "caught 1000")
                victim.kill()
                victims.append(victim)
        other = self.start(self.build(self.newest()[0], "many"), "1")
        self.daemon.await_process(other.pid)
        for victim in victims:
            self.assertIsNone(self.find_crash(victim.pid))
