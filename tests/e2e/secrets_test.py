"""No secrets: a string and a number lie on every stack and in the registers of the watched process. No byte of ring, store, log
or reply has them."""

import base64
import contextlib
import gzip
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import unittest

import go_programs
import jdks
import nodes
import pythons
import ring_view
import tier
from crashes import crash_of
from harness import LIMIT_S, ROOT, StackdTest, blocked_at, eventually, thread_names
from otlp_receiver import Receiver, needs_protos

PROGRAMS = ROOT / "tests/languages/secrets"

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def forms_of(text, number):
    """The bytes that would betray the secret: as it lies in memory, whole and in parts, and as text."""
    raw = number.to_bytes(8, "little")
    return {
        "the string": text.encode(),
        "its first half": text[:8].encode(),
        "its second half": text[8:16].encode(),
        "the number": raw,
        "the number, reversed": raw[::-1],
        "the number in hex": f"{number:x}".encode(),
        "the number in decimal": str(number).encode(),
    }


def digits_of(number):
    """A number as CPython has it in memory."""
    return b"".join((number >> shift & (1 << 30) - 1).to_bytes(4, "little") for shift in range(0, 64, 30))


def memory_of(pid):
    """All that can be read of a process's writable memory."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            if not line.split()[1].startswith("rw"):
                continue
            for at in range(start, end, 1 << 20):
                try:
                    memory.seek(at)
                    found.append(memory.read(min(1 << 20, end - at)))
                except OSError:
                    break
    return b"".join(found)


def unpacked(blob):
    """A blob of the store and, where it is compressed, what it unpacks to."""
    yield blob
    at = blob.find(ZSTD_MAGIC)
    if at >= 0:
        yield subprocess.run(["zstd", "-dcq"], input=blob[at:], capture_output=True, check=True).stdout


class SecretsBase(StackdTest):

    def setUp(self):
        super().setUp()
        if shutil.which("zstd") is None:
            self.fail("zstd is missing: what the store has compressed could not be looked into")
        self.text = secrets.token_hex(10)
        # No address: the filter keeps words that point into code or stack, and a secret might by chance.
        self.number = secrets.randbits(64) | (0xA5 << 56)
        self.forms = forms_of(self.text, self.number)

    def assert_absent(self, where, data):
        for what, form in self.forms.items():
            self.assertFalse(form in data, f"{what} is in {where}")

    def assert_nothing_left(self, daemon, dump, *commands):
        """Neither in the ring, nor in any reply to these or about this dump, in no export, the store, the log; the daemon ends."""
        for memory in ring_view.memfds_of(daemon.process.pid):
            self.assert_absent("shared memory", memory[:])
        for arguments in (*commands, ["show", dump.name, "--all"], ["show", dump.name, "-o", "json"],
                          ["export", dump.name, "-f", "text"], ["export", dump.name, "-f", "json"],
                          ["export", dump.name, "-f", "folded"], ["ps", "-o", "json"], ["list", "-o", "json"]):
            outcome = daemon.ctl(*arguments)
            self.assertEqual(0, outcome.code, outcome.err)
            self.assert_absent(f"the reply to {arguments}", outcome.text.encode())

        minidump = self.dir / "exported.dmp"
        outcome = daemon.ctl("export", dump.name, "-f", "minidump", "--to", minidump)
        self.assertEqual(0, outcome.code, outcome.err)
        self.assertIn(b"MDMP", minidump.read_bytes())
        self.assert_absent("the minidump", minidump.read_bytes())

        self.check_store(daemon.store)
        self.assert_absent("the log", daemon.log_path.read_bytes())
        self.assertEqual(0, daemon.stop())
        for name in os.listdir(self.dir):
            path = self.dir / name
            if path.is_file():
                self.assert_absent(name, path.read_bytes())

    def check_store(self, store):
        """Every file of the store as it lies there, and every value in it, unpacked."""
        for name in os.listdir(store.parent):
            if name.startswith(store.name):
                self.assert_absent(name, (store.parent / name).read_bytes())
        values = 0
        # Closed at its end: a lock that is left would be lost when the next look reads the file, and the store with it.
        with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
            tables = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
            for table in tables:
                for row in database.execute(f'select * from "{table}"'):
                    for value in row:
                        blob = value.encode() if isinstance(value, str) else value
                        if isinstance(blob, bytes):
                            for data in unpacked(blob):
                                values += 1
                                self.assert_absent(f"table {table}", data)
        self.assertGreater(values, 0)


class SecretsTest(SecretsBase):

    def start_keepers(self):
        # A core, if one is left, is in that folder, and nothing of stackd's.
        (self.dir / "of_victim").mkdir()
        return self.start_victim("secrets", stdin=f"{self.text}\n{self.number:x}\n", cwd=self.dir / "of_victim")

    def assert_planted(self, pid, tids):
        """On the stack and in registers of each thread, else this test proves nothing."""
        gdb = subprocess.run(["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "thread apply all -q printf \"%lx %lx %lx\\n\", "
                              "$rbx, $r12, $r15"], capture_output=True, text=True)
        self.assertGreaterEqual(gdb.stdout.count(f"{self.number:x} {self.number:x} {self.number:x}"), len(tids), gdb.stdout)
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for tid in tids:
                sp, _ = eventually("it waits again, whom gdb has stopped", lambda tid=tid: blocked_at(pid, tid))
                memory.seek(int(sp, 16))
                stack = memory.read(2048)
                self.assertIn(self.text.encode(), stack)
                self.assertIn(self.number.to_bytes(8, "little"), stack)

    def test_planted_secret_is_in_no_byte_that_leaves_the_process(self):
        daemon = self.start_daemon()
        victim = self.start_keepers()
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        keepers = [tid for tid in dump.threads if any("keep_on_stack" in f for f in dump.functions(tid))]
        self.assertEqual(17, len(keepers))
        for tid in keepers:
            self.assertEqual("ROOT", dump.stack(tid)["end"])
        self.assert_planted(victim.pid, keepers)

        # The scan itself finds what is there: the names of the threads are in the ring.
        self.assertTrue(any(b"keeper" in memory[:] for memory in ring_view.memfds_of(daemon.process.pid)))
        self.assert_nothing_left(daemon, dump, ["dump", victim.pid], ["dump", victim.pid, "--all"])

    def crash(self, victim):
        """Crash of its main thread, with the secret in its registers and on its stack as on those of all others."""

        def all_keepers():
            """The agent's thread has the name of the program's first one until it has a name of its own."""
            tids = [tid for tid, name in thread_names(victim.pid).items() if name in ("keeper", "secrets")]
            return tids if len(tids) == 17 else None

        keepers = eventually("17 threads have the secret", all_keepers)
        eventually("all wait", lambda: all(blocked_at(victim.pid, tid) for tid in keepers))
        self.assert_planted(victim.pid, keepers)
        victim.process.stdin.write(b"\n")
        victim.process.stdin.flush()
        self.assertEqual(-signal.SIGSEGV, victim.process.wait(LIMIT_S))

    def assert_crash_keeps_it(self, daemon, victim):
        dump = crash_of(daemon, victim.pid)
        self.assertEqual("SIGSEGV", dump.resource["crash"]["signalName"])
        frames = dump.frames(victim.pid)
        self.assertEqual("block_with_secret_registers", frames[0]["function"])
        self.assertIn("keep_on_stack", dump.functions(victim.pid))
        self.assert_nothing_left(daemon, dump, ["list", "--crashes"], ["groups", "-o", "json"])

    def test_planted_secret_is_in_no_byte_of_a_crash(self):
        daemon = self.start_daemon()
        victim = self.start_keepers()
        daemon.await_process(victim.pid)
        self.crash(victim)
        self.assert_crash_keeps_it(daemon, victim)

    def test_planted_secret_is_in_no_byte_of_a_crash_on_disk(self):
        victim = self.start_keepers()
        self.crash(victim)
        left, = [path for path in (self.dir / "spool").iterdir() if path.stat().st_size > 0]
        crash = left.read_bytes()
        self.assertTrue(b"libc.so.6" in crash, "its maps are there")
        self.assert_absent("the spool", crash)
        self.assert_crash_keeps_it(self.start_daemon(), victim)

    @needs_protos
    def test_planted_secret_is_in_no_byte_that_a_collector_gets(self):
        receiver = Receiver("127.0.0.1:0")
        self.addCleanup(receiver.close)
        daemon = self.start_daemon(extra_args=["--otlp-endpoint", f"http://127.0.0.1:{receiver.port}", "--otlp-dumps", "1"])
        victim = self.start_keepers()
        daemon.await_process(victim.pid)
        self.crash(victim)
        event, dump = receiver.expect(2)
        whole = gzip.decompress(base64.b64decode(dump.body))
        for what, sent in (("the event", receiver.raw[0]), ("the whole dump", whole), ("its attributes", repr(dump.attributes).encode())):
            self.assert_absent(f"what the collector got, {what}", sent)
        self.assertIn("keep_on_stack", event.attributes["exception.stacktrace"])
        self.assertIn(b"keep_on_stack", whole)


class LanguagesTest(SecretsBase):
    """Strings and numbers in variables of each language: in arguments, locals, fields, closures, errors, keys, locks."""

    limit_s = 600

    def setUp(self):
        super().setUp()
        self.forms["the string, in UTF-16"] = self.text.encode("utf-16-le")
        self.forms["the number, as CPython has it"] = digits_of(self.number)

    def assert_has_values(self, pid):
        """Not only what it has read, which is text and may lie in a buffer for ever; else this proves nothing."""
        memory = memory_of(pid)
        texts = sum(memory.count(self.forms[form]) for form in ("the string", "the string, in UTF-16"))
        self.assertGreater(texts, 1, "the string is gone")
        self.assertTrue(any(self.forms[form] in memory for form in ("the number", "the number, as CPython has it")),
                        "the number is gone")

    def check(self, who, command, function, *, preload=True):
        """`function` waits or runs with the values on its stack."""
        daemon = self.start_daemon()
        victim = self.start_victim(*command, preload=preload, stdin=f"{self.text}\n{self.number:x}\n")
        try:
            daemon.await_process(victim.pid)
            dump = eventually(f"{function} is there", lambda: next(
                (d for d in [daemon.dump(victim.pid)] if f'"{function}"' in json.dumps(d.resource)), None))
            self.assert_has_values(victim.pid)
            self.assert_nothing_left(daemon, dump, ["dump", victim.pid], ["dump", victim.pid, "--all"])
        finally:
            # Another version is next, in the same folder.
            victim.kill()
            daemon.kill()
        print(f"secrets: {who} keeps them", file=sys.stderr, flush=True)

    def check_crash(self, who, command, function):
        """Checks the crash of a process that dies with the values on its stacks; `function` is what its first thread does."""
        daemon = self.start_daemon()
        victim = self.start_victim(*command, stdin=f"{self.text}\n{self.number:x}\n")
        daemon.await_process(victim.pid)
        self.assert_has_values(victim.pid)
        victim.process.send_signal(signal.SIGSEGV)
        victim.process.wait(LIMIT_S)
        dump = crash_of(daemon, victim.pid)
        self.assertIn(f'"{function}"', json.dumps(dump.resource))
        self.assert_nothing_left(daemon, dump, ["list", "--crashes"], ["groups"])
        print(f"secrets: a crash of {who} keeps them", file=sys.stderr, flush=True)

    def classes(self):
        javac = jdks.tool("javac")
        if javac is None:
            self.skipTest("there is no javac")
        subprocess.run([javac, "--release", "8", "-nowarn", "-d", self.dir / "classes", PROGRAMS / "Secrets.java"], check=True,
                       capture_output=True)
        return self.dir / "classes"

    def test_values_of_python_stay_in_a_crash(self):
        python = pythons.found()[-1]
        self.check_crash(f"CPython {python}", [python.path, PROGRAMS / "secrets.py"], "main")

    def test_values_of_node_stay_in_a_crash(self):
        if not nodes.found():
            self.skipTest("no Node.js of 18, 20, 22, 24 is here")
        node = nodes.found()[-1]
        self.check_crash(f"Node {node}", [node.path, PROGRAMS / "secrets.js"], "spin")

    def test_values_of_java_stay_in_a_crash(self):
        jdk = jdks.found()[-1]
        # What the VM itself writes of the crash is its own affair.
        own = ["-XX:-CreateCoredumpOnCrash", f"-XX:ErrorFile={self.dir}/own.log"]
        self.check_crash(f"Java {jdk}", [jdk.java, *own, "-cp", self.classes(), "Secrets"], "Secrets.main")

    def test_values_of_python_stay(self):
        for python in tier.versions(pythons.found()):
            with self.subTest(python=str(python)):
                self.check(f"CPython {python}", [python.path, PROGRAMS / "secrets.py"], "spin")

    def test_values_of_node_stay(self):
        if not nodes.found():
            self.skipTest("no Node.js of 18, 20, 22, 24 is here")
        for node in tier.versions(nodes.found()):
            with self.subTest(node=str(node)):
                self.check(f"Node {node}", [node.path, PROGRAMS / "secrets.js"], "spin")

    def test_values_of_java_stay(self):
        classes = self.classes()
        for jdk in tier.versions(jdks.found()):
            with self.subTest(jdk=str(jdk)):
                self.check(f"Java {jdk}", [jdk.java, "-cp", classes, "Secrets"], "Secrets.spin")

    def test_values_of_go_stay(self):
        if not go_programs.toolchains():
            self.skipTest("no Go of 1.21 to 1.26 is here, and no registry of Go modules")
        for toolchain, version in tier.versions(go_programs.toolchains()):
            with self.subTest(go=version):
                path = go_programs.build(toolchain, "secrets", self.dir / f"secrets-{toolchain}")
                self.check(version, [path], "main.spin", preload=False)


if __name__ == "__main__":
    unittest.main()
