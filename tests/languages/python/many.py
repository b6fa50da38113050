"""many.py COUNT DEPTH: so many threads asleep in so many calls of Python functions, then "ready"."""

import sys
import threading
import time

in_place = threading.Semaphore(0)


def call(levels):
    if levels > 0:
        return call(levels - 1)
    in_place.release()
    time.sleep(100000)
    return 0


def main():
    count, depth = map(int, sys.argv[1:])
    threading.stack_size(1 << 20)
    # Three more stand below it: run and the two that start a thread.
    for _ in range(count):
        threading.Thread(target=call, args=(depth - 4,), daemon=True).start()
    for _ in range(count):
        in_place.acquire()
    print("ready", flush=True)
    time.sleep(100000)


main()
