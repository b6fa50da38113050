"""Threads that take two locks in turn, and never one inside of the other: no thread can wait for ever.

    turns_locks.py Lock|RLock sleep|compute    the kind of lock, and what is done with it
"""

import random
import sys
import threading
import time

HOLD_US = 200
COMPUTED = 3000

kind, act = sys.argv[1:]
turns = tuple(getattr(threading, kind)() for _ in range(2))


def take_turns(number):
    pick = random.Random(number)
    at = number % 2
    while True:
        with turns[at]:
            if act == "sleep":
                time.sleep(pick.randrange(HOLD_US) / 1e6)
            else:
                sum(range(COMPUTED))
        at = 1 - at


for each in range(4):
    threading.Thread(target=take_turns, args=(each,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
