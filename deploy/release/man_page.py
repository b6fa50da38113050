"""Prints a manual as a page of man(7): man_page.py SOURCE SECTION DATE VERSION.

A table is a list of terms there, since man(1) would draw it wider than a terminal. The first column is the term, and the last
one is the text. A column between, such as the default of an option, stands in brackets behind the term.
"""

import pathlib
import re
import subprocess
import sys


def cells(row):
    """The cells of a row; a bar within one is written \\| there."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def terms(rows):
    """A table as the definition list of go-md2man. `rows`: its lines, without the head."""
    for row in rows:
        term, *between, text = cells(row)
        between = ", ".join(cell for cell in between if cell)
        yield f"{term} ({between})" if between else term
        yield f": {text}" if text else ": "
        yield ""


def page(text, title):
    """`text` in the Markdown that go-md2man reads."""
    lines, table = [title], []
    for line in [*text.splitlines()[1:], ""]:
        if line.startswith("|"):
            table.append(line)
            continue
        if table:
            lines += terms(table[2:])
            table = []
        line = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", line)
        lines.append(line.upper() if line.startswith("## ") else line)
    return "\n".join(lines)


def main(source, section, date, version):
    source = pathlib.Path(source)
    title = f'% {source.stem} {section} "{date}" "stackd {version}" "stackd"'
    made = subprocess.run(["go-md2man"], input=page(source.read_text(), title), text=True, capture_output=True, check=True).stdout
    sys.stdout.write(made)


if __name__ == "__main__":
    main(*sys.argv[1:])
