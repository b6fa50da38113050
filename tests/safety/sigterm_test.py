#!/usr/bin/python3
"""SIGTERM under the agent: the program cannot tell the difference, and the daemon is told.

sigterm_matrix sets handlers in every way there is and prints all that it could notice. What it must print is not written down:
it is what it prints without the agent.
"""

import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake_daemon
import stand

MATRIX = os.path.abspath("tests/safety/sigterm_matrix")


def run_matrix(**variables):
    result = subprocess.run([MATRIX], env=dict(os.environ, **variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return result.returncode, result.stdout.splitlines()


class SameTest(unittest.TestCase):
    def setUp(self):
        self.alone = run_matrix()
        self.assertEqual(self.alone[0], 0)
        self.assertGreater(len(self.alone[1]), 200)

    def test_without_a_daemon(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            self.assertEqual(run_matrix(LD_PRELOAD=stand.AGENT, STACKD_DIR=folder), self.alone)

    def test_with_a_daemon(self):
        # Children find no place at the daemon, and run without a ring.
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            daemon = fake_daemon.FakeDaemon(folder)
            try:
                self.assertEqual(run_matrix(LD_PRELOAD=stand.AGENT, STACKD_DIR=folder), self.alone)
                self.assertTrue(daemon.connected.is_set())
            finally:
                daemon.close()

    def test_switched_off(self):
        self.assertEqual(run_matrix(LD_PRELOAD=stand.AGENT, STACKD_DISABLE="1"), self.alone)


class CountTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.daemon = fake_daemon.FakeDaemon(self.folder.name)
        self.program = None

    def tearDown(self):
        self.program.kill()
        self.program.communicate()
        self.daemon.close()
        self.folder.cleanup()

    def start(self, *arguments):
        environment = dict(os.environ, LD_PRELOAD=stand.AGENT, STACKD_DIR=self.folder.name)
        self.program = subprocess.Popen(arguments, env=environment, stdin=-1, stdout=-1, text=True)
        self.assertEqual(self.program.stdout.readline(), "ready\n")
        self.assertTrue(self.daemon.connected.wait(10))
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)  # the agent has mapped the ring

    def count(self):
        address = self.daemon.ring.load(fake_daemon.SIGTERM_COUNT_AVMA) | self.daemon.ring.load(fake_daemon.SIGTERM_COUNT_AVMA + 4) << 32
        self.assertNotEqual(address, 0)
        with open(f"/proc/{self.program.pid}/mem", "rb", 0) as file:
            return struct.unpack("<Q", os.pread(file.fileno(), 8, address))[0]

    def test_each_that_a_handler_takes_is_counted(self):
        self.start(MATRIX, "handle")
        for count in (0, 1, 2):
            self.assertEqual(self.count(), count)
            self.program.terminate()
            self.assertEqual(self.program.stdout.readline(), "told\n")

    def test_each_that_is_waited_for_is_counted(self):
        self.start("/usr/bin/python3", "-c", """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
print("ready", flush=True)
while True: print(signal.sigwait([signal.SIGTERM, signal.SIGUSR1]).name, flush=True)
""")
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
            self.program.send_signal(number)
            self.assertEqual(self.program.stdout.readline(), number.name + "\n")
        self.assertEqual(self.count(), 2)

    def test_one_that_nobody_takes_is_not_counted(self):
        self.start(MATRIX, "block")
        self.program.terminate()
        deadline = time.monotonic() + 10
        while not self.is_pending():
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.count(), 0)

    def is_pending(self):
        with open(f"/proc/{self.program.pid}/status", encoding="utf-8") as file:
            return bool(int(re.search(r"ShdPnd:\s*(\w+)", file.read())[1], 16) >> signal.SIGTERM - 1 & 1)

    def test_one_that_a_child_takes_is_not_counted_for_its_parent(self):
        self.start("/usr/bin/python3", "-c", """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(3))
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""")
        self.program.stdin.write("fork\n")
        self.program.stdin.flush()
        self.assertEqual(self.program.stdout.readline(), "3\n")
        self.assertEqual(self.count(), 0)


if __name__ == "__main__":
    unittest.main()
