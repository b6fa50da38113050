"""Bad input: whatever is wrong, the answer says what, in one sentence, with the right exit code, and the daemon serves on."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import unittest

import grpcurl_test
from harness import CANNOT_CONNECT, NOT_FOUND, OK, USAGE, Daemon, StackdTest, eventually


class RequestTest(StackdTest):

    def grpc_error(self, daemon, method, request):
        """(code, message, reason of the ErrorInfo) of a call that fails."""
        done = subprocess.run([grpcurl_test.GRPCURL, "-plaintext", "-unix", "-format-error", "-d", "@",
                               str(daemon.dir / "api.sock"), f"stackd.v1.Stackd/{method}"], input=json.dumps(request),
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(0, done.returncode, done.stdout)
        error = json.loads(done.stderr[done.stderr.index("{"):])
        reasons = [detail["reason"] for detail in error.get("details", []) if "reason" in detail]
        return error["code"], error["message"], reasons

    def test_unknown_process_is_answered_with_near_names(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        outcome = daemon.ctl("dump", "waiting_thread")
        self.assertEqual(NOT_FOUND, outcome.code)
        self.assertFalse(outcome.out)
        self.assertIn("waiting_threads", outcome.err)
        code, message, reasons = self.grpc_error(daemon, "CreateDump", {"process": "wating_threads"})
        self.assertEqual((5, ["PROCESS_NOT_FOUND"]), (code, reasons))
        self.assertIn("waiting_threads", message)

    def test_no_process_at_all(self):
        daemon = self.start_daemon()
        code, message, reasons = self.grpc_error(daemon, "CreateDump", {})
        self.assertEqual((9, ["NO_PROCESS"]), (code, reasons))
        self.assertIn("LD_PRELOAD", message)

    def test_two_processes_that_match_are_both_named(self):
        daemon = self.start_daemon()
        victims = [self.start_victim("waiting_threads", 1) for _ in range(2)]
        for victim in victims:
            daemon.await_process(victim.pid)
        outcome = daemon.ctl("dump", "waiting_threads")
        self.assertEqual(USAGE, outcome.code)
        for victim in victims:
            self.assertIn(str(victim.pid), outcome.err)
        code, _, reasons = self.grpc_error(daemon, "CreateDump", {"process": "waiting_threads"})
        self.assertEqual((9, ["PROCESS_AMBIGUOUS"]), (code, reasons))
        # By pid it is clear.
        self.assertEqual(OK, daemon.ctl("dump", victims[0].pid).code)

    def test_process_that_has_gone(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1)
        name = daemon.await_process(victim.pid)["name"]
        dump = daemon.dump(name)
        victim.kill()
        eventually("it is gone from the list", lambda: not daemon.processes())
        outcome = daemon.ctl("dump", name)
        self.assertEqual(NOT_FOUND, outcome.code)
        self.assertIn("exit", outcome.err)
        code, _, reasons = self.grpc_error(daemon, "CreateDump", {"process": name})
        self.assertEqual((5, ["PROCESS_EXITED"]), (code, reasons))
        # Its dumps are still there.
        self.assertEqual(OK, daemon.ctl("show", dump.name).code)

    def test_dump_that_does_not_exist(self):
        daemon = self.start_daemon()
        for name in ("processes/1-2/dumps/3", "processes/1-2/dumps/nothing"):
            code, _, reasons = self.grpc_error(daemon, "GetDump", {"name": name})
            self.assertEqual((5, ["DUMP_NOT_FOUND"]), (code, reasons))
            self.assertEqual(NOT_FOUND, daemon.ctl("show", name).code)

    def test_malformed_names_tokens_and_sizes(self):
        daemon = self.start_daemon()
        for method, request, reason in [
            ("ListDumps", {"page_token": "not one of ours"}, "BAD_PAGE_TOKEN"),
            ("ListProcesses", {"page_token": "AAAA"}, "BAD_PAGE_TOKEN"),
            ("ListDumps", {"page_size": -1}, "BAD_PAGE_SIZE"),
            ("ListProcesses", {"page_size": -1}, "BAD_PAGE_SIZE"),
            ("GetDump", {"name": "processes/../../etc/passwd"}, "BAD_NAME"),
            ("DeleteDump", {"name": "nonsense"}, "BAD_NAME"),
        ]:
            with self.subTest(f"{method} {request}"):
                code, message, reasons = self.grpc_error(daemon, method, request)
                self.assertEqual((3, [reason]), (code, reasons), message)

    def test_oversized_request(self):
        daemon = self.start_daemon()
        code, _, _ = self.grpc_error(daemon, "CreateDump", {"process": "x" * (5 << 20)})
        self.assertEqual(8, code)
        self.assertEqual(OK, daemon.ctl("ps").code)

    def test_long_and_odd_process_names(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        for name in ("x" * 100_000, "%s%n", "processes/", "-1", "0", "99999999999999999999", "\u202e", "a\nb"):
            with self.subTest(name[:20]):
                code, message, _ = self.grpc_error(daemon, "CreateDump", {"process": name})
                self.assertIn(code, (3, 5))
                # The answer does not grow with the question.
                self.assertLess(len(message), 2000)

    def test_page_size_that_is_too_large_is_cut(self):
        daemon = self.start_daemon()
        victim = self.start_victim("waiting_threads", 1)
        daemon.await_process(victim.pid)
        done = subprocess.run([grpcurl_test.GRPCURL, "-plaintext", "-d", '{"page_size": 2000000000}',
                               f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/ListProcesses"], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)

    def test_usage_errors_of_the_client(self):
        daemon = self.start_daemon()
        for arguments in (["no-such-verb"], ["dump", "--no-such-flag"], ["export", "x", "-f", "no-such-format"], ["delete"],
                          ["dump", "x", "--timeout", "soon"]):
            with self.subTest(" ".join(arguments)):
                outcome = daemon.ctl(*arguments)
                self.assertEqual(USAGE, outcome.code, outcome.text)
                self.assertFalse(outcome.out)
                self.assertTrue(outcome.err)

    def test_no_daemon(self):
        daemon = Daemon(self.dir)
        for address in (f"unix:{self.dir}/api.sock", f"127.0.0.1:{daemon.port}"):
            with self.subTest(address):
                outcome = daemon.ctl("ps", address=address)
                self.assertEqual(CANNOT_CONNECT, outcome.code)
                self.assertIn(address.removeprefix("unix:"), outcome.err)


class StartTest(StackdTest):

    def refusal(self, daemon, **kwargs):
        """The one sentence that a daemon ends with which cannot start."""
        done = subprocess.run(daemon.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                              **kwargs)
        self.assertNotIn(done.returncode, (0, None))
        self.assertGreater(done.returncode, 0, f"ended by a signal: {done.stderr}")
        lines = done.stderr.strip().splitlines()
        self.assertEqual(1, len(lines), done.stderr)
        return lines[0]

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            self.assertIn(str(port), self.refusal(Daemon(self.dir, port=port)))

    def test_directory_that_cannot_be_made(self):
        blocked = self.dir / "file"
        blocked.write_text("")
        sentence = self.refusal(Daemon(blocked / "below", store=self.dir / "store.db"))
        self.assertIn(str(blocked / "below"), sentence)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody who may not write")
    def test_directory_that_may_not_be_written(self):
        image = self.dir / "stackd"
        subprocess.run(["cp", str(Daemon(self.dir).stackd), image], check=True)
        os.chmod(image, 0o755)
        os.chmod(self.dir, 0o755)
        closed = self.dir / "closed"
        closed.mkdir(mode=0o755)
        daemon = Daemon(closed, stackd=image,
                        wrap=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        self.assertIn(str(closed), self.refusal(daemon, cwd="/"))

    def test_socket_path_too_long(self):
        directory = self.dir / ("long" * 30)
        directory.mkdir()
        sentence = self.refusal(Daemon(directory))
        self.assertIn("107", sentence)

    def test_bad_flags(self):
        for arguments in (["--no-such-flag"], ["--listen", "nowhere"], ["--listen", "127.0.0.1:99999"],
                          ["surplus argument"]):
            with self.subTest(" ".join(arguments)):
                self.assertTrue(self.refusal(Daemon(self.dir, extra_args=arguments)))


class NoRoomForThreadsTest(StackdTest):

    @unittest.skipUnless(os.geteuid() == 0, "only root can start a daemon whose user may have one thread")
    def test_a_daemon_that_can_make_no_thread_still_dumps_and_ends(self):
        """As in a pod whose limit on processes and threads is reached, by what stackd is to explain."""
        self.dir.chmod(0o777)
        uid = 64321  # of no other process: the kernel counts the threads of a user
        stackd = shutil.copy(Daemon(self.dir).stackd, self.dir)
        as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        daemon = self.start_daemon(stackd=stackd, wrap=as_user)
        # So many that several threads would unwind them.
        victim = self.start_victim("waiting_threads", 600, env={"STACKD_DAEMON_UID": str(uid)})
        daemon.await_process(victim.pid)
        self.assertEqual("COMPLETE", daemon.dump(victim.pid).state)  # and what serves calls is there
        subprocess.run([*as_user, "prlimit", "--nproc=1:1", f"--pid={daemon.process.pid}"], check=True)

        def dump_unless_refused():
            try:
                return daemon.dump(victim.pid)
            except AssertionError as refused:
                # The thread that served the call before is not yet free, and there can be no other.
                if "too many calls are under way; try again" not in str(refused):
                    raise
                return None

        dump = eventually("there is a thread for the call", dump_unless_refused)
        self.assertEqual("COMPLETE", dump.state)
        self.assertTrue(dump.resource.get("stored"))
        self.assertLess(600, len(dump.threads))
        self.assertEqual(0, daemon.stop())
        # gRPC 1.51 counts a timer thread that could not be made, and at its shutdown waits for the end of that one.
        self.assertRegex(daemon.log(), "stackd has stopped|stackd ends with work unfinished")


class StoreTest(StackdTest):

    @unittest.skipUnless(os.geteuid() == 0, "needs root to mount a disk that is too small")
    def test_full_disk_costs_the_stored_copy_and_not_the_dump(self):
        small = self.dir / "small"
        small.mkdir()
        daemon = self.start_daemon(store=small / "store.db", wrap=[
            "unshare", "--mount", "sh", "-ec", f'mount -t tmpfs -o size=512k none {small}; exec "$@"', "sh"])
        victim = self.start_victim("cpp_calls")
        daemon.await_process(victim.pid)

        def dump_that_was_not_stored():
            dump = daemon.ctl_json("dump", victim.pid)
            self.assertEqual("COMPLETE", dump["state"])
            self.assertTrue(dump["threads"])
            return None if dump.get("stored") else dump

        dump = eventually("the disk is full", dump_that_was_not_stored)
        self.assertTrue(any("store" in note for note in dump["notes"]), dump["notes"])
        # A person sees it, too, and the daemon knows that something is wrong with it.
        self.assertIn("store", daemon.ctl("dump", victim.pid).text)
        status = subprocess.run([grpcurl_test.GRPCURL, "-plaintext", "-d", "{}", f"127.0.0.1:{daemon.port}",
                                 "stackd.v1.Stackd/GetDaemon"], capture_output=True, text=True)
        self.assertTrue(json.loads(status.stdout).get("problems"), status.stdout)

    def test_corrupt_store_is_moved_aside(self):
        garbage = b"this was a database once\n" * 1000
        for what, damage in (("garbage", lambda path: path.write_bytes(garbage)),
                             ("a torn page", lambda path: self.tear(path))):
            with self.subTest(what), tempfile.TemporaryDirectory(prefix="stackd-e2e-") as directory:
                daemon = Daemon(directory)
                self.addCleanup(daemon.kill)
                if what != "garbage":
                    daemon.start()
                    victim = self.start_victim("waiting_threads", 3, directory=directory)
                    daemon.await_process(victim.pid)
                    daemon.dump(victim.pid)
                    daemon.stop()
                damage(daemon.store)
                damaged = daemon.store.read_bytes()
                daemon.start()
                aside = [path for path in daemon.dir.iterdir()
                         if path != daemon.store and path.name.startswith(daemon.store.name)
                         and path.is_file() and path.read_bytes() == damaged]
                self.assertEqual(1, len(aside), os.listdir(directory))
                eventually("the daemon says so", lambda: aside[0].name in daemon.log())
                victim = self.start_victim("waiting_threads", 3, directory=directory)
                daemon.await_process(victim.pid)
                dump = daemon.dump(victim.pid)
                self.assertTrue(dump.resource["stored"])
                daemon.stop()

    def tear(self, path):
        """As a disk loses writes: the header is whole, the pages behind it are not."""
        data = bytearray(path.read_bytes())
        data[100:4000] = bytes(3900)
        for offset in range(4096, len(data), 4096):
            data[offset:offset + 64] = b"\xff" * 64
        path.write_bytes(data)


if __name__ == "__main__":
    unittest.main()
