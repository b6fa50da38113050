"""The way from `git clone` to a changed line that is tested, as CONTRIBUTING.md tells it: each of its commands is run, in order."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import documents

from harness import ROOT

GUIDE = ROOT / "CONTRIBUTING.md"
LIMIT_S = 600  # a server of Bazel's and a first build, on a machine that is busy


class ContributingTest(unittest.TestCase):
    limit_s = LIMIT_S + 60

    def test_a_newcomers_way(self):
        blocks = [block.text for block in documents.fenced(GUIDE, GUIDE.name) if block.language == "sh"]
        self.assertEqual(3, len(blocks), "clone, test, change")
        with tempfile.TemporaryDirectory() as folder:
            checkout = pathlib.Path(folder) / "stackd"
            try:
                self.follow(blocks, folder, checkout)
            finally:
                self.forget(checkout)

    def follow(self, blocks, folder, checkout):
        done = subprocess.run(["bash", "-xeuo", "pipefail", "-c", "".join(blocks)], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, "STACKD_REPOSITORY": str(ROOT)})
        self.assertEqual(0, done.returncode, done.stdout[-6000:])
        self.assertRegex(done.stdout, r"weeks_test +FAILED")
        self.assertRegex(done.stdout, r"weeks_test +PASSED")
        changed = subprocess.run(["git", "status", "--short"], cwd=checkout, capture_output=True, text=True, check=True).stdout
        self.assertEqual([" M daemon/config/BUILD", " M daemon/config/units.cc", "?? daemon/config/weeks_test.cc"],
                         changed.splitlines())

    def forget(self, checkout):
        """Ends the checkout's own server of Bazel's, and removes what it has built."""
        if not (checkout / "WORKSPACE").exists():
            return
        bazel = {"cwd": checkout, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
        built = subprocess.run(["bazel", "info", "output_base"], **bazel).stdout.strip()
        subprocess.run(["bazel", "shutdown"], **bazel)
        if built:
            subprocess.run(["chmod", "-R", "u+w", built], check=False)
            shutil.rmtree(built, ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
