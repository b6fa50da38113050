"""PHP: functions of PHP and C in one stack, as PHP's own debug_backtrace() has them, for every PHP that is here.

    php: 8.2.36   calls: 16 frames as debug_backtrace() has them
"""

import collections
import contextlib
import dataclasses
import itertools
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import fpm
import interpreters
import tier
from crashes import crash_of, environment, run_to_end
from harness import ROOT, StackdTest, blocked_at, eventually
from outside import Outside
from ports import free_port

# That a look at a program under churn must have seen at least.
ENOUGH_STACKS = 10
PROGRAMS = ROOT / "tests/languages/php"
CALLS = PROGRAMS / "calls.php"
WAYS = ("calls", "magic", "generator", "include", "eval", "anonymous", "deep")
# What PHP calls a file's own code, by the name of the call that runs it.
OWN_CODE = {"include": "{include}", "eval": "{eval}"}


@dataclasses.dataclass(frozen=True)
class Line:
    function: str
    file: str
    line: int


def is_php(frame):
    return frame.get("language") == "PHP"


def frames_of(frames):
    """With recursion written out again."""
    pending = list(frames)
    result = []
    while pending:
        length = max(1, pending[0].get("repeatLength", 1))
        result += pending[:length] * max(1, int(pending[0].get("repeatCount", 1)))
        pending = pending[length:]
    return result


def php_lines(dump, tid):
    return [Line(frame.get("function", ""), frame.get("file", ""), frame.get("line", 0))
            for frame in frames_of(dump.frames(tid)) if is_php(frame)]


def own_backtrace(text, end):
    """The frames that a program said it has (calls.php), with what it did after that at their innermost end."""
    said = text.split("\nready\n")[0].rsplit("\n", 1)
    calls = [line.split("\t") for line in said[0].splitlines()]
    frames = list(end)
    # Each call is made at a line of the function that is called next in the list.
    at = (str(CALLS), int(said[1]))
    for class_name, function, file, line in calls:
        name = OWN_CODE.get(function) or "::".join(filter(None, (class_name.split("\0")[0], function)))
        frames.append(Line(name, *at))
        at = (file, int(line or 0))
    return [*frames, Line("{main}", *at)]


class PhpTest(StackdTest):
    limit_s = 300

    def setUp(self):
        super().setUp()
        self.phps = tier.versions(interpreters.phps())
        if not self.phps:
            self.skipTest("no PHP that stackd knows is here: deploy/install-deps.sh --tests installs Debian's")

    def start(self, php, *arguments, options=(), **kwargs):
        return self.start_victim(php.command[0], *php.command[1:], *options, *arguments, **kwargs)

    def start_asleep(self, php, *arguments, **kwargs):
        """calls.php is ready a moment before it sleeps."""
        victim = self.start(php, *arguments, **kwargs)
        eventually("it sleeps", lambda: blocked_at(victim.pid, victim.pid))
        return victim

    def say(self, php, what):
        print(f"php: {php!s:<8} {what}", file=sys.stderr, flush=True)

    def line_in(self, text):
        """The number of the one line of calls.php that is `text`."""
        (number,) = [at for at, line in enumerate(CALLS.read_text().splitlines(), 1) if line.strip() == text]
        return number

    def asleep(self):
        return [Line("sleep", "", 0), Line(r"Market\finish", str(CALLS), self.line_in("sleep(1000);"))]

    def assert_lines(self, expected, lines):
        """Compares long lists: unittest's own takes minutes to say what differs."""
        for at, (one, other) in enumerate(itertools.zip_longest(expected, lines)):
            self.assertEqual(one, other, f"frame {at} of {len(lines)}, {len(expected)} expected")

    def ways_of(self, php):
        return (*WAYS, "fiber") if php.version >= (8, 1) else WAYS

    def compare(self, daemon, php, way, options=()):
        victim = self.start_asleep(php, CALLS, way, options=options)
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        lines = php_lines(dump, victim.pid)
        self.assert_lines(own_backtrace(victim.output.decode(), self.asleep()), lines)
        self.assertTrue(victim.alive())
        victim.kill()
        return dump, victim.pid, lines


class FramesTest(PhpTest):

    def test_frames_are_those_of_debug_backtrace(self):
        daemon = self.start_daemon()
        for php in self.phps:
            for way in self.ways_of(php):
                with self.subTest(php=str(php), way=way):
                    dump, _, lines = self.compare(daemon, php, way)
                    self.say(php, f"{way}: {len(lines)} frames as debug_backtrace() has them")
            (runtime,) = dump.resource["runtimes"]
            self.assertEqual({"language": "PHP", "name": f"PHP {php}"}, runtime)

    def test_from_outside_they_are_the_same(self):
        for php in self.phps:
            for way in self.ways_of(php):
                with self.subTest(php=str(php), way=way):
                    victim = self.start_asleep(php, CALLS, way, preload=False)
                    dump = Outside().dump(victim.pid)
                    self.assert_lines(own_backtrace(victim.output.decode(), self.asleep()), php_lines(dump, victim.pid))
                    self.assertEqual(f"PHP {php}", dump.resource["runtimes"][0]["name"])
                    victim.kill()

    def test_they_stand_among_those_of_c_where_these_ran_them(self):
        daemon = self.start_daemon()
        for php in self.phps:
            with self.subTest(php=str(php)):
                dump, pid, _ = self.compare(daemon, php, "calls")
                frames = frames_of(dump.frames(pid))
                names = [frame.get("function", "") for frame in frames]
                self.assertFalse([frame for frame in frames if frame.get("origin") == "RUNTIME_UNPLACED"])
                self.assertNotIn("execute_ex", names)
                # What C calls back is below the call, and what calls C is above it.
                at = [names.index(name) for name in (r"Market\Shop::compare", "usort", "array_map", "{main}", "zend_execute_scripts")
                      if name in names]
                self.assertEqual(sorted(at), at)
                between = names[names.index(r"Market\Shop::compare"):names.index("usort")]
                self.assertIn("zend_call_function", between)

    def test_with_the_cache_and_the_compiler_they_are_the_same(self):
        daemon = self.start_daemon()
        for php in self.phps:
            extension = ["-d", "zend_extension=opcache"] if "-n" in php.command and php.version < (8, 5) else []
            cached = [*extension, "-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=32M"]
            for kind in ("0", "function", "tracing") if php.version >= (8,) else ("0",):
                with self.subTest(php=str(php), jit=kind):
                    for way in ("calls", "generator", "deep"):
                        self.compare(daemon, php, way, [*cached, "-d", f"opcache.jit={kind}", "-d", "opcache.jit_hot_func=1"])

    def test_a_function_that_runs_has_its_line(self):
        daemon = self.start_daemon()
        loop = self.line_in("$i = ($i + 1) % 1000;") - 1
        for php in self.phps:
            with self.subTest(php=str(php)):
                victim = self.start(php, CALLS, "calls", "spin")
                name = daemon.await_process(victim.pid)["name"]
                for _ in range(5):
                    spin, finish = php_lines(daemon.dump(name), victim.pid)[:2]
                    self.assertEqual(r"Market\spin", spin.function)
                    self.assertIn(spin.line, range(loop, loop + 2))
                    self.assertEqual((r"Market\finish", self.line_in("spin();")), (finish.function, finish.line))
                victim.kill()

    def test_a_version_that_is_not_known_shows_c_functions_and_says_why(self):
        unknown = interpreters.phps(known=False)
        if not unknown:
            self.skipTest("no PHP is here that stackd does not know")
        daemon = self.start_daemon()
        for php in unknown:
            with self.subTest(php=str(php)):
                victim = self.start_asleep(php, CALLS, "calls")
                dump = daemon.dump(daemon.await_process(victim.pid)["name"])
                (runtime,) = dump.resource["runtimes"]
                self.assertEqual(f"PHP {php}", runtime["name"])
                self.assertIn("C functions alone", runtime["problem"])
                self.assertEqual([], php_lines(dump, victim.pid))
                self.assertIn("execute_ex", dump.functions(victim.pid))
                victim.kill()

    def test_values_do_not_leave_the_process(self):
        daemon = self.start_daemon()
        program = self.dir / "secret.php"
        program.write_text("<?php\nfunction pay($card) {\n $name = $card . '-x';\n echo \"ready\\n\"; while (true) sleep(1000); // a comment\n}\n"
                           "pay('hunter2');\n")
        victim = self.start(self.phps[-1], program)
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        self.assertIn("pay", [line.function for line in php_lines(dump, victim.pid)])
        for private in ("hunter2", "a comment"):
            self.assertNotIn(private, str(dump.resource))
        # All that is known of PHP is in the agent's record: its memory need not be shared.
        self.assertEqual("NAMES", dump.resource["process"].get("share"))


class LayoutTest(PhpTest):

    def test_offsets_are_those_of_the_headers(self):
        """As far as headers are here: deploy/install-deps.sh --tests fetches those of the other releases."""
        folder = ROOT / "agent/runtimes/php"
        known = {words.pop("api"): words for words in (
            dict(re.findall(r"\.(\w+) = (\w+)", entry)) for entry in re.findall(r"\{(\.api.*)\}", (folder / "php_layout.c").read_text()))}
        same = dict(re.findall(r"STACKD_PHP_(\w+)(?: =|) \(?(\w+)", (folder / "php_layout.h").read_text()))
        compared = set()
        for headers in interpreters.php_headers():
            program = self.dir / "layout"
            subprocess.run(["gcc", "-w", *(f"-I{headers / part}" for part in ("", "main", "Zend", "TSRM")), PROGRAMS / "layout.c",
                            "-o", program], check=True)
            said = dict(line.split() for line in subprocess.check_output([program], text=True).splitlines())
            api = said.pop("api")
            if api not in known:
                continue
            for name, value in said.items():
                ours = known[api].get(name) or str(1 << 17 if name == "CALLED_BY_NATIVE" else same[name])
                self.assertEqual(value, ours, f"{name} of {api}")
            compared.add(api)
        if not compared:
            self.skipTest("no headers of PHP are here")
        print(f"php: offsets of {len(compared)} versions are those of their headers", file=sys.stderr)


class CrashTest(PhpTest):

    def test_a_crash_has_the_functions_that_it_went_through(self):
        daemon = self.start_daemon()
        for php in self.phps:
            with self.subTest(php=str(php)):
                ending = run_to_end([*php.command, CALLS, "calls", int(signal.SIGSEGV)], self.dir / str(php), environment(self.dir))
                self.assertEqual(signal.SIGSEGV, ending.signal, ending.err)
                dump = crash_of(daemon, ending.pid)
                end = [Line("posix_kill", "", 0),
                       Line(r"Market\finish", str(CALLS), self.line_in("posix_kill(posix_getpid(), (int) $end);"))]
                self.assert_lines(own_backtrace(ending.out.decode(), end), php_lines(dump, ending.pid))

    def test_an_overflow_of_the_stack_names_the_functions_that_recurse(self):
        daemon = self.start_daemon()
        program = self.dir / "recurses.php"
        program.write_text("<?php\nfunction again($x) {\n return array_map('again', [$x]);\n}\nagain(1);\n")
        for php in self.phps:
            # From 8.3 on PHP throws an Error instead.
            limit = ["-d", "zend.max_allowed_stack_size=-1"] if php.version >= (8, 3) else []
            with self.subTest(php=str(php)):
                ending = run_to_end([*php.command, "-d", "memory_limit=-1", *limit, program], self.dir / str(php), environment(self.dir))
                self.assertEqual(signal.SIGSEGV, ending.signal, ending.err)
                lines = php_lines(crash_of(daemon, ending.pid), ending.pid)
                self.assertIn(Line("again", str(program), 3), lines)
                self.assertGreater(len(lines), 100)


class HarmlessTest(PhpTest):
    limit_s = 300 + 4 * tier.CHURN_S

    def test_the_first_dump_leaves_a_sleep_asleep(self):
        """PHP 8.4 has a handler on an alternate stack, which blocks the agent's signals."""
        daemon = self.start_daemon()
        for php in self.phps:
            victim = self.start(php, "-r", 'echo "ready\\n"; echo "left ", sleep(3), "\\n";')
            name = daemon.await_process(victim.pid)["name"]
            self.assertIn("sleep", [line.function for line in php_lines(daemon.dump(name), victim.pid)])
            victim.read_until("left")
            self.assertIn("left 0", victim.output.decode(), f"{php}")

    def test_dumps_under_churn_are_whole_and_change_nothing(self):
        """While functions, objects and garbage come and go: no frame that cannot be, and every result right."""
        known = {"{main}", "{eval}", "recurse", "make_functions", "Cell::__destruct", "make_garbage", "numbers", "delegate",
                 "make_generators", "sort_with_callbacks"}
        daemon = self.start_daemon()
        for php in self.phps:
            victim = self.start(php, PROGRAMS / "churn.php", stdin="")
            name = daemon.await_process(victim.pid)["name"]
            seen = collections.Counter()
            until = time.monotonic() + tier.CHURN_S / 4
            while time.monotonic() < until or seen.total() <= ENOUGH_STACKS:
                for look in (daemon.dump(name), Outside().dump(victim.pid)):
                    lines = php_lines(look, victim.pid)
                    strange = [line for line in lines if line.file and line.function not in known and "{closure" not in line.function]
                    self.assertFalse(strange)
                    self.assertTrue(not lines or lines[-1].function == "{main}", lines)
                    seen.update(line.function for line in lines[:1])
            victim.process.stdin.close()
            victim.read_until("well")
            self.assertEqual(0, victim.process.wait(60))
            self.say(php, f"{seen.total()} stacks under churn, all whole")


class PoolTest(PhpTest):

    def test_workers_that_wait_for_a_silent_server_are_said_to_wait_for_it(self):
        if not fpm.PHP_FPM.exists():
            self.skipTest("php-fpm is not here: deploy/install-deps.sh --tests unpacks it")
        daemon = self.start_daemon()
        with socket.create_server(("127.0.0.1", free_port())) as server, contextlib.ExitStack() as requests:
            port = server.getsockname()[1]
            pool = fpm.Pool(self.dir, 3)
            self.addCleanup(pool.master.kill)
            workers = eventually("three workers", lambda: pool.workers() if len(pool.workers()) == 3 else None)
            eventually("the pool listens", pool.path.exists)
            for _ in workers:
                requests.enter_context(fpm.request(pool.path, PROGRAMS / "asks_database.php", f"port={port}"))
            for look in (daemon, Outside()):
                for worker in workers:
                    name = look.await_process(worker)["name"]

                    def asks(look=look, name=name, worker=worker):
                        dump = look.dump(name)
                        return dump if "Orders::find" in [line.function for line in php_lines(dump, worker)] else None

                    dump = eventually("the worker asks", asks)
                    self.assertEqual(["fgets", "Orders::find", "{main}"], [line.function for line in php_lines(dump, worker)])
                    self.assertIn(f"127.0.0.1:{port}", str(dump.threads[worker].get("wait")))
            said = daemon.ctl("dump", workers[0]).out
            self.assertIn(f"-> 127.0.0.1:{port}", said)
            self.assertIn(f"1 may wait for an answer of 127.0.0.1:{port}", said)
            print(f"php: {next(line for line in said.splitlines() if f'127.0.0.1:{port}' in line).strip()}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
