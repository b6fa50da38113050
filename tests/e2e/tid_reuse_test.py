"""A thread that got the number of an owner which ended is not blamed for its lock, on request or by itself.

That this is not noticed is proven beside a deadlock that is.
"""

import os
import unittest

from harness import BIN, StackdTest, eventually

HANG_MUTEX = BIN / "tests/hangs/hang_mutex"
# The kernel gives numbers as the program asks in a namespace where no other process takes them.
IN_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@unittest.skipUnless(os.geteuid() == 0, "needs root to make PID namespaces")
class TidReuseTest(StackdTest):

    def start(self, mode):
        """The program, which waits in a lock whose owner has ended."""
        victim = self.start_victim(HANG_MUTEX, mode, wrap=IN_NAMESPACE, stdin="", env={"STACKD_NAME": mode})
        eventually("it is connected", lambda: mode in self.daemon.ctl("ps").out)
        self.await_looks()
        self.assertEqual("ready", victim.ask("again"))
        return victim

    def await_looks(self):
        """Until hang detection has looked at each process three times more."""
        looks = lambda: int(self.daemon.ctl_json("version")["counters"]["hang_looks"])
        enough = looks() + 3 * len(self.daemon.processes())
        eventually("each process was looked at", lambda: looks() >= enough, 60)

    def check(self, mode):
        self.start(mode)
        self.await_looks()
        dump = self.daemon.dump(mode)
        waiters = [thread for thread in dump.threads.values() if thread["name"].startswith("waiter-")]
        self.assertEqual(2, len(waiters))
        for thread in waiters:
            self.assertEqual("NOT_KNOWN", thread["wait"]["owner"], thread["wait"])
            self.assertRegex(thread["wait"]["ownerNote"], r"it names thread innocent \(tid \d+\), which began when another thread")
        kinds = [(finding["kind"], finding["severity"]) for finding in dump.resource["findings"]
                 if finding["severity"] != "HARMLESS"]
        self.assertEqual([("OWNER_UNKNOWN", "SUSPICIOUS")], kinds)

    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def test_a_thread_that_reads_is_not_blamed(self):
        self.check("tid_reused")

    def test_a_thread_that_waits_for_the_lock_does_not_wait_for_itself(self):
        self.check("tid_reused_by_waiter")
        # A deadlock that begins later is noticed, and by then the detector has looked at the other once more.
        cycle = self.start_victim(HANG_MUTEX, "cycle_2")
        hung = lambda: [dump["process"]["displayName"] for dump in self.daemon.ctl_json("list").get("dumps", [])
                        if dump["trigger"] == "HANG"]
        eventually("the deadlock is noticed", hung, 60)
        self.assertTrue(cycle.alive())
        self.assertEqual(["hang_mutex"], hung())


if __name__ == "__main__":
    unittest.main()
