"""Programs that die, and the crashes that the daemon has of them: what the crash tests share."""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import time

from harness import AGENT, LIMIT_S, OK, Dump, StackdTest, eventually

CRASH_SIGNALS = {getattr(signal, name): name for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP",
                                                           "SIGSYS")}


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a process ended, and what it said."""

    pid: int
    status: int  # as waitpid() gives it
    end_s: float  # monotonic
    out: bytes
    err: bytes

    @property
    def signal(self):
        """The signal that killed it, or 0."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def has_core(self):
        return os.WCOREDUMP(self.status)

    @property
    def manner(self):
        if os.WIFSIGNALED(self.status):
            return f"killed by {signal.Signals(self.signal).name}{', core' if self.has_core else ''}"
        return f"exit code {os.WEXITSTATUS(self.status)}"


def environment(directory=None, agent=AGENT, **extra):
    """Environment of a program under the agent that reports to the daemon of `directory`; without one: of a program on its own."""
    result = {key: value for key, value in os.environ.items() if not key.startswith("STACKD_") and key != "LD_PRELOAD"}
    if directory is not None:
        result["STACKD_DIR"] = str(directory)
        if agent is not None:
            result["LD_PRELOAD"] = str(agent)
    result.update(extra)
    return result


def run_to_end(command, folder, env, limit_s=LIMIT_S, stdin=None):
    """Runs a program in a folder of its own, which is made, until it ends. A core file, if it leaves one, is in there."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    with open(folder / "out", "w+b") as out, open(folder / "err", "w+b") as err:
        process = subprocess.Popen([str(word) for word in command], cwd=folder, env=env, stdin=stdin or subprocess.DEVNULL,
                                   stdout=out, stderr=err)
        return await_end(process, folder, limit_s)


def await_end(process, folder, limit_s=LIMIT_S):
    """The Ending of a child whose output is in `folder`; fails when it does not end."""
    watched = os.pidfd_open(process.pid)
    try:
        if not select.select([watched], [], [], limit_s)[0]:
            process.kill()
            process.wait()
            raise AssertionError(f"{process.args} did not end within {limit_s} s: " +
                                 (folder / "err").read_text(errors="replace")[-1000:])
        end_s = time.monotonic()
    finally:
        os.close(watched)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    return Ending(process.pid, status, end_s, (folder / "out").read_bytes(), (folder / "err").read_bytes())


class CrashTest(StackdTest):
    """Its programs may leave cores."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        before = resource.getrlimit(resource.RLIMIT_CORE)
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_CORE, before)
        with contextlib.suppress(ValueError):  # a hard limit that only root may raise
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def crashes(daemon):
    """The crashes that the daemon has, as `stackctl list` gives them, newest first."""
    reply = daemon.ctl_json("list")
    dumps = reply if isinstance(reply, list) else reply.get("dumps", [])
    return [dump for dump in dumps if dump.get("trigger") == "CRASH"]


def leaves_cores():
    """Whether a core file appears as "core" in the folder of the process that died."""
    return pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip() == "core"


def crash_of(daemon, pid):
    """The one crash of process `pid`, whole."""

    def find():
        return [dump for dump in crashes(daemon) if dump["process"]["pid"] == pid]

    found = eventually(f"a crash of process {pid}", find)
    if len(found) != 1:
        raise AssertionError(f"{len(found)} crashes of process {pid}: {[dump['name'] for dump in found]}")

    return whole_crash(daemon, found[0]["name"])


def whole_crash(daemon, name):
    """It is stored before it is unwound: the process is held only for the former."""

    def understood():
        exported = daemon.ctl("export", name, "-f", "json")
        if exported.code != OK:
            raise AssertionError(f"export of {name}: {exported.err}\n{daemon.log()}")
        dump = Dump(json.loads(exported.out))
        return dump if dump.resource["crash"].get("explanation") and dump.threads else None

    return eventually(f"the crash {name} is unwound and explained", understood)
