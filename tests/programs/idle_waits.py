"""Threads that wait for work in each way that Python has, and not for a lock. Says "ready" when all wait."""

import concurrent.futures
import queue
import threading
import time

event, condition, semaphore = threading.Event(), threading.Condition(), threading.Semaphore(0)
tasks, simple_tasks = queue.Queue(), queue.SimpleQueue()


def wait_for_condition():
    with condition:
        condition.wait()


def in_futex(thread):
    with open(f"/proc/self/task/{thread.native_id}/syscall", encoding="ascii") as line:
        return line.read().startswith("202 ")


pool = concurrent.futures.ThreadPoolExecutor(2)
pool.submit(int).result()
waits = (event.wait, wait_for_condition, semaphore.acquire, tasks.get, simple_tasks.get)
threads = [threading.Thread(target=wait) for wait in waits]
for each in threads:
    each.start()
joiner = threading.Thread(target=threads[0].join)
joiner.start()
while not all(map(in_futex, [*threads, joiner])):
    time.sleep(0.001)
print("ready", flush=True)
