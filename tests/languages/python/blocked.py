"""Threads that stand still in each way that Python code can, and say so: "ready".

    blocked.py             all of them asleep, locked out of a lock, reading, in callbacks from C
    blocked.py busy        and one that computes with the interpreter's lock
    blocked.py regex       and the main thread in C code that keeps the lock, for minutes
    blocked.py ascii       but none in a function with another letter in its name
"""

import ctypes
import os
import re
import sys
import threading
import time

in_place = threading.Semaphore(0)


def sleeper():
    in_place.release()
    time.sleep(1000)


def schläfer():
    in_place.release()
    time.sleep(1000)


class Worker:
    def spin(self):
        in_place.release()
        count = 0
        while True:
            count += 1

    @staticmethod
    def read():
        reader, self_writer = os.pipe()
        in_place.release()
        return os.read(reader, self_writer)


first, second = threading.Lock(), threading.Lock()
both_hold_one = threading.Barrier(2)


def first_then_second():
    with first:
        both_hold_one.wait()
        in_place.release()
        with second:
            pass


def second_then_first():
    with second:
        both_hold_one.wait()
        in_place.release()
        with first:
            pass


def key(number):
    if number == 3:
        in_place.release()
        time.sleep(1000)
    return number


def sorter():
    def inner():
        sorted([5, 4, 3, 2], key=key)

    list(map(lambda _: inner(), [1]))


def numbers():
    yield 1
    in_place.release()
    time.sleep(1000)


def generated():
    return sum(number for number in numbers())


def called_back():
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def compare(left, right):
        in_place.release()
        time.sleep(1000)
        return 0

    array = (ctypes.c_int * 4)(4, 3, 2, 1)
    ctypes.CDLL(None).qsort(array, ctypes.c_size_t(4), ctypes.c_size_t(4), compare)


def deep(levels=60):
    if levels > 0:
        return deep(levels - 1) + 1
    in_place.release()
    time.sleep(1000)
    return 0


def waits_for_the_gil():
    while True:
        time.sleep(0.001)


class Dropped:
    def __del__(self):
        in_place.release()
        time.sleep(1000)


def in_a_finalizer():
    Dropped()


THREADS = [sleeper, schläfer, Worker.read, first_then_second, second_then_first, sorter, generated, called_back, deep,
           in_a_finalizer]


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    threads = list(THREADS)
    if mode == "ascii":
        threads.remove(schläfer)
    if mode == "busy":
        threads.append(Worker().spin)
    for function in threads:
        threading.Thread(target=function, daemon=True).start()
    for _ in threads:
        in_place.acquire()
    if mode == "regex":
        for _ in range(3):
            threading.Thread(target=waits_for_the_gil, daemon=True).start()
        print("ready", flush=True)
        re.match(r"(a+)+$", "a" * 60 + "b")
    print("ready", flush=True)
    time.sleep(1000)


main()
