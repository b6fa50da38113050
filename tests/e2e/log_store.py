"""A store of logs that stands for a collector with Loki behind it. It takes records by OTLP/gRPC and answers query_range, with as much
of LogQL as a gateway asks. Names are as Loki makes them of OTLP: each attribute is a label, with "_" for what is no letter."""

import http.server
import json
import re
import threading
import urllib.parse

from otlp_receiver import Receiver


def entry_of(record):
    """(time in ns, line, labels)"""
    pairs = {**record.resource, **record.attributes}
    labels = {re.sub(r"\W", "_", key): str(value) for key, value in pairs.items()}
    return record.time_ns, record.body, labels


def run(query, line, labels):
    """What the stages of a query leave of an entry, or None. Raises ValueError for what is not known here."""
    for stage in query.split(" | ")[1:]:
        if stage.startswith("keep "):
            labels = {key: labels[key] for key in stage.removeprefix("keep ").split(", ") if key in labels}
        elif stage == "line_format `{{if .stackd_dump_digest}}{{else}}{{__line__}}{{end}}`":
            line = "" if labels.get("stackd_dump_digest") else line
        else:
            filters = [re.fullmatch(r'(\w+)(=|!=)"([^"]*)"', part) for part in stage.split(" or ")]
            if None in filters:
                raise ValueError(f"parse error in {stage!r}")
            if not any((labels.get(one[1], "") == one[3]) == (one[2] == "=") for one in filters):
                return None
    return line, labels


class LogStore:
    """`instead`, if it is set, is answered to each question: (status, type, body)."""

    def __init__(self, test):
        self.receiver = Receiver("127.0.0.1:0")
        test.addCleanup(self.receiver.close)
        self.instead = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self):
                status, kind, body = outer.instead or outer.answer(urllib.parse.urlparse(self.path))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, url):
        if url.path != "/loki/api/v1/query_range":
            return 404, "text/plain", b"404 page not found"
        asked = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        found = []
        for time_ns, line, labels in map(entry_of, list(self.receiver.records)):
            if not int(asked["start"]) <= time_ns < int(asked["end"]):
                continue
            try:
                left = run(asked["query"], line, labels)
            except ValueError as error:
                return 400, "text/plain", str(error).encode()
            if left:
                found.append({"stream": left[1], "values": [[str(time_ns), left[0]]]})
        found.sort(key=lambda stream: -int(stream["values"][0][0]))
        answer = {"status": "success", "data": {"resultType": "streams", "result": found[:int(asked["limit"])]}}
        return 200, "application/json", json.dumps(answer).encode()
