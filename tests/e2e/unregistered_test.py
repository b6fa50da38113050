"""Programs that have no agent: goroutines of an unmodified, static, stripped Go program. A stackctl that may read its memory reads
them, for a daemon that may not even see it.

    unregistered: go1.26.8             22 goroutines as runtime.Stack has them
"""

import json
import os
import shutil
import subprocess
import sys
import unittest

import go_programs
import tier
from harness import FAILURE, NOT_FOUND, OK, STACKCTL, STACKD, USAGE, Daemon, Dump, Outcome, StackdTest, eventually
from privilege_test import DAEMON_UID, POWERLESS, contained

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
        for binary in (STACKD, STACKCTL):
            shutil.copy(binary, self.dir)
            os.chmod(self.dir / binary.name, 0o755)

    def start_daemon_of(self, uid):
        """In a PID namespace of its own, without any right."""
        folder = self.dir / f"daemon-{uid}"
        folder.mkdir()
        os.chown(folder, uid, uid)
        # For it, who calls from outside of its PID namespace is in another container.
        access = self.dir / "access.yaml"
        access.write_text(f"access: [{{uid: 0, role: dump}}, {{uid: {UID}, role: dump}}]\n")
        access.chmod(0o644)
        daemon = Daemon(folder, wrap=contained(uid), stackd=self.dir / STACKD.name, extra_args=["--access", access])
        self.addCleanup(daemon.kill)
        return daemon.start()

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

    def ctl(self, daemon, *args, uid=0):
        command = [self.dir / STACKCTL.name, "--address", daemon.address, *args]
        done = subprocess.run([*(as_user(uid) if uid else ()), *map(str, command)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def dump(self, daemon, pid, uid=0):
        outcome = self.ctl(daemon, "dump", "--pid", pid, "-f", "json", uid=uid)
        self.assertEqual(outcome.code, OK, outcome.err)
        return Dump(json.loads(outcome.out))

    def test_goroutines_of_an_unmodified_static_binary_are_as_its_runtime_has_them(self):
        daemon = self.start_daemon_of(UID)
        for toolchain, version in self.toolchains:
            with self.subTest(go=version):
                victim, said = self.start_unmodified(toolchain)
                dump = self.dump(daemon, victim.pid, uid=UID)
                seen = go_programs.goroutines_of(dump)
                expected = go_programs.read_traceback(said)
                # The first wrote the file meanwhile.
                compared = {i: g for i, g in expected.items() if i != 1}
                self.assertGreater(len(compared), 15)
                for number, goroutine in compared.items():
                    self.assertEqual(seen.get(number), goroutine, f"goroutine {number}")
                self.assertEqual(set(seen), set(expected))
                self.assertIn("has no agent for native code", dump.notes[0])
                self.assertRegex(dump.notes[1], r"as the kernel lists them: .*\d+ states-\S+ \(")
                eventually("it is forgotten with the end of stackctl", lambda: daemon.processes() == [])
                self.assertIn(dump.name, [d["name"] for d in daemon.ctl_json("list")["dumps"]])
                print(f"unregistered: {version:<20} {len(compared)} goroutines as runtime.Stack has them", file=sys.stderr)
                victim.kill()

    def test_a_daemon_of_another_user_needs_no_right_for_it(self):
        daemon = self.start_daemon_of(DAEMON_UID)
        victim, said = self.start_unmodified(self.toolchains[-1][0])
        seen = go_programs.goroutines_of(self.dump(daemon, victim.pid))
        self.assertEqual(set(seen), set(go_programs.read_traceback(said)))

    def test_who_may_not_read_it_hears_why(self):
        daemon = self.start_daemon_of(UID)
        victim, _ = self.start_unmodified(self.toolchains[-1][0])
        refused = self.ctl(daemon, "dump", "--pid", victim.pid, uid=OTHER_UID)
        self.assertEqual(refused.code, FAILURE)
        self.assertIn(f"it belongs to uid {UID} and stackctl runs as uid {OTHER_UID}", refused.err)
        missing = self.ctl(daemon, "dump", "--pid", 4_000_000, uid=UID)
        self.assertEqual(missing.code, NOT_FOUND)
        self.assertIn("there is no process 4000000 here", missing.err)
        self.assertEqual(self.ctl(daemon, "dump", "states", "--pid", victim.pid).code, USAGE)
        self.assertTrue(victim.alive())

    def test_a_process_that_has_an_agent_is_dumped_by_it(self):
        daemon = self.start_daemon()
        victim = self.start_victim("cpp_calls")
        daemon.await_process(victim.pid)
        dump = self.dump(daemon, victim.pid)
        self.assert_whole(dump, victim.pid)
        self.assertIn("CAPTURED", {dump.status(tid) for tid in dump.threads})
