"""Ends as its first argument says; with a second one, unhandled exceptions are dumped.

    raise      by an exception of the main thread
    thread     of another, and the program goes on to its end
    memory     because it may have no more
    exit       by sys.exit()
    interrupt  as by Ctrl-C
"""

import os
import resource
import signal
import sys
import threading
import time

if len(sys.argv) > 2:
    import stackd

    stackd.dump_on_unhandled_exceptions()


class Shop:
    def pay(self):
        raise ValueError("card of Mallory")


def sell():
    Shop().pay()


def sell_in_thread():
    thread = threading.Thread(target=sell)
    thread.start()
    thread.join()


def fill():
    everything = []
    try:
        while True:
            everything.append(bytearray(1 << 20))
    finally:
        everything.clear()  # or Python itself would have none to print the traceback with


def run_out_of_memory():
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    fill()


def leave():
    sys.exit("card of Mallory")


def be_interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


WAYS = {"raise": sell, "thread": sell_in_thread, "memory": run_out_of_memory, "exit": leave, "interrupt": be_interrupted}
WAYS[sys.argv[1]]()
