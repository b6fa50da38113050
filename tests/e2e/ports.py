"""TCP ports for servers of tests: each port goes to one caller on the machine, also where several runs work beside each other.

The kernel's own choice (bind to port 0, close) may be given to the next client or to another test before the server binds it.
"""

import fcntl
import os
import pathlib
import random
import socket
import tempfile

# Below the range from which the kernel takes ports of clients, /proc/sys/net/ipv4/ip_local_port_range.
FIRST, LAST = 20000, 32000
LOCKS = pathlib.Path(tempfile.gettempdir()) / "stackd-test-ports"

_held = []


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_port():
    """A port that nothing listens at. It belongs to this process until its end."""
    LOCKS.mkdir(mode=0o777, exist_ok=True)
    while True:
        port = random.randrange(FIRST, LAST)
        lock = os.open(LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if is_free(port):
            _held.append(lock)
            return port
        os.close(lock)
