"""What Node's own debugger says of a thread that runs: Debugger.pause over a WebSocket, no more of that protocol than it takes."""

import base64
import json
import os
import re
import socket
import struct


class Inspector:
    """The inspector of a Node.js started with --inspect=127.0.0.1:0."""

    def __init__(self, standard_error):
        host, port, path = re.search(r"ws://([\d.]+):(\d+)(/\S+)", standard_error).groups()
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.reader = self.socket.makefile("rb")
        if b" 101 " not in self.reader.readline():
            raise AssertionError("the debugger does not speak")
        while self.reader.readline().strip():
            pass
        self.last = 0

    def close(self):
        self.reader.close()
        self.socket.close()

    def _send(self, method):
        self.last += 1
        text = json.dumps({"id": self.last, "method": method}).encode()
        mask = os.urandom(4)
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(text))
        self.socket.sendall(bytes([0x81, 0x80 | len(text)]) + mask + masked)

    def _receive(self):
        _, length = self.reader.read(2)
        if length == 126:
            length = struct.unpack(">H", self.reader.read(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", self.reader.read(8))[0]
        return json.loads(self.reader.read(length))

    def paused_frames(self):
        """Innermost first: (function, file, line)."""
        self._send("Debugger.enable")
        self._send("Debugger.pause")
        urls = {}
        while True:
            message = self._receive()
            if message.get("method") == "Debugger.scriptParsed":
                urls[message["params"]["scriptId"]] = message["params"]["url"].removeprefix("file://")
            if message.get("method") == "Debugger.paused":
                break
        return [(frame["functionName"], urls.get(frame["location"]["scriptId"], ""), frame["location"]["lineNumber"] + 1)
                for frame in message["params"]["callFrames"]]
