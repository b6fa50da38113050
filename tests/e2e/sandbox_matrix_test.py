"""Programs that change what they may do, and programs that live where little is allowed. They have the same end, output and
privileges with the agent as without it. That holds where no daemon is, where one is, and while they are dumped ten times a second.

Privileges are those of all threads of all processes, compared while the program waits: user, groups, capabilities, seccomp. The
agent's own thread may have fewer than the program's, never more.
"""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import PROGRAMS, ROOT, eventually
from side_by_side import ALONE, DAEMON, NO_DAEMON, SideBySideTest

NOBODY = 65534
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"
PLAYWRIGHT = """
const { chromium } = require('playwright-core');
(async () => {
  const browser = await chromium.launch({ executablePath: process.argv[2] });
  const page = await browser.newPage();
  await page.setContent(`<button onclick="this.textContent = 'six times seven is ' + 6 * 7">?</button>`);
  await page.click('button');
  console.log('ready');
  process.stdin.once('data', async (line) => {
    console.log(line.toString().trim() + ': ' + (await page.textContent('button')));
    await browser.close();
    process.exit(0);
  });
})();
"""

# What is run by a program that changes privileges: it waits for a line, as long as the test looks at it.
SHELL = ["sh", "-c", 'echo ready; read answer; echo "$answer $(id -u) $(id -g)"; exit 7']


def answer(run):
    """The part of the one who types into SHELL."""
    run.await_text("ready\n")
    run.hold_still()
    run.send("hello\n")


def need_user_namespaces(test):
    test.need("unshare")
    if subprocess.run(["setpriv", f"--reuid={NOBODY}", "--clear-groups", "unshare", "-Ur", "true"], check=False).returncode != 0:
        test.skipTest("a user may not make a user namespace here")


class PrivilegesTest(SideBySideTest):
    """Programs that run another one with other privileges."""

    def waits_in(self, *wrapper, dumped=True, during=answer):
        self.need(wrapper[0])
        end = self.side_by_side([*wrapper, *SHELL], during=during, dumped=dumped)
        self.assertIn("hello", end.out, end)
        self.assertEqual(7, end.status, end)
        return end

    def test_setpriv_clear_groups(self):
        self.waits_in("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

    def test_setpriv_init_groups(self):
        self.waits_in("setpriv", "--reuid=nobody", "--regid=nogroup", "--init-groups")

    def test_setpriv_no_new_privs(self):
        self.waits_in("setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")

    def test_setpriv_keeps_a_capability(self):
        self.waits_in("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=+net_bind_service",
                      "--ambient-caps=+net_bind_service")

    def test_capsh_user(self):
        self.capsh("--user=nobody")

    def test_capsh_drop(self):
        self.capsh("--drop=cap_net_raw,cap_sys_admin", "--secbits=0x2f")

    def capsh(self, *options):
        self.need("capsh")
        end = self.side_by_side(["capsh", *options, "--", *SHELL[1:]], during=answer, dumped=True)
        self.assertEqual(7, end.status, end)

    def test_runuser(self):
        self.waits_in("runuser", "-u", "nobody", "--")

    def test_su(self):
        self.need("su")
        end = self.side_by_side(["su", "-s", "/bin/sh", "-c", SHELL[2], "nobody"], during=answer, dumped=True)
        self.assertEqual(7, end.status, end)

    def test_start_stop_daemon(self):
        self.need("start-stop-daemon")
        end = self.side_by_side(["start-stop-daemon", "--start", "--chuid", "nobody:nogroup", "--exec", "/bin/sh", "--pidfile",
                                 self.work / "none", "--", *SHELL[1:]], during=answer, dumped=True)
        self.assertEqual(7, end.status, end)

    def test_chroot_userspec(self):
        self.waits_in("chroot", "--userspec=nobody:nogroup", "/")

    def test_unshare(self):
        need_user_namespaces(self)
        self.waits_in("unshare", "-Urpf")

    def test_unshare_as_a_user(self):
        need_user_namespaces(self)
        self.waits_in("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "unshare", "-Ur")

    def test_nsenter(self):
        self.need("unshare", "nsenter")
        holder = subprocess.Popen(["unshare", "-mun", "sleep", "600"], stdin=subprocess.DEVNULL)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        eventually("it has namespaces of its own", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") !=
                   os.readlink("/proc/self/ns/net"))
        self.waits_in("nsenter", "-t", holder.pid, "-n", "-u")

    def test_bubblewrap(self):
        self.need("bwrap")
        need_user_namespaces(self)
        end = self.side_by_side(["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all",
                                 "--die-with-parent", *SHELL], during=answer)
        self.assertEqual(7, end.status, end)

    def test_bubblewrap_as_a_user(self):
        self.need("bwrap")
        need_user_namespaces(self)
        end = self.side_by_side(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "bwrap", "--ro-bind", "/",
                                 "/", "--dev", "/dev", "--unshare-user", "--unshare-ipc", *SHELL], during=answer)
        self.assertEqual(7, end.status, end)

    def test_firejail(self):
        self.need("firejail")
        self.tidy = lambda text: re.sub(r"\d+(\.\d+)? ms|[Pp]id \d+|child process, pid \d+", "N", text)
        end = self.side_by_side(["firejail", "--noprofile", "--quiet", "--seccomp", "--caps.drop=all", "--nonewprivs", *SHELL],
                                during=answer)
        self.assertEqual(7, end.status, end)


class SandboxTest(SideBySideTest):
    """Programs that put a sandbox on themselves."""

    def compiled(self, name):
        program = self.dir / name
        subprocess.run(["cc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-pthread", ROOT / "tests/programs" / f"{name}.c", "-o",
                        program, "-lseccomp"], check=True)
        return program

    def waits(self, program, *arguments):
        end = self.side_by_side([program, *arguments], during=answer)
        if end.status == 77:
            self.skipTest("this kernel has no Landlock")
        self.assertEqual(7, end.status, end)

    def test_allow_list_that_kills(self):
        self.waits(self.compiled("seccomp_allow_list"), "kill")

    def test_allow_list_that_kills_for_all_threads(self):
        self.waits(self.compiled("seccomp_allow_list"), "kill", "tsync")

    def test_allow_list_that_refuses(self):
        self.waits(self.compiled("seccomp_allow_list"), "errno")

    def test_allow_list_that_refuses_for_all_threads(self):
        self.waits(self.compiled("seccomp_allow_list"), "errno", "tsync")

    def test_one_filter_after_another(self):
        self.waits(self.compiled("seccomp_twice"))

    def under_a_services_filter(self, action):
        """Runs a command that needs none of the refused calls. It is dumped, and its threads where it has some."""
        wrapper = self.compiled("seccomp_wrapper")
        end = self.side_by_side([wrapper, action, "sh", "-c", 'echo ready; read answer; echo "$answer"; exit 7'], during=answer,
                                dumped=True)
        self.assertEqual((7, "ready\nhello\n"), (end.status, end.out), end)

    def test_filter_of_a_service_that_kills(self):
        self.under_a_services_filter("kill")

    def test_filter_of_a_service_that_refuses(self):
        self.under_a_services_filter("errno")

    def test_broker(self):
        self.waits(self.compiled("seccomp_broker"))

    def test_strict_mode(self):
        self.run_limit_s = 30
        self.waits(PROGRAMS / "seccomp_strict")

    def test_landlock(self):
        self.waits(PROGRAMS / "landlock")

    def test_user_of_each_thread(self):
        self.waits(PROGRAMS / "uid_per_thread")

    def test_file(self):
        self.need("file")
        end = self.side_by_side(["file", "/bin/sh", "/etc/passwd", "/usr/share/zoneinfo/UTC"])
        self.assertEqual(0, end.status, end)

    def browse(self, *wrapper, options=()):
        """What it says of what it misses on this machine is not compared: that comes in any order, and more or less of it. Nor is
        it dumped: its first process must have one thread at a moment of its start (README.md, "What it cannot do")."""
        self.kinds = (ALONE, NO_DAEMON, DAEMON)
        self.need("chromium")
        page = self.dir / "page.html"
        page.write_text("<body><script>document.body.textContent = 'six times seven is ' + 6 * 7</script></body>")

        def prepare():
            self.work.chmod(0o777)

        end = self.side_by_side(["sh", "-c", 'exec "$@" 2>"$HOME/said"', "sh", *wrapper, "chromium", "--headless", "--disable-gpu",
                                 "--disable-dev-shm-usage", f"--user-data-dir={self.work}/profile", *options, "--dump-dom",
                                 f"file://{page}"], prepare=prepare)
        self.assertEqual(0, end.status, end)
        self.assertIn("six times seven is 42", end.out)

    def test_chromium(self):
        self.browse(options=["--no-sandbox"])

    def test_chromium_in_its_sandbox(self):
        need_user_namespaces(self)
        self.browse("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

    def test_chromium_through_playwright(self):
        """It speaks to the browser by fds 3 and 4, and waits while the page is there. Not dumped, as above."""
        self.kinds = (ALONE, NO_DAEMON, DAEMON)
        self.need("node", "chromium")
        modules = CACHE / "speedscope/node_modules"
        if not modules.is_dir():
            self.skipTest("no playwright-core: deploy/install-deps.sh --tests installs it")
        program = self.dir / "page.js"
        program.write_text(PLAYWRIGHT)
        self.environment["NODE_PATH"] = str(modules)
        end = self.side_by_side(["node", program, shutil.which("chromium")], during=answer)
        self.assertEqual((0, "ready\nhello: six times seven is 42\n"), (end.status, end.out), end)

    def test_firefox(self):
        """A picture of a page. What it says of what it misses on this machine is not compared."""
        self.need("firefox-esr")
        page = self.dir / "page.html"
        page.write_text("<body><script>document.body.textContent = 'six times seven is ' + 6 * 7</script></body>")

        def prepare():
            (self.work / "profile").mkdir()

        end = self.side_by_side(["sh", "-c", 'firefox-esr --headless --no-remote --profile profile --window-size=300,200 '
                                 f'--screenshot "$PWD/page.png" "file://{page}" >said 2>&1; echo $?; sha256sum page.png'],
                                prepare=prepare, dumped=True)
        self.assertRegex(end.out, r"^0\n[0-9a-f]{64}  page.png\n$")

    def test_man(self):
        self.need("man", "groff")
        page = ".TH PAGE 1\n.SH NAME\npage \\- made for a test\n"
        end = self.side_by_side(["man", "-l", self.work / "page.1"], prepare=lambda: (self.work / "page.1").write_text(page))
        self.assertEqual(0, end.status, end)
        self.assertIn("made for a test", end.out)


if __name__ == "__main__":
    unittest.main()
