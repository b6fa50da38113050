"""What deploy/install-agent.sh installs is enough for C and C++ programs. Found by CMake and by pkg-config, shared and static, they
are listed, dumped, watched by their heartbeats, and dump themselves.
"""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import pytest

from harness import ROOT, StackdTest, eventually

SOURCE = ROOT / "tests/languages/cpp"
INSTALL_LIMIT_S = 900


def run(*command, **kwargs):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=INSTALL_LIMIT_S, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"{command}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


# One worker installs it, for all cases.
@pytest.mark.xdist_group("cpp_package")
class CppPackageTest(StackdTest):
    limit_s = INSTALL_LIMIT_S

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="stackd-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        run(ROOT / "deploy/install-agent.sh", cls.folder / "built")
        # It may be moved: nothing in it knows where it was built.
        cls.prefix = cls.folder / "prefix with a space"
        (cls.folder / "built").rename(cls.prefix)

    def dumps(self, daemon, pid, trigger):
        reply = daemon.ctl_json("list")
        listed = reply if isinstance(reply, list) else reply.get("dumps", [])
        return [dump for dump in listed if dump.get("trigger") == trigger and dump["process"]["pid"] == pid]

    def check(self, program):
        daemon = self.start_daemon()
        victim = self.start_victim(program, preload=False, stdin="", env={"LD_LIBRARY_PATH": str(self.prefix / "lib")})
        # The name comes behind the registration.
        eventually("its name", lambda: daemon.await_process(victim.pid)["displayName"] == "cpp-orders")

        dump = daemon.dump(victim.pid)
        self.assert_whole(dump, victim.pid)
        self.assertIn("orders::Serve", " ".join(dump.functions(dump.named("order-loop"))))

        self.assertEqual("0", victim.ask("dump"))
        eventually("its own dump", lambda: self.dumps(daemon, victim.pid, "SELF"))
        self.assertEqual("went on", victim.ask("suspend"))
        self.assertEqual([], self.dumps(daemon, victim.pid, "HANG"))

        victim.process.stdin.write(b"hang\n")
        victim.process.stdin.flush()
        found = eventually("the missed heartbeat", lambda: self.dumps(daemon, victim.pid, "HANG"))
        self.assertEqual(("orders", "HEARTBEAT_MISSED"), (found[0]["hang"].get("heartbeat"), found[0]["hang"].get("cause")))
        # The dump is listed as soon as it is stored, before it is unwound.
        eventually("the function that hangs", lambda: "orders::StuckInTheLoop" in daemon.ctl("show", found[0]["name"]).out)
        victim.kill()
        daemon.kill()

    def test_cmake_finds_both_libraries(self):
        if shutil.which("cmake") is None:
            self.skipTest("there is no cmake")
        build = self.dir / "cmake"
        run("cmake", "-S", SOURCE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
        run("cmake", "--build", build)
        for program in ("with_agent", "with_agent_static"):
            with self.subTest(program=program):
                self.check(build / program)
        # A program that has both leaves the process to the agent that was there first. (No path of LD_PRELOAD has a space.)
        preloaded = self.dir / "libstackd_agent.so"
        preloaded.symlink_to(self.prefix / "lib/libstackd_agent.so")
        self.start_daemon()
        done = subprocess.run([build / "with_agent_static"], stdin=subprocess.DEVNULL, timeout=60,
                              env={"LD_PRELOAD": str(preloaded), "STACKD_DIR": str(self.dir)})
        self.assertEqual(1, done.returncode, "stackd_install() refuses")

    def test_cmake_refuses_another_version(self):
        if shutil.which("cmake") is None:
            self.skipTest("there is no cmake")
        for wanted in ("0.2", "1.0", "0.1.99"):
            source = self.dir / f"wants-{wanted}"
            source.mkdir()
            (source / "CMakeLists.txt").write_text(
                f"cmake_minimum_required(VERSION 3.16)\nproject(wants NONE)\nfind_package(stackd {wanted} REQUIRED)\n")
            with self.assertRaisesRegex(AssertionError, "0.1.0"):
                run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_pkg_config_finds_the_library(self):
        # pkg-config writes a space in a path as the shell wants it.
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        for static, name in ((False, "shared"), (True, "static")):
            with self.subTest(name):
                flags = "--static" if static else ""
                run("bash", "-c", f'eval g++ -std=c++11 -g -O1 {"-static" if static else ""} {SOURCE}/situations.cc '
                    f'-o {self.dir}/{name} "$(pkg-config {flags} --cflags --libs stackd)" -pthread', env=env)
                self.check(self.dir / name)

    def test_the_version_is_the_daemons(self):
        version = run(self.daemon_binary(), "--version")
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        self.assertIn(run("pkg-config", "--modversion", "stackd", env=env).strip(), version)

    def daemon_binary(self):
        return ROOT / "bazel-bin/daemon/stackd"


if __name__ == "__main__":
    unittest.main()
