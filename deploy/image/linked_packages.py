"""Prints what is linked or compiled into the programs, one line each, with tabs between: name, version, source package, linkage,
licence, file with its text.

    linked_packages.py BAZEL_BIN FILE...    FILE: what else is copied into the image from packages (shared libraries, certificates)
    linked_packages.py --only FILE...       these alone

Linkage is "static" or "dynamic". Definitions of a wheel that are compiled in have "protos". Packages of npm that the page is made
of have "bundled".

All of it comes from the build. The linker's own arguments name libraries and objects, and each object has a list of the headers
that it was compiled from. Some archive may have given nothing: rather one licence too many than one too few. What has no package, or whose
licence is not declared here, is an error.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINKS = ("daemon/stackd-2.params", "client/stackctl-2.params")

# By source package, as its copyright file says of the code that comes into the programs.
LICENCES = {
    "abseil": "Apache-2.0",
    "boost1.74": "BSL-1.0",
    "bzip2": "bzip2-1.0.6",
    "c-ares": "MIT",
    "ca-certificates": "MPL-2.0 AND GPL-2.0-or-later",
    "cli11": "BSD-3-Clause",
    "elfutils": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "fmtlib": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "grpc": "Apache-2.0",
    "grpc-proto": "Apache-2.0",
    "libiberty": "LGPL-2.0-or-later AND GPL-2.0-or-later AND GPL-3.0-or-later",
    "libzstd": "BSD-3-Clause OR GPL-2.0-only",
    "linux": "GPL-2.0-only WITH Linux-syscall-note",
    "openssl": "Apache-2.0",
    "protobuf": "BSD-3-Clause",
    "re2": "BSD-3-Clause",
    "spdlog": "MIT",
    "sqlite3": "blessing",
    "xxhash": "BSD-2-Clause",
    "xz-utils": "LicenseRef-public-domain",
    "yaml-cpp": "MIT",
    "zlib": "Zlib",
}

# Objects of definitions that are not ours, by the folder of the objects: the package of Debian, or the rule that fetches a wheel.
PROTOS = {"google_rpc": "google_protos.bzl", "grpc_health": "grpc-proto", "otlp_logs": "otlp_protos.bzl"}
WHEELS = {
    "google_protos.bzl": ("googleapis-common-protos", "Apache-2.0"),
    "otlp_protos.bzl": ("opentelemetry-proto", "Apache-2.0"),
}
OWN_PROTOS = {"pprof", "stackd_v1"}
PAGE = "daemon/serve/web/_objs/page_files/page_files.o"
COMMON_LICENCES = "/usr/share/common-licenses"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Link:
    """What one program is linked of."""

    def __init__(self, bazel_bin, arguments):
        lines = (bazel_bin / arguments).read_text().splitlines()
        inputs = [line for line in lines[lines.index("-o") + 2:] if not line.startswith("-")]
        self.libraries = {line.removeprefix("-l") for line in lines if re.match(r"-l\S", line)}
        # Paths within bazel-bin, and files that this build has not made.
        self.objects = {line.split("/bin/", 1)[1] for line in inputs if line.startswith("bazel-out/")}
        self.foreign = {line for line in inputs if not line.startswith("bazel-out/")}

    def archives(self):
        for name in self.libraries:
            paths = (output_of("g++", f"-print-file-name=lib{name}{ending}").strip() for ending in (".a", ".so"))
            path = next(filter(os.path.isabs, paths), None)
            if path is None:
                sys.exit(f"linked_packages: the compiler knows no library {name}")
            yield path
        yield from self.foreign

    def headers(self, bazel_bin):
        for one in self.objects:
            rules = (bazel_bin / one).with_suffix(".d").read_text()
            yield from re.findall(r"(?<=\s)/[^\s\\]+", rules)

    def protos(self):
        """The folders of objects that protoc made."""
        made = (re.match(r"proto/_objs/([^/]+)/", one) for one in self.objects)
        return {match[1] for match in made if match}


def owners(paths):
    """The packages that own these files."""
    # A package knows a file by the name before or after /usr was merged.
    names_of = {path: {path, path.removeprefix("/usr"), "/usr" + path} for path in map(os.path.realpath, paths)}
    if not names_of:
        return set()
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


def licence_of(name, source):
    if source not in LICENCES:
        sys.exit(f"linked_packages: {name} is linked, and LICENCES does not declare the licence of its source package {source}: "
                 f"read /usr/share/doc/{name}/copyright")
    return LICENCES[source]


def debian(name, linkage):
    version, source = output_of("dpkg-query", "-W", "-f", "${Version}\t${source:Package}", name).split("\t")
    return name, version, source, linkage, licence_of(name, source), f"/usr/share/doc/{name}/copyright"


def wheel(rule):
    name, licence = WHEELS[rule]
    version = re.search(r'^_VERSION = "(.+)"$', (ROOT / "deploy/bazel" / rule).read_text(), re.MULTILINE)[1]
    return name, version, "-", "protos", licence, f"{COMMON_LICENCES}/{licence}"


def page_packages():
    locked = json.loads((ROOT / "client/page/package-lock.json").read_text())["packages"]
    for folder, package in sorted(locked.items()):
        if folder and not package.get("dev"):
            yield folder.removeprefix("node_modules/"), package["version"], "-", "bundled", package["license"], str(ROOT / "NOTICE")


def main():
    bazel_bin = pathlib.Path(sys.argv[1])
    links = [] if sys.argv[1] == "--only" else [Link(bazel_bin, arguments) for arguments in LINKS]
    dynamic = owners(sys.argv[2:])
    static = owners([path for link in links for path in (*link.archives(), *link.headers(bazel_bin))])
    wheels = set()
    for folder in set().union(*(link.protos() for link in links)) - OWN_PROTOS:
        if folder not in PROTOS:
            sys.exit(f"linked_packages: PROTOS does not declare where the definitions of proto/_objs/{folder} come from")
        (wheels if PROTOS[folder] in WHEELS else static).add(PROTOS[folder])
    lines = [debian(name, "dynamic") for name in sorted(dynamic)]
    lines += [debian(name, "static") for name in sorted(static - dynamic)]
    lines += [wheel(rule) for rule in sorted(wheels)]
    if any(PAGE in link.objects for link in links):
        lines += page_packages()
    for line in lines:
        print(*line, sep="\t")


if __name__ == "__main__":
    main()
