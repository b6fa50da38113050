"""Everything that an operator copies from the documents does what they say: commands are run, manifests are judged.

A command is run in bash as it stands there, block by block. stand_in.py is in PATH in place of the programs and changes what it
must. `kubectl exec` is what the container would do, against a real daemon with a hung and a crashed program. What goes to a cluster
goes to the real kubectl, and to a server that knows one pod (cluster.py).
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import documents
import manifests
import privileges
from cluster import Cluster
from documents import DEPLOY, GUIDES, PAGES, ROOT, RUNBOOKS
from harness import AGENT, BIN, PROGRAMS, STACKCTL, STACKD, StackdTest, eventually, free_port

import stand_in

# What a command must have printed, by a part of the command. A block that has none of them must only end well.
EXPECTED = {
    "stackctl ps": "orders",
    "stackctl list --hangs": "HANG",
    "stackctl list --crashes": "CRASH",
    "stackctl groups --explain": "crash",
    "stackctl groups --hangs": "HANG",
    ".stackGroups[]": '"crashCount": "',
    "dump orders --samples": "deadlocked",
    "Stackd/ListProcesses": "orders",
    "Stackd/CreateDump": "orders::Transfer",
    '"trigger": "HANG"': "HANG",
    "containers[*].env": "libstackd_agent.so",
    "volumeMounts[?": "/run/stackd",
    "kustomize deploy/kubernetes/example/sidecar": "restartPolicy: Always",
    "helm template orders": "restartPolicy: Always",
    "injection.enabled=true": "MutatingAdmissionPolicy",
    "dashboard.enabled=true": "PrometheusRule",
}

# What README.md names and others run: the first runs this test, the second is QuickstartTest's.
RUN_ELSEWHERE = {"tests/run.sh", "deploy/quickstart.sh"}
PROGRAMS_IN_PAGES = ("deploy/", "tests/", "grpcurl", "stackctl", "kubectl", "helm")

# What stands in manuals for something of the reader's, and what it is here.
SUBSTITUTIONS = [
    (r"^stackctl show NAME", "stackctl show"),
    (r"^stackctl dump NAME", "stackctl dump orders"),
    (r"^(stackctl \S+) NAME", r"\1 $(stackctl list -o json | jq -r '.dumps[0].name')"),
    (r"\b1234\b|\bPID\b", "$ORDERS_PID"),
    (r"^stackctl groups --explain FINGERPRINT", "stackctl groups --explain $(stackctl groups -o json | jq -r '.stackGroups[0].name')"),
    (r"^stackctl watch$", "timeout 2 stackctl watch || (( $? == 124 ))"),
    # null is no answer.
    (r"\| jq ", "| jq -e "),
    (r"\b(checkout|gunicorn)\b", "orders"),
    (r"\| flamegraph.pl > ", "| cat > "),
    (r"\bYOUR_PROGRAM\b", "/bin/true"),
]
# They end with another code than 0 when what they are for is not there, or run until they are ended.
MAY_END_OTHERWISE = {"stackctl dump checkout --timeout 200ms": 5}


def page_commands():
    """Commands in blocks of their own, and commands of the client in the text."""
    return [command for page in PAGES for name in [str(page.relative_to(ROOT))]
            for command in documents.indented_commands(page, name, PROGRAMS_IN_PAGES) + documents.inline_commands(page, name, "stackctl ")]


def manual_examples():
    """And those of the client in the text of manuals and guides."""
    commands = documents.indented_commands(ROOT / "client/stackctl.md", "client/stackctl.md", ("stackctl",))
    commands += documents.indented_commands(ROOT / "daemon/stackd.md", "daemon/stackd.md", ("grpcurl",))
    for path in (*GUIDES, *RUNBOOKS, ROOT / "daemon/stackd.md", ROOT / "daemon/stackd-rules.md"):
        commands += documents.inline_commands(path, str(path.relative_to(ROOT)), "stackctl ")
    return commands


def substituted(command):
    for pattern, replacement in SUBSTITUTIONS:
        command = re.sub(pattern, replacement, command)
    return command


def optional(name):
    try:
        return manifests.tool(name)
    except unittest.SkipTest:
        return None


class DocumentedTest(StackdTest):
    """A pod: a daemon, a program that hangs and one that has crashed; and what stands for its cluster."""

    def setUp(self):
        super().setUp()
        if not optional("kubectl"):
            self.skipTest("there is no kubectl")
        self.metrics_port = free_port()
        self.daemon = self.start_daemon(extra_args=["--metrics-listen", f"127.0.0.1:{self.metrics_port}"])
        crashed = self.start_victim("crash_deaths", "call_abort", ready=None)
        crashed.process.wait(60)
        orders = self.dir / "orders"
        shutil.copy(PROGRAMS / "demo_orders", orders)
        self.orders = self.start_victim(orders, env={"OTEL_SERVICE_NAME": "orders", "STACKD_CONTAINER_NAME": "app"})
        self.daemon.await_process(self.orders.pid)
        eventually("the crash and the hang are stored", lambda: all(
            self.daemon.ctl_json("list", which).get("dumps") for which in ("--crashes", "--hangs")))

        pod = manifests.mutate(manifests.policy_in(manifests.rendered()["kubernetes/inject"]), manifests.PROGRAM)
        pod["status"] = {"phase": "Running", "initContainerStatuses": [
            {"name": "stackd", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
             "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}
        self.cluster = Cluster(pod, self.daemon.log)
        self.addCleanup(self.cluster.close)

        # A checkout to stand in, so that what a command writes is not in ours.
        self.scratch = self.dir / "checkout"
        shutil.copytree(DEPLOY, self.scratch / "deploy", ignore=shutil.ignore_patterns("rendered"))
        bin_dir = self.dir / "bin"
        bin_dir.mkdir()
        for name in stand_in.NAMES:
            (bin_dir / name).symlink_to(pathlib.Path(stand_in.__file__))
        image = self.scratch / "deploy/image"
        image.mkdir(exist_ok=True)
        (image / "build.sh").unlink(missing_ok=True)
        (image / "build.sh").symlink_to(bin_dir / "build.sh")
        # The core of a process that the manual calls 1234.
        subprocess.run(["gcore", "-o", str(self.scratch / "core"), str(self.orders.pid)], capture_output=True, check=True)
        (self.dir / "kubeconfig").write_text(self.cluster.kubeconfig())
        self.settings = {
            "root": str(ROOT), "scratch": str(self.dir), "namespace": "shop",
            "programs": {"stackctl": str(STACKCTL), "grpcurl": optional("grpcurl"), "kubectl": optional("kubectl"),
                         "helm": optional("helm")},
            "addresses": {"127.0.0.1:7443": f"127.0.0.1:{self.daemon.port}",
                          "127.0.0.1:7445": f"127.0.0.1:{self.metrics_port}"},
        }
        self.environment = {**os.environ, "PATH": f"{bin_dir}:{manifests.CACHE}/bin:{os.environ['PATH']}",
                            "STACKD_STAND_IN": str(self.dir / "settings.json"), "KUBECONFIG": str(self.dir / "kubeconfig"),
                            "STACKD_ADDRESS": self.daemon.address, "NS": "shop", "POD": "orders-1"}
        # What earlier commands have put into variables is there for later ones, as in an operator's shell.
        self.environment.pop("LD_PRELOAD", None)

    def bash(self, script):
        (self.dir / "settings.json").write_text(json.dumps(self.settings))
        return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.scratch, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=250)

    def run_block(self, block):
        done = self.bash(block.text)
        self.assertEqual(0, done.returncode, f"{block}:\n{block.text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        self.expect(block, block.text, done.stdout)
        return done

    def expect(self, where, command, said):
        for part, expected in EXPECTED.items():
            if part in command:
                self.assertIn(expected, said, f"{where}: {part}")

    def left_out(self, block):
        """Why a block cannot be run here, or None."""
        if "helm" in block.text and not self.settings["programs"]["helm"]:
            return "there is no helm"
        if "grpcurl" in block.text and not self.settings["programs"]["grpcurl"]:
            return "there is no grpcurl"
        return None

    def run_document(self, path):
        name = str(path.relative_to(ROOT))
        blocks = [block for block in documents.fenced(path, name) if block.language == "sh"]
        blocks += documents.inline_commands(path, name)
        for block in blocks:
            with self.subTest(str(block)):
                if why := self.left_out(block):
                    self.skipTest(why)
                if "tls.crt" in block.text:
                    self.prepare_certificates()
                if " debug " in block.text:
                    # It is for a pod that has no sidecar.
                    pod = manifests.pod_of(manifests.documents(manifests.rendered()["kubernetes/example/agent-only"])[0])
                    self.cluster.pod = {**pod, "metadata": self.cluster.pod["metadata"]}
                self.run_block(block)
        return blocks

    def prepare_certificates(self, server="DNS:orders.shop"):
        """An authority, the daemon's certificate and mine; and a daemon that wants them, with a program of its own."""

        def openssl(*arguments):
            manifests.run("/usr/bin/openssl", *arguments, cwd=self.scratch)

        new_key = ("req", "-newkey", "rsa:2048", "-nodes")
        openssl(*new_key, "-x509", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority")
        for name, alternative in (("tls", server), ("me", "URI:spiffe://cluster.local/ns/operations/sa/me")):
            (self.scratch / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
            openssl(*new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                    "-out", f"{name}.crt", "-extfile", f"{name}.ext")
        values = next(block for block in documents.fenced(DEPLOY / "README.md", "") if block.tag == "values")
        (self.scratch / "access.yaml").write_text(yaml.safe_load(values.text)["access"])
        folder = self.dir / "tls"
        folder.mkdir()
        path = lambda name: self.scratch / name
        daemon = self.start_daemon(folder, extra_args=[
            "--tls-cert", path("tls.crt"), "--tls-key", path("tls.key"), "--tls-client-ca", path("ca.crt"),
            "--access", path("access.yaml")])
        daemon.await_process(self.start_victim(self.dir / "orders", directory=folder).pid)
        self.settings["addresses"]["orders.shop:7443"] = f"127.0.0.1:{daemon.port}"


class GuideTest(DocumentedTest):

    limit_s = 900

    def test_the_commands_of_the_guides(self):
        self.assertGreater(sum(len(self.run_document(path)) for path in GUIDES), 8)
        self.judge_what_the_cluster_got()
        for name, least in {"dump.json": 1000, "dump.folded": 100, "dump.dmp": 1000, "dump.pb.gz": 500,
                            "dump.speedscope.json": 1000}.items():
            self.assertGreater((self.scratch / name).stat().st_size, least)
        json.loads((self.scratch / "dump.json").read_text())
        self.assertEqual(b"MDMP", (self.scratch / "dump.dmp").read_bytes()[:4])

    def judge_what_the_cluster_got(self):
        kinds = [body["kind"] for _, body in self.cluster.received]
        for kind in ("Deployment", "DaemonSet", "PersistentVolume", "Pod"):
            self.assertIn(kind, kinds)
        applied = [body for _, body in self.cluster.received if "protobuf" not in body]
        self.assertEqual("", manifests.run(manifests.admission(), "validate", stdin=json.dumps(applied)).stdout)
        pod = next(body for body in applied if body["kind"] == "Pod")
        # kubectl debug has put the ephemeral container in.
        self.assertEqual(["stackd"], [c["name"] for c in pod["spec"]["ephemeralContainers"]])
        self.assertEqual([], list(privileges.of_pod(pod)))

    def test_the_commands_of_the_runbooks(self):
        for path in RUNBOOKS:
            self.assertTrue(self.run_document(path), f"{path} has no command")

    def test_the_commands_of_readme_and_book(self):
        self.environment["ORDERS_PID"] = str(self.orders.pid)
        commands = page_commands()
        self.assertGreater(len(commands), 15)
        for block in commands:
            command = block.text.strip()
            with self.subTest(f"{block} {command}"):
                if command in RUN_ELSEWHERE:
                    continue
                if why := self.left_out(block):
                    self.skipTest(why)
                self.run_block(dataclasses.replace(block, text=substituted(command)))

    def test_the_examples_of_the_manuals(self):
        if not shutil.which("jq"):
            self.skipTest("there is no jq")
        self.environment["ORDERS_PID"] = str(self.orders.pid)
        commands = manual_examples()
        self.assertGreater(len(commands), 25)
        for block in commands:
            command = block.text.strip()
            if "COMMAND" in command:  # the synopsis
                continue
            # Explanations that stand one space behind, where the command is long.
            command = re.sub(r"(--timeout 200ms|-r \.verdict) .*", r"\1", command)
            script = substituted(command)
            with self.subTest(str(block)):
                done = self.bash(script)
                self.assertIn(done.returncode, {0, MAY_END_OTHERWISE.get(command, 0)},
                              f"{block}: {script}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
                if ">" not in script and "--to" not in script:
                    self.assertTrue(done.stdout.strip(), f"{block}: {script} prints nothing")
                self.expect(block, script, done.stdout)

    def test_each_expectation_is_of_a_command(self):
        texts = [block.text for path in [*GUIDES, *RUNBOOKS]
                 for block in documents.fenced(path, path.name) + documents.inline_commands(path, path.name)]
        texts += [substituted(block.text) for block in page_commands() + manual_examples()]
        self.assertEqual([], [part for part in EXPECTED if not any(part in text for text in texts)])


    def test_the_manual_of_the_daemon(self):
        """Its files, and its lines that start the daemon and a program, as one script."""
        manual = ROOT / "daemon/stackd.md"
        self.prepare_certificates("IP:127.0.0.1")
        for name, its_manual in (("access", manual), ("rules", ROOT / "daemon/stackd-rules.md")):
            (self.scratch / f"{name}-of-manual.yaml").write_text(documents.indented_from(its_manual, f"{name}:"))
        blocks = documents.indented_commands(manual, str(manual), ("stackd", "stackctl", "STACKD_DIR="))
        commands = [block.text.strip() for block in blocks]
        lines = [command for command in commands if "[" not in command and not command.endswith(" FILE")]
        self.assertEqual(6, len(lines), lines)
        lines.remove("stackd install-agent DIR")  # image_test runs it
        (self.scratch / "bin").mkdir()
        (self.scratch / "bin/stackd").symlink_to(STACKD)
        port = free_port()
        substitutions = [("/tmp/stackd", str(self.dir / "own")), ("/path/to/libstackd_agent.so", str(AGENT)),
                         ("your-program", f"{PROGRAMS}/demo_orders > /dev/null"), ("0.0.0.0:7443", f"127.0.0.1:{port}"),
                         ("/tls/", f"{self.scratch}/"), ("/etc/stackd/access.yaml", f"{self.scratch}/roles.yaml"),
                         ("stackd.example:7443", f"127.0.0.1:{port}")]
        (self.scratch / "roles.yaml").write_text('access: [{uri: "spiffe://cluster.local/ns/operations/sa/me", role: read}]\n')
        script = "\n".join(lines)
        for documented, here in substitutions:
            self.assertIn(documented, script)
            script = script.replace(documented, here)
        started = [line.removesuffix(" &") for line in script.splitlines()]
        (self.dir / "own").mkdir()
        wait = 'tries=0; until {}; do sleep 0.1; (( ++tries < 300 )); done'
        ctl = f"STACKD_DIR={self.dir / 'own'} {STACKCTL}"
        done = self.bash("\n".join([
            "trap 'kill $(jobs -p)' EXIT", "unset STACKD_ADDRESS", f"export PATH={self.scratch}/bin:$PATH",
            *(f"stackd check-{name} {name}-of-manual.yaml" for name in ("access", "rules")),
            f"{started[0]} 2> own.log &", f"{started[1]} &", wait.format(f"{ctl} ps 2> /dev/null | grep -q demo_orders"), started[2],
            f"{started[3]} --dir {self.dir / 'other'} 2> other.log &", wait.format(f"{started[4]} 2> /dev/null")]))
        self.assertEqual(0, done.returncode, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        self.assertIn("orders::Transfer", done.stdout)
        self.assertIn("3 entries, loopback dump", done.stdout)


class QuickstartTest(StackdTest):
    """deploy/quickstart.sh, and what it tells the user to type next. What it builds has been built for all tests."""

    def test_it_shows_a_hang_and_what_it_says_next_works(self):
        checkout = self.dir / "checkout"
        shutil.copytree(DEPLOY, checkout / "deploy")
        (checkout / "bazel-bin").symlink_to(BIN)
        tools = self.dir / "tools"
        tools.mkdir()
        (tools / "bazel").write_text("#!/bin/sh\nexit 0\n")
        (tools / "bazel").chmod(0o755)
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.dir),
                       "PATH": f"{tools}:{manifests.CACHE}/bin:{os.environ['PATH']}"}
        environment.pop("STACKD_ADDRESS", None)

        def run(script):
            done = subprocess.run(["bash", "-c", script], cwd=checkout, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=200)
            self.assertEqual(0, done.returncode, f"{script}:\n{done.stdout}{done.stderr}")
            return done.stdout

        try:
            shown = run("deploy/quickstart.sh")
            self.assertIn("HANG: 2 threads wait for each other", shown)
            commands = [re.sub(r" {2,}#.*| +# .*", "", line.strip())
                        for line in shown[shown.index("What to type next:"):].splitlines() if line.startswith("  ")]
            self.assertGreater(len(commands), 9)
            variables = next(command for command in commands if command.startswith("export "))
            self.check_pages(run, variables, (self.dir / f"stackd-quickstart-{os.getuid()}/port").read_text().strip())
            for command in commands:
                if command.startswith("grpcurl") and not optional("grpcurl"):
                    continue
                with self.subTest(command):
                    run(f"{variables}; {substituted(command).split(', then:')[0]}")
        finally:
            run("deploy/quickstart.sh --stop")


    def check_pages(self, run, variables, port):
        """Their lines for an incident and for a dump, as they stand there, of the program that the quickstart started."""
        commands = [block.text.strip() for block in page_commands()]
        self.assertIn("stackctl dump orders", commands)
        for command in dict.fromkeys(commands):
            if command == "stackctl dump orders" or command.startswith("grpcurl") and optional("grpcurl"):
                with self.subTest(command):
                    said = run(f"{variables}; {command.replace('127.0.0.1:7443', f'127.0.0.1:{port}')}")
                    self.assertIn("{" if "ListStackGroups" in command or "describe" in command else "orders", said)


class ManifestsInDocumentsTest(unittest.TestCase):

    def blocks(self, tag):
        found = [block for path in [*GUIDES, *RUNBOOKS] for block in documents.fenced(path, str(path.relative_to(ROOT)))
                 if block.language == "yaml" and block.tag == tag]
        self.assertTrue(found, f"no document has a {tag}")
        return found

    def test_each_manifest_has_a_test(self):
        known = {"kustomization", "pod-template", "container", "values"}
        for path in [*GUIDES, *RUNBOOKS]:
            for block in documents.fenced(path, str(path.relative_to(ROOT))):
                self.assertIn((block.language, block.tag), {("sh", ""), *(("yaml", tag) for tag in known)}, str(block))

    def test_kustomizations(self):
        for block in self.blocks("kustomization"):
            with self.subTest(str(block)), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                shutil.copytree(DEPLOY / "kubernetes", folder / "deploy/kubernetes")
                (folder / "apps/orders").mkdir(parents=True)
                shutil.copy(DEPLOY / "kubernetes/example/base/orders.yaml", folder / "apps/orders")
                (folder / "apps/orders/kustomization.yaml").write_text(block.text)
                built = manifests.documents(manifests.kustomize(folder / "apps/orders"))
                pod = manifests.pod_of(built[0])
                self.assertEqual([], list(privileges.of_pod(pod)))
                images = {container["image"] for container in pod["spec"]["initContainers"]}
                self.assertEqual({"registry.example/tools/stackd:0.1.0"}, images)

    def test_pod_templates(self):
        policy = manifests.policy_in(manifests.rendered()["kubernetes/inject"])
        for block in self.blocks("pod-template"):
            with self.subTest(str(block)):
                pod = json.loads(json.dumps(manifests.PROGRAM))
                pod["metadata"] = {"name": "orders-1", "namespace": "shop", **yaml.safe_load(block.text)["metadata"]}
                injected = manifests.mutate(policy, pod)
                self.assertEqual("stackd", injected["spec"]["initContainers"][0]["name"])
                self.assertIn("LD_PRELOAD", [entry["name"] for entry in injected["spec"]["containers"][0]["env"]])

    def test_containers(self):
        for block in self.blocks("container"):
            with self.subTest(str(block)):
                pod = json.loads(json.dumps(manifests.PROGRAM))
                pod["spec"]["containers"] = [yaml.safe_load(block.text)]
                faults = manifests.run(manifests.admission(), "validate", stdin=json.dumps([pod])).stdout
                self.assertEqual("", faults)

    def test_values(self):
        for block in self.blocks("values"):
            with self.subTest(str(block)), tempfile.TemporaryDirectory() as folder:
                values = pathlib.Path(folder) / "values.yaml"
                values.write_text(block.text)
                made = manifests.documents(manifests.helm_template(manifests.CHART, "-f", values).stdout)
                self.assertIn("MutatingAdmissionPolicy", [document["kind"] for document in made])
                access = pathlib.Path(folder) / "access.yaml"
                access.write_text(yaml.safe_load(block.text)["access"])
                manifests.run(STACKD, "check-access", access)


if __name__ == "__main__":
    unittest.main()
