"""Finds what the rules for comments and documents (CONTRIBUTING.md, Style) forbid, and exits 1 if there is any.

    prose.py                 looks at all files that git knows
    prose.py PATH...         looks at these files and folders
"""

import ast
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_WORDS = 25

KINDS = ("long sentence in Markdown", "long sentence in a comment", "comment without a subject", "no role named",
         "he for a role")

WITHOUT_SUBJECT = re.compile(r"(Of|One that|Ones that|Those|The same of|The same for)\b")
NO_ROLE = re.compile(r"\b(nobody|somebody|whoever|anybody|everybody|no one|someone|anyone|everyone)\b", re.IGNORECASE)
HE = re.compile(r"\b(he|his|him)\b", re.IGNORECASE)

SLASHES = (".c", ".h", ".cc", ".hpp", ".go", ".rs", ".java", ".js", ".ts", ".proto", ".S")
# Made from protos, whose comments are looked at there.
GENERATED = "client/fleet/api/"
HASHES = (".py", ".sh", ".bzl", ".yaml", ".yml", ".toml", "BUILD", "tests/dev", ".ci/run")
# A name such as stackd begins a sentence in small letters too; "..." and "e.g." end none.
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*]*[A-Z0-9])|(?<=[\w)\"'][\w)\"'][.!?])(?<!etc\.)\s+(?=[a-z])")
LIST_ITEM = re.compile(r"([-*] |\d+\. |: {3}|@\w+ |> )\s*")


@dataclasses.dataclass
class Paragraph:
    """Prose of the lines `first` to `last`; `prefix` stands before its first line and `indent` before the others."""
    path: str
    first: int
    last: int
    prefix: str
    indent: str
    text: str
    kind: str


def joined(path, kind, lines):
    """The paragraphs of (line number, what precedes the text, text): an empty line, a list item, code or a table ends one."""
    found, fenced = [], False
    current = None
    for number, before, text in lines:
        bare = text.lstrip()
        inner = len(text) - len(bare)
        item = LIST_ITEM.match(bare)
        if bare.startswith("```"):
            fenced, current = not fenced, None
        elif kind == "Markdown" and not fenced and bare.startswith("|"):
            current = None
            found.append(Paragraph(path, number, number, "", "", bare, "table"))
        elif fenced or not bare or bare[0] in "|#" or bare.startswith(("static ", "import ")):
            current = None
        elif current and current.last == number - 1 and not item and inner <= len(current.indent) - len(before):
            current.text += " " + bare
            current.last = number
        elif inner > (3 if kind == "Markdown" else 1) and not (item and current):  # code
            current = None
        else:
            mark = item.group(0) if item else ""
            current = Paragraph(path, number, number, before + " " * inner + mark, before + " " * (inner + len(mark)),
                                bare[len(mark):], kind)
            found.append(current)
    return found


def slash_comments(path, text):
    lines, block = [], False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.lstrip()
        margin = line[:len(line) - len(bare)]
        if block:
            block = "*/" not in bare
            mark = re.match(r"\*(?!/) ?", bare)
            before = margin + (mark.group(0) if mark else "")
            lines.append((number, before, line[len(before):].split("*/")[0].rstrip()))
        elif re.match(r"/\*\*? ?", bare) and (("*/" not in bare) or bare.endswith("*/")):
            block = "*/" not in bare
            before = re.match(r"/\*\*? ?", bare).group(0)
            # The lines after the first begin with " * ".
            lines.append((number, margin + " * ", bare[len(before):].split("*/")[0].rstrip()))
        elif mark := re.match(r"//[/!]? ", bare):
            lines.append((number, margin + mark.group(0), bare[mark.end():].rstrip()))
        else:
            lines.append((number, "", ""))
    return joined(path, "comment", lines)


def hash_comments(path, text):
    strings = set()
    found = []
    if path.endswith(".py"):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.update(range(node.lineno, node.end_lineno + 1))
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                found += docstring(path, text, node.body[0])
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r"(\s*# )\s*(?=\S)", line)
        if mark and number not in strings:
            lines.append((number, mark.group(1), line[len(mark.group(1)):].rstrip()))
        else:
            lines.append((number, "", ""))
    return found + joined(path, "comment", lines)


def docstring(path, text, node):
    margin = " " * node.col_offset
    lines = []
    for number in range(node.lineno, node.end_lineno + 1):
        line = text.split("\n")[number - 1].replace('r"""', '"""')
        lines.append((number, margin, line[len(margin):].removeprefix('"""').split('"""')[0].rstrip()))
    return joined(path, "comment", lines)


def markdown(path, text):
    return joined(path, "Markdown", [(n, "", line.rstrip()) for n, line in enumerate(text.split("\n"), 1)])


def paragraphs(path, text):
    if path.endswith(".md"):
        return markdown(path, text)
    if path.endswith(SLASHES):
        return slash_comments(path, text)
    if path.endswith(HASHES):
        return hash_comments(path, text)
    return []


def sentences(text):
    """The sentences of `text`, with each code span, link and address as one word."""
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return SENTENCE_END.split(text)


def faults(paragraph):
    """The (kind, sentence) pairs of what `paragraph` breaks."""
    all_sentences = sentences(paragraph.text)
    if paragraph.kind == "comment" and WITHOUT_SUBJECT.match(paragraph.text):
        yield "comment without a subject", all_sentences[0]
    for sentence in all_sentences:
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MAX_WORDS and paragraph.kind != "table":
            yield "long sentence in " + ("Markdown" if paragraph.kind == "Markdown" else "a comment"), sentence
        if NO_ROLE.search(sentence):
            yield "no role named", sentence
        if HE.search(sentence):
            yield "he for a role", sentence


def tree(paths):
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *paths], cwd=ROOT, capture_output=True,
                            check=True).stdout.decode().split("\0")
    for path in sorted(set(listed)):
        file = ROOT / path
        if path.endswith((".md", *SLASHES, *HASHES)) and not path.startswith(GENERATED) and file.is_file() and not file.is_symlink():
            yield path, file.read_text()


def main(paths):
    found = collections.defaultdict(list)
    for path, text in tree(paths):
        for paragraph in paragraphs(path, text):
            for kind, sentence in faults(paragraph):
                found[kind].append(f"{path}:{paragraph.first}: {sentence}")
    for kind in KINDS:
        if found[kind]:
            print("\n".join([*found[kind], f"{kind}: {len(found[kind])}"]))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
