"""Hangs have the same verdicts where nothing but libc's exported names is known, as in most images. They and crashes have them
with a glibc that is newer than this machine's, too. From 2.41 on its calls that can be cancelled pass the number of the call on
the stack. From 2.42 on guard pages are no mappings of their own."""

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import pytest

import crash_victims_test
import hang_victims_test

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd"
NEWER = CACHE / "sid/usr/lib/x86_64-linux-gnu"


@functools.cache
def with_newer_libc(program, folder):
    """A copy of a program that runs with the newer glibc."""
    copy = pathlib.Path(folder) / pathlib.Path(program).name
    shutil.copy(program, copy)
    subprocess.run(["patchelf", "--set-interpreter", NEWER / "ld-linux-x86-64.so.2", "--force-rpath", "--set-rpath", NEWER,
                    copy], check=True)
    return copy


# Rows of hang_table that run with each libc in tests/run.sh; one for each way to wait that a libc has. All of them run in --all.
ROWS = {"mutex_cycle_2", "mutex_owner_asleep_timed_waiter", "mutex_abandoned", "sync_rwlock_writer_asleep", "sync_join_cycle",
        "sync_lost_wakeup", "sync_once_recursion", "sync_semaphore", "sync_malloc_in_handler", "cpp_starved_pool",
        "cpp_static_variables_cycle", "kernel_stream_to_full_pipe", "idle_condition_variable_pools", "idle_event_loops"}


def leave_rest_to_all(test_class):
    """Marks the cases of a class that are no rows of ROWS as thorough."""
    for name in dir(test_class):
        row = name.removeprefix("test_").removeprefix("not_hung_")
        if name.startswith("test_") and row not in ROWS:
            setattr(test_class, name, thorough(getattr(test_class, name)))
    return test_class


def thorough(inherited):
    """A case of its own, so that the mark is not one of the class that it comes from."""

    @pytest.mark.thorough
    def run(self):
        inherited(self)

    return run


class OtherLibc:
    """The victims of hang_victims_test, each under its name there."""

    def compare_owners_with_gdb(self, dump, pid):
        """There it is compared."""


@leave_rest_to_all
class NoDebugFilesTest(OtherLibc, hang_victims_test.HangVictimsTest):

    def start_daemon(self, **options):
        empty = self.dir / "no-debug-files"
        empty.mkdir()
        return super().start_daemon(extra_args=["--debug-dir", empty], **options)


class NewerGlibc:
    """Victims of another class, run with the newer glibc."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not NEWER.exists() or not shutil.which("patchelf"):
            raise unittest.SkipTest("there is no newer glibc, or no patchelf to run a program with it")
        cls.folder = tempfile.mkdtemp(prefix="stackd-e2e-libc-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def program(self, victim):
        return with_newer_libc(super().program(victim), self.folder)


@leave_rest_to_all
class NewerGlibcTest(NewerGlibc, OtherLibc, hang_victims_test.HangVictimsTest):
    pass


class NewerGlibcCrashTest(NewerGlibc, crash_victims_test.CrashVictimsTest):

    def rust_program(self):
        return with_newer_libc(super().rust_program(), self.folder)


if __name__ == "__main__":
    unittest.main()
