"""What a release publishes: deploy/release/build.sh makes it, the same from the same input, and it works on a bare Debian 12
that has no compiler. The packages are installed there, and the first dump is taken, as deploy/release/README.md says."""

import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import time
import unittest
import zipfile

import pytest

from harness import ROOT

BUILD = ROOT / "deploy/release/build.sh"
# Made by deploy/install-deps.sh --tests, by debootstrap.
BARE_DEBIAN = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/debian-12.tar"
LIMIT_S = 300
FIRST_DUMP_S = 60

# Runs its arguments with the folder of the first as the root, with /proc, /run and processes of its own that end with it.
IN_ROOT = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec",
           'mount -t proc proc "$0/proc"; mount -t tmpfs -o mode=755 tmpfs "$0/run"; exec chroot "$0" "$@"')

INSTALL = "apt-get install -y ./release/*.deb\n"

# As systemd would start it, from the unit: its user, its folders, its variables.
START = """
unit() { sed -n "s/^$1=//p" /lib/systemd/system/stackd.service; }
install -d -o "$(unit User)" -m "$(unit RuntimeDirectoryMode)" "/run/$(unit RuntimeDirectory)"
install -d -o "$(unit User)" -m "$(unit StateDirectoryMode)" "/var/lib/$(unit StateDirectory)"
set -a; . /etc/default/stackd; set +a
start() { env $(unit Environment) setpriv --reuid="$(unit User)" --regid="$(unit Group)" --clear-groups --bounding-set=-all \
  --no-new-privs $(unit ExecStart); }
start 2>/tmp/stackd.log &
# What sleeps before the daemon listens is not listed as long as it sleeps.
for _ in $(seq 600); do if stackctl ps >/dev/null 2>&1; then break; fi; sleep 0.1; done
# until_said WORD COMMAND...: a minute at most.
until_said() {
  for _ in $(seq 600); do if "${@:2}" 2>&1 | grep -q "$1"; then return; fi; sleep 0.1; done
  cat /tmp/stackd.log; "${@:2}"; false
}
"""

DUMP = """
setpriv --reuid=65534 --regid=65534 --clear-groups env LD_PRELOAD=libstackd_agent.so sleep 1000 &
until_said sleep stackctl ps
stackctl dump sleep
"""


def run(*command, ok=True, **kwargs):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=LIMIT_S, check=False, **kwargs)
    if ok and done.returncode:
        raise AssertionError(f"{command[0]} ends with {done.returncode}: {done.stdout[-3000:]}")
    return done.stdout


def why_not():
    missing = [tool for tool in ("dpkg-shlibdeps", "go-md2man", "umoci", "openssl") if not shutil.which(tool)]
    if not shutil.which("cargo") and not (pathlib.Path.home() / ".cargo/bin/cargo").exists():
        missing.append("cargo")
    return f"there is no {missing[0]}" if missing else ""


@unittest.skipIf(why_not(), why_not())
@pytest.mark.xdist_group("packages")  # one worker builds for all cases
class ReleaseTest(unittest.TestCase):
    limit_s = 900

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="stackd-release-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.key = cls.dir / "key.pem"
        run("openssl", "genpkey", "-algorithm", "ed25519", "-out", cls.key)
        cls.out = cls.dir / "release"
        run(BUILD, cls.out, "--sign", cls.key)

    def one(self, pattern):
        found = list(self.out.glob(pattern))
        self.assertEqual(1, len(found), pattern)
        return found[0]

    def test_a_second_build_has_the_same_bytes(self):
        before = os.umask(0o077)
        try:
            run(BUILD, self.dir / "again", "--no-build", "--sign", self.key, env={**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"})
        finally:
            os.umask(before)
        self.assertEqual((self.out / "SHA256SUMS").read_text(), (self.dir / "again/SHA256SUMS").read_text())
        self.assertEqual((self.out / "SHA256SUMS.sig").read_bytes(), (self.dir / "again/SHA256SUMS.sig").read_bytes())

    def test_checksums_are_of_all_files_and_signed(self):
        sums = dict(reversed(line.split("  ")) for line in (self.out / "SHA256SUMS").read_text().splitlines())
        files = {path.name for path in self.out.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig", "release.pub"}
        self.assertEqual(files, set(sums))
        for name, digest in sums.items():
            self.assertEqual(digest, hashlib.sha256((self.out / name).read_bytes()).hexdigest(), name)
        verify = ("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", self.out / "release.pub", "-rawin", "-sigfile",
                  self.out / "SHA256SUMS.sig", "-in")
        run(*verify, self.out / "SHA256SUMS")
        forged = self.dir / "forged"
        forged.write_text((self.out / "SHA256SUMS").read_text().replace("0", "1", 1))
        self.assertIn("Failure", run(*verify, forged, ok=False))

    def test_each_language_has_its_package(self):
        self.assertIn("stackd/libstackd_agent.so", zipfile.ZipFile(self.one("stackd-*.whl")).namelist())
        for pattern, inside in (("stackd-[0-9]*.tgz", "package/stackd.node"), ("stackd-*.crate", "agent/include/stackd/ring_abi.h"),
                                ("stackd-chart-*.tgz", "stackd/Chart.yaml"), ("stackctl-*.tar.gz", "completions/_stackctl")):
            with tarfile.open(self.one(pattern)) as archive:
                self.assertTrue(any(name.endswith(inside) for name in archive.getnames()), f"{inside} in {pattern}")

    def test_notes_are_this_versions(self):
        notes = (self.out / "RELEASE_NOTES.md").read_text()
        self.assertIn("- ", notes)
        self.assertNotIn("\n## ", notes)

    def test_the_image_is_read_by_others(self):
        if not shutil.which("skopeo"):
            self.skipTest("there is no skopeo")
        self.assertIn("/usr/bin/stackd", run("skopeo", "inspect", "--config", f"oci-archive:{self.one('stackd-image-*.oci.tar')}"))

    def test_its_unit_is_understood_and_confined(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("there is no systemd-analyze")
        tree = self.dir / "unit"
        run("dpkg-deb", "-x", self.one("stackd_*.deb"), tree)
        unit = tree / "lib/systemd/system/stackd.service"
        # Its program is not installed here.
        here = unit.with_name("stackd-here.service")
        here.write_text(unit.read_text().replace("/usr/bin/stackd", str(tree / "usr/bin/stackd")).replace("man:stackd(8)", ""))
        self.assertEqual("", run("systemd-analyze", "verify", here))

    def test_help_begins_with_examples(self):
        self.assertIn("Examples:", run(BUILD, "--help").splitlines()[2])

    def in_bare_debian(self):
        """A function that runs a script there."""
        if os.geteuid() != 0:
            self.skipTest("needs root, for a root of its own")
        if not BARE_DEBIAN.exists():
            self.skipTest(f"there is no {BARE_DEBIAN.name}: debootstrap could not fetch it")
        root = self.dir / f"root-{self.id().rsplit('.', 1)[1]}"
        root.mkdir()
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        run("tar", "-C", root, "-xf", BARE_DEBIAN)
        shutil.copytree(self.out, root / "release")
        for tool in ("gcc", "cc", "python3", "bazel"):
            self.assertFalse((root / "usr/bin" / tool).exists(), tool)

        def script(text, **kwargs):
            environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
            return run(*IN_ROOT, root, "bash", "-euc", text, env=environment, **kwargs)
        return root, script

    def test_a_bare_debian_installs_them_and_takes_a_dump(self):
        root, script = self.in_bare_debian()
        began = time.monotonic()
        said = script(INSTALL + START + DUMP)
        took = time.monotonic() - began
        print(f"bare Debian 12: installed and dumped in {took:.1f} s")
        self.assertRegex(said, r"#\d+ .*nanosleep.*libc\.so\.6")
        self.assertRegex(said, r"#\d+ .*\(sleep")
        self.assertLess(took, FIRST_DUMP_S)
        for page in ("man8/stackd.8", "man1/stackctl.1"):
            # minbase leaves no manuals out: they are read where `man` is.
            text = gzip.decompress((root / f"usr/share/man/{page}.gz").read_bytes()).decode()
            self.assertIn(".TH " + pathlib.Path(page).stem.upper(), text.upper().replace('"', ""))
        completion = (root / "usr/share/bash-completion/completions/stackctl").read_text()
        self.assertIn("resymbolize", completion)
        self.assertTrue((root / "usr/share/doc/stackctl/third-party/libc6-dev").exists(), "the licence of glibc is there")

        # A crash, and an upgrade to the same version; then nothing is left of it.
        said = script(START + "until_said PROCESS stackctl ps\n"
                      "LD_PRELOAD=libstackd_agent.so bash -c 'kill -SEGV $$' || true\nuntil_said SIGSEGV stackctl list --crashes\n"
                      "dpkg --install ./release/*.deb")
        self.assertIn("Setting up stackd", said)
        script("apt-get purge -y stackd stackctl libstackd-agent")
        for gone in ("usr/bin/stackd", "etc/default/stackd", "usr/lib/libstackd_agent.so", "var/lib/stackd"):
            self.assertFalse((root / gone).exists(), gone)

    def test_the_client_of_the_archive_needs_nothing(self):
        _, script = self.in_bare_debian()
        said = script("tar -xf release/stackctl-*.tar.gz && stackctl-*/stackctl --version")
        self.assertRegex(said, r"\d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
