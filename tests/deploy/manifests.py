"""What deploy/ gives to a cluster, rendered as an operator would render it, and the tools that judge it.

A tool that is not here makes the cases that need it skip: deploy/install-deps.sh --tests installs them all where the
registries have them.
"""

import copy
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm/stackd"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd"

# What the manifests are for. Injection needs the last two.
RELEASES = [f"1.{minor}" for minor in range(29, 38)]
INJECTION_RELEASES = ["1.36", "1.37"]
# The group of the Prometheus Operator: no release of Kubernetes has a schema for it.
MONITORING = "monitoring.coreos.com/v1"


def tool(name):
    path = shutil.which(name) or shutil.which(name, path=f"{CACHE}/bin:/usr/local/go/bin")
    if not path:
        raise unittest.SkipTest(f"there is no {name}; deploy/install-deps.sh --tests installs it where it can")
    return path


def run(*command, ok=True, stdin=None, cwd=ROOT):
    """Its result; fails with what it wrote if it did not end as it should (`ok` None: either will do)."""
    given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, timeout=900, **given)
    if ok is not None and (done.returncode == 0) != ok:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def kustomize(folder):
    try:
        command = [tool("kustomize"), "build"]
    except unittest.SkipTest:
        command = [tool("kubectl"), "kustomize"]
    return run(*command, folder).stdout


def helm_template(chart, *options, release="stackd", version="1.37.0"):
    # helm's own idea of the newest Kubernetes depends on how it was built.
    return run(tool("helm"), "template", release, chart, "--kube-version", version, "--api-versions", MONITORING, *options)


def features():
    """Name and values of each ci/*-values.yaml."""
    return {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}


@functools.cache
def example_app():
    """The chart of a program that includes ours, as `helm dependency build` leaves it."""
    folder = tempfile.TemporaryDirectory(prefix="stackd-chart-")
    shutil.copytree(DEPLOY / "helm", pathlib.Path(folder.name) / "helm")
    chart = pathlib.Path(folder.name) / "helm/example-app"
    run(tool("helm"), "dependency", "build", chart)
    return folder, chart


@functools.cache
def _rendered():
    texts = {}
    for path in sorted((KUBERNETES / "example").iterdir()):
        if path.name != "base":
            texts[f"kubernetes/example/{path.name}"] = kustomize(path)
    for name in ("gateway", "gateway-tokens", "inject", "node"):
        texts[f"kubernetes/{name}"] = kustomize(KUBERNETES / name)
    texts["kubernetes/node/volume.yaml"] = (KUBERNETES / "node/volume.yaml").read_text()
    for name, values in features().items():
        texts[f"helm/{name}"] = helm_template(CHART, "-f", values).stdout
    texts["helm/example-app"] = helm_template(example_app()[1], release="orders", version="1.29.0").stdout
    return texts


def rendered():
    """All manifests: the text of each, by where it comes from."""
    return dict(_rendered())


def ephemeral_pod():
    """The recipe's ephemeral container in a pod, as kubectl debug would put it there."""
    deployment = next(d for d in documents(rendered()["kubernetes/example/agent-only"]) if d["kind"] == "Deployment")
    pod = pod_of(deployment)
    container = yaml.safe_load((KUBERNETES / "ephemeral/container.yaml").read_text())
    pod["spec"]["ephemeralContainers"] = [{"name": "stackd", "image": "registry.example/stackd:0.1.0", **container}]
    return pod


def pod_of(workload):
    """The pod that a workload's template makes, or None for what makes none."""
    template = workload if workload["kind"] == "Pod" else workload.get("spec", {}).get("template")
    if not template or "containers" not in template.get("spec", {}):
        return None
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template.get("metadata", {}), "spec": template["spec"]}
    pod = copy.deepcopy(pod)
    pod["metadata"].setdefault("name", workload["metadata"]["name"])
    return pod


PROGRAM = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "orders-1", "namespace": "shop", "labels": {"stackd.dev/inject": "true"}},
    "spec": {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "orders", "image": "registry.example/orders:1.0",
                        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}}],
    },
}


@functools.cache
def admission():
    """The API server's own code, as a program: see admission/main.go."""
    program, source = CACHE / "bin/stackd-test-admission", ROOT / "tests/deploy/admission"
    if not program.exists():
        raise unittest.SkipTest("the API server's admission code is not built; deploy/install-deps.sh --tests builds it "
                                "where there is Go 1.21 or later")
    if any(path.stat().st_mtime > program.stat().st_mtime for path in source.iterdir()):
        run(tool("go"), "build", "-o", program, ".", cwd=source)
    return program


def mutate(policy, pod, release="1.37", ok=True):
    """The pod as the MutatingAdmissionPolicy leaves it; with ok=False what the API server's log would say."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(policy, file)
        file.flush()
        done = run(admission(), "mutate", file.name, release, stdin=json.dumps(pod), ok=ok)
    return json.loads(done.stdout) if ok else done.stderr


def policy_in(text):
    return next(document for document in documents(text) if document["kind"] == "MutatingAdmissionPolicy")


def pods():
    """Each pod that comes of the manifests, injected ones included, by where it comes from."""
    found = {}
    for where, text in rendered().items():
        for document in documents(text):
            if document["kind"] == "MutatingAdmissionPolicy":
                found[f"{where}: injected"] = mutate(document, PROGRAM)
            elif pod := pod_of(document):
                found[f"{where}: {document['kind']} {document['metadata']['name']}"] = pod
    found["kubernetes/ephemeral"] = ephemeral_pod()
    return found
