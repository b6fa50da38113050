"""Daemons with no more memory than the manifests give them."""

import os
import pathlib

from harness import eventually

LIMIT_MIB = 256


def memory_limit(test):
    """What puts `test.daemon` into a cgroup with the limit of the manifests; nothing where none (v1) can be made."""
    group = pathlib.Path(f"/sys/fs/cgroup/memory/stackd-test-{os.getpid()}-{id(test)}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_MIB << 20))
    except OSError:
        return []

    def remove():
        test.daemon.kill()
        eventually("the cgroup is empty", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()

    test.addCleanup(remove)
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
