"""A program of forty bugs, as two compilers build it at each level of optimization, as it is and with lines shifted."""

import concurrent.futures
import dataclasses
import itertools
import os
import shutil
import subprocess

from built import built
from tier import FULL

COMPILERS = ("gcc", "clang-14")
LEVELS = ("O0", "O1", "O2", "O3")

# `address` is 0. No two functions are the same: a compiler would make them one.
DEATHS = {
    "read_price": "return *(volatile int*)address + NUMBER;",
    "write_price": "*(volatile int*)(address + 0x123456780 + 16 * NUMBER) = NUMBER; return NUMBER;",
    "share_price": "volatile int parts = (int)address; return NUMBER / parts;",
    "give_up": "if (address == 0) abort(); return NUMBER;",
    "check_price": "assert(address == NUMBER); return NUMBER;",
    "drop_price": "volatile long local[4] = {NUMBER}; void* volatile block = (void*)(local + address + 1); free(block); return 1;",
    "call_price": "return ((int (*)(void))address)() + NUMBER;",
    "trap_price": "if (address == 0) __builtin_trap(); return NUMBER;",
}

# How the function that dies is called by that of the bug.
SHAPES = {
    "alone": "ENTRY int BUG(long address) { seen += NUMBER; DEATH }",
    "by_part": "static int BUG_part(long address) { seen += NUMBER; DEATH }\n"
               "ENTRY int BUG(long address) { return BUG_part(address) + 1; }",
    "by_tail_call": "ENTRY int BUG_last(long address) { seen += NUMBER; DEATH }\n"
                    "ENTRY int BUG(long address) { seen = NUMBER; return BUG_last(address); }",
    "by_pointer": "int BUG_called(long address) { seen += NUMBER; DEATH }\n"
                  "int (*volatile BUG_pointer)(long) = BUG_called;\n"
                  "ENTRY int BUG(long address) { return BUG_pointer(address) + 1; }",
    "in_loop": "static int BUG_step(long address, int step) { if (step < 3) return step; seen += NUMBER; DEATH }\n"
               "ENTRY int BUG(long address) { int n = 0; for (int i = 0; i < 5; ++i) n += BUG_step(address, i); return n; }",
}

# As functions of other files are: put into one function, their ends would become one piece of code.
ENTRY = "__attribute__((noinline))"

BEGIN = """
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
static volatile int seen;
"""
SHIFT = """
__attribute__((used)) static int shift(int n) {
  for (int i = 0; i < 100; ++i) n = n * 31 + i;
  return n;
}
"""


def bugs():
    """Names of the functions that have a bug."""
    return [f"{death}_{shape}" for death, shape in itertools.product(DEATHS, SHAPES)]


def source(is_shifted):
    text = BEGIN + (SHIFT if is_shifted else "")
    for number, (death, shape) in enumerate(itertools.product(DEATHS, SHAPES), 1):
        body = SHAPES[shape].replace("DEATH", DEATHS[death]).replace("BUG", f"{death}_{shape}").replace("NUMBER", str(number))
        body = body.replace("ENTRY", ENTRY)
        text += body + "\n"
    cases = "".join(f"    case {number}: return {name}(address) + 1;\n" for number, name in enumerate(bugs()))
    return text + f"""
__attribute__((noinline)) static int serve(int number, long address) {{
  switch (number) {{
{cases}  }}
  return 0;
}}

int main(int count, char** words) {{
  puts("ready");
  fflush(stdout);
  getchar();
  return serve(atoi(words[1]), count - 2) + 1;
}}
"""


@dataclasses.dataclass(frozen=True)
class Build:
    compiler: str
    level: str
    is_shifted: bool

    @property
    def name(self):
        return f"{self.compiler} -{self.level}{' shifted' if self.is_shifted else ''}"

    def program(self):
        """The path of the program; None where there is no such compiler."""
        if shutil.which(self.compiler) is None:
            return None
        text = source(self.is_shifted)

        def compile_into(folder):
            (folder / "bugs.c").write_text(text)
            subprocess.run([self.compiler, "-w", "-g", f"-{self.level}", "-std=gnu11", "-o", folder / "bugs", folder / "bugs.c"],
                           check=True)

        return built("bugs", [text, self.compiler, self.level], compile_into) / "bugs"


ALL = [Build(*choice) for choice in itertools.product(COMPILERS, LEVELS, (False, True))]
# The least and the most that a compiler makes of it.
BUILDS = ALL if FULL else [Build("gcc", "O0", False), Build("clang-14", "O3", True)]


def prepare():
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(Build.program, BUILDS))
