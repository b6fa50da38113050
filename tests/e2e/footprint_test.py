"""The system calls that the agent adds to a program, compared with the table of agent/README.md, by strace.

    footprint: start, without a daemon       21 kinds of calls, 98 calls

Each row is what a program (footprint.c) makes with the agent, less what it makes without. Of a start, which loads it, less what
it makes with an agent that is switched off.
"""

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from harness import AGENT, PROGRAMS, ROOT, StackdTest, eventually

NOTHING = ["/bin/true"]
# dash makes a process of its own for what stands in brackets, and waits for it.
FORKS = ["/bin/sh", "-c", "(:) ; :"]
CALL = re.compile(r"^(\w+)\(", re.MULTILINE)

# row: what footprint.c does, of which the calls between its marks count
BETWEEN_MARKS = {
    "fork": "fork",
    "first thread": "first_thread",
    "next thread": "next_thread",
    "first heartbeat": "heartbeat",
    "call for a dump of itself that does not wait": "dump_of_itself",
    "idle": "idle",
    "`sigaction` for a signal that the agent has": "sigaction",
    "`close`": "close",
    "change of rights, the first": "first_rights",
    "change of rights, a later one": "next_rights",
    "change of rights, beside the helper": "rights_beside_the_helper",
    "filter of system calls": "filter",
    "`sigaction` after a filter": "after_filter",
    "exec": "exec",
    "exit": "exit",
}
LATER = {False: "`close`, a second later, without a daemon", True: "`close`, a second later, with a daemon"}
OTHERS = {"start, without a daemon", "start, with a daemon", "forked child, without a daemon", "forked child, with a daemon",
          "thread's begin and end", "dump", "crash"}


def section(heading):
    return (ROOT / "agent/README.md").read_text().split(f"## {heading}", 1)[1].split("\n## ", 1)[0]


def names_in(text):
    return set(re.findall(r"`([a-z0-9_]+)`", text))


def table():
    """{when: (calls that are always made, calls that may be made, how many at most)}; names in brackets are of those that may be."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|", section("What the agent does in a process"), re.MULTILINE)
    found = {}
    for when, calls, number in rows[1:]:
        sometimes = names_in(" ".join(re.findall(r"\([^)]*\)", calls)))
        found[when.strip()] = names_in(re.sub(r"\([^)]*\)", "", calls)), sometimes, int(number) if number.strip() else None
    return found


def handler_calls(handler):
    """All calls that the table of handlers has for this one."""
    calls = set()
    current = None
    for name, listed in re.findall(r"^\| *([a-z]*) *\| [^|]+ \| ([^|]+) \|", section("What the handlers may do"), re.MULTILINE):
        current = name or current
        if current == handler:
            calls |= set(" ".join(re.findall(r"`([^`]+)`", listed)).split())
            if "those of a dump" in listed:
                calls |= handler_calls("dump")
    return calls


@unittest.skipUnless(shutil.which("strace"), "there is no strace")
class FootprintTest(StackdTest):

    def traces(self, command, directory, status=0, **environment):
        """Text of the trace of each thread, the first one's first."""
        folder = self.dir / "traces"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(AGENT), "STACKD_DIR": str(directory), **environment}
        done = subprocess.run(["strace", "-ff", "-o", folder / "of", *[word for pair in env.items() for word in ("-E", "=".join(pair))],
                               *command], check=False, stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]})
        self.assertEqual(status, done.returncode)
        # What is forked or cloned has not begun with this. The others in the order in which they came.
        return sorted((trace.read_text() for trace in sorted(folder.iterdir(), key=lambda path: int(path.suffix[1:]))),
                      key=lambda text: not text.startswith("execve("))

    def added(self, texts, texts_off):
        """Counts of what is in one and not in the other."""
        return collections.Counter(CALL.findall(texts)) - collections.Counter(CALL.findall(texts_off))

    def judge(self, when, added, may_be_less=False):
        always, sometimes, most = table()[when]
        print(f"footprint: {when:45} {len(added)} kinds of calls, {sum(added.values())} calls: {' '.join(sorted(added))}", file=sys.stderr)
        self.assertLessEqual(set(added), always | sometimes, when)
        if most is not None:
            self.assertLessEqual(sum(added.values()), most, when)
        if not may_be_less:
            self.assertLessEqual(always, set(added), when)

    def check_process(self, when, command, process, directory):
        off = self.traces(command, directory, STACKD_DISABLE="1")[process]
        self.judge(when, self.added(self.traces(command, directory)[process], off))

    def test_start_and_fork(self):
        daemon = self.start_daemon()
        for name, directory in (("without a daemon", self.dir / "none"), ("with a daemon", daemon.dir)):
            with self.subTest(name):
                self.check_process(f"start, {name}", NOTHING, 0, directory)
                self.check_process(f"forked child, {name}", FORKS, 1, directory)

    def between_marks(self, what, directory, **environment):
        text = self.traces([PROGRAMS / "footprint", what], directory, **environment)[0]
        self.assertIn('"begin"', text)
        # A new program, or an end, where there is no second mark.
        return re.split(r'(?m)^write\(-1, "end"|^execve\(', re.split(r'(?m)^write\(-1, "begin".*$', text)[1])[0]

    def marked(self, what, directory):
        return self.added(self.between_marks(what, directory), self.between_marks(what, directory, LD_PRELOAD=""))

    def test_what_a_program_does(self):
        daemon = self.start_daemon()
        for when, what in BETWEEN_MARKS.items():
            with self.subTest(when):
                self.judge(when, self.marked(what, daemon.dir))
                self.judge(when, self.marked(what, self.dir / "none"), may_be_less=True)
        for with_daemon, when in LATER.items():
            with self.subTest(when):
                self.judge(when, self.marked("close_later", daemon.dir if with_daemon else self.dir / "none"))

    def test_a_thread(self):
        daemon = self.start_daemon()
        command = [PROGRAMS / "footprint", "next_thread"]
        # The agent's own thread is named; of the two of the program the second is what counts.
        of_threads = [[text for text in self.traces(command, daemon.dir, **how) if '"stackd-agent"' not in text]
                      for how in ({}, {"LD_PRELOAD": ""})]
        self.assertEqual([3, 3], [len(texts) for texts in of_threads])
        self.judge("thread's begin and end", self.added(of_threads[0][2], of_threads[1][2]))

    def test_a_crash(self):
        daemon = self.start_daemon()
        texts = self.traces([PROGRAMS / "footprint", "crash"], daemon.dir, status=-signal.SIGSEGV)
        calls = set(CALL.findall(texts[0].split("--- SIGSEGV", 1)[1]))
        print(f"footprint: crash: {' '.join(sorted(calls))}", file=sys.stderr)
        self.assertLessEqual({"sendto", "ppoll"}, calls)
        self.assertLessEqual(calls, handler_calls("crash"))

    def test_a_dump(self):
        daemon = self.start_daemon()
        trace = self.dir / "trace"
        environment = [f"LD_PRELOAD={AGENT}", f"STACKD_DIR={daemon.dir}"]
        process = subprocess.Popen(["strace", "-f", "-o", trace, *[word for pair in environment for word in ("-E", pair)],
                                    PROGRAMS / "waiting_threads", "3"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   start_new_session=True)

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        self.addCleanup(end)
        pid = eventually("it is listed", lambda: [one["pid"] for one in daemon.processes()])[0]
        dump = daemon.dump(pid, "--quiet", "never")
        signalled = [tid for tid, thread in dump.threads.items() if dump.status(tid) == "CAPTURED" and not thread.get("isAgent")]
        self.assertTrue(signalled)
        os.kill(pid, signal.SIGKILL)
        process.wait()
        lines = [line.split(None, 1) for line in trace.read_text().splitlines()]
        for tid in signalled:
            text = "\n".join(rest for number, rest in lines if int(number) == tid)
            handler = re.split(r"(?m)^--- SIGRT", text)[1].split("rt_sigreturn(", 1)[0]
            calls = set(CALL.findall(handler.split("\n", 1)[1]))
            self.assertTrue(calls)
            self.assertLessEqual(calls, handler_calls("dump"))

    def test_no_row_is_left_out(self):
        self.assertEqual(set(table()), OTHERS | set(BETWEEN_MARKS) | set(LATER.values()))


if __name__ == "__main__":
    unittest.main()
