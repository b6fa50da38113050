"""Where the programs of tests/hangs are, and those of them that are not built by Bazel."""

import functools
import os
import pathlib
import shutil
import subprocess

import jdks
from built import built
from elf_variants import rust
from harness import BIN, ROOT

HANGS = BIN / "tests/hangs"
# Modes of the program of that name, which hang_table does not have.
LEADERS = ("condition_of_own_thread", "eventfd_of_own_thread", "inotify", "job_by_the_hour", "netlink", "pipe_of_child",
           "polled", "posix_messages", "shared_semaphore", "signals_by_fd", "signals_by_pause", "signals_by_sigwait",
           "standard_input", "system_v_messages", "terminal", "timed_wait", "timerfd", "udp", "udp6", "unix_datagrams")


@functools.cache
def std_locks():
    """The program with the locks of Rust's own library, or None where there is no compiler."""
    return rust(ROOT / "tests/hangs/hang_rust.rs")


@functools.cache
def parking_lot():
    """The program with locks of that crate, or None where cargo cannot have it."""
    cargo = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
    if not cargo:
        return None
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd/hang_parking_lot"
    done = subprocess.run([cargo, "build", "--quiet", "--release", "--locked", "--target-dir", cache, "--manifest-path",
                            ROOT / "tests/hangs/parking_lot/Cargo.toml"], capture_output=True, check=False)
    return cache / "release/hang_parking_lot" if done.returncode == 0 else None


@functools.cache
def java_classes():
    """The folder of the program in Java, or None where there is no compiler."""
    source, javac = ROOT / "tests/hangs/HangJava.java", jdks.tool("javac")

    def compile_into(folder):
        # The oldest release that one of the VMs here may have.
        subprocess.run([javac, "--release", "8", "-d", folder, source], check=True, capture_output=True)

    return built("hang-java", [source, str(javac), "--release 8"], compile_into) if javac else None


PREPARE = [std_locks, parking_lot, java_classes]


def by_runtime(program, runtime):
    """How a program of a language is run by this interpreter or VM; None where it cannot be."""
    if program == "HangJava":
        return java_classes() and runtime and [runtime, "-Xmx64m", "-XX:+UseSerialGC", "-cp", java_classes(), program]
    return runtime and [runtime, ROOT / "tests/hangs" / {"hang_python": "hang_python.py", "hang_node": "hang_node.js"}[program]]


def command_of(program):
    """How a program is run, by its name in hang_table; None where it cannot be."""
    if program == "hang_python":
        return by_runtime(program, "/usr/bin/python3")
    if program == "hang_node":
        return by_runtime(program, shutil.which("node"))
    if program == "HangJava":
        return by_runtime(program, jdks.tool("java"))
    path = path_of(program)
    return path and [path]


def path_of(program):
    """The path of a program by its name in hang_table; None where it cannot be built."""
    if program == "hang_rust":
        return std_locks()
    if program == "hang_parking_lot":
        return parking_lot()
    return HANGS / program
