"""A fleet in Kubernetes: pods by EndpointSlices, and by kubectl. No cluster can run here: stand-ins are asked in place of an API
server and of kubectl."""

import json
import os
import subprocess
import unittest

import endpoint_slices
import fleet_gateway
from access_fixture import AccessFixture
from fleet_gateway import Gateway, unreachable_of
from harness import STACKCTL, StackdTest, eventually

PREPARE = (fleet_gateway.build_plugin, fleet_gateway.build_gateway_of_cluster)


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class EndpointSlicesTest(StackdTest):
    """The build for a cluster, with a stand-in of its API server."""

    def test_pods_of_a_service_are_found_and_those_that_are_not_ready_too(self):
        ports = {}
        for pod in ("checkout-7d9f8b6c5d-bbbbb", "checkout-7d9f8b6c5d-ccccc"):
            folder = self.dir / pod
            folder.mkdir()
            daemon = self.start_daemon(folder)
            daemon.await_process(self.start_victim("waiting_threads", 1, directory=folder).pid)
            ports[pod] = daemon.port
        server = endpoint_slices.ApiServer(self)
        first, second = ports
        server.add(first, ports[first], ready=False)
        (self.dir / "kubeconfig").write_text(server.kubeconfig())
        gateway = Gateway(self.dir, None, "--kubeconfig", self.dir / "kubeconfig", "--targets-service", "shop/stackd",
                          program=fleet_gateway.build_gateway_of_cluster())
        self.addCleanup(gateway.kill)
        gateway.start()
        listed = lambda: [json.loads(gateway.grpcurl("ListTargets").stdout or "{}").get("targets", [])][0]
        eventually("the first pod is listed", lambda: len(listed()) == 1)
        self.assertEqual({"pod": first, "namespace": "shop", "node": "a", "service": "stackd", "ready": "false", "workload": "checkout"},
                         listed()[0]["labels"])
        self.assertEqual("COMPLETE", gateway.dump({"selector": "ready=false,workload=checkout", "timeout": "60s"})["state"])
        server.add(second, ports[second])
        server.end_watches()
        eventually("the second pod is listed", lambda: len(listed()) == 2)
        self.assertEqual(2, gateway.dump({"timeout": "60s"})["answered"])
        self.assertEqual({("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", "kubernetes.io/service-name=stackd")}, set(server.requests))

    def test_what_is_wrong_with_the_api_server_is_told(self):
        server = endpoint_slices.ApiServer(self)
        server.refuses = True
        (self.dir / "kubeconfig").write_text(server.kubeconfig())
        program = fleet_gateway.build_gateway_of_cluster()
        gateway = Gateway(self.dir, None, "--kubeconfig", self.dir / "kubeconfig", "--targets-service", "shop/stackd", program=program)
        self.addCleanup(gateway.kill)
        gateway.start()
        eventually("the reason is told", lambda: "TARGETS_UNAVAILABLE" in (said := gateway.grpcurl("ListTargets").stderr) and "endpointslices is forbidden" in said)
        for words, args in (("--kubeconfig", ["--targets-service", "shop/stackd"]),
                            ("write like shop/stackd", ["--kubeconfig", self.dir / "kubeconfig", "--targets-service", "stackd"])):
            done = subprocess.run([program, *args], capture_output=True, text=True, timeout=60)
            self.assertEqual(1, done.returncode)
            self.assertIn(words, done.stderr)


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class TokensTest(AccessFixture):
    """Callers who show a token of the cluster, with a stand-in of its API server."""

    def test_a_token_shows_the_namespaces_of_its_owner(self):
        daemon = self.start_daemon()
        daemon.await_process(self.start_victim("waiting_threads", 2).pid)
        cluster = endpoint_slices.ApiServer(self)
        cluster.rights = {"alice": ["shop"], "root": [""], "nobody": []}
        (self.dir / "kubeconfig").write_text(cluster.kubeconfig())
        targets = {"checkout-1": (f"127.0.0.1:{daemon.port}", {"namespace": "shop"}), "ledger-1": ("127.0.0.1:1", {"namespace": "pay"})}
        gateway = Gateway(self.dir, targets, "--kubeconfig", self.dir / "kubeconfig", "--access-tokens", "--access-audience",
                          endpoint_slices.AUDIENCE, "--tls-cert", self.server.crt, "--tls-key", self.server.key,
                          program=fleet_gateway.build_gateway_of_cluster())
        self.addCleanup(gateway.kill)
        gateway.start()

        def call(method, token, request="{}"):
            shown = ["-H", f"authorization: Bearer {token}"] if token else []
            return gateway.grpcurl(method, request, options=["-cacert", self.authority.own.crt, "-authority", "localhost", *shown])

        def seen(token):
            return [one["name"] for one in json.loads(call("ListTargets", token).stdout).get("targets", [])]

        self.assertEqual(["targets/pay/ledger-1", "targets/shop/checkout-1"], seen("root"))
        self.assertEqual(["targets/shop/checkout-1"], seen("alice"))
        self.assertEqual([], seen("nobody"))
        dump = fleet_gateway.messages_of(call("CreateFleetDump", "alice", {"timeout": "60s"}).stdout)[-1]["fleetDump"]
        self.assertEqual((1, "COMPLETE"), (dump["selected"], dump["state"]))
        asked = len(cluster.reviews)
        self.assertEqual(["targets/shop/checkout-1"], seen("alice"))
        self.assertEqual(asked, len(cluster.reviews), "what was said is remembered")
        for method, token, request, words in (
                ("CreateFleetDump", "alice", {"selector": "namespace=pay"}, ("FailedPrecondition", "NO_TARGET")),
                ("GetFleetDump", "nobody", {"name": dump["name"]}, ("NotFound", "FLEET_DUMP_NOT_FOUND")),
                ("ListTargets", "forged", {}, ("Unauthenticated", "BAD_TOKEN")),
                ("ListTargets", None, {}, ("PermissionDenied", "ROLE_MISSING"))):
            refused = call(method, token, request)
            for word in words:
                self.assertIn(word, refused.stderr, (method, token))
        cluster.refuses = True
        away = call("ListTargets", "other")
        self.assertIn("ACCESS_UNAVAILABLE", away.stderr)
        self.assertIn("tokenreviews is forbidden", away.stderr)

        audited = {(c["caller"], c["method"], c["status"], c.get("reason")) for c in gateway.calls()}
        self.assertLessEqual({("token:alice", "CreateFleetDump", "OK", None), ("unauthenticated", "ListTargets", "UNAUTHENTICATED", "BAD_TOKEN"),
                              ("unauthenticated", "ListTargets", "PERMISSION_DENIED", "ROLE_MISSING")}, audited)
        self.assertNotIn("forged", gateway.log_path.read_text())


# In place of kubectl: `get pods` prints a list, `exec` runs what the container would, on the pod's own daemon.
KUBECTL = """#!/bin/sh
echo "$@" >>{folder}/kubectl.calls
while case $1 in --*) true ;; *) false ;; esac; do shift; done
if [ "$1" = get ]; then exec cat {folder}/pods.json; fi
pod=$3
shift 6
if [ -e {folder}/$pod.sh ]; then . {folder}/$pod.sh; fi
exec {stackctl} --address unix:{folder}/$pod/api.sock "$@"
"""


@unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
class KubectlTest(StackdTest):
    """The plugin, with a stand-in of kubectl: no cluster can run here."""

    def setUp(self):
        super().setUp()
        self.bin = self.dir / "bin"
        self.bin.mkdir()
        (self.bin / "kubectl-stackd").symlink_to(fleet_gateway.build_plugin())
        (self.bin / "kubectl").write_text(KUBECTL.format(folder=self.dir, stackctl=STACKCTL))
        (self.bin / "kubectl").chmod(0o755)
        self.pods = []

    def add_pod(self, name, *program, container="stackd", script=None):
        self.pods.append({"metadata": {"name": name, "namespace": "shop", "labels": {"app": "checkout", "pod-template-hash": "7d9f"},
                                       "ownerReferences": [{"kind": "ReplicaSet", "name": "checkout-7d9f"}]},
                          "spec": {"nodeName": "a", "containers": [{"name": "app"}], "initContainers": [{"name": container}]},
                          "status": {"phase": "Running"}})
        (self.dir / "pods.json").write_text(json.dumps({"items": self.pods}))
        if script:
            (self.dir / f"{name}.sh").write_text(script)
        if program:
            folder = self.dir / name
            folder.mkdir()
            daemon = self.start_daemon(folder)
            daemon.await_process(self.start_victim(*program, directory=folder).pid)

    def plugin(self, *args):
        return subprocess.run([self.bin / "kubectl-stackd", *args], env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)

    def test_pods_are_asked_by_exec(self):
        self.add_pod("checkout-7d9f-a", "waiting_threads", "2")
        self.add_pod("checkout-7d9f-b", "two_locks", "normal")
        whole = self.plugin("-n", "shop", "-l", "app=checkout", "--context", "prod", "--timeout", "60s")
        self.assertEqual(0, whole.returncode, whole.stderr + whole.stdout)
        self.assertIn("DEADLOCK in 1 pod: # threads wait for each other in a circle: thread first, thread second", whole.stdout)
        calls = (self.dir / "kubectl.calls").read_text().splitlines()
        self.assertEqual("--context=prod get pods --output=json --namespace=shop --selector=app=checkout", calls[0])
        self.assertTrue(all(call.startswith("--context=prod exec --namespace=shop checkout-7d9f-") for call in calls[1:]), calls)
        one = self.plugin("checkout-7d9f-a", "-o", "json", "--timeout", "60s")
        self.assertEqual(0, one.returncode, one.stderr)
        dump = json.loads(one.stdout)
        self.assertEqual(("1", 1), (dump["counts"]["pods"], dump["selected"]))
        self.assertIn("wait_for_work", {node["function"] for node in dump["nodes"]})
        example = dump["nodes"][0]["examples"][0]
        name = f"{example['target']}/{example['dump']}"
        shown = self.plugin("--show", name)
        self.assertEqual(0, shown.returncode, shown.stderr)
        self.assertIn("wait_for_work", shown.stdout)
        self.assertEqual(example["dump"], json.loads(self.plugin("--show", name, "-o", "json").stdout)["name"])
        gone = self.plugin("--show", name.replace("dumps/2", "dumps/1"))
        self.assertEqual(1, gone.returncode)
        self.assertIn("A gateway with history", gone.stderr)

    def test_what_goes_wrong_is_named(self):
        self.add_pod("well", "waiting_threads", "2")
        scripts = {"hung": ("sleep 1000", "TIMED_OUT"), "loud": ("exec cat /dev/zero", "TOO_LARGE"),
                   "garbage": ("echo '<html>'; exit 0", "BAD_ANSWER"), "no-daemon": ("", "NO_CONNECTION"),
                   "forbidden": ("echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1", "PERMISSION_DENIED"),
                   "liar": ("""echo '{"processes": [{"name": "--help"}]}'; exit 0""", "BAD_ANSWER"),
                   "empty": ("echo '{}'; exit 0", "NO_PROCESS")}
        for name, (script, _) in scripts.items():
            self.add_pod(name, script=script)
        self.add_pod("without", container="other")
        done = self.plugin("-o", "json", "--timeout", "15s")
        self.assertEqual(5, done.returncode, done.stderr)
        dump = json.loads(done.stdout)
        self.assertEqual({f"shop/{name}": reason for name, (_, reason) in scripts.items()}, unreachable_of(dump))
        self.assertEqual("1", dump["counts"]["pods"])
        self.assertIn("left out are pods without a container stackd: 1, as shop/without", done.stderr)

    def test_usage(self):
        self.add_pod("other", container="other")
        for code, words, args in ((2, "there is no option", ["--nonsense"]), (2, "-o is text or json", ["-o", "yaml"]), (2, "--show takes a name", ["--show", "targets/shop/--help/processes/1/dumps/x"]),
                                  (3, "no pod has a container stackd", []), (1, "there is no pod gone", ["gone"])):
            with self.subTest(words):
                done = self.plugin(*args)
                self.assertEqual(code, done.returncode, done.stderr)
                self.assertIn(words, done.stderr)
        shown = self.plugin("--help")
        self.assertLess(shown.stdout.index("Examples:"), shown.stdout.index("Options:"))
        (self.bin / "kubectl").unlink()
        alone = subprocess.run([self.bin / "kubectl-stackd"], env={"PATH": str(self.bin)}, capture_output=True, text=True, timeout=60)
        self.assertEqual((1, "kubectl stackd: kubectl is not in PATH\n"), (alone.returncode, alone.stderr))


class ModuleTest(unittest.TestCase):
    """The unit tests of what asks an API server."""

    limit_s = 600

    @unittest.skipUnless(fleet_gateway.go_is_here(), "there is no Go 1.26 or later")
    def test_they_pass(self):
        done = fleet_gateway.run_go("test", "-count=1", "./...", module=fleet_gateway.MODULE / "kubernetes", timeout=500)
        self.assertEqual(2, done.stdout.count("ok  \t"), done.stdout)


if __name__ == "__main__":
    unittest.main()
