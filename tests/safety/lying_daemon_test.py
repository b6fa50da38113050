#!/usr/bin/python3
"""A daemon that hands over a ring which is not what it says: that costs the process its connection, and nothing else."""

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake_daemon
import stand

F_ADD_SEALS, SHRINK, GROW = 1033, 2, 4
MIB = 1 << 20
LIMIT_S = 20
# Pages that the kernel counts late, and what the agent keeps of a connection.
MORE_MEMORY_KB = 256
PROGRAM = """
import sys, threading
threading.Thread(target=sys.stdin.read).start()
print("ready", flush=True)
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


def await_true(condition):
    """Whether it became true in time."""
    end = time.monotonic() + LIMIT_S
    while not (is_true := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return is_true


def text_of(victim, name):
    with open(f"/proc/{victim.pid}/{name}", encoding="utf-8") as file:
        return file.read()


def fds_of(victim):
    """{number: what it is}; without the numbers of sockets, which each attempt to connect has of its own."""
    found = {}
    for fd in os.listdir(f"/proc/{victim.pid}/fd"):
        try:
            found[fd] = re.sub(r"\[\d+\]", "", os.readlink(f"/proc/{victim.pid}/fd/{fd}"))
        except FileNotFoundError:
            continue
    return found


def memory_kb(victim):
    """(address space, memory in use)."""
    status = text_of(victim, "status")
    return tuple(int(re.search(rf"{name}:\s+(\d+)", status).group(1)) for name in ("VmSize", "VmRSS"))


class LyingDaemonTest(unittest.TestCase):
    def run_with(self, lie, meanwhile):
        """`meanwhile(daemon, victim, before)`: what the victim had while no daemon was there."""
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, LD_PRELOAD=stand.AGENT, STACKD_DIR=folder)
            victim = subprocess.Popen([sys.executable, "-S", "-c", PROGRAM], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            daemon = None
            try:
                self.assertEqual("ready\n", victim.stdout.readline())
                before = self.settled(victim)
                daemon = fake_daemon.FakeDaemon(folder, lie=lie)
                self.assertTrue(daemon.connected.wait(LIMIT_S))
                meanwhile(daemon, victim, before)
                out, err = victim.communicate("", timeout=LIMIT_S)
                self.assertEqual((0, "", ""), (victim.returncode, out, err), stand.describe_exit(victim.returncode))
            finally:
                victim.kill()
                victim.communicate()
                if daemon:
                    daemon.close()

    def settled(self, victim):
        """Its fds and memory, once the agent has looked for a daemon: the same in two looks."""
        seen = []

        def is_settled():
            seen.append((fds_of(victim), memory_kb(victim)))
            return len(seen) > 1 and seen[-1] == seen[-2] and "socket:" not in "".join(seen[-1][0].values())

        self.assertTrue(await_true(lambda: "stackd-agent" in self.thread_names(victim)))
        self.assertTrue(await_true(is_settled), seen[-2:])
        return seen[-1]

    def thread_names(self, victim):
        return [text_of(victim, f"task/{tid}/comm").strip() for tid in os.listdir(f"/proc/{victim.pid}/task")]

    def test_a_lie_costs_the_connection_and_nothing_else(self):
        def meanwhile(daemon, victim, before):
            self.assertTrue(daemon.over.wait(LIMIT_S), "the connection stands")
            self.assertNotIn("stackd-ring", text_of(victim, "maps"))
            # Else the next connection waits there to be accepted.
            daemon.close()
            fds, (space_kb, used_kb) = before
            self.assertTrue(await_true(lambda: fds_of(victim) == fds), (fds, fds_of(victim)))
            now_space_kb, now_used_kb = memory_kb(victim)
            self.assertEqual(space_kb, now_space_kb)
            self.assertLessEqual(now_used_kb, used_kb + MORE_MEMORY_KB)

        for name, lie in LIES.items():
            with self.subTest(name):
                self.run_with(lie, meanwhile)

    def test_a_ring_that_shrinks_as_it_is_handed_over(self):
        """It is not sealed, and as long as it is said to be when it is sent."""
        files = []

        def lie():
            files.append(ring_file(MIB, seals=0))
            return files[0], MIB

        def meanwhile(daemon, victim, _before):
            os.ftruncate(files[0], 12 << 10)
            self.assertTrue(daemon.over.wait(LIMIT_S), "the connection stands")
            self.assertNotIn("stackd-ring", text_of(victim, "maps"))

        self.run_with(lie, meanwhile)

    def test_the_truth_is_taken_and_stays_true(self):
        def meanwhile(daemon, victim, _before):
            daemon.run_command(fake_daemon.COMMAND_DUMP)
            self.assertIn("stackd-ring", text_of(victim, "maps"))
            # What is sealed cannot shrink later.
            self.assertRaises(PermissionError, os.ftruncate, daemon.ring.fd, 12 << 10)
            self.assertFalse(daemon.over.is_set())

        self.run_with(None, meanwhile)


if __name__ == "__main__":
    unittest.main()
