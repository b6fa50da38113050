"""Prints the Debian packages whose code is in the image, one line each: name, version, source package, "static" or "dynamic".

    linked_packages.py BAZEL_BIN FILE...    FILE: what else is copied into the image from packages (shared libraries, certificates)

What is linked statically stands in the linker's own list of arguments. Some archive may have given nothing: rather one licence too
many than one too few. Headers with code in them leave no trace there, and are named here.
"""

import os
import pathlib
import re
import subprocess
import sys

LINKS = ("daemon/stackd-2.params", "client/stackctl-2.params")

# libc6-dev, libgcc-12-dev and libstdc++-12-dev: stackctl is linked statically with them.
HEADERS = ("libboost1.74-dev", "libcli11-dev", "libspdlog-dev", "libfmt-dev", "grpc-proto", "libc6-dev", "libgcc-12-dev", "libstdc++-12-dev")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def archives(bazel_bin):
    """Paths of the static libraries that the two programs are linked with."""
    names = set()
    for link in LINKS:
        names |= set(re.findall(r"^-l(\S+)$", (bazel_bin / link).read_text(), re.MULTILINE))
    for name in sorted(names):
        path = output_of("g++", f"-print-file-name=lib{name}.a").strip()
        if os.path.isabs(path):
            yield os.path.realpath(path)


def owners(paths):
    """The packages that own these files."""
    # A package knows a file by the name before or after /usr was merged.
    names_of = {path: {path, path.removeprefix("/usr"), "/usr" + path} for path in paths}
    command = ["dpkg", "-S", *sorted(set().union(*names_of.values()))]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    owner_of = {path: owner.split(":")[0] for owner, path in (line.split(": ", 1) for line in found.splitlines())}
    packages = set()
    for path, names in names_of.items():
        owner = {owner_of[name] for name in names if name in owner_of}
        if not owner:
            sys.exit(f"linked_packages: no package owns {path}")
        packages |= owner
    return packages


def main():
    bazel_bin = pathlib.Path(sys.argv[1])
    dynamic = owners(map(os.path.realpath, sys.argv[2:]))
    static = (owners(archives(bazel_bin)) | set(HEADERS)) - dynamic
    for linkage, names in (("dynamic", dynamic), ("static", static)):
        for name in sorted(names):
            print(output_of("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${source:Package}", name), linkage, sep="\t")


if __name__ == "__main__":
    main()
