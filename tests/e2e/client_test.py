"""stackctl as an operator has it: a screen that lives, names by pod and workload, trees, and what a finding means."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios

from harness import (CANNOT_CONNECT, NOT_FOUND, OK, STACKCTL, USAGE, StackdTest, die_with_parent, eventually)

# A process and two children, which end with it.
PREFORK = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        break
else:
    print("ready", flush=True)
while True:
    time.sleep(3600)
"""
LINES, COLUMNS = 24, 100
DOWN, ENTER = b"\x1b[B", b"\r"
# The alternate screen is left, and the cursor is there again.
GIVEN_BACK = b"\x1b[?25h\x1b[?1049l"


class Screen:
    """stackctl in a terminal of its own. It draws from the upper left corner, so that what comes after the last such order is
    the screen."""

    def __init__(self, daemon, *args):
        self.fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.settings = termios.tcgetattr(other)
        self.other = other
        environment = dict(os.environ, TERM="xterm")
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen([STACKCTL, "--address", daemon.address, *args], stdin=other, stdout=other, stderr=other,
                                        env=environment, start_new_session=True, preexec_fn=die_with_parent)
        self.output = b""

    def read(self):
        while select.select([self.fd], [], [], 0)[0]:
            chunk = os.read(self.fd, 65536)
            if not chunk:
                return
            self.output += chunk

    @property
    def lines(self):
        """Without colours."""
        self.read()
        frame = self.output.rsplit(b"\x1b[H", 1)[-1]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame.decode(errors="replace")).split("\r\n")

    @property
    def text(self):
        return "\n".join(self.lines)

    def press(self, *keys):
        for key in keys:
            os.write(self.fd, key)

    def await_text(self, what):
        def shown():
            text = self.text
            return text if re.search(what, text) else None

        try:
            return eventually(f"the screen shows {what}", shown)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def end(self):
        """The exit code, when it has ended by itself; the terminal is as it was."""

        def ended():
            self.read()
            return self.process.poll() is not None

        eventually("stackctl has ended", ended)
        self.read()
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)
        os.close(self.other)


class ClientTest(StackdTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_daemon()

    def start(self, program, *args, **kwargs):
        victim = self.start_victim(program, *args, **kwargs)
        self.daemon.await_process(victim.pid)
        return victim

    def start_in_pod(self, pod, container, workload):
        return self.start("progress", "idle", env={"POD_NAME": pod, "STACKD_CONTAINER_NAME": container,
                                                   "OTEL_SERVICE_NAME": workload})

    def screen(self, *args):
        screen = Screen(self.daemon, *args)
        self.addCleanup(screen.close)
        return screen

    def assert_given_back(self, screen):
        self.assertTrue(screen.output.endswith(GIVEN_BACK), screen.output[-200:])
        self.assertEqual(termios.tcgetattr(screen.other), screen.settings)

    def test_top_shows_what_hangs_first_and_takes_a_dump(self):
        busy = self.start("progress", "spin")
        stuck = self.start("progress", "deadlock")
        screen = self.screen("top", "--every", "200ms")
        screen.await_text(rf"hung +{stuck.pid} ")
        rows = [line.split() for line in screen.lines]
        pids = [int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()]
        self.assertEqual(pids, [stuck.pid, busy.pid], screen.text)
        screen.press(ENTER)
        screen.await_text("wait for each other in a circle")
        screen.await_text("q goes back")
        screen.press(b"q")
        screen.await_text("Enter takes a dump")
        screen.press(b"q")
        self.assertEqual(screen.end(), OK)
        self.assert_given_back(screen)

    def test_top_outlives_the_daemon(self):
        victim = self.start("progress", "idle")
        screen = self.screen("top", "--every", "200ms")
        screen.await_text(f" {victim.pid} ")
        self.daemon.kill()
        screen.await_text("cannot connect to unix:")
        self.assertIn(f" {victim.pid} ", screen.text, "what was known last stays")
        self.daemon.start()
        eventually("the daemon is there again", lambda: "cannot connect" not in screen.text)
        screen.await_text(f" {victim.pid} ")
        screen.process.terminate()
        screen.end()
        self.assert_given_back(screen)

    def test_top_is_printed_once_without_a_terminal(self):
        victim = self.start("progress", "idle")
        top = self.daemon.ctl("top")
        self.assertEqual(top.code, OK, top.err)
        self.assertIn("1 process: ", top.out)
        self.assertIn(f" {victim.pid} ", top.out)
        self.assertNotIn("\x1b", top.out)
        cpu = self.daemon.ctl_json("top")["processes"][0]["cpuTime"]
        self.assertRegex(cpu, r"^[0-9.]+s$")
        self.daemon.kill()
        self.assertEqual(self.daemon.ctl("top").code, CANNOT_CONNECT)

    def test_a_name_that_a_terminal_would_obey_does_no_harm(self):
        self.start("progress", "idle", env={"OTEL_SERVICE_NAME": "a\x1b]0;owned\x07\u202eb",
                                            "POD_NAME": "p\x1b[2J", "STACKD_CONTAINER_NAME": "c\x1b[31m"})
        for command in (["top", "--once"], ["ps", "-w"]):
            out = self.daemon.ctl(*command).out
            self.assertNotIn("\x1b", out)
            self.assertNotIn("\u202e", out)
        screen = self.screen("top")
        screen.await_text("idle|progress")
        self.assertNotIn(b"owned\x07", screen.output)

    def test_processes_are_named_by_pod_and_workload(self):
        app = self.start_in_pod("checkout-5d8f", "app", "checkout")
        proxy = self.start_in_pod("checkout-5d8f", "proxy", "checkout")
        wide = self.daemon.ctl("ps", "-w").out
        self.assertRegex(wide, rf"(?m)^{app.pid} +progress +{os.getpid()} +checkout +checkout-5d8f +app ")
        for name in ("checkout/app", "checkout-5d8f/app", "app"):
            self.assertEqual(self.daemon.dump(name).resource["process"]["pid"], app.pid, name)
        ambiguous = self.daemon.ctl("dump", "checkout")
        self.assertEqual(ambiguous.code, USAGE)
        self.assertEqual(len(ambiguous.err.splitlines()), 1, ambiguous.err)
        self.assertIn("(checkout-5d8f/app: progress)", ambiguous.err)
        self.assertIn("(checkout-5d8f/proxy: progress)", ambiguous.err)
        self.assertEqual(self.daemon.ctl("dump", "checkout/nginx").code, NOT_FOUND)
        proxy.kill()
        self.assertEqual(eventually("one is left", lambda: self.daemon.ctl("dump", "checkout").code == OK), True)

    def test_ps_goes_on_with_what_changes(self):
        first = self.start("progress", "idle")
        watch = subprocess.Popen([STACKCTL, "--address", self.daemon.address, "ps", "--watch"], stdout=subprocess.PIPE,
                                 text=True, preexec_fn=die_with_parent)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)

        def line_with(*words):
            for line in watch.stdout:
                if all(word in line for word in words):
                    return line
            raise AssertionError(f"stackctl ended before it said {words}")

        line_with(f"processes/{first.pid}-")
        second = self.start("progress", "idle")
        line_with("came", f"processes/{second.pid}-")
        second.kill()
        line_with("gone", f"processes/{second.pid}-")

    def test_a_tree_is_one_dump(self):
        root = self.start_victim("/usr/bin/python3", "-c", PREFORK)
        other = self.start("progress", "idle")

        def children():
            return [process for process in self.daemon.processes() if process.get("parentPid") == root.pid]

        eventually("both children are registered", lambda: len(children()) == 2)
        dump = self.daemon.ctl("dump", "--tree", root.pid)
        self.assertEqual(dump.code, OK, dump.err)
        lines = dump.out.splitlines()
        self.assertRegex(lines[0], rf"^\S+ \(pid {root.pid}\): ")
        self.assertEqual({int(re.match(r"  \S+ \(pid (\d+)\): ", line)[1]) for line in lines[1:3]},
                         {child["pid"] for child in children()})
        self.assertNotIn(f"pid {other.pid}", dump.out)
        whole = json.loads(self.daemon.ctl("dump", "--tree", root.pid, "-o", "json").out)
        self.assertEqual(whole["dumps"][0]["process"]["pid"], root.pid)
        self.assertEqual(len(whole["dumps"]), 3)
        self.assertEqual(self.daemon.ctl("dump", "--tree", "nothing").code, NOT_FOUND)

    def test_findings_of_a_tree_come_first(self):
        victim = self.start("progress", "deadlock")
        dump = self.daemon.ctl("dump", "--tree", victim.pid)
        self.assertEqual(dump.code, OK, dump.err)
        self.assertRegex(dump.out.split("\n== ")[0], rf"HANG DEADLOCK in progress \(pid {victim.pid}\): ")

    def test_a_list_ends_where_it_is_told(self):
        victim = self.start("progress", "idle")
        names = [self.daemon.dump(victim.pid).name for _ in range(3)]
        listed = [line.split()[-1] for line in self.daemon.ctl("list", "--limit", "2").out.splitlines()[1:]]
        self.assertEqual(listed, names[:0:-1])
        self.assertEqual(len(self.daemon.ctl_json("list", "--since", "10m")["dumps"]), 3)
        # The last of them is older by then.
        eventually("nothing is newer", lambda: self.daemon.ctl_json("list", "--since", "1ms") == {})
        self.assertEqual(self.daemon.ctl("list", "--since", "yesterday").code, USAGE)
        self.assertEqual(self.daemon.ctl("list", "--limit", "0").code, USAGE)

    def test_a_finding_is_explained_without_a_daemon(self):
        self.daemon.kill()
        explained = self.daemon.ctl("explain", "self-deadlock")
        self.assertEqual(explained.code, OK, explained.err)
        self.assertIn("Certain: ", explained.out)
        self.assertIn("Next: ", explained.out)
        self.assertIn("STARVED_POOL", self.daemon.ctl("explain").out)
        unknown = self.daemon.ctl("explain", "DEADLOK")
        self.assertEqual(unknown.code, NOT_FOUND)
        self.assertIn("did you mean DEADLOCK?", unknown.err)

    def test_help_is_that_of_the_command(self):
        for command in ("dump", "top", "explain"):
            told = self.daemon.ctl("help", command)
            self.assertEqual(told.code, OK)
            self.assertEqual(told.out, self.daemon.ctl(command, "--help").out)
            self.assertIn("Examples:", told.out)
        self.assertEqual(self.daemon.ctl("help").out, self.daemon.ctl("--help").out)
        self.assertEqual(self.daemon.ctl("help", "nothing").code, USAGE)
