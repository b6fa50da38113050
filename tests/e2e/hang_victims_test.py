"""Each way to hang has its verdict: the right findings, what each thread waits for, and who must act, where that can be known.
And programs that are well are not called hung.

    hang: mutex_cycle_2                    DEADLOCK HANG
"""

import contextlib
import json
import pathlib
import re
import signal
import subprocess
import unittest

import hang_programs
import hang_table
import jdks
import nodes
import pytest
import pythons
import tier
from harness import ROOT, StackdTest, eventually

WORSE_THAN_HARMLESS = (hang_table.HANG, hang_table.SUSPICIOUS)


def one_of(expected, value):
    return value in expected.split("|")


def text_of(finding):
    parts = [finding.get("explanation", ""), *finding.get("details", []), *(e.get("lock", "") for e in finding.get("edges", []))]
    return "\n".join(parts)


def text_of_wait(wait):
    return "\n".join(wait.get(field, "") for field in ("explanation", "ownerNote", "ownerActivity"))


def is_rotation(expected, actual):
    return any(tuple(expected[i:] + expected[:i]) == tuple(actual) for i in range(len(expected)))


class Cgroup:
    """A control group of one process: of that version, or of whichever this machine has the controller in."""

    def __init__(self, test, controller, pid, version=None):
        has_controller = pathlib.Path(f"/sys/fs/cgroup/{controller}/cgroup.procs").exists()
        self.version = version or (1 if has_controller else 2)
        self.parent = pathlib.Path("/sys/fs/cgroup") / (controller if self.version == 1 else "")
        # Beside version 1, where both are mounted.
        if self.version == 2 and not (self.parent / "cgroup.controllers").exists():
            self.parent /= "unified"
        self.path = self.parent / f"stackd-e2e-{pid}"
        try:
            self.path.mkdir()
            # Also thaws what is in it: a frozen process could not be ended.
            test.addCleanup(self.remove)
            self.write("cgroup.procs", pid)
        except OSError as error:
            test.skipTest(f"no cgroup with the controller {controller} can be made here: {error}")

    def write(self, file, value):
        (self.path / file).write_text(str(value))

    def freeze(self):
        if self.version == 2:
            self.write("cgroup.freeze", 1)
            eventually("the cgroup is frozen", lambda: "frozen 1" in (self.path / "cgroup.events").read_text())
        else:
            self.write("freezer.state", "FROZEN")
            eventually("the cgroup is frozen", lambda: "FROZEN" in (self.path / "freezer.state").read_text())

    def throttle(self, percent):
        if self.version == 2:
            self.write("cpu.max", f"{percent * 1000} 100000")
        else:
            self.write("cpu.cfs_period_us", 100000)
            self.write("cpu.cfs_quota_us", percent * 1000)

    def remove(self):
        if not self.path.exists():
            return
        with contextlib.suppress(OSError):
            self.write("freezer.state", "THAWED") if self.version == 1 else self.write("cgroup.freeze", 0)
        for pid in (self.path / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self.parent / "cgroup.procs").write_text(pid)
        self.path.rmdir()


PREPARE = hang_programs.PREPARE


def gdb_owners(pid, addresses):
    """What gdb reads as owner of the mutexes at these addresses."""
    prints = [word for address in addresses
              for word in ("-ex", f"output ((pthread_mutex_t*){address})->__data.__owner", "-ex", "echo \\n")]
    done = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid),
                           "-ex", "echo owners:\\n", *prints], capture_output=True, text=True, check=False, timeout=120)
    _, found, owners = done.stdout.partition("owners:\n")
    assert found, done.stderr
    return dict(zip(addresses, map(int, owners.split()[:len(addresses)]), strict=True))


def lslocks_holder(pid):
    """Which process keeps process `pid` waiting, in the opinion of lslocks."""
    done = subprocess.run(["lslocks", "--json", "--output", "PID,BLOCKER"], capture_output=True, text=True, check=True)
    holders = [lock["blocker"] for lock in json.loads(done.stdout)["locks"] if lock["pid"] == pid and lock["blocker"]]
    assert len(holders) == 1, done.stdout
    return holders[0]


class HangVictimsTest(StackdTest):

    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    # --- what is done to a victim before it is dumped ---

    def command(self, victim):
        command = hang_programs.command_of(victim.program)
        return command or self.skipTest("there is no compiler of Rust or Java, or no crate registry, to build it with")

    def start(self, victim, command=None):
        """The pid to dump."""
        stdin = "" if victim.then == "stopped_by_debugger" else None
        # Some use a filter to stop a thread in a system call.
        process = self.start_victim(*(command or self.command(victim)), victim.mode, stdin=stdin, env={"STACKD_SECCOMP_DUMPS": "1"})
        if victim.then == "in_child":
            pid = int(re.search(rb"child (\d+)", process.output).group(1))
        else:
            pid = process.pid
        self.daemon.await_process(pid)
        if victim.then == "beside_child":
            self.daemon.await_process(int(re.search(rb"child (\d+)", process.output).group(1)))
        if victim.then == "stopped":
            process.signal(signal.SIGSTOP)
            self.addCleanup(process.signal, signal.SIGCONT)
            self.await_state(pid, "T")
        elif victim.then in ("frozen", "frozen_by_v2"):
            Cgroup(self, "freezer", pid, version=2 if victim.then == "frozen_by_v2" else None).freeze()
        elif victim.then == "throttled":
            Cgroup(self, "cpu", pid).throttle(percent=5)
        elif victim.then == "stopped_by_debugger":
            process.ask("stop")
            self.await_state(pid, "t")
        return pid

    def await_state(self, pid, letter):
        eventually(f"process {pid} is in state {letter}",
                   lambda: re.search(rf"^State:\s+{letter}", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M))

    # --- comparison ---

    def names(self, dump, tids):
        return [dump.threads.get(tid, {}).get("name", f"tid {tid}") for tid in tids]

    def check_wait(self, dump, thread, expected):
        wait = thread.get("wait", {})
        self.assertTrue(one_of(expected.kind, wait.get("kind", "")), f"kind is not {expected.kind}")
        if expected.owner:
            self.assertTrue(one_of(expected.owner, wait.get("owner", "")), f"owner is not {expected.owner}")
        if expected.by:
            self.assertEqual([expected.by], self.names(dump, [wait.get("ownerTid")]))
        for pattern, text in ((expected.place, wait.get("place", "")), (expected.lock_kind, wait.get("lockKind", "")),
                              (expected.says, text_of_wait(wait)),
                              (expected.fd, "\n".join(fd.get("name", "") for fd in wait.get("fds", [])))):
            self.assertTrue(re.search(pattern, text), f"{pattern!r} is not in {text!r}")
        if expected.timed is not None:
            self.assertEqual(expected.timed, wait.get("timed", False))
        if expected.waiter_count is not None:
            self.assertEqual(expected.waiter_count, wait.get("waiterCount"))
        if wait.get("owner") in (hang_table.NOT_RECORDED, hang_table.NOT_KNOWN, hang_table.GONE):
            self.assertTrue(wait.get("ownerNote"), "does not say why the owner is not known")

    def matches(self, dump, expected, finding):
        return (one_of(expected.kind, finding.get("kind", "")) and one_of(expected.severity, finding.get("severity", ""))
                and set(expected.threads) <= set(self.names(dump, finding.get("tids", [])))
                and (not expected.edges or is_rotation(expected.edges, [
                    tuple(self.names(dump, [edge["waiterTid"], edge["ownerTid"]])) for edge in finding.get("edges", [])]))
                and all(re.search(word, text_of(finding)) for word in expected.says))

    def check_sentences(self, dump):
        for finding in dump.resource.get("findings", []):
            for text in (finding.get("explanation", ""), *finding.get("details", [])):
                self.assertTrue(text and "\n" not in text and "  " not in text, repr(text))
                self.assertNotRegex(text, r"UNSPECIFIED|\?\?|%")

    def check_order(self, findings):
        """Worst first."""
        severities = [(hang_table.HANG, hang_table.SUSPICIOUS, hang_table.HARMLESS).index(f["severity"]) for f in findings]
        self.assertEqual(sorted(severities), severities)

    def check(self, victim, *, is_hung, command=None):
        pid = self.start(victim, command)
        dump = self.daemon.dump(pid)
        findings = dump.resource.get("findings", [])
        described = [f"{f.get('kind')} {f.get('severity')} {text_of(f)!r}" for f in findings]
        worst = [f"{f['kind']} {f['severity']}" for f in findings if f.get("severity") in WORSE_THAN_HARMLESS]
        print(f"hang: {victim.name:<32} {', '.join(worst) or '-'}")

        for name, expected in victim.waits.items():
            threads = [t for t in dump.threads.values() if t.get("name") == name]
            self.assertTrue(threads, f"no thread {name}")
            # In a pool that one thread joins, one thread is joined.
            for thread in threads:
                with self.subTest(thread=name, wait=thread.get("wait")):
                    self.check_wait(dump, thread, expected)
        for expected in victim.findings:
            with self.subTest(expected=expected, findings=described):
                self.assertTrue(any(self.matches(dump, expected, f) for f in findings), "there is no such finding")
        too_much = [hang_table.HANG] if is_hung else WORSE_THAN_HARMLESS
        unexpected = [text for text, f in zip(described, findings, strict=True)
                      if f.get("severity") in too_much and not any(self.matches(dump, e, f) for e in victim.findings)]
        self.assertEqual([], unexpected)
        self.check_sentences(dump)
        self.check_order(findings)
        if victim.asks_gdb:
            self.compare_owners_with_gdb(dump, pid)
        if victim.asks_lslocks:
            notes = [t["wait"]["ownerNote"] for t in dump.threads.values() if t.get("wait", {}).get("kind") == "FILE_LOCK"]
            self.assertEqual([str(lslocks_holder(pid))], [re.search(r"pid (\d+)", note).group(1) for note in notes])

    def compare_owners_with_gdb(self, dump, pid):
        ours = {t["wait"]["address"]: t["wait"]["ownerTid"] for t in dump.threads.values()
                if t.get("wait", {}).get("kind") == "MUTEX" and t["wait"].get("owner") == hang_table.KNOWN}
        self.assertTrue(ours, "there is no owner to compare")
        self.assertEqual(gdb_owners(pid, list(ours)), ours)

    def check_versions(self, program, runtimes):
        for version, path in runtimes:
            for victim, is_hung in hang_table.RESTS_ON_FUNCTIONS:
                # The libjvm of Debian's 8 has no names of functions.
                is_nameless = "class_initialization" in victim.mode and str(version).startswith("1.8")
                if victim.program == program and not is_nameless:
                    with self.subTest(version=str(version), mode=victim.mode):
                        self.check(victim, is_hung=is_hung, command=hang_programs.by_runtime(program, path))

    @pytest.mark.thorough
    def test_what_rests_on_functions_of_python_is_said_in_each_version(self):
        self.check_versions("hang_python", [(python, python.path) for python in pythons.found()])

    @pytest.mark.thorough
    def test_what_rests_on_functions_of_node_is_said_in_each_version(self):
        self.check_versions("hang_node", [(node, node.path) for node in nodes.found()])

    @pytest.mark.thorough
    def test_what_rests_on_functions_of_java_is_said_in_each_version(self):
        self.check_versions("HangJava", [(jdk, jdk.java) for jdk in jdks.found()])

    def python(self, program, path="/usr/bin/python3", *arguments):
        victim = self.start_victim(path, ROOT / "tests/programs" / program, *arguments)
        self.daemon.await_process(victim.pid)
        return self.daemon.dump(victim.pid), victim.pid

    def test_threads_that_wait_for_locks_of_python_are_not_idle(self):
        dump, pid = self.python("crossed_locks.py")
        unknown = [f for f in dump.resource["findings"] if f["kind"] == "OWNER_UNKNOWN"]
        self.assertEqual([1, 1], [len(finding["tids"]) for finding in unknown], dump.resource["findings"])
        for finding in unknown:
            self.assertRegex(finding["explanation"], "who has a lock of Python's is not read")
        compared = self.daemon.ctl("dump", pid, "--samples", 2, "--every", "500ms")
        self.assertRegex(compared.out, rf"\(pid {pid}\): stuck")

    def test_rlocks_of_python_have_their_owners(self):
        for python in tier.versions(pythons.found()):
            with self.subTest(python=str(python)):
                dump, pid = self.python("crossed_rlocks.py", python.path)
                finding = dump.resource["findings"][0]
                self.assertEqual(("DEADLOCK", "HANG"), (finding["kind"], finding["severity"]), dump.resource["findings"])
                edges = {edge["waiterTid"]: edge["ownerTid"] for edge in finding["edges"]}
                one, other = edges
                self.assertEqual({one: other, other: one}, edges)
                self.assertRegex("\n".join(finding["details"]),
                                 r"take_both at crossed_rlocks.py:13 waits for threading.RLock 0x\w+, held by thread")
                compared = self.daemon.ctl("dump", pid, "--samples", 2, "--every", "500ms")
                self.assertRegex(compared.out, rf"\(pid {pid}\): deadlocked")

    def test_locks_of_python_that_go_back_and_forth_hang_nothing(self):
        for python in tier.versions(pythons.found()):
            for way in (("RLock", "sleep"), ("RLock", "compute"), ("Lock", "compute")):
                with self.subTest(python=str(python), way=way):
                    dump, pid = self.python("turns_locks.py", python.path, *way)
                    owned = 0
                    for _ in range(tier.DUMPS_OF_TURNS):
                        self.assertEqual([], [f for f in dump.resource["findings"] if f["severity"] == hang_table.HANG])
                        owned += any("ownerTid" in thread.get("wait", {}) for thread in dump.threads.values())
                        dump = self.daemon.dump(pid)
                    self.assertTrue(owned or way != ("RLock", "sleep"), "no owner was seen")
                    print(f"hang: python {python}: {tier.DUMPS_OF_TURNS} dumps of {way}, {owned} with an owner, none hung")

    def test_a_loop_that_is_blocked_is_stuck_and_not_idle(self):
        pid = self.start(next(victim for victim in hang_table.NODE_VICTIMS if victim.mode == "fifo_read"))
        compared = self.daemon.ctl("dump", pid, "--samples", 2, "--every", "500ms")
        self.assertRegex(compared.out, rf"\(pid {pid}\): stuck")

    def test_a_mutex_that_goes_from_hand_to_hand_hangs_nothing(self):
        """Threads that share it are on their way into the call and out of it, and its words change while they are read."""
        victim = self.start_victim(hang_programs.HANGS / "idle", "hot_mutex")
        self.daemon.await_process(victim.pid)
        kinds = set()
        for _ in range(tier.DUMPS_OF_TURNS):
            dump = self.daemon.dump(victim.pid)
            self.assertEqual([], [f for f in dump.resource["findings"] if f["severity"] in WORSE_THAN_HARMLESS])
            kinds |= {thread["wait"]["kind"] for thread in dump.threads.values() if "wait" in thread}
        self.assertIn("MUTEX", kinds)
        self.assertNotIn("FUTEX", kinds)

    def test_threads_that_wait_for_work_in_python_are_idle(self):
        dump, _ = self.python("idle_waits.py")
        self.assertEqual(["IDLE"], [finding["kind"] for finding in dump.resource["findings"]], dump.resource["findings"])

    def test_table_is_long_enough(self):
        print(f"hang: {len(hang_table.VICTIMS + hang_table.MANAGED_VICTIMS)} victims, "
              f"{len(hang_table.IDLE + hang_table.MANAGED_IDLE)} idle ones")
        self.assertGreaterEqual(len(hang_table.VICTIMS), 30)
        self.assertGreaterEqual(len(hang_table.IDLE), 8)


def case(victim, is_hung):
    return lambda self: self.check(victim, is_hung=is_hung)


for _victim in hang_table.VICTIMS + hang_table.MANAGED_VICTIMS:
    setattr(HangVictimsTest, f"test_{_victim.name}", case(_victim, True))
for _victim in hang_table.IDLE + hang_table.MANAGED_IDLE:
    setattr(HangVictimsTest, f"test_not_hung_{_victim.name}", case(_victim, False))

if __name__ == "__main__":
    unittest.main()
