"""The manifests of deploy/kubernetes and deploy/helm. Kubernetes takes them, the three ways to add stackd give the same pod, and
none of them gains a privilege."""

import copy
import json
import os
import pathlib
import re
import tempfile
import unittest

import yaml

import manifests
import privileges
from manifests import (CHART, DEPLOY, INJECTION_RELEASES, KUBERNETES, MONITORING, PROGRAM, RELEASES, documents, mutate,
                       pod_of, rendered, run, tool)

INJECTION = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
RENDERED = DEPLOY / "helm/rendered"


def part(pod, field, name):
    return next(item for item in pod["spec"][field] if item["name"] == name)


def environment(container):
    return {entry["name"]: entry.get("value") for entry in container.get("env", [])}


class SchemaTest(unittest.TestCase):

    def validate(self, release, texts, ok=True):
        validator = manifests.CACHE / "kubernetes-validate/bin/kubernetes-validate"
        if not validator.exists():
            self.skipTest("there is no kubernetes-validate; deploy/install-deps.sh --tests installs it where it can")
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name, text in texts.items():
                files.append(pathlib.Path(folder) / (name.replace("/", "-") + ".yaml"))
                files[-1].write_text(text)
            return run(validator, "-k", release, "--strict", *files, ok=ok)

    def test_each_manifest_fits_the_schemas_of_each_release(self):
        # The validator parses in Python: one file with each manifest once.
        unique = {json.dumps(d, sort_keys=True): d for text in rendered().values() for d in documents(text)}
        for release in RELEASES:
            with self.subTest(release):
                kept = [d for d in unique.values()
                        if d["apiVersion"] != MONITORING and (d["kind"] not in INJECTION or release in INJECTION_RELEASES)]
                texts = {"manifests": yaml.safe_dump_all(kept)}
                done = self.validate(release, texts)
                # What it has no schema for it warns of, and lets pass.
                self.assertNotIn("WARN", done.stdout + done.stderr)

    def test_the_policy_is_the_same_text_in_the_api_versions_before_v1(self):
        """As the operator's guide says."""
        for release, version in {"1.32": "v1alpha1", "1.33": "v1alpha1", "1.34": "v1beta1", "1.35": "v1beta1"}.items():
            with self.subTest(release):
                text = rendered()["kubernetes/inject"].replace("admissionregistration.k8s.io/v1",
                                                               f"admissionregistration.k8s.io/{version}")
                done = self.validate(release, {"policy": text})
                self.assertNotIn("WARN", done.stdout + done.stderr)
                pod = mutate(manifests.policy_in(text), PROGRAM, release)
                self.assertEqual("stackd", pod["spec"]["initContainers"][0]["name"])

    def test_an_api_server_takes_each_manifest(self):
        """Its own validation, which knows rules that no schema has."""
        objects = {json.dumps(d, sort_keys=True): d for text in rendered().values() for d in documents(text)}
        objects = [*objects.values(), *manifests.pods().values()]
        for document in objects:
            document["metadata"]["name"] = document["metadata"]["name"].lower()
        self.assertEqual("", run(manifests.admission(), "validate", stdin=json.dumps(objects)).stdout)
        pod = pod_of(next(d for d in documents(rendered()["kubernetes/example/sidecar"]) if d["kind"] == "Deployment"))
        daemon = part(pod, "initContainers", "stackd")
        del daemon["restartPolicy"]
        daemon["volumeMounts"].append({"name": "not-there", "mountPath": "/x"})
        said = run(manifests.admission(), "validate", stdin=json.dumps([pod])).stdout
        self.assertIn("may not be set for init containers without restartPolicy=Always", said)
        self.assertIn('volumeMounts[3].name: Not found: "not-there"', said)

    def test_a_misspelt_field_does_not_fit(self):
        text = rendered()["kubernetes/example/sidecar"]
        self.assertIn("readinessProbe:", text)
        done = self.validate("1.37", {"misspelt": text.replace("readinessProbe:", "readynessProbe:")}, ok=False)
        self.assertIn("readynessProbe", done.stdout + done.stderr)


class PrivilegeTest(unittest.TestCase):

    def test_no_manifest_has_a_privilege(self):
        pods = manifests.pods()
        self.assertGreater(len(pods), 10)
        for where, pod in pods.items():
            with self.subTest(where):
                self.assertEqual([], list(privileges.of_pod(pod)))
        for where, text in rendered().items():
            for document in documents(text):
                with self.subTest(where, name=document["metadata"]["name"]):
                    self.assertEqual([], list(privileges.of_document(document)))

    def test_each_pod_is_restricted_as_kubernetes_means_it(self):
        pods = [{**pod, "metadata": {**pod["metadata"], "name": where}} for where, pod in manifests.pods().items()]
        self.assertEqual("", run(manifests.admission(), "restricted", stdin=json.dumps(pods)).stdout)
        pods[0]["spec"]["hostPID"] = True
        self.assertIn("hostPID=true", run(manifests.admission(), "restricted", stdin=json.dumps(pods)).stdout)

    def test_each_gain_is_noticed(self):
        """Every line of privileges.py, broken once."""

        def container(change):
            return lambda pod: change(part(pod, "initContainers", "stackd"))

        def secure(**fields):
            return container(lambda c: c["securityContext"].update(fields))

        gains = {
            "has hostPID": lambda pod: pod["spec"].update(hostPID=True),
            "has hostIPC": lambda pod: pod["spec"].update(hostIPC=True),
            "has hostNetwork": lambda pod: pod["spec"].update(hostNetwork=True),
            "has shareProcessNamespace": lambda pod: pod["spec"].update(shareProcessNamespace=True),
            "service account's token": lambda pod: pod["spec"].pop("automountServiceAccountToken"),
            "sysctls": lambda pod: pod["spec"]["securityContext"].update(sysctls=[{"name": "kernel.x", "value": "0"}]),
            "volume of kind hostPath": lambda pod: pod["spec"]["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
            "volume of kind csi": lambda pod: pod["spec"]["volumes"].append({"name": "x", "csi": {"driver": "x"}}),
            "is privileged": secure(privileged=True),
            "may gain privileges": secure(allowPrivilegeEscalation=True),
            "gains ['SYS_PTRACE']": secure(capabilities={"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
            "keeps capabilities": secure(capabilities={}),
            "may be root": secure(runAsUser=0),
            "no seccomp profile": secure(seccompProfile={"type": "Unconfined"}),
            "may write to its root": secure(readOnlyRootFilesystem=False),
            "another /proc": secure(procMount="Unmasked"),
            "port 7444 of the node": container(lambda c: c["ports"][0].update(hostPort=7444)),
            "the device /dev/mem": container(lambda c: c.update(volumeDevices=[{"name": "x", "devicePath": "/dev/mem"}])),
            "propagate mounts": container(lambda c: c["volumeMounts"][0].update(mountPropagation="HostToContainer")),
        }
        deployment = next(d for d in documents(rendered()["kubernetes/example/sidecar"]) if d["kind"] == "Deployment")
        for sentence, gain in gains.items():
            with self.subTest(sentence):
                pod = pod_of(deployment)
                self.assertEqual([], list(privileges.of_pod(pod)))
                gain(pod)
                self.assertRegex("\n".join(privileges.of_pod(pod)), re.escape(sentence))
        for document, sentence in (({"kind": "ClusterRole", "metadata": {}}, "is a ClusterRole"),
                                   ({"kind": "Role", "rules": []}, "is a Role with the rules []"),
                                   ({"kind": "RoleBinding", "roleRef": {"kind": "ClusterRole"}}, "binds a ClusterRole"),
                                   ({"kind": "ClusterRoleBinding", "roleRef": {"name": "view"}}, "binds all namespaces to view"),
                                   ({"kind": "PersistentVolume", "spec": {"hostPath": {"path": "/"}}}, "host path /")):
            self.assertEqual([sentence], [s[-len(sentence):] for s in privileges.of_document(document)])

    def test_one_file_names_a_host_path(self):
        files = [path for folder in (KUBERNETES, DEPLOY / "helm") for path in folder.rglob("*")
                 if path.suffix in (".yaml", ".tpl", ".txt", ".json")]
        naming = {str(path.relative_to(DEPLOY)) for path in files if "hostPath" in path.read_text()}
        self.assertEqual({"kubernetes/node/volume.yaml"}, naming)


class KustomizeTest(unittest.TestCase):

    def build(self, resources, *components):
        with tempfile.TemporaryDirectory(dir=KUBERNETES) as folder:
            folder = pathlib.Path(folder)
            (folder / "resources.yaml").write_text(yaml.safe_dump_all(resources))
            (folder / "kustomization.yaml").write_text(yaml.safe_dump({
                "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["resources.yaml"],
                "components": [f"../{component}" for component in components]}))
            return {d["metadata"]["name"]: d for d in documents(manifests.kustomize(folder))}

    def workload(self, kind, name, labels=None, **container):
        return {"apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind,
                "metadata": {"name": name, "labels": labels or {}},
                "spec": {"template": {"metadata": {"labels": {"app": name}},
                                      "spec": {"containers": [{"name": "main", "image": "x:1", **container},
                                                              {"name": "other", "image": "y:1"}]}}}}

    def test_each_kind_of_workload_gets_the_sidecar(self):
        kinds = ["Deployment", "StatefulSet", "DaemonSet", "Job"]
        built = self.build([self.workload(kind, kind.lower()) for kind in kinds], "sidecar")
        for kind in kinds:
            with self.subTest(kind):
                pod = pod_of(built[kind.lower()])
                self.assertEqual("Always", part(pod, "initContainers", "stackd")["restartPolicy"])
                main, other = pod["spec"]["containers"]
                self.assertEqual({"LD_PRELOAD": "/run/stackd/agent/libstackd_agent.so", "STACKD_DIR": "/run/stackd",
                                  "STACKD_DAEMON_UID": "64532"}, environment(main))
                self.assertEqual({"name": "other", "image": "y:1"}, other)

    def test_what_a_program_has_is_kept(self):
        mounts = [{"name": "data", "mountPath": "/data"}]
        workload = self.workload("Deployment", "orders", env=[{"name": "A", "value": "b"}], volumeMounts=mounts)
        spec = workload["spec"]["template"]["spec"]
        spec["volumes"] = [{"name": "data", "emptyDir": {}}]
        spec["initContainers"] = [{"name": "migrate", "image": "m:1"}]
        pod = pod_of(self.build([workload], "sidecar")["orders"])
        main = pod["spec"]["containers"][0]
        self.assertEqual("b", environment(main)["A"])
        self.assertIn("LD_PRELOAD", environment(main))
        self.assertIn(mounts[0], main["volumeMounts"])
        self.assertIn({"name": "data", "emptyDir": {}}, pod["spec"]["volumes"])
        self.assertEqual({"stackd", "stackd-agent", "migrate"}, {c["name"] for c in pod["spec"]["initContainers"]})
        # stackd is there before anything else of the pod runs.
        self.assertEqual("migrate", pod["spec"]["initContainers"][-1]["name"])

    def test_a_workload_can_be_left_out(self):
        left_out = self.workload("Deployment", "plain", labels={"stackd.dev/inject": "false"})
        built = self.build([left_out, self.workload("Deployment", "orders")], "sidecar")
        self.assertEqual(left_out["spec"], built["plain"]["spec"])
        self.assertIn("initContainers", pod_of(built["orders"])["spec"])


class SamePodTest(unittest.TestCase):
    """Kustomize, the two forms of the policy, and the chart's templates all give the same daemon, agent and volumes."""

    def parts(self, pod):
        def normal(value):
            text = json.dumps(value, sort_keys=True)
            # Said by the chart, and the default of the others.
            return text.replace('"imagePullPolicy": "IfNotPresent", ', "").replace("1024Mi", "1Gi")

        spec = pod["spec"]
        volumes = sorted((v for v in spec["volumes"] if v["name"].startswith("stackd-")), key=lambda v: v["name"])
        mounts = sorted(spec["containers"][0]["volumeMounts"], key=lambda m: m["mountPath"])
        preload = {key: value for key, value in environment(spec["containers"][0]).items() if "CONTAINER" not in key}
        found = {name: normal(part(pod, "initContainers", name)) for name in ("stackd", "stackd-agent")}
        return {**found, "volumes": normal(volumes), "mounts": normal(mounts), "env": normal(preload),
                "label": pod["metadata"]["labels"]["stackd.dev/sidecar"],
                "order": [container["name"] for container in spec["initContainers"]]}

    def test_all_ways_give_the_same_pod(self):
        def deployment(where):
            return next(d for d in documents(rendered()[where]) if d["kind"] == "Deployment")

        expected = self.parts(pod_of(deployment("kubernetes/example/sidecar")))
        self.assertEqual(["stackd", "stackd-agent"], expected["order"])
        ways = {
            "the policy": mutate(manifests.policy_in(rendered()["kubernetes/inject"]), PROGRAM),
            "the chart's policy": mutate(manifests.policy_in(rendered()["helm/injection"]), PROGRAM),
            "the chart's templates": pod_of(deployment("helm/example-app")),
        }
        for way, pod in ways.items():
            with self.subTest(way):
                self.assertEqual(expected, self.parts(pod))


class InjectionTest(unittest.TestCase):
    """The policy, compiled and applied by the code of the API server."""

    def setUp(self):
        self.policy = manifests.policy_in(rendered()["kubernetes/inject"])

    def inject(self, change=lambda pod: None, **options):
        pod = copy.deepcopy(PROGRAM)
        change(pod)
        return pod, mutate(self.policy, pod, **options)

    def test_each_release_that_knows_it_takes_it(self):
        for name in ("kubernetes/inject", "helm/injection", "helm/injection-settings", "helm/mtls", "helm/otlp", "helm/quiet"):
            for release in INJECTION_RELEASES:
                with self.subTest(name, release=release):
                    pod = mutate(manifests.policy_in(rendered()[name]), PROGRAM, release)
                    self.assertEqual("Always", part(pod, "initContainers", "stackd")["restartPolicy"])

    def test_what_the_author_wrote_is_kept(self):
        def change(pod):
            pod["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
            pod["spec"]["initContainers"] = [{"name": "migrate", "image": "m:1"}]
            container = pod["spec"]["containers"][0]
            container["env"] = [{"name": "A", "value": "b"}]
            container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]

        _, pod = self.inject(change)
        self.assertEqual(["stackd", "stackd-agent", "migrate"], [c["name"] for c in pod["spec"]["initContainers"]])
        self.assertEqual("data", pod["spec"]["volumes"][0]["name"])
        container = pod["spec"]["containers"][0]
        self.assertEqual("b", environment(container)["A"])
        self.assertEqual("orders", environment(container)["STACKD_CONTAINER_NAME"])
        self.assertEqual("registry.example/orders:1.0", environment(container)["STACKD_CONTAINER_IMAGE"])
        self.assertEqual(["/data", "/run/stackd", "/run/stackd/agent"], [m["mountPath"] for m in container["volumeMounts"]])

    def test_who_is_not_meant_is_left_alone(self):
        once = mutate(self.policy, PROGRAM)
        self.assertEqual(once, mutate(self.policy, once))
        cases = {
            "no label": lambda pod: pod["metadata"].pop("labels"),
            "another value": lambda pod: pod["metadata"]["labels"].update({"stackd.dev/inject": "false"}),
            "the node's network": lambda pod: pod["spec"].update(hostNetwork=True),
            "Windows": lambda pod: pod["spec"].update(os={"name": "windows"}),
        }
        for name, change in cases.items():
            with self.subTest(name):
                _, injected = self.inject(change)
                self.assertNotIn("initContainers", injected["spec"])
                self.assertNotIn("env", injected["spec"]["containers"][0])

    def test_the_annotation_chooses_containers(self):
        def change(pod):
            pod["spec"]["containers"] += [{"name": name, "image": "x:1"} for name in ("worker", "proxy")]
            pod["metadata"]["annotations"] = {"stackd.dev/containers": "orders, worker"}

        _, pod = self.inject(change)
        self.assertEqual({"orders": True, "worker": True, "proxy": False},
                         {c["name"]: "LD_PRELOAD" in environment(c) for c in pod["spec"]["containers"]})

    def test_a_preload_of_its_own_is_kept(self):
        def change(pod):
            pod["spec"]["containers"][0]["env"] = [{"name": "LD_PRELOAD", "value": "/usr/lib/libjemalloc.so"}]
            pod["spec"]["containers"].append({"name": "worker", "image": "x:1"})

        _, pod = self.inject(change)
        self.assertEqual({"LD_PRELOAD": "/usr/lib/libjemalloc.so"}, environment(part(pod, "containers", "orders")))
        self.assertIn("STACKD_DIR", environment(part(pod, "containers", "worker")))

    def test_a_policy_that_would_fail_in_silence_fails_here(self):
        """failurePolicy Ignore hides it in a cluster: arguments in an ApplyConfiguration, say."""
        self.policy["spec"]["mutations"] = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
            'Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "stackd", args: ["x"]}]}}'}}]
        _, said = self.inject(ok=False)
        self.assertIn("may not mutate atomic arrays", said)


class HelmTest(unittest.TestCase):

    def test_lint_finds_nothing(self):
        charts = [(CHART, path) for path in manifests.features().values()] + [(manifests.example_app()[1], None)]
        for chart, values in charts:
            with self.subTest(values or chart):
                options = ["-f", values] if values else []
                done = run(tool("helm"), "lint", "--strict", "--kube-version", "1.37.0", *options, chart)
                self.assertNotIn("[WARNING]", done.stdout)

    def test_the_rendered_examples_are_what_the_chart_gives(self):
        """After a change: STACKD_UPDATE_RENDERED=1 writes them anew, for you to read the difference."""
        texts = {where.removeprefix("helm/"): text for where, text in rendered().items() if where.startswith("helm/")}
        if os.environ.get("STACKD_UPDATE_RENDERED"):
            RENDERED.mkdir(exist_ok=True)
            for path in RENDERED.glob("*.yaml"):
                path.unlink()
            for name, text in texts.items():
                (RENDERED / f"{name}.yaml").write_text(text)
        self.assertEqual(sorted(texts), sorted(path.stem for path in RENDERED.glob("*.yaml")))
        for name, text in texts.items():
            with self.subTest(name):
                self.assertEqual((RENDERED / f"{name}.yaml").read_text(), text)

    def test_a_bad_combination_fails_with_a_sentence(self):
        image = "image.repository=registry.example/stackd"
        gateway = ["gateway.enabled=true", "gateway.image.repository=x", "api.listen=0.0.0.0:7443", "api.tls.secretName=x", "access=x"]
        cases = {
            "image.repository is empty": [],
            "set api.tls.secretName": [image, "api.listen=0.0.0.0:7443"],
            "no client certificate would have a role": [image, "api.listen=0.0.0.0:7443", "api.tls.secretName=x"],
            "nothing to collect": [image, "podMonitor.enabled=true", "metrics.enabled=false"],
            "dumps would be sent nowhere": [image, "otlp.dumps=3"],
            "Give them two ports": [image, "metrics.port=7444"],
            "allow at least 260 MiB": [image, "maxProcesses=100"],
            "allow at least 4256 MiB": [image, "node.enabled=true", "node.maxProcesses=4096"],
            "Name the namespaces": [image, "injection.enabled=true", "rules=x"],
            "Choose one": [image, "injection.enabled=true", "node.enabled=true"],
            "Name their ports": [image, "networkPolicy.enabled=true"],
            "gateway.image.repository is empty": [image, "gateway.enabled=true"],
            "which no gateway reaches": [image, "gateway.enabled=true", "gateway.image.repository=x"],
            "would not know the gateway": [image, *gateway],
            "no caller would have a role": [image, *gateway, "gateway.tls.secretName=x"],
            "no token would be looked at": [image, *gateway, "gateway.tls.secretName=x", "gateway.access=x", "gateway.tokens.audience=x"],
            "say where Loki is": [image, *gateway, "gateway.tls.secretName=x", "gateway.access=x", "gateway.history.tenant=x"],
            "give them two ports": [image, *gateway, "gateway.tls.secretName=x", "gateway.access=x", "gateway.port=7445"],
        }
        for sentence, values in cases.items():
            with self.subTest(sentence):
                options = [option for value in values for option in ("--set", value)]
                done = run(tool("helm"), "template", "stackd", CHART, "--kube-version", "1.37.0",
                           "--api-versions", MONITORING, *options, ok=False)
                self.assertIn(sentence, done.stderr)
        for sentence, options in {
            "is there from 1.36": ["--set", "injection.enabled=true", "--kube-version", "1.35.0"],
            "install the Prometheus Operator first": ["--set", "podMonitor.enabled=true", "--kube-version", "1.37.0"],
            "which is incompatible with Kubernetes": ["--kube-version", "1.28.0"],
        }.items():
            with self.subTest(sentence):
                done = run(tool("helm"), "template", "stackd", CHART, "--set", image, *options, ok=False)
                self.assertIn(sentence, done.stderr)

    def test_the_schema_knows_each_value_and_no_other(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        values = yaml.safe_load((CHART / "values.yaml").read_text())

        def compare(where, value, described):
            if "properties" not in described:
                return
            self.assertFalse(described["additionalProperties"], where)
            self.assertEqual(sorted(described["properties"].keys() - {"global"}), sorted(value), where)
            for key, item in value.items():
                compare(f"{where}.{key}", item, described["properties"][key])

        compare("values", values, schema)
        for wrong in ("store.sizeMib=5", "maxProcesses=many", "image.pullPolicy=Sometimes", "probes.readiness=3",
                      "api.listen=everywhere", "image.digest=sha256:12"):
            with self.subTest(wrong):
                done = run(tool("helm"), "template", "stackd", CHART, "--kube-version", "1.37.0", "--set",
                           "image.repository=registry.example/stackd", "--set", wrong, ok=False)
                self.assertRegex(done.stderr, "don't meet the specifications of the schema")

    def test_each_value_is_explained(self):
        """By a comment above it; "enabled" by the one above its section."""
        lines = (CHART / "values.yaml").read_text().splitlines()
        for before, line, number in zip(lines, lines[1:], range(2, 1000)):
            if re.match(r"\s*[a-zA-Z]+: ", line):
                explained = lines[number - 3] if line.strip() == "enabled: false" else before
                self.assertTrue(explained.lstrip().startswith("#"), f"values.yaml:{number}: {line}")

    def test_settings_are_where_the_daemon_looks_for_them(self):
        text = rendered()["helm/injection-settings"]
        maps = [d for d in documents(text) if d["kind"] == "ConfigMap"]
        self.assertEqual(["shop", "billing"], [d["metadata"]["namespace"] for d in maps])
        pod = mutate(manifests.policy_in(text), PROGRAM)
        daemon = part(pod, "initContainers", "stackd")
        path = next(arg for arg in daemon["args"] if arg.startswith("--rules=")).removeprefix("--rules=")
        mount = next(m for m in daemon["volumeMounts"] if m["name"] == "stackd-settings")
        self.assertEqual(f"{mount['mountPath']}/rules.yaml", path)
        self.assertEqual(maps[0]["metadata"]["name"], part(pod, "volumes", "stackd-settings")["configMap"]["name"])
        self.assertEqual(["rules.yaml"], list(maps[0]["data"]))
        self.assertIn("@sha256:", daemon["image"])


if __name__ == "__main__":
    unittest.main()
