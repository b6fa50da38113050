"""An application and stackd's image beside it in a pod. Everything that stackd promises must hold where nothing is shared but one
volume, and where containers end, are killed and come back in any order.

tests/run.sh --all lets the sidecar be late by 30 seconds; it is 5 otherwise.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

import go_programs
import jdks
from harness import BIN, FAILURE, LIMIT_S, OK, ROOT, STACKCTL, eventually
from pod import APP_UID, HOST_IDS, MIB, SIDECAR_UID, VOLUME, PodTestCase, built_image, image, missing
from tier import FULL

APPS = pathlib.Path(__file__).resolve().parent / "apps"

KILLED = 128 + signal.SIGKILL
SEGFAULT = 128 + signal.SIGSEGV


def functions(dump):
    """All names of functions in a dump, those of goroutines too."""
    return {frame.get("function") for stack in dump.stacks for frame in stack.get("frames", [])}


class Application:
    """One of the programs in apps/: how it is started, and what is seen of it."""

    def __init__(self, name, *, stands_in, crashes_in, preload=True):
        self.name = name
        self.stands_in = stands_in
        self.crashes_in = crashes_in
        self.preload = preload

    def command(self, pod):
        """What to run in the container; None: it cannot be run on this machine."""
        return getattr(self, self.name)(pod)

    def cpp(self, pod):
        return [pod.program("crash_deaths"), "null_pointer", "thread", "told"]

    def python(self, pod):
        return ["/usr/bin/python3", pod.add_file(APPS / "app.py")]

    def java(self, pod):
        packaged = [jdk for jdk in jdks.found() if str(jdk.home).startswith("/usr/")]
        if not packaged or not jdks.tool("javac"):
            return None
        classes = pod.dir / "classes"
        classes.mkdir()
        subprocess.run([jdks.tool("javac"), "-nowarn", "--release", str(min(packaged[0].release, 17)), "-d", classes,
                        APPS / "App.java"], check=True, capture_output=True, timeout=LIMIT_S)
        return [packaged[0].java, "-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=/tmp/error.log", "-cp", pod.add_file(classes), "App"]

    def node(self, pod):
        return ["/usr/bin/node", pod.add_file(APPS / "app.js")] if os.access("/usr/bin/node", os.X_OK) else None

    def go(self, pod):
        if not go_programs.toolchains():
            return None
        go_programs.build(go_programs.toolchains()[-1][0], "pod", pod.programs / "goapp")
        return [pod.add_file(pod.programs / "goapp")]


APPLICATIONS = [
    Application("cpp", stands_in=None, crashes_in="null_pointer"),
    Application("python", stands_in="stands_still", crashes_in="read_at_null"),
    Application("java", stands_in="App.standsStill", crashes_in="App.writeNowhere"),
    Application("node", stands_in="standsStill", crashes_in="abortHere"),
    Application("go", stands_in="main.standStill", crashes_in="main.readAtNull", preload=False),
]


def prepare():
    if not missing():
        built_image()


PREPARE = [prepare]


class LanguagesTest(PodTestCase):

    def start(self, pod, application, **kwargs):
        command = application.command(pod)
        if command is None:
            self.skipTest(f"{application.name}: there is no such runtime in /usr here")
        kwargs = {"preload": application.preload, **kwargs}
        return pod.start_app(*command, ready="ready" if application.stands_in else None, stdin="", **kwargs)

    def status_without_stackd(self, application):
        """Not that of other processes: the first of a PID namespace ends by a real fault only, so that abort() becomes one."""
        app = self.start(self.make_pod(), application, preload=False, env={"STACKD_DISABLE": "1"})
        app.say("crash")
        return app.wait()

    def for_each(self, check):
        for application in APPLICATIONS:
            with self.subTest(application.name):
                pod = self.make_pod()
                pod.start_sidecar()
                check(pod, application, self.start(pod, application))

    def test_live_dump_has_the_names_of_the_language(self):

        def check(pod, application, app):
            process, = pod.await_processes()
            self.assertEqual(1, process["pid"])
            self.assertEqual(APP_UID, process["uid"])
            dump = pod.dump(process["name"])
            self.assertEqual("COMPLETE", dump.state, dump.notes)
            if application.stands_in:
                self.assertTrue(any(application.stands_in in (name or "") for name in functions(dump)), functions(dump))
            self.assertTrue(app.alive())

        self.for_each(check)

    def test_crash_is_kept_and_the_end_is_that_of_the_program(self):

        def check(pod, application, app):
            pod.await_processes()
            app.say("crash")
            self.assertEqual(self.status_without_stackd(application), app.wait(), app.output())
            crash, = pod.await_dumps("--crashes")
            dump = pod.whole(crash["name"])
            self.assertTrue(any(application.crashes_in in (name or "") for name in functions(dump)),
                            (functions(dump), dump.notes))

        self.for_each(check)


class RestrictionsTest(PodTestCase):
    """The others would prove nothing if one of the two had kept a right, a namespace or a way to write."""

    def status(self, container):
        text = pathlib.Path(f"/proc/{container.pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines())

    def test_neither_container_has_a_right(self):
        pod = self.make_pod()
        containers = {SIDECAR_UID: pod.start_sidecar(), APP_UID: pod.start_app(pod.program("demo_orders"))}
        pod.await_processes()
        for uid, container in containers.items():
            status = self.status(container)
            self.assertEqual("\t".join([str(uid)] * 4), status["Uid"])
            for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                self.assertEqual(0, int(status[kind], 16), kind)
            self.assertEqual(("1", "2"), (status["NoNewPrivs"], status["Seccomp"]))
        for namespace in ("pid", "mnt", "ipc", "uts", "net"):
            seen = {os.readlink(f"/proc/{pid}/ns/{namespace}") for pid in [*(c.pid for c in containers.values()), "self"]}
            self.assertEqual(3, len(seen), namespace)
        self.assertNotEqual(OK, containers[APP_UID].execute("/usr/bin/touch", "/app/x").code, "the root can be written to")
        self.assertEqual(256 * MIB, pod.sidecar.memory("limit"))

    def test_the_list_of_system_calls_is_in_force(self):
        app = self.make_pod().start_app("/usr/bin/python3", "-c", "print('ready', flush=True); input()", stdin="", preload=False)
        asked = app.execute("/usr/bin/unshare", "--user", "true")
        self.assertIn("Operation not permitted", asked.text)

    def test_containers_may_have_user_namespaces(self):
        """`hostUsers: false`: what is user 0 inside has no right outside."""
        pod = self.make_pod(user_namespaces=True)
        pod.start_sidecar()
        app = pod.start_app(*APPLICATIONS[1].command(pod), stdin="")
        process, = pod.await_processes()
        self.assertEqual(APP_UID, process["uid"])
        self.assertEqual(str(HOST_IDS + APP_UID), self.status(app)["Uid"].split()[0])
        self.assertEqual(3, len({os.readlink(f"/proc/{pid}/ns/user") for pid in (app.pid, pod.sidecar.pid, "self")}))
        dump = pod.dump(process["name"])
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        self.assertIn("stands_still", functions(dump))
        app.say("crash")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        crash, = pod.await_dumps("--crashes")
        self.assertIn("read_at_null", functions(pod.whole(crash["name"])))

    def test_root_and_the_daemons_user_in_another_container_may_nothing(self):
        """They can connect: the socket is in the volume that both have."""
        pod = self.make_pod()
        pod.start_sidecar("--log-format=json")
        stackctl = pod.add_file(STACKCTL)
        for name, uid, capabilities in (("same", SIDECAR_UID, []), ("root", 0, ["CAP_DAC_OVERRIDE"])):
            app = pod.start_app("/bin/sh", "-c", "echo ready; exec sleep 1000", name=name, uid=uid, capabilities=capabilities,
                                preload=False)
            for method, call in (("ListProcesses", ["ps"]), ("CreateDump", ["dump"])):
                refused = app.execute(stackctl, "--address", f"unix:{VOLUME}/api.sock", *call)
                self.assertEqual(FAILURE, refused.code, refused.text)
                self.assertIn(f"uid:{uid} in another container has the role none, and {method} needs", refused.err)
            audited = f'"caller":"uid:{uid} in another container","role":"none","method":"CreateDump"'
            eventually("it is audited", lambda: audited in pod.sidecar.output())
        # Others cannot even connect.
        app = pod.start_app("/bin/sh", "-c", "echo ready; exec sleep 1000", name="other", preload=False)
        self.assertIn("Permission denied", app.execute(stackctl, "--address", f"unix:{VOLUME}/api.sock", "ps").err)

    def test_a_pod_under_an_older_containerd_is_dumped_too(self):
        """Its filter lets no process read memory by process_vm_readv, not even its own."""
        pod = self.make_pod(old_containerd=True)
        pod.start_sidecar()
        app = pod.start_app(*APPLICATIONS[1].command(pod), stdin="")
        process, = pod.await_processes()
        dump = pod.dump(process["name"])
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        self.assertIn("stands_still", functions(dump))
        app.say("crash")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        crash, = pod.await_dumps("--crashes")
        self.assertIn("read_at_null", functions(pod.whole(crash["name"])))


class SidecarTest(PodTestCase):

    def test_hang_is_noticed(self):
        pod = self.make_pod()
        pod.start_sidecar()
        pod.start_app(pod.program("demo_orders"))
        hang, = pod.await_dumps("--hangs")
        dump = pod.whole(hang["name"])
        self.assertIn("orders::Transfer(orders::Order const&, bool)", functions(dump))
        self.assertIn("DEADLOCK", {finding.get("kind") for finding in dump.resource.get("findings", [])})

    def test_hangs_of_other_languages_are_noticed_by_a_heartbeat(self):
        """Neither knows who owns its locks, or it has none: a loop's promise, which the language's package makes."""
        for name, where, heartbeat, settings in (
                ("python", "lock_crosswise", "worker", {"PYTHONPATH": "/app"}),
                ("go", "main.lockCrosswise", "worker", {}),
                ("node", "waitsForNobody", "event loop", {"STACKD_EVENT_LOOP_MS": "500",
                                                          "NODE_OPTIONS": "--require /app/node-stackd/register.js"})):
            with self.subTest(name):
                application = next(application for application in APPLICATIONS if application.name == name)
                pod = self.make_pod()
                command = application.command(pod)
                if command is None:
                    self.skipTest(f"{name}: there is no such runtime in /usr here")
                if name == "python":
                    pod.add_file(ROOT / "agent/python/stackd")
                if name == "node":
                    self.add_node_package(pod)
                pod.start_sidecar()
                app = pod.start_app(*command, stdin="", preload=application.preload, env=settings)
                pod.await_processes()
                app.say("hang")
                hang = pod.await_dumps("--hangs")[0]
                self.assertEqual(("HEARTBEAT_MISSED", heartbeat), (hang["hang"]["cause"], hang["hang"].get("heartbeat")))
                dump = pod.whole(hang["name"])
                self.assertTrue(any(where in (function or "") for function in functions(dump)),
                                (functions(dump), dump.notes, dump.resource.get("threadCounts")))
                self.assertTrue(app.alive())

    def add_node_package(self, pod):
        if not (BIN / "agent/node/stackd.node").exists():
            self.skipTest("//agent/node:addon is not built")
        package = pod.programs / "node-stackd"
        package.mkdir()
        for file in (*ROOT.glob("agent/node/*.js*"), BIN / "agent/node/stackd.node"):
            shutil.copy(file, package)
        pod.add_file(package)

    def test_hang_of_java_is_explained(self):
        java = next(application for application in APPLICATIONS if application.name == "java")
        pod = self.make_pod()
        command = java.command(pod)
        if command is None:
            self.skipTest("there is no Java in /usr here")
        pod.start_sidecar()
        app = pod.start_app(*command, stdin="")
        process, = pod.await_processes()
        app.say("hang")

        def deadlock():
            dump = pod.dump(process["name"])
            return [finding for finding in dump.resource.get("findings", []) if finding.get("kind") == "DEADLOCK"]

        finding, = eventually("both threads have one lock", deadlock)
        self.assertIn("App.lockCrosswise", json.dumps(finding))

    def test_stays_small_beside_a_large_application(self):
        """What stackd has of an application is on the sidecar's account."""
        pod = self.make_pod()
        pod.start_sidecar()
        app = pod.start_app(pod.program("waiting_threads"), "200", memory_bytes=64 * MIB)
        process, = pod.await_processes()
        before = app.memory()
        for _ in range(5):
            self.assertEqual("COMPLETE", pod.dump(process["name"]).state)
        print(f"\n    200 threads, 5 dumps: application {before / MIB:.1f} MiB before, {app.memory() / MIB:.1f} MiB after; "
              f"sidecar {pod.sidecar.memory() / MIB:.1f} MiB, at most {pod.sidecar.memory('peak') / MIB:.1f} MiB", flush=True)
        self.assertLess(app.memory() - before, 4 * MIB)

    def test_restarted_sidecar_has_the_application_again(self):
        pod = self.make_pod()
        pod.start_sidecar()
        app = pod.start_app(pod.program("demo_orders"))
        process, = pod.await_processes()
        before = pod.dump(process["name"])
        for end in (pod.sidecar.kill, pod.sidecar.stop):
            end()
            pod.sidecar.wait()
            pod.restart_sidecar()
            again, = pod.await_processes(limit_s=10)
            self.assertEqual((process["pid"], process["name"]), (again["pid"], again["name"]))
            self.assertEqual("COMPLETE", pod.dump(again["name"]).state)
        self.assertIn(before.name, [dump["name"] for dump in pod.dumps()])
        self.assertTrue(app.alive())

    def test_late_sidecar_finds_everything(self):
        """An application that runs, and one that has crashed before there was ever a sidecar."""
        pod = self.make_pod()
        app = pod.start_app(pod.program("demo_orders"))
        crashed = pod.start_app(pod.program("crash_deaths"), "null_pointer", name="crashed", ready=None)
        self.assertEqual(SEGFAULT, crashed.wait(), crashed.output())
        time.sleep(30 if FULL else 5)
        started = time.monotonic()
        pod.start_sidecar()
        process, = pod.await_processes(limit_s=10)
        print(f"\n    registered {time.monotonic() - started:.1f} s after the sidecar's start", flush=True)
        self.assertEqual("COMPLETE", pod.dump(process["name"]).state)
        crash, = pod.await_dumps("--crashes")
        # Its files went with it, and no process had passed them on: there are places in modules, and no names.
        dump = pod.whole(crash["name"])
        self.assertIn("crash_deaths", {frame.get("module") for stack in dump.stacks for frame in stack.get("frames", [])})
        self.assertIn("null", dump.resource.get("crash", {}).get("explanation", ""), dump.resource.get("crash"))
        self.assertTrue(app.alive())

    def test_crashes_without_a_sidecar_are_taken_from_the_spool_once(self):
        pod = self.make_pod()
        pod.start_sidecar()
        app = pod.app(pod.program("crash_deaths"), "null_pointer", "told")
        app.start(None, stdin="")
        pod.await_processes()
        pod.sidecar.kill()
        pod.sidecar.wait()
        app.say("go")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        # A kubelet starts it again, and it has the same pid inside.
        app.delete()
        app.start(None, stdin="go\n")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        pod.restart_sidecar()
        crashes = pod.await_dumps("--crashes", count=2)
        self.assertEqual(2, len({dump["name"] for dump in crashes}))
        pod.restart_sidecar()
        pod.await_spool_read()
        self.assertEqual(2, len(pod.dumps("--crashes")))

    def test_killed_for_its_memory_it_comes_back_and_the_application_has_not_noticed(self):
        pod = self.make_pod()
        # As a kubelet's oom_score_adj, which is higher for containers that may burst.
        pod.start_sidecar(memory_bytes=64 * MIB, oom_score_adj=1000)
        app = pod.start_app(pod.program("demo_orders"))
        pod.await_processes()
        with self.memory_hog(pod.sidecar):
            self.assertEqual(KILLED, pod.sidecar.wait())
        self.assertTrue(app.alive())
        pod.restart_sidecar()
        process, = pod.await_processes(limit_s=10)
        self.assertEqual("COMPLETE", pod.dump(process["name"]).state)

    @contextlib.contextmanager
    def memory_hog(self, container):
        """A process that wants more memory than the container has, and is the last that the kernel would kill."""
        code = ("import sys, time\nsys.stdin.readline()\nkept = []\n"
                "while True: kept.append(bytearray(b'x' * 1048576)); time.sleep(0.002)\n")
        hog = subprocess.Popen(["/usr/bin/python3", "-c", code], stdin=subprocess.PIPE)
        try:
            pathlib.Path(f"/proc/{hog.pid}/oom_score_adj").write_text("0")
            container.join_cgroup(hog.pid)
            hog.stdin.write(b"go\n")
            hog.stdin.flush()
            yield
        finally:
            hog.kill()
            hog.wait()
            hog.stdin.close()


class ApplicationTest(PodTestCase):

    def test_restarted_with_the_same_pid_it_is_another_process(self):
        pod = self.make_pod()
        pod.start_sidecar()
        app = pod.start_app(pod.program("demo_orders"))
        first, = pod.await_processes()
        app.kill()
        self.assertEqual(KILLED, app.wait())
        eventually("its end is noticed", lambda: not pod.processes())
        app.delete()
        app.start("ready")
        second, = pod.await_processes()
        self.assertEqual((1, 1), (first["pid"], second["pid"]))
        self.assertNotEqual(first["name"], second["name"])
        self.assertEqual("COMPLETE", pod.dump(second["name"]).state)

    def test_killed_for_its_memory_it_leaves_the_sidecar_as_it_was(self):
        pod = self.make_pod()
        pod.start_sidecar()
        app = pod.app(*APPLICATIONS[1].command(pod), memory_bytes=64 * MIB)
        app.start("ready", stdin="")
        first, = pod.await_processes()
        self.assertEqual("COMPLETE", pod.dump(first["name"]).state)
        app.say("fill")
        self.assertEqual(KILLED, app.wait())
        eventually("its end is noticed", lambda: not pod.processes())
        app.delete()
        app.start("ready", stdin="")
        second, = pod.await_processes()
        self.assertEqual("COMPLETE", pod.dump(second["name"]).state)

    def test_at_its_memory_limit_it_can_be_dumped_and_its_crash_is_kept(self):
        """The kernel has no page left for it, and takes none for stackd."""
        pod = self.make_pod()
        pod.start_sidecar()
        app = pod.app(pod.program("crash_deaths"), "null_pointer", "thread", "told", memory_bytes=32 * MIB)
        app.start(None, stdin="")
        process, = pod.await_processes()
        with self.full(app):
            self.assertEqual("COMPLETE", pod.dump(process["name"]).state)
            # Some may have been taken back from files meanwhile.
            self.assertGreater(app.memory(), app.memory("limit") - 2 * MIB)
            app.say("go")
            self.assertEqual(SEGFAULT, app.wait(), app.output())
        crash, = pod.await_dumps("--crashes")
        self.assertIn("null_pointer", functions(pod.whole(crash["name"])))

    @contextlib.contextmanager
    def full(self, container):
        """A process takes what the container has left of its memory, but for some pages, and stays."""
        code = ("import sys, mmap\nkept = mmap.mmap(-1, int(sys.argv[1]))\n"
                "for start in range(0, len(kept), 65536):\n"
                "    sys.stdin.readline()\n    kept[start : start + 65536] = bytes(65536)\n    print(flush=True)\n"
                "sys.stdin.readline()\n")
        limit = container.memory("limit")
        hog = subprocess.Popen(["/usr/bin/python3", "-c", code, str(limit)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            container.join_cgroup(hog.pid)
            while container.memory() < limit - MIB:
                hog.stdin.write(b"\n")
                hog.stdin.flush()
                self.assertEqual(b"\n", hog.stdout.readline())
            yield
        finally:
            hog.kill()
            hog.wait()
            hog.stdin.close()
            hog.stdout.close()


class FullVolumeTest(PodTestCase):

    def fill(self, pod):
        """By the application, which may write there."""
        with contextlib.suppress(OSError), open(pod.volume / "ballast", "wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(65536))
        self.assertEqual(0, os.statvfs(pod.volume).f_bfree)

    def test_dumps_and_crashes_do_not_need_its_room(self):
        pod = self.make_pod(volume_bytes=4 * MIB)
        pod.start_sidecar()
        self.fill(pod)
        app = pod.start_app(pod.program("crash_deaths"), "null_pointer", "told", ready=None, stdin="")
        process, = pod.await_processes()
        self.assertEqual("COMPLETE", pod.dump(process["name"]).state)
        app.say("go")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        pod.await_dumps("--crashes")

    def test_sidecar_starts_on_it(self):
        pod = self.make_pod(volume_bytes=4 * MIB)
        self.fill(pod)
        pod.start_sidecar()
        pod.start_app(pod.program("demo_orders"))
        process, = pod.await_processes()
        self.assertEqual("COMPLETE", pod.dump(process["name"]).state)

    def test_a_crash_that_can_be_kept_nowhere_ends_in_time(self):
        pod = self.make_pod(volume_bytes=4 * MIB)
        self.fill(pod)
        started = time.monotonic()
        app = pod.start_app(pod.program("crash_deaths"), "null_pointer", ready=None)
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        self.assertLess(time.monotonic() - started, 5)
        # And half a record is none.
        pod.start_sidecar()
        (pod.volume / "ballast").unlink()
        pod.await_spool_read()
        self.assertEqual([], pod.dumps("--crashes"))


@unittest.skipUnless(shutil.which("crun"), "crun is missing: deploy/install-deps.sh --tests installs it")
class CrunTest(PodTestCase):
    """The other runtime that clusters have, which is C, and makes namespaces and cgroups in its own way."""

    runtime = "crun"
    status = RestrictionsTest.status
    start = LanguagesTest.start
    status_without_stackd = LanguagesTest.status_without_stackd
    for_each = LanguagesTest.for_each
    memory_hog = SidecarTest.memory_hog

    test_neither_container_has_a_right = RestrictionsTest.test_neither_container_has_a_right
    test_the_list_of_system_calls_is_in_force = RestrictionsTest.test_the_list_of_system_calls_is_in_force
    test_live_dump = LanguagesTest.test_live_dump_has_the_names_of_the_language
    test_crash = LanguagesTest.test_crash_is_kept_and_the_end_is_that_of_the_program
    test_hang_is_noticed = SidecarTest.test_hang_is_noticed
    test_restarted_sidecar = SidecarTest.test_restarted_sidecar_has_the_application_again
    test_crashes_without_a_sidecar = SidecarTest.test_crashes_without_a_sidecar_are_taken_from_the_spool_once
    test_sidecar_killed_for_its_memory = SidecarTest.test_killed_for_its_memory_it_comes_back_and_the_application_has_not_noticed
    test_application_killed_for_its_memory = ApplicationTest.test_killed_for_its_memory_it_leaves_the_sidecar_as_it_was


if __name__ == "__main__":
    image()
    unittest.main()
