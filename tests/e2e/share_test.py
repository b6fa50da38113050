"""STACKD_SHARE: what a program's owner lets the daemon have. A dump has at each level what the level promises, and says what is
missing. A daemon that was taken over has exactly that, tried fd by fd and file by file, for reading and for writing."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import go_programs
from harness import ROOT, StackdTest, eventually

LEVELS = ("stacks", "names", "memory")
TAKEN_UID = 20003
FILES = ["maps", "schedstat", "stat", "status"]
SECRET = "correct-horse-battery-staple"


# Two threads, one of which runs Python's own code.
PYTHON = "import threading; threading.Thread(target=threading.Event().wait).start(); print('ready', flush=True); threading.Event().wait()"


class ShareTest(StackdTest):

    def start_at(self, level, program, *args, **options):
        env = {} if level is None else {"STACKD_SHARE": level}
        return self.start_victim(program, *args, env=env, **options)

    def test_each_level_is_shown(self):
        daemon = self.start_daemon()
        for level in LEVELS:
            with self.subTest(level):
                victim = self.start_at(level, "two_locks")
                self.assertEqual(level.upper(), daemon.await_process(victim.pid).get("share"))
                row = next(line for line in daemon.ctl("ps").out.splitlines() if line.startswith(f"{victim.pid} "))
                self.assertIn(f" {level} ", row)
                dump = daemon.dump(victim.pid)
                self.assertEqual(level.upper(), dump.resource["process"].get("share"))
                losses = [note for note in dump.notes if f"(STACKD_SHARE={level})" in note]
                self.assertEqual(0 if level == "memory" else 1, len(losses), dump.notes)
                word = "share all of their memory" if level == "memory" else f"STACKD_SHARE={level}"
                self.assertIn(word, daemon.ctl("doctor").text)
                victim.kill()

    def test_who_chose_nothing_shares_what_it_needs(self):
        daemon = self.start_daemon()
        victim = self.start_victim("two_locks")
        daemon.await_process(victim.pid)
        dump = daemon.dump(victim.pid)
        self.assertEqual("NAMES", dump.resource["process"].get("share"))
        self.assertEqual([], [note for note in dump.notes if "STACKD_SHARE" in note], "nothing is lost")
        python = self.start_victim(sys.executable, "-c", PYTHON)
        daemon.await_process(python.pid)
        dump = daemon.dump(python.pid)
        self.assertEqual("MEMORY", dump.resource["process"].get("share"))

    def test_a_runtime_that_comes_later_is_noticed(self):
        daemon = self.start_daemon()
        victim = self.start_victim("loads_library", "libpython3.11.so.1.0", stdin="")
        self.assertEqual("NAMES", daemon.await_process(victim.pid).get("share"))
        self.assertEqual("NAMES", daemon.dump(victim.pid).resource["process"].get("share"))
        self.assertEqual("loaded", victim.ask("load"))
        # Maps are read again when they are older than 100 ms.
        eventually("memory is shared", lambda: daemon.dump(victim.pid).resource["process"].get("share") == "MEMORY")

    def test_where_any_listener_is_the_daemon_memory_is_not_for_it(self):
        daemon = self.start_daemon()
        python = self.start_victim(sys.executable, "-c", PYTHON, env={"STACKD_DAEMON_UID": "any"})
        daemon.await_process(python.pid)
        dump = daemon.dump(python.pid)
        self.assertEqual("NAMES", dump.resource["process"].get("share"))
        self.assertTrue(any("(STACKD_SHARE=names)" in note for note in dump.notes), dump.notes)

    def test_the_package_for_go_shares_all_by_default_but_with_any_listener(self):
        if not go_programs.toolchains():
            self.skipTest("no Go")
        toolchain, _ = go_programs.toolchains()[-1]
        program = go_programs.build(toolchain, "pod", self.dir / "pod")
        daemon = self.start_daemon()
        for env, share in (({}, "MEMORY"), ({"STACKD_DAEMON_UID": str(os.geteuid())}, "MEMORY"), ({"STACKD_DAEMON_UID": "any"}, "NAMES"),
                           ({"STACKD_DAEMON_UID": "any", "STACKD_SHARE": "memory"}, "MEMORY"), ({"STACKD_SHARE": "names"}, "NAMES"),
                           ({"STACKD_SHARE": "stacks"}, "STACKS")):
            with self.subTest(env):
                victim = self.start_victim(program, preload=False, env=env)
                self.assertEqual(share, daemon.await_process(victim.pid).get("share"))
                dump = daemon.dump(victim.pid)
                self.assertEqual(share, dump.resource["process"].get("share"))
                # Goroutines lie in the memory.
                self.assertEqual(share == "MEMORY", bool(dump.resource.get("tasks")), dump.notes)
                victim.kill()

    def test_a_value_that_makes_no_sense_switches_the_agent_off(self):
        daemon = self.start_daemon()
        odd = self.start_at("everything", "two_locks")
        other = self.start_at("stacks", "two_locks")
        daemon.await_process(other.pid)
        self.assertNotIn(odd.pid, [process["pid"] for process in daemon.processes()])
        self.assertTrue(odd.alive())
        self.assertIn("STACKD_SHARE is everything", daemon.ctl("doctor", odd.pid).text)

    def test_who_holds_a_lock_is_known_at_each_level(self):
        daemon = self.start_daemon()
        for level in LEVELS:
            with self.subTest(level):
                victim = self.start_at(level, "two_locks")
                daemon.await_process(victim.pid)

                def dump_of_deadlock(victim=victim):
                    dump = daemon.dump(victim.pid)
                    return dump if "DEADLOCK" in [finding.get("kind") for finding in dump.resource.get("findings", [])] else None

                dump = eventually("each thread waits for its second lock", dump_of_deadlock)
                first, second = dump.named("first"), dump.named("second")
                for function in (dump.functions(first), dump.functions(second)):
                    self.assertIn("take", function)
                read_bytes = int(dump.resource.get("memoryReadBytes", 0))
                # Two locks of 64 bytes, each read a few times, and at most one look at the thread that main joins.
                if level == "stacks":
                    self.assertLess(read_bytes, 4096)
                self.assertGreater(read_bytes, 0)
                victim.kill()

    def test_a_deadlock_is_noticed_without_memory(self):
        daemon = self.start_daemon()
        victim = self.start_at("stacks", "two_locks")
        daemon.await_process(victim.pid)

        def hangs():
            return [dump for dump in daemon.ctl_json("list").get("dumps", []) if dump.get("trigger") == "HANG"]

        hang, *_ = eventually("the deadlock is noticed", hangs, 120)
        self.assertEqual("DEADLOCK", hang["hang"]["cause"])

    def test_code_without_a_file_has_names_from_names_on(self):
        daemon = self.start_daemon()
        for level in LEVELS:
            with self.subTest(level):
                victim = self.start_at(level, "vdso_loop")
                daemon.await_process(victim.pid)

                def functions(pid=victim.pid):
                    dump = daemon.dump(pid)
                    frames = [frame for tid in dump.threads for frame in dump.frames(tid) if frame.get("module") == "[vdso]"]
                    return [frame["function"] for frame in frames if "function" in frame]

                if level == "stacks":
                    self.assertTrue(any("[vdso]" in note for note in daemon.dump(victim.pid).notes))
                else:
                    eventually("a thread is seen in the vDSO", functions)
                victim.kill()


# A daemon that an attacker runs. A line on standard input tells it tids and addresses.
TAKEN_OVER = r"""
import json, select, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(16)
print("listening", flush=True)
agent, _ = listener.accept()
hello, fds, _, _ = socket.recv_fds(agent, 4096, 8)
flags, share = struct.unpack_from("<I", hello, 12)[0], struct.unpack_from("<I", hello, 36)[0]
names = [name for bit, name in ((0, "mem"), (1, "maps"), (2, "folder")) if flags >> bit & 1]
names += ["stat", "status", "schedstat"] if flags >> 7 & 1 else []
assert len(names) == len(fds), (flags, fds)
got = dict(zip(names, fds))
ring = Ring()
socket.send_fds(agent, [struct.pack("<IIII", MSG_WELCOME, 16, ring.size_bytes, 0)], [ring.fd])
told = json.loads(sys.stdin.readline())
number = 0


def ask(kind, answer_kind, body):
    global number
    number += 1
    agent.send(struct.pack("<III", kind, 12 + len(body), number) + body)
    while True:
        message, files, _, _ = socket.recv_fds(agent, 16384, 4)
        assert message, "the agent hung up"
        if struct.unpack_from("<I", message)[0] == answer_kind and struct.unpack_from("<I", message, 8)[0] == number:
            return message, files


def attempt(work):
    try:
        return work()
    except OSError as error:
        return error.errno and os.strerror(error.errno)


def may_write(fd):
    def write():
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
        return "may"
    return [attempt(lambda: "may" if os.write(fd, b"") == 0 and os.pwrite(fd, b"x", told["stack"]) == 1 else "no"), attempt(write)]


def open_file(path):
    message, files = ask(4, 5, struct.pack("<I1024s", 0, path.encode()))
    error = struct.unpack_from("<i", message, 12)[0]
    return may_write(files[0]) if files else os.strerror(-error)


def lock(tid, avma):
    question = struct.pack("<IIiQ", 1, 1, tid, avma)
    message, _ = ask(22, 23, question + bytes(16 * 15))
    error, count = struct.unpack_from("<iI", message, 16)
    return count if error == 0 else os.strerror(-error)


def image(avma):
    message, _ = ask(24, 25, struct.pack("<IQ", 16, avma))
    error = struct.unpack_from("<i", message, 12)[0]
    return "had" if error == 0 else os.strerror(-error)


# What can be had by a descriptor as if it were a folder, and by its link in procfs.
def below(fd, path, flags):
    ways = [lambda: os.open(path, flags, dir_fd=fd), lambda: os.open(f"/proc/self/fd/{fd}/{path}", flags)]
    return [attempt(lambda way=way: os.close(way()) or "opened") for way in ways]


def stack_holds():
    at, end = told["stack"], told["stack_end"]
    return told["secret"].encode() in b"".join(os.pread(got["mem"], 4096, page) for page in range(at, end, 4096))


print(json.dumps({
    "share": share,
    "fds": sorted(got),
    "written": {name: may_write(fd) for name, fd in got.items()},
    "files": {path: open_file(path) for path in told["files"]},
    "locks": [lock(tid, avma) for tid, avma in told["locks"]],
    "images": {name: image(avma) for name, avma in told["images"].items()},
    "secret": stack_holds() if "mem" in got else None,
    "ways": sorted({said for fd in got.values() for path in told["paths"] for said in below(fd, path, os.O_RDONLY)}),
}), flush=True)
sys.stdin.readline()
"""


@unittest.skipUnless(os.geteuid() == 0, "needs root to run somebody else")
class TakenOverTest(StackdTest):
    """A daemon of another user than the program's, which the program was told to trust. The program is root's and has a mount of
    its own."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o711)
        self.shared = self.dir / "shared"
        self.shared.mkdir()
        os.chown(self.shared, TAKEN_UID, TAKEN_UID)
        self.private = self.dir / "private"
        self.private.mkdir()

    def start_taken_over(self):
        source = (ROOT / "tests/safety/fake_daemon.py").read_text() + TAKEN_OVER
        command = ["setpriv", f"--reuid={TAKEN_UID}", f"--regid={TAKEN_UID}", "--clear-groups", sys.executable, "-c", source,
                   self.shared / "stackd.sock"]
        daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, daemon)
        self.assertEqual("listening\n", daemon.stdout.readline())
        return daemon

    def end(self, daemon):
        daemon.kill()
        daemon.wait()
        daemon.stdin.close()
        daemon.stdout.close()
        (self.shared / "stackd.sock").unlink(missing_ok=True)

    def start_program(self, level):
        # In its own mount namespace: a file that all may read, and one that its user alone may.
        mount = (f'mount -t tmpfs none {self.private} && cd {self.private} && echo open >open && echo closed >closed && '
                 'chmod 755 . && chmod 644 open && chmod 600 closed && cd / && exec "$@"')
        return self.start_victim("two_locks", directory=self.shared, wrap=["unshare", "-m", "sh", "-c", mount, "sh"],
                                 env={"STACKD_DAEMON_UID": str(TAKEN_UID), "TOKEN": SECRET} |
                                 ({"STACKD_SHARE": level} if level else {}))

    def locks_of(self, pid):
        """(tid, futex) of each thread that waits for one; of its own threads, not of the agent's."""
        found = []
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "syscall").read_text().split()
            if fields[0] == "202":
                found.append((int(task.name), int(fields[1], 16)))
        return found

    def told_of(self, victim):
        pid = victim.pid
        # "ready" is said before the two threads are in their locks.
        locks = eventually("three threads wait", lambda: len(self.locks_of(pid)) == 3 and self.locks_of(pid))
        maps = [line.split(maxsplit=5) for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]

        def start(wanted, permissions):
            return next(int(fields[0].split("-")[0], 16) for fields in maps
                        if fields[1] == permissions and len(fields) > 5 and fields[5] == wanted)

        program = os.readlink(f"/proc/{pid}/exe")
        libc = next(fields[5] for fields in maps if len(fields) > 5 and "libc.so" in fields[5])
        loader = next(fields[5] for fields in maps if len(fields) > 5 and "/ld-" in fields[5])
        stack = next(fields[0] for fields in maps if len(fields) > 5 and fields[5] == "[stack]")
        stack_start, stack_end = (int(end, 16) for end in stack.split("-"))
        mutex = next(avma for _, avma in locks)
        return {
            "secret": SECRET, "stack": stack_start, "stack_end": stack_end,
            "files": [program, libc, "/proc/self/exe", "/etc/shadow", "/proc/self/environ", "/proc/self/mem", "/proc/self/maps",
                      f"{self.private}/open", f"{self.private}/closed", str(self.dir / "others"), loader],
            "locks": [*locks, (locks[0][0], mutex + 64), (locks[0][0], stack_start), (pid, 0)],
            "images": {"code": start(program, "r-xp"), "vdso": start("[vdso]", "r-xp"), "data": start(program, "rw-p"),
                       "heap": start("[heap]", "rw-p"), "stack": stack_start},
            "paths": ["environ", "mem", "cmdline", "root/etc/hostname", "cwd", "fd/0", "../../etc/shadow",
                      f"../..{self.private}/open", f"../..{self.private}/closed"],
        }

    def attack(self, level):
        daemon = self.start_taken_over()
        victim = self.start_program(level)
        told = self.told_of(victim)
        # Under a name that maps shows with code lies another file by now.
        over = ["nsenter", f"--target={victim.pid}", "--mount", "mount", "--bind", f"{self.private}/closed", told["files"][-1]]
        subprocess.run(over, check=True)
        (self.dir / "others").write_text("another user's")
        os.chmod(self.dir / "others", 0o600)
        daemon.stdin.write(json.dumps(told) + "\n")
        daemon.stdin.flush()
        result = json.loads(daemon.stdout.readline())
        self.assertTrue(victim.alive())
        victim.kill()
        self.end(daemon)
        return told, result

    def check_what_is_had_at_each_level(self, told, result):
        program, libc, executable, *others = told["files"]
        for path in (program, libc, executable):
            self.assertEqual(["Bad file descriptor", "Permission denied"], result["files"][path], path)
        for path in others:
            self.assertEqual("Operation not permitted", result["files"][path])
        *waited, near, on_stack, nowhere = result["locks"]
        self.assertEqual([64] * 3, waited)
        self.assertEqual(["Resource temporarily unavailable"] * 3, [near, on_stack, nowhere])
        # Nothing that was passed may be written to, nor opened anew for that.
        for name, tried in result["written"].items():
            self.assertEqual(["Bad file descriptor", "Permission denied"], tried, name)

    def check_that_nothing_leads_on(self, result):
        """What was passed are files, which lead to no other: not to the program's environment, not to its mount namespace."""
        self.assertEqual(["Not a directory"], result["ways"])

    def test_nothing_chosen(self):
        told, result = self.attack(None)
        self.assertEqual((2, FILES, None), (result["share"], result["fds"], result["secret"]))
        self.assertEqual({"code", "vdso"}, {name for name, said in result["images"].items() if said == "had"})
        self.check_what_is_had_at_each_level(told, result)
        self.check_that_nothing_leads_on(result)

    def test_stacks(self):
        told, result = self.attack("stacks")
        self.assertEqual((1, FILES, None), (result["share"], result["fds"], result["secret"]))
        self.assertEqual({"Operation not permitted"}, set(result["images"].values()))
        self.check_what_is_had_at_each_level(told, result)
        self.check_that_nothing_leads_on(result)

    def test_names(self):
        told, result = self.attack("names")
        self.assertEqual((2, FILES, None), (result["share"], result["fds"], result["secret"]))
        self.assertEqual({"code", "vdso"}, {name for name, said in result["images"].items() if said == "had"})
        self.check_what_is_had_at_each_level(told, result)
        self.check_that_nothing_leads_on(result)

    def test_memory(self):
        told, result = self.attack("memory")
        self.assertEqual((3, ["maps", "mem", *FILES[1:]], True), (result["share"], result["fds"], result["secret"]))
        self.assertEqual({"code", "vdso"}, {name for name, said in result["images"].items() if said == "had"})
        self.check_what_is_had_at_each_level(told, result)
        self.check_that_nothing_leads_on(result)


if __name__ == "__main__":
    unittest.main()
