"""What a release publishes, installed and used where there is no compiler of C and no other part of stackd.

The packages are installed on Debian 13. Debian 11 and a root with musl alone have client and agent, and the daemon of the image.
Packages of languages are installed by the tools of these, and Helm pulls the chart from a registry.
"""

import functools
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import tarfile
import tempfile
import threading
import time
import unittest

import pytest

import jdks
import nodes
from bare_systems import AWAIT, DUMP, INSTALL, START, BareSystem, folder, release, run, why_not

FIRST_DUMP_S = 60
MUSL = pathlib.Path("/lib/ld-musl-x86_64.so.1")


# The daemon of the image, as a container would run it beside the system's programs, with one folder shared.
START_IMAGE = """
install -d -o 64532 -g 64532 /run/stackd
mkdir -p /image/proc /image/dev
mount --bind /run/stackd /image/run/stackd
mount -t proc proc /image/proc
mount --bind /dev /image/dev
chroot --userspec=64532:64532 /image /usr/bin/stackd 2>/tmp/stackd.log &
""" + AWAIT

# A program in /musl, which is the root of its mount namespace.
RUN_IN_MUSL = """
unshare --mount sh -ec '
  mount --bind /musl /musl
  cd /musl
  mkdir -p proc run/stackd old
  mount -t proc proc proc
  mount --bind /run/stackd run/stackd
  pivot_root . old
  STACKD_NAME=orders exec /lib/ld-musl-x86_64.so.1 --preload /usr/lib/libstackd_agent.so /orders' &
until_said orders stackctl ps
stackctl dump orders
"""

ORDERS_JAVA = """import dev.stackd.Stackd;

public class Orders {
  public static void main(String[] arguments) throws Exception {
    Stackd.setProcessName("orders");
    waitForOrders();
  }

  static void waitForOrders() throws Exception {
    Thread.sleep(1000000);
  }
}
"""

ORDERS_GO = """package main

import (
	"time"

	"stackd.example/go"
)

func waitForOrders() { time.Sleep(time.Hour) }

func main() {
	stackd.SetProcessName("orders")
	waitForOrders()
}
"""

ORDERS_RUST = """fn wait_for_orders() {
    std::thread::sleep(std::time::Duration::from_secs(3600));
}

fn main() {
    stackd::install().unwrap();
    stackd::set_process_name("orders").unwrap();
    wait_for_orders();
}
"""


def unpack_image(into):
    """The files of the image, as a container has them."""
    with tempfile.TemporaryDirectory() as layout:
        archive, = release().glob("stackd-image-*.oci.tar")
        run("tar", "-C", layout, "-xf", archive)
        index = json.loads((pathlib.Path(layout) / "index.json").read_text())
        tag = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]
        run("umoci", "raw", "unpack", "--image", f"{layout}:{tag}", into)


class Released(unittest.TestCase):
    limit_s = 900

    def install_agent_and_client(self, system):
        """Installs what a system takes whose C++ library is too old for the package of the daemon."""
        unpack_image(system.root / "image")
        return system.script("apt-get install -y ./release/libstackd-agent_*.deb ./release/stackctl_*.deb\n" + START_IMAGE + DUMP)


@unittest.skipIf(why_not(), why_not())
@pytest.mark.xdist_group("packages")  # one worker builds for all cases
class DistributionsTest(Released):

    def test_debian_13_installs_the_packages_and_takes_a_dump(self):
        system = BareSystem(self, "debian-13")
        began_s = time.monotonic()
        said = system.script(INSTALL + START + DUMP)
        took_s = time.monotonic() - began_s
        print(f"bare Debian 13: installed and dumped in {took_s:.1f} s")
        self.assertRegex(said, r"#\d+ .*nanosleep.*libc\.so\.6")
        self.assertRegex(said, r"#\d+ .*\(sleep")
        self.assertLess(took_s, FIRST_DUMP_S)

    @pytest.mark.thorough
    def test_debian_11_has_client_and_agent_beside_the_image(self):
        system = BareSystem(self, "debian-11")
        refused = system.script("apt-get install -y ./release/*.deb && exit 1 || true")
        self.assertRegex(refused, r"stackd : Depends: lib")
        self.assertRegex(self.install_agent_and_client(system), r"#\d+ .*nanosleep \(libc-2\.31\.so\)")

    @pytest.mark.thorough
    @unittest.skipIf(not MUSL.exists() or not shutil.which("musl-gcc"), "no musl, or no musl-gcc (package musl-tools)")
    def test_a_root_with_musl_alone_has_client_and_agent_beside_the_image(self):
        """As in a container of Alpine: its C library, a program, the client of the archive, the agent of the package."""
        system = BareSystem(self, "debian-13")
        unpack_image(system.root / "image")
        root = system.root / "musl"
        (root / "lib").mkdir(parents=True)
        shutil.copy(MUSL.resolve(), root / "lib" / MUSL.name)
        client, = release().glob("stackctl-*.tar.gz")
        run("tar", "-C", root, "-xf", client, "--strip-components=1")
        agent, = release().glob("libstackd-agent_*.deb")
        run("dpkg-deb", "-x", agent, root)
        source = root / "orders.c"
        source.write_text("#include <unistd.h>\nint main(void) { for (;;) sleep(1000); }\n")
        run("musl-gcc", "-g", "-o", root / "orders", source)
        said = system.script('stackctl() { /musl/stackctl "$@"; }\n' + START_IMAGE + RUN_IN_MUSL)
        self.assertRegex(said, r"#\d+ .*main .*orders\.c")


@unittest.skipIf(why_not(), why_not())
@pytest.mark.thorough
@pytest.mark.xdist_group("packages")
class LanguagesTest(Released):
    """Each package by the tool of its language, on a Debian 13 that has no compiler of C."""

    def dump(self, system, commands, run_program):
        """Installs the release and `commands`, runs a program that calls itself orders, and returns its dump."""
        return system.script(INSTALL + commands + START + f"({run_program}) &\nuntil_said orders stackctl ps\nstackctl dump orders")

    def test_pip_installs_the_wheel(self):
        system = BareSystem(self, "debian-13")
        (system.root / "orders.py").write_text("import time\n\n\ndef wait_for_orders():\n    time.sleep(1000)\n\n\nwait_for_orders()\n")
        said = self.dump(system, "python3 -m venv /venv\n/venv/bin/pip install --quiet --no-index ./release/stackd-*.whl\n",
                         "STACKD_NAME=orders /venv/bin/python /orders.py")
        self.assertRegex(said, r"wait_for_orders .*orders\.py:5")

    def test_npm_installs_the_package(self):
        if not shutil.which("npm") or not nodes.found():
            self.skipTest("there is no npm, or no Node.js that the agent knows")
        system = BareSystem(self, "debian-13")
        system.lend(pathlib.Path(run("npm", "root", "-g").strip()) / "npm", "opt/npm")
        system.lend(nodes.found()[-1].path.parent, "opt/node")
        (system.root / "app").mkdir()
        (system.root / "app/orders.js").write_text("function waitForOrders() {\n  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);\n}\n"
                                                   "waitForOrders();\n")
        said = self.dump(system, "cd /app\nPATH=/opt/node:$PATH\nnode /opt/npm/bin/npm-cli.js install --offline --no-audit --no-fund /release/stackd-[0-9]*.tgz\ncd /\n",
                         "cd /app && STACKD_NAME=orders node --require stackd/register orders.js")
        self.assertRegex(said, r"waitForOrders .*orders\.js:2")

    def test_java_takes_the_jar(self):
        system = BareSystem(self, "debian-13")
        jar, = release().glob("stackd-*.jar")
        (system.root / "app").mkdir()
        source = system.root / "app/Orders.java"
        source.write_text(ORDERS_JAVA)
        run(jdks.tool("javac"), "--release", "8", "-Xlint:-options", "-cp", jar, "-d", source.parent, source)
        said = self.dump(system, "", "java -agentpath:/usr/lib/libstackd_java.so -cp /app:$(echo /release/stackd-*.jar) Orders")
        self.assertRegex(said, r"Orders\.waitForOrders.*Orders\.java:10")

    def test_go_gets_the_module(self):
        go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
        if not go:
            self.skipTest("there is no go")
        system = BareSystem(self, "debian-13")
        system.lend(run(go, "env", "GOROOT").strip(), "opt/go")
        (system.root / "app").mkdir()
        (system.root / "app/main.go").write_text(ORDERS_GO)
        said = self.dump(system, "tar -xf release/stackd-go-*.tar.gz\ncd /app\nexport HOME=/tmp GOPROXY=\"file://$(echo /stackd-go-*)\" "
                         "GONOSUMDB=stackd.example GOTOOLCHAIN=local\nPATH=$PATH:/opt/go/bin\ngo mod init orders\n"
                         "go get stackd.example/go@latest\nCGO_ENABLED=0 go build -o orders .\ncd /\n", "/app/orders")
        self.assertRegex(said, r"main\.waitForOrders .*main\.go:9")

    def test_cargo_adds_the_crate(self):
        """With this machine's compiler: the crate has C in it. Then it runs where there is none."""
        path = os.environ["PATH"] + os.pathsep + os.path.expanduser("~/.cargo/bin")
        system = BareSystem(self, "debian-13")
        crate, = release().glob("stackd-*.crate")
        run("tar", "-C", system.root, "-xf", crate)
        cargo = functools.partial(run, shutil.which("cargo", path=path), env={**os.environ, "PATH": path}, cwd=system.root)
        cargo("new", "--quiet", "--vcs", "none", "orders")
        (system.root / "orders/src/main.rs").write_text(ORDERS_RUST)
        cargo = functools.partial(cargo, cwd=system.root / "orders")
        cargo("add", "--quiet", "--path", f"../{crate.stem}")
        cargo("build", "--quiet")
        said = self.dump(system, "", "/orders/target/debug/orders")
        self.assertRegex(said, r"wait_for_orders .*main\.rs:2")


class Registry(http.server.BaseHTTPRequestHandler):
    """As much of a registry as a client pulls from: manifests and blobs of the OCI layout in `layout`."""

    layout = None

    def do_GET(self):
        *_, kind, reference = self.path.split("/")
        index = json.loads((self.layout / "index.json").read_text())["manifests"][0]
        if kind == "manifests" and not reference.startswith("sha256:"):
            reference = index["digest"] if reference == index["annotations"]["org.opencontainers.image.ref.name"] else "none"
        blob = self.layout / "blobs/sha256" / reference.removeprefix("sha256:")
        body = blob.read_bytes() if kind in ("manifests", "blobs") and blob.exists() else b""
        self.send_response(200 if body or self.path == "/v2/" else 404)
        self.send_header("Content-Type", index["mediaType"] if kind == "manifests" else "application/octet-stream")
        self.send_header("Docker-Content-Digest", reference)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *arguments):
        """Is what the test's output is not for."""


@unittest.skipIf(why_not(), why_not())
@pytest.mark.xdist_group("packages")
class ChartTest(unittest.TestCase):

    def test_helm_pulls_the_chart_from_a_registry(self):
        if not shutil.which("helm"):
            self.skipTest("there is no helm: deploy/install-deps.sh --tests builds it")
        place = pathlib.Path(tempfile.mkdtemp(dir=folder()))
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        artefact, = release().glob("stackd-chart-*.oci.tar")
        with tarfile.open(artefact) as archive:
            archive.extractall(place / "layout")
        handler = type("RegistryOfChart", (Registry,), {"layout": place / "layout"})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        run("helm", "pull", f"oci://127.0.0.1:{server.server_port}/charts/stackd", "--plain-http", "--version",
            artefact.name.removeprefix("stackd-chart-").removesuffix(".oci.tar"), "--destination", place, env={**os.environ, "HOME": str(place)})
        chart, = place.glob("stackd-*.tgz")
        packed, = release().glob("stackd-chart-*.tgz")
        self.assertEqual(hashlib.sha256(packed.read_bytes()).digest(), hashlib.sha256(chart.read_bytes()).digest())


if __name__ == "__main__":
    unittest.main()
