"""Builds what the test files named on the command line run, beside each other, before the first case: prepare.py PATH...

A test file names its builds in PREPARE, a list of functions without arguments. Their results are kept from run to run (built.py,
cargo's and Go's own caches). A build that fails here is reported, and fails again, with its message, in the case that needs it.
"""

import concurrent.futures
import importlib
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "deploy")]


def test_files(arguments):
    """Test files of paths as pytest takes them: a folder, a file, a file::Class::case."""
    for argument in arguments:
        path = pathlib.Path(argument.split("::")[0])
        yield from sorted(path.glob("*_test.py")) if path.is_dir() else [path]


def run(name, build):
    begin_s = time.monotonic()
    try:
        build()
    except Exception as error:
        return f"{name}: FAILED: {error}"
    return f"{name}: {time.monotonic() - begin_s:.1f} s"


def main():
    builds = {}
    for file in test_files(sys.argv[1:]):
        for build in getattr(importlib.import_module(file.stem), "PREPARE", ()):
            builds.setdefault(f"{build.__module__}.{build.__qualname__}", build)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for line in concurrent.futures.as_completed(pool.submit(run, *item) for item in builds.items()):
            print(f"prepare: {line.result()}", flush=True)


if __name__ == "__main__":
    main()
