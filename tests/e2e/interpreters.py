"""The PHPs and Rubies that are here: Debian's, and what deploy/install-deps.sh --tests fetched beside it."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"


@dataclasses.dataclass(frozen=True)
class Interpreter:
    command: tuple
    version: tuple  # (8, 2, 36)

    def __str__(self):
        return ".".join(map(str, self.version))


def _interpreter(path, *options):
    asked = subprocess.run([path, "-v"], capture_output=True, text=True, check=False)
    said = re.match(r"(?:PHP|ruby) (\d+)\.(\d+)\.(\d+)", asked.stdout)
    return Interpreter((str(path), *options), tuple(map(int, said.groups()))) if said else None


def _all(name, options_of=lambda path: ()):
    paths = [*CACHE.glob(f"interpreters/{name}-*/usr/bin/{name}[0-9]*")]
    if shutil.which(name):
        paths.append(pathlib.Path(shutil.which(name)).resolve())
    found = filter(None, (_interpreter(path, *options_of(path)) for path in paths))
    return sorted(found, key=lambda interpreter: interpreter.version)


def _php_options(path):
    """Debian's configuration is of its own PHP. Others are given their modules by name."""
    if not path.is_relative_to(CACHE):
        return ()
    (folder,) = (path.parents[1] / "lib/php").glob("20*")
    return ("-n", "-d", f"extension_dir={folder}", "-d", "extension=posix")


KNOWN_PHPS = ((7, 4), (8, 1), (8, 2), (8, 3), (8, 4), (8, 5))
KNOWN_RUBIES = ((3, 1), (3, 2), (3, 3), (3, 4))


def phps(known=True):
    """Oldest first; with `known` false those whose frames stackd does not know."""
    return [php for php in _all("php", _php_options) if (php.version[:2] in KNOWN_PHPS) == known]


def php_headers():
    """Folders of PHP's own headers."""
    return sorted([*CACHE.glob("interpreters/php-*/usr/include/php/20*"), *pathlib.Path("/usr/include/php").glob("20*")])


def rubies(known=True):
    return [ruby for ruby in _all("ruby") if (ruby.version[:2] in KNOWN_RUBIES) == known]
