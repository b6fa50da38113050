"""A daemon, victims under the agent, and dumps of them: what every end-to-end test is made of.

Nothing here sleeps for "long enough". A victim says when its threads are in place. Whatever else must come true (a socket, a
registration) is asked for again and again until it is so. Only a fault can reach the limit of that.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STACKD_BIN", ROOT / "bazel-bin"))
STACKD = BIN / "daemon/stackd"
STACKCTL = BIN / "client/stackctl"
AGENT = BIN / "agent/libstackd_agent.so"
PROGRAMS = BIN / "tests/programs"

# Longer than anything healthy takes on two busy cores.
LIMIT_S = 60
# How the dumps of a test take stacks where it does not say so: stackctl dump --quiet.
QUIET = os.environ.get("STACKD_TEST_QUIET")

# Exit codes of stackctl.
OK, FAILURE, USAGE, NOT_FOUND, CANNOT_CONNECT, PARTIAL = range(6)


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000  # of waitpid: also for a thread that is not the first of its process


def die_with_parent():
    """For preexec_fn: a test that is killed leaves nothing running."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def eventually(what, condition, limit_s=LIMIT_S):
    """Returns the first true value of condition(); fails with `what` when there is none in time."""
    end = time.monotonic() + limit_s
    pause_s = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)


def accepts(path):
    """Whether a process listens at this Unix socket, of either kind that the daemon has."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            try:
                probe.connect(str(path))
                return True
            except OSError:
                continue
    return False


def task_ids(pid):
    return {int(name) for name in os.listdir(f"/proc/{pid}/task")}


def thread_names(pid):
    names = {}
    for tid in task_ids(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names[tid] = pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
    return names


@contextlib.contextmanager
def agent_held(pid):
    """Stops the agent's thread in a process, and no other: a dump waits for it, since the process is not stopped."""
    tid, = [tid for tid, name in thread_names(pid).items() if name == "stackd-agent"]
    _LIBC.ptrace.argtypes = [ctypes.c_long] * 4
    if _LIBC.ptrace(_PTRACE_SEIZE, tid, 0, 0) != 0 or _LIBC.ptrace(_PTRACE_INTERRUPT, tid, 0, 0) != 0:
        raise AssertionError(f"thread {tid} of {pid} cannot be held")
    os.waitpid(tid, _WALL)
    try:
        yield
    finally:
        _LIBC.ptrace(_PTRACE_DETACH, tid, 0, 0)


@dataclasses.dataclass
class Outcome:
    """What a run of stackctl gave."""

    code: int
    out: str
    err: str

    @property
    def text(self):
        return self.out + self.err


class Daemon:
    """A stackd on a directory of its own. Several in a row may serve one directory: restart()."""

    def __init__(self, directory, *, store=None, port=None, extra_args=(), wrap=(), env=None,
                 stackd=STACKD):
        self.dir = pathlib.Path(directory)
        self.store = pathlib.Path(store) if store else self.dir / "store.db"
        self.port = port or free_port()
        self.extra_args = [str(a) for a in extra_args]
        self.wrap = list(wrap)
        self.env = env
        self.stackd = stackd
        self.log_path = self.dir / "stackd.log"
        self.process = None

    def command(self):
        return [*self.wrap, str(self.stackd), "--dir", str(self.dir), "--listen", f"127.0.0.1:{self.port}", "--store",
                str(self.store), *self.extra_args]

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.env, start_new_session=True, preexec_fn=die_with_parent)

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"stackd ended with {self.process.returncode}:\n{self.log()}")
            return accepts(self.dir / "api.sock") and accepts(self.dir / "stackd.sock")

        eventually("stackd listens on its two sockets", ready)
        return self

    def log(self):
        """The last lines that it wrote, but for the audit of calls: each question of a test is one."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()
        text = "\n".join(line for line in lines if '"msg":"call"' not in line)
        return text if len(text) <= 4000 else text[-4000:].split("\n", 1)[-1]

    def kill(self):
        """As a crash would end it."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("stackd did not end on SIGTERM") from None

    def restart(self):
        self.kill()
        return self.start()

    @property
    def address(self):
        return f"unix:{self.dir}/api.sock"

    def ctl(self, *args, timeout_s=LIMIT_S, address=None):
        """Runs stackctl; never fails by itself."""
        command = [str(STACKCTL), "--address", address or self.address, *(str(a) for a in args)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def ctl_json(self, *args, allowed=(OK,), **kwargs):
        outcome = self.ctl(*args, "-o", "json", **kwargs)
        if outcome.code not in allowed:
            raise AssertionError(f"stackctl {args} ended with {outcome.code}: {outcome.err}\n{self.log()}")
        return json.loads(outcome.out)

    def processes(self):
        reply = self.ctl_json("ps")
        return reply if isinstance(reply, list) else reply.get("processes", [])

    def await_process(self, pid, limit_s=LIMIT_S):
        """The registered process with this pid (as the process itself sees it)."""

        def find():
            return next((p for p in self.processes() if p.get("pid") == pid), None)

        try:
            return eventually(f"process {pid} is registered", find, limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def dump(self, process, *args, allowed=(OK, PARTIAL), **kwargs):
        """A new dump, whole: as exported, which has no size limit."""
        if QUIET and "--quiet" not in args:
            args += ("--quiet", QUIET)
        created = self.ctl_json("dump", process, *args, allowed=allowed, **kwargs)
        which_frames = [argument for argument in args if argument in ("--native-only", "--managed-only")]
        exported = self.ctl("export", created["name"], "-f", "json", *which_frames)
        if exported.code != OK:
            raise AssertionError(f"export of {created['name']}: {exported.err}\n{self.log()}")
        return Dump(json.loads(exported.out))


class Dump:
    """proto3 JSON of a stackd.v1.Dump, with its absent zeros filled in."""

    def __init__(self, resource):
        self.resource = resource
        self.name = resource.get("name", "")
        self.state = resource.get("state", "STATE_UNSPECIFIED")
        self.notes = resource.get("notes", [])
        self.threads = {t["tid"]: t for t in resource.get("threads", [])}
        self.stacks = resource.get("stacks", [])
        self.groups = resource.get("groups", [])
        self.modules = resource.get("modules", [])
        self.counts = resource.get("threadCounts", {})

    def status(self, tid):
        return self.threads[tid].get("status", "STATUS_UNSPECIFIED")

    def stack(self, tid):
        """The stack of a thread, or None."""
        index = self.threads[tid].get("stack")
        return None if index is None else self.stacks[index]

    def frames(self, tid):
        stack = self.stack(tid)
        return stack.get("frames", []) if stack else []

    def functions(self, tid):
        return [frame.get("function", "") for frame in self.frames(tid)]

    def named(self, name):
        """The tid of the one thread with this name."""
        tids = [tid for tid, thread in self.threads.items() if thread.get("name") == name]
        if len(tids) != 1:
            raise AssertionError(f"{len(tids)} threads are named {name}: {[t.get('name') for t in self.threads.values()]}")
        return tids[0]


class Victim:
    """A program under the agent, started when it has said "ready"."""

    def __init__(self, command, *, directory=None, env=None, ready="ready", stdin=None, preload=True, wrap=(), cwd=None,
                 agent=AGENT):
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        environment.update(env or {})
        inner = {}
        if directory is not None:
            inner["STACKD_DIR"] = str(directory)
        if preload:
            inner["LD_PRELOAD"] = str(agent)
        # Through env(1) where something wraps the program: the wrapper is not what the agent should be in.
        assignments = [f"{key}={value}" for key, value in inner.items()]
        full = [*wrap, "env", *assignments, *map(str, command)] if wrap else [str(c) for c in command]
        if not wrap:
            environment.update(inner)
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(full, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.errors, env=environment, cwd=cwd,
                                        start_new_session=True, preexec_fn=die_with_parent)
        self.pid = self.process.pid
        if stdin is not None:
            self.process.stdin.write(stdin.encode())
            self.process.stdin.flush()
        self.output = b""
        if ready is not None:
            try:
                self.read_until(ready)
            except BaseException:
                self.kill()
                raise

    def read_until(self, word, limit_s=LIMIT_S):
        """Reads stdout up to and including a line `word`, or one that it begins."""
        end = time.monotonic() + limit_s
        while not any(line.startswith(word.encode()) for line in self.output.split(b"\n")[:-1]):
            readable, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            if not chunk:
                raise AssertionError(f"{self.process.args} did not say {word!r}: {self.output!r} {self.error_text()}")
            self.output += chunk

    def ask(self, line):
        """Sends a line and returns the line that comes back."""
        self.output = b""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        self.read_until("")
        return self.output.split(b"\n")[0].decode()

    def error_text(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-2000:]

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.errors.close()


def blocked_at(pid, tid):
    """(sp, pc) of the system call that a thread is blocked in, or None. The same before and after: it did not move.

    Not its number: a call that a signal interrupted goes on as restart_syscall, in the same place."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        if fields[0] not in ("running", "-1"):
            return fields[-2], fields[-1]
    return None


def blocks_signal(pid, tid, number):
    for line in pathlib.Path(f"/proc/{pid}/task/{tid}/status").read_text().splitlines():
        if line.startswith("SigBlk:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


class StackdTest(unittest.TestCase):
    """Has a directory and starts things that end with the test."""

    maxDiff = None

    def setUp(self):
        for binary in (STACKD, STACKCTL, AGENT):
            if not binary.exists():
                self.fail(f"{binary} is missing: build first (tests/run.sh does)")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="stackd-e2e-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def start_daemon(self, directory=None, **kwargs):
        daemon = Daemon(directory or self.dir, **kwargs)
        self.addCleanup(daemon.kill)
        return daemon.start()

    def start_victim(self, program, *args, directory=None, **kwargs):
        """`program`: a name in tests/programs or a path."""
        path = PROGRAMS / program if "/" not in str(program) else program
        victim = Victim([path, *args], directory=directory or self.dir, **kwargs)
        self.addCleanup(victim.kill)
        return victim

    def keep_doing(self, *works):
        """A thread for each of `works`, which calls it again and again until the test ends, or stop(), which this returns."""
        over = threading.Event()

        def again(work):
            while not over.is_set():
                work()

        threads = [threading.Thread(target=again, args=(work,), daemon=True) for work in works]

        def stop():
            over.set()
            for thread in threads:
                thread.join()

        # Before the first of them runs: whatever fails from here on, none of them is there in the next test.
        self.addCleanup(stop)
        for thread in threads:
            thread.start()
        return stop

    def assert_whole(self, dump, pid):
        """Every thread that the kernel lists is in the dump, with a status, and the counts add up."""
        missing = task_ids(pid) - set(dump.threads)
        self.assertFalse(missing, f"{len(missing)} threads are missing from the dump")
        unknown = [tid for tid in dump.threads if dump.status(tid) == "STATUS_UNSPECIFIED"]
        self.assertFalse(unknown, "threads without a status")
        counts = dict(dump.counts)
        listed = counts.pop("listed", 0)
        self.assertEqual(listed, len(dump.threads))
        self.assertEqual(listed, sum(counts.values()))

    def assert_functions(self, dump, tid, expected):
        """The functions in `expected` are on the stack of `tid`, in this order, with nothing between them."""
        functions = dump.functions(tid)
        for start in range(len(functions)):
            if functions[start:start + len(expected)] == expected:
                return
        self.fail(f"{expected} is not in {functions}")
