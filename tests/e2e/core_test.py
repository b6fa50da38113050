"""stackctl dump --core: a process that has ended is shown as gdb shows it, and as stackd showed it while it lived.

    core: double_free              HEAP_CORRUPTION        12 of  12 frames as gdb has them
"""

import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
import unittest

import pytest

import crash_core
import go_programs
import oracle
import servers
from crash_victims_test import C_DEATHS, CPP_DEATHS
from crashes import CrashTest, crash_of, environment, leaves_cores, run_to_end
from gdb_comparison import EXPLAINED, Context, aliases_in
from harness import LIMIT_S, NOT_FOUND, OK, PARTIAL, PROGRAMS, ROOT, STACKCTL, USAGE, Dump, Outcome, StackdTest, eventually
from outside import Outside
from python_test import python_lines
from secrets_test import SecretsBase

WRITE = "1"
HANGS = PROGRAMS.parent / "hangs"
MOST_FRAMES = 400
# One of each kind by default; the others are as thorough as crash_victims_test.
USUAL_DEATHS = {"null_pointer", "double_free", "sent_by_another", "uncaught"}
PT_LOAD, PT_NOTE, PAGE_BYTES = 1, 4, 4096


def dump_core(core, *args):
    done = subprocess.run([STACKCTL, "dump", "--core", core, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def read_core(core, *args, allowed=(OK,)):
    outcome = dump_core(core, *args, "-o", "json")
    if outcome.code not in allowed:
        raise AssertionError(f"stackctl dump --core {core} {args} ended with {outcome.code}: {outcome.err}")
    return Dump(json.loads(outcome.out))


def eu_stack(program, core):
    """{tid: [function, of each frame that is not inlined]}"""
    text = subprocess.run(["eu-stack", "-e", program, f"--core={core}"], capture_output=True, text=True).stdout
    threads = {}
    for line in text.splitlines():
        if line.startswith("TID "):
            names = threads[int(line.split()[1].rstrip(":"))] = []
        elif line.startswith("#"):
            names.append(re.sub(r"^#\d+\s+0x[0-9a-f]+( - 1)?\s*", "", line).strip())
    return threads


def places(dump, tid):
    return [(frame.get("function", ""), frame.get("file", ""), frame.get("line", 0), frame.get("moduleOffset", ""))
            for frame in dump.frames(tid)]


class CoreTest(StackdTest):

    def core_of(self, victim):
        """The core of a process that lives on."""
        subprocess.run(["gcore", "-o", str(self.dir / "core"), str(victim.pid)], capture_output=True, check=True,
                       timeout=LIMIT_S)
        return self.dir / f"core.{victim.pid}"


@unittest.skipUnless(shutil.which("gcore"), "needs gcore")
def system_call_of(pid):
    """The number of the one that its first thread sleeps in, or "running"."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0]


class CoreOfALivingProcessTest(CoreTest):
    """gcore's core says what a dump of the process said a moment before."""

    def compare(self, live, core, threads):
        """Each thread is where it was; read asleep, a stack may have ended early."""
        self.assertEqual(set(live.threads), set(core.threads))
        compared = 0
        for tid in live.threads:
            before, after = places(live, tid), places(core, tid)
            if (live.stack(tid) or {}).get("end") == "UNKNOWN_REGISTER":
                after = after[:len(before)]
            self.assertEqual(before, after, f"thread {tid}")
            compared += 1
        self.assertGreaterEqual(compared, threads)

    def test_of_c_as_gdb_and_eu_stack_have_it(self):
        victim = self.start_victim("c_calls", preload=False)
        live = Outside().dump(victim.pid)
        core_file = self.core_of(victim)
        core = read_core(core_file)
        self.compare(live, core, 7)
        self.assertNotIn("crash", core.resource)
        self.assertFalse(core.resource.get("stored"))
        theirs = oracle.of_gdb_core(PROGRAMS / "c_calls", core_file, MOST_FRAMES)
        unexplained = []
        for tid, frames in theirs.items():
            ours = oracle.of_stackd(core, tid)
            context = Context(victim.pid, ours, frames, None, core.stack(tid).get("end"))
            unexplained += [str(difference) for difference in oracle.compare(tid, ours, frames, aliases_in(victim.pid))
                            if not any(applies(difference, context) for _, applies in EXPLAINED)]
        self.assertFalse(unexplained, "\n".join(unexplained[:20]))
        counts = {tid: sum(not frame.inlined for frame in oracle.of_stackd(core, tid)) for tid in core.threads}
        self.assertEqual({tid: len(names) for tid, names in eu_stack(PROGRAMS / "c_calls", core_file).items()}, counts)

    def test_of_a_static_program(self):
        victim = self.start_victim("static_pie", preload=False)
        eventually("its first thread has said so, and sleeps", lambda: system_call_of(victim.pid) not in ("running", WRITE))
        live = Outside().dump(victim.pid)
        self.compare(live, read_core(self.core_of(victim)), 5)

    def test_of_python(self):
        victim = servers.python3(self.dir)
        self.addCleanup(victim.kill)
        live = Outside().dump(victim.pid)
        core = read_core(self.core_of(victim))
        self.compare(live, core, 9)
        compared = sum(bool(python_lines(core, tid)) and python_lines(live, tid) == python_lines(core, tid)
                       for tid in live.threads)
        self.assertGreaterEqual(compared, 9)
        self.assertEqual(live.resource["runtimes"], core.resource["runtimes"])

    def test_of_a_deadlock(self):
        victim = self.start_victim(HANGS / "hang_mutex", "cycle_2", preload=False)
        live = Outside().dump(victim.pid)
        core = read_core(self.core_of(victim))

        def circles(dump):
            """Who waits for whom, and for what; a core has no names of threads."""
            return sorted((edge["waiterTid"], edge["ownerTid"], edge["lock"]) for finding in dump.resource["findings"]
                          if finding["kind"] == "DEADLOCK" for edge in finding["edges"])

        self.assertTrue(circles(live), live.resource["findings"])
        self.assertEqual(circles(live), circles(core))

    def test_in_each_format(self):
        core = self.core_of(self.start_victim("c_calls", preload=False))
        self.assertRegex(dump_core(core).out, r"c_calls \(pid \d+\): 7 threads, all captured, in [\d.]+ ms\n")
        self.assertIn(";recurse;", dump_core(core, "-f", "folded").out)
        self.assertIn("threads", json.loads(dump_core(core, "-f", "json").out))
        self.assertEqual(1, dump_core(core, "--all").out.count("through_recursion at c_calls.c"))


@pytest.mark.thorough
@unittest.skipUnless(shutil.which("gcore"), "needs gcore")
class CoreOfARuntimeTest(CoreTest):
    """What runtimes keep in memory is read as while the process lived."""

    limit_s = 300

    def check(self, language, victim, threads):
        live = Outside().dump(victim.pid)
        core = read_core(self.core_of(victim))
        self.assertEqual(live.resource["runtimes"], core.resource["runtimes"])
        compared = 0
        for tid in live.threads:
            before, after = ([place for place, frame in zip(places(dump, tid), dump.frames(tid), strict=True)
                              if frame.get("language") == language] for dump in (live, core))
            self.assertEqual(before, after, f"thread {tid}")
            compared += bool(before)
        self.assertGreaterEqual(compared, threads)
        return live, core

    @unittest.skipUnless(shutil.which("node"), "needs Node.js")
    def test_of_node(self):
        program = self.dir / "waits.js"
        program.write_text(servers.NODE_PROGRAM)
        self.check("JAVASCRIPT", self.start_victim(shutil.which("node"), program, preload=False), 2)

    @unittest.skipUnless(shutil.which("java"), "needs Java")
    def test_of_java(self):
        program = ROOT / "tests/programs/CrossedLocks.java"
        victim = self.start_victim(shutil.which("java"), "-Xmx64m", program, preload=False)
        live, core = self.check("JAVA", victim, 2)
        self.assertEqual(*([finding["edges"] for finding in dump.resource["findings"] if finding["kind"] == "DEADLOCK"]
                           for dump in (live, core)))

    @unittest.skipUnless(go_programs.toolchains(), "needs Go")
    def test_of_go(self):
        program = go_programs.kept(go_programs.toolchains()[-1][0], "states")
        victim = self.start_victim(program, preload=False, stdin="")
        # The second collection of garbage notes since when goroutines wait: the first.
        for _ in range(2):
            victim.ask("collect")

        def waited(dump):
            return sum("waitDuration" in task for task in dump.resource["tasks"])

        live, core = self.check("GO", victim, 0)
        before, after = go_programs.goroutines_of(live), go_programs.goroutines_of(core)
        self.assertGreater(len(before), 5)
        self.assertEqual(before, after)
        self.assertGreater(waited(live), 0)
        self.assertEqual(0, waited(core), "the clock of a core stands")


@unittest.skipUnless(leaves_cores(), "needs cores in the folder of the process")
class CoreOfACrashTest(CrashTest):
    """The kernel's core is explained as the agent's record of the same death."""

    def die(self, program, *words, **kwargs):
        ending = run_to_end([program, *words], self.dir / "-".join(map(str, words)), environment(**kwargs))
        self.assertTrue(ending.has_core, ending.manner)
        return self.dir / "-".join(map(str, words)) / "core"

    def check(self, death, program):
        core = self.die(program, death.name)
        dump = read_core(core)
        crash = dump.resource["crash"]
        self.assertEqual((death.cause, death.signal, death.code),
                         (crash.get("cause"), crash.get("signalName"), crash.get("codeName")), crash)
        self.assertRegex(crash["explanation"].lower(), death.says.lower())
        self.assertTrue(re.search(death.message, crash.get("abortMessage", "")), crash)
        self.assertEqual("CRASH", dump.resource["trigger"])
        theirs = crash_core.frames_of_core(program, core, crash["tid"])
        result = crash_core.compare(dump, crash["tid"], theirs, death.frames)
        print(f"core: {death.name:<32} {crash['cause']:<22} {result.exact:>3} of {result.frames:>3} frames as gdb has them",
              file=sys.stderr)
        self.assertFalse(result.unexplained, "\n".join(result.unexplained[:20]))
        core.unlink()

    def check_all(self, usual):
        for deaths, program in ((C_DEATHS, "crash_deaths"), (CPP_DEATHS, "crash_cpp")):
            for death in deaths:
                if (death.name in USUAL_DEATHS) == usual:
                    with self.subTest(death=death.name):
                        self.check(death, PROGRAMS / program)

    def test_usual_deaths(self):
        self.check_all(usual=True)

    @pytest.mark.thorough
    def test_all_other_deaths(self):
        self.check_all(usual=False)

    def test_it_is_in_the_same_group_as_the_crash_that_the_agent_recorded(self):
        daemon = self.start_daemon()
        folder = self.dir / "both"
        ending = run_to_end([PROGRAMS / "crash_deaths", "call_abort", "await"], folder, environment(self.dir))
        recorded = crash_of(daemon, ending.pid)
        core = read_core(folder / "core")
        for field in ("fingerprint", "explanation", "cause", "tid"):
            self.assertEqual(recorded.resource["crash"][field], core.resource["crash"][field])
        self.assertLessEqual(set(core.threads), set(recorded.threads))

    def test_the_middle_of_a_long_stack_is_left_out(self):
        dump = read_core(self.die(PROGRAMS / "crash_cpp", "overflow"))
        tid = dump.resource["crash"]["tid"]
        self.assertEqual("STACK_OVERFLOW", dump.resource["crash"]["cause"])
        self.assertIn("main", dump.functions(tid))


@unittest.skipUnless(shutil.which("gcore"), "needs gcore")
class CoreAndItsFilesTest(CoreTest):
    """Code comes out of files that are the ones that ran, and of no other."""

    def setUp(self):
        super().setUp()
        self.program = self.dir / "runs"
        shutil.copy(PROGRAMS / "c_calls", self.program)
        victim = self.start_victim(self.program, preload=False)
        self.whole = Outside().dump(victim.pid)
        self.core = self.core_of(victim)
        victim.kill()

    def functions(self, dump):
        return [dump.functions(tid) for tid in dump.threads]

    def notes(self, dump):
        return [note for note in dump.notes if str(self.program) in note]

    def test_a_program_that_has_gone_is_named_and_can_be_given(self):
        self.program.rename(self.dir / "elsewhere")
        dump = read_core(self.core)
        self.assertRegex(self.notes(dump)[0], r"is not here, .*build-id [0-9a-f]{40}.*--exe FILE")
        self.assertNotIn("recurse", str(self.functions(dump)))
        given = read_core(self.core, "--exe", self.dir / "elsewhere")
        self.assertEqual(self.functions(self.whole), self.functions(given))
        self.assertFalse(self.notes(given))

    def test_another_build_is_not_believed(self):
        ran = self.program.read_bytes()
        self.program.unlink()
        shutil.copy(PROGRAMS / "cpp_calls", self.program)
        self.assertRegex(self.notes(read_core(self.core))[0], r"is another build than the one that ran.*--exe FILE")
        # The same but for its build-id.
        self.program.write_bytes(ran.replace(build_id_of(ran), bytes(20)))
        dump = read_core(self.core)
        self.assertIn("is another build than the one that ran", self.notes(dump)[0])
        self.assertNotIn("recurse", str(self.functions(dump)))

    def test_another_program_is_refused(self):
        refused = dump_core(self.core, "--exe", PROGRAMS / "cpp_calls")
        self.assertEqual((USAGE, ""), (refused.code, refused.out))
        self.assertRegex(refused.err, r"cpp_calls is another build than the one that ran: its build-id is \w{40}, that one's \w{40}")
        self.assertEqual(NOT_FOUND, dump_core(self.core, "--exe", self.dir / "nowhere").code)
        self.assertEqual(NOT_FOUND, dump_core(self.dir / "nowhere").code)

    def test_a_core_that_is_cut_says_so(self):
        size = self.core.stat().st_size
        headers = self.core.read_bytes()[:PAGE_BYTES]
        # gdb writes notes last; a kernel's come first, and so do these.
        cut = self.dir / "cut"
        cut.write_bytes(notes_first(self.core.read_bytes())[:size // 2])
        outcome = dump_core(cut)
        self.assertEqual(PARTIAL, outcome.code, outcome.err)
        self.assertRegex(outcome.err, r"the core file is cut: \d+ of \d+ bytes are there")
        self.assertIn("7 threads", outcome.out)
        cut.write_bytes(headers)
        self.assertEqual(USAGE, dump_core(cut).code)

    def test_what_is_no_core_is_refused(self):
        for path, why in ((self.program, "is no core file"), (self.dir, "is no regular file")):
            refused = dump_core(path)
            self.assertIn(why, refused.err)
            self.assertEqual("", refused.out)
        mistaken = dump_core(self.core, "--pid", 1)
        self.assertEqual(USAGE, mistaken.code)


def build_id_of(elf):
    return re.search(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", elf, re.S).group(1)


def notes_first(core):
    """The same core with its notes in front of all memory."""
    table, count = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    segments = [list(struct.unpack_from("<IIQQQQQQ", core, table + 56 * i)) for i in range(count)]
    at, contents = 64 + 56 * count, b""
    for segment in sorted(segments, key=lambda segment: segment[0] != PT_NOTE):
        there = core[segment[2]:segment[2] + segment[5]]
        segment[2] = at + len(contents)
        contents += there
    header = core[:32] + struct.pack("<QQ", 64, 0) + core[48:60] + struct.pack("<HH", 0, 0)
    return header + b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments) + contents


def note(kind, says):
    return struct.pack("<III", 5, len(says), kind) + b"CORE\0\0\0\0" + says + bytes(-len(says) % 4)


def thread(tid):
    return note(1, bytes(32) + struct.pack("<i", tid) + bytes(76) + struct.pack("<27Q", *[0x7F0000001000] * 27) + bytes(8))


def made_up_core(path, notes, segments):
    """`segments`: so many, each of a page that is not there; more than 65,534 are counted elsewhere."""
    count = segments + 1
    table = b"".join(struct.pack("<IIQQQQQQ", PT_LOAD, 6, 0, 0x10000 + 2 * PAGE_BYTES * i, 0, 0, PAGE_BYTES, PAGE_BYTES)
                     for i in range(segments))
    start = 64 + 56 * count
    section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, count, 0, 0)
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, start + len(notes), 0, 64, 56,
                                                           min(count, 0xFFFF), 64, 1, 0)
    path.write_bytes(header + struct.pack("<IIQQQQQQ", PT_NOTE, 0, start, 0, 0, len(notes), 0, 4) + table + notes + section)


@unittest.skipUnless(shutil.which("gcore"), "needs gcore")
class CoreKeepsSecretsTest(SecretsBase, CoreTest):
    """The core has all memory. What is shown of it has no data of the program."""

    def test_in_no_format(self):
        victim = self.start_victim("secrets", preload=False, stdin=f"{self.text}\n{self.number:x}\n")
        core = self.core_of(victim)
        content = core.read_bytes()
        self.assertTrue(self.text.encode() in content and self.number.to_bytes(8, "little") in content)
        for arguments in ([], ["--all"], ["-f", "json"], ["-f", "folded"], ["--native-only"]):
            outcome = dump_core(core, *arguments)
            self.assertIn("keep_on_stack", outcome.out)
            self.assert_absent(f"the output of {arguments}", (outcome.out + outcome.err).encode())


class HostileCoreTest(StackdTest):
    """What lies costs bounded time and memory."""

    limit_s = 60
    most_bytes = 2 << 30

    def read(self, notes, segments=0, allowed=(OK, PARTIAL)):
        path = self.dir / "core"
        made_up_core(path, notes, segments)
        begin = time.monotonic()
        done = subprocess.run([STACKCTL, "dump", "--core", path, "-o", "json"], capture_output=True, text=True, timeout=self.limit_s,
                              check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (self.most_bytes,) * 2))
        self.assertIn(done.returncode, allowed, done.stderr)
        print(f"core: {time.monotonic() - begin:.1f} s for {segments} segments, {len(notes)} bytes of notes", file=sys.stderr)
        return Dump(json.loads(done.stdout)) if done.stdout else None

    def test_more_segments_than_an_elf_header_can_count(self):
        self.assertEqual({7}, set(self.read(thread(7), 70_000).threads))

    @pytest.mark.thorough
    def test_a_million_segments(self):
        self.assertEqual({7}, set(self.read(thread(7), 1_000_000).threads))

    @pytest.mark.thorough
    def test_two_million_notes(self):
        dump = self.read(thread(7) + struct.pack("<III", 0, 0, 1) * 2_500_000)
        self.assertIn("more notes than are read", "\n".join(dump.notes))

    @pytest.mark.thorough
    def test_a_hundred_thousand_threads(self):
        dump = self.read(b"".join(thread(tid) for tid in range(1, 120_001)))
        self.assertEqual(100_000, len(dump.threads))
        self.assertIn("20000 threads", "\n".join(dump.notes))

    def test_files_that_are_devices_and_pipes(self):
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        paths = [b"/dev/zero", b"/dev/kmsg", bytes(pipe), b"/proc/self/mem", b"relative", b"", b"/srv/a\nb", b"/\xff"]
        listed = b"".join(struct.pack("<QQQ", 0x10000 + 2 * PAGE_BYTES * i, 0x11000 + 2 * PAGE_BYTES * i, 0)
                          for i in range(len(paths)))
        files = note(0x46494C45, struct.pack("<QQ", len(paths), PAGE_BYTES) + listed + b"".join(p + b"\0" for p in paths))
        self.assertEqual({7}, set(self.read(thread(7) + files, len(paths)).threads))


if __name__ == "__main__":
    unittest.main()
