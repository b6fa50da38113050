"""Runs a program, and ends it and all that it leaves behind, detached or not: reaper.py SECONDS PROGRAM ARGUMENT...

Its exit code is the program's, 128 and the number of the signal that ended it, or NO_END where it did not end in time.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys

NO_END = 254

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class _Over(BaseException):
    pass


def _on_signal(number, frame):
    _ignore_signals()
    raise _Over


def _ignore_signals():
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _wait_for(pid):
    """Also for orphans: some wait until a process that is no child of theirs is gone."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_all():
    """Whose parent is ended comes here."""
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in pids:
            # It may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        # What is killed may have children that come here only when it is gone, or be another's by now.
        with contextlib.suppress(ChildProcessError):
            os.wait()


def main():
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, _on_signal)
    # The test that waits for this may be killed.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    code = NO_END
    try:
        signal.alarm(int(sys.argv[1]))
        # Python itself ignores the two signals. Not by subprocess, which waits for children, too.
        code = _wait_for(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, setsid=True,
                                         setsigdef=(signal.SIGPIPE, signal.SIGXFSZ)))
    except _Over:
        pass
    finally:
        _ignore_signals()
        _end_all()
    return code


if __name__ == "__main__":
    sys.exit(main())
