"""Loads the agent into this process: what the .pth file runs when Python starts, and install() asks for.

Few microseconds, as every Python of the environment pays for them: no ctypes, no other import of the package's.
"""

import os

# True once the agent is in the process.
loaded = False


def _is_preloaded():
    import _ctypes
    try:
        _ctypes.dlsym(_ctypes.dlopen(None, 0), "stackd_version")
        return True
    except OSError:
        return False


def load():
    """Whether the agent is in this process. It installs itself when it is loaded, once."""
    global loaded
    if loaded or os.environ.get("STACKD_DISABLE", "0") not in ("", "0"):
        return loaded
    import _ctypes
    if not _is_preloaded():
        # The library's symbols are global: stackd_version is how a second copy finds out about the first.
        _ctypes.dlopen(os.path.join(os.path.dirname(__file__), "libstackd_agent.so"), os.RTLD_NOW | os.RTLD_GLOBAL)
    loaded = True
    return True


load()
