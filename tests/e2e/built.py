"""What tests compile, kept by content: a second run, or a second worker of the same run, finds it built.

tests/run.sh calls prepare.py before the first case, so that no compiler runs inside one.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import tempfile
import time

FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/built"
# For how long a build of an earlier state of the sources stays.
KEEP_S = 7 * 24 * 3600


def digest_of(inputs):
    """Digest of strings as they are, and of files by content; of a folder, all files below it."""
    digest = hashlib.sha256()
    for one in inputs:
        if isinstance(one, pathlib.Path):
            files = [one] if one.is_file() else sorted(path for path in one.rglob("*") if path.is_file())
            for file in files:
                digest.update(f"{file.relative_to(one.parent)}\0".encode())
                digest.update(file.read_bytes())
        else:
            digest.update(str(one).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def built(name, inputs, make):
    """The folder that make(folder) filled, once for these inputs. Callers that come meanwhile wait for it.

    Inputs are paths, whose content counts, and words: versions of compilers, flags. A build that raises leaves nothing.
    """
    target = FOLDER / f"{name}-{digest_of(inputs)}"
    if target.exists():
        return target
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            temporary = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.", dir=FOLDER))
            try:
                make(temporary)
                temporary.chmod(0o755)
                temporary.rename(target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            for old in FOLDER.glob(f"{name}-*"):
                # A build of an earlier state of the sources; another checkout may be using it.
                if old != target and age_s(old) > KEEP_S:
                    shutil.rmtree(old, ignore_errors=True)
    return target


def age_s(path):
    return time.time() - path.stat().st_mtime
