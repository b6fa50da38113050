"""An impostor that puts a socket in the daemon's place gets nothing of a program that was told who the daemon is. The program
goes to the daemon when that is back."""

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

    def check(self, program, *args, **options):
        impostor = self.start_impostor()
        trusting = self.start_victim(program, *args, directory=self.shared, **options)
        sent_bytes, files = map(int, impostor.stdout.readline().split())
        self.assertGreater(sent_bytes, 0, "an agent that is not told takes anybody for the daemon")
        self.assertGreater(files, 0)
        trusting.kill()
        self.end(impostor)

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
