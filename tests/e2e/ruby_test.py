"""Ruby: methods of Ruby among functions of C, as Ruby's own backtraces have them, for every Ruby that is here.

    ruby: 3.1.2   calls: 12 frames as caller_locations() has them
"""

import dataclasses
import itertools
import re
import signal
import subprocess
import sys
import time
import unittest

import interpreters
import tier
from crashes import crash_of, environment, run_to_end
from harness import ROOT, StackdTest, blocked_at, eventually
from outside import Outside

# That a look at a program under churn must have seen at least.
ENOUGH_STACKS = 10
PROGRAMS = ROOT / "tests/languages/ruby"
CALLS = PROGRAMS / "calls.rb"
WAYS = ("calls", "missing", "super", "rescues", "eval", "long", "fiber", "enumerator", "times", "deep")
# Methods in C that the programs call: they are native frames. (From 3.4 on Ruby has some of them in Ruby, without telling.)
IN_C = {"each", "map", "sort_by", "eval", "times", "pop", "read", "sleep", "wait", "synchronize", "join", "lock", "loop"}


@dataclasses.dataclass(frozen=True)
class Line:
    label: str
    file: str
    line: int


def frames_of(frames):
    """With recursion written out again."""
    pending = list(frames)
    result = []
    while pending:
        length = max(1, pending[0].get("repeatLength", 1))
        result += pending[:length] * max(1, int(pending[0].get("repeatCount", 1)))
        pending = pending[length:]
    return result


def ruby_lines(dump, tid):
    """But for those of Ruby's own methods that are written in Ruby: its backtraces have some of them, and not others."""
    return [Line(frame.get("function", ""), frame.get("file", ""), frame.get("line", 0)) for frame in frames_of(dump.frames(tid))
            if frame.get("language") == "RUBY" and not frame.get("file", "").startswith("<internal:")]


def own_lines(text):
    """What a program said of its calls, but for those of methods in C, and without the class that 3.4 writes before a method."""
    lines = []
    for label, file, line in (line.split("\t") for line in text.splitlines()):
        label = re.sub(r"\b[A-Z]\w*(::\w+)*[#.](?=\w)", "", label)
        is_in_c = label in IN_C and not (label == "wait" and file.endswith("calls.rb"))
        if not is_in_c and not file.startswith("<internal:"):
            lines.append(Line(label, file, int(line or 0)))
    return lines


def as_in_3_4(lines):
    """From 3.4 on a backtrace has a method once that is in its `rescue` or `ensure`, at the line there. Text that is evaluated is
    called as the code around it."""
    result = []
    skips = False
    for at, line in enumerate(lines):
        label = re.sub(r"^(rescue|ensure) in ", "", line.label)
        if label == "<compiled>":
            label = lines[at + 1].label
        if not skips:
            result.append(dataclasses.replace(line, label=label))
        skips = line.label.startswith(("rescue in ", "ensure in "))
    return result


class RubyTest(StackdTest):
    limit_s = 300

    def setUp(self):
        super().setUp()
        self.rubies = tier.versions(interpreters.rubies())
        if not self.rubies:
            self.skipTest("no Ruby that stackd knows is here: deploy/install-deps.sh --tests installs Debian's")

    def start(self, ruby, *arguments, **kwargs):
        return self.start_victim(ruby.command[0], "--disable-gems", *arguments, **kwargs)

    def start_asleep(self, ruby, *arguments, **kwargs):
        """calls.rb is ready a moment before it sleeps."""
        victim = self.start(ruby, *arguments, **kwargs)
        eventually("it sleeps", lambda: blocked_at(victim.pid, victim.pid))
        return victim

    def say(self, ruby, what):
        print(f"ruby: {ruby!s:<8} {what}", file=sys.stderr, flush=True)

    def line_in(self, text):
        (number,) = [at for at, line in enumerate(CALLS.read_text().splitlines(), 1) if line.strip() == text]
        return number

    def assert_lines(self, ruby, expected, lines):
        if ruby.version >= (3, 4):
            lines = as_in_3_4(lines)
        for at, (one, other) in enumerate(itertools.zip_longest(expected, lines)):
            self.assertEqual(one, other, f"frame {at} of {len(lines)}, {len(expected)} expected, Ruby {ruby}")

    def expected(self, text):
        """Gives the frames of calls.rb, which sleeps."""
        finish = Line("finish", str(CALLS), CALLS.read_text().splitlines().index("    sleep 1000") + 1)
        return [finish, *own_lines(text.split("ready\n")[0])]


class FramesTest(RubyTest):

    def test_frames_are_those_of_caller_locations(self):
        daemon = self.start_daemon()
        for ruby in self.rubies:
            for way in WAYS:
                victim = self.start_asleep(ruby, CALLS, way)
                dump = daemon.dump(daemon.await_process(victim.pid)["name"])
                lines = ruby_lines(dump, victim.pid)
                self.assert_lines(ruby, self.expected(victim.output.decode()), lines)
                self.assertTrue(victim.alive())
                victim.kill()
                self.say(ruby, f"{way}: {len(lines)} frames as caller_locations() has them")
            (runtime,) = dump.resource["runtimes"]
            self.assertEqual({"language": "RUBY", "name": f"Ruby {ruby}"}, runtime)

    def test_with_the_compiler_they_are_the_same(self):
        having = [ruby for ruby in self.rubies if "+YJIT" in
                  subprocess.run([ruby.command[0], "--yjit", "-v"], capture_output=True, text=True, check=True).stdout]
        if not having:
            self.skipTest("no Ruby that is here was built with YJIT")
        daemon = self.start_daemon()
        for ruby in having:
            for way in WAYS:
                victim = self.start_asleep(ruby, "--yjit", "--yjit-call-threshold=1", CALLS, way)
                dump = daemon.dump(daemon.await_process(victim.pid)["name"])
                self.assert_lines(ruby, self.expected(victim.output.decode()), ruby_lines(dump, victim.pid))
                victim.kill()
            self.say(ruby, "compiled by YJIT: the same")

    def test_from_outside_they_are_the_same(self):
        for ruby in self.rubies:
            for way in WAYS:
                victim = self.start_asleep(ruby, CALLS, way, preload=False)
                dump = Outside().dump(victim.pid)
                self.assert_lines(ruby, self.expected(victim.output.decode()), ruby_lines(dump, victim.pid))
                self.assertEqual(f"Ruby {ruby}", dump.resource["runtimes"][0]["name"])
                victim.kill()

    def test_each_thread_has_its_frames_and_its_name(self):
        daemon = self.start_daemon()
        for ruby in self.rubies:
            for look, preload in ((daemon, True), (Outside(), False)):
                victim = self.start(ruby, PROGRAMS / "threads.rb", preload=preload)
                dump = look.dump(look.await_process(victim.pid)["name"])
                said = victim.output.decode().split("ready\n")[0].split("THREAD\t")[1:]
                self.assertEqual(7, len(said))
                for thread in said:
                    head, text = thread.split("\n", 1)
                    tid, name = head.split("\t")
                    self.assert_lines(ruby, own_lines(text), ruby_lines(dump, int(tid)))
                    self.assertEqual(name, dump.threads[int(tid)]["name"])
                victim.kill()

    def test_a_method_that_runs_has_its_line(self):
        daemon = self.start_daemon()
        loop = self.line_in("i = (i + 1) % 1000") - 1
        for ruby in self.rubies:
            victim = self.start(ruby, CALLS, "calls", "spin")
            name = daemon.await_process(victim.pid)["name"]
            for _ in range(5):
                dump = daemon.dump(name)
                spin, finish = ruby_lines(dump, victim.pid)[:2]
                self.assertEqual("spin", spin.label)
                self.assertIn(spin.line, range(loop - 1, loop + 2))
                self.assertEqual("finish", finish.label)
                self.assertTrue(dump.threads[victim.pid].get("holdsGil"))
            victim.kill()

    def test_they_stand_among_functions_of_c_where_these_ran_them(self):
        """Debian's 3.1 exports rb_vm_exec, which ran them. Of the others it is not known by name."""
        daemon = self.start_daemon()
        for ruby in self.rubies:
            victim = self.start_asleep(ruby, CALLS, "calls")
            dump = daemon.dump(daemon.await_process(victim.pid)["name"])
            frames = frames_of(dump.frames(victim.pid))
            names = [frame.get("function", "") for frame in frames]
            self.assertFalse([frame for frame in frames if frame.get("origin") == "RUNTIME_UNPLACED"])
            self.assertNotIn("rb_vm_exec", names)
            # A block that a method in C runs, by rb_yield(), which a method in Ruby has called.
            expected = ["finish", "wait", "block in weigh", "rb_yield", "weigh", "block in pay", "rb_yield", "pay", "<main>", "ruby_run_node"]
            left = iter(names)
            self.assertFalse([name for name in expected if name not in left], names)
            victim.kill()

    def test_they_have_a_place_in_each_way_but_where_c_begins_a_fiber(self):
        for ruby in self.rubies:
            for way in (way for way in WAYS if way != "enumerator" or ruby.version < (3, 3)):
                victim = self.start_asleep(ruby, CALLS, way, preload=False)
                frames = Outside().dump(victim.pid).frames(victim.pid)
                self.assertFalse([frame for frame in frames if frame.get("origin") == "RUNTIME_UNPLACED"], (str(ruby), way))
                self.assertNotIn("rb_vm_exec", [frame.get("function") for frame in frames], (str(ruby), way))
                victim.kill()

    def test_values_do_not_leave_the_process(self):
        daemon = self.start_daemon()
        program = self.dir / "secret.rb"
        program.write_text("def pay(card)\n  name = card * 2\n  puts 'ready'; $stdout.flush\n  sleep 1000 # a comment\nend\n"
                           "pay('hunter2')\n")
        victim = self.start(self.rubies[-1], program)
        dump = daemon.dump(daemon.await_process(victim.pid)["name"])
        self.assertIn("pay", [line.label for line in ruby_lines(dump, victim.pid)])
        for private in ("hunter2", "a comment"):
            self.assertNotIn(private, str(dump.resource))


class LocksTest(RubyTest):

    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def both(self, ruby, way):
        """Dumps of the agent and from outside."""
        victim = self.start(ruby, PROGRAMS / "locks.rb", way)
        name = self.daemon.await_process(victim.pid)["name"]
        return [lambda: self.daemon.dump(name), lambda: Outside().dump(victim.pid)]

    def test_a_deadlock_of_two_mutexes_is_found(self):
        for ruby in self.rubies:
            for dump in self.both(ruby, "deadlock"):

                def deadlock(dump=dump):
                    return next((f for f in dump().resource.get("findings", []) if f["kind"] == "DEADLOCK"), None)

                found = eventually("a deadlock", deadlock)
                for word in ("buyer", "seller", "Thread::Mutex"):
                    self.assertIn(word, str(found))
                self.say(ruby, found["explanation"])

    def test_deadlocks_are_dumped_by_themselves_and_others_are_not(self):
        hung = [self.start(ruby, PROGRAMS / "locks.rb", "deadlock") for ruby in self.rubies]
        well = [self.start(ruby, PROGRAMS / "locks.rb", way) for ruby in self.rubies for way in ("queue", "compute")]

        def hangs():
            return {dump["process"]["pid"]: dump for dump in self.daemon.ctl_json("list", "--hangs").get("dumps", [])}

        dumps = eventually("the deadlocks are noticed", lambda: hangs() if len(hangs()) >= len(hung) else None)
        self.assertEqual({victim.pid for victim in hung}, set(dumps))
        self.assertFalse({victim.pid for victim in well} & set(dumps))
        for dump in dumps.values():
            self.assertEqual("DEADLOCK", dump["hang"]["cause"])

    def test_whoever_waits_for_a_mutex_is_said_to_wait_for_the_thread_that_has_it(self):
        for ruby in self.rubies:
            for dump in self.both(ruby, "queue"):

                def waiters(dump=dump):
                    looked = dump()
                    waits = [t["wait"] for t in looked.threads.values() if t.get("wait", {}).get("lockKind") == "Thread::Mutex"]
                    return (looked, waits) if len(waits) == 4 else None

                looked, waits = eventually("four wait", waiters)
                self.assertEqual({looked.named("keeper")}, {wait.get("ownerTid") for wait in waits})

    def test_whoever_waits_for_the_gvl_is_said_to_wait_for_its_holder(self):
        for ruby in self.rubies:
            for dump in self.both(ruby, "compute")[:1]:

                def waiters(dump=dump):
                    looked = dump()
                    waits = [t["wait"] for t in looked.threads.values() if t.get("wait", {}).get("kind") == "GIL"]
                    owned = [wait for wait in waits if wait.get("ownerTid")]
                    return (looked, owned) if owned else None

                looked, waits = eventually("threads wait for the GVL", waiters)
                self.assertEqual({"the GVL"}, {wait.get("lockKind") for wait in waits})
                owner = looked.threads[waits[0]["ownerTid"]]
                self.assertTrue(owner["name"].startswith("computes"), owner["name"])


class HarmlessTest(RubyTest):
    limit_s = 300 + 4 * tier.CHURN_S

    def test_dumps_under_churn_are_whole_and_change_nothing(self):
        """While methods, threads, fibers and garbage come and go: no frame that cannot be, and every result right."""
        known = {"recurse", "make_methods", "make_garbage", "make_fibers", "make_threads", "work", "<main>", "<compiled>"}
        known |= {f"made_{thread}_{number}" for thread in range(3) for number in range(50)}
        daemon = self.start_daemon()
        for ruby in self.rubies:
            victim = self.start(ruby, PROGRAMS / "churn.rb", stdin="")
            name = daemon.await_process(victim.pid)["name"]
            stacks = 0
            until = time.monotonic() + tier.CHURN_S / 4
            while time.monotonic() < until or stacks <= ENOUGH_STACKS:
                for look in (daemon.dump(name), Outside().dump(victim.pid)):
                    for tid in look.threads:
                        lines = ruby_lines(look, tid)
                        strange = [line for line in lines if re.sub(r"^block( \(\d levels\))? in ", "", line.label) not in known]
                        self.assertFalse(strange)
                        stacks += bool(lines)
            victim.process.stdin.close()
            victim.read_until("well")
            self.assertEqual(0, victim.process.wait(60))
            self.say(ruby, f"{stacks} stacks under churn, all whole")


class CrashTest(RubyTest):

    def test_a_crash_has_the_methods_that_it_went_through(self):
        daemon = self.start_daemon()
        for ruby in self.rubies:
            ending = run_to_end([ruby.command[0], "--disable-gems", CALLS, "calls", "ABRT"], self.dir / str(ruby), environment(self.dir))
            self.assertEqual(signal.SIGABRT, ending.signal, ending.err)
            lines = ruby_lines(crash_of(daemon, ending.pid), ending.pid)
            finish = Line("finish", str(CALLS), self.line_in("Process.kill(ARGV[1], Process.pid)"))
            self.assert_lines(ruby, [finish, *own_lines(ending.out.decode().split("ready\n")[0])], lines)


if __name__ == "__main__":
    unittest.main()
