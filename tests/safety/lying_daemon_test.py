#!/usr/bin/python3
"""A daemon that hands over a ring which is not what it says: that costs the process its connection, and nothing else."""

import fcntl
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake_daemon
import stand

F_ADD_SEALS, SHRINK, GROW = 1033, 2, 4
MIB = 1 << 20
PROGRAM = """
import sys, threading
threading.Thread(target=sys.stdin.read).start()
"""


def ring_file(size_bytes, seals=SHRINK | GROW):
    """A file that begins as a ring does, of another size."""
    honest = fake_daemon.Ring()
    fd = os.memfd_create("stackd-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    os.pwrite(fd, honest.memory[: fake_daemon.HEADER_BYTES], 0)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def shared_file(size_bytes):
    """A file that knows no seals."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size_bytes)
        return os.dup(file.fileno())


LIES = {
    "12 KiB called 1 MiB": lambda: (ring_file(12 << 10), MIB),
    "1 MiB called 12 KiB": lambda: (ring_file(MIB), 12 << 10),
    "512 MiB": lambda: (ring_file(512 * MIB), 512 * MIB),
    "no seals": lambda: (ring_file(MIB, seals=0), MIB),
    "may shrink": lambda: (ring_file(MIB, seals=GROW), MIB),
    "may grow": lambda: (ring_file(MIB, seals=SHRINK), MIB),
    "no memfd": lambda: (shared_file(MIB), MIB),
    "no bytes": lambda: (ring_file(0), 0),
}


class LyingDaemonTest(unittest.TestCase):
    def run_with(self, lie, meanwhile):
        with tempfile.TemporaryDirectory() as folder:
            daemon = fake_daemon.FakeDaemon(folder, lie=lie)
            environment = dict(os.environ, LD_PRELOAD=stand.AGENT, STACKD_DIR=folder)
            victim = subprocess.Popen([sys.executable, "-S", "-c", PROGRAM], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                self.assertTrue(daemon.connected.wait(20))
                meanwhile(daemon, victim)
                out, err = victim.communicate("", timeout=20)
                self.assertEqual((0, "", ""), (victim.returncode, out, err), stand.describe_exit(victim.returncode))
            finally:
                victim.kill()
                victim.wait()
                daemon.close()

    def maps_of(self, victim):
        with open(f"/proc/{victim.pid}/maps", encoding="utf-8") as file:
            return file.read()

    def test_a_lie_costs_the_connection_and_nothing_is_mapped(self):
        def meanwhile(daemon, victim):
            self.assertTrue(daemon.over.wait(20), "the connection stands")
            self.assertNotIn("stackd-ring", self.maps_of(victim))

        for name, lie in LIES.items():
            with self.subTest(name):
                self.run_with(lie, meanwhile)

    def test_the_truth_is_taken(self):
        def meanwhile(daemon, victim):
            daemon.run_command(fake_daemon.COMMAND_DUMP)
            self.assertIn("stackd-ring", self.maps_of(victim))
            self.assertFalse(daemon.over.is_set())

        self.run_with(None, meanwhile)


if __name__ == "__main__":
    unittest.main()
