"""Thread churn: 1,000 threads wait while 40, 120 or 500 workers create a thread, copy 20 MB in it and join it, for ever.
Under dump after dump nothing crashes or hangs, every thread is accounted for, and the pile-up is plain to see.

CHURN_S seconds for each number of workers, and more where too few dumps are whole.
"""

import sys
import time
import unittest

import pytest
from harness import StackdTest, task_ids
from tier import CHURN_S

WAITING = 1000
# So many whole dumps are worth a verdict; where the processors are few and the workers many, they take longer.
ENOUGH_DUMPS = 5
LONGEST_SECONDS = CHURN_S + 45

# Threads come and go while a dump is taken: gone ones are EXITED. In mmap and munmap they queue for a lock in the kernel, where no
# signal reaches them. glibc blocks all signals while it makes a thread and while one ends.
EXPECTED = {"CAPTURED", "EXITED", "UNINTERRUPTIBLE", "SIGNAL_BLOCKED"}


class ChurnTest(StackdTest):
    limit_s = 300 + CHURN_S

    def check_churn(self, workers):
        daemon = self.start_daemon()
        victim = self.start_victim("thread_churn", WAITING, workers, stdin="")
        daemon.await_process(victim.pid)
        ended = int(victim.ask("ended?"))
        dumps = complete = piled_up = unnamed = 0
        statuses = {}
        begin = time.monotonic()
        while time.monotonic() - begin < (CHURN_S if complete >= ENOUGH_DUMPS else LONGEST_SECONDS):
            before = task_ids(victim.pid)
            # With hundreds of threads on few cores the helper thread, too, waits long for its turns.
            dump = daemon.dump(victim.pid, "--timeout", "60s", timeout_s=90)
            after = task_ids(victim.pid)
            dumps += 1

            # Who was there before and after was there in between.
            self.assertFalse((before & after) - set(dump.threads), "threads are missing")
            counts = dict(dump.counts)
            self.assertEqual(counts.pop("listed"), len(dump.threads))
            self.assertEqual(len(dump.threads), sum(counts.values()))
            for tid in dump.threads:
                if dump.threads[tid].get("name") != "stackd-agent":
                    status = dump.status(tid)
                    statuses[status] = statuses.get(status, 0) + 1
                    # An exited one is really gone.
                    self.assertFalse(status == "EXITED" and tid in after and tid in before, dump.threads[tid])

            self.assertTrue(victim.alive(), victim.error_text())
            if dump.state != "COMPLETE":
                # The processors are the workers': the deadline may come first, and then it says so.
                self.assertTrue(any("deadline" in note for note in dump.notes), dump.notes)
                continue
            if any(note.startswith("no function names for thread_churn") for note in dump.notes):
                # Its file was not had in time: it is asked for again in the next dump.
                unnamed += 1
                continue
            complete += 1
            waiting = [tid for tid in dump.threads if "WaitForWork" in " ".join(dump.functions(tid))]
            self.assertEqual(WAITING, len(waiting), dump.notes)
            self.assertEqual(WAITING, dump.groups[0]["threadCount"])
            self.assertFalse({dump.status(tid) for tid in dump.threads} - EXPECTED, dump.notes)
            piled_up += self.shows_the_pile_up(dump, workers)

        print(f"churn: {workers} workers: {dumps} dumps, {complete} complete, {statuses}", file=sys.stderr, flush=True)
        self.assertGreater(int(victim.ask("ended?")), ended, "the program no longer makes progress")
        self.assertGreater(complete, dumps / 2)
        self.assertLessEqual(unnamed, 2)
        # One dump may come at a moment without any queue; most do not.
        self.assertGreater(piled_up, complete / 2)

    def shows_the_pile_up(self, dump, workers):
        """The workers are few groups and not as many stacks: most of them stand in a place where others stand, too."""
        sizes = [group["threadCount"] for group in dump.groups
                 if any("CreateAndJoin" in frame.get("function", "") for frame in group["stack"]["frames"])]
        together = sum(size for size in sizes if size > 1)
        return sum(sizes) >= workers * 0.9 and together >= workers / 2

    def test_40_workers(self):
        self.check_churn(40)

    def test_120_workers(self):
        self.check_churn(120)

    # Others would have no processor beside them.
    @pytest.mark.alone
    def test_500_workers(self):
        self.check_churn(500)


if __name__ == "__main__":
    unittest.main()
