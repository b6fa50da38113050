"""The CPythons that are here, and what tools that we did not write say of a process of theirs."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess

# What deploy/install-deps.sh --tests fetches.
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"
PEERS = CACHE / "python-peers/bin"
PY_SPY = PEERS / "py-spy"
PYSTACK = PEERS / "pystack"

FIRST, LAST = (3, 8), (3, 14)


@dataclasses.dataclass(frozen=True)
class Python:
    path: str
    version: tuple  # (3, 11, 2)

    @property
    def name(self):
        return ".".join(map(str, self.version))

    def __str__(self):
        return self.name + (" of Debian" if self.path == "/usr/bin/python3" else "")


def _version_of(path):
    asked = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:3], sys.implementation.name)"],
                           capture_output=True, text=True)
    words = asked.stdout.split()
    return tuple(map(int, words[:3])) if asked.returncode == 0 and words[3:] == ["cpython"] else None


def _all():
    folder = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    paths = [*folder.glob("3.*/bin/python3"), "/usr/bin/python3", *CACHE.glob("sid/usr/bin/python3.*")]
    pythons = [Python(str(path), _version_of(path)) for path in paths]
    return sorted((p for p in pythons if p.version and p.version >= FIRST), key=lambda p: p.version)


def found():
    """Debian's, each that pyenv has, and what was fetched, oldest first."""
    return [python for python in _all() if python.version[:2] <= LAST]


def too_new():
    """Pythons whose frames stackd does not know."""
    return [python for python in _all() if python.version[:2] > LAST]


@dataclasses.dataclass(frozen=True)
class Line:
    """A Python frame, in a form common to all."""

    function: str
    file: str
    line: int


def ask_py_spy(pid):
    """{tid: (frames innermost first, whether it has the GIL)}"""
    asked = subprocess.run([PY_SPY, "dump", "--json", "--pid", str(pid)], capture_output=True, text=True, timeout=60)
    if asked.returncode != 0:
        raise AssertionError(f"py-spy: {asked.stderr}")
    return {thread["os_thread_id"]: ([Line(frame["name"], os.path.basename(frame["filename"]), frame["line"])
                                      for frame in thread["frames"]], thread["owns_gil"])
            for thread in json.loads(asked.stdout)}


def ask_pystack(pid):
    """{tid: [("Python" or "C", function), ...]} innermost first, inlined C functions left out."""
    asked = subprocess.run([PYSTACK, "remote", "--native", str(pid)], capture_output=True, text=True, timeout=120)
    if asked.returncode != 0:
        raise AssertionError(f"pystack: {asked.stderr}")
    stacks = {}
    frames = []
    for line in asked.stdout.splitlines():
        thread = re.match(r"Traceback for thread (\d+)", line)
        if thread:
            frames = stacks.setdefault(int(thread[1]), [])
        frame = re.match(r'    \((Python|C)\) File ".*", line \d+, in ([^\s@]+)\S* ?(\(inlined\))?', line)
        if frame and not frame[3]:
            frames.insert(0, (frame[1], frame[2]))
    return stacks
