"""What ends the daemon is not tried for ever. Attempts are noted on disk, and after three that did not end the capture or the
file is set aside. The daemon is ended by SIGKILL in the middle of each attempt. The third is made ten seconds after its start,
since a daemon may be ended twice for other reasons."""

import contextlib
import os
import signal
import sqlite3

from harness import LIMIT_S, OK, PARTIAL, eventually
from metrics_test import Served
from watched_test import can_mount, on_stuck_disk

TRIES = 12


class QuarantineTest(Served):

    def crashes(self, daemon):
        return daemon.ctl_json("list", "--crashes").get("dumps", [])

    def crash(self, **kwargs):
        victim = self.start_victim("crash_deaths", "call_abort", ready=None, **kwargs)
        self.assertEqual(-signal.SIGABRT, victim.process.wait(LIMIT_S))

    @contextlib.contextmanager
    def locked(self, store):
        """Others wait two seconds for the store, and then give up."""
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield

    def attempts_at_file(self):
        notes = list((self.dir / "quarantine").glob("attempts-*"))
        return notes[0].read_bytes()[0] if notes and notes[0].stat().st_size else 0

    def end_in_an_attempt_at_the_file(self, kept):
        """Until then the file is where the daemon does not look for it."""
        daemon = self.serve()
        before = self.attempts_at_file()
        with self.locked(daemon.store):
            os.rename(kept, self.file)
            eventually("the attempt is noted", lambda: self.attempts_at_file() > before)
            daemon.kill()
        os.rename(self.file, kept)

    def test_a_spool_file_that_ends_the_daemon_again_and_again_is_set_aside(self):
        (self.dir / "spool").mkdir(mode=0o700)
        self.crash()
        self.file, = (self.dir / "spool").glob("*.crash")
        content = self.file.read_bytes()
        kept = self.dir / "kept"
        os.rename(self.file, kept)
        # An attempt that ended before the daemon was killed is none: then it begins anew.
        for _ in range(TRIES):
            self.end_in_an_attempt_at_the_file(kept)
            if self.attempts_at_file() == 3:
                break
        os.rename(kept, self.file)
        daemon = self.serve()
        self.expect("it is set aside",
                    lambda metrics: metrics.get("stackd_spool_files_total", outcome="set_aside") == 1)
        quarantined, = (path for path in (self.dir / "quarantine").iterdir())
        self.assertEqual(content, quarantined.read_bytes(), "it is kept")
        self.assertIn("ended stackd more than once", daemon.log())
        self.assertIn(str(quarantined), daemon.log())
        self.assertEqual([], self.crashes(daemon))
        # Others are taken.
        daemon.kill()
        self.crash()
        daemon = self.serve()
        eventually("another crash is taken", lambda: len(self.crashes(daemon)) == 1)

    def attempts_at_capture(self, store):
        with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT attempts FROM dumps WHERE NOT finished").fetchall()

    def test_a_capture_that_ends_the_daemon_again_and_again_is_set_aside(self):
        folder = self.dir / "debug"
        folder.mkdir()
        if not can_mount(folder):
            self.skipTest("FUSE file systems cannot be mounted here")
        # Names do not come: the crash is not finished for seconds.
        slow = {"wrap": on_stuck_disk(folder)}
        daemon = self.serve("--debug-dir", str(folder), **slow)
        self.crash()
        for number in (1, 2, 3):
            eventually(f"attempt {number}", lambda n=number: self.attempts_at_capture(daemon.store) == [(n,)])
            daemon.kill()
            if number < 3:
                daemon = self.serve("--debug-dir", str(folder), **slow)
        daemon = self.serve()
        self.expect("it is set aside", lambda metrics: metrics.get("stackd_captures_set_aside") == 1)
        self.assertIn("ended stackd more than once", daemon.log())
        dump, = self.crashes(daemon)
        self.assertEqual("PARTIAL", dump["state"])
        self.assertIn("so it does not try again", daemon.ctl("show", dump["name"]).out)
        self.assertEqual([(3,)], self.attempts_at_capture(daemon.store))
        # People may.
        self.assertIn(daemon.ctl("resymbolize", dump["name"]).code, (OK, PARTIAL))
        self.assertIn("abort", daemon.ctl("show", dump["name"]).out)
        self.assertEqual([], self.attempts_at_capture(daemon.store))
