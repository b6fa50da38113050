"""Tasks of asyncio that come and go, of two kinds with functions of their own; says "ready" when they do."""

import asyncio


async def left():
    for _ in range(3):
        await left_inside()


async def left_inside():
    await asyncio.sleep(0.001)
    await left_deep()


async def left_deep():
    await asyncio.sleep(0.0005)


async def right():
    for _ in range(2):
        await right_inside()


async def right_inside():
    await right_deep()
    await asyncio.sleep(0)


async def right_deep():
    await asyncio.sleep(0.001)


async def main():
    asyncio.current_task().set_name("main")
    print("ready", flush=True)
    while True:
        await asyncio.gather(*(asyncio.create_task(kind(), name=kind.__name__) for kind in 20 * (left, right)))


asyncio.run(main())
