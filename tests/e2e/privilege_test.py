"""No privilege: the process and the daemon share one directory and nothing else, and neither may do anything special.

The process: own PID and mount namespace, own user, no capability, its program on a tmpfs that only it can see. The daemon:
other namespaces, another user, no capability. The dump is the same as without all that, names, files and lines included.
"""

import contextlib
import os
import pathlib
import shutil
import unittest

from harness import AGENT, PROGRAMS, STACKD, Daemon, StackdTest, Victim, eventually, thread_names

PROCESS_UID, DAEMON_UID = 20001, 20002

# Runs its arguments without any right, in namespaces of its own.
POWERLESS = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--clear-groups"]


def contained(uid, *namespaces, setup="true"):
    """A prefix for a command: new PID, mount, IPC and UTS namespaces and those named, `setup` (shell) in them, then `uid`."""
    return ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--ipc", "--uts", *namespaces, "sh",
            "-ec", f'{setup}\nexec setpriv --reuid={uid} --regid={uid} {" ".join(POWERLESS)} -- "$@"', "sh"]


def running(program, uid):
    """/proc/PID of the process of this user that runs `program`."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.path.basename(os.readlink(entry / "exe")) == program:
                if os.stat(entry).st_uid == uid:
                    return entry
    raise AssertionError(f"{program} does not run as {uid}")


@unittest.skipUnless(os.geteuid() == 0, "needs root to make the namespaces that take every right away")
class PrivilegeTest(StackdTest):

    def setUp(self):
        super().setUp()
        # The build's own folder may be closed to other users.
        self.image = self.dir / "image"
        self.shared = self.dir / "shared"
        self.image.mkdir()
        self.shared.mkdir()
        for path in (STACKD, AGENT):
            shutil.copy(path, self.image)
        os.chmod(self.dir, 0o711)
        os.chmod(self.shared, 0o711)
        os.chown(self.shared, DAEMON_UID, DAEMON_UID)
        for path in self.image.iterdir():
            os.chmod(path, 0o755)
        os.chmod(self.image, 0o755)

    def plain_functions(self):
        """Per thread name, the frames of a dump without any of this."""
        folder = self.dir / "plain"
        folder.mkdir()
        daemon = self.start_daemon(folder)
        victim = self.start_victim("cpp_calls", directory=folder)
        daemon.await_process(victim.pid)
        frames = self.frames_by_name(daemon.dump(victim.pid))
        victim.kill()
        daemon.kill()
        return frames

    def frames_by_name(self, dump):
        """What a stack says, without addresses, which differ from run to run."""
        wanted = ("function", "file", "line", "module", "origin")
        # The main thread and the one of std::thread share a name.
        return sorted((thread.get("name"), [[frame.get(key) for key in wanted] for frame in dump.frames(tid)])
                      for tid, thread in dump.threads.items() if thread.get("name") != "stackd-agent")

    def test_dump_is_the_same_across_namespaces_and_users(self):
        expected = self.plain_functions()

        # Root of other namespaces, which asks here, has no role unless it is named.
        access = self.image / "access.yaml"
        access.write_text("access: [{uid: 0, role: dump}]\n")
        daemon = Daemon(self.shared, wrap=contained(DAEMON_UID), stackd=self.image / STACKD.name,
                        extra_args=["--access", access])
        self.addCleanup(daemon.kill)
        daemon.start()

        # A program that exists in no other mount namespace than its own.
        private = self.image / "private"
        private.mkdir()
        setup = f"mount -t tmpfs none {private}; cp {PROGRAMS}/cpp_calls {private}; chmod -R a+rX {private}"
        victim = Victim([private / "cpp_calls"], directory=self.shared, wrap=contained(PROCESS_UID, "--net", setup=setup),
                        agent=self.image / AGENT.name)
        self.addCleanup(victim.kill)
        self.assertFalse(list(private.iterdir()), "the program must not be seen from here")

        process, = eventually("it is registered", daemon.processes)
        self.assertEqual(PROCESS_UID, process["uid"])
        self.assert_powerless()
        dump = daemon.dump(process["name"])
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        # A thread that has just said that it is there may not be back from write().
        eventually("its frames are those of one that is dumped from here",
                   lambda: expected == self.frames_by_name(daemon.dump(process["name"])))

    def assert_powerless(self):
        """The test itself would prove nothing if one of the two had kept a right or a namespace."""
        stackd, program = running("stackd", DAEMON_UID), running("cpp_calls", PROCESS_UID)
        for process, uid in ((stackd, DAEMON_UID), (program, PROCESS_UID)):
            status = (process / "status").read_text()
            for line in (f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
                         "NoNewPrivs:\t1"):
                self.assertIn(line, status)
        for namespace in ("pid", "mnt"):
            seen = {os.readlink(process / "ns" / namespace) for process in (stackd, program, pathlib.Path("/proc/self"))}
            self.assertEqual(3, len(seen), namespace)


if __name__ == "__main__":
    unittest.main()

class SetuidTest(StackdTest):
    def start_as_nobody(self, program, *arguments):
        return self.start_victim("/usr/bin/setpriv", f"--reuid={PROCESS_UID}", f"--regid={PROCESS_UID}", "--clear-groups", program,
                                 *arguments, preload=False)

    def test_a_program_with_more_rights_than_its_caller_has_no_agent(self):
        daemon = self.start_daemon()
        self.dir.chmod(0o755)
        program = self.dir / "static_pie"
        shutil.copy(PROGRAMS / "static_pie", program)
        program.chmod(0o755)
        plain = self.start_as_nobody(program)
        daemon.await_process(plain.pid)

        program.chmod(0o4755)
        raised = self.start_as_nobody(program, "not-installed")
        effective_uid = pathlib.Path(f"/proc/{raised.pid}/status").read_text().split("Uid:")[1].split()[1]
        self.assertEqual("0", effective_uid, "setuid is not honoured here")
        self.assertIn("stackd-agent", thread_names(plain.pid).values())
        self.assertNotIn("stackd-agent", thread_names(raised.pid).values())
