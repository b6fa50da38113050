"""What the tests of the agent share: a driver that serves a folder, and programs under the agent."""

import os
import signal
import subprocess
import tempfile

AGENT = os.path.abspath("agent/libstackd_agent.so")
DRIVER = os.path.abspath("tests/safety/dump_driver")
VICTIMS = os.path.abspath("tests/safety/victims")


class Stand:
    """A dump_driver and its folder."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(dir="/tmp")
        os.chmod(self.folder.name, 0o755)
        self.driver = subprocess.Popen(
            [DRIVER, self.folder.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read_answer()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.driver.stdin.close()
        self.driver.wait(timeout=60)
        self.driver.stdout.close()
        self.folder.cleanup()

    def _read_answer(self):
        lines = []
        while True:
            line = self.driver.stdout.readline()
            if not line:
                raise AssertionError(f"the driver ended with {self.driver.wait()}")
            if line == "end\n":
                return lines
            lines.append(line.rstrip("\n"))

    def start(self, arguments, name, **options):
        environment = dict(os.environ, LD_PRELOAD=AGENT, STACKD_DIR=self.folder.name, STACKD_NAME=name)
        environment.update(options.pop("env", {}))
        return subprocess.Popen(
            arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )

    def begin(self, command):
        self.driver.stdin.write(command + "\n")
        self.driver.stdin.flush()

    def answer(self):
        return self._read_answer()

    def ask(self, command):
        self.begin(command)
        return self.answer()


def counts(lines):
    """The lines of "hammer" as a dictionary."""
    return {key: int(value) for key, value in (line.split(" ") for line in lines)}


def describe_exit(code):
    return f"signal {signal.strsignal(-code)}" if code < 0 else f"exit status {code}"
