#!/usr/bin/env python3
"""Breaks the code in one place after the other, and says which test notices.

    tests/mutations/run.py                 each place of mutations.py: an hour on two cores
    tests/mutations/run.py ring store      those with one of these words in their path
    tests/mutations/run.py --near          only tests of the folder and those that the place names: a third of the time
    tests/mutations/run.py --list          prints them and runs nothing

It works on the last commit, in a worktree of its own. For each place the tests named in README.md run, until one fails. A test
counts when it passes again without the change. Exits 1 where a place is not noticed, or what is to be changed is not there any
more.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from mutations import MUTATIONS

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What Bazel ends with: tests failed; there was none to run.
TESTS_FAILED, NO_TESTS = 3, 4


class CannotRun(Exception):
    """The changed code does not compile, say: nothing is proved."""


def run(*command, cwd, **kwargs):
    return subprocess.run([str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **kwargs)


@contextlib.contextmanager
def worktree():
    """A checkout of the last commit, with a server of Bazel's; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="stackd-mutations-") as folder:
        checkout = pathlib.Path(folder) / "stackd"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, "HEAD"], cwd=ROOT, check=True)
        output_base = run("bazel", "info", "output_base", cwd=checkout).stdout.strip()
        try:
            yield checkout
        finally:
            run("bazel", "shutdown", cwd=checkout)
            subprocess.run(["chmod", "-R", "u+w", output_base], check=False)
            shutil.rmtree(output_base, ignore_errors=True)
            subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def label_of(checkout, file):
    """Bazel's name of a source file: below the nearest folder with a BUILD file."""
    for package in (checkout / file).parents:
        if (package / "BUILD").exists():
            return f"//{package.relative_to(checkout)}:{(checkout / file).relative_to(package)}"
    raise CannotRun(f"{file} is in no package")


def unit_tests(checkout, mutation):
    """Two lists of tests that depend on the file: those of its own package and below, and the others."""
    label = label_of(checkout, mutation.file)
    query = run("bazel", "query", "--noshow_progress", f"tests(rdeps(//..., {label}))", cwd=checkout)
    tests = query.stdout.split()
    own = tuple(label.partition(":")[0] + end for end in ":/")
    return [test for test in tests if test.startswith(own)], [test for test in tests if not test.startswith(own)]


def failing_units(checkout, tests):
    if not tests:
        return []
    done = run("bazel", "test", "-c", "opt", "--keep_going", "--jobs=2", "--test_output=summary", "--", *tests, cwd=checkout)
    if done.returncode in (0, NO_TESTS):
        return []
    failing = re.findall(r"^(//\S+) .*\b(?:FAILED|TIMEOUT)\b", done.stdout, re.MULTILINE)
    if done.returncode != TESTS_FAILED or not failing:
        raise CannotRun(done.stderr[-2000:])
    return failing


def failing_cases(checkout, cases):
    failing = failing_units(checkout, [case for case in cases if case.startswith("//")])
    for case in [] if failing else [case for case in cases if not case.startswith("//")]:
        done = run("tests/run.sh", case, cwd=checkout, env={**os.environ, "STACKD_TEST_WORKERS": "1"})
        if done.returncode != 0:
            if not re.search(r"^\d+ passed, [1-9]\d* failed", done.stdout, re.MULTILINE) or "the build failed" in done.stderr:
                raise CannotRun(done.stderr[-2000:])
            failing.append(case)
    return failing


def first_to_notice(checkout, mutation, near):
    """(tier, tests) of the first that fail with the change and pass without it; ("", []) if none does."""
    file = checkout / mutation.file
    whole = file.read_text()
    if whole.count(mutation.old) != 1:
        raise CannotRun("the line is not there any more, or more than once")
    own, others = unit_tests(checkout, mutation)
    steps = [("quick", failing_units, own), ("quick", failing_cases, mutation.cases),
             ("quick", failing_units, [] if near else others), ("default", failing_cases, mutation.slower_cases)]
    for tier, failing, tests in steps:
        file.write_text(whole.replace(mutation.old, mutation.new))
        try:
            noticed = failing(checkout, tests)
        finally:
            file.write_text(whole)
        if noticed and not failing(checkout, noticed[:3]):
            return tier, noticed
    return "", []


def tell(checkout, mutation, near):
    begin_s = time.monotonic()
    try:
        tier, tests = first_to_notice(checkout, mutation, near)
    except CannotRun as error:
        print(f"BROKEN  {mutation.file}: {error}", flush=True)
        return ""
    by = ", ".join(tests[:3]) + (f" and {len(tests) - 3} more" if len(tests) > 3 else "")
    said = f"caught  {mutation.file}  {tier}: {by}" if tests else f"MISSED  {mutation.file}: {mutation.old}"
    print(f"{said}  ({time.monotonic() - begin_s:.0f} s)", flush=True)
    return tier


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*", help="part of a path")
    parser.add_argument("--near", action="store_true", help="only tests of the folder and those that the place names")
    parser.add_argument("--list", action="store_true", help="print the places")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if not options.word or any(word in m.file for word in options.word)]
    if options.list:
        for mutation in chosen:
            print(f"{mutation.file}\n  - {mutation.old}\n  + {mutation.new}")
        return
    with worktree() as checkout:
        tiers = [tell(checkout, mutation, options.near) for mutation in chosen]
    caught = len(tiers) - tiers.count("")
    print(f"{caught} of {len(chosen)} places are noticed, {tiers.count('quick')} of them by tests/run.sh --quick")
    sys.exit(caught != len(chosen))


if __name__ == "__main__":
    main()
