"""Breakpad as a library to preload: the peer that writes a minidump in the process that crashes."""

import os
import pathlib
import shutil
import subprocess

from stand import say

SOURCE = pathlib.Path(__file__).with_name("breakpad_peer")
FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "stackd/bench/breakpad_peer"


def breakpad_library():
    """Its path, built where it is not there yet; None where that cannot be."""
    cargo = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
    if cargo is None:
        say("crash: no cargo, so no Breakpad to compare with")
        return None
    # cargo writes beside what it builds.
    shutil.copytree(SOURCE, FOLDER, dirs_exist_ok=True)
    built = subprocess.run([cargo, "build", "--quiet", "--release"], cwd=FOLDER, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        say(f"crash: Breakpad could not be built: {built.stderr[-500:]}")
        return None
    return FOLDER / "target/release/libbreakpad_peer.so"
