"""The agent's functions (stackd/agent.h), where there is an agent."""

import ctypes

import stackd

_PR_SET_NAME = 15


def _find():
    if not stackd.install():
        return None
    # PyDLL keeps the GIL: none of these waits, and giving it away would cost more than the call.
    library = ctypes.PyDLL(None)
    try:
        library.stackd_heartbeat_register.restype = ctypes.c_void_p
        library.stackd_heartbeat_register.argtypes = [ctypes.c_char_p, ctypes.c_uint]
        for function in (library.stackd_beat, library.stackd_heartbeat_suspend, library.stackd_heartbeat_unregister):
            function.restype = None
            function.argtypes = [ctypes.c_void_p]
        library.stackd_set_process_name.argtypes = [ctypes.c_char_p]
    except AttributeError:
        return None
    return library


_agent = _find()

# Longer is as good as this: numbers of milliseconds that fit into an int.
_LONGEST_S = 1_000_000


def _ask_for_dump(name, arguments, timeout):
    if _agent is None:
        return False
    # This one waits: other threads run meanwhile, or theirs would be a stack of waiting for us.
    function = getattr(ctypes.CDLL(None), name)
    return function(*arguments, ctypes.c_int(int(max(0, min(timeout, _LONGEST_S)) * 1000))) == 0


def dump_now(timeout):
    return _ask_for_dump("stackd_dump_now", (), timeout)


def dump_exception(type_name, timeout):
    return _ask_for_dump("stackd_dump_exception", (ctypes.c_char_p(type_name.encode(errors="replace")),), timeout)


def name_process(name):
    return _agent is not None and _agent.stackd_set_process_name(name.encode(errors="replace")) == 0


def name_thread(name):
    prctl = ctypes.PyDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_char_p]
    # Not half a character at the end.
    cut = name.encode(errors="replace")[:15].decode("utf-8", "ignore").encode()
    return prctl(_PR_SET_NAME, cut) == 0


class HeartbeatCell:
    def __init__(self, name, limit):
        self._beat = self._suspend = self._unregister = None
        if _agent is None:
            return
        cell = ctypes.c_void_p(_agent.stackd_heartbeat_register(name.encode(errors="replace"), int(max(0.01, min(limit, _LONGEST_S)) * 1000)))
        self._cell = cell
        self._beat = _agent.stackd_beat
        self._suspend = _agent.stackd_heartbeat_suspend
        self._unregister = _agent.stackd_heartbeat_unregister

    def beat(self):
        if self._beat is not None:
            self._beat(self._cell)

    def suspend(self):
        if self._suspend is not None:
            self._suspend(self._cell)

    def close(self):
        unregister, self._unregister = self._unregister, None
        self._beat = self._suspend = None
        if unregister is not None:
            unregister(self._cell)
