"""Servers under their own load, dumped ten times a second: the same replies, log and end as alone.

By default for some seconds each; for a minute by `tests/run.sh --all`.
"""

import concurrent.futures
import re
import shutil
import subprocess
import sys
import time
import unittest
import urllib.request
import xmlrpc.client

from harness import ROOT, eventually, free_port
from side_by_side import ALONE, DUMPS, DUMPS_A_SECOND, Run, SideBySideTest, accepts, without_numbers
from tier import FULL

LOAD_S = 60 if FULL else 3
REQUESTS_A_SECOND = 40
CLIENTS = 4
# Longer than any of them takes to answer on a busy machine.
ANSWER_S = 30

SUPERVISED = """
[supervisord]
nodaemon=true
user=root
logfile=/dev/null
pidfile={work}/pid
[inet_http_server]
port=127.0.0.1:{port}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:waits]
command=sleep 3600
startsecs=0
[program:ends]
autostart=false
command=sh -c 'echo started; exit 3'
startsecs=0
exitcodes=3
autorestart=false
stdout_logfile={work}/ends.log
"""

# In a mount namespace, so that it sees no table but this one. The table of each minute would come too late by default.
CRON = """
mount --make-rprivate / && mount -t tmpfs none /run && mount -t tmpfs none /var/spool/cron && mount -t tmpfs none /etc/cron.d
mount --bind /dev/null /etc/crontab && mkdir /var/spool/cron/crontabs
{ echo "@reboot for i in 1 2 3; do echo at the start >>$PWD/jobs; sleep 1; done; echo started >>$PWD/jobs"
  echo "* * * * * echo each minute >>$PWD/jobs"; } >/var/spool/cron/crontabs/root
chmod 600 /var/spool/cron/crontabs/root && touch jobs && exec cron -f
"""

MARIADB = ["mariadbd", "--no-defaults", "--user=root", "--bind-address=127.0.0.1", "--skip-grant-tables", "--innodb-log-file-size=8M",
           "--innodb-buffer-pool-size=16M"]


def without_times(text):
    """The lines of a log of requests, each with all but its time, in an order that does not depend on clients."""
    return "\n".join(sorted(re.sub(r"\[\d+/\w+/\d+ [\d:]+\]", "[time]", line) for line in text.splitlines()))


class BusyServersTest(SideBySideTest):
    kinds = (ALONE, DUMPS)
    run_limit_s = LOAD_S + 120
    limit_s = 900

    def setUp(self):
        super().setUp()
        self.port = free_port()

    def load(self, ask, requests_a_second, clients):
        """Replies to the requests, of which ask(number) makes one, at times that are the same in each run."""
        begin = time.monotonic()

        def paced(number):
            time.sleep(max(0, begin + number / requests_a_second - time.monotonic()))
            return ask(number)

        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            return list(pool.map(paced, range(LOAD_S * requests_a_second)))

    def count_dumps(self, run, seconds):
        if run.dumping:
            taken = run.dumping.taken.total()
            print(f"busy: {self.id().split('.')[-1]}: {taken} dumps in {seconds} s", file=sys.stderr, flush=True)
            self.assertGreater(taken, seconds * DUMPS_A_SECOND / 4, "too few dumps to prove anything")

    def serve(self, command, ask, *, prepare=None, ready=None, requests_a_second=REQUESTS_A_SECOND, clients=CLIENTS):

        def during(run):
            run.await_true("it serves", ready or (lambda: accepts(self.port)))
            run.note(self.load(ask, requests_a_second, clients))
            self.count_dumps(run, LOAD_S)
            run.end_main()

        return self.side_by_side(command, during=during, prepare=prepare, dumped=True)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=ANSWER_S) as reply:
            return reply.status, reply.read().decode()

    def test_python(self):
        """Python's own, with a thread for each request."""
        self.tidy = without_times

        def prepare():
            for number in range(5):
                (self.work / f"file{number}").write_text(f"well {number}\n" * 1000)

        end = self.serve(["/usr/bin/python3", "-u", "-m", "http.server", self.port, "--bind", "127.0.0.1"],
                         lambda number: self.get(f"file{number % 5}"), prepare=prepare)
        self.assertEqual((200, "well 0\n" * 1000), end.notes[0][0])
        self.assertEqual(LOAD_S * REQUESTS_A_SECOND, end.err.count('"GET /file'))

    def test_node(self):
        self.need("node")
        self.tidy = without_times
        end = self.serve([shutil.which("node"), ROOT / "tests/programs/logging_server.js", self.port], self.get)
        self.assertEqual(0, end.status)
        self.assertIn(f"answered {LOAD_S * REQUESTS_A_SECOND}", end.out)

    def test_varnish(self):
        self.need("varnishd")
        self.tidy = without_numbers
        vcl = 'vcl 4.1; backend default none; sub vcl_recv { return(synth(200)); }' \
              'sub vcl_synth { set resp.body = "well " + req.url; return(deliver); }'
        end = self.serve(["varnishd", "-F", "-n", self.work / "varnish", "-a", f"127.0.0.1:{self.port}", "-f", self.work / "vcl",
                          "-s", "malloc,8m"], self.get, prepare=lambda: (self.work / "vcl").write_text(vcl))
        self.assertEqual((200, "well /1"), end.notes[0][1])

    def test_supervisord(self):
        """Programs are stopped and started again: each end of a child is a signal for it."""
        self.need("supervisord")
        self.tidy = without_numbers

        def await_exec(supervisor):
            """A child that is told to end before exec() may lose the signal: it has supervisord's handler until then."""
            waits = supervisor.getProcessInfo("waits")
            eventually("the program runs", lambda: Run.name_of(waits["pid"]) == "sleep")

        def ask(_number):
            with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{self.port}/RPC2") as proxy:
                supervisor = proxy.supervisor
                await_exec(supervisor)
                stopped, started = supervisor.stopProcess("waits"), supervisor.startProcess("waits")
                supervisor.startProcess("ends", False)
                eventually("the program has ended", lambda: supervisor.getProcessInfo("ends")["statename"] == "EXITED")
                await_exec(supervisor)
                return stopped, started, supervisor.getProcessInfo("waits")["statename"]

        end = self.serve(["supervisord", "-c", self.work / "conf"], ask, requests_a_second=5, clients=1,
                         prepare=lambda: (self.work / "conf").write_text(SUPERVISED.format(work=self.work, port=self.port)))
        self.assertEqual((True, True, "RUNNING"), tuple(end.notes[0][0]))
        self.assertRegex(end.out, r"exited: ends \(exit status N; expected\)")

    def test_cron(self):
        self.need("cron", "unshare")

        def jobs():
            return (self.work / "jobs").read_text() if (self.work / "jobs").exists() else ""

        def during(run):
            run.await_true("the jobs of the start have run", lambda: "started" in jobs())
            if FULL:
                eventually("the job of each minute has run twice", lambda: jobs().count("each minute") == 2, 180)
            # A minute may begin in any of the runs.
            run.note(sorted(set(jobs().splitlines()) - (set() if FULL else {"each minute"})))
            run.note(jobs().count("at the start"))
            self.count_dumps(run, LOAD_S)
            run.end_main()

        end = self.side_by_side(["unshare", "-m", "bash", "-c", CRON], during=during, dumped=True)
        self.assertEqual(3, end.notes[1])

    def sql(self, statement):
        done = subprocess.run(["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "-N", "-B", "-e",
                               statement], capture_output=True, text=True, timeout=ANSWER_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_mariadb(self):
        self.need("mariadbd", "mariadb", "mariadb-install-db")
        self.tidy = without_numbers
        fresh = self.dir / "fresh"
        subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={fresh}", "--skip-test-db",
                        "--innodb-log-file-size=8M"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        table = "CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY, v TEXT) ENGINE=InnoDB"

        def ask(number):
            # What SLEEP gives is 1 where it was interrupted.
            return self.sql(f"INSERT INTO d.t VALUES ({number}, REPEAT('well', {number % 90})); SELECT n, v FROM d.t WHERE n = {number};"
                            f"SELECT SLEEP(0.05); SELECT GET_LOCK('one', 20); SELECT RELEASE_LOCK('one')")

        end = self.serve(lambda: [*MARIADB, f"--datadir={self.work}/data", f"--socket={self.work}/s", f"--port={self.port}"], ask,
                         prepare=lambda: shutil.copytree(fresh, self.work / "data"), requests_a_second=10,
                         ready=lambda: self.sql(f"{table}; SELECT 1")[0] == 0)
        self.assertEqual((0, "1\twell\n0\n1\n1\n", ""), tuple(end.notes[0][1]))


if __name__ == "__main__":
    unittest.main()
