"""What a manifest may not have: a list of our own, whatever a release of Kubernetes calls restricted."""

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

# Volumes that show nothing of the node.
VOLUMES = {"emptyDir", "downwardAPI", "configMap", "secret", "persistentVolumeClaim"}

# What the manifests are made of. The daemon has no role and no account: it does not talk to the API server.
KINDS = {"Deployment", "DaemonSet", "ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "MutatingAdmissionPolicy",
         "MutatingAdmissionPolicyBinding", "PodMonitor", "PrometheusRule", "PersistentVolume", "Service", "ServiceAccount", "Role",
         "RoleBinding", "ClusterRoleBinding", "PodDisruptionBudget"}

# The one component that asks the API server, and all that it may ask: which pods there are, in namespaces that are named.
WITH_ACCOUNT = "gateway"
RULES = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
# On opt-in it also asks who shows a token, and whose pods that caller may see. That is a role of Kubernetes' own.
CLUSTER_ROLE = "system:auth-delegator"

# The one path of a host in all manifests, and the one object that may name it. An administrator applies it before
# deploy/kubernetes/node, since the pods of a node share nothing else. No pod has a host path.
HOST_PATHS = {("PersistentVolume", "/run/stackd-node")}


def of_document(document):
    """What this document should not have, a sentence each."""
    if document["kind"] not in KINDS:
        yield f"is a {document['kind']}"
    if document["kind"] == "Role" and document["rules"] != RULES:
        yield f"is a Role with the rules {document['rules']}"
    if document["kind"] == "ClusterRoleBinding" and document["roleRef"]["name"] != CLUSTER_ROLE:
        yield f"binds all namespaces to {document['roleRef']['name']}"
    if document["kind"] == "RoleBinding" and document["roleRef"]["kind"] != "Role":
        yield f"binds a {document['roleRef']['kind']}"
    if document["kind"] == "PersistentVolume":
        path = document["spec"].get("hostPath", {}).get("path")
        if (document["kind"], path) not in HOST_PATHS:
            yield f"names the host path {path}"


def of_pod(pod):
    """What this pod should not have, a sentence each."""
    spec = pod["spec"]
    for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(field):
            yield f"has {field}"
    has_account = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component") == WITH_ACCOUNT
    if spec.get("automountServiceAccountToken") is not has_account:
        yield "mounts a service account's token"
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sets sysctls"
    for volume in spec.get("volumes", []):
        for kind in volume.keys() - {"name"} - VOLUMES:
            yield f"has a volume of kind {kind}"
    for field in CONTAINERS:
        for container in spec.get(field, []):
            for sentence in of_container(container, spec.get("securityContext", {})):
                yield f"container {container['name']} {sentence}"


def of_container(container, of_all):
    own = container.get("securityContext", {})
    both = {**of_all, **own}
    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if own.get("capabilities", {}).get("add"):
        yield f"gains {own['capabilities']['add']}"
    if own.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "keeps capabilities"
    if both.get("runAsNonRoot") is not True or both.get("runAsUser", 1) == 0 or both.get("runAsGroup", 1) == 0:
        yield "may be root"
    if both.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "may write to its root"
    if own.get("procMount", "Default") != "Default":
        yield "has another /proc"
    for port in container.get("ports", []):
        if "hostPort" in port:
            yield f"takes port {port['hostPort']} of the node"
    for device in container.get("volumeDevices", []):
        yield f"has the device {device['devicePath']}"
    for mount in container.get("volumeMounts", []):
        if mount.get("mountPropagation", "None") != "None":
            yield f"has {mount['mountPath']} propagate mounts"
