"""Tasks of asyncio that wait: three for a future, one for another task, one in a generator, the first one for time. Says of each
what the interpreter knows, "task NAME FUNCTION:LINE ...", innermost first; then "ready"."""

import asyncio


def frames_of(coroutine):
    frames = []
    while frame := getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None):
        frames.insert(0, f"{getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)}:{frame.f_lineno}")
        coroutine = coroutine.cr_await if hasattr(coroutine, "cr_await") else coroutine.gi_yieldfrom
    return frames


def say_all():
    for task in asyncio.all_tasks():
        print("task", task.get_name(), *frames_of(task.get_coro()))
    print("ready", flush=True)


async def fetch(never):
    await never


async def order(never):
    """Like many."""
    await fetch(never)


async def waits_for(task):
    # Called when all of them wait.
    asyncio.get_running_loop().call_soon(say_all)
    await task


class Future:
    def __init__(self, never):
        self.never = never

    def __await__(self):
        return (yield from self.inside())

    def inside(self):
        return (yield from self.never)


async def in_a_generator(never):
    await Future(never)


async def is_over():
    return 1


async def main():
    never = asyncio.get_running_loop().create_future()
    orders = [asyncio.create_task(order(never), name=f"order-{i}") for i in range(3)]
    waits = asyncio.create_task(waits_for(orders[2]), name="waits")
    generator = asyncio.create_task(in_a_generator(never), name="generator")
    over = asyncio.create_task(is_over(), name="over")
    await asyncio.sleep(1000)
    await asyncio.gather(waits, generator, over)


asyncio.run(main())
