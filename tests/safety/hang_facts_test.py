#!/usr/bin/python3
"""What the agent tells of threads that wait: the call, its arguments, the fds behind them, heartbeats; and nothing else.

The daemon is fake_daemon.py. The program is eintr_matrix: one thread in each blocking call, named after it.
"""

import contextlib
import errno
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake_daemon
import stand

# Facts of each thread of eintr_matrix: system call, arguments that are told, and values of some of them.
CALLS = {
    "read": (0, [0], {}),
    "write": (1, [0], {}),
    "open (FIFO)": (257, [], {}),
    "recv": (45, [0, 3], {3: 0}),
    "recv with SO_RC": (45, [0, 3], {}),
    "accept": (43, [0], {}),
    "accept4": (288, [0, 3], {3: os.O_CLOEXEC}),
    "connect (backlo": (42, [0], {}),
    "waitpid": (61, [0, 2], {2: 0}),
    "wait4": (61, [0, 2], {}),
    "waitid": (247, [0, 1, 3], {0: 1, 3: 0x1000004}),
    "flock": (73, [0, 1], {1: 2}),
    "fcntl F_OFD_SET": (72, [0, 1], {1: 38}),
    "pthread_mutex_l": (202, [0, 1, 3], {1: 0x80}),
    "pthread_cond_wa": (202, [0, 1, 3, 5], {1: 0x189, 3: 0, 5: 2**64 - 1}),
    "pthread_cond_ti": (202, [0, 1, 3, 5], {1: 0x189}),
    "sem_wait": (202, [0, 1, 3, 5], {3: 0}),
    "sem_timedwait": (202, [0, 1, 3, 5], {1: 0x189}),
    "futex wait": (202, [0, 1, 3], {1: 0x80, 3: 0}),
    "futex wait, tim": (202, [0, 1, 3], {1: 0x80}),
    "nanosleep": (230, [0, 1, 2], {0: 0, 1: 0}),
    "clock_nanosleep": (230, [0, 1, 2], {0: 1, 1: 0}),
    "usleep": (230, [0, 1, 2], {}),
    "sleep": (230, [0, 1, 2], {}),
    "poll": (7, [0, 1, 2], {1: 1, 2: 60000}),
    "ppoll": (271, [0, 1, 2], {1: 1}),
    "select": (270, [0, 1, 2, 3, 4], {0: 0, 1: 0}),
    "pselect": (270, [0, 1, 2, 3, 4], {0: 0, 1: 0}),
    "epoll_wait": (232, [0, 2, 3], {2: 1, 3: 60000}),
    "pause": (34, [], {}),
    "sigsuspend": (130, [], {}),
    "sigtimedwait": (128, [2], {}),
    "msgrcv": (70, [0, 4], {4: 0}),
    "semop": (220, [0, 2, 3], {2: 1, 3: 0}),
    "semtimedop": (220, [0, 2, 3], {2: 1}),
    "io_getevents": (208, [1, 2, 4], {1: 1, 2: 1, 4: 0}),
    "mq_receive": (243, [0, 4], {4: 0}),
}
# For what comes soon, on a machine that has little else to do.
LIMIT_S = 60

# By syscall(): the number is not in the code before the call, and the kernel does not make these again.
NUMBER_UNKNOWN_TO_HANDLER = {"futex wait, tim", "io_getevents"}


def state_in(stat_path):
    with open(stat_path, encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class Case(unittest.TestCase):
    RING_BYTES = 1 << 20

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.daemon = fake_daemon.FakeDaemon(self.folder.name, ring_bytes=self.RING_BYTES)
        self.program = None

    def tearDown(self):
        if self.program:
            self.program.kill()
            self.program.communicate()
        self.daemon.close()
        self.folder.cleanup()

    def start(self, *arguments):
        environment = dict(os.environ, LD_PRELOAD=stand.AGENT, STACKD_DIR=self.folder.name)
        self.program = subprocess.Popen(arguments, env=environment, stdin=-1, stdout=-1, text=True)
        self.assertEqual(self.program.stdout.readline(), "ready\n")
        self.assertTrue(self.daemon.connected.wait(LIMIT_S))

    def tids(self):
        """By name of the thread; the first of each name, since those that it starts inherit its own. The kernel lists the older
        first, whatever their numbers are."""
        task = f"/proc/{self.program.pid}/task"
        named = {}
        for tid in os.listdir(task):
            with contextlib.suppress(FileNotFoundError):  # it has ended
                with open(f"{task}/{tid}/comm", encoding="utf-8") as file:
                    named.setdefault(file.read().rstrip("\n"), int(tid))
        return named


class CallsTest(Case):
    def setUp(self):
        super().setUp()
        self.start(os.path.abspath("tests/safety/eintr_matrix"))
        self.threads = {}
        deadline = time.monotonic() + LIMIT_S
        # Until each thread sleeps in its call. (A dump interrupts some of them, which then end.)
        while not self.all_sleep():
            self.assertLess(time.monotonic(), deadline)
            self.threads = self.tids()
            self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)

    def all_sleep(self):
        calls = {name: self.daemon.waits.get(tid, (None,) * 4)[3] for name, tid in self.threads.items()}
        return all(calls.get(name) and calls[name].number == number for name, (number, _, _) in CALLS.items())

    def await_rest(self):
        """Until no thread of the process runs."""
        task = f"/proc/{self.program.pid}/task"
        states = None
        deadline = time.monotonic() + LIMIT_S
        while states is None or set(states) != {"S"}:
            self.assertLess(time.monotonic(), deadline)
            try:
                states = [state_in(f"{task}/{tid}/stat") for tid in os.listdir(task)]
            except (FileNotFoundError, ProcessLookupError):
                states = None

    def check(self, calls, unknown=frozenset()):
        for name, (number, arguments, values) in CALLS.items():
            call = calls[self.threads[name]]
            if name in unknown:
                self.assertIsNone(call, name)
                continue
            self.assertIsNotNone(call, name)
            self.assertEqual((call.number, sorted(call.arguments)), (number, arguments), name)
            for place, value in values.items():
                self.assertEqual(call.arguments[place], value, (name, place))

    def test_a_sample_tells_the_call_of_each_thread_that_sleeps_and_disturbs_none(self):
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        while self.program.pid not in self.daemon.waits:  # It has said "ready", and may still run.
            self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        self.check({tid: entry[3] for tid, entry in self.daemon.waits.items()})
        tids = {int(tid) for tid in os.listdir(f"/proc/{self.program.pid}/task")}
        self.assertEqual(self.daemon.listed, len(tids))
        self.assertEqual(set(self.daemon.waits), tids - {self.threads["stackd-agent"]}, "the helper runs")
        self.assertEqual(self.daemon.threads, {})
        out, _ = self.program.communicate("\n", timeout=30)
        self.assertEqual(len(out.splitlines()), len(CALLS))
        self.assertTrue(all(line.endswith(": undisturbed") for line in out.splitlines()), out)

    def test_a_handler_tells_what_the_kernel_tells(self):
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        waits = self.daemon.waits
        self.daemon.run_command(fake_daemon.COMMAND_DUMP)
        threads = self.daemon.threads
        self.check({tid: thread.call for tid, thread in threads.items()}, NUMBER_UNKNOWN_TO_HANDLER)
        for name in CALLS.keys() - NUMBER_UNKNOWN_TO_HANDLER:
            tid = self.threads[name]
            self.assertEqual(threads[tid].call, waits[tid][3], name)


    def state(self):
        return state_in(f"/proc/{self.program.pid}/stat")

    def test_a_call_that_goes_on_after_a_stop_is_what_it_was(self):
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        before = self.daemon.waits
        self.program.send_signal(signal.SIGSTOP)
        while self.state() != "T":
            time.sleep(0.001)
        self.program.send_signal(signal.SIGCONT)
        while self.state() == "T":
            time.sleep(0.001)
        names = ("nanosleep", "clock_nanosleep", "usleep", "sleep", "poll", "ppoll", "select", "pthread_cond_ti", "read")
        deadline = time.monotonic() + LIMIT_S
        # Until they sleep again: of one that runs there is nothing to tell.
        while True:
            self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
            if all(self.threads[name] in self.daemon.waits for name in (*names, "futex wait, tim")):
                break
            self.assertLess(time.monotonic(), deadline)
        for name in names:
            self.assertEqual(self.daemon.waits[self.threads[name]][3], before[self.threads[name]][3], name)
        restarted = self.daemon.waits[self.threads["futex wait, tim"]][3]
        self.assertEqual((restarted.number, restarted.arguments), (219, {}), "syscall() leaves no number in the code")

    def test_one_thread_is_captured_without_the_others(self):
        tid = self.threads["read"]
        self.daemon.run_command(fake_daemon.COMMAND_DUMP, only_tid=tid)
        self.assertEqual((self.daemon.listed, set(self.daemon.threads), self.daemon.statuses), (1, {tid}, {}))
        self.assertEqual(self.daemon.threads[tid].call.number, 0)
        out, _ = self.program.communicate("\n", timeout=30)
        self.assertEqual([line for line in out.splitlines() if not line.endswith(": undisturbed")], [])

    def test_a_thread_that_is_gone_is_not_listed(self):
        for tid in (2**22 + 1, 2**32 - 1, 1):
            self.daemon.run_command(fake_daemon.COMMAND_DUMP, only_tid=tid)
            self.assertEqual((self.daemon.listed, self.daemon.threads, self.daemon.statuses), (0, {}, {}))

    def test_the_helper_can_be_captured_by_itself(self):
        tid = self.threads["stackd-agent"]
        self.daemon.run_command(fake_daemon.COMMAND_DUMP, only_tid=tid)
        self.assertEqual((self.daemon.listed, set(self.daemon.threads)), (1, {tid}))

    def reads(self):
        """Reads of files, by all threads of the process."""
        with open(f"/proc/{self.program.pid}/io", encoding="utf-8") as file:
            return int(re.search(r"syscr: (\d+)", file.read())[1])

    def test_a_dump_of_one_thread_leaves_what_is_known_of_the_others(self):
        self.daemon.run_command(fake_daemon.COMMAND_DUMP)
        self.await_rest()  # Threads that it interrupted end.
        self.daemon.run_command(fake_daemon.COMMAND_DUMP)
        self.daemon.run_command(fake_daemon.COMMAND_DUMP, only_tid=self.threads["read"])
        before = self.reads()
        self.daemon.run_command(fake_daemon.COMMAND_DUMP)
        self.assertGreater(len(self.daemon.threads), 12)
        self.assertLess(self.reads() - before, len(self.daemon.threads) - 4, "it asked procfs of each thread")

    def test_a_sample_that_is_out_of_time_is_not_done(self):
        self.daemon.begin(fake_daemon.COMMAND_SAMPLE, timeout_s=-1)
        deadline = time.monotonic() + LIMIT_S
        while self.daemon.ring.load(fake_daemon.BEGUN_SEQ) != self.daemon.seq:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        time.sleep(0.01)
        self.assertNotEqual(self.daemon.ring.load(fake_daemon.DONE_SEQ), self.daemon.seq)
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        self.assertGreater(len(self.daemon.waits), len(CALLS))

    def test_a_command_of_a_later_version_does_nothing(self):
        self.daemon.begin(99)
        time.sleep(0.05)  # Nothing tells that it has been looked at.
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        self.assertGreater(len(self.daemon.waits), len(CALLS))


BLOCKING_PROGRAM = """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
never = threading.Lock()
never.acquire()
print("ready", flush=True)
never.acquire()
"""


class SignalBlockedTest(Case):
    def test_of_a_thread_that_only_the_helper_can_capture_the_call_is_told(self):
        self.start("/usr/bin/python3", "-c", BLOCKING_PROGRAM)
        tid = self.program.pid
        while tid not in self.daemon.waits:
            self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        self.daemon.run_command(fake_daemon.COMMAND_DUMP)
        self.assertEqual(self.daemon.statuses[tid], 2, "SIGNAL_BLOCKED")
        thread = self.daemon.threads[tid]
        self.assertEqual(thread.flags & fake_daemon.BY_HELPER, fake_daemon.BY_HELPER)
        self.assertEqual(thread.call.number, 202)
        self.assertEqual(thread.call.arguments[1], 0x189)


class NotDumpableTest(Case):
    def test_a_process_that_may_not_read_its_own_procfs_says_so_rather_than_that_all_of_it_runs(self):
        if os.getuid() != 0:
            self.skipTest("only root can become another user")
        self.start("/usr/bin/python3", "-c", "import os, sys; os.setuid(65534); print('ready', flush=True); sys.stdin.read()")
        self.assertEqual(self.daemon.run_command(fake_daemon.COMMAND_SAMPLE), errno.EACCES)
        self.assertEqual(self.daemon.waits, {})


FULL_TABLE_PROGRAM = """
import os, resource, sys, threading, time
# The agent has its fds before there are none.
first = threading.Thread(target=int)
first.start()
first.join()
while sum("socket:" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) >= 200) < 3:
    time.sleep(0.001)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
fds = []
try:
    while True:
        fds.append(os.dup(0))
except OSError:
    pass
print("ready", flush=True)
sys.stdin.readline()
for fd in fds:
    os.close(fd)
print("closed", flush=True)
sys.stdin.read()
"""


class FullTableTest(Case):
    def test_a_process_without_a_free_fd_says_at_once_that_it_cannot_list_its_threads(self):
        self.start("/usr/bin/python3", "-c", FULL_TABLE_PROGRAM)
        for command in (fake_daemon.COMMAND_DUMP, fake_daemon.COMMAND_SAMPLE):
            self.assertEqual(self.daemon.run_command(command), errno.EMFILE)
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        self.assertEqual(self.program.stdout.readline(), "closed\n")
        self.assertEqual(self.daemon.run_command(fake_daemon.COMMAND_DUMP), 0)
        self.assertIn(self.program.pid, self.daemon.threads)


MANY_THREADS = 1000
MANY_THREADS_PROGRAM = f"""
import threading
threading.stack_size(64 << 10)
never = threading.Lock()
never.acquire()
for _ in range({MANY_THREADS}):
    threading.Thread(target=never.acquire, daemon=True).start()
print("ready", flush=True)
never.acquire()
"""


class ManyThreadsTest(Case):
    RING_BYTES = 64 << 10

    def setUp(self):
        super().setUp()
        self.start("/usr/bin/python3", "-c", MANY_THREADS_PROGRAM)

    def schedstat(self, tid):
        """Time that a thread has run, and how often it began to."""
        with open(f"/proc/{self.program.pid}/task/{tid}/schedstat", encoding="utf-8") as file:
            run_ns, _, count = map(int, file.read().split())
        return run_ns, count

    def test_a_sample_fits_through_a_small_ring_and_no_thread_runs_for_it(self):
        helper = self.tids()["stackd-agent"]
        tids = {int(tid) for tid in os.listdir(f"/proc/{self.program.pid}/task")} - {helper}
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        while self.daemon.waits.keys() != tids:  # The last ones are still on their way to sleep.
            self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        before = {tid: self.schedstat(tid) for tid in tids}
        begin_ns = self.schedstat(helper)[0]
        self.daemon.run_command(fake_daemon.COMMAND_SAMPLE)
        cost_ns = self.schedstat(helper)[0] - begin_ns
        self.assertEqual(self.daemon.waits.keys(), tids)
        self.assertEqual({tid: self.schedstat(tid) for tid in tids}, before)
        self.assertEqual(self.daemon.listed, len(tids) + 1)
        deadline = time.monotonic() + LIMIT_S
        while self.daemon.ring.free_slots() != self.daemon.ring.slots:  # The last record is still being read.
            self.assertLess(time.monotonic(), deadline)
        print(f"{len(tids)} threads: {cost_ns / 1e6:.1f} ms of the helper's", file=sys.stderr)
        self.assertLess(cost_ns, 100_000_000)


FDS_PROGRAM = r"""
import json, os, select, socket, sys
folder = sys.argv[1]
fds = {}
fds["pipe_out"], fds["pipe_in"] = os.pipe()
lone, gone = os.pipe()
os.close(gone)
fds["lone"] = lone
fds["file"] = os.open(folder + "/data\nbase", os.O_CREAT | os.O_RDWR)
fds["long"] = os.open("/" * 2000 + folder.lstrip("/") + "/" + "x" * 200, os.O_CREAT | os.O_RDWR)
fds["event"] = os.eventfd(0)
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
v6 = socket.create_server(("::1", 0), family=socket.AF_INET6) if socket.has_ipv6 else listener
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
fresh = socket.socket()
path = socket.socket(socket.AF_UNIX)
path.bind(folder + "/x.sock")
path.listen()
path_client = socket.socket(socket.AF_UNIX)
path_client.connect(folder + "/x.sock")
abstract = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
abstract.bind("\0facts\x07")
pair, other = socket.socketpair()
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
watched = []
epoll = select.epoll()
for _ in range(20):
    fd = os.eventfd(0)
    epoll.register(fd, select.EPOLLIN)
    watched.append(fd)
many = select.epoll()
for _ in range(900):
    many.register(os.eventfd(0), select.EPOLLIN)
for name in ("listener", "client", "server", "v6", "udp", "fresh", "path", "path_client", "abstract", "pair", "netlink"):
    fds[name] = globals()[name].fileno()
fds["epoll"], fds["many"] = epoll.fileno(), many.fileno()
ports = {name: globals()[name].getsockname()[1] for name in ("listener", "client", "v6", "udp")}
print("ready", flush=True)
print(json.dumps({"fds": fds, "ports": ports, "watched": watched}), flush=True)
if sys.stdin.readline():
    more = [os.eventfd(0) for _ in range(200)]
    print("more", flush=True)
    sys.stdin.read()
"""


class FdsTest(Case):
    def setUp(self):
        super().setUp()
        self.start("/usr/bin/python3", "-c", FDS_PROGRAM, self.folder.name)
        told = json.loads(self.program.stdout.readline())
        self.fds, self.ports, self.watched = told["fds"], told["ports"], told["watched"]

    def names(self, question=fake_daemon.MSG_DESCRIBE_FDS):
        """What is said of each fd of the program, by the name it has there."""
        answers = self.daemon.describe_fds(*self.fds.values(), question=question)
        self.assertEqual([answer.fd for answer in answers], list(self.fds.values()))
        self.assertTrue(all(answer.error == 0 for answer in answers))
        return dict(zip(self.fds, answers))

    def test_fds_have_the_names_that_a_person_knows_them_by(self):
        names = {name: answer.name for name, answer in self.names().items()}
        port = self.ports
        self.assertEqual(names["file"], self.folder.name + "/data?base")
        self.assertEqual(names["long"], (self.folder.name + "/" + "x" * 200)[:159])
        self.assertEqual(names["event"], "anon_inode:[eventfd]")
        self.assertEqual(names["listener"], f"tcp listening on 127.0.0.1:{port['listener']}")
        self.assertEqual(names["client"], f"tcp 127.0.0.1:{port['client']} -> 127.0.0.1:{port['listener']}")
        self.assertEqual(names["server"], f"tcp 127.0.0.1:{port['listener']} -> 127.0.0.1:{port['client']}")
        self.assertIn(names["v6"], (f"tcp listening on [::1]:{port['v6']}", names["listener"]))
        self.assertEqual(names["udp"], f"udp 127.0.0.1:{port['udp']}")
        self.assertEqual(names["fresh"], "tcp")
        self.assertEqual(names["path"], f"unix listening on {self.folder.name}/x.sock")
        self.assertEqual(names["path_client"], f"unix -> {self.folder.name}/x.sock")
        self.assertEqual(names["abstract"], "unix @facts?")
        self.assertEqual(names["pair"], "unix")
        self.assertEqual(names["netlink"], "netlink")

    def test_a_pipe_names_its_other_end_if_the_process_has_it(self):
        names = self.names()
        self.assertRegex(names["pipe_in"].name, r"^pipe:\[\d+\]$")
        self.assertEqual(names["pipe_in"].other_end, self.fds["pipe_out"])
        self.assertEqual(names["pipe_out"].other_end, self.fds["pipe_in"])
        self.assertEqual(names["lone"].other_end, -1)
        self.assertEqual(names["event"].other_end, -1)

    def test_an_epoll_instance_names_what_it_watches_when_it_is_asked_for_that(self):
        self.assertEqual(self.names()["epoll"].watched_count, 0)
        names = self.names(fake_daemon.MSG_DESCRIBE_EPOLLS)
        self.assertEqual(names["epoll"].name, "anon_inode:[eventpoll]")
        self.assertEqual(names["epoll"].watched_count, 20)
        self.assertEqual(sorted(names["epoll"].watched), sorted(set(names["epoll"].watched) & set(self.watched)))
        self.assertEqual(len(names["epoll"].watched), 16)
        self.assertEqual(names["many"].watched_count, 900)
        self.assertEqual(names["event"].watched_count, 0)

    def test_a_process_with_many_fds_does_not_look_into_its_epoll_instances(self):
        # The kernel would hold the mutex of an instance that watches them all for long.
        self.program.stdin.write("more\n")
        self.program.stdin.flush()
        self.assertEqual(self.program.stdout.readline(), "more\n")
        names = self.names(fake_daemon.MSG_DESCRIBE_EPOLLS)
        self.assertEqual(names["epoll"].name, "anon_inode:[eventpoll]")
        self.assertEqual([name.watched_count for name in names.values()], [0] * len(names))

    def test_numbers_that_are_no_fds_are_errors(self):
        answers = self.daemon.describe_fds(-1, 999999, 2**31 - 1, -(2**31), 1)
        self.assertEqual([answer.error for answer in answers], [-9, -9, -9, -9, 0])
        self.assertEqual(self.daemon.describe_fds(), [])

    def test_a_request_that_makes_no_sense_is_left_unanswered_and_the_next_is_answered(self):
        for count in (33, 2**32 - 1):
            self.daemon.connection.send(struct.pack("<IIII32i", fake_daemon.MSG_DESCRIBE_FDS, 144, 7, count, *[1] * 32))
        self.daemon.connection.send(struct.pack("<IIII", fake_daemon.MSG_DESCRIBE_FDS, 16, 7, 0))
        self.assertEqual(len(self.daemon.describe_fds(0, 1)), 2)


HEARTBEATS_PROGRAM = r"""
import ctypes, os, sys
agent = ctypes.CDLL(sys.argv[1])
agent.stackd_heartbeat_register.restype = ctypes.c_void_p
heartbeats = {}

def register(name, limit_ms):
    heartbeats[name] = ctypes.c_void_p(agent.stackd_heartbeat_register(name.encode(), int(limit_ms)))

def beat(name):
    agent.stackd_beat(heartbeats[name])

def suspend(name):
    agent.stackd_heartbeat_suspend(heartbeats[name])

def unregister(name):
    agent.stackd_heartbeat_unregister(heartbeats[name])

def fork():
    pid = os.fork()
    if pid == 0:
        for name in heartbeats:
            beat(name)
        os._exit(0)
    os.waitpid(pid, 0)

register("before", 100)
beat("before")
print("ready", flush=True)
for line in sys.stdin:
    command, *arguments = line.split()
    globals()[command](*arguments)
    print("done", flush=True)
"""


class HeartbeatsTest(Case):
    def setUp(self):
        super().setUp()
        self.start("/usr/bin/python3", "-c", HEARTBEATS_PROGRAM, stand.AGENT)
        self.wait_for_heartbeats(1)

    def wait_for_heartbeats(self, count):
        """Until the agent has mapped the ring."""
        deadline = time.monotonic() + LIMIT_S
        while len(self.daemon.heartbeats()) < count and time.monotonic() < deadline:
            time.sleep(0.005)

    def ask(self, *words):
        self.program.stdin.write(" ".join(words) + "\n")
        self.program.stdin.flush()
        self.assertEqual(self.program.stdout.readline(), "done\n")

    def beats(self):
        return {name: beats for name, beats, _, _ in self.daemon.heartbeats().values()}

    def test_the_daemon_sees_each_beat_in_the_ring(self):
        ((name, first, limit_ms, tid),) = self.daemon.heartbeats().values()
        self.assertEqual((name, limit_ms, tid), ("before", 100, self.program.pid))
        self.assertNotEqual(first, 0)
        self.ask("beat", "before")
        self.assertNotEqual(self.beats()["before"], first)
        self.ask("register", "loop", "5000")
        self.assertEqual(self.beats()["loop"], 0)
        self.ask("beat", "loop")
        self.assertNotEqual(self.beats()["loop"], 0)
        self.ask("suspend", "loop")
        self.assertEqual(self.beats()["loop"], 0)
        self.ask("unregister", "loop")
        self.assertEqual(self.beats().keys(), {"before"})

    def test_heartbeats_outlive_the_daemon(self):
        self.ask("register", "resting", "100")
        self.ask("beat", "resting")
        self.daemon.connection.shutdown(socket.SHUT_RDWR)
        self.assertTrue(self.daemon.over.wait(10))
        self.daemon.close()
        self.ask("beat", "before")
        self.ask("suspend", "resting")
        self.ask("register", "between", "100")
        os.unlink(os.path.join(self.folder.name, "stackd.sock"))
        self.daemon = fake_daemon.FakeDaemon(self.folder.name)
        self.assertTrue(self.daemon.connected.wait(LIMIT_S))
        self.wait_for_heartbeats(3)
        before = self.beats()
        self.assertEqual((before["resting"], before["between"]), (0, 0))
        self.ask("beat", "before")
        self.ask("beat", "between")
        self.assertNotIn(self.beats()["before"], (0, before["before"]))
        self.assertNotEqual(self.beats()["between"], 0)

    def test_a_forked_child_does_not_beat_for_its_parent(self):
        before = self.beats()
        self.ask("fork")
        self.assertEqual(self.beats(), before)


class HeartbeatsWithoutDaemonTest(unittest.TestCase):
    def run_program(self, **variables):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            environment = dict(os.environ, LD_PRELOAD=stand.AGENT, STACKD_DIR=folder, **variables)
            commands = "register a 0\nbeat a\nsuspend a\nbeat a\nfork\nunregister a\n"
            commands += "".join(f"register {i} 1\nbeat {i}\n" for i in range(70)) + "fork\nsuspend 69\nunregister 69\n"
            program = subprocess.run(["/usr/bin/python3", "-c", HEARTBEATS_PROGRAM, stand.AGENT], input=commands, env=environment,
                                     stdout=-1, text=True, timeout=30, check=True)
            self.assertEqual(program.stdout.splitlines(), ["ready"] + ["done"] * commands.count("\n"))

    def test_all_calls_work_without_a_daemon(self):
        self.run_program()

    def test_all_calls_work_with_the_agent_switched_off(self):
        self.run_program(STACKD_DISABLE="1")


if __name__ == "__main__":
    unittest.main()
