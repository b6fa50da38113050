"""Which documents there are, and commands and manifests as they show them."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
GUIDES = [DEPLOY / "README.md", DEPLOY / "SECURITY.md", DEPLOY / "kubernetes/README.md"]
RUNBOOKS = sorted((DEPLOY / "runbooks").glob("*.md"))
# What is read first, and the pages of the book that are nothing else.
PAGES = [ROOT / "README.md", ROOT / "proto/README.md", *sorted((DEPLOY / "docs").glob("*.md"))]
# Each with its section.
MANUALS = {ROOT / "daemon/stackd.md": 8, ROOT / "daemon/stackd-rules.md": 5, ROOT / "client/stackctl.md": 1}


@dataclasses.dataclass
class Block:
    """What stands between two ``` lines. `tag`: the second word behind the first of them."""

    path: str
    line: int
    language: str
    tag: str
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}"


def fenced(path, name):
    """All fenced blocks of a Markdown file, those in lists without their indent."""
    found, start, lines = [], None, path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        fence = re.match(r"( *)```(\w*) ?(\S*)", line)
        if not fence:
            continue
        if start is None:
            start, indent, language, tag = number, len(fence[1]), fence[2], fence[3]
        else:
            inside = [inner[indent:] for inner in lines[start:number - 1]]
            found.append(Block(name, start, language, tag, "\n".join(inside) + "\n"))
            start = None
    return found


def indented_commands(path, name, programs):
    """Lines of indented blocks that begin with one of `programs`: each as a block of its own, without the explanation that
    stands behind two spaces."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r"    (\S+)", line)
        if match and match[1].startswith(programs):
            found.append(Block(name, number, "sh", "", re.split(r" {2,}", line.strip())[0] + "\n"))
    return found


def indented_from(path, first):
    """The indented block that begins with the line `first`, without its indent."""
    lines = path.read_text().splitlines()
    begin = lines.index("    " + first)
    end = next((number for number in range(begin, len(lines)) if lines[number] and not lines[number].startswith("    ")), len(lines))
    return "\n".join(line[4:] for line in lines[begin:end]) + "\n"


def inline_commands(path, name, programs=r"kubectl -n|kubectl apply|helm \S+|grpcurl -"):
    """Commands in the running text and in tables: those for a cluster, or others."""
    found, inside = [], False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        inside ^= bool(re.match(r" *```", line))
        if not inside:
            found += [Block(name, number, "sh", "", command + "\n")
                      for command in re.findall(rf"`((?:{programs})[^`]*)`", line)]
    return found
