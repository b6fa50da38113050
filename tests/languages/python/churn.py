"""Makes and drops code, threads, frames, generators and garbage until its stdin ends; then says "well" if all came out
right."""

import gc
import sys
import threading

over = threading.Event()
wrong = []


def recurse(levels):
    return 1 if levels == 0 else recurse(levels - 1) + 1


class Node:
    pass


def make_code():
    number = 0
    while not over.is_set():
        number += 1
        names = {}
        exec(compile(f"def made_{number % 50}(x):\n return sum([i for i in range(x)])", f"<made {number}>", "exec"), names)
        if names[f"made_{number % 50}"](20) != 190 or recurse(50) != 51:
            wrong.append("code")
        node = Node()
        node.itself = node


def make_garbage():
    while not over.is_set():
        if sum(number * 2 for number in range(100)) != 9900:
            wrong.append("generator")
        gc.collect(0)


def sort_with_callbacks():
    while not over.is_set():
        if sorted(range(30), key=lambda number: recurse(number % 5) and -number)[0] != 29:
            wrong.append("sort")


def make_threads():
    while not over.is_set():
        threads = [threading.Thread(target=recurse, args=(30,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main():
    threads = [threading.Thread(target=function)
               for function in (make_code, make_code, make_garbage, sort_with_callbacks, make_threads)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print("wrong: " + ", ".join(wrong[:5]) if wrong else "well", flush=True)


main()
