"""Dies as its argument says, with another thread asleep.

    segv            in C code that Python called
    segv_in_thread  the same, not on the main thread
    abort           abort(), as the runtime itself ends
    fatal           Py_FatalError()
    overflow        the C stack
"""

import ctypes
import os
import sys
import threading
import time

in_place = threading.Event()


def bystander():
    in_place.set()
    time.sleep(1000)


def read_at_null():
    ctypes.string_at(0)


def pay():
    read_at_null()


def in_thread():
    thread = threading.Thread(target=pay)
    thread.start()
    thread.join()


def fatal():
    ctypes.pythonapi.Py_FatalError(b"told to")


class Bottomless:
    def __getattr__(self, name):
        return getattr(self, name)


def recurse(level):
    return recurse(level + 1)


def overflow():
    sys.setrecursionlimit(10**9)
    if sys.version_info < (3, 11):
        recurse(0)
    # From 3.11 on Python's calls of Python do not use the C stack. Calls through C have a limit of their own: more than a small
    # stack has room for. From 3.14 on there is none: it looks how much there is.
    callback = ctypes.CFUNCTYPE(ctypes.c_int)

    @callback
    def deeper():
        return deeper()

    threading.stack_size(256 << 10)
    thread = threading.Thread(target=deeper)
    thread.start()
    thread.join()


WAYS = {"segv": pay, "segv_in_thread": in_thread, "abort": os.abort, "fatal": fatal, "overflow": overflow}

if __name__ == "__main__":
    threading.Thread(target=bystander, daemon=True).start()
    in_place.wait()
    print("ready", flush=True)
    WAYS[sys.argv[1]]()
