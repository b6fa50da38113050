"""C libraries beside each other: glibc of before and after 2.34 and 2.41, where it changed most, and musl. A program is built once
for all of glibc, with symbols that the oldest has, and is told which one to run with."""

import os
import pathlib
import shutil
import subprocess

from built import built
from harness import ROOT

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd"
# Its compiler knows which symbols each release of glibc had.
PYTHON = CACHE / "image-tools/bin/python"
OLDEST_SYMBOLS = "2.17"
MUSL_LOADER = pathlib.Path("/lib/ld-musl-x86_64.so.1")
SOURCES = ROOT / "tests/programs"

# glibc: where its libraries are; None: it is the machine's.
GLIBC = {
    "glibc_2_31": CACHE / "old-glibc/lib/x86_64-linux-gnu",
    "glibc_2_36": None,
    "glibc_2_43": CACHE / "sid/usr/lib/x86_64-linux-gnu",
}
NAMES = (*GLIBC, "musl")


def why_not(name):
    """What is missing to run a program with this library; empty: nothing."""
    if name == "musl":
        is_there = MUSL_LOADER.exists() and shutil.which("musl-gcc")
        return "" if is_there else "no musl, or no musl-gcc (package musl-tools)"
    folder = GLIBC[name]
    if not PYTHON.exists() or not shutil.which("patchelf") or (folder and not folder.exists()):
        return f"no {name}, or no compiler for its symbols: deploy/install-deps.sh --tests installs them"
    return ""


def _compile(name, program, source):
    options = ["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-I", ROOT, source, "-o", program, "-pthread", "-ldl"]
    if name == "musl":
        subprocess.run(["musl-gcc", *options], check=True)
        return
    subprocess.run([PYTHON, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{OLDEST_SYMBOLS}", *options], check=True)
    folder = GLIBC[name]
    if folder:
        subprocess.run(["patchelf", "--set-interpreter", folder / "ld-linux-x86-64.so.2", "--force-rpath", "--set-rpath", folder,
                        program], check=True)


def program_with(name, program):
    """The path of a program of tests/programs, in C, for this library."""
    source = SOURCES / f"{program}.c"
    inputs = [source, SOURCES / "victim.h", pathlib.Path(__file__), str(GLIBC.get(name))]
    return built(f"{program}-{name}", inputs, lambda folder: _compile(name, folder / program, source)) / program


def prepare(program):
    for name in NAMES:
        if not why_not(name):
            program_with(name, program)
