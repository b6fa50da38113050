#!/usr/bin/env python3
"""What an agent and a daemon of different builds share is in its place: compares the headers with the table abi.txt.

    tests/compat/abi_test.py                        compares; a bazel test does
    tests/compat/abi_test.py --write                writes the table, for additions, or a new STACKD_ABI_VERSION
    tests/compat/abi_test.py --write --unreleased   for anything, while no release has this version of the ABI

The table has every constant, enum value, struct and member of ring_abi.h, spool.h and wire.h, with size, offset and type as the
compiler has them. It has the functions of agent.h. Members called pad or reserved may give way to others.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
INCLUDE = HERE.parents[1] / "agent/include"
TABLE = HERE / "abi.txt"
HEADERS = ("ring_abi.h", "spool.h", "wire.h", "agent.h")
# The headers' own assertions would end it before this test can say what to do.
GCC = ("gcc", "-std=c11", "-D_Static_assert(a,b)=_Static_assert(1,b)", f"-I{INCLUDE}")
MAY_GO = re.compile(r"\.(pad|reserved)\w* ")

# Run by gdb, which has the types from the debug information of an object file.
LIST_TYPES = """
import gdb
for name in {structs}:
    type = gdb.lookup_type("struct " + name)
    print(f"struct {{name}} size {{type.sizeof}}")
    for field in type.fields():
        print(f"member {{name}}.{{field.name}} offset {{field.bitpos // 8}} size {{field.type.sizeof}} type {{field.type}}")
for name in {enums}:
    for field in gdb.lookup_type("enum " + name).fields():
        print(f"value {{name}}.{{field.name}} is {{field.enumval}}")
for name in {constants}:
    print(f"constant {{name}} is {{int(gdb.parse_and_eval('value_of_' + name))}}")
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"abi_test: {' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def current_table():
    """Lines of the table, as the headers are now."""
    text = {header: (INCLUDE / "stackd" / header).read_text() for header in HEADERS}
    structs = [name for each in text.values() for name in re.findall(r"^struct (\w+) \{", each, re.MULTILINE)]
    enums = [name for each in text.values() for name in re.findall(r"^enum (\w+) \{", each, re.MULTILINE)]
    macros = [macro for each in text.values() for macro in re.findall(r"^#define (STACKD_\w+) (.+?)(?: */\*.*)?$", each, re.MULTILINE)]
    strings = [(name, value) for name, value in macros if value.startswith('"')]
    numbers = [name for name, value in macros if re.match(r"[\d(]|sizeof|STACKD_", value)]
    with tempfile.TemporaryDirectory() as folder:
        source, compiled, script = (pathlib.Path(folder) / name for name in ("abi.c", "abi.o", "list.py"))
        source.write_text("".join(f'#include "stackd/{header}"\n' for header in HEADERS) +
                          "".join(f"long long value_of_{name} = (long long)({name});\n" for name in numbers))
        run(*GCC, "-g", "-fno-eliminate-unused-debug-types", "-c", source, "-o", compiled)
        script.write_text(LIST_TYPES.format(structs=structs, enums=enums, constants=numbers))
        lines = run("gdb", "-nx", "-batch", "-x", script, compiled).splitlines()
        # gcc's own list of the functions that are declared, in its own words.
        run(*GCC, "-fsyntax-only", "-aux-info", f"{folder}/functions", source)
        functions = re.findall(r"stackd/agent\.h:\d+:\w+ \*/ extern (.+);", pathlib.Path(folder, "functions").read_text())
    lines += [f"constant {name} is {value}" for name, value in strings]
    return lines + [f"function {function}" for function in functions]


def version_in(lines):
    return next(line.rsplit(" ", 1)[1] for line in lines if line.startswith("constant STACKD_ABI_VERSION "))


def changes(released, current):
    """(lines that are gone or other, lines that are new): a size that has changed is among both."""
    gone = [line for line in released if line not in set(current) and not MAY_GO.search(line)]
    return gone, [line for line in current if line not in set(released)]


def check(released, current):
    gone, new = changes(released, current)
    for line in gone:
        print(f"- {line}")
    for line in new:
        print(f"+ {line}")
    if gone and version_in(released) == version_in(current):
        return ("agents and daemons of other builds would misread each other: leave what the lines with - say in its place (new members "
                "take the place of pad), or raise STACKD_ABI_VERSION in ring_abi.h and have the daemon refuse the old one; then run "
                "tests/compat/abi_test.py --write and commit abi.txt")
    if gone or new:
        return "the table is not that of the headers: run tests/compat/abi_test.py --write and commit abi.txt"
    return None


def main():
    current = current_table()
    released = TABLE.read_text().splitlines() if TABLE.exists() else current
    problem = check(released, current)
    if "--write" in sys.argv:
        gone, _ = changes(released, current)
        if gone and version_in(released) == version_in(current) and "--unreleased" not in sys.argv:
            sys.exit(f"abi_test: {problem}")
        TABLE.write_text("".join(line + "\n" for line in current))
        return
    if problem:
        sys.exit(f"abi_test: {problem}")
    print(f"{len(current)} lines of the table are as the headers have them, ABI version {version_in(current)}")


if __name__ == "__main__":
    main()
