"""Two dumps tell what one cannot: who is stuck, who goes round and round, who is slow and who has nothing to do."""

import json
import signal
import subprocess
import unittest

from harness import NOT_FOUND, OK, PARTIAL, STACKCTL, USAGE, StackdTest, die_with_parent, eventually


class DiffTest(StackdTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def start(self, mode):
        victim = self.start_victim("progress", mode)
        self.daemon.await_process(victim.pid)
        return victim

    def sample(self, victim, count=2):
        """A comparison of some new dumps, and how it was printed."""
        taken = self.daemon.ctl("dump", victim.pid, "--samples", count, "--every", "500ms")
        self.assertEqual(taken.code, OK, taken.err)
        names = [line.split()[-1] for line in taken.err.splitlines()]
        self.assertEqual(len(names), count, taken.err)
        # By name: the daemon may have taken one of its own, because of the hang.
        comparison = self.daemon.ctl_json("diff", names[0], names[-1])
        self.assertTrue(victim.alive())
        return comparison, taken.out

    def sample_until(self, victim, verdict, count):
        """Again and again, for it depends on how much of the machine the victim gets."""

        def find():
            comparison, _ = self.sample(victim, count)
            return comparison if comparison.get("verdict") == verdict else None

        return eventually(f"the verdict is {verdict}", find)

    def threads(self, comparison, *names):
        found = [thread for thread in comparison["threads"] if thread["name"] in names]
        self.assertTrue(found, comparison)
        return found

    def changes(self, comparison, *names):
        return {thread["change"] for thread in self.threads(comparison, *names)}

    def verdicts(self, comparison, *names):
        return {thread.get("verdict") for thread in self.threads(comparison, *names)}

    def kinds(self, comparison):
        return {finding["kind"] for finding in comparison.get("findings", [])}

    def test_deadlocked(self):
        comparison, text = self.sample(self.start("deadlock"))
        self.assertEqual(self.changes(comparison, "one", "two"), {"UNCHANGED"})
        self.assertEqual(comparison.get("verdict"), "DEADLOCKED", comparison)
        self.assertEqual(self.verdicts(comparison, "one", "two"), {"DEADLOCKED"})
        self.assertIn("DEADLOCK", self.kinds(comparison))
        self.assertIn("): deadlocked: ", text)

    def test_deadlocked_read_asleep_and_then_by_signal(self):
        """As the dump that the daemon takes by itself, and the first that a person asks for."""
        victim = self.start("deadlock")
        names = [self.daemon.ctl_json("dump", victim.pid, "--quiet", quiet)["name"] for quiet in ("only", "never")]
        comparison = self.daemon.ctl_json("diff", *names)
        self.assertEqual(self.changes(comparison, "one", "two"), {"UNCHANGED"})
        self.assertEqual(comparison.get("verdict"), "DEADLOCKED", comparison)

    def test_stuck(self):
        comparison, text = self.sample(self.start("stuck"))
        self.assertEqual(self.changes(comparison, "owner", "waiter"), {"UNCHANGED"})
        self.assertEqual(comparison.get("verdict"), "STUCK", comparison)
        self.assertEqual(self.verdicts(comparison, "waiter"), {"STUCK"})
        self.assertIn("2 threads wait for ", text)
        self.assertIn("nothing moved in ", text)

    def test_spinning(self):
        comparison = self.sample_until(self.start("spin"), "SPINNING", count=2)
        self.assertEqual(self.verdicts(comparison, "spinner"), {"SPINNING"})
        self.assertIn("SPINNING", self.kinds(comparison))
        self.assertIn("did not leave spin", comparison["explanation"])

    def test_livelocked(self):
        comparison = self.sample_until(self.start("livelock"), "SPINNING", count=4)
        self.assertIn("LIVELOCK", self.kinds(comparison))
        self.assertIn("did not leave try_both", json.dumps(comparison["findings"]))

    def test_slow(self):
        comparison, _ = self.sample(self.start("slow"))
        self.assertNotIn("UNCHANGED", self.changes(comparison, "hander"))
        self.assertEqual(comparison.get("verdict"), "SLOW", comparison)

    def test_idle(self):
        comparison, _ = self.sample(self.start("idle"))
        self.assertEqual(self.changes(comparison, "worker", "timer", "progress"), {"UNCHANGED"})
        self.assertEqual(comparison.get("verdict"), "IDLE", comparison)
        self.assertFalse(self.kinds(comparison) - {"IDLE"}, comparison)

    def test_names_and_what_stands_for_them(self):
        victim = self.start("idle")
        first, second, third = (self.daemon.ctl_json("dump", victim.pid)["name"] for _ in range(3))
        newest = self.daemon.ctl_json("diff")
        self.assertEqual((newest["before"], newest["after"]), (second, third))
        series = self.daemon.ctl_json("diff", first)
        self.assertEqual((series["before"], series["after"]), (first, third))
        turned = self.daemon.ctl_json("diff", second, first)
        self.assertEqual((turned["before"], turned["after"]), (first, second))
        self.assertEqual(self.daemon.ctl("diff", third).code, NOT_FOUND)
        self.assertEqual(self.daemon.ctl("diff", first, first).code, USAGE)

        other = self.start("idle")
        stranger = self.daemon.ctl_json("dump", other.pid)["name"]
        refused = self.daemon.ctl("diff", first, stranger)
        self.assertEqual(refused.code, 1)
        self.assertIn("different processes", refused.err)
        self.assertEqual(len(refused.err.splitlines()), 1)

    def test_json_holds_the_last_dump_and_the_comparison(self):
        victim = self.start("idle")
        both = self.daemon.ctl_json("dump", victim.pid, "--samples", 2, "--every", "100ms")
        self.assertEqual(both["dump"]["name"], both["comparison"]["after"])
        self.assertEqual({t["tid"] for t in both["dump"]["threads"]}, {t["tid"] for t in both["comparison"]["threads"]})

    def series(self, victim):
        """A series without an end, after its second dump."""
        command = [STACKCTL, "--address", self.daemon.address, "dump", str(victim.pid), "--samples", "100", "--every", "200ms"]
        series = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=die_with_parent)
        self.addCleanup(series.kill)
        for _ in range(2):
            self.assertIn("of 100: ", series.stderr.readline())
        return series

    def test_interrupted(self):
        series = self.series(self.start("idle"))
        series.send_signal(signal.SIGINT)
        out, err = series.communicate(timeout=60)
        self.assertEqual(series.returncode, PARTIAL, err)
        self.assertIn("interrupted after ", err)
        self.assertIn("wait_for_work", out)
        self.assertIn(" later", out)

    def test_the_process_ends_in_between(self):
        victim = self.start("idle")
        series = self.series(victim)
        victim.kill()
        out, err = series.communicate(timeout=60)
        self.assertEqual(series.returncode, NOT_FOUND, err)
        self.assertIn("wait_for_work", out)
        self.assertIn(" later", out)


if __name__ == "__main__":
    unittest.main()
