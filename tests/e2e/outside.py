"""stackctl dump --pid --no-daemon in the place of a daemon: tests that dump processes under the agent dump others with it."""

import json
import subprocess

from harness import LIMIT_S, OK, PARTIAL, STACKCTL, Dump, Outcome, task_ids


class Outside:
    """What tests ask of a Daemon, read by stackctl alone, which is run as `wrap` says."""

    def __init__(self, wrap=(), stackctl=STACKCTL):
        self.wrap = list(map(str, wrap))
        self.stackctl = stackctl

    def command(self, pid, *args):
        return [*self.wrap, str(self.stackctl), "dump", "--pid", str(pid), "--no-daemon", *map(str, args)]

    def ctl(self, dump, pid, *args, timeout_s=LIMIT_S):
        """stackctl dump PID, as Daemon.ctl() has it."""
        assert dump == "dump"
        done = subprocess.run(self.command(pid, *args), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout_s, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def dump(self, pid, *args, allowed=(OK, PARTIAL)):
        outcome = self.ctl("dump", pid, *args, "-o", "json")
        if outcome.code not in allowed:
            raise AssertionError(f"stackctl dump --pid {pid} {args} ended with {outcome.code}: {outcome.err}")
        return Dump(json.loads(outcome.out))

    def await_process(self, pid):
        assert task_ids(pid)
        return {"name": pid, "pid": pid}

    def kill(self):
        """There is none."""


class WithoutAgent:
    """Mixed into a test case that starts a daemon and victims: there is no daemon, and no victim has the agent."""

    def start_daemon(self, *_, **__):
        return Outside()

    def start_victim(self, program, *args, **kwargs):
        return super().start_victim(program, *args, **{**kwargs, "preload": False})
