"""grpcio of PyPI, which shares no code with the daemon's release: raw calls of stackd.v1.Stackd, as bytes.

deploy/install-deps.sh --tests installs it."""

import glob
import os
import pathlib
import sys
import unittest

FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/grpc-peer"

# Its work before and after a fork() is for children that go on with gRPC; ours become other programs, and have died of it.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

try:
    sys.path[:0] = glob.glob(str(FOLDER / "lib/python3*/site-packages"))
    import grpc
except ImportError:
    grpc = None


def needs_grpcio(test):
    return unittest.skipIf(grpc is None, "grpcio is not installed: deploy/install-deps.sh --tests does")(test)


def _same(data):
    return data


def unary(channel, method):
    """Bytes of a request in, bytes of the answer out."""
    return channel.unary_unary(f"/stackd.v1.Stackd/{method}", request_serializer=_same, response_deserializer=_same)


def text_field(number, text):
    """A field of a message: a string shorter than 16 KiB."""
    data = text.encode()
    size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
    return bytes([number << 3 | 2]) + size + data


def reason(error):
    """That of the ErrorInfo in the trailing metadata of an RpcError: its first field."""
    for key, value in error.trailing_metadata() or ():
        marker = b"type.googleapis.com/google.rpc.ErrorInfo"
        if key == "grpc-status-details-bin" and marker in value:
            rest = value[value.index(marker) + len(marker):]
            at = rest.index(b"\x0a") + 1
            return rest[at + 1:at + 1 + rest[at]].decode()
    return ""
