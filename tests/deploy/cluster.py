"""A server that the real kubectl takes for a cluster with one pod.

It knows what kinds of objects there are, gives the pod and its log, and keeps what is sent to it. It judges nothing:
what it was sent is for the test to look at.
"""

import http.server
import json
import re
import threading

# Group and version, and what is in it: name, kind, namespaced, further names behind a slash.
RESOURCES = {
    "v1": [("pods", "Pod", True), ("pods/log", "Pod", True), ("pods/ephemeralcontainers", "Pod", True),
           ("pods/exec", "PodExecOptions", True), ("pods/portforward", "PodPortForwardOptions", True),
           ("secrets", "Secret", True), ("configmaps", "ConfigMap", True), ("events", "Event", True),
           ("namespaces", "Namespace", False), ("persistentvolumes", "PersistentVolume", False),
           ("persistentvolumeclaims", "PersistentVolumeClaim", True)],
    "apps/v1": [("deployments", "Deployment", True), ("daemonsets", "DaemonSet", True)],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy", True)],
    "admissionregistration.k8s.io/v1": [("mutatingadmissionpolicies", "MutatingAdmissionPolicy", False),
                                        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False)],
    "metrics.k8s.io/v1beta1": [("pods", "PodMetrics", True)],
}

SECRET = {"apiVersion": "v1", "kind": "Secret",
          "metadata": {"name": "stackd-tls", "creationTimestamp": "2026-01-01T00:00:00Z"}}


def status(code, reason, message):
    return code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
                  "message": message}


class Cluster:
    """`pod` is the one there is; `log()` what its sidecar wrote. `received`: method and object of each change."""

    def __init__(self, pod, log):
        self.pod = pod
        self.log = log
        self.received = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                # Some commands speak protobuf: then it is kept as it came.
                body = {"kind": "Secret", "protobuf": body} if body.startswith(b"k8s\0") else json.loads(body or "null")
                code, reply = outer.reply(self.command, self.path.split("?")[0], body)
                data = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/plain" if isinstance(reply, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def kubeconfig(self):
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]})

    def reply(self, method, path, body):
        if path == "/version":
            return 200, {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
        if path == "/api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = [{"groupVersion": name, "version": name.split("/")[1]} for name in RESOURCES if "/" in name]
            groups = [{"name": v["groupVersion"].split("/")[0], "versions": [v], "preferredVersion": v} for v in versions]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        group_version = path.removeprefix("/apis/").removeprefix("/api/")
        if group_version in RESOURCES:
            resources = [{"name": name, "singularName": "", "namespaced": namespaced, "kind": kind,
                          "verbs": ["create", "delete", "get", "list", "patch", "update"]}
                         for name, kind, namespaced in RESOURCES[group_version]]
            return 200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
                         "resources": resources}
        if method in ("POST", "PATCH") and not re.search("/(exec|portforward|attach)$", path):
            return self.change(method, path, body)
        return self.read(path)

    def change(self, method, path, body):
        if path.endswith("/ephemeralcontainers"):
            self.pod["spec"].setdefault("ephemeralContainers", []).extend(body["spec"]["ephemeralContainers"])
            body = self.pod
        self.received.append((method, body))
        if "protobuf" in body:
            body = SECRET
        return 201 if method == "POST" else 200, body

    def read(self, path):
        name = self.pod["metadata"]["name"]
        if path.startswith("/apis/metrics.k8s.io/"):
            usage = {"name": "stackd", "usage": {"cpu": "1m", "memory": "30Mi"}}
            return 200, {"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {"name": name},
                         "containers": [usage]}
        if path.endswith(f"/pods/{name}"):
            return 200, self.pod
        if path.endswith(f"/pods/{name}/log"):
            return 200, self.log()
        if path.endswith("/events"):
            return 200, {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []}
        if path.endswith("/secrets/stackd-tls"):
            return 200, SECRET
        if re.search("/(exec|portforward|attach)$", path):
            return status(400, "BadRequest", "no stream here")
        return status(404, "NotFound", f"{path} is not here")
