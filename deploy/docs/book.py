"""A hook of MkDocs: the book has the Markdown files of the tree, where they lie, and what they link to.

Nothing is copied into the book by hand. A page has the path of its file, so links between files hold in both. A linked file
that is no Markdown has a page that shows it. A linked folder leads to its README.md, or to a list of its files.
"""

import logging
import pathlib
import posixpath
import re
import subprocess
import sys

import api
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
SHOWN_AS_THEY_ARE = (".svg", ".png")
# Draws the sequence diagrams. deploy/install-deps.sh puts it beside MkDocs; where it is not, the reader's browser fetches one.
MERMAID = pathlib.Path(sys.prefix) / "mermaid.min.js"


def tracked(*patterns):
    """Files of git and new ones, by patterns such as "daemon/*/README.md"."""
    patterns = [f":(glob){pattern}" for pattern in patterns]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--deduplicate", "--", *patterns], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(path for path in listed if path and (ROOT / path).is_file())


def unbraced(pattern):
    """ "a/{b,c}/d" as "a/b/d" and "a/c/d", in this order."""
    match = re.search(r"\{(.*?)\}", pattern)
    return [pattern.replace(match[0], word) for word in match[1].split(",")] if match else [pattern]


def page_of(path):
    """The page that a link to `path`, a file or folder of the tree, leads to."""
    if (ROOT / path).is_dir():
        readme = f"{path}/README.md"
        return readme if (ROOT / readme).is_file() else f"{path}/files.md"
    return path if path.endswith((".md", *SHOWN_AS_THEY_ARE)) else f"{path}.md"


def shown(path):
    """The text of a page that shows a file, or the files of a folder."""
    if (ROOT / path).is_dir():
        names = [name.removeprefix(f"{path}/") for name in tracked(f"{path}/**")]
        return f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" if name.endswith(".md") else f"- `{name}`\n" for name in names)
    language = {".h": "c", ".cc": "cpp", ".py": "python", ".proto": "protobuf"}.get(pathlib.Path(path).suffix, "")
    return f"# {path}\n\n~~~~{language}\n{(ROOT / path).read_text()}\n~~~~\n"


def linked(page, text):
    """The paths that links of `page` lead to, of those that exist."""
    for match in LINK.finditer(text):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[2]))
        if (ROOT / path).exists():
            yield match, path


def on_config(config):
    for section in config.nav:
        for title, pages in section.items():
            listed = [path for page in pages for pattern in unbraced(page) for path in tracked(pattern) or [pattern]]
            section[title] = list(dict.fromkeys(listed))
    named = {page for section in config.nav for pages in section.values() for page in pages}
    for path in tracked("**/*.md"):
        if path not in named:
            logging.getLogger("mkdocs.hooks").warning("%s is not in nav (mkdocs.yml)", path)
    if MERMAID.exists():
        config.extra_javascript.append(MERMAID.name)


def on_files(files, config):
    pages = {path: (ROOT / path).read_text() for path in tracked("**/*.md")}
    pages |= {page_of(proto): api.page(ROOT, proto) for proto in api.PROTOS}
    for page, text in list(pages.items()):
        for _, path in linked(page, text):
            if path.endswith(SHOWN_AS_THEY_ARE):
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            elif page_of(path) not in pages:
                pages[page_of(path)] = shown(path)
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    if MERMAID.exists():
        files.append(File.generated(config, MERMAID.name, abs_src_path=str(MERMAID)))


def for_python_markdown(text):
    """`text` as GitHub reads it: a list needs no empty line before it, and a fence may have a second word."""
    made, fenced, in_list = [], False, False
    for line in text.split("\n"):
        item = re.match(r"([-*]|\d+\.) ", line)
        if re.match(r" *```", line):
            fenced = not fenced
            line = re.sub(r"(```\w+) \S+$", r"\1", line)
        elif not fenced and item and not in_list and made and made[-1]:
            made.append("")
        in_list = bool(line) and (in_list or bool(item))
        made.append(line)
    return "\n".join(made)


def on_page_markdown(markdown, page, **_):
    here = page.file.src_uri
    targets = {match[0]: match[1] + posixpath.relpath(page_of(path), posixpath.dirname(here)) + match[3]
               for match, path in linked(here, markdown)}
    return for_python_markdown(LINK.sub(lambda match: targets.get(match[0], match[0]), markdown))
