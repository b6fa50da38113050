"""What the manifests start does start: the daemon with its arguments, the agent where LD_PRELOAD looks, and the probes.

No container: folders and ports of the test take the place of volumes and of the pod's ports. pod_test has containers.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import unittest
import urllib.request

import endpoint_slices
import fleet_gateway
import manifests
from harness import LIMIT_S, STACKCTL, STACKD, StackdTest, accepts, die_with_parent, eventually, free_port


PREPARE = (fleet_gateway.build_gateway_of_cluster,)


def pod_address():
    """An address of this machine that is not loopback, or None: what a kubelet would dial."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            address = probe.getsockname()[0]
        except OSError:
            return None
        return None if address.startswith("127.") else address


class ManifestsRunTest(StackdTest):

    def setUp(self):
        super().setUp()
        self.ports = {}

    def here(self, text):
        """The same argument or value, with this test's folders and ports."""
        for volume, folder in self.folders.items():
            text = text.replace(volume, str(folder))
        for port in (7443, 7444, 7445, 7447):
            if text.endswith(f":{port}"):
                text = text.removesuffix(str(port)) + str(self.ports.setdefault(port, free_port()))
        return text

    def mount(self, pod, container, texts):
        """A folder for each volume of the container, filled with what the objects of `texts` have for it."""
        self.ports = {}
        self.folders = {}
        objects = manifests.documents(texts)
        for mount in sorted(container["volumeMounts"], key=lambda m: -len(m["mountPath"])):
            volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
            folder = self.dir / mount["mountPath"].strip("/").replace("/", "-")
            folder.mkdir(exist_ok=True)
            self.folders[mount["mountPath"]] = folder
            if "configMap" in volume:
                data = next(o["data"] for o in objects if (o["kind"], o["metadata"]["name"]) == ("ConfigMap", volume["configMap"]["name"]))
                for name, text in data.items():
                    (folder / name).write_text(text)
            if "secret" in volume:
                self.make_certificate(folder)
                (folder / "token").write_text("of-the-store\n")

    def make_certificate(self, folder):
        manifests.run("/usr/bin/openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "tls.key",
                      "-out", folder / "tls.crt", "-subj", "/CN=stackd", "-addext", "subjectAltName=DNS:stackd")
        shutil.copy(folder / "tls.crt", folder / "ca.crt")

    def start(self, container):
        env = {entry["name"]: entry.get("value", "of-the-pod") for entry in container["env"]}
        log = open(self.dir / "daemon.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([STACKD, *map(self.here, container["args"])], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, env={**os.environ, **env}, preexec_fn=die_with_parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        folder = self.folders["/run/stackd"]

        def ready():
            self.assertIsNone(process.poll(), (self.dir / "daemon.log").read_text())
            return accepts(folder / "api.sock") and accepts(folder / "stackd.sock")

        eventually("the daemon listens", ready)
        return process

    def probe(self, address, probe):
        """As a kubelet: a GET at the pod's address, without TLS."""
        asked = probe["httpGet"]
        with urllib.request.urlopen(f"http://{address}:{self.ports[asked['port']]}{asked['path']}", timeout=LIMIT_S) as answer:
            return answer.status

    def daemons(self):
        found = {}
        for where, pod in manifests.pods().items():
            for field in ("initContainers", "containers"):
                for container in pod["spec"].get(field, []):
                    if container["name"] == "stackd":
                        found[where] = (pod, container)
        return found

    def test_the_daemon_of_each_manifest_starts_and_answers_its_probes(self):
        address = pod_address() or "127.0.0.1"
        tried = set()
        for where, (pod, container) in self.daemons().items():
            key = json.dumps(container["args"])
            if key in tried:
                continue
            tried.add(key)
            with self.subTest(where):
                self.mount(pod, container, manifests.rendered()[where.split(":")[0]])
                process = self.start(container)
                for kind in {"readinessProbe", "livenessProbe"} & container.keys():
                    self.assertEqual(200, self.probe(address, container[kind]))
                if "--metrics-listen=:7445" in container["args"]:
                    with urllib.request.urlopen(f"http://{address}:{self.ports[7445]}/metrics", timeout=LIMIT_S) as page:
                        self.assertIn("stackd_build_info", page.read().decode())
                # On loopback no other host reaches the API.
                if "--listen=127.0.0.1:7443" in container["args"] and pod_address():
                    with self.assertRaises(OSError):
                        socket.create_connection((address, self.ports[7443]), timeout=5)
                process.terminate()
                self.assertEqual(0, process.wait(LIMIT_S))
                for folder in self.folders.values():
                    shutil.rmtree(folder)
        self.assertGreater(len(tried), 4)

    @unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
    def test_the_gateway_of_each_manifest_starts_and_becomes_ready_by_its_api_server(self):
        gateways = {where: pod for where, pod in manifests.pods().items() if where.endswith("Deployment stackd-gateway")}
        self.assertEqual(3, len(gateways), list(gateways))
        server = endpoint_slices.ApiServer(self)
        server.add("checkout-7d9f8b6c5d-bbbbb", 7443)
        (self.dir / "kubeconfig").write_text(server.kubeconfig())
        for where, pod in gateways.items():
            with self.subTest(where):
                container = pod["spec"]["containers"][0]
                self.mount(pod, container, manifests.rendered()[where.split(":")[0]])
                args = [self.here(arg.replace("$(POD_NAMESPACE)", "shop")) for arg in container["args"] if "=billing/" not in arg]
                self.assertIn("--targets-service=shop/stackd", args)
                with open(self.dir / "gateway.log", "w") as log:
                    process = subprocess.Popen([fleet_gateway.build_gateway_of_cluster(), *args, "--kubeconfig", self.dir / "kubeconfig"],
                                               stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent)
                self.addCleanup(process.wait)
                self.addCleanup(process.kill)
                eventually("it is ready", lambda: self.answers(process, container["readinessProbe"]))
                self.assertTrue(self.answers(process, container["livenessProbe"]))
                process.terminate()
                self.assertEqual(0, process.wait(LIMIT_S))
                for folder in self.folders.values():
                    shutil.rmtree(folder)

    def answers(self, process, probe):
        self.assertIsNone(process.poll(), (self.dir / "gateway.log").read_text())
        try:
            return self.probe(pod_address() or "127.0.0.1", probe) == 200
        except OSError:
            return False

    def test_a_program_of_a_manifest_comes_to_its_daemon(self):
        pod = manifests.mutate(manifests.policy_in(manifests.rendered()["kubernetes/inject"]), manifests.PROGRAM)
        daemon, agent = pod["spec"]["initContainers"]
        program = pod["spec"]["containers"][0]
        self.mount(pod, daemon, manifests.rendered()["kubernetes/inject"])
        # As in the program: the library's volume is mounted into the other.
        self.assertEqual(["/run/stackd", "/run/stackd/agent"], [mount["mountPath"] for mount in agent["volumeMounts"]])
        for mount in agent["volumeMounts"]:
            self.folders.setdefault(mount["mountPath"], self.dir / "agent").mkdir(exist_ok=True)
        self.folders = dict(sorted(self.folders.items(), key=lambda item: -len(item[0])))
        manifests.run("env", f"STACKD_DIR={self.folders['/run/stackd']}", STACKD, *map(self.here, agent["args"]))
        # What a program that crashes before there is a daemon needs.
        self.assertTrue((self.folders["/run/stackd"] / "spool").is_dir())
        self.start(daemon)
        env = {entry["name"]: self.here(entry["value"]) for entry in program["env"]}
        self.assertTrue(pathlib.Path(env["LD_PRELOAD"]).exists(), env["LD_PRELOAD"])
        self.assertEqual(str(daemon["securityContext"]["runAsUser"]), env["STACKD_DAEMON_UID"])
        # The daemon that was started here.
        env["STACKD_DAEMON_UID"] = str(os.geteuid())
        victim = self.start_victim("waiting_threads", 2, directory=self.folders["/run/stackd"], preload=False, env=env)
        ctl = [STACKCTL, "--address", f"unix:{self.folders['/run/stackd']}/api.sock"]
        eventually("the program is listed", lambda: "waiting_threads" in manifests.run(*ctl, "ps").stdout)
        shown = manifests.run(*ctl, "dump", "-o", "json").stdout
        # Which container it is in: the policy says so.
        self.assertIn('"orders"', shown)
        self.assertTrue(victim.alive())


if __name__ == "__main__":
    unittest.main()
