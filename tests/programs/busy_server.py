"""An HTTP server as Python programs are: a thread for each request, a pool, a lock. Says "ready PORT".

python3 busy_server.py            waits for requests
python3 busy_server.py compute    one more thread computes without a break, so that all others wait for the interpreter
"""

import concurrent.futures
import http.server
import sys
import threading

lock = threading.Lock()
pool = concurrent.futures.ThreadPoolExecutor(4)
served = 0


def work():
    global served
    with lock:
        served += 1
        return sum(i * i for i in range(500))


class Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        body = b"well %08d\n" % pool.submit(work).result()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def compute():
    value = 1
    while True:
        value = (value * 1664525 + 1013904223) & 0xffffffff


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if sys.argv[1:]:
    threading.Thread(target=compute, name="compute", daemon=True).start()
print(f"ready {server.server_port}", flush=True)
server.serve_forever()
