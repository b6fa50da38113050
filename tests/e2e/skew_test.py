"""Agent and daemon of different releases: they work together as far as they can, and where they cannot no program is harmed."""

import contextlib
import os
import re
import socket
import struct
import threading
import unittest

from harness import ROOT, StackdTest, eventually

HELLO, WELCOME, REJECT = 1, 2, 3
HELLO_BYTES = 1448

RING_ABI = (ROOT / "agent/include/stackd/ring_abi.h").read_text()
ABI_VERSION = int(re.search(r"#define STACKD_ABI_VERSION (\d+)u", RING_ABI)[1])


def hello(abi_version, name, more=b""):
    """HELLO of a process that says little: no memory to read, no handler (flag 8). `more`: what a later release adds."""
    body = struct.pack("<IIiiQiI64s64s256s1024s", abi_version, 8, 4242, 0, 1, 34, 0, b"elsewhere", name.encode(), b"",
                       b"/x")
    message = struct.pack("<II", HELLO, 8 + len(body) + len(more)) + body + more
    assert len(message) == HELLO_BYTES + len(more)
    return message


class SkewTest(StackdTest):

    def connect(self, message):
        """A connection of an agent that said HELLO, and what the daemon answered."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(connection.close)
        connection.settimeout(60)
        connection.connect(str(self.dir / "stackd.sock"))
        connection.send(message)
        reply, fds, _, _ = socket.recv_fds(connection, 4096, 4)
        for fd in fds:
            self.addCleanup(os.close, fd)
        return connection, struct.unpack_from("<I", reply)[0], reply[8:].split(b"\0")[0].decode(errors="replace")

    def test_agents_of_another_abi_are_told_so(self):
        daemon = self.start_daemon()
        for version in (ABI_VERSION - 1, ABI_VERSION + 1):
            with self.subTest(version=version):
                _, kind, reason = self.connect(hello(version, "other"))
                self.assertEqual((REJECT, f"this daemon speaks ABI version {ABI_VERSION}, the agent version {version}"),
                                 (kind, reason))
        # Others are served as ever.
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid)
        self.assertEqual([victim.pid], [process["pid"] for process in daemon.processes()])
        self.assert_whole(daemon.dump(victim.pid), victim.pid)

    def test_a_later_agent_of_the_same_abi_says_more_and_is_served(self):
        daemon = self.start_daemon()
        connection, kind, _ = self.connect(hello(ABI_VERSION, "later", more=b"SOMETHING_NEW=1\0" * 20))
        self.assertEqual(WELCOME, kind)
        # A message that this daemon has never heard of.
        connection.send(struct.pack("<II", 999, 24) + bytes(16))
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        self.assertIn("later", [process["displayName"] for process in daemon.processes()])

    def refuse_all(self):
        """A daemon of another ABI, which refuses each agent. Returns what stops it, and who was refused so far."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.dir / "stackd.sock"))
        listener.listen(16)
        refused = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.send(struct.pack("<II248s", REJECT, 256, b"this daemon speaks ABI version 9"))
                        refused.append(1)

        threading.Thread(target=serve, daemon=True).start()

        def stop():
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            (self.dir / "stackd.sock").unlink(missing_ok=True)

        return stop, refused

    def test_a_program_runs_on_under_a_daemon_of_another_abi_and_is_taken_by_the_next(self):
        stop, refused = self.refuse_all()
        victim = self.start_victim("waiting_threads", 3)
        eventually("the agent was refused", lambda: refused)
        self.assertTrue(victim.alive())
        stop()
        daemon = self.start_daemon()
        daemon.await_process(victim.pid)
        self.assert_whole(daemon.dump(victim.pid), victim.pid)

    def test_a_crash_under_a_daemon_of_another_abi_is_taken_by_the_next(self):
        stop, refused = self.refuse_all()
        victim = self.start_victim("crash_deaths", "null_pointer", "told", ready=None, stdin="")
        eventually("the agent was refused", lambda: refused)
        victim.process.stdin.write(b"\n")
        victim.process.stdin.flush()
        self.assertEqual(-11, victim.process.wait(60))
        stop()
        daemon = self.start_daemon()
        crashes = eventually("the crash is taken in", lambda: daemon.ctl_json("list", "--crashes").get("dumps"))
        self.assertIn("crash_deaths", crashes[0]["process"]["displayName"])


if __name__ == "__main__":
    unittest.main()
