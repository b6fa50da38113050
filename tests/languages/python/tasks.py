"""Tasks of asyncio that wait: three for a future, one for another task, the first one for time; then "ready"."""

import asyncio


async def fetch(never):
    await never


async def order(never):
    """Like many."""
    await fetch(never)


async def waits_for(task):
    # Called when all of them wait.
    asyncio.get_running_loop().call_soon(lambda: print("ready", flush=True))
    await task


async def main():
    never = asyncio.get_running_loop().create_future()
    orders = [asyncio.create_task(order(never), name=f"order-{i}") for i in range(3)]
    waits = asyncio.create_task(waits_for(orders[2]), name="waits")
    await asyncio.sleep(1000)
    await waits


asyncio.run(main())
