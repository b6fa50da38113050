"""stackctl record: who waited for what, over time, as dumps and `go tool pprof` have it; nothing is stored or interrupted.

    record: outside, a deadlock: 20 samples, 60 of 60 threads where a dump has them
"""

import collections
import concurrent.futures
import pathlib
import re
import signal
import subprocess
import sys
import unittest
import urllib.request

import hang_programs
import pprof_tool
from grpc_peer import grpc, needs_grpcio, text_field
from harness import FAILURE, NOT_FOUND, OK, PARTIAL, STACKCTL, USAGE, StackdTest, die_with_parent, task_ids
from outside import Outside
from ports import free_port

FOR = ("--for", "2s")


def folded(text):
    """{"thread;outermost;…;innermost": how often}, without what is waited for."""
    counts = collections.Counter()
    for line in text.splitlines():
        stack, count = line.rsplit(" ", 1)
        frames = stack.split(";")[1:]
        counts[";".join(frames[:-1] if frames[-1].startswith("[waits") else frames)] += int(count)
    return counts


def switches(pid):
    """{tid: how often the thread has gone to sleep or lost its processor}, but for the agent's own."""
    counts = {}
    for tid in task_ids(pid):
        status = pathlib.Path(f"/proc/{pid}/task/{tid}/status").read_text()
        if not status.startswith("Name:\tstackd"):
            counts[tid] = re.findall(r"ctxt_switches:\t(\d+)", status)
    return counts


def run(*args, timeout_s=60):
    return subprocess.run([STACKCTL, "record", *map(str, args)], capture_output=True, text=True, timeout=timeout_s, check=False)


class RecordTest(StackdTest):

    def deadlocked(self, **kwargs):
        return self.start_victim(hang_programs.HANGS / "hang_mutex", "cycle_2", **kwargs)

    def check_samples(self, way, dump, text):
        """Each thread of `dump` is in each sample, where the dump has it."""
        counts = folded(text)
        samples = max(counts.values())
        self.assertGreaterEqual(samples, 5, text)
        threads = [thread for thread in dump.threads.values() if not thread.get("isAgent")]
        for thread in threads:
            stack = ";".join([thread["name"], *[frame["function"] for frame in reversed(dump.frames(thread["tid"]))]])
            self.assertGreaterEqual(counts[stack], samples, f"{stack} in {counts}")
        self.assertEqual(0, sum(counts.values()) % samples, counts)
        print(f"record: {way}, a deadlock: {samples} samples, {sum(counts.values())} of {samples * len(threads)} threads where a "
              "dump has them", file=sys.stderr, flush=True)

    def test_a_deadlock_without_an_agent(self):
        victim = self.deadlocked(preload=False)
        done = run("--pid", victim.pid, *FOR, "-f", "folded")
        self.assertEqual(OK, done.returncode, done.stderr)
        self.check_samples("outside", Outside().dump(victim.pid), done.stdout)
        self.assertEqual(2, len(re.findall(r"\[waits for mutex 0x\w+.*, held by thread .*\] \d+$", done.stdout, re.MULTILINE)))

    def test_a_deadlock_through_the_daemon_which_keeps_nothing(self):
        daemon = self.start_daemon(extra_args=["--no-hang-detection"])
        victim = self.deadlocked()
        daemon.await_process(victim.pid)
        done = daemon.ctl("record", victim.pid, *FOR, "-f", "folded")
        self.assertEqual(OK, done.code, done.err)
        self.assertEqual("", daemon.ctl("list").out.partition("\n")[2], "it has stored dumps")
        self.check_samples("daemon", daemon.dump(victim.pid), done.out)

    def test_the_text_has_the_most_time_first(self):
        victim = self.deadlocked(preload=False)
        done = run("--pid", victim.pid, *FOR)
        self.assertEqual(OK, done.returncode, done.stderr)
        self.assertRegex(done.stdout.splitlines()[0], rf"hang_mutex \(pid {victim.pid}\): \d+ samples in 2\.\d s, one each \d+ ms")
        parts = [float(part) for part in re.findall(r"^([\d.]+)% · ", done.stdout, re.MULTILINE)]
        self.assertEqual(sorted(parts, reverse=True), parts)
        idle = float(re.search(r"^([\d.]+)% idle: .*\n  [\d.]+% · hang_mutex$", done.stdout, re.MULTILINE)[1])
        self.assertAlmostEqual(100, sum(parts) + idle, delta=1)
        self.assertRegex(done.stdout, r"1 thread: cycle-\d · waits for mutex 0x\w+.*, held by thread ")

    @unittest.skipUnless(pprof_tool.available(), "there is no go tool pprof")
    def test_pprof_counts_the_same(self):
        victim = self.deadlocked(preload=False)
        file = self.dir / "waits.pb.gz"
        done = run("--pid", victim.pid, *FOR, "-f", "pprof", "--to", file)
        self.assertEqual(OK, done.returncode, done.stderr)
        self.assertEqual("", done.stdout)
        _, cumulative = pprof_tool.top(file, "-sample_index=samples")
        threads = len(task_ids(victim.pid))
        self.assertEqual(0, pprof_tool.total(pprof_tool.ask("-top", "-sample_index=samples", file)) % threads)
        waits = [name for name in cumulative if name.startswith("[waits for mutex")]
        self.assertEqual(2, len(waits), cumulative)
        self.assertEqual(cumulative[waits[0]], cumulative[waits[1]])
        self.assertIn("100%", pprof_tool.ask("-top", "-sample_index=time", file))

    def test_a_thread_that_runs_is_counted_and_not_stopped(self):
        victim = self.start_victim("progress", "spin", preload=False)
        done = run("--pid", victim.pid, *FOR)
        self.assertEqual(OK, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"\d threads?: .*spinner.*\n  \(no stack: running\)")
        self.assertTrue(victim.alive())

    def test_a_process_that_ends_leaves_what_was_seen(self):
        victim = self.deadlocked(preload=False)
        with subprocess.Popen([STACKCTL, "record", "--pid", str(victim.pid), "--for", "1m", "-f", "folded"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as record:
            record.stderr.readline()
            record.stderr.readline()  # after 5 s: samples were taken
            victim.kill()
            out, err = record.communicate(timeout=30)
        self.assertIn(record.returncode, (FAILURE, NOT_FOUND), err)
        self.assertRegex(out, r"\Ahang_mutex;.* \d+\n")
        self.assertIn("ended", err)

    def test_ctrl_c_ends_it_with_what_there_is(self):
        victim = self.deadlocked(preload=False)
        with subprocess.Popen([STACKCTL, "record", "--pid", str(victim.pid), "--for", "1h"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as record:
            record.stderr.readline()
            record.stderr.readline()
            record.send_signal(signal.SIGINT)
            out, err = record.communicate(timeout=30)
        self.assertEqual(PARTIAL, record.returncode, err)
        self.assertRegex(err, r"interrupted after \d+ samples")
        self.assertIn("waits for mutex", out)

    def test_no_thread_of_the_program_runs_for_it_and_samples_are_counted(self):
        daemon = self.start_daemon(extra_args=["--metrics-listen", f"127.0.0.1:{(port := free_port())}", "--no-hang-detection"])
        victim = self.deadlocked()
        daemon.await_process(victim.pid)
        before = switches(victim.pid)
        self.assertEqual(OK, daemon.ctl("record", victim.pid, *FOR).code)
        self.assertEqual(before, switches(victim.pid))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            taken = re.search(r'^stackd_samples_total{outcome="taken"} (\d+)$', answer.read().decode(), re.MULTILINE)
        self.assertGreaterEqual(int(taken[1]), 5)

    def test_mistakes(self):
        for args, sentence in ((("--for", "1ms"), "--for must be from 1s to 1h"),
                               (("-o", "json"), "record prints text, folded, pprof or speedscope"),
                               (("--pid", "1", "checkout"), "excludes"),
                               (("-f", "minidump"), "minidump")):
            done = run(*args)
            self.assertEqual(USAGE, done.returncode, f"{args}: {done.stderr}")
            self.assertIn(sentence, done.stderr)
        self.assertEqual(NOT_FOUND, run("--pid", 2**30).returncode)

    @needs_grpcio
    def test_a_daemon_that_would_store_each_sample_is_asked_once(self):
        """One of before `unstored`: its answer has a name."""
        asked = []

        class Answers(grpc.GenericRpcHandler):

            def service(self, details):
                asked.append(details.method)
                return grpc.unary_unary_rpc_method_handler(lambda request, context: text_field(1, "processes/7-1/dumps/x"))

        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[Answers()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, None)
        done = run("checkout", "--address", f"127.0.0.1:{port}")
        self.assertEqual(FAILURE, done.returncode, done.stderr)
        self.assertIn("use record --pid N", done.stderr)
        self.assertEqual(["/stackd.v1.Stackd/CreateDump"], asked)
