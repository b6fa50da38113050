"""Which names one function has: `read`, `__read` and `__GI___libc_read` are one address in libc, and any is right."""

import collections
import functools
import os
import re
import subprocess

from oracle import comparable


def _debug_files(path):
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
    if found:
        yield f"/usr/lib/debug/.build-id/{found.group(1)}/{found.group(2)}.debug"


@functools.cache
def _addresses_by_name(path):
    addresses = collections.defaultdict(set)
    for file, option in [(path, "-D"), (path, "-a"), *((debug, "-a") for debug in _debug_files(path))]:
        if not os.path.exists(file):
            continue
        text = subprocess.run(["nm", "-C", "--defined-only", option, file], capture_output=True, text=True).stdout
        for line in text.splitlines():
            match = re.match(r"([0-9a-f]+) [tTwWiu] (.+)", line)
            # C names only: aliases are libc's, and C++ programs have symbols by the hundred thousand.
            if match and "::" not in match.group(2):
                name = re.sub(r"@.*$", "", match.group(2))
                addresses[comparable(name)].add(int(match.group(1), 16))
    return addresses


def same_function(path, one, other):
    """Whether two names are symbols of one address in the ELF file `path`."""
    addresses = _addresses_by_name(path)
    return bool(addresses.get(one, set()) & addresses.get(other, set()))


def is_at(path, name, address):
    """Whether a symbol of this name has this address in the ELF file `path`."""
    return address in _addresses_by_name(path).get(name, set())


@functools.cache
def mapped_path(pid, module):
    """The path of a mapped file of process `pid` by its base name, or None."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and os.path.basename(fields[5].strip()) == module:
                return fields[5].strip()
    return None
