"""The image: the same each time, nothing in it that need not be; and its agent in processes of other C libraries."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import pytest

import fleet_gateway
from harness import AGENT, LIMIT_S, ROOT
from pod import SIDECAR_UID, PodTestCase, build_image, missing, read_image

APPS = pathlib.Path(__file__).resolve().parent / "apps"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"
OLD_GLIBC = CACHE / "old-glibc"
TOOLS = CACHE / "image-tools/bin"

OLDEST_GLIBC = (2, 17)
MUSL = pathlib.Path("/lib/ld-musl-x86_64.so.1")

# All that the image has, and the limit that the issue sets.
CONTENTS = re.compile(r"(etc/(passwd|group|nsswitch\.conf|ssl/certs/ca-certificates\.crt)|usr/bin/(stackd|stackctl)"
                      r"|usr/lib/stackd/libstackd_agent\.so|lib64/ld-linux-x86-64\.so\.2"
                      r"|lib/x86_64-linux-gnu/lib(c|m|gcc_s|stdc\+\+)\.so\.[0-9]+|usr/share/doc/([a-z0-9.+@/-]+/copyright|stackd/LICENSE|stackd/NOTICE)|usr/share/common-licenses/[A-Za-z0-9.-]+)$")
LIMIT_BYTES = 64_000_000

SEGFAULT = 128 + signal.SIGSEGV


def run(*command, **kwargs):
    return subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT_S * 5, check=False, **kwargs)


# One worker builds it, for all cases.
@pytest.mark.xdist_group("image")
@unittest.skipIf(missing(), missing())
class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="stackd-image-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.said = build_image(cls.dir / "first")
        cls.configuration, cls.layers = read_image(cls.dir / "first/oci")
        cls.members = [member for layer in cls.layers for member in layer]
        cls.packages = json.loads((cls.dir / "first/stackd.spdx.json").read_text())["packages"]

    @classmethod
    def tearDownClass(cls):
        for layer in cls.layers:
            layer.close()

    def test_a_second_build_has_the_same_digest(self):
        before = os.umask(0o077)
        try:
            again = build_image(self.dir / "second")
        finally:
            os.umask(before)
        self.assertEqual(self.said["digest"], again["digest"])
        self.assertEqual((self.dir / "first/stackd.spdx.json").read_bytes(), (self.dir / "second/stackd.spdx.json").read_bytes())

    def test_nothing_else_is_in_it(self):
        names = [member.name.removeprefix("./") for member in self.members if not member.isdir()]
        self.assertEqual([], [name for name in names if not CONTENTS.match(name)])
        self.assertEqual(len(names), len(set(names)))
        self.assertLess(sum(member.size for member in self.members), LIMIT_BYTES)
        print(f"\n    {self.said['size']}", flush=True)

    def test_nobody_but_root_may_change_it(self):
        for member in self.members:
            own = member.name.removeprefix("./") in ("run/stackd", "var/lib/stackd", "tmp")
            self.assertEqual((SIDECAR_UID,) * 2 if own else (0, 0), (member.uid, member.gid), member.name)
            self.assertEqual(0, member.mode & 0o7022, member.name)
            self.assertTrue(member.isfile() or member.isdir(), member.name)

    def test_its_configuration_is_what_a_cluster_expects(self):
        config = self.configuration["config"]
        self.assertEqual(f"{SIDECAR_UID}:{SIDECAR_UID}", config["User"])
        self.assertEqual(["/usr/bin/stackd"], config["Entrypoint"])
        for label in ("title", "version", "revision", "created", "description"):
            self.assertTrue(config["Labels"][f"org.opencontainers.image.{label}"], label)
        self.assertNotIn("history", self.configuration)

    def test_others_read_it(self):
        layout = f"oci:{self.dir}/first/oci"
        if shutil.which("skopeo") is None:
            self.skipTest("skopeo is missing: deploy/install-deps.sh --tests installs it")
        inspected = run("skopeo", "inspect", layout)
        self.assertEqual(0, inspected.returncode, inspected.stderr)
        self.assertEqual(self.said["digest"], json.loads(inspected.stdout)["Digest"])

    def test_bill_of_materials_is_valid_and_each_licence_is_in_the_image(self):
        names = {member.name.removeprefix("./") for member in self.members}
        linked = [package["name"] for package in self.packages if "externalRefs" in package]
        self.assertEqual([], [name for name in linked if f"usr/share/doc/{name}/copyright" not in names])
        self.assertFalse([package["name"] for package in self.packages[1:] if package["licenseDeclared"] == "NOASSERTION"])
        self.assertLessEqual({"usr/share/doc/stackd/NOTICE", "usr/share/common-licenses/Apache-2.0"}, names)
        # A few that cannot be left out.
        self.assertLessEqual({"libc6", "libstdc++6", "libgrpc++-dev", "libprotobuf-dev", "libsqlite3-dev", "libssl-dev",
                              "ca-certificates", "libspdlog-dev", "libboost1.74-dev", "opentelemetry-proto"}, set(linked))
        validator = TOOLS / "pyspdxtools"
        if not validator.exists():
            self.skipTest("spdx-tools is missing: deploy/install-deps.sh --tests installs it")
        validated = run(validator, "-i", self.dir / "first/stackd.spdx.json")
        self.assertEqual((0, ""), (validated.returncode, validated.stdout), validated.stderr)

    def test_help_begins_with_examples(self):
        told = run(ROOT / "deploy/image/build.sh", "--help").stdout
        self.assertLess(told.index("Examples:"), told.index("Options:"))


@unittest.skipUnless(fleet_gateway.go_is_here() and shutil.which("umoci"), "there is no Go 1.26 or later, or no umoci")
class GatewayImageTest(unittest.TestCase):
    """The image of stackd-gateway: one program, linked statically."""

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="stackd-image-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.said = [build_image(cls.dir / name, "--gateway") for name in ("first", "second")]
        cls.configuration, layers = read_image(cls.dir / "first/oci")
        cls.addClassCleanup(layers[0].close)
        cls.layer = layers[0]
        cls.names = {member.name.removeprefix("./") for member in cls.layer if not member.isdir()}

    def test_it_is_the_same_each_time_and_has_one_program(self):
        self.assertEqual(self.said[0]["digest"], self.said[1]["digest"])
        self.assertEqual((f"{SIDECAR_UID}:{SIDECAR_UID}", ["/usr/bin/stackd-gateway"]),
                         (self.configuration["config"]["User"], self.configuration["config"]["Entrypoint"]))
        self.assertEqual({"usr/bin/stackd-gateway"}, {name for name in self.names if not name.startswith(("etc/", "usr/share/"))})
        for member in self.layer:
            self.assertEqual((0, 0, 0), (member.uid, member.gid, member.mode & 0o7022), member.name)

    def test_the_program_runs_without_libraries(self):
        program = self.dir / "stackd-gateway"
        program.write_bytes(self.layer.extractfile("./usr/bin/stackd-gateway").read())
        program.chmod(0o755)
        self.assertNotIn("INTERP", run("readelf", "-lW", program).stdout)
        self.assertRegex(run(program, "--version").stdout, r"^stackd-gateway \d+\.\d+\.\d+")
        self.assertIn("--targets-service", run(program).stderr + run(program, "--help").stdout.replace(" -t", " --t"))

    def test_bill_of_materials_is_valid_and_each_module_has_its_licence(self):
        packages = json.loads((self.dir / "first/stackd.spdx.json").read_text())["packages"]
        modules = [one["name"] for one in packages if "pkg:golang/" in json.dumps(one) and one["name"] != "stdlib"]
        self.assertLess({"connectrpc.com/connect", "k8s.io/client-go", "google.golang.org/protobuf"}, set(modules))
        self.assertEqual([], [module for module in modules if f"usr/share/doc/{module}/copyright" not in self.names])
        self.assertFalse([one["name"] for one in packages[1:] if one["licenseDeclared"] == "NOASSERTION"])
        validator = TOOLS / "pyspdxtools"
        if validator.exists():
            validated = run(validator, "-i", self.dir / "first/stackd.spdx.json")
            self.assertEqual((0, ""), (validated.returncode, validated.stdout), validated.stderr)


class AgentObjectTest(unittest.TestCase):
    """What the loader of an old or another C library would refuse."""

    def test_asks_for_no_symbol_younger_than_glibc_2_17(self):
        needs = run("readelf", "-VW", AGENT).stdout
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([0-9.]+)", needs)}
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), OLDEST_GLIBC)
        self.assertNotIn("GLIBC_PRIVATE", needs)

    def test_needs_libc_and_nothing_else(self):
        """Others may be lacking in an image that has just what its program needs, and then the program would not start."""
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", AGENT).stdout)
        self.assertEqual(["libc.so.6"], needed)

    def test_a_linker_finds_all_symbols_in_glibc_2_17(self):
        if not (TOOLS / "pyspdxtools").exists() or run(TOOLS / "python", "-c", "import ziglang").returncode != 0:
            self.skipTest("ziglang is missing: deploy/install-deps.sh --tests installs it")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "main.c"
            source.write_text("extern const char* stackd_version(void);\nint main(void) { return stackd_version()[0] == 0; }\n")
            linked = run(TOOLS / "python", "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-o", f"{folder}/main", source,
                         AGENT, "-Wl,--no-allow-shlib-undefined", env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": f"{folder}/cache"})
            self.assertEqual(0, linked.returncode, linked.stderr)

    def test_musl_has_all_symbols(self):
        if not MUSL.exists():
            self.skipTest("musl is missing: deploy/install-deps.sh --tests installs it")
        symbols = run("nm", "-D", "--undefined-only", AGENT).stdout
        wanted = set(re.findall(r" U ([^@\s]+)", symbols))
        has = {line.split()[-1] for line in run("nm", "-D", "--defined-only", MUSL).stdout.splitlines()}
        self.assertEqual(set(), wanted - has)


class OtherLibcTest(PodTestCase):
    """Containers with nothing in them but another C library and a program, beside the image of stackd."""

    def make_root(self, pod):
        root = pod.dir / "root"
        for folder in ("proc", "dev", "sys", "tmp", "app", "run/stackd", "lib", "lib64"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        return root

    def check(self, pod, command, root, *, names=(), crash_names=()):
        """A live dump, and then its crash."""
        pod.start_sidecar()
        app = pod.start_app(*command, root=root, stdin="")
        process, = pod.await_processes()
        dump = pod.dump(process["name"])
        self.assertEqual("COMPLETE", dump.state, dump.notes)
        seen = {frame.get("function") for stack in dump.stacks for frame in stack.get("frames", [])}
        self.assertLessEqual(set(names), seen)
        app.say("crash")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        crash, = pod.await_dumps("--crashes")
        seen = {frame.get("function") for stack in pod.whole(crash["name"]).stacks for frame in stack.get("frames", [])}
        self.assertLessEqual(set(crash_names), seen)

    def test_musl(self):
        if not MUSL.exists() or shutil.which("musl-gcc") is None:
            self.skipTest("musl-gcc is missing: deploy/install-deps.sh --tests installs it")
        pod = self.make_pod()
        root = self.make_root(pod)
        shutil.copy(MUSL.resolve(), root / "lib/ld-musl-x86_64.so.1")
        built = run("musl-gcc", "-g", "-O1", "-o", pod.programs / "app", APPS / "app.c")
        self.assertEqual(0, built.returncode, built.stderr)
        self.assertIn("ld-musl", run("readelf", "-l", pod.programs / "app").stdout)
        self.check(pod, [pod.add_file(pod.programs / "app")], root, names=["sleep", "stands_still", "run", "main", "_start"],
                   crash_names=["read_at_null", "main"])

    def old_root(self, pod):
        if not OLD_GLIBC.exists():
            self.skipTest("there is no older glibc here: deploy/install-deps.sh --tests fetches one where it can")
        root = self.make_root(pod)
        for folder in ("usr", "lib", "lib64"):
            shutil.copytree(OLD_GLIBC / folder, root / folder, symlinks=True, dirs_exist_ok=True)
        return root

    def build_for(self, root, output, *flags, libraries=()):
        """With this machine's compiler, and linked with the C library in `root` only; no start files of a newer one."""
        libc = next((root / "lib/x86_64-linux-gnu").glob("libc-2.*.so"))
        start = pathlib.Path(output).parent / "start.c"
        start.write_text("int main(void);\nextern int __libc_start_main(int (*)(void), int, char**, void (*)(void), void (*)(void), "
                         "void (*)(void), void*);\nstatic void nothing(void) {}\n__attribute__((used)) static void begin(long* stack) {\n"
                         "  __libc_start_main(main, (int)stack[0], (char**)(stack + 1), nothing, nothing, 0, stack);\n}\n"
                         '__asm__(".globl _start\\n_start: xor %ebp, %ebp\\nmov %rsp, %rdi\\nand $-16, %rsp\\ncall begin\\nhlt");\n')
        done = run("gcc", "-g", "-O1", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-no-pie", "-nostdlib", *flags, "-o", output, start,
                   APPS / "app.c", *libraries, libc, "-Wl,--allow-shlib-undefined",
                   "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2")
        self.assertEqual(0, done.returncode, done.stderr)
        start.unlink()
        return libc

    def test_old_glibc(self):
        """Threads in a library of their own, and no dlsym() at all."""
        pod = self.make_pod()
        root = self.old_root(pod)
        threads = next((root / "lib/x86_64-linux-gnu").glob("libpthread-2.*.so"))
        libc = self.build_for(root, pod.programs / "app", libraries=[threads])
        print(f"\n    {libc.name}", flush=True)
        self.check(pod, [pod.add_file(pod.programs / "app")], root, names=["stands_still"], crash_names=["read_at_null", "main"])

    def test_old_glibc_with_python(self):
        pod = self.make_pod()
        root = self.old_root(pod)
        self.check(pod, ["/usr/bin/python3.9", pod.add_file(APPS / "app.py")], root, names=["stands_still"],
                   crash_names=["read_at_null"])

    def test_old_glibc_without_threads(self):
        """Where the agent can have no thread either, and so no connection: the crash goes by the spool."""
        pod = self.make_pod()
        root = self.old_root(pod)
        self.build_for(root, pod.programs / "app", "-DALONE")
        pod.start_sidecar()
        app = pod.start_app(pod.add_file(pod.programs / "app"), root=root, stdin="")
        app.say("crash")
        self.assertEqual(SEGFAULT, app.wait(), app.output())
        pod.restart_sidecar()
        crash, = pod.await_dumps("--crashes")
        self.assertEqual("app", pod.whole(crash["name"]).resource["process"]["displayName"])


if __name__ == "__main__":
    unittest.main()
