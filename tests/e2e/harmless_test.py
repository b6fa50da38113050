"""Servers and interpreters do their work under the agent, while they are dumped ten times a second. They have no error that they do
not have without it.

Each runs its load twice: alone, and watched. What counts is what the load generator and the server say themselves.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest

import servers
from harness import AGENT, StackdTest, Victim

DUMPS_A_SECOND = 10

PYTHON_MODULES = ["test_threading", "test_thread", "test_queue", "test_threading_local", "test_threadsignals"]

NODE_SERVER = r'''
const http = require('http'), { Worker, isMainThread } = require('worker_threads'), crypto = require('crypto');
if (isMainThread) {
  for (let i = 0; i < 2; ++i) new Worker(__filename);
  const server = http.createServer((request, response) =>
    crypto.pbkdf2('stack', 'salt', 100, 16, 'sha1', (error, key) => response.end(error ? 'error' : key.toString('hex'))));
  server.listen(0, '127.0.0.1', () => console.log('ready ' + server.address().port));
} else {
  setInterval(() => { let garbage = []; for (let i = 0; i < 1e4; ++i) garbage.push({ i }); }, 5);
}
'''


class Dumping(threading.Thread):
    """Dumps the connected processes of a daemon in turn, ten times a second, until it is stopped."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.stackd = daemon
        self.over = threading.Event()
        self.dumps = 0
        self.failures = []

    def run(self):
        turn = 0
        due = time.monotonic()
        while not self.over.is_set():
            names = [process["name"] for process in self.stackd.processes()]
            if names:
                turn += 1
                outcome = self.stackd.ctl("dump", names[turn % len(names)])
                self.dumps += 1
                # 3: it ended between the list and the dump; 5: while it was dumped.
                if outcome.code not in (0, 3, 5):
                    self.failures.append(outcome.text())
            due += 1 / DUMPS_A_SECOND
            self.over.wait(max(0, due - time.monotonic()))

    def stop(self):
        self.over.set()
        self.join()


class HarmlessTest(StackdTest):

    def watched(self, daemon, load):
        """Runs a load while the processes are dumped; returns what it gives."""
        dumping = Dumping(daemon)
        began = time.monotonic()
        dumping.start()
        try:
            result = load()
        finally:
            dumping.stop()
        took = time.monotonic() - began
        print(f"harmless: {self.id().split('.')[-1]}: {dumping.dumps} dumps in {took:.1f} s", file=sys.stderr, flush=True)
        self.assertFalse(dumping.failures)
        self.assertGreater(dumping.dumps, took * DUMPS_A_SECOND / 4, "too few dumps to prove anything")
        return result

    def compare(self, start, load, errors_in):
        """`start(preload)` starts a server; `load(server)` gives (exit code, text); `errors_in(text)` a list."""
        alone = start(preload=False)
        self.addCleanup(alone.kill)
        code, text = load(alone)
        self.assertEqual((0, []), (code, errors_in(text)), "the load fails even without stackd")
        said_alone = self.errors_said(alone)
        alone.kill()

        daemon = self.start_daemon()
        server = start(preload=True)
        self.addCleanup(server.kill)
        code, text = self.watched(daemon, lambda: load(server))
        self.assertEqual((0, []), (code, errors_in(text)), text)
        self.assertTrue(server.alive(), server.error_text())
        self.assertFalse(self.errors_said(server) - said_alone)

    def errors_said(self, server):
        """Errors in the server's own log, without times and pids, and without what it answers to probes while it starts."""
        said = set(re.findall(r"\b(?:ERROR|FATAL|PANIC|alert|crit)\b.*", server.error_text()))
        return {line for line in said if "the database system is starting up" not in line}

    def load(self, *command, **kwargs):
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300, **kwargs)
        return done.returncode, done.stdout

    def test_redis(self):
        self.compare(lambda preload: servers.redis(self.dir, preload=preload),
                     lambda server: self.load("redis-benchmark", "-p", server.port, "-n", 20000, "-c", 20, "-P", 4, "-q", "-t",
                                              "set,get,incr,lpush,rpop,sadd,mset"),
                     lambda text: re.findall(r"(?i).*error.*", text))

    def test_postgres(self):
        os.chmod(self.dir, 0o711)
        agent = self.dir / AGENT.name
        shutil.copy(AGENT, agent)
        os.chmod(agent, 0o755)

        def start(preload):
            shutil.rmtree(self.dir / "pg", ignore_errors=True)
            server = servers.postgres(self.dir, agent, preload=preload)
            code, text = self.load(server.binaries / "createdb", "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", "load")
            self.assertEqual(0, code, text)
            code, text = self.load(server.binaries / "pgbench", "-h", "127.0.0.1", "-p", server.port, "-U", "postgres", "-i",
                                   "-q", "load")
            self.assertEqual(0, code, text)
            return server

        self.compare(start,
                     lambda server: self.load(server.binaries / "pgbench", "-h", "127.0.0.1", "-p", server.port, "-U",
                                              "postgres", "-c", 8, "-j", 2, "-T", 8, "-C", "load"),
                     lambda text: [line for line in re.findall(r"(?i).*(?:error|failed|aborted|fatal).*", text)
                                   if not re.search(r"failed transactions: 0 ", line)])

    def test_nginx(self):

        def start(preload):
            shutil.rmtree(self.dir / "nginx", ignore_errors=True)
            return servers.nginx(self.dir, preload=preload)

        self.compare(start, self.http_load, self.http_errors)

    def http_load(self, server):
        return self.load("ab", "-q", "-n", 60000, "-c", 20, f"http://127.0.0.1:{server.port}/")

    def http_errors(self, text):
        errors = re.findall(r"Failed requests: +[1-9].*|Non-2xx responses.*|Write errors.*", text)
        return errors if "Complete requests:      60000" in text else errors + ["not all requests were answered"]

    def test_memcached(self):

        def load(server):
            errors = []

            def client(number):
                with socket.create_connection(("127.0.0.1", server.port)) as connection:
                    replies = connection.makefile("rb")
                    for i in range(8000):
                        value = f"{number}-{i}".encode() * (1 + i % 50)
                        connection.sendall(b"set key%d-%d 0 0 %d\r\n%s\r\nget key%d-%d\r\n" %
                                           (number, i % 100, len(value), value, number, i % 100))
                        lines = [replies.readline() for _ in range(4)]
                        if lines[0] != b"STORED\r\n" or lines[2] != value + b"\r\n":
                            errors.append(lines)

            clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
            for thread in clients:
                thread.start()
            for thread in clients:
                thread.join()
            return 0, errors

        self.compare(lambda preload: servers.memcached(self.dir, preload=preload), load, lambda errors: errors[:3])

    def test_node(self):
        node = shutil.which("node")
        if node is None:
            self.skipTest("no node")
        program = self.dir / "server.js"
        program.write_text(NODE_SERVER)

        def start(preload):
            server = Victim([node, program], directory=self.dir, preload=preload)
            server.port = int(re.search(rb"ready (\d+)", server.output)[1])
            return server

        self.compare(start, self.http_load, self.http_errors)

    def test_python(self):
        """Python's own tests of threads and signals: no module fails that passes without the agent."""

        def run(env):
            return self.load("/usr/bin/python3", "-m", "test", *PYTHON_MODULES, env={**os.environ, **env}, cwd=self.dir)

        def failed(text):
            section = re.search(r"\d+ tests? failed:\n((?: +.*\n)+)", text)
            return set(section[1].split()) if section else set()

        code, text = run({})
        failed_alone = failed(text)
        self.assertIn("== Tests result:", text)
        daemon = self.start_daemon()
        code, watched_text = self.watched(daemon, lambda: run({"LD_PRELOAD": str(AGENT), "STACKD_DIR": str(self.dir)}))
        self.assertIn("== Tests result:", watched_text)
        self.assertFalse(failed(watched_text) - failed_alone, watched_text[-4000:])


if __name__ == "__main__":
    unittest.main()
