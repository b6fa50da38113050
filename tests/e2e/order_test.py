"""Any order of start, any death: whichever side comes first, ends or stops, the next dump is whole and no side hangs."""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

import grpcurl_test
import ring_view
import servers
from busyness import BusyTime
from harness import LIMIT_S, OK, PARTIAL, PROGRAMS, STACKCTL, Daemon, Dump, StackdTest, Victim, accepts, eventually, task_ids

# How long an agent may take to find a daemon that has come (back).
RECONNECT_LIMIT_S = 2


class OrderTest(StackdTest):

    def assert_waiters(self, dump, count):
        waiting = [tid for tid in dump.threads if "wait_for_work" in dump.functions(tid)]
        self.assertEqual(count, len(waiting))
        self.assertEqual("COMPLETE", dump.state, dump.notes)

    def begin_dump(self, ring, command):
        """The process of `command`, which asks for a dump, while that dump is under way."""
        while True:
            asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(asking.kill)
            if ring.await_dump_under_way(lambda: asking.poll() is not None):
                return asking
            asking.communicate()

    def begin_stackctl_dump(self, ring, daemon, process):
        return self.begin_dump(ring, [STACKCTL, "--address", daemon.address, "dump", str(process), "-o", "json"])

    def test_agent_first(self):
        victim = self.start_victim("waiting_threads", 10)
        daemon = self.start_daemon()
        daemon.await_process(victim.pid, RECONNECT_LIMIT_S)
        self.assert_waiters(daemon.dump(victim.pid), 10)

    def test_daemon_first(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10)
        daemon.await_process(victim.pid, RECONNECT_LIMIT_S)
        self.assert_waiters(daemon.dump(victim.pid), 10)

    def test_no_daemon_ever(self):
        victim = self.start_victim("waiting_threads", 10)
        self.assertTrue(victim.alive())

    def test_disabled_by_environment(self):
        daemon = self.start_daemon()
        disabled = self.start_victim("waiting_threads", 1, env={"STACKD_DISABLE": "1"})
        enabled = self.start_victim("waiting_threads", 1)
        daemon.await_process(enabled.pid)
        self.assertEqual([enabled.pid], [process["pid"] for process in daemon.processes()])
        self.assertEqual(2, len(os.listdir(f"/proc/{disabled.pid}/task")))

    def test_daemon_killed_in_the_middle_of_a_dump(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 5000)
        daemon.await_process(victim.pid)
        ring, = ring_view.rings_of(daemon)
        asking = self.begin_stackctl_dump(ring, daemon, victim.pid)
        daemon.kill()
        asking.communicate(timeout=LIMIT_S)
        self.assertNotEqual(OK, asking.returncode)

        daemon.start()
        daemon.await_process(victim.pid, RECONNECT_LIMIT_S)
        dump = daemon.dump(victim.pid)
        self.assert_whole(dump, victim.pid)
        self.assert_waiters(dump, 5000)
        self.assertTrue(victim.alive())

    def test_dumps_survive_the_death_of_the_daemon(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10)
        daemon.await_process(victim.pid)
        before = daemon.dump(victim.pid)
        daemon.restart()
        shown = daemon.ctl_json("show", before.name)
        self.assertEqual(before.resource["threads"], shown["threads"])

    def test_process_killed_in_the_middle_of_a_dump(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 10000)
        daemon.await_process(victim.pid)
        ring, = ring_view.rings_of(daemon)
        asking = self.begin_stackctl_dump(ring, daemon, victim.pid)
        victim.kill()
        out, err = asking.communicate(timeout=LIMIT_S)
        self.assertEqual(PARTIAL, asking.returncode, err)
        dump = Dump(json.loads(out))
        self.assertEqual("PARTIAL", dump.state)
        self.assertTrue(any("process" in note for note in dump.notes), dump.notes)
        # What came before is there.
        self.assertGreater(dump.counts.get("captured", 0), 0)
        eventually("the process is gone from the list", lambda: not daemon.processes())

    def test_stopped_process(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 20)
        daemon.await_process(victim.pid)
        # From here on it is known which threads it has, as when the detector has looked.
        self.assert_waiters(daemon.dump(victim.pid), 20)
        victim.signal(signal.SIGSTOP)
        eventually("it is stopped", lambda: "State:\tT" in open(f"/proc/{victim.pid}/status").read())
        begin = time.monotonic()
        dump = Dump(daemon.ctl_json("dump", victim.pid, allowed=(OK, PARTIAL)))
        self.assertLess(time.monotonic() - begin, 15)
        self.assert_whole(dump, victim.pid)
        statuses = {tid: dump.status(tid) for tid in dump.threads}
        self.assertEqual({"STOPPED"}, set(statuses.values()), statuses)
        self.assertTrue(any("stop" in note for note in dump.notes), dump.notes)

        victim.signal(signal.SIGCONT)
        self.assert_waiters(daemon.dump(victim.pid), 20)

    def test_threads_of_a_stopped_process_that_were_never_listed_are_counted(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 20)
        daemon.await_process(victim.pid)
        victim.signal(signal.SIGSTOP)
        eventually("it is stopped", lambda: "State:\tT" in open(f"/proc/{victim.pid}/status").read())
        dump = Dump(daemon.ctl_json("dump", victim.pid, allowed=(OK, PARTIAL)))
        self.assertEqual("STOPPED", dump.status(victim.pid))
        missing = len(task_ids(victim.pid) - set(dump.threads))
        if missing:
            self.assertTrue(any(f"{missing} more threads are not known" in note for note in dump.notes), dump.notes)

    def test_second_daemon_refuses_in_one_sentence(self):
        first = self.start_daemon()
        second = Daemon(self.dir, store=self.dir / "second.db")
        done = subprocess.run(second.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        self.assertNotEqual(0, done.returncode)
        sentence = done.stderr.strip()
        self.assertEqual(1, len(sentence.splitlines()), sentence)
        self.assertIn(str(self.dir), sentence)
        # The first one serves on.
        victim = self.start_victim("waiting_threads", 3)
        first.await_process(victim.pid)
        self.assert_waiters(first.dump(victim.pid), 3)

    def test_stale_sockets_are_replaced(self):
        daemon = self.start_daemon()
        daemon.kill()
        for name in ("api.sock", "stackd.sock"):
            self.assertTrue((self.dir / name).exists())
            self.assertFalse(accepts(self.dir / name))
        daemon.start()
        victim = self.start_victim("waiting_threads", 3)
        daemon.await_process(victim.pid, RECONNECT_LIMIT_S)

    def test_terminates_within_5_s_and_finishes_what_is_under_way(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 2000)
        daemon.await_process(victim.pid)
        ring, = ring_view.rings_of(daemon)
        # One call: stackctl would come back for the text of what it has made.
        asking = self.begin_dump(ring, [grpcurl_test.GRPCURL, "-plaintext", "-d", "{}", f"127.0.0.1:{daemon.port}",
                                        "stackd.v1.Stackd/CreateDump"])
        begin = time.monotonic()
        busy = BusyTime()
        self.assertEqual(0, daemon.stop(), daemon.log())
        self.assertLess(time.monotonic() - begin, 5 + busy.allowance_s())
        out, err = asking.communicate(timeout=LIMIT_S)
        self.assertEqual(0, asking.returncode, err + daemon.log())
        self.assert_whole(Dump(grpcurl_test.resource(out)), victim.pid)

    def test_200_processes(self):
        daemon = self.start_daemon()
        tree = self.start_victim("process_tree", 200, 0)
        members = servers.family(tree.pid)
        self.assertEqual(201, len(members))

        def listed():
            return {process["pid"] for process in daemon.processes()} >= set(members)

        eventually("all 201 are listed", listed)
        dumped = set(members[1::40])
        for pid in dumped:
            dump = daemon.dump(pid)
            self.assert_whole(dump, pid)
            self.assertIn("child_waits", dump.functions(pid))
        daemon.restart()
        # The agent's thread runs in these. The others look for a daemon when they do something (agent/README.md): they wait.
        eventually("those that were dumped are back", lambda: {process["pid"] for process in daemon.processes()} >= dumped,
                   limit_s=10)

    def test_each_exec_is_a_new_process_and_the_old_one_is_gone(self):
        daemon = self.start_daemon()
        tree = self.start_victim("process_tree", 3, 4)
        members = servers.family(tree.pid)
        for pid in members:
            daemon.await_process(pid)
        eventually("nobody else is listed",
                   lambda: sorted(p["pid"] for p in daemon.processes()) == sorted(members))
        for pid in members[1:]:
            self.assertIn("child_waits", daemon.dump(pid).functions(pid))

    def daemonize(self, *arguments):
        """The pid of a program that has left everything behind."""
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        os.chmod(self.dir, 0o711)
        # Where any user may read it, as programs are.
        program = shutil.copy(PROGRAMS / "daemonizes", self.dir)
        os.chmod(program, 0o755)
        victim = Victim([program, fifo, *arguments], directory=self.dir, ready=None)
        self.addCleanup(victim.kill)
        with open(fifo) as lines:
            pid = int(lines.readline())
        self.addCleanup(lambda: os.kill(pid, signal.SIGKILL))
        return pid

    def check_daemonized(self, daemon, pid):
        process = daemon.await_process(pid)
        dump = daemon.dump(pid)
        self.assert_whole(dump, pid)
        tid = dump.named("in-daemon")
        self.assertEqual("CAPTURED", dump.status(tid))
        return process, dump.functions(tid)

    def test_program_that_closes_every_fd_and_daemonizes(self):
        daemon = self.start_daemon()
        _, functions = self.check_daemonized(daemon, self.daemonize("close"))
        self.assertIn("wait_as_daemon", functions)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to change the user")
    def test_program_that_gives_up_root(self):
        daemon = self.start_daemon()
        pid = self.daemonize("keep", 65534)
        _, functions = self.check_daemonized(daemon, pid)
        self.assertIn("wait_as_daemon", functions)
        daemon.restart()
        daemon.await_process(pid, RECONNECT_LIMIT_S)
        _, functions = self.check_daemonized(daemon, pid)
        self.assertIn("wait_as_daemon", functions)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to change the user")
    def test_program_that_closes_every_fd_and_gives_up_root_is_dumped_as_far_as_the_kernel_lets_it(self):
        """All is named, or, where it may no longer open its own maps, the reason is where a person sees it."""
        daemon = self.start_daemon()
        process, functions = self.check_daemonized(daemon, self.daemonize("close", 65534))
        if "wait_as_daemon" not in functions:
            self.assertTrue(any("maps" in sentence for sentence in process.get("limits", [])), process)


if __name__ == "__main__":
    unittest.main()
