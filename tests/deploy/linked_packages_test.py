"""The list of what is linked into the programs: all of the build is in it, and what has no declared licence is refused."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, ROOT

IMAGE = ROOT / "deploy/image"
sys.path.insert(0, str(IMAGE))
import go_modules  # noqa: E402
import linked_packages  # noqa: E402

# A library of the unit tests, which the programs have no use for.
FOREIGN_LIBRARY, FOREIGN_HEADER, FOREIGN_PACKAGE = "gtest", "/usr/include/gtest/gtest.h", "libgtest-dev"


def listed(*arguments):
    return subprocess.run([sys.executable, "-B", IMAGE / "linked_packages.py", *map(str, arguments)], capture_output=True, text=True,
                          check=False)


class LinkedPackagesTest(unittest.TestCase):

    def link(self, *inputs, headers=""):
        """What is said of programs that are linked of these, where each object was compiled from `headers`."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="linked-packages-"))
        self.addCleanup(subprocess.run, ["rm", "-rf", folder], check=True)
        for link in linked_packages.LINKS:
            (folder / link).parent.mkdir(exist_ok=True)
            (folder / link).write_text("\n".join(["-o", "bazel-out/k8-opt/bin/program", *map(str, inputs)]))
        for one in inputs:
            if str(one).endswith(".o"):
                rules = folder / one.split("/bin/")[1].replace(".o", ".d")
                rules.parent.mkdir(parents=True, exist_ok=True)
                rules.write_text(f"{one}: source.cc \\\n {headers}\n")
        return listed(folder)

    def refused(self, what, *inputs, **kwargs):
        said = self.link(*inputs, **kwargs)
        self.assertNotEqual(0, said.returncode, said.stdout)
        self.assertIn(what, said.stderr)

    def test_a_library_is_named_with_its_version_and_licence(self):
        line = self.link("-lz").stdout.split("\t")
        version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "zlib1g-dev"], check=True, capture_output=True,
                                 text=True).stdout
        self.assertEqual(["zlib1g-dev", version, "zlib", "static", "Zlib", "/usr/share/doc/zlib1g-dev/copyright\n"], line)

    def test_a_library_whose_licence_is_not_declared_is_refused(self):
        self.refused(FOREIGN_PACKAGE, "-lz", f"-l{FOREIGN_LIBRARY}")

    def test_headers_of_one_are_refused(self):
        self.refused(FOREIGN_PACKAGE, "bazel-out/k8-opt/bin/daemon/_objs/daemon/main.o", headers=FOREIGN_HEADER)

    def test_what_no_package_owns_is_refused(self):
        self.refused("no package owns", "/opt/vendor/libother.a")
        self.refused("knows no library", "-lthat_is_not_there")

    def test_definitions_of_others_are_refused(self):
        self.refused("proto/_objs/other", "bazel-out/k8-opt/bin/proto/_objs/other/other.pb.o")

    def test_a_module_of_go_whose_licence_is_not_declared_is_refused(self):
        self.assertEqual("Apache-2.0", go_modules.licence_of("k8s.io/api"))
        with self.assertRaisesRegex(SystemExit, "example.org/other"):
            go_modules.licence_of("example.org/other")

    @unittest.skipUnless((BIN / linked_packages.LINKS[1]).exists(), "the programs are not built")
    def test_the_programs_have_what_they_are_known_to_have(self):
        said = listed(BIN)
        self.assertEqual(0, said.returncode, said.stderr)
        lines = {line.split("\t")[0]: line.split("\t") for line in said.stdout.splitlines()}
        # The kinds are archives, headers alone, wheels and npm. What only tests use is not there.
        self.assertLessEqual({"libgrpc++-dev", "libsqlite3-dev", "libdw-dev", "libboost1.74-dev", "libcli11-dev", "libspdlog-dev",
                              "grpc-proto", "googleapis-common-protos", "opentelemetry-proto", "preact"}, lines.keys())
        self.assertFalse({"libunwind-dev", FOREIGN_PACKAGE} & lines.keys())
        for name, fields in lines.items():
            self.assertTrue(all(fields) and pathlib.Path(fields[5]).is_file(), name)


if __name__ == "__main__":
    unittest.main()
