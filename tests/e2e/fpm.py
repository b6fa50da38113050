"""A pool of PHP-FPM, and requests to it by FastCGI."""

import pathlib
import socket
import struct
import subprocess

import interpreters
from harness import Victim

PHP_FPM = interpreters.CACHE / "unpacked/php8.2-fpm/usr/sbin/php-fpm8.2"

# https://fastcgi-archives.github.io/FastCGI_Specification.html
_BEGIN_REQUEST, _PARAMS, _STDIN = 1, 4, 5
_RESPONDER = 1


def _record(kind, content):
    return struct.pack("!BBHHBx", 1, kind, 1, len(content), 0) + content


def request(path, script, query=""):
    """Asks the pool at a socket to run a script. Returns the connection, on which the answer will come."""
    parameters = {"SCRIPT_FILENAME": str(script), "REQUEST_METHOD": "GET", "QUERY_STRING": query}
    pairs = b"".join(struct.pack("!BB", len(name), len(value)) + name.encode() + value.encode() for name, value in parameters.items())
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    connection.sendall(_record(_BEGIN_REQUEST, struct.pack("!HB5x", _RESPONDER, 0)) + _record(_PARAMS, pairs) + _record(_PARAMS, b"") +
                       _record(_STDIN, b""))
    return connection


class Pool:
    """Workers under the agent, that listen at `path`."""

    def __init__(self, directory, workers, **kwargs):
        self.path = pathlib.Path(directory) / "fpm.sock"
        configuration = pathlib.Path(directory) / "fpm.conf"
        configuration.write_text(f"[global]\nerror_log = {directory}/fpm.log\ndaemonize = no\n[www]\nlisten = {self.path}\n"
                                 f"user = root\ngroup = root\npm = static\npm.max_children = {workers}\n")
        self.master = Victim([PHP_FPM, "-n", "-R", "-y", configuration, "-p", directory], directory=directory, ready=None, **kwargs)

    def workers(self):
        children = subprocess.run(["pgrep", "-P", str(self.master.pid)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in children.stdout.split()]
