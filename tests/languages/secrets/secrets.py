"""A string and a number in every kind of place that a program of Python has for values; then it waits, and a thread runs."""

import asyncio
import sys
import threading

ATTRIBUTE = "value"


class Keeper:
    def __init__(self, text, number):
        self.text, self.number, self.copies = text, number, {text: [number, text.encode()]}

    def wait(self, text, begun):
        local, parts = text + "!", [text[:8], text[8:]]
        try:
            raise ValueError(text)
        except ValueError as error:
            begun.set()
            threading.Event().wait()
            return local, parts, error


def spin(text, number, begun):
    local = text * 2
    begun.set()
    while local:
        number ^= len(local) - len(text) * 2


async def task(text, number, begun):
    begun.set()
    await asyncio.sleep(10000)
    return text, number


def main():
    text, number = sys.stdin.readline().strip(), int(sys.stdin.readline(), 16)
    keeper = Keeper(text, number)
    begun = [threading.Event() for _ in range(3)]
    for function, arguments in ((keeper.wait, (text, begun[0])), (spin, (text, number, begun[1])),
                                (lambda: asyncio.run(task(text, number, begun[2])), ())):
        threading.Thread(target=function, args=arguments, daemon=True).start()
    for one in begun:
        one.wait()
    print("ready", flush=True)
    sys.stdin.readline()
    return keeper


main()
