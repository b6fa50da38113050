"""An impostor that puts a socket in the daemon's place gets nothing, whether the program was told who the daemon is or not. The
program goes to the daemon when that is back."""

import os
import subprocess
import sys
import unittest

import go_programs
from harness import StackdTest, eventually

IMPOSTOR_UID = 20003

# Says of each agent that connects what it sent: bytes and files.
IMPOSTOR = """
import array, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(16)
print("listening", flush=True)
while True:
    agent, _ = listener.accept()
    with agent:
        message, files, _, _ = socket.recv_fds(agent, 65536, 8)
        print(len(message), len(files), flush=True)
"""


@unittest.skipUnless(os.geteuid() == 0, "needs root to run somebody else")
class ImpostorTest(StackdTest):

    def setUp(self):
        super().setUp()
        self.shared = self.dir / "shared"
        self.shared.mkdir()
        os.chmod(self.dir, 0o711)
        os.chmod(self.shared, 0o777)

    def start_impostor(self):
        command = ["setpriv", f"--reuid={IMPOSTOR_UID}", f"--regid={IMPOSTOR_UID}", "--clear-groups", sys.executable, "-c",
                   IMPOSTOR, self.shared / "stackd.sock"]
        impostor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, impostor)
        self.assertEqual("listening\n", impostor.stdout.readline())
        return impostor

    def end(self, impostor):
        impostor.kill()
        impostor.wait()
        impostor.stdout.close()
        (self.shared / "stackd.sock").unlink(missing_ok=True)

    def is_handed_over(self, program, *args, env, **options):
        """Whether an impostor gets anything of a program that runs with these variables."""
        impostor = self.start_impostor()
        victim = self.start_victim(program, *args, directory=self.shared, env=env, **options)
        # A connection of which nothing came is made again and again.
        said = [tuple(map(int, impostor.stdout.readline().split())) for _ in range(1 if env else 3)]
        self.assertTrue(victim.alive())
        victim.kill()
        self.end(impostor)
        return said != [(0, 0)] * len(said)

    def check(self, program, *args, **options):
        self.assertTrue(self.is_handed_over(program, *args, env={"STACKD_DAEMON_UID": "any"}, **options))
        self.assertFalse(self.is_handed_over(program, *args, env={}, **options))
        # The folder is the impostor's, and root gave it to that user alone: that is how an installed daemon has its own.
        os.chown(self.shared, IMPOSTOR_UID, IMPOSTOR_UID)
        os.chmod(self.shared, 0o755)
        self.assertTrue(self.is_handed_over(program, *args, env={"STACKD_NAME": "given"}, **options))
        os.chmod(self.shared, 0o777)
        self.assertFalse(self.is_handed_over(program, *args, env={}, **options))

        impostor = self.start_impostor()
        told = self.start_victim(program, *args, directory=self.shared, env={"STACKD_DAEMON_UID": "0"}, **options)
        for _ in range(3):
            self.assertEqual("0 0\n", impostor.stdout.readline())
        self.assertTrue(told.alive())
        self.end(impostor)
        daemon = self.start_daemon(self.shared)
        eventually("the program is registered", lambda: told.pid in [p["pid"] for p in daemon.processes()])

    def test_the_agent(self):
        self.check("waiting_threads", "3")

    def test_the_package_for_go(self):
        if not go_programs.toolchains():
            self.skipTest("no Go")
        toolchain, _ = go_programs.toolchains()[-1]
        self.check(go_programs.build(toolchain, "pod", self.dir / "pod"), preload=False)


if __name__ == "__main__":
    unittest.main()
