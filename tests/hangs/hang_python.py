#!/usr/bin/python3
"""Programs of Python that hang, and some that are well: a table of modes, as hang.h has it.

A mode brings its threads where they hang. "ready" comes when each of them is in its system call.
"""

import asyncio
import concurrent.futures
import ctypes
import multiprocessing
import os
import queue
import socket
import sqlite3
import ssl
import sys
import tempfile
import threading
import time

READ, RECVFROM, FUTEX, SLEEP, EPOLL = 0, 45, 202, 230, 232

_LIBC = ctypes.CDLL(None)
_started = []


def thread(name, body, *arguments, call=FUTEX):
    """Starts a thread, whose name the kernel knows, too. It hangs in system call `call`."""

    def run():
        _LIBC.pthread_setname_np(ctypes.c_ulong(threading.get_ident()), name.encode())
        body(*arguments)

    started = threading.Thread(target=run, name=name, daemon=True)
    started.start()
    _started.append((started, call))
    return started


def is_in_call(started, call):
    with open(f"/proc/self/task/{started.native_id}/syscall", encoding="ascii") as line:
        return line.read().split()[0] == str(call)


def say_ready():
    # For a while: on its way there a thread sleeps for other reasons, too.
    quiet_looks = 0
    while quiet_looks < 20:
        quiet_looks = quiet_looks + 1 if all(is_in_call(*each) for each in _started) else 0
        time.sleep(0.005)
    print("ready", flush=True)


# --- RLocks ---


def in_circle(count):
    locks = [threading.RLock() for _ in range(count)]
    all_hold_one = threading.Barrier(count)

    def take_own_then_next(number):
        with locks[number]:
            all_hold_one.wait()
            with locks[(number + 1) % count]:
                pass

    for number in range(count):
        thread(f"cycle-{number}", take_own_then_next, number)


def rlock_cycle_2():
    in_circle(2)


def rlock_cycle_5():
    in_circle(5)


def hold_and(lock, act):
    held = threading.Event()

    def own():
        # As often as it likes.
        with lock, lock:
            held.set()
            act()

    return own, held


def rlock_owner_reads():
    lock = threading.RLock()
    server, client = socket.socketpair()
    own, held = hold_and(lock, lambda: server.recv(1))
    thread("owner", own, call=RECVFROM)
    held.wait()
    for number in range(3):
        thread(f"waiter-{number}", lock.acquire)
    rlock_owner_reads.client = client


def rlock_timed_waiters():
    lock = threading.RLock()
    own, held = hold_and(lock, lambda: time.sleep(3600))
    thread("owner", own, call=SLEEP)
    held.wait()
    thread("patient", lambda: lock.acquire(timeout=3600))


def rlock_and_join():
    """It waits for the end of a thread that waits for its lock."""
    lock = threading.RLock()
    held = threading.Event()

    def work():
        held.wait()
        with lock:
            pass

    def stop(worker):
        with lock:
            held.set()
            worker.join()

    thread("stopper", stop, thread("worker", work))


# --- what has no owner ---


def pool_nested():
    """Each task waits for one that none is left to run."""
    pool = concurrent.futures.ThreadPoolExecutor(2)
    both_run = threading.Barrier(2)

    def outer():
        both_run.wait()
        return pool.submit(int).result()

    for _ in range(2):
        pool.submit(outer)
    pool_nested.pool = pool


def worker_of_one():
    """The only worker waits for a task that it should run itself."""
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def ask():
        return pool.submit(int).result()

    def outer():
        return ask()

    pool.submit(outer)
    worker_of_one.pool = pool


def in_loop(name, coroutine, call):
    thread(name, lambda: asyncio.run(coroutine()), call=call)


def loop_reads():
    """A callback of the loop reads from a peer that does not answer."""
    server, client = socket.socketpair()

    def read_answer():
        client.recv(1)

    async def handle():
        read_answer()

    in_loop("loop", handle, RECVFROM)
    loop_reads.server = server


def loop_awaits_itself():
    """A callback waits for what the loop is to run when the callback has ended."""

    async def handle():
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), asyncio.get_running_loop()).result()

    in_loop("loop", handle, FUTEX)


def lock_after_fork():
    """A child has a copy of a lock that another thread had."""
    lock = threading.Lock()
    held = threading.Event()

    def own():
        with lock:
            held.set()
            time.sleep(3600)

    thread("owner", own, call=SLEEP)
    held.wait()
    child = os.fork()
    if child == 0:
        _LIBC.prctl(1, 9)  # ends with its parent
        lock.acquire()
    print(f"child {child}", flush=True)
    while open(f"/proc/{child}/syscall", encoding="ascii").read().split()[0] != str(FUTEX):
        time.sleep(0.005)


def tasks_of_processes():
    """The work of a queue that processes share is never said to be done."""
    work = multiprocessing.JoinableQueue()
    work.put(1)
    thread("joiner", work.join)


def queue_join():
    work = queue.Queue()
    work.put(1)
    thread("joiner", work.join)


def condition_lost():
    done = threading.Condition()

    def wait():
        with done:
            done.wait()

    with done:
        done.notify_all()
    thread("waiter", wait)


def tls_silent():
    """A peer that does not say hello."""
    server, client = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    lock = threading.Lock()

    def connect():
        with lock:
            context.wrap_socket(client)

    thread("connector", connect, call=READ)
    tls_silent.server = server


def sqlite_busy():
    """A connection that has its database locked, and one that tries again for an hour."""
    path = os.path.join(tempfile.mkdtemp(dir=os.environ.get("STACKD_DIR")), "orders.db")
    owner = sqlite3.connect(path, isolation_level=None)
    owner.execute("BEGIN EXCLUSIVE")
    thread("writer", lambda: sqlite3.connect(path, timeout=3600, isolation_level=None).execute("BEGIN EXCLUSIVE"), call=SLEEP)
    sqlite_busy.owner = owner


# --- programs that are well ---


def idle_pool():
    pool = concurrent.futures.ThreadPoolExecutor(4)
    list(pool.map(lambda _: time.sleep(0.05), range(4)))
    idle_pool.pool = pool


def pool_of_loop():
    """Workers wait for what a loop brings, which has time."""
    loop = asyncio.new_event_loop()
    thread("loop", loop.run_forever, call=EPOLL)
    pool = concurrent.futures.ThreadPoolExecutor(2)
    asked = threading.Barrier(3)

    def ask():
        answer = asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), loop)
        asked.wait()
        return answer.result()

    for _ in range(2):
        pool.submit(ask)
    asked.wait()
    pool_of_loop.kept = pool, loop


def pool_of_pools():
    """Workers of one pool wait for those of another, which are at work."""
    outer, inner = concurrent.futures.ThreadPoolExecutor(2), concurrent.futures.ThreadPoolExecutor(2)
    at_work = threading.Barrier(3)

    def work():
        at_work.wait()
        time.sleep(3600)

    for _ in range(2):
        outer.submit(lambda: inner.submit(work).result())
    at_work.wait()
    pool_of_pools.kept = outer, inner


def pool_of_processes():
    """A worker waits for what another process computes."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    processes = concurrent.futures.ProcessPoolExecutor(1)
    processes.submit(int).result()
    pool.submit(lambda: processes.submit(time.sleep, 3600).result())
    pool_of_processes.kept = pool, processes


def idle_loop():
    in_loop("loop", lambda: asyncio.sleep(3600), EPOLL)


def idle_queue():
    work = queue.Queue()
    for number in range(3):
        thread(f"worker-{number}", work.get)


def condition_of_rlock():
    """Who waits for a condition has given its RLock away, however often it had it."""
    changed = threading.Condition(threading.RLock())

    def wait():
        with changed, changed:
            changed.wait()

    for number in range(3):
        thread(f"waiter-{number}", wait)


def events():
    thread("waiter", threading.Event().wait)
    server, client = socket.socketpair()
    thread("reader", server.recv, 1, call=RECVFROM)
    events.client = client


MODES = (rlock_cycle_2, rlock_cycle_5, rlock_owner_reads, rlock_timed_waiters, rlock_and_join, pool_nested, worker_of_one,
         loop_reads, loop_awaits_itself, lock_after_fork, tasks_of_processes, queue_join, condition_lost, tls_silent,
         sqlite_busy, idle_pool, pool_of_loop, pool_of_pools, pool_of_processes, idle_loop, idle_queue, condition_of_rlock,
         events)

if __name__ == "__main__":
    next(mode for mode in MODES if mode.__name__ == sys.argv[1])()
    say_ready()
    threading.Event().wait()
