"""No false alarm: servers and interpreters that are well, idle, under load and computing, give no suspicion and no dump.

Each case starts a server under a daemon that notices hangs, with limits of a few seconds instead of a minute. What gives no alarm
with these gives none with the defaults. tests/run.sh --all has one more instance under the default limits and ten minutes each,
idle and under load. At the end programs that do hang run under the same daemons: one that had not looked would have been quiet as
well.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest

import servers
from hang_programs import LEADERS
from harness import AGENT, BIN, ROOT, Daemon, StackdTest, Victim, eventually
from tier import FULL

IDLE_S, LOAD_S = (600, 600) if FULL else (8, 12)
# One piece of a load: between two of them a server is idle for a moment.
SLICE_S = 3

SOURCES = ROOT / "tests/programs"

SHORT_LIMITS = """
rules:
- name: deadlock
  trigger: {type: deadlock}
  actions: [dump]
- name: stuck
  trigger: {type: no_progress, after: 3s}
  actions: [dump]
- name: spin
  trigger: {type: spin, after: 3s}
  actions: [dump]
"""


ALARMS = {"hangs_heartbeat", "hangs_deadlock", "hangs_spin", "hangs_no_progress"}


@dataclasses.dataclass
class Watched:
    daemon: Daemon
    server: Victim
    # Modes of hang_mutex that it must notice soon.
    hangs: tuple


def run(*command, **kwargs):
    """(exit code, all that it printed)"""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **kwargs)
    return done.returncode, done.stdout


def cpu_ns(pid):
    total_ns = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it ended
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns


def http_load(server):
    code, text = run("ab", "-q", "-t", SLICE_S, "-n", 10_000_000, "-c", 8, f"http://127.0.0.1:{server.port}/")
    faults = re.findall(r"Failed requests: +[1-9].*|Non-2xx responses.*|Write errors: +[1-9].*", text)
    answered = re.search(r"Complete requests: +(\d+)", text)
    if code != 0 or answered is None or int(answered[1]) == 0:
        faults.append(f"ab ended with {code}: {text}")
    return faults


def redis_load(server):
    # Its two threads hand over by spinning, and get nowhere fast where cores are few: so little at a time.
    end = time.monotonic() + SLICE_S
    while time.monotonic() < end:
        code, text = run("redis-benchmark", "-p", server.port, "-n", 2000, "-c", 20, "-q", "-t", "set,get,lpush,rpop")
        faults = re.findall(r"(?i).*error.*", text) + ([f"redis-benchmark ended with {code}"] if code != 0 else [])
        if faults:
            return faults
    return []


def memcached_load(server):
    faults = []

    def client(number):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            replies = connection.makefile("rb")
            for i in range(5000):
                value = f"{number}-{i}".encode()
                connection.sendall(b"set key%d 0 0 %d\r\n%s\r\nget key%d\r\n" % (number, len(value), value, number))
                lines = [replies.readline() for _ in range(4)]
                if lines[0] != b"STORED\r\n" or lines[2] != value + b"\r\n":
                    faults.append(lines)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return faults[:3]


def pgbench(server, *arguments):
    return run(server.binaries / "pgbench", "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", *arguments, "postgres")


def postgres_load(server):
    # Scale 1 and eight clients: they wait for each other's row locks nearly all the time.
    code, text = pgbench(server, "-c", 8, "-j", 2, "-T", SLICE_S)
    said = re.findall(r"(?i).*(?:error|failed|aborted|fatal).*", text)
    faults = [line for line in said if "failed transactions: 0 " not in line]
    return faults + ([f"pgbench ended with {code}"] if code != 0 else [])


def computing(server):
    """The load of a program that brings its own: that it goes on."""
    before_ns = cpu_ns(server.pid)
    time.sleep(SLICE_S)
    return [] if cpu_ns(server.pid) > before_ns else ["it did not run"]


def with_port(server):
    server.port = int(re.search(rb"ready (\d+)", server.output)[1])
    return server


class FalseAlarmsTest(StackdTest):
    # Two instances, and as long again for what is slow on a busy machine.
    limit_s = 2 * (IDLE_S + LOAD_S) + 300

    def watch(self, start, load, idle_s=IDLE_S):
        """`start(directory)` starts a server under the agent; `load(server)` keeps it busy for a moment and gives a list of
        what went wrong."""
        watched = [self.start_watched(start, "short", ("cycle_2", "owner_reads_socket"), rules=SHORT_LIMITS)]
        if FULL:
            watched.append(self.start_watched(start, "default", ("cycle_2",)))
        if idle_s:
            time.sleep(idle_s)
            for each in watched:
                self.assert_quiet(each, "idle")
        slices = self.load(watched, load)
        for each in watched:
            self.assert_quiet(each, "under load")
        self.assert_would_notice(watched)
        print(f"false alarms: {self.id().split('.')[-1]}: none, idle {idle_s} s, under load {LOAD_S} s ({slices} times)",
              file=sys.stderr, flush=True)

    def start_watched(self, start, name, hangs, rules=None):
        directory = self.dir / name
        directory.mkdir()
        # Servers that change their user look for the daemon's socket here.
        for folder in (self.dir, directory):
            folder.chmod(0o711)
        arguments = []
        if rules is not None:
            (directory / "rules.yaml").write_text(rules)
            arguments = ["--rules", directory / "rules.yaml"]
        daemon = self.start_daemon(directory, extra_args=arguments)
        server = start(directory)
        self.addCleanup(server.kill)
        daemon.await_process(server.pid)
        return Watched(daemon, server, hangs)

    def load(self, watched, load):
        end = time.monotonic() + LOAD_S
        slices = 0
        with concurrent.futures.ThreadPoolExecutor(len(watched)) as pool:
            while time.monotonic() < end:
                for faults in pool.map(lambda each: load(each.server), watched):
                    self.assertEqual([], faults)
                slices += 1
                time.sleep(SLICE_S / 5)
        return slices

    def assert_quiet(self, watched, when):
        daemon = watched.daemon
        self.assertTrue(watched.server.alive(), f"{when}: the server ended: {watched.server.error_text()}")
        listed = daemon.ctl("list")
        self.assertEqual([], daemon.ctl_json("list").get("dumps", []), f"{when}: {listed.text}")
        counters = daemon.ctl_json("version").get("counters", {})
        alarms = {name: count for name, count in counters.items() if name in ALARMS and int(count) != 0}
        self.assertLessEqual(ALARMS, counters.keys())
        self.assertEqual({}, alarms, f"{when}: {daemon.log()}")
        self.assertGreater(int(counters.get("hang_looks", 0)), 0, f"{when}: nobody looked: {counters}")

    def assert_would_notice(self, watched):
        for each in watched:
            for mode in each.hangs:
                victim = self.start_victim(BIN / "tests/hangs/hang_mutex", mode, directory=each.daemon.dir)
                eventually(f"{mode} is noticed", lambda: victim.pid in self.dumped_pids(each.daemon))

    def dumped_pids(self, daemon):
        return [dump["process"]["pid"] for dump in daemon.ctl_json("list").get("dumps", [])]

    def needs(self, *tools):
        for tool in tools:
            if shutil.which(tool) is None and not os.path.exists(tool):
                self.skipTest(f"no {tool}")

    PARKED = ("gate_and_sigwait", "gate_and_sleep", "gate_of_async_and_sigwait", "own_gates_and_sigwait", "idle_pool")

    def test_leaders_and_parked_threads(self):
        """With what hang_victims_test does not have: threads that wait for a lock whose owner waits for work, for hours."""
        directory = self.dir / "leaders"
        directory.mkdir()
        (directory / "rules.yaml").write_text(SHORT_LIMITS)
        daemon = self.start_daemon(directory, extra_args=["--rules", directory / "rules.yaml"])
        well = [self.start_victim(BIN / "tests/hangs" / program, mode, directory=directory)
                for program, modes in (("leaders", LEADERS), ("hang_cpp", self.PARKED)) for mode in modes]
        for victim in well:
            daemon.await_process(victim.pid)
        # The second one is noticed when all have been still for twice the limit.
        hung = []
        for _ in range(2):
            hung.append(self.start_victim(BIN / "tests/hangs/hang_mutex", "owner_reads_socket", directory=directory))
            eventually("the hang is noticed", lambda: hung[-1].pid in self.dumped_pids(daemon))
        self.assertEqual(sorted(victim.pid for victim in hung), sorted(self.dumped_pids(daemon)), daemon.ctl("list").text)
        self.assertTrue(all(victim.alive() for victim in well))
        for victim in well[:len(LEADERS)]:
            findings = daemon.dump(victim.pid).resource.get("findings", [])
            self.assertNotIn("HANG", [finding["severity"] for finding in findings], findings)

    def test_redis(self):
        self.needs("redis-server", "redis-benchmark")
        self.watch(servers.redis, redis_load)

    def test_memcached(self):
        self.needs("memcached")
        self.watch(servers.memcached, memcached_load)

    def test_nginx(self):
        self.needs("/usr/sbin/nginx", "ab")
        self.watch(servers.nginx, http_load)

    def test_postgres(self):
        self.needs("/usr/lib/postgresql")

        def start(directory):
            # The user postgres may not read what is in the build's folders.
            agent = directory / AGENT.name
            shutil.copy(AGENT, agent)
            agent.chmod(0o755)
            server = servers.postgres(directory, agent)
            code, text = pgbench(server, "-i", "-q")
            self.assertEqual(0, code, text)
            return server

        self.watch(start, postgres_load)

    def java(self, directory, *mode):
        self.needs("java")
        if "jdk.compiler@" not in run("java", "--list-modules")[1]:
            self.skipTest("a Java without its compiler, which runs no source file")
        return with_port(Victim(["java", "-Xmx96m", SOURCES / "BusyServer.java", *mode], directory=directory))

    def node(self, directory, *mode):
        self.needs("node")
        return with_port(Victim([shutil.which("node"), SOURCES / "busy_server.js", *mode], directory=directory))

    def python(self, directory, *mode):
        return with_port(Victim(["/usr/bin/python3", SOURCES / "busy_server.py", *mode], directory=directory))

    def test_java(self):
        self.needs("ab")
        self.watch(self.java, http_load)

    def test_node(self):
        self.needs("ab")
        self.watch(self.node, http_load)

    def test_python(self):
        self.needs("ab")
        self.watch(self.python, http_load)

    # A thread that spins and one that computes look alike: a core for itself, and the same functions whenever one looks.

    def watch_computing(self, start):
        self.watch(start, computing, idle_s=0)

    def test_java_computes(self):
        self.watch_computing(lambda directory: self.java(directory, "compute"))

    def test_node_computes(self):
        self.watch_computing(lambda directory: self.node(directory, "compute"))

    def test_python_computes(self):
        self.watch_computing(lambda directory: self.python(directory, "compute"))

    def test_sha256sum_computes(self):
        self.watch_computing(lambda directory: Victim(["/usr/bin/sha256sum", "/dev/zero"], directory=directory, ready=None))

    def test_xz_computes(self):
        self.needs("xz")
        self.watch_computing(lambda directory: Victim(["/bin/sh", "-c", "exec xz -T2 </dev/urandom >/dev/null"],
                                                      directory=directory, ready=None))


if __name__ == "__main__":
    unittest.main()
