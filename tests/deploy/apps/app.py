"""What each program here does. It stands still in a function that has a name, and says "ready". Then it does what a line on its
standard input says: "crash", "hang" or "fill". "hang": two threads want each other's lock. Where owners of locks cannot be
known, what a loop promised is broken. "fill": memory, until it is killed."""

import ctypes
import sys
import threading
import time

first, second = threading.Lock(), threading.Lock()


def stands_still():
    time.sleep(10000)


def lock_crosswise(one, other, both):
    with one:
        both.wait()
        with other:
            pass


def read_at_null():
    ctypes.string_at(8)


def obey():
    word = sys.stdin.readline().strip()
    if word == "crash":
        read_at_null()
    if word == "hang":
        import stackd
        with stackd.heartbeat("worker", limit=1) as heart:
            heart.beat()
            both = threading.Barrier(2)
            threading.Thread(target=lock_crosswise, args=(first, second, both)).start()
            lock_crosswise(second, first, both)
    if word == "fill":
        kept = []
        while True:
            kept.append(bytearray(b"x" * 1048576))


threading.Thread(target=stands_still).start()
print("ready", flush=True)
obey()
