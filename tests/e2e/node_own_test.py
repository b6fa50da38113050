"""Node.js' own tests of what the agent has a hand in, under the agent: child processes, signals, ends, threads, pipes,
reports. Each that passes alone passes under it, and no crash is stored but of those that let a process die of one.

They are in Debian's source package, which deploy/install-deps.sh --tests fetches.

    node: 18.20.8: 363 of its own tests, 354 pass under the agent, 9 fail or are skipped alone too, 0 differ; 24 crash
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pytest

import nodes
import reaper
from crashes import crashes, environment
from harness import AGENT, StackdTest, eventually
from tier import FULL

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd"

# What a test's name begins with.
SHORT = r"""(abort|report)/test-
    |(parallel|sequential)/test-(
        child-process|process-|signal|std(in|io|out)|pipe|kill|listen-fd|heap|exception|unhandled
        |.*(abort-on-uncaught|sigint|-kill|-exit|-terminate|segfault|wasm|watchdog))"""
LONG = SHORT + r"""|async-hooks/test-
    |(parallel|sequential)/test-(
        async-|cluster|cpu-prof|dgram|domain|error-reporting|eventloop|fork|gc-|handle-wrap|inspector|net-|next-tick
        |preload|promises?-unhandled|spawn|stack|sync-io|timers|tick|tty|trace|uv|v8-|vm|watch|worker)"""

# Processes of theirs are meant to die of a crash.
DIE = re.compile(r"abort/|.*(abort-on-uncaught|fatalerror|callback-error|throw-from-uncaught-exception-handler)")

AT_ONCE = 2
LIMIT_S = 60
PASSED = 0
SKIPPED = "skipped"


@pytest.mark.thorough
class NodeOwnTest(StackdTest):
    limit_s = 4 * 3600 if FULL else 900

    def setUp(self):
        super().setUp()
        found = sorted(CACHE.glob("nodejs-*/test/common/index.js"))
        if not found:
            self.skipTest(f"no source of Node.js in {CACHE} (deploy/install-deps.sh --tests fetches it)")
        self.source = found[-1].parents[1]
        major = int(re.search(r"nodejs-(\d+)", str(self.source))[1])
        # A later release fails some of these tests without the agent, too: what they test has changed since.
        self.nodes = [node for node in nodes.found() if node.version[0] == major or FULL and node.version[0] > major]
        if not self.nodes:
            self.skipTest(f"no Node.js {major}, whose own tests are here (deploy/install-deps.sh --tests fetches it)")

    def chosen(self):
        names = re.compile(LONG if FULL else SHORT, re.VERBOSE)
        return [path for path in sorted(self.source.glob("*/test-*.*js"))
                if names.match(f"{path.parent.name}/{path.name}")]

    def run_once(self, node, path, env):
        """(PASSED, SKIPPED or another exit code; what it printed)."""
        flags = re.search(r"// Flags:(.*)", path.read_text())
        command = [sys.executable, "-S", "-E", reaper.__file__, str(LIMIT_S),
                   "env", *env, node.path, *(flags[1].split() if flags else []), path]
        with tempfile.TemporaryDirectory(dir=self.dir) as folder, tempfile.TemporaryFile() as output:
            # By TEST_THREAD_ID they know that a runner runs them.
            code = subprocess.run(command, cwd=folder, env=environment(NODE_TEST_DIR=folder, TEST_THREAD_ID="0"),
                                  stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
            output.seek(0)
            text = output.read().decode(errors="replace")
        return SKIPPED if code == PASSED and text.startswith("1..0 # Skipped") else code, text

    def run_alone(self, node, path):
        return self.run_once(node, path, [])

    def run_watched(self, node, path):
        return self.run_once(node, path, [f"LD_PRELOAD={AGENT}", f"STACKD_DIR={self.dir}",
                                          f"STACKD_NAME={self.process_name(node, path)}"])

    @staticmethod
    def process_name(node, path):
        """By which it is known whose a crash is. The agent tells so much of a name."""
        return f"{node.version[0]}.{path.parent.name}.{path.stem}"[:63]

    def run_all(self, node, tests):
        """How each ended under the agent."""
        parallel = [path for path in tests if path.parent.name != "sequential"]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            ends = dict(zip(parallel, pool.map(lambda path: self.run_watched(node, path)[0], parallel)))
        return ends | {path: self.run_watched(node, path)[0] for path in tests if path not in ends}

    def crashed(self, daemon, node, tests):
        """The tests that let processes die of a crash."""
        eventually("nobody is connected", lambda: not daemon.processes())
        names = {dump["process"]["displayName"] for dump in crashes(daemon)}
        return [path for path in tests if self.process_name(node, path) in names]

    def test_they_end_under_the_agent_as_they_do_without(self):
        daemon = self.start_daemon(extra_args=["--store-crashes-per-group", "500"])
        tests = self.chosen()
        for node in self.nodes:
            with self.subTest(node=str(node)):
                ends = self.run_all(node, tests)
                # Both anew, while nothing else runs: a busy machine makes some fail.
                failed = sorted(path for path, end in ends.items() if end != PASSED)
                alone = [path for path in failed if self.run_alone(node, path)[0] == PASSED]
                again = {path: self.run_watched(node, path) for path in alone}
                differing = {path: run for path, run in again.items() if run[0] != PASSED}
                late = "".join(f" {path.stem}" for path in again if path not in differing)
                crashed = [f"{path.parent.name}/{path.stem}" for path in self.crashed(daemon, node, tests)]
                print(f"node: {node}: {len(ends)} of its own tests, {len(ends) - len(failed)} pass under the agent, "
                      f"{len(failed) - len(alone)} fail or are skipped alone too, {len(differing)} differ; "
                      f"{len(crashed)} crash{'; passed the second time:' if late else ''}{late}",
                      file=sys.stderr, flush=True)
                self.assertEqual("", "\n".join(f"{path.parent.name}/{path.name} passes alone, under the agent: {end}\n"
                                               f"{text[-2000:]}" for path, (end, text) in differing.items()))
                self.assertEqual([], [name for name in crashed if not DIE.match(name)])
                self.assertGreater(len(crashed), 15)
                self.assertGreater(len(ends) - len(failed), 300)


if __name__ == "__main__":
    unittest.main()
