"""Goroutines that wait for locks which no other goroutine has are a deadlock, by request and by themselves. A program whose
goroutines wait for a lock that is held by one which waits for the outside is none.

    go hangs: go1.26.8 cycle_in_server: dumped 5.1 s after it began
"""

import datetime
import sys
import unittest

import go_programs
import tier
from hang_detection_test import DEADLOCK_LIMIT_S, seconds
from harness import StackdTest, eventually

HUNG = {"mutex_cycle": "2 goroutines wait in main.transfer at main.go:", "mutex_self": "1 goroutine waits in main.lockTwice",
        "read_recursion": r"sync.RWMutex.RLock", "cycle_in_server": "1 goroutine waits in main.pay at main.go:",
        "abandoned": "2 goroutines wait in main.follow at main.go:"}
LEADERS = ("leader_accepts", "leader_awaits_hour", "leader_awaits_signal", "leader_awaits_work", "leader_by_helper",
           "leader_reads", "lock_handed_over")
WELL = ("blocked_for_life", "hot_mutex", "idle_pool", "timers")
# One program each: see tests/languages/go/unlocks.
IN_C = ("called_by_c", "parked_in_c")
HUNG_BESIDE_UNLOCKS = ("hung_defers", "hung_helpers")


def unlocks():
    """Names of the programs in that folder: of those that hang, too."""
    names = sorted(path.stem for path in (go_programs.SOURCES / "unlocks").glob("*.go") if path.stem != "main")
    return [name for name in names if go_programs.has_c() or name not in IN_C]


def unlocks_program(toolchain, name, *flags):
    return go_programs.kept(toolchain, "unlocks", "-tags", name, *flags, cgo=name in IN_C)


def prepare():
    for toolchain, _ in tier.versions(go_programs.toolchains()):
        go_programs.kept(toolchain, "hangs")
        go_programs.kept(toolchain, "hangs", "-ldflags=-s -w")
        for name in unlocks():
            unlocks_program(toolchain, name)
        for name in HUNG_BESIDE_UNLOCKS:
            unlocks_program(toolchain, name, "-buildmode=pie")


PREPARE = [prepare]


class GoHangsTest(StackdTest):
    limit_s = 600

    def setUp(self):
        super().setUp()
        self.toolchains = tier.versions(go_programs.toolchains())
        if not self.toolchains:
            self.skipTest("no Go of 1.21 to 1.26 is here, and no registry of Go modules")
        self.daemon = self.start_daemon()

    def start(self, path, *mode):
        victim = self.start_victim(path, *mode, preload=False)
        self.daemon.await_process(victim.pid)
        return victim

    def findings(self, pid, *severities):
        return [f for f in self.daemon.dump(pid).resource["findings"] if f["severity"] in severities]

    def hangs(self, pid):
        return [d for d in self.daemon.ctl_json("list").get("dumps", []) if d["trigger"] == "HANG" and d["process"]["pid"] == pid]

    def check_hung(self, version, path, mode):
        victim = self.start(path, mode)
        start_s = datetime.datetime.now().timestamp()
        listed, = eventually(f"a HANG dump of {mode}", lambda: self.hangs(victim.pid), 60)
        late_s = seconds(listed["createTime"]) - start_s
        print(f"go hangs: {version} {mode}: dumped {late_s:.1f} s after it began", file=sys.stderr, flush=True)
        self.assertEqual("DEADLOCK", listed["hang"]["cause"])
        self.assertIn("inferred from the code", listed["hang"]["explanation"])
        # A thread of the runtime's may be at work at first.
        finding, = eventually("it is told", lambda: self.findings(victim.pid, "HANG"))
        self.assertEqual("DEADLOCK", finding["kind"])
        self.assertRegex("\n".join(finding["details"]), HUNG[mode])
        victim.kill()
        return late_s

    def test_goroutines_that_wait_for_locks_which_no_other_has_are_noticed(self):
        for toolchain, version in self.toolchains:
            for flags in ((), ("-ldflags=-s -w",)):
                path = go_programs.kept(toolchain, "hangs", *flags)
                for mode in HUNG:
                    # By an older compiler main's stack still refers to the lock: nothing is said.
                    if mode == "abandoned" and version != self.toolchains[-1][1]:
                        continue
                    with self.subTest(go=version, mode=mode, flags=flags):
                        self.assertLess(self.check_hung(version, path, mode), DEADLOCK_LIMIT_S)

    def test_a_lock_whose_holder_waits_for_the_outside_is_no_deadlock(self):
        for toolchain, version in self.toolchains:
            path = go_programs.kept(toolchain, "hangs")
            well = {mode: self.start(path, mode) for mode in (*LEADERS, *WELL)}
            # Two deadlocks that begin later are noticed: by then the others were looked at twice.
            for mode in ("mutex_cycle", "cycle_in_server"):
                self.check_hung(version, path, mode)
            for mode, victim in well.items():
                with self.subTest(go=version, mode=mode):
                    self.assertTrue(victim.alive())
                    self.assertEqual([], self.hangs(victim.pid))
                    for _ in range(tier.DUMPS_OF_GOROUTINES):
                        too_much = ("HANG",) if mode in LEADERS else ("HANG", "SUSPICIOUS")
                        self.assertEqual([], self.findings(victim.pid, *too_much))
                victim.kill()

    def test_a_lock_that_something_unlocks_later_is_no_deadlock(self):
        """A timer, a finalizer, a connection, C, a function that is kept: no stack shows them."""
        for toolchain, version in self.toolchains:
            well = {name: self.start(unlocks_program(toolchain, name)) for name in unlocks() if name not in HUNG_BESIDE_UNLOCKS}
            # Begin later, twice: by then the others were looked at. Functions that defer an unlock or are handlers make none unsure.
            for name in HUNG_BESIDE_UNLOCKS:
                for flags in ((), ("-buildmode=pie",)):
                    hung = self.start(unlocks_program(toolchain, name, *flags))
                    eventually(f"a HANG dump of {name} {flags}", lambda pid=hung.pid: self.hangs(pid), 60)
                    hung.kill()
            for name, victim in well.items():
                with self.subTest(go=version, name=name):
                    self.assertTrue(victim.alive())
                    self.assertEqual([], self.hangs(victim.pid))
                    self.assertEqual([], self.findings(victim.pid, "HANG"))
                victim.kill()


if __name__ == "__main__":
    unittest.main()
