"""One program as distributions ship it: stripped, its debug information elsewhere. With binutils, as packages do it."""

import os
import re
import shutil
import subprocess

from built import built


def _run(*command):
    subprocess.run([str(word) for word in command], check=True)


def build_id(path):
    notes = subprocess.run(["readelf", "-n", str(path)], capture_output=True, text=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)


def _split(program, folder):
    """(stripped program, its debug file) in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    stripped = folder / program.name
    debug = folder / (program.name + ".debug")
    shutil.copy(program, stripped)
    os.chmod(stripped, 0o755)
    _run("objcopy", "--only-keep-debug", program, debug)
    _run("strip", "--strip-all", stripped)
    return stripped, debug


def by_build_id(program, folder):
    """(program, debug directory): the debug file is found there as .build-id/ab/cdef.debug."""
    stripped, debug = _split(program, folder / "bin")
    identity = build_id(program)
    target = folder / "debug" / ".build-id" / identity[:2]
    target.mkdir(parents=True)
    shutil.move(debug, target / (identity[2:] + ".debug"))
    return stripped, folder / "debug"


def by_debuglink(program, folder):
    """(program, debug directory): the program names its debug file, which lies in that directory under the program's own
    path. Without a build-id that it could be found by instead."""
    bare = folder / "whole" / program.name
    bare.parent.mkdir(parents=True)
    shutil.copy(program, bare)
    os.chmod(bare, 0o755)
    _run("objcopy", "--remove-section", ".note.gnu.build-id", bare)
    stripped, debug = _split(bare, folder / "bin")
    _run("objcopy", f"--add-gnu-debuglink={debug}", stripped)
    target = folder / "debug" / stripped.parent.relative_to("/")
    target.mkdir(parents=True)
    shutil.move(debug, target / debug.name)
    return stripped, folder / "debug"


def by_debugdata(program, folder):
    """The program carries a compressed symbol table of the functions that its dynamic one lacks (Fedora's way)."""
    stripped, debug = _split(program, folder / "bin")
    mini = folder / "mini"
    symbols = subprocess.run(["nm", "--format=posix", "--defined-only", str(debug)], capture_output=True, text=True,
                             check=True).stdout
    keep = folder / "keep"
    keep.write_text("\n".join(line.split()[0] for line in symbols.splitlines() if line.split()[1] in "tTwW") + "\n")
    _run("objcopy", "-S", "--remove-section", ".comment", f"--keep-symbols={keep}", debug, mini)
    _run("xz", "--force", mini)
    _run("objcopy", "--add-section", f".gnu_debugdata={mini}.xz", stripped)
    return stripped


def stripped_only(program, folder):
    stripped, debug = _split(program, folder / "bin")
    debug.unlink()
    return stripped


def rust(source, *flags):
    """The program that whatever rustc there is makes of a source file; None where there is no rustc."""
    rustc = shutil.which("rustc") or shutil.which("rustc", path=os.path.expanduser("~/.cargo/bin"))
    if not rustc:
        return None
    version = subprocess.run([rustc, "--version"], capture_output=True, text=True, check=True).stdout
    # Its debug data names the source by its path.
    return built(source.stem, [source, source.name, str(source.parent), version, *flags],
                 lambda folder: _run(rustc, "-O", "-g", *flags, source, "-o", folder / source.stem)) / source.stem
