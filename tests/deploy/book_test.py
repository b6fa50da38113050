"""The documents as they are read: each link leads somewhere, and the book and the manual pages can be made."""

import html
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import manifests
from documents import DEPLOY, GUIDES, MANUALS, PAGES, ROOT, RUNBOOKS


class LinkTest(unittest.TestCase):

    def test_each_link_leads_somewhere(self):
        for path in [*GUIDES, *RUNBOOKS, *PAGES, *MANUALS, DEPLOY / "DESIGN.md"]:
            text = path.read_text()
            for target in re.findall(r"\]\(([^)]+)\)", text):
                if target.startswith("http"):
                    continue
                file, _, anchor = target.partition("#")
                with self.subTest(path.name, link=target):
                    where = (path.parent / file).resolve() if file else path
                    self.assertTrue(where.exists(), target)
                    if anchor:
                        headings = [re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-")
                                    for h in re.findall(r"^#+ (.*)$", where.read_text(), re.M)]
                        self.assertIn(anchor, headings)

    def test_each_alert_has_its_runbook(self):
        rules = yaml.safe_load((DEPLOY / "alerts/stackd.rules.yaml").read_text())
        alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
        self.assertEqual(sorted(alerts), [path.stem for path in RUNBOOKS])
        for name, rule in alerts.items():
            self.assertEqual(f"https://runbooks.example/stackd/{name}.md", rule["annotations"]["runbook_url"])
            self.assertTrue((DEPLOY / f"runbooks/{name}.md").read_text().startswith(f"# {name}: "))


class BookTest(unittest.TestCase):
    """All documents as one book, and what would be found in it."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        if not (manifests.CACHE / "book-tools/bin/mkdocs").exists():
            self.skipTest("there is no MkDocs")

    def build(self, tree):
        return subprocess.run([tree / "tests/dev", "docs", self.folder / "site"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=200, check=False)

    def test_it_has_every_document_and_no_dead_link(self):
        done = self.build(ROOT)
        self.assertEqual(0, done.returncode, done.stderr)
        read = lambda path: (self.folder / "site" / path).read_text()
        self.assertIn("overview.svg", read("index.html"))
        self.assertIn("RAW_CAPTURE_GONE", read("proto/stackd/v1/stackd.proto.html"))
        for path in [*GUIDES, *RUNBOOKS, *PAGES, *MANUALS, *(ROOT / "daemon").glob("*/README.md")]:
            title = path.read_text().splitlines()[0].lstrip("# ")
            page = str(path.relative_to(ROOT)).replace("README.md", "index.md").removesuffix(".md") + ".html"
            with self.subTest(page):
                self.assertIn(html.escape(title, quote=False), read(page))

    def test_a_dead_link_and_a_document_that_is_left_out_are_found(self):
        tree = self.folder / "tree"
        for path in manifests.run("git", "ls-files", "-co", "--exclude-standard").stdout.splitlines():
            if (ROOT / path).is_file():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, tree / path, follow_symlinks=False)
        manifests.run("git", "init", "--quiet", tree)
        faults = {"links to a file that is not there": ("client/README.md", "[gone](gone.md)"),
                  "links to a heading that is not there": ("client/README.md", "[gone](../README.md#gone)"),
                  "is not in nav": ("tests/NEW.md", "# New")}
        for name, (path, text) in faults.items():
            with self.subTest(name):
                before = (tree / path).read_text() if (tree / path).exists() else None
                (tree / path).write_text(f"{before or ''}\n\n{text}\n")
                done = self.build(tree)
                self.assertEqual(1, done.returncode, done.stderr)
                self.assertIn(path, done.stderr)
                (tree / path).unlink() if before is None else (tree / path).write_text(before)


class ManualPagesTest(unittest.TestCase):
    """The manuals as man(1) shows them on a terminal of 80 columns."""

    def test_each_is_understood_and_fits(self):
        if not shutil.which("go-md2man") or not shutil.which("man"):
            self.skipTest("there is no go-md2man or no man")
        for manual, section in MANUALS.items():
            with self.subTest(manual.name), tempfile.TemporaryDirectory() as folder:
                made = subprocess.run(["/usr/bin/python3", DEPLOY / "release/man_page.py", manual, str(section), "2026-01-01", "0.1.0"],
                                      capture_output=True, text=True, check=True).stdout
                page = pathlib.Path(folder) / f"{manual.stem}.{section}"
                page.write_text(made)
                shown = subprocess.run(["man", "--warnings=w", "--local-file", page], capture_output=True, text=True, check=True,
                                       env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
                self.assertEqual("", shown.stderr)
                text = shown.stdout
                self.assertIn(f"{manual.stem}({section})", text)
                words = " ".join(text.split())
                for row in re.findall(r"^\| `(--?[\w-]+)", manual.read_text(), re.M):
                    self.assertIn(f" {row}", words)
                # Code stays as it is, and has the indent of a page besides.
                code = {line.strip() for line in manual.read_text().splitlines() if line.startswith("    ")}
                wide = [line for line in text.splitlines() if len(line) > 80 and line.strip() not in code]
                self.assertEqual([], wide)


if __name__ == "__main__":
    unittest.main()
