"""The tree is formatted, and the linters that need no build have nothing to say: tests/dev. A tool that cannot be had is a skip."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import pytest

from harness import ROOT

DEV = ROOT / "tests/dev"
LIMIT_S = 240  # of a machine that is busy and has to fetch a tool first


def run(*arguments, folder=ROOT):
    return subprocess.run([folder / "tests/dev", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)


@pytest.mark.xdist_group("lint")
class LintTest(unittest.TestCase):

    def judge(self, *arguments):
        """Each line of it as a test of its own: "ok TOOL", "left TOOL: why" or "FAILED TOOL" with what it says."""
        done = run(*arguments)
        seen = 0
        for line in done.stderr.splitlines():
            how, _, tool = line.partition(" ")
            if how in ("ok", "left", "FAILED"):
                seen += 1
                with self.subTest(tool.strip()):
                    if how == "left":
                        self.skipTest(tool.strip())
                    self.assertEqual("ok", how, done.stderr[-4000:])
        self.assertGreater(seen, 2, done.stderr)
        self.assertEqual(0, done.returncode, done.stderr[-4000:])

    def test_the_tree_is_formatted(self):
        self.judge("format", "--check")

    def test_linters_have_nothing_to_say(self):
        self.judge("lint", "--quick")


@pytest.mark.xdist_group("lint")
class FindsTest(unittest.TestCase):
    """In a tree with one fault of each kind, each tool finds its own."""

    FAULTS = {
        "clang-format": ("a.c", "int  main( void ){return 0;}\n"),
        "buildifier": ("BUILD", "cc_test(deps=[], name='a')\n"),
        "gofmt": ("a.go", "package a\nfunc  a() {}\n"),
        "rustfmt": ("a.rs", "fn  a( ) {}\n"),
        "ruff": ("a.py", "import os\n"),
        "shellcheck": ("a.sh", "#!/bin/bash\necho $1\n"),
        "codespell": ("a.md", "te" "h\n"),
        "biome": ("a.js", "const a = 1; a = 2;\n"),
        "prose": ("b.md", "Nobody knows.\n\n" * 1000),
    }

    def test_each_fault_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tests").mkdir()
            (folder / "deploy").mkdir()
            for path in ("tests/dev", "tests/prose.py", "deploy/install-deps.sh", ".clang-format", ".rustfmt.toml", ".ruff.toml",
                         ".codespellrc", ".shellcheckrc", ".biome.json"):
                (folder / path).write_bytes((ROOT / path).read_bytes())
            os.chmod(folder / "tests/dev", 0o755)
            for path, text in self.FAULTS.values():
                (folder / path).write_text(text)
            subprocess.run(["git", "init", "-q", folder], check=True)
            said = run("format", "--check", folder=folder).stderr + run("lint", "--quick", folder=folder).stderr
            for tool in self.FAULTS:
                with self.subTest(tool):
                    if f"left    {tool}:" in said:
                        self.skipTest(f"there is no {tool}")
                    self.assertIn(f"FAILED  {tool}\n", said)


if __name__ == "__main__":
    unittest.main()
