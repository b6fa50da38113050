"""Peers that pose as daemons: what answers at the address of a pod may be anything."""

import http.server
import socket
import threading


def accept(listener, serve):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=quietly, args=(serve, connection), daemon=True).start()


def quietly(serve, connection):
    try:
        with connection:
            serve(connection)
    except OSError:
        pass


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
# ":status: 200" of the static table, and "content-type: application/grpc" as a literal.
GOOD_HEADERS = b"\x88\x0f\x10" + bytes([len(b"application/grpc")]) + b"application/grpc"


def begin_answer(connection):
    """Answers the first call, without its body; the caller's window is all that will be sent to."""
    connection.sendall(frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, 1, 0, b"") + frame(HEADERS, 4, 1, GOOD_HEADERS))
    # What the caller sends is read, so that it may go on sending.
    threading.Thread(target=quietly, args=(drain, connection.dup()), daemon=True).start()


def drain(connection):
    while connection.recv(65536):
        pass


def says_gigabyte(connection):
    """One message of 1 GiB, and the bytes for it."""
    begin_answer(connection)
    connection.sendall(frame(DATA, 0, 1, b"\0" + (1 << 30).to_bytes(4, "big")))
    sends_without_end(connection)


def endless_stream(connection):
    """Empty messages for ever."""
    begin_answer(connection)
    sends_without_end(connection)


def sends_without_end(connection):
    while True:
        connection.sendall(frame(DATA, 0, 1, bytes(16000)))


def endless_headers(connection):
    connection.sendall(frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 0, 1, GOOD_HEADERS))
    while True:
        connection.sendall(frame(9, 0, 1, b"\x00\x01x" + b"\x7f\x80\x3f" + bytes(8000)))


def garbage(connection):
    connection.sendall(b"\x16\x03\x01 nonsense \xff" * 100)
    drain(connection)


def silent(connection):
    drain(connection)


class Page(http.server.BaseHTTPRequestHandler):
    """A web server of something else, HTTP/1 alone."""

    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    do_GET = do_POST

    def log_message(self, *_):
        pass


def html_over_http2(connection):
    headers = b"\x88\x0f\x10\x09text/html"
    connection.sendall(frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, 1, 0, b"") + frame(HEADERS, 4, 1, headers) +
                       frame(DATA, 1, 1, b"<html>welcome</html>"))
    drain(connection)


KINDS = {
    "gigabyte": (says_gigabyte, "TOO_LARGE|TIMED_OUT"),
    "endless": (endless_stream, "TOO_LARGE|BAD_ANSWER|TIMED_OUT"),
    "headers": (endless_headers, "BAD_ANSWER|BROKE_OFF|TIMED_OUT"),
    "garbage": (garbage, "BAD_ANSWER|BROKE_OFF"),
    "silent": (silent, "TIMED_OUT"),
    "html": (html_over_http2, "BAD_ANSWER"),
}


def start(test):
    """{pod: (address, reasons that may be told)} of one peer of each kind, until the end of the test."""
    peers = {}
    for name, (serve, reason) in KINDS.items():
        listener = socket.create_server(("127.0.0.1", 0))
        test.addCleanup(listener.close)
        threading.Thread(target=accept, args=(listener, serve), daemon=True).start()
        peers[f"hostile-{name}"] = (f"127.0.0.1:{listener.getsockname()[1]}", reason)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    test.addCleanup(web.server_close)
    test.addCleanup(web.shutdown)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    peers["hostile-web"] = (f"127.0.0.1:{web.server_address[1]}", "BAD_ANSWER|BROKE_OFF")
    return peers
