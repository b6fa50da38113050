"""Hangs are noticed without a request: in time, once each, and in bounded number. The dump is stored before the health service says
that the process is ill, and nothing that is well is called hung.

That there is *no* dump of something is proven beside something of which there must be one: the detector had looked.
"""

import datetime
import json
import os
import re
import signal
import subprocess
import threading
import unittest

import hang_programs
import jdks
import pytest
from grpcurl_test import GRPCURL
from hang_victims_test import Cgroup
from harness import BIN, FAILURE, ROOT, STACKD, USAGE, Dump, StackdTest, eventually

HANGS = BIN / "tests/hangs"

# What is promised.
DEADLOCK_LIMIT_S = 10
LATE_S = 1  # a heartbeat: its limit and this

BEAT_LIMIT_MS = 1000


def seconds(timestamp):
    """Seconds of a google.protobuf.Timestamp or Duration in JSON."""
    if timestamp.endswith("s"):
        return float(timestamp[:-1])
    whole, _, fraction = timestamp.rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


class HealthWatch:
    """The answers of grpc.health.v1.Health/Watch for one name, as they come."""

    def __init__(self, test, daemon, service):
        self.process = subprocess.Popen(
            [GRPCURL, "-plaintext", "-d", json.dumps({"service": service}), f"127.0.0.1:{daemon.port}",
             "grpc.health.v1.Health/Watch"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.statuses = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            if found := re.search(r'"status": "(\w+)"', line):
                with self.changed:
                    self.statuses.append(found.group(1))
                    self.changed.notify_all()

    def expect(self, *statuses, limit_s=60):
        """Waits until the answers so far are these."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.statuses) >= len(statuses), limit_s):
                raise AssertionError(f"not within {limit_s} s: {statuses}; there are {self.statuses}")
            if list(statuses) != self.statuses:
                raise AssertionError(f"{self.statuses} are not {statuses}")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()


class HangDetectionTest(StackdTest):

    def hang(self, program, mode, *, daemon):
        # Some use a filter to stop a thread in a system call.
        victim = self.start_victim(HANGS / program, mode, directory=daemon.dir, env={"STACKD_SECCOMP_DUMPS": "1"})
        daemon.await_process(victim.pid)
        return victim

    def event_loop(self, *, daemon):
        """A program with a heartbeat of 1 s, which beats by now."""
        victim = self.start_victim(HANGS / "heartbeats", BEAT_LIMIT_MS, directory=daemon.dir, stdin="")
        daemon.await_process(victim.pid)
        return victim

    def hangs(self, daemon, pid=None):
        """HANG dumps, as listed, oldest first."""
        reply = daemon.ctl_json("list")
        dumps = reply if isinstance(reply, list) else reply.get("dumps", [])
        return [d for d in reversed(dumps) if d.get("trigger") == "HANG" and pid in (None, d["process"]["pid"])]

    def await_hang(self, daemon, pid, limit_s=60):
        """The one HANG dump of a process, whole."""
        found = eventually(f"a HANG dump of process {pid}\n{daemon.log()}", lambda: self.hangs(daemon, pid), limit_s)
        self.assertEqual(1, len(found), [(d["name"], d["hang"]) for d in found])
        return self.whole(daemon, found[0]["name"])

    def whole(self, daemon, name):
        """It is stored before it is unwound."""

        def unwound():
            exported = daemon.ctl("export", name, "-f", "json")
            self.assertEqual(0, exported.code, exported.err)
            dump = Dump(json.loads(exported.out))
            return dump if dump.threads else None

        return eventually(f"{name} is unwound\n{daemon.log()}", unwound)

    def rules(self, text):
        path = self.dir / "rules.yaml"
        path.write_text(text)
        return ["--rules", path]

    # --- deadlocks ---

    def test_a_deadlock_is_dumped_within_10_s_by_itself_and_once(self):
        daemon = self.start_daemon()
        idle = self.hang("idle", "condition_variable_pools", daemon=daemon)
        first = self.hang("hang_mutex", "cycle_2", daemon=daemon)
        start_s = datetime.datetime.now().timestamp()
        dump = self.await_hang(daemon, first.pid)
        late_s = seconds(dump.resource["createTime"]) - start_s
        print(f"hang: a deadlock is dumped {late_s:.1f} s after it began")
        self.assertLess(late_s, DEADLOCK_LIMIT_S)
        hang = dump.resource["hang"]
        self.assertEqual("DEADLOCK", hang["cause"])
        self.assertIn(dump.threads[hang["tid"]]["name"], ("cycle-0", "cycle-1"))
        self.assertEqual(("DEADLOCK", "HANG"), tuple(dump.resource["findings"][0][key] for key in ("kind", "severity")))
        # A deadlock that begins later is dumped, and by then the detector has seen the first one again.
        for mode in ("cycle_3", "self_normal"):
            later = self.await_hang(daemon, self.hang("hang_mutex", mode, daemon=daemon).pid)
            self.assertEqual("DEADLOCK", later.resource["hang"]["cause"])
        self.assertEqual(1, len(self.hangs(daemon, first.pid)))
        self.assertEqual([], self.hangs(daemon, idle.pid))

    def test_deadlocks_of_locks_that_runtimes_know_are_dumped_by_themselves_and_once(self):
        daemon = self.start_daemon()
        well = self.start_victim("/usr/bin/python3", ROOT / "tests/programs/turns_locks.py", "RLock", "compute")
        commands = {"python": ("/usr/bin/python3", ROOT / "tests/programs/crossed_rlocks.py")}
        if java := jdks.tool("java"):
            commands["java"] = (java, "-Xmx64m", ROOT / "tests/programs/CrossedLocks.java")
        hung = []
        for name, command in commands.items():
            hung.append(self.start_victim(*command))
            start_s = datetime.datetime.now().timestamp()
            dump = self.await_hang(daemon, hung[-1].pid)
            late_s = seconds(dump.resource["createTime"]) - start_s
            print(f"hang: a deadlock in {name} is dumped {late_s:.1f} s after it began")
            self.assertLess(late_s, DEADLOCK_LIMIT_S)
            self.assertEqual("DEADLOCK", dump.resource["hang"]["cause"])
            self.assertNotIn("inferred", dump.resource["hang"]["explanation"])
            self.assertEqual(("DEADLOCK", "HANG"), tuple(dump.resource["findings"][0][key] for key in ("kind", "severity")))
        # A deadlock that begins later is dumped, and by then the detector has seen these again.
        self.await_hang(daemon, self.hang("hang_mutex", "self_normal", daemon=daemon).pid)
        for victim in hung:
            self.assertEqual(1, len(self.hangs(daemon, victim.pid)))
        self.assertEqual([], self.hangs(daemon, well.pid))

    def test_nothing_is_noticed_where_that_is_switched_off(self):
        folders = [self.dir / "on", self.dir / "off"]
        for folder in folders:
            folder.mkdir()
        on = self.start_daemon(folders[0])
        off = self.start_daemon(folders[1], extra_args=["--no-hang-detection"])
        self.hang("hang_mutex", "cycle_2", daemon=off)
        self.event_loop(daemon=off).ask("pause")
        for mode in ("cycle_2", "self_normal"):
            self.await_hang(on, self.hang("hang_mutex", mode, daemon=on).pid)
        self.assertEqual([], self.hangs(off))

    # --- heartbeats ---

    def check_missed(self, daemon, dump, last_beat_s):
        text = daemon.ctl("show", dump.name).out
        late_s = seconds(dump.resource["createTime"]) - last_beat_s
        print(f"hang: a heartbeat of {BEAT_LIMIT_MS} ms is dumped {late_s:.2f} s after its last beat")
        # The time that the line with the last beat took to us is no part of it.
        self.assertLess(late_s, BEAT_LIMIT_MS / 1000 + LATE_S)
        self.assertGreaterEqual(late_s, BEAT_LIMIT_MS / 1000)
        hang = dump.resource["hang"]
        self.assertEqual(("HEARTBEAT_MISSED", "event-loop"), (hang["cause"], hang["heartbeat"]))
        self.assertEqual(dump.named("event-loop"), hang["tid"])
        self.assertGreaterEqual(seconds(hang["duration"]), BEAT_LIMIT_MS / 1000)
        missed = next(f for f in dump.resource["findings"] if f["kind"] == "HEARTBEAT_MISSED")
        self.assertEqual(hang["tid"], missed["tids"][0])
        first = re.search(r"(?m)^ +tids? (\d+)", text)
        self.assertEqual(str(hang["tid"]), first.group(1), f"the thread concerned does not come first:\n{text}")

    def test_a_missed_heartbeat_is_dumped_in_time(self):
        daemon = self.start_daemon()
        idle = self.event_loop(daemon=daemon)
        idle.ask("suspend")
        gone = self.event_loop(daemon=daemon)
        gone.ask("unregister")
        well = self.event_loop(daemon=daemon)
        stuck = self.event_loop(daemon=daemon)
        last_beat_s = int(stuck.ask("pause")) / 1e9
        self.check_missed(daemon, self.await_hang(daemon, stuck.pid), last_beat_s)
        # These were silent for as long, or were not.
        for victim in (idle, gone, well):
            self.assertEqual([], self.hangs(daemon, victim.pid))

    def test_a_missed_heartbeat_is_dumped_in_time_with_every_thread_stuck(self):
        daemon = self.start_daemon()
        stuck = self.event_loop(daemon=daemon)
        last_beat_s = int(stuck.ask("deadlock")) / 1e9
        found = eventually("a HANG dump", lambda: [d for d in self.hangs(daemon, stuck.pid)
                                                   if d["hang"]["cause"] == "HEARTBEAT_MISSED"])
        dump = self.whole(daemon, found[0]["name"])
        self.check_missed(daemon, dump, last_beat_s)
        self.assertIn("handle_request", dump.functions(dump.named("event-loop")))

    def test_who_was_stopped_is_not_blamed_for_what_they_did_not_do(self):
        daemon = self.start_daemon()
        stopped = self.event_loop(daemon=daemon)
        stopped.signal(signal.SIGSTOP)
        # Another one that misses its limit later was looked at after the stopped one had.
        stuck = self.event_loop(daemon=daemon)
        stuck.ask("pause")
        self.await_hang(daemon, stuck.pid)
        self.assertEqual([], self.hangs(daemon, stopped.pid))
        # Nor is a process that beats, of which the daemon itself saw nothing for long.
        stopped.signal(signal.SIGCONT)
        daemon.process.send_signal(signal.SIGSTOP)
        other = self.event_loop_during_stop(daemon)
        daemon.process.send_signal(signal.SIGCONT)
        daemon.await_process(other.pid)
        other.ask("beat")
        other.ask("pause")
        self.await_hang(daemon, other.pid)
        self.assertEqual([], self.hangs(daemon, stopped.pid))

    def event_loop_during_stop(self, daemon):
        """Returns when more time than the limit has gone."""
        victim = self.start_victim(HANGS / "heartbeats", BEAT_LIMIT_MS, directory=daemon.dir, stdin="")
        first_s = int(victim.ask("suspend")) / 1e9
        eventually("a second and a half has gone",
                   lambda: datetime.datetime.now().timestamp() > first_s + 1.5 * BEAT_LIMIT_MS / 1000)
        return victim

    def check_frozen(self, version):
        daemon = self.start_daemon()
        frozen = self.event_loop(daemon=daemon)
        cgroup = Cgroup(self, "freezer", frozen.pid, version)
        cgroup.freeze()
        # A loop that is stuck since then is noticed, and one later.
        for _ in range(2):
            stuck = self.event_loop(daemon=daemon)
            stuck.ask("pause")
            self.await_hang(daemon, stuck.pid)
        self.assertEqual([], self.hangs(daemon, frozen.pid))
        cgroup.remove()
        frozen.ask("pause")
        self.await_hang(daemon, frozen.pid)

    def test_who_is_frozen_by_a_cgroup_of_version_1_is_not_blamed(self):
        self.check_frozen(1)

    def test_who_is_frozen_by_a_cgroup_of_version_2_is_not_blamed(self):
        self.check_frozen(2)

    # --- health ---

    def test_health_changes_when_the_dump_is_stored_and_back(self):
        daemon = self.start_daemon()
        loop = self.event_loop(daemon=daemon)
        watch = HealthWatch(self, daemon, "process/heartbeats")
        watch.expect("SERVING")
        for missed in (1, 2):
            loop.ask("pause")
            watch.expect(*["SERVING", "NOT_SERVING"] * missed)
            if missed == 1:
                # Now, not later.
                self.assertEqual(1, len(self.hangs(daemon, loop.pid)), daemon.log())
            loop.ask("beat")
            watch.expect(*["SERVING", "NOT_SERVING"] * missed, "SERVING")

    def test_health_of_a_deadlock_lasts_until_the_process_is_another(self):
        daemon = self.start_daemon()
        watch = HealthWatch(self, daemon, "process/hang_mutex")
        watch.expect("SERVICE_UNKNOWN")
        victim = self.hang("hang_mutex", "cycle_2", daemon=daemon)
        watch.expect("SERVICE_UNKNOWN", "SERVING", "NOT_SERVING")
        self.assertEqual(1, len(self.hangs(daemon, victim.pid)), daemon.log())
        victim.kill()
        eventually("it is well or gone", lambda: watch.statuses[-1] != "NOT_SERVING")
        self.hang("hang_mutex", "self_recursive", daemon=daemon)
        eventually("the new one is well", lambda: watch.statuses[-1] == "SERVING")

    @unittest.skipUnless(os.geteuid() == 0, "needs root to make PID namespaces")
    def test_a_lock_that_a_process_of_another_pid_namespace_has_is_no_deadlock(self):
        """As in two containers with memory in common: both main threads have tid 1."""
        daemon = self.start_daemon()
        in_namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        for name, mode in (("holder", "namespace_holds"), ("waiter", "namespace_waits")):
            environment = {"HANG_SHARED_FILE": str(self.dir / "shared"), "STACKD_NAME": name}
            self.start_victim(HANGS / "hang_shared", mode, directory=daemon.dir, wrap=in_namespace, env=environment)
            eventually(f"{name} is connected", lambda name=name: name in daemon.ctl("ps").out)
        watch = HealthWatch(self, daemon, "process/waiter")
        # A true deadlock that begins later is noticed, and by then the detector has looked at the waiter twice.
        for mode in ("cycle_2", "cycle_3"):
            self.await_hang(daemon, self.hang("hang_mutex", mode, daemon=daemon).pid)
        self.assertEqual(2, len(self.hangs(daemon)), daemon.ctl("list").text)
        self.assertEqual(["SERVING"], watch.statuses)
        text = daemon.ctl("dump", "waiter").out
        self.assertRegex(text, "owner: thread 1 of this process, or one with the same number in another PID namespace")
        self.assertNotRegex(text, "HANG|itself|ended")

    def test_a_deadlock_that_only_stacks_tell_is_dumped_and_the_health_stays(self):
        daemon = self.start_daemon()
        well = [self.hang(program, mode, daemon=daemon)
                for program, mode in (("hang_sync", "once_initializer_asleep"), ("idle", "completion_waiters"))]
        watch = HealthWatch(self, daemon, "process/hang_cpp")
        watch.expect("SERVICE_UNKNOWN")
        for program, mode in (("hang_sync", "once_recursion"), ("hang_sync", "malloc_in_handler"),
                              ("hang_cpp", "call_once_recursion"), ("hang_cpp", "static_variables_cycle")):
            with self.subTest(mode):
                victim = self.hang(program, mode, daemon=daemon)
                start_s = datetime.datetime.now().timestamp()
                dump = self.await_hang(daemon, victim.pid)
                late_s = seconds(dump.resource["createTime"]) - start_s
                print(f"hang: {mode}: dumped {late_s:.1f} s after it was known")
                self.assertEqual("DEADLOCK", dump.resource["hang"]["cause"])
                self.assertIn("inferred from the stacks", dump.resource["hang"]["explanation"])
                self.assertEqual("HANG", dump.resource["findings"][0]["severity"])
        # A deadlock that locks tell is found later than that, and does change it.
        self.assertEqual(["SERVICE_UNKNOWN", "SERVING"], watch.statuses)
        for victim in well:
            self.assertEqual([], self.hangs(daemon, victim.pid))

    # --- many ---

    STORM = 200

    # Two hundred processes that hang are looked at each second.
    @pytest.mark.alone
    def test_a_storm_of_hung_processes_is_no_storm_of_dumps_and_none_is_lost(self):
        count, window_s = 40, 4
        daemon = self.start_daemon(extra_args=self.rules(f"""\
rules:
  - name: deadlock
    trigger: {{type: deadlock}}
    actions: [dump]
    limits: {{count: {count}, window: {window_s}s}}
"""))
        victims = [self.start_victim(HANGS / "hang_mutex", "cycle_2", ready=None) for _ in range(self.STORM)]
        for victim in victims:
            victim.read_until("ready")
        dumped = eventually("each is dumped", lambda: (found := self.hangs(daemon)) and len(found) >= self.STORM and found, 200)
        self.assertEqual(sorted(v.pid for v in victims), sorted(d["process"]["pid"] for d in dumped))
        times = sorted(seconds(d["createTime"]) for d in dumped)
        most = max(sum(start <= time < start + window_s for time in times) for start in times)
        print(f"hang: {self.STORM} hung processes are dumped within {times[-1] - times[0]:.0f} s, at most {most} in {window_s} s")
        # A dump may be a moment later than the decision.
        self.assertLessEqual(most, count + count // 4)
        # The same hang in all of them is one group.
        (group,) = daemon.ctl_json("groups", "--hangs")["stackGroups"]
        self.assertEqual((str(self.STORM), "HANG"), (group["crashCount"], group["kind"]))
        self.assertIn(f"{self.STORM} hangs of hang_mutex", daemon.ctl("groups", "--explain", group["fingerprint"]).out)
        self.assertEqual({}, daemon.ctl_json("groups"))

    # --- rules ---

    def test_a_deadlock_of_locks_that_keep_no_owner_is_dumped_where_no_other_thread_can_have_them(self):
        rust = hang_programs.std_locks() or self.skipTest("there is no compiler of Rust")
        daemon = self.start_daemon()
        start = lambda mode: self.start_victim(rust, mode, directory=daemon.dir)
        well = [start(mode) for mode in ("idle_workers_joined", "mutex_owner_asleep", "busy")]
        watch = HealthWatch(self, daemon, "process/hang_rust")
        watch.expect("SERVING")
        for mode in ("mutex_cycle_joined", "rwlock_cycle_joined", "mutex_self_joined"):
            with self.subTest(mode):
                victim = start(mode)
                start_s = datetime.datetime.now().timestamp()
                dump = self.await_hang(daemon, victim.pid)
                late_s = seconds(dump.resource["createTime"]) - start_s
                print(f"hang: {mode}: dumped {late_s:.1f} s after it began")
                self.assertEqual("DEADLOCK", dump.resource["hang"]["cause"])
                self.assertRegex(dump.resource["hang"]["explanation"], "each other thread waits as well .inferred")
                self.assertEqual("HANG", dump.resource["findings"][0]["severity"])
        self.assertEqual(["SERVING"], watch.statuses)
        for victim in well:
            self.assertEqual([], self.hangs(daemon, victim.pid))

    def test_a_rule_is_for_its_processes_and_runs_its_program(self):
        told = self.dir / "told"
        program = self.dir / "tell"
        program.write_text(f'#!/bin/sh\necho "$1 $STACKD_TRIGGER" >> {told}\n')
        program.chmod(0o700)
        daemon = self.start_daemon(extra_args=self.rules(f"""\
rules:
  - name: stuck mutexes
    filters: [{{process: "hang_mut*"}}]
    trigger: {{type: deadlock}}
    actions: [dump, run: {program}]
"""))
        other = self.hang("hang_cpp", "transfer_cycle", daemon=daemon)
        for mode in ("cycle_2", "cycle_3"):
            victim = self.hang("hang_mutex", mode, daemon=daemon)
            dump = self.await_hang(daemon, victim.pid)
            self.assertEqual("stuck mutexes", dump.resource["hang"]["rule"])
            eventually("the program has run", lambda name=dump.name: told.exists() and f"{name} HANG\n" in told.read_text())
        self.assertEqual([], self.hangs(daemon, other.pid))

    def test_a_rule_goes_on_when_its_program_fails(self):
        told = self.dir / "told"
        program = self.dir / "fail"
        program.write_text(f'#!/bin/sh\necho "$1" >> {told}\nexit 7\n')
        program.chmod(0o700)
        daemon = self.start_daemon(extra_args=self.rules(f"""\
rules:
  - name: stuck
    trigger: {{type: deadlock}}
    actions: [dump, run: {program}]
"""))
        for mode in ("cycle_2", "cycle_3"):
            dump = self.await_hang(daemon, self.hang("hang_mutex", mode, daemon=daemon).pid)
            eventually("the program has run", lambda name=dump.name: told.exists() and name in told.read_text())
        eventually("its end is in the log", lambda: re.search(r'on-dump program ended.*exit[^,]*7', daemon.log()))

    def test_a_rule_goes_on_when_its_program_does_not_end(self):
        told = self.dir / "told"
        program = self.dir / "sleep"
        program.write_text(f'#!/bin/sh\necho "$1" >> {told}\nexec sleep 1000\n')
        program.chmod(0o700)
        daemon = self.start_daemon(extra_args=self.rules(f"""\
rules:
  - name: stuck
    trigger: {{type: deadlock}}
    actions: [dump, run: {program}]
"""))
        names = [self.await_hang(daemon, self.hang("hang_mutex", mode, daemon=daemon).pid).name for mode in ("cycle_2", "cycle_3")]
        # The second one's turn comes when the first is ended, after 30 s.
        eventually("the program has run for both", lambda: told.exists() and told.read_text().split() == names, 90)
        start_s = datetime.datetime.now().timestamp()
        daemon.stop()
        self.assertLess(datetime.datetime.now().timestamp() - start_s, 10, "the program held the end of the daemon up")

    def start_after_4_s(self, trigger):
        return self.start_daemon(extra_args=self.rules(f"""\
rules:
  - name: soon
    trigger: {{type: {trigger}, after: 4s}}
    actions: [dump]
"""))

    def test_no_progress_is_noticed_after_the_time_in_the_rule(self):
        daemon = self.start_after_4_s("no_progress")
        well = [self.hang("idle", mode, daemon=daemon) for mode in ("joined_pool", "event_loops", "server", "timers")]
        # It ends by itself, as a job that runs once an hour.
        well.append(self.hang("hang_mutex", "owner_asleep", daemon=daemon))
        # The second one is noticed when those have been still for longer.
        for program, mode in (("hang_mutex", "owner_reads_socket"), ("hang_kernel", "child_hangs"),
                              ("hang_kernel", "stream_to_full_pipe")):
            dump = self.await_hang(daemon, self.hang(program, mode, daemon=daemon).pid)
            self.assertEqual("NO_PROGRESS", dump.resource["hang"]["cause"])
        for victim in well:
            self.assertEqual([], self.hangs(daemon, victim.pid))

    def test_spinning_is_noticed_after_the_time_in_the_rule(self):
        daemon = self.start_after_4_s("spin")
        well = self.hang("idle", "joined_computation", daemon=daemon)
        spins = self.hang("hang_cpu", "spin_on_atomic", daemon=daemon)
        dump = self.await_hang(daemon, spins.pid, limit_s=120)
        self.assertEqual(("SPIN", dump.named("spinner")), tuple(dump.resource["hang"][key] for key in ("cause", "tid")))
        self.assertEqual([], self.hangs(daemon, well.pid))

    # Each says so when its handler is set, or the signal blocked.
    TOLD_TO_END = {
        "hangs in its end": ("signal.signal(signal.SIGTERM, lambda *_: lock.acquire())", "it has taken the signal"),
        "hangs in a thread": ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
                              "threading.Thread(target=lambda: (signal.sigwait([signal.SIGTERM]), lock.acquire())).start()",
                              "it has taken the signal"),
        "takes nothing": ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])", "it has not even taken the signal"),
        "ends": ("signal.signal(signal.SIGTERM, lambda *_: os._exit(3))", None),
        "has no handler": ("", None),
    }

    def test_who_is_told_to_end_and_does_not_is_dumped_before_it_is_killed(self):
        daemon = self.start_after_4_s("not_gone")
        told = {}
        for name, (code, _) in self.TOLD_TO_END.items():
            script = f"import os, signal, threading\nlock = threading.Lock()\nlock.acquire()\n{code}\nprint('ready', flush=True)\n"
            script += "while True: signal.pause()\n"
            # Without threads it counts SIGTERMs where the memory tells, and nowhere else.
            told[name] = self.start_victim("/usr/bin/python3", "-c", script, directory=daemon.dir, env={"STACKD_SHARE": "memory"})
            daemon.await_process(told[name].pid)
        bystander = self.hang("idle", "event_loops", daemon=daemon)
        # It looks at each before that is told: what was before the first look is not known.
        looks = lambda: int(daemon.ctl_json("version")["counters"]["hang_sigterm_looks"])
        enough = looks() + 3 * (len(told) + 1)
        eventually("the detector has looked at each", lambda: looks() >= enough, 30)
        for victim in told.values():
            victim.process.terminate()
        start_s = datetime.datetime.now().timestamp()
        for name, (_, says) in self.TOLD_TO_END.items():
            with self.subTest(name):
                if says is None:
                    told[name].process.wait(10)
                    continue
                dump = self.await_hang(daemon, told[name].pid)
                hang = dump.resource["hang"]
                print(f"hang: {name}: dumped {seconds(dump.resource['createTime']) - start_s:.1f} s after SIGTERM")
                self.assertEqual(("NOT_GONE", "soon"), (hang["cause"], hang["rule"]))
                self.assertIn(says, hang["explanation"])
        self.assertEqual([], [d["name"] for name, (_, says) in self.TOLD_TO_END.items() if says is None
                              for d in self.hangs(daemon, told[name].pid)])
        self.assertEqual([], self.hangs(daemon, bystander.pid))

    BAD_RULES = {
        "no rules": ("", "1:1", "no rules"),
        "no YAML": ("rules: [", r"\d+:\d+", "YAML"),
        "unknown key": ("rules:\n  - name: a\n    triger: {type: deadlock}\n    actions: [dump]\n", "3:5", "trigger"),
        "unknown trigger": ("rules:\n  - name: a\n    trigger: {type: deadlok}\n    actions: [dump]\n", "3:21", "deadlock"),
        "bad duration": ("rules:\n  - name: a\n    trigger: {type: spin, after: 5}\n    actions: [dump]\n", "3:34", "5s"),
        "no time": ("rules:\n  - name: a\n    trigger: {type: not_gone, after: 0s}\n    actions: [dump]\n", "3:38", "above 0"),
        "no actions": ("rules:\n  - name: a\n    trigger: {type: spin}\n", "2:5", "actions"),
        "relative program": ("rules:\n  - name: a\n    trigger: {type: spin}\n    actions: [dump, {run: page}]\n", "4:27", "path"),
        "bad count": ("rules:\n  - name: a\n    trigger: {type: spin}\n    actions: [dump]\n    limits: {count: 0}\n", "5:21",
                      "number"),
        "the same name": ("rules:\n" + 2 * "  - name: a\n    trigger: {type: spin}\n    actions: [dump]\n", "5:11", "already"),
    }

    def check_rules(self, *arguments):
        return subprocess.run([STACKD, "check-rules", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)

    def test_check_rules_names_line_and_fault(self):
        path = self.dir / "rules.yaml"
        for name, (text, place, word) in self.BAD_RULES.items():
            with self.subTest(name):
                path.write_text(text)
                checked = self.check_rules(path)
                self.assertEqual(FAILURE, checked.returncode)
                self.assertRegex(checked.stdout + checked.stderr, rf"(?m)^{re.escape(str(path))}:{place}: .*{word}")
        path.write_text("rules:\n  - name: a\n    trigger: {type: deadlock}\n    actions: [dump]\n")
        self.assertEqual(0, self.check_rules(path).returncode)
        self.assertEqual(USAGE, self.check_rules().returncode)
        self.assertNotEqual(0, self.check_rules(self.dir / "absent.yaml").returncode)

    def test_a_daemon_with_wrong_rules_says_so_and_does_not_start(self):
        arguments = self.rules("rules:\n  - name: a\n    triger: {type: deadlock}\n    actions: [dump]\n")
        with self.assertRaisesRegex(AssertionError, "rules.yaml:3:5: "):
            self.start_daemon(extra_args=arguments)


if __name__ == "__main__":
    unittest.main()
