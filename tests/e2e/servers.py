"""Debian's servers and interpreters, started in a directory of their own, under the agent, and serving."""

import contextlib
import grp
import os
import pathlib
import pwd
import shutil
import socket
import subprocess

from harness import Victim, eventually, free_port

PYTHON_PROGRAM = r'''
import queue, socket, subprocess, threading, time
lock, never = threading.Lock(), threading.Event()
lock.acquire()
listener = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen(["sleep", "3600"])
threads = {
    "lock": lambda: lock.acquire(),
    "event": never.wait,
    "queue": queue.Queue().get,
    "sleep": lambda: time.sleep(3600),
    "accept": listener.accept,
    "child": child.wait,
    "recursion": lambda: recurse(50),
    "sorting": lambda: sorted([3, 2, 1], key=lambda n: lock.acquire()),
}
def recurse(depth):
    return recurse(depth - 1) if depth else never.wait()
for name, body in threads.items():
    threading.Thread(target=body, name=name, daemon=True).start()
# Each is blocked in the kernel when it says so.
import os
def blocked(tid):
    with open(f"/proc/self/task/{tid}/syscall") as line:
        return not line.read().startswith("running")
while not all(blocked(t.native_id) for t in threading.enumerate() if t is not threading.current_thread()):
    time.sleep(0.001)
print("ready", flush=True)
signal = __import__("signal")
while True:
    signal.pause()
'''

NODE_PROGRAM = r'''
const { Worker, isMainThread, workerData } = require('worker_threads');
const fs = require('fs');
if (isMainThread) {
  const shared = new SharedArrayBuffer(8);
  const state = new Int32Array(shared);
  for (let i = 0; i < 2; ++i) new Worker(__filename, { workerData: shared });
  require('net').createServer().listen(0, '127.0.0.1');
  const check = () => (Atomics.load(state, 1) === 2 ? console.log('ready') : setTimeout(check, 5));
  check();
} else {
  const state = new Int32Array(workerData);
  function waitForOrders(depth) {
    if (depth > 0) return waitForOrders(depth - 1) + 1;
    Atomics.add(state, 1, 1);
    Atomics.wait(state, 0, 0);
    return 0;
  }
  waitForOrders(10);
}
'''


def _user(name):
    """setpriv's options for a user, where this is root; else nothing: one cannot change and need not."""
    if os.geteuid() != 0:
        return []
    entry = pwd.getpwnam(name)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


def _await_port(port):

    def connects():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(f"port {port} is served", connects)


def family(pid):
    """A process and its descendants. Some may have ended: postgres starts one for a moment now and then."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{parent}/task"):
                children = pathlib.Path(f"/proc/{parent}/task/{task}/children")
                found += [int(word) for word in children.read_text().split()]
    return found


def command_name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def redis(directory, **options):
    port = free_port()
    victim = Victim(["/usr/bin/redis-server", "--port", port, "--save", "", "--dir", directory, "--io-threads", 2,
                     "--io-threads-do-reads", "yes"], directory=directory, ready=None, **options)
    _await_port(port)
    victim.port = port
    return victim


def memcached(directory, **options):
    port = free_port()
    victim = Victim(["/usr/bin/memcached", "-l", "127.0.0.1", "-p", port, "-U", 0, "-u", "root" if os.geteuid() == 0 else
                     pwd.getpwuid(os.geteuid()).pw_name], directory=directory, ready=None, **options)
    _await_port(port)
    victim.port = port
    return victim


def nginx(directory, **options):
    port = free_port()
    root = pathlib.Path(directory) / "nginx"
    root.mkdir()
    (root / "nginx.conf").write_text(f"""
daemon off; pid {root}/pid; error_log {root}/error.log; worker_processes 2; user {pwd.getpwuid(os.geteuid()).pw_name};
env LD_PRELOAD; env STACKD_DIR;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "well\\n"; }} }}
}}
""")
    victim = Victim(["/usr/sbin/nginx", "-c", root / "nginx.conf", "-e", root / "error.log"], directory=directory,
                    ready=None, **options)
    _await_port(port)
    victim.port = port
    eventually("nginx has its workers", lambda: len(family(victim.pid)) == 3)
    return victim


def postgres(directory, agent, **options):
    """`agent`: a copy of the agent that the user postgres may read; `directory` must be open to it."""
    binaries = max(pathlib.Path("/usr/lib/postgresql").iterdir(), key=lambda path: int(path.name)) / "bin"
    data = pathlib.Path(directory) / "pg"
    data.mkdir()
    if os.geteuid() == 0:
        shutil.chown(data, "postgres", grp.getgrgid(pwd.getpwnam("postgres").pw_gid).gr_name)
    subprocess.run([*_user("postgres"), binaries / "initdb", "-D", data / "base", "--no-sync", "-A", "trust"], check=True,
                   stdout=subprocess.DEVNULL, cwd="/")
    port = free_port()
    victim = Victim([binaries / "postgres", "-D", data / "base", "-p", port, "-c", "listen_addresses=127.0.0.1", "-c",
                     f"unix_socket_directories={data}", "-c", "autovacuum_naptime=1h"], directory=directory, ready=None,
                    wrap=_user("postgres"), cwd="/", agent=agent, **options)
    # The last of its own processes to come up.
    eventually("postgres serves", lambda: subprocess.run([binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)])
               .returncode == 0)
    victim.port = port
    victim.binaries = binaries
    return victim


def python3(directory):
    return Victim(["/usr/bin/python3", "-c", PYTHON_PROGRAM], directory=directory)


def node(directory):
    program = pathlib.Path(directory) / "waits.js"
    program.write_text(NODE_PROGRAM)
    return Victim([shutil.which("node"), program], directory=directory)
