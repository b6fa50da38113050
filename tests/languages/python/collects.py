"""Collects garbage most of the time: circles whose finalizers and weak references call Python, among many objects that stay."""

import gc
import weakref

kept = [[number] for number in range(300_000)]
calls = 0


def deeper(levels):
    global calls
    if levels > 0:
        return deeper(levels - 1)
    calls += 1


class Circle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        deeper(3)


class Watched:
    def __init__(self):
        self.itself = self


def forgotten(reference):
    deeper(3)


def gather():
    references = []
    for _ in range(5_000):
        Circle()
        references.append(weakref.ref(Watched(), forgotten))
    gc.collect()  # the collection


gc.disable()
print("ready", flush=True)
while True:
    before = calls
    gather()
    assert calls == before + 10_000
