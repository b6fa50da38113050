"""Victims in C as two compilers build them: at each level of optimization, with frame pointers and without."""

import concurrent.futures
import dataclasses
import itertools
import os
import shutil
import subprocess

from built import built
from harness import ROOT
from tier import FULL

COMPILERS = ("gcc", "clang-14")
LEVELS = ("O0", "O1", "O2", "O3")
FRAME_POINTERS = ("omit", "keep")
FLAGS = {"omit": "-fomit-frame-pointer", "keep": "-fno-omit-frame-pointer"}

# Victims whose threads block, by folder.
SOURCES = {
    "tests/programs": ("blocks_signals", "c_calls", "fiber", "in_signal_handler", "jit", "odd_frames",
                       "two_locks", "waiting_threads", "waits_in_libc"),
    "tests/hangs": ("hang_kernel", "hang_mutex", "hang_shared", "hang_sync", "idle", "leaders"),
}


@dataclasses.dataclass(frozen=True)
class Build:
    compiler: str
    level: str
    frame_pointer: str

    @property
    def name(self):
        return f"{self.compiler.replace('-', '_')}_{self.level}_{self.frame_pointer}"

    def folder(self):
        """The folder with all programs of this build; None where there is no such compiler."""
        if shutil.which(self.compiler) is None:
            return None
        version = subprocess.run([self.compiler, "--version"], capture_output=True, text=True, check=True).stdout
        sources = [ROOT / folder / f"{name}.c" for folder, names in SOURCES.items() for name in names]
        headers = [ROOT / "tests/programs/victim.h", ROOT / "tests/hangs/hang.h"]
        # Debug data names the sources by their path.
        return built(f"matrix_{self.name}", [*sources, *headers, str(ROOT), version],
                     lambda folder: self.compile(sources, folder))

    def compile(self, sources, folder):
        for source in sources:
            subprocess.run([self.compiler, "-w", "-g", f"-{self.level}", FLAGS[self.frame_pointer], "-std=gnu11", "-D_GNU_SOURCE",
                            "-I", ROOT, "-o", folder / source.stem, source, "-pthread"], check=True)


BUILDS = [Build(*choice) for choice in itertools.product(COMPILERS, LEVELS, FRAME_POINTERS)]
# One of each compiler, of which one has frame pointers.
BY_DEFAULT = (Build("gcc", "O2", "omit"), Build("clang-14", "O0", "keep"))


def prepare():
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(Build.folder, BUILDS if FULL else BY_DEFAULT))
