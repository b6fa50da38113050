"""A release, built once for all classes of a worker, and systems with nothing on them that it is installed on."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from harness import ROOT

BUILD = ROOT / "deploy/release/build.sh"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"
LIMIT_S = 300

INSTALL = "apt-get install -y ./release/*.deb\n"

# until_said WORD COMMAND...: a minute at most. start() is what begins the daemon.
AWAIT = """
# What sleeps before the daemon listens is not listed as long as it sleeps.
for _ in $(seq 600); do if stackctl ps >/dev/null 2>&1; then break; fi; sleep 0.1; done
until_said() {
  for _ in $(seq 600); do if "${@:2}" 2>&1 | grep -q "$1"; then return; fi; sleep 0.1; done
  cat /tmp/stackd.log; "${@:2}"; false
}
"""

# As systemd would start it, from the unit: its user, its folders, its variables.
START = """
unit() { sed -n "s/^$1=//p" /lib/systemd/system/stackd.service; }
install -d -o "$(unit User)" -m "$(unit RuntimeDirectoryMode)" "/run/$(unit RuntimeDirectory)"
install -d -o "$(unit User)" -m "$(unit StateDirectoryMode)" "/var/lib/$(unit StateDirectory)"
set -a; . /etc/default/stackd; set +a
start() { env $(unit Environment) setpriv --reuid="$(unit User)" --regid="$(unit Group)" --clear-groups --bounding-set=-all \
  --no-new-privs $(unit ExecStart); }
start 2>/tmp/stackd.log &
""" + AWAIT

DUMP = """
setpriv --reuid=65534 --regid=65534 --clear-groups env LD_PRELOAD=libstackd_agent.so sleep 1000 &
until_said sleep stackctl ps
stackctl dump sleep
"""

# Runs its arguments with the folder $0 as the root, with /proc, /run and processes of its own that end with it. As in a container, the
# root is that of a mount namespace: from there the kernel tells the daemon the paths of mapped files. chroot would not do.
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec")
MOUNTS = 'mount --bind "$0" "$0"; mount -t proc proc "$0/proc"; mount -t tmpfs -o mode=755 tmpfs "$0/run"; '
ENTER = 'mkdir "$0/old"; cd "$0"; pivot_root . old; umount -l old; rmdir old; exec "$@"'

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}


def run(*command, ok=True, **kwargs):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=LIMIT_S, check=False, **kwargs)
    if ok and done.returncode:
        raise AssertionError(f"{command[0]} ends with {done.returncode}: {done.stdout[-3000:]}")
    return done.stdout


def why_not():
    """Why no release can be built here; "": it can."""
    missing = [tool for tool in ("dpkg-shlibdeps", "go-md2man", "umoci", "openssl", "javac") if not shutil.which(tool)]
    if not shutil.which("cargo") and not (pathlib.Path.home() / ".cargo/bin/cargo").exists():
        missing.append("cargo")
    return f"there is no {missing[0]}" if missing else ""


@functools.cache
def folder():
    """For as long as this worker runs."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="stackd-release-test-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def key():
    """What the release is signed with."""
    path = folder() / "key.pem"
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", path)
    return path


@functools.cache
def release():
    """The folder with all that is published."""
    path = folder() / "release"
    run(BUILD, path, "--sign", key())
    return path


class BareSystem:
    """A Debian with the release in /release, in a folder that ends with the test. `name`: what deploy/install-deps.sh fetched."""

    def __init__(self, test: unittest.TestCase, name):
        archive = CACHE / f"{name}.tar"
        if os.geteuid() != 0:
            test.skipTest("needs root, for a root of its own")
        if not archive.exists():
            test.skipTest(f"there is no {archive.name}: debootstrap could not fetch it")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder()))
        self.root.chmod(0o755)
        test.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        run("tar", "-C", self.root, "-xf", archive)
        shutil.copytree(release(), self.root / "release")
        self.mounts = MOUNTS
        for tool in ("gcc", "cc", "bazel"):
            test.assertFalse((self.root / "usr/bin" / tool).exists(), tool)

    def lend(self, path, inside):
        """Shows a folder of this machine in the system, for reading."""
        (self.root / inside).mkdir(parents=True)
        self.mounts += f'mount --bind -o ro "{path}" "$0/{inside}"; '

    def script(self, text):
        """Runs it in the system, as root; returns what it says."""
        return run(*ISOLATED, self.mounts + ENTER, self.root, "bash", "-euc", text, env=ENVIRONMENT)
