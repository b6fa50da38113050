"""An API server that knows the EndpointSlices of one Service, and whose tokens see which namespaces; no cluster can run here."""

import http.server
import json
import threading
import urllib.parse


# What tokens of callers are made for.
AUDIENCE = "stackd"


class ApiServer:
    """`slices` may be changed: `end_watches` has the informer list them anew. `rights` has the namespaces of each token's owner."""

    def __init__(self, test):
        self.slices = []
        self.refuses = False
        self.requests = []
        self.rights = {}
        self.reviews = []
        self.watches_end = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                url = urllib.parse.urlparse(self.path)
                query = urllib.parse.parse_qs(url.query)
                outer.requests.append((url.path, query.get("labelSelector", [""])[0]))
                if outer.refuses:
                    self.answer(403, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden",
                                      "message": "endpointslices is forbidden", "code": 403})
                elif "sendInitialEvents" in query:
                    self.answer(422, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422})
                elif "watch" in query:
                    # A watch ends without an event: its version is too old by then.
                    outer.watches_end.wait()
                    gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
                    self.answer(200, {"type": "ERROR", "object": gone})
                else:
                    self.answer(200, {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": {"resourceVersion": "7"},
                                      "items": outer.slices})

            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.reviews.append(review)
                if outer.refuses:
                    self.answer(403, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden",
                                      "message": f"{self.path.split('/')[-1]} is forbidden", "code": 403})
                    return
                review["status"] = outer.status_of(review["kind"], review["spec"])
                self.answer(201, review)

            def answer(self, code, body):
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # The gateway is killed with a watch open.
        self.server.handle_error = lambda *_: None
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)
        test.addCleanup(self.watches_end.set)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def status_of(self, kind, spec):
        """What a review says: the owner of a token is named as the token is."""
        if kind == "TokenReview":
            if spec["token"] not in self.rights or AUDIENCE not in spec["audiences"]:
                return {"authenticated": False}
            return {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": spec["token"], "groups": ["oncall"]}}
        asked = spec["resourceAttributes"]
        is_get = (asked["verb"], asked["resource"], asked["subresource"], spec["groups"]) == ("get", "pods", "stackd", ["oncall"])
        return {"allowed": is_get and asked.get("namespace", "") in self.rights[spec["user"]]}

    def kubeconfig(self):
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "it",
                           "clusters": [{"name": "it", "cluster": {"server": self.url}}],
                           "contexts": [{"name": "it", "context": {"cluster": "it"}}]})

    def add(self, pod, port, ready=True):
        """A slice of one endpoint on loopback, which a real server would not take."""
        self.slices = [*self.slices, {
            "metadata": {"name": f"stackd-{pod}", "namespace": "shop", "labels": {"kubernetes.io/service-name": "stackd"}},
            "addressType": "IPv4", "ports": [{"name": "stackd", "port": port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}, "nodeName": "a",
                           "targetRef": {"kind": "Pod", "name": pod}}]}]

    def end_watches(self):
        self.watches_end.set()
        self.watches_end = threading.Event()
