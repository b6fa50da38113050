"""A heartbeat of an event loop: it comes round, or it does not."""

import asyncio

import stackd


def watch(loop, name, limit):
    loop = loop or asyncio.get_running_loop()
    heartbeat = stackd.heartbeat(name, limit)

    # A task, because asyncio.run() ends those that are left: a loop that has ended is not one that hangs.
    async def beat():
        try:
            while True:
                heartbeat.beat()
                await asyncio.sleep(limit / 4)
        finally:
            heartbeat.close()

    # Started on the loop's own thread: the heartbeat is that thread's. A loop that does not run yet is not watched.
    beats = asyncio.run_coroutine_threadsafe(beat(), loop)

    def stop():
        beats.cancel()
        heartbeat.close()

    return stop
