"""What a release publishes: deploy/release/build.sh makes it, the same from the same input, and it works on a bare Debian 12
that has no compiler. The packages are installed there, and the first dump is taken, as deploy/release/README.md says."""

import gzip
import hashlib
import os
import pathlib
import shutil
import tarfile
import time
import unittest
import zipfile

import pytest

from bare_systems import BUILD, DUMP, INSTALL, START, BareSystem, folder, key, release, run, why_not

FIRST_DUMP_S = 60


@unittest.skipIf(why_not(), why_not())
@pytest.mark.xdist_group("packages")  # one worker builds for all cases
class ReleaseTest(unittest.TestCase):
    limit_s = 900

    @classmethod
    def setUpClass(cls):
        cls.dir, cls.key, cls.out = folder(), key(), release()

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
        self.assertIn("dev/stackd/Stackd.class", zipfile.ZipFile(self.one("stackd-*.jar")).namelist())
        for pattern, inside in (("stackd-[0-9]*.tgz", "package/stackd.node"), ("stackd-*.crate", "agent/include/stackd/ring_abi.h"),
                                ("stackd-go-*.tar.gz", ".zip"), ("stackd-chart-*.tgz", "stackd/Chart.yaml"),
                                ("stackctl-*.tar.gz", "completions/_stackctl")):
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

    def test_each_program_has_its_manual(self):
        tree = self.dir / "manuals"
        for package in ("stackd_*.deb", "stackctl_*.deb"):
            run("dpkg-deb", "-x", self.one(package), tree)
        for page in ("man8/stackd.8", "man5/stackd-rules.5", "man1/stackctl.1"):
            text = gzip.decompress((tree / f"usr/share/man/{page}.gz").read_bytes()).decode()
            self.assertIn(".TH " + pathlib.Path(page).stem.upper(), text.upper().replace('"', ""))

    def test_help_begins_with_examples(self):
        self.assertIn("Examples:", run(BUILD, "--help").splitlines()[2])

    def test_a_bare_debian_installs_them_and_takes_a_dump(self):
        system = BareSystem(self, "debian-12")
        root, script = system.root, system.script
        self.assertFalse((root / "usr/bin/python3").exists())
        began = time.monotonic()
        said = script(INSTALL + START + DUMP)
        took = time.monotonic() - began
        print(f"bare Debian 12: installed and dumped in {took:.1f} s")
        self.assertRegex(said, r"#\d+ .*nanosleep.*libc\.so\.6")
        self.assertRegex(said, r"#\d+ .*\(sleep")
        self.assertLess(took, FIRST_DUMP_S)
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
        said = BareSystem(self, "debian-12").script("tar -xf release/stackctl-*.tar.gz && stackctl-*/stackctl --version")
        self.assertRegex(said, r"\d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
