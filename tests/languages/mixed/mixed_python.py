"""Python calls Rust, which calls Python, which waits. argv: the library of middle.rs."""
import ctypes
import os
import sys
import traceback

library = ctypes.CDLL(sys.argv[1])


@ctypes.CFUNCTYPE(None)
def called_back():
    innermost()


def innermost():
    for frame in reversed(traceback.extract_stack()):
        print(f"own {frame.name} {frame.lineno if frame.name != 'innermost' else 0}")
    print("ready", flush=True)
    os.read(0, 1)


def outermost():
    library.rust_calls_back(called_back)


outermost()
