"""Go programs that have no agent: goroutines of an unmodified, static, stripped one. A stackctl that may read its memory reads them.

    unregistered: go1.26.8             22 goroutines as runtime.Stack has them
"""

import os
import shutil
import sys
import unittest

import go_programs
import tier
from harness import FAILURE, NOT_FOUND, STACKCTL, USAGE, StackdTest
from outside import Outside
from privilege_test import POWERLESS

# The process's user, and another.
UID, OTHER_UID = 20011, 20012


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *POWERLESS, "--"]


@unittest.skipUnless(os.geteuid() == 0, "needs root to be several users")
class UnregisteredTest(StackdTest):
    limit_s = 600

    def setUp(self):
        super().setUp()
        self.toolchains = tier.versions(go_programs.toolchains())
        if not self.toolchains:
            self.skipTest("no Go of 1.21 to 1.26 is here, and no registry of Go modules")
        os.chmod(self.dir, 0o711)
        # The build's own folder may be closed to other users.
        shutil.copy(STACKCTL, self.dir)
        os.chmod(self.dir / STACKCTL.name, 0o755)

    def start_unmodified(self, toolchain):
        """The process, and what its runtime says of its goroutines."""
        source = self.dir / "source"
        (source / "states").mkdir(parents=True, exist_ok=True)
        text = (go_programs.SOURCES / "states/main.go").read_text()
        imported = '\t_ "stackd.example/go"\n'
        self.assertIn(imported, text)
        (source / "states/main.go").write_text(text.replace(imported, ""))
        (source / "go.mod").write_text("module states.example\n\ngo 1.21\n")
        path = self.dir / f"states-{toolchain}"
        built = go_programs.run_go(toolchain, "build", "-ldflags=-s -w", "-o", path, "./states", cwd=source, timeout=600)
        self.assertEqual(built.returncode, 0, built.stderr)
        said = self.dir / f"said-{toolchain}"
        said.touch()
        os.chown(said, UID, UID)
        victim = self.start_victim(path, "-compare", said, wrap=as_user(UID), preload=False, stdin="",
                                   directory=self.dir / "nowhere")
        return victim, said.read_text()

    def reader(self, uid):
        return Outside(as_user(uid), self.dir / STACKCTL.name)

    def test_goroutines_of_an_unmodified_static_binary_are_as_its_runtime_has_them(self):
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim, said = self.start_unmodified(toolchain)
                dump = self.reader(UID).dump(victim.pid)
                seen = go_programs.goroutines_of(dump)
                expected = go_programs.read_traceback(said)
                # The first wrote the file meanwhile.
                compared = {i: g for i, g in expected.items() if i != 1}
                self.assertGreater(len(compared), 15)
                for number, goroutine in compared.items():
                    self.assertEqual(seen.get(number), goroutine, f"goroutine {number}")
                self.assertEqual(set(seen), set(expected))
                self.assert_whole(dump, victim.pid)
                print(f"unregistered: {version:<20} {len(compared)} goroutines as runtime.Stack has them", file=sys.stderr)
                victim.kill()

    def test_who_may_not_read_it_hears_why(self):
        victim, _ = self.start_unmodified(self.toolchains[-1][0])
        refused = self.reader(OTHER_UID).ctl("dump", victim.pid)
        self.assertEqual(refused.code, FAILURE)
        self.assertIn(f"it belongs to uid {UID} and stackctl runs as uid {OTHER_UID}", refused.err)
        missing = self.reader(UID).ctl("dump", 4_000_000)
        self.assertEqual(missing.code, NOT_FOUND)
        self.assertIn("there is no process 4000000 here", missing.err)
        self.assertEqual(self.reader(UID).ctl("dump", victim.pid, "states").code, USAGE)
        self.assertTrue(victim.alive())


if __name__ == "__main__":
    unittest.main()
