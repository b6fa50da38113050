"""A pod as a kubelet makes one, by runc or crun: a sidecar from our image and an application beside it, which share one volume.

Each container has its own PID, mount, IPC, UTS and network namespace, and a user of its own. It has no capability, NoNewPrivileges,
containerd's list of system calls, a read-only root and a memory limit. What they share is a tmpfs with a size limit, as an emptyDir
of medium Memory is.

The list, runtime_default.json, is that of contrib/seccomp/seccomp_default.go in containerd 2.0 and 2.1, for x86-64 without
capabilities. It was read from the releases as the Go module proxy has them. 1.7.27 allows io_uring as well. 1.7.0 lacks cachestat,
fchmodat2, futex_requeue, futex_wait, futex_wake, map_shadow_stack and name_to_handle_at. 2.2 and 2.4 add getxattrat and its three
siblings, statmount, listmount, mseal, uretprobe and lsm_*. 2.4.2 no longer allows sockets of AF_ALG. stackd asks for none of these.

What a kubelet has and this has not: its API, probes, restarts by itself, a network that both containers are in.
"""

import atexit
import contextlib
import functools
import gzip
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest
import uuid

from built import built
from harness import BIN, LIMIT_S, OK, PARTIAL, PROGRAMS, ROOT, STACKCTL, STACKD, Dump, Outcome, Victim, eventually

SIDECAR_UID = 64532
APP_UID = 10001
HOST_IDS = 200000  # of user 0 of a user namespace
MIB = 1 << 20

VOLUME = "/run/stackd"
AGENT = VOLUME + "/agent/libstackd_agent.so"

CGROUPS = pathlib.Path("/sys/fs/cgroup")
HERE = pathlib.Path(__file__).resolve().parent
SECCOMP = json.loads((HERE / "runtime_default.json").read_text())
# Containerd before 1.7 (and any on a kernel before 4.8) has these for privileged containers only.
FOREIGN_MEMORY = {"process_vm_readv", "process_vm_writev", "ptrace"}


# Crun takes either version of cgroups, and not the one beside the other.
WITHOUT_UNIFIED = ["unshare", "--mount", "sh", "-ec", f'umount {CGROUPS}/unified; exec "$@"', "sh"]


def missing():
    """Why no pod can be made here; None: it can."""
    if os.geteuid() != 0:
        return "needs root, to make containers that have no right"
    for tool in ("runc", "umoci"):
        if shutil.which(tool) is None:
            return f"{tool} is missing: deploy/install-deps.sh --tests installs it"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "may not make namespaces here, as in a container that has few rights itself"
    v2 = CGROUPS / "cgroup.controllers"
    if not os.access(CGROUPS / "memory", os.W_OK) and not (os.access(CGROUPS, os.W_OK) and v2.exists() and
                                                           "memory" in v2.read_text().split()):
        return "may not limit memory here: there is no memory cgroup that can be written to"
    return None


def blob(layout, descriptor):
    return layout / "blobs" / descriptor["digest"].replace(":", "/")


def read_image(layout):
    """(configuration, layers as open tar files) of the one image in an OCI layout."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(layout, index["manifests"][0]).read_text())
    layers = [tarfile.open(fileobj=gzip.open(blob(layout, layer))) for layer in manifest["layers"]]
    return json.loads(blob(layout, manifest["config"]).read_text()), layers


def build_image(folder, *args):
    """What deploy/image/build.sh prints, by its first words."""
    command = [ROOT / "deploy/image/build.sh", "--output", folder, *args]
    if BIN == ROOT / "bazel-bin":
        command.append("--no-build")  # tests/run.sh has built it
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S * 5)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


@functools.cache
def image():
    """(configuration, root file system) of the image, built and unpacked once."""
    kept = built_image()
    configuration, layers = read_image(kept / "oci")
    for layer in layers:
        layer.close()
    # Not in the cache: the user of a container may not pass through its owner's home.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stackd-image-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    subprocess.run(["cp", "--archive", kept / "root", folder], check=True)
    return configuration, folder / "root"


def built_image():
    """The folder with the image and its root file system, unpacked."""
    return built("image", [STACKD, STACKCTL, BIN / "agent/libstackd_agent.so", ROOT / "deploy/image"], unpack_image)


def unpack_image(folder):
    """Fills a folder with the image as it is built, and with its root file system."""
    build_image(folder)
    _, layers = read_image(folder / "oci")
    for layer in layers:
        with layer:
            layer.extractall(folder / "root", numeric_owner=True)
    # A container engine makes these in a layer of its own.
    for mount in ("proc", "dev", "sys"):
        (folder / "root" / mount).mkdir()


def bind(source, destination, *options):
    return {"destination": destination, "source": str(source), "type": "bind", "options": ["bind", "nosuid", "nodev", *options]}


# What containerd mounts into every container.
SYSTEM_MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
    {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
     "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
     "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
    {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
]
MASKED = ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
          "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def seccomp(old_containerd):
    if not old_containerd:
        return SECCOMP
    rules = [{**rule, "names": [name for name in rule["names"] if name not in FOREIGN_MEMORY]} for rule in SECCOMP["syscalls"]]
    return {**SECCOMP, "syscalls": [rule for rule in rules if rule["names"]]}


class Container:
    """One container; start() may be called again when it has ended, as a kubelet does."""

    def __init__(self, pod, name, root, args, *, uid, env, mounts, memory_bytes, group=None, old_containerd=False,
                 user_namespace=False, oom_score_adj=None, capabilities=()):
        self.pod = pod
        self.name = name
        self.bundle = pod.dir / name
        self.bundle.mkdir(exist_ok=True)
        self.memory_bytes = memory_bytes
        self.cgroup = f"/{pod.id}/{name}"
        self.id = None
        self.run = None
        self.starts = 0
        process = {
            "terminal": False, "cwd": "/", "args": [str(arg) for arg in args],
            "user": {"uid": uid, "gid": uid, "additionalGids": [group] if group else []},
            "env": [f"{key}={value}" for key, value in env.items()],
            "capabilities": {**{kind: list(capabilities) for kind in ("bounding", "effective", "permitted")},
                             "inheritable": [], "ambient": []},
            "noNewPrivileges": True,
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": resource.getrlimit(resource.RLIMIT_NOFILE)[1], "soft": 1024}],
        }
        if oom_score_adj is not None:
            process["oomScoreAdj"] = oom_score_adj
        self.config = {
            "ociVersion": "1.0.2", "process": process, "root": {"path": str(root), "readonly": True}, "hostname": pod.id,
            "mounts": SYSTEM_MOUNTS + mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
                "cgroupsPath": self.cgroup,
                # Swap would make a limit on memory none.
                "resources": {"memory": {"limit": memory_bytes, "swap": memory_bytes},
                              "devices": [{"allow": False, "access": "rwm"}]},
                "seccomp": seccomp(old_containerd), "maskedPaths": MASKED, "readonlyPaths": READ_ONLY,
            },
        }

        if user_namespace:
            mapping = [{"containerID": 0, "hostID": HOST_IDS, "size": 1 << 16}]
            self.config["linux"].update(uidMappings=mapping, gidMappings=mapping)
            self.config["linux"]["namespaces"].append({"type": "user"})

    def runtime(self, *args):
        """A command line of runc or crun, which have the same."""
        command = [self.pod.runtime, "--root", str(self.pod.dir / "containers"), *map(str, args)]
        return [*WITHOUT_UNIFIED, *command] if self.pod.runtime == "crun" and (CGROUPS / "unified").exists() else command

    def ask(self, *args):
        return subprocess.run(self.runtime(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)

    def start(self, ready=None, stdin=None):
        """Like Victim's: returns when the container has said `ready`. `stdin`: what is written first to what say() writes to."""
        (self.bundle / "config.json").write_text(json.dumps(self.config))
        self.starts += 1
        self.id = f"{self.pod.id}-{self.name}-{self.starts}"
        self.run = Victim(self.runtime("run", "--bundle", self.bundle, self.id), ready=ready, preload=False, stdin=stdin)
        return self

    def say(self, line):
        self.run.process.stdin.write(line.encode() + b"\n")
        self.run.process.stdin.flush()

    @property
    def pid(self):
        """pid of its first process, as seen from outside; None: it has ended."""
        state = self.ask("state", self.id)
        return json.loads(state.stdout)["pid"] or None if state.returncode == 0 else None

    def alive(self):
        return self.run is not None and self.run.alive()

    def kill(self, number=signal.SIGKILL):
        self.ask("kill", self.id, int(number))

    def wait(self, limit_s=LIMIT_S):
        """The exit status as a kubelet tells it: 128 and the signal for one that was killed."""
        # The runtime copies what the container prints, and does not end before that is read.
        end = time.monotonic() + limit_s
        out = self.run.process.stdout
        while self.run.process.poll() is None and time.monotonic() < end:
            readable, _, _ = select.select([out], [], [], 0.05)
            chunk = os.read(out.fileno(), 65536) if readable else b""
            self.run.output += chunk
        return self.run.process.wait(max(0, end - time.monotonic()))

    def stop(self):
        """SIGTERM, and SIGKILL when the grace period is over."""
        self.kill(signal.SIGTERM)
        try:
            return self.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.wait()

    def execute(self, *args, env=None):
        """As kubectl exec."""
        process = self.config["process"]
        settings = [*process["env"], *(f"{key}={value}" for key, value in (env or {}).items())]
        with tempfile.NamedTemporaryFile("w", dir=self.bundle, suffix=".json") as file:
            json.dump({**process, "args": [str(arg) for arg in args], "env": settings}, file)
            file.flush()
            done = self.ask("exec", "--process", file.name, self.id)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def memory(self, what="usage"):
        """Numbers of its cgroup: "usage", "limit", "peak", in bytes."""
        v1 = {"usage": "memory.usage_in_bytes", "limit": "memory.limit_in_bytes", "peak": "memory.max_usage_in_bytes"}
        v2 = {"usage": "memory.current", "limit": "memory.max", "peak": "memory.peak"}
        names = v1 if (CGROUPS / "memory").exists() else v2
        return int((self.memory_cgroup / names[what]).read_text())

    @property
    def memory_cgroup(self):
        v1 = CGROUPS / "memory"
        return (v1 if v1.exists() else CGROUPS) / self.cgroup[1:]

    def join_cgroup(self, pid):
        """Puts a process of ours under this container's memory limit."""
        (self.memory_cgroup / "cgroup.procs").write_text(str(pid))

    def output(self):
        return self.run.output.decode(errors="replace") + self.run.error_text()

    def delete(self):
        if self.id:
            self.ask("delete", "--force", self.id)
        if self.run:
            self.run.kill()
            self.run = None


class Pod:
    """Volumes and containers. Everything goes with close()."""

    def __init__(self, *, volume_bytes=64 * MIB, old_containerd=False, user_namespaces=False, runtime="runc"):
        self.id = f"stackd-{uuid.uuid4().hex[:8]}"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="stackd-pod-"))
        os.chmod(self.dir, 0o755)
        self.runtime = runtime
        self.old_containerd = old_containerd
        self.user_namespaces = user_namespaces
        self.containers = []
        self.sidecar = None
        self.volume = self.dir / "volume"
        self.store = self.dir / "store"
        self.programs = self.dir / "programs"
        for folder in (self.volume, self.store, self.programs):
            folder.mkdir()
        # As a kubelet leaves an emptyDir where the pod has an fsGroup. (In a user namespace it maps the ids of the mount.)
        group = SIDECAR_UID + (HOST_IDS if user_namespaces else 0)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={volume_bytes},mode=2777,gid={group}", "tmpfs", self.volume], check=True)
        os.chown(self.store, 0, group)
        os.chmod(self.store, 0o2777)

    def close(self):
        for container in reversed(self.containers):
            container.delete()
        # Cgroups of containers, too, where a process of the test's was still in one when it ended.
        for folder in [*CGROUPS.glob(f"*/{self.id}/*/"), *CGROUPS.glob(f"{self.id}/*/"), *CGROUPS.glob(f"*/{self.id}"),
                       *CGROUPS.glob(self.id)]:
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()
        subprocess.run(["umount", "--lazy", self.volume], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def add(self, *args, **kwargs):
        container = Container(self, *args, old_containerd=self.old_containerd, user_namespace=self.user_namespaces, **kwargs)
        self.containers.append(container)
        return container

    # --- The sidecar ---

    def from_image(self, name, args, *, memory_bytes=256 * MIB, **kwargs):
        configuration, root = image()
        user, group = map(int, configuration["config"]["User"].split(":"))
        env = dict(setting.split("=", 1) for setting in configuration["config"]["Env"])
        mounts = [bind(self.volume, VOLUME, "rw"), bind(self.store, "/var/lib/stackd", "rw")]
        assert user == group == SIDECAR_UID
        return self.add(name, root, [*configuration["config"]["Entrypoint"], *args], uid=user, group=SIDECAR_UID, env=env,
                        mounts=mounts, memory_bytes=memory_bytes, **kwargs)

    def install_agent(self):
        """The init container."""
        init = self.from_image("init", ["install-agent", VOLUME + "/agent"], memory_bytes=32 * MIB)
        init.start()
        if init.wait() != 0:
            raise AssertionError(f"install-agent: {init.output()}")
        init.delete()
        return self

    def start_sidecar(self, *args, memory_bytes=256 * MIB, **kwargs):
        if self.sidecar is None:
            flags = [f"--dir={VOLUME}", "--listen=127.0.0.1:7443", "--store=/var/lib/stackd/store.db", *args]
            self.sidecar = self.from_image("sidecar", flags, memory_bytes=memory_bytes, **kwargs)
        self.sidecar.start()
        eventually("the sidecar answers", lambda: self.ctl("ps").code == OK or self.assert_runs(self.sidecar))
        return self.sidecar

    def restart_sidecar(self):
        self.sidecar.delete()
        return self.start_sidecar()

    def assert_runs(self, container):
        if not container.alive():
            raise AssertionError(f"{container.name} has ended with {container.wait()}: {container.output()}")
        return False

    def ctl(self, *args):
        """stackctl in the sidecar."""
        return self.sidecar.execute("/usr/bin/stackctl", *map(str, args), env={"STACKD_DIR": VOLUME})

    def ctl_json(self, *args, allowed=(OK,)):
        outcome = self.ctl(*args, "-o", "json")
        if outcome.code not in allowed:
            raise AssertionError(f"stackctl {args} ended with {outcome.code}: {outcome.text}\n{self.sidecar.output()}")
        return json.loads(outcome.out)

    def processes(self):
        reply = self.ctl_json("ps")
        return reply if isinstance(reply, list) else reply.get("processes", [])

    def dumps(self, *args):
        reply = self.ctl_json("list", *args)
        return reply if isinstance(reply, list) else reply.get("dumps", [])

    def await_processes(self, count=1, limit_s=LIMIT_S):

        def find():
            processes = self.processes()
            return processes if len(processes) == count else None

        return eventually(f"{count} processes are registered", find, limit_s)

    def await_dumps(self, *args, count=1, limit_s=LIMIT_S):

        def find():
            dumps = self.dumps(*args)
            return dumps if len(dumps) >= count else None

        return eventually(f"{count} dumps are stored ({args})", find, limit_s)

    def await_spool_read(self):
        """All that lies in the spool now has been looked at. It is read in rounds, in any order: two rounds are awaited."""
        for number in range(2):
            marker = self.volume / "spool" / f"{number:032x}.crash"
            eventually("the sidecar has made the spool", marker.parent.exists)
            marker.write_bytes(b"no crash" * 1000)  # whole, and nonsense: no writer is waited for
            aside = marker.with_name(marker.name + ".bad")
            eventually("the spool is read", aside.exists)
            aside.unlink()

    def whole(self, name):
        """Crashes and hangs are stored before they are unwound."""

        def unwound():
            dump = Dump(json.loads(self.ctl("export", name, "-f", "json").out))
            return None if any("not unwound yet" in note for note in dump.notes) else dump

        return eventually(f"{name} is unwound", unwound)

    def dump(self, process, *args):
        return self.whole(self.ctl_json("dump", process, *args, allowed=(OK, PARTIAL))["name"])

    # --- The application ---

    @functools.cached_property
    def app_root(self):
        """Root of an image that has all of this machine's programs, and nothing of ours."""
        root = self.dir / "app-root"
        for folder in ("usr", "etc", "proc", "dev", "sys", "tmp", "app", "run/stackd", "cache"):
            (root / folder).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink("/" + link):
                (root / link).symlink_to(os.readlink("/" + link))
        return root

    def program(self, name):
        """A program of tests/programs as a path in the container."""
        shutil.copy(PROGRAMS / name, self.programs / name)
        return self.add_file(self.programs / name)

    def add_file(self, path):
        """A file or folder of ours, as a path in the container."""
        target = self.programs / path.name
        if path != target:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
        for each in (target, *target.rglob("*")):
            each.chmod(0o755)
        return f"/app/{path.name}"

    def app(self, *args, name="app", uid=APP_UID, memory_bytes=512 * MIB, env=None, preload=True, root=None, **kwargs):
        """`root`: an image's root file system of one's own; otherwise one with this machine's programs."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "STACKD_DIR": VOLUME, "STACKD_DAEMON_UID": str(SIDECAR_UID),
                       "HOME": "/tmp", **(env or {})}
        if preload:
            environment["LD_PRELOAD"] = AGENT
        mounts = [
            bind(self.programs, "/app", "ro"),
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
            bind(self.volume, VOLUME, "rw")
        ]
        if root is None:
            root = self.app_root
            mounts += [bind("/usr", "/usr", "ro"), bind("/etc", "/etc", "ro")]
        return self.add(name, root, args, uid=uid, env=environment, mounts=mounts, memory_bytes=memory_bytes, **kwargs)

    def start_app(self, *args, ready="ready", stdin=None, **kwargs):
        return self.app(*args, **kwargs).start(ready, stdin)


@unittest.skipIf(missing(), missing())
class PodTestCase(unittest.TestCase):
    maxDiff = None
    runtime = "runc"

    def make_pod(self, **kwargs):
        pod = Pod(runtime=self.runtime, **kwargs)
        self.addCleanup(pod.close)
        return pod.install_agent()
