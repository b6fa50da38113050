"""The system calls that the agent adds to a program, compared with the table of agent/README.md, by strace.

    footprint: start, without a daemon       21 kinds of calls, 98 calls
"""

import collections
import os
import re
import shutil
import subprocess
import sys
import unittest

from harness import AGENT, ROOT, StackdTest

NOTHING = ["/bin/true"]
# dash makes a process of its own for what stands in brackets, and waits for it.
FORKS = ["/bin/sh", "-c", "(:) ; :"]


def table():
    """{when: its calls}, of the rows that name calls."""
    text = (ROOT / "agent/README.md").read_text()
    section = text.split("## What the agent does in a process", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([^|]+) \| ((?:`[a-z0-9_]+` ?)+)\|", section, re.MULTILINE)
    return {when.strip(): set(re.findall(r"`([a-z0-9_]+)`", calls)) for when, calls in rows}


@unittest.skipUnless(shutil.which("strace"), "there is no strace")
class FootprintTest(StackdTest):

    def calls(self, command, directory, **environment):
        """Counts of calls of the program, and of its child where it has one."""
        folder = self.dir / "traces"
        folder.mkdir()
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(AGENT), "STACKD_DIR": str(directory), **environment}
        subprocess.run(["strace", "-ff", "-o", folder / "of", *[word for pair in env.items() for word in ("-E", "=".join(pair))],
                        *command], check=True, env={"PATH": os.environ["PATH"]})
        # The child alone has not begun with this.
        traces = sorted((trace.read_text() for trace in folder.iterdir()), key=lambda text: not text.startswith("execve("))
        counted = [collections.Counter(re.findall(r"^(\w+)\(", text, re.MULTILINE)) for text in traces]
        shutil.rmtree(folder)
        return counted

    def check(self, when, command, process, directory):
        off = self.calls(command, directory, STACKD_DISABLE="1")[process]
        added = self.calls(command, directory)[process] - off
        print(f"footprint: {when:30} {len(added)} kinds of calls, {sum(added.values())} calls", file=sys.stderr)
        self.assertEqual(table()[when], set(added), when)

    def test_what_the_table_says_is_what_strace_sees(self):
        daemon = self.start_daemon()
        for name, directory in (("without a daemon", self.dir / "none"), ("with a daemon", daemon.dir)):
            with self.subTest(name):
                self.check(f"start, {name}", NOTHING, 0, directory)
                self.check(f"forked child, {name}", FORKS, 1, directory)


if __name__ == "__main__":
    unittest.main()
