"""stackd in a Python program. With LD_PRELOAD, or where the wheel is installed, nothing here need be called.

    import stackd
    stackd.install()

Nothing here fails the program: without an agent or a daemon every call does nothing, and says so where it returns a bool.
"""

__version__ = "0.1.0"
__all__ = [
    "Heartbeat",
    "dump_now",
    "dump_on_unhandled_exceptions",
    "heartbeat",
    "install",
    "name_process",
    "name_thread",
    "watch_asyncio",
]


def install():
    """Loads the agent, if it is not here yet. False: STACKD_DISABLE is set, or it cannot be loaded."""
    try:
        from stackd import _load
        return _load.load()
    except (ImportError, OSError):
        return False


def dump_now(timeout=2.0):
    """Asks for a dump of this process; waits until its threads were captured, at most `timeout` seconds (0: not at all).
    Whether that was in time."""
    from stackd import _api
    return _api.dump_now(timeout)


def name_process(name):
    """What `stackctl ps` and dumps call this process."""
    from stackd import _api
    return _api.name_process(name)


def name_thread(name):
    """What dumps call the calling thread: at most 15 bytes of UTF-8. (From 3.14 on Python does this by itself.)"""
    from stackd import _api
    return _api.name_thread(name)


class Heartbeat:
    """A promise that a piece of work comes round again in time. See heartbeat()."""

    def __init__(self, name, limit):
        from stackd import _api
        self._cell = _api.HeartbeatCell(name, limit)

    def beat(self):
        """"I am alive.\""""
        self._cell.beat()

    def suspend(self):
        """Not watched until the next beat: before a wait for work that may last."""
        self._cell.suspend()

    def close(self):
        self._cell.close()

    def __enter__(self):
        self.beat()
        return self

    def __exit__(self, *unused):
        self.close()


def heartbeat(name, limit):
    """The daemon takes a dump where `limit` seconds pass between two beats. It watches from outside: that works with every
    thread of the program stuck. Watched from the first beat() on; as a context manager from the beginning of the block.
    """
    return Heartbeat(name, limit)


def watch_asyncio(loop=None, name="asyncio", limit=5.0):
    """Has an event loop (the running one) beat by itself, four times within `limit` seconds. Returns a function that ends
    it."""
    from stackd import _asyncio
    return _asyncio.watch(loop, name, limit)


def dump_on_unhandled_exceptions(timeout=2.0):
    """From now on an unhandled exception, in any thread, is the dump of a crash before it is what it was before. The dump has
    the functions that the exception went through and its type, never its message."""
    from stackd import _exceptions
    _exceptions.install(timeout)
