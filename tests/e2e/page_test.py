"""The page that the daemon serves (client/page): each file of client/page/tests, in Debian's Chromium, with the packages of its
lock file. STACKD_PAGE_PICTURES=FOLDER keeps pictures of the views."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import nodes
from built import built
from harness import PROGRAMS, ROOT, Daemon, Victim
from ports import free_port

PAGE = ROOT / "client/page"
CHROMIUM = "/usr/bin/chromium"
# Playwright's oldest.
NODE_MAJOR = 20


def node():
    """The oldest Node.js that Playwright runs on; None where there is none."""
    return next((one.path for one in nodes.found() if one.version[0] >= NODE_MAJOR), None)


def packages():
    """A folder with the node_modules of the lock file. No script of a package is run."""

    def install(folder):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PAGE / name, folder)
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True,
                              check=False, timeout=240)
        if done.returncode != 0:
            raise AssertionError(f"npm ci: {done.stderr[-2000:]}")

    return built("page-packages", [PAGE / "package.json", PAGE / "package-lock.json"], install) / "node_modules"


def prepare():
    if shutil.which("npm") and node():
        packages()


PREPARE = [prepare]


def run_in_browser(file, **environment):
    """Runs one file of tests by Node's own runner, on a copy of the page beside its packages."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "page"
        shutil.copytree(PAGE, folder, ignore=shutil.ignore_patterns("node_modules"))
        (folder / "node_modules").symlink_to(packages())
        path = f"{pathlib.Path(node()).parent}:{os.environ['PATH']}"
        done = subprocess.run([node(), "--test", f"tests/{file}"], cwd=folder, env={**os.environ, "PATH": path, **environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    print(done.stdout[-3000:])
    passed = re.search(r"^(?:#|ℹ) pass (\d+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not passed or int(passed[1]) == 0:
        raise AssertionError(done.stdout[-6000:] + done.stderr[-2000:])


class PageTest(unittest.TestCase):

    limit_s = 900  # of Chromium, on a machine that does much else

    def check(self, file, takes_chromium=True, **environment):
        if not shutil.which("npm") or not node():
            self.skipTest(f"no npm, or no Node.js of {NODE_MAJOR} or later")
        if takes_chromium and not os.path.exists(CHROMIUM):
            self.skipTest(f"no {CHROMIUM}")
        run_in_browser(file, **environment)

    def test_what_is_checked_in_is_what_the_sources_build_to(self):
        self.check("build_test.mjs", takes_chromium=False)

    def test_words(self):
        self.check("words_test.mjs", takes_chromium=False)

    def test_stacks_and_wait_graphs(self):
        self.check("stacks_test.mjs", takes_chromium=False)

    def test_each_view(self):
        self.check("views_test.mjs")

    def test_each_part_of_a_dump(self):
        self.check("dump_view_test.mjs")

    def test_a_dump_is_taken_by_a_button(self):
        self.check("dump_button_test.mjs")

    def test_addresses_and_keys(self):
        self.check("address_test.mjs")

    def test_hostile_names_harm_no_view(self):
        self.check("hostile_test.mjs")

    def test_10000_threads(self):
        self.check("large_test.mjs")

    def test_history_of_a_fleet(self):
        self.check("history_test.mjs")

    def test_a_real_daemon_serves_it(self):
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            daemon = Daemon(folder, extra_args=["--web-listen", f"127.0.0.1:{port}"]).start()
            self.addCleanup(daemon.kill)
            orders = Victim([PROGRAMS / "demo_orders"], directory=folder, env={"STACKD_NAME": "orders"})
            self.addCleanup(orders.kill)
            self.check("with_daemon.mjs", STACKD_PAGE_URL=f"http://127.0.0.1:{port}/")

    def test_its_messages_are_those_of_the_proto(self):
        """Each field of an interface in messages.ts is one of the message of that name, so that none is read in vain."""
        fields = {}
        stack = []
        protos = "".join((ROOT / f"proto/stackd/v1/{name}.proto").read_text(encoding="utf-8") for name in ("stackd", "fleet"))
        for line in protos.splitlines():
            if opened := re.match(r"\s*(message|enum|service|oneof) (\w+) \{(?!\})", line):
                stack.append(opened[2])
                fields.setdefault(opened[2], set())
            elif re.match(r"\s*\}", line):
                stack.pop()
            elif stack and (field := re.match(r"\s*(?:repeated |optional )?[\w.<>, ]+ (\w+) = \d+;", line)):
                fields[stack[-1]].add(re.sub(r"_(\w)", lambda match: match[1].upper(), field[1]))
        interfaces = re.findall(r"export interface (\w+) \{\n(.*?)\n\}", (PAGE / "src/messages.ts").read_text(encoding="utf-8"), re.DOTALL)
        self.assertGreater(len(interfaces), 30)
        for name, body in interfaces:
            for field in re.findall(r"^  (\w+)\?:", body, re.MULTILINE):
                self.assertIn(field, fields[name], f"{name}.{field}")


if __name__ == "__main__":
    unittest.main()
