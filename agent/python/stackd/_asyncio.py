"""A heartbeat of an event loop: it comes round, or it does not."""

import asyncio

import stackd


def watch(loop, name, limit):
    loop = loop or asyncio.get_running_loop()
    heartbeat = stackd.heartbeat(name, limit)
    state = {"timer": None, "ended": False}

    def beat():
        if state["ended"]:
            return
        heartbeat.beat()
        state["timer"] = loop.call_later(limit / 4, beat)

    def stop():
        if state["ended"]:
            return
        state["ended"] = True
        if state["timer"] is not None:
            state["timer"].cancel()
        heartbeat.close()

    # On the loop's own thread: the heartbeat is that thread's. A loop that does not run is not watched.
    loop.call_soon_threadsafe(beat)
    return stop
