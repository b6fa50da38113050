"""One command several times, alone and under the agent, and what can be told of it from outside. That is its end, its output,
and the privileges of each of its threads while it runs."""

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from harness import AGENT, LIMIT_S, OK, PARTIAL, NOT_FOUND, StackdTest, die_with_parent, eventually

HERE = pathlib.Path(__file__).resolve().parent
DUMPS_A_SECOND = 10
# Between two looks for the first process to dump: some programs last for a twentieth of a second.
LOOK_S = 0.01
AGENT_THREAD = "stackd-agent"
# A program that lasts for milliseconds may have ended whenever its turn to be dumped comes.
MOST_REPEATS = 25
# By when each process of a program that waits is where it was in the run alone.
SETTLE_S = 20
ALONE, NO_DAEMON, DAEMON, DUMPS = "alone", "no daemon", "a daemon", "ten dumps a second"

# Which rights a thread has. Each of the sets of capabilities is a bit mask.
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_RIGHTS = ("Uid", "Gid", "Groups", *_CAPABILITIES, "NoNewPrivs", "Seccomp", "Seccomp_filters")


class Dumping:
    """Dumps the connected processes of a daemon in turn, ten times a second, until it is stopped."""

    def __init__(self, daemon):
        self.stackd = daemon
        self.over = threading.Event()
        self.rounds = 0
        self.taken = collections.Counter()
        self.failures = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        due = time.monotonic()
        while not self.over.is_set():
            processes = self.stackd.processes()
            for process in processes:
                if self.over.is_set():
                    return
                outcome = self.stackd.ctl("dump", process["name"])
                # Not found: it ended between the list and the dump.
                if outcome.code in (OK, PARTIAL):
                    self.taken[process.get("pid")] += 1
                elif outcome.code != NOT_FOUND:
                    self.failures.append(outcome.text)
                due = max(due + 1 / DUMPS_A_SECOND, time.monotonic() - 1)
                self.over.wait(max(0, due - time.monotonic()))
            self.rounds += 1
            if not processes:
                self.over.wait(LOOK_S)

    def await_rounds(self, count):
        end = self.rounds + count + 1
        eventually("each process was dumped again", lambda: self.rounds >= end or not self.thread.is_alive())

    def stop(self):
        self.over.set()
        self.thread.join()


def children(pid):
    with contextlib.suppress(OSError):
        return [int(child) for task in os.listdir(f"/proc/{pid}/task")
                for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return []


def descendants(pid):
    found = children(pid)
    return found + [further for child in found for further in descendants(child)]


def rights(task):
    """Rights of one thread, as status says."""
    fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
    return fields["Name"], tuple((name, fields[name].strip()) for name in _RIGHTS)


def has_no_more(one, other):
    """Whether a thread with the rights `one` may do nothing that one with `other` may not."""
    one, other = dict(one), dict(other)
    fewer = all(int(one[name], 16) & ~int(other[name], 16) == 0 for name in _CAPABILITIES)
    stricter = all(int(one[name]) >= int(other[name]) for name in ("NoNewPrivs", "Seccomp", "Seccomp_filters"))
    return fewer and stricter and all(one[name] == other[name] for name in ("Uid", "Gid", "Groups"))


def privileges(pid):
    """(what the program's threads may do: {(name of the process, rights)}, where an agent's thread may do more: its rights and
    the program's). For all processes below this one."""
    found, beyond = set(), []
    for process in descendants(pid):
        with contextlib.suppress(OSError):
            name = pathlib.Path(f"/proc/{process}/comm").read_text().strip()
            threads = [rights(task) for task in pathlib.Path(f"/proc/{process}/task").iterdir()]
            own = {its_rights for thread, its_rights in threads if thread != AGENT_THREAD}
            found |= {(name, its_rights) for its_rights in own}
            for thread, its_rights in threads:
                if thread == AGENT_THREAD and not any(has_no_more(its_rights, other) for other in own):
                    beyond += [(f"agent of {name}", its_rights), *((name, other) for other in own)]
    return found, beyond


def in_words(found):
    return [name + ": " + ", ".join(f"{field} {' '.join(value.split())}" for field, value in its_rights)
            for name, its_rights in sorted(found)]


def without_numbers(text):
    """A log in which pids, times and ports differ from run to run, and the order of what several processes say."""
    return "\n".join(sorted({re.sub(r"\d+", "N", line) for line in text.splitlines()}))


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@dataclasses.dataclass
class End:
    """All that counts of one run. What a test adds as it goes, the answers of a server, is in `notes`."""

    status: int
    out: str
    err: str
    notes: list


class Run:
    """A command that runs, and all that it starts: ended with it. `expected` privileges are those of the run alone."""

    def __init__(self, test, command, kind, expected):
        self.test, self.kind, self.expected = test, kind, expected
        self.work = test.work
        self.notes = []
        self.seen = None
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.work),
                       "LANG": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "USER": "root", "LOGNAME": "root", **test.environment}
        under = []
        if kind != ALONE:
            directory = test.dir / "absent" if kind == NO_DAEMON else test.daemon_dir
            # Through env(1): the reaper, which is no part of it, has no agent.
            under = ["env", f"LD_PRELOAD={test.agent}", f"STACKD_DIR={directory}"]
        self.out_path, self.err_path = test.dir / "out", test.dir / "err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(HERE / "reaper.py"), str(test.run_limit_s), *under, *map(str, command)],
                stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment, cwd=self.work, preexec_fn=die_with_parent)
        self.dumping = Dumping(test.stackd) if kind == DUMPS else None

    @property
    def out(self):
        return self.out_path.read_text(errors="replace")

    @property
    def err(self):
        return self.err_path.read_text(errors="replace")

    def note(self, what):
        """What must be the same in all runs."""
        self.notes.append(what)

    def await_true(self, what, condition):
        def ask():
            if self.process.poll() is not None and not condition():
                raise AssertionError(f"it ended before: {what}: {self.out[-2000:]} {self.err[-2000:]}")
            return condition()

        eventually(what, ask)

    def await_text(self, text):
        self.await_true(f"it says {text!r}", lambda: text in self.out or text in self.err)

    def send(self, text):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def pids(self, name=None):
        """Pids of all processes, or of those with this name. The first is the command's."""
        return [pid for pid in descendants(self.process.pid) if name in (None, self.name_of(pid))]

    @staticmethod
    def name_of(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        return None

    def hold_still(self):
        """To be called while nothing changes: compares privileges, and lets each process be dumped some times."""
        if self.expected is None:
            self.seen = self.settled()
        else:
            self.compare()
        if self.dumping:
            self.dumping.await_rounds(3)
            self.compare()

    def settled(self):
        before = None
        while (now := privileges(self.process.pid)[0]) != before:
            before = now
            time.sleep(0.1)
        return now

    def compare(self):
        end = time.monotonic() + SETTLE_S
        while True:
            found, beyond = privileges(self.process.pid)
            if (found == self.expected and not beyond) or time.monotonic() > end or self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.test.assertEqual(in_words(self.expected), in_words(found), f"privileges with {self.kind}")
        self.test.assertEqual([], in_words(beyond), f"the agent's thread may do more than the program, with {self.kind}")

    def end_main(self, number=signal.SIGTERM):
        """A signal for the command itself."""
        first = children(self.process.pid)
        if first:
            os.kill(first[0], number)

    def finish(self):
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.wait(self.test.run_limit_s + LIMIT_S)
        finally:
            self.kill()
        tidy = self.test.tidy
        return End(self.process.returncode, tidy(self.out), tidy(self.err), self.notes)

    def kill(self):
        if self.dumping:
            self.dumping.stop()
        if self.process.poll() is None:
            # It ends all the others before itself.
            self.process.terminate()
            self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class SideBySideTest(StackdTest):
    """`self.work` is the folder that the command runs in, empty each time."""

    kinds = (ALONE, NO_DAEMON, DAEMON, DUMPS)
    run_limit_s = 120

    def setUp(self):
        super().setUp()
        # For programs that change their user, which may not see the folders above a build.
        self.dir.chmod(0o755)
        self.agent = self.dir / AGENT.name
        shutil.copy(AGENT, self.agent)
        self.agent.chmod(0o755)
        self.work = self.dir / "work"
        self.daemon_dir = self.dir / "stackd"
        self.stackd = None
        self.environment = {}
        self.tidy = lambda text: text

    def need(self, *programs):
        for program in programs:
            if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/games") is None:
                self.skipTest(f"no {program}: deploy/install-deps.sh --tests installs it")

    def side_by_side(self, command, *, during=None, prepare=None, dumped=False, repeats=1, at_least_s=0):
        """Runs `command`, a list or what gives one, in each kind; `during(run)` goes with it, `prepare()` fills the folder
        before. While it is dumped it runs `repeats` times and for `at_least_s`, and with `dumped` again until a dump was taken.
        Returns the End without the agent."""
        alone, expected, taken = None, None, 0
        for kind in self.kinds:
            if kind in (DAEMON, DUMPS) and self.stackd is None:
                self.daemon_dir.mkdir()
                self.daemon_dir.chmod(0o755)
                self.stackd = self.start_daemon(self.daemon_dir)
            until = time.monotonic() + at_least_s
            for turn in itertools.count():
                is_proved = taken or not dumped or turn >= MOST_REPEATS
                if turn and (kind != DUMPS or (turn >= repeats and is_proved and time.monotonic() >= until)):
                    break
                try:
                    end, run = self.one_run(command, kind, expected, during, prepare)
                    if kind == ALONE:
                        alone, expected = end, run.seen
                    self.assertEqual(dataclasses.asdict(alone), dataclasses.asdict(end))
                    if run.dumping:
                        self.assertFalse(run.dumping.failures)
                        taken += run.dumping.taken.total()
                except Exception as error:
                    raise AssertionError(f"with {kind}: {error}") from error
        self.assertTrue(taken or not dumped, "no dump was taken, so nothing is proved")
        return alone

    def one_run(self, command, kind, expected, during, prepare):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        self.work.chmod(0o755)
        if prepare:
            prepare()
        run = Run(self, command() if callable(command) else command, kind, expected)
        self.addCleanup(run.kill)
        if during:
            during(run)
        return run.finish(), run
