"""Where the time of one dump goes: what the daemon logs of its steps, and what is left of the whole command around them."""

import json
import re
import statistics
import urllib.request

from ports import free_port
from stand import REPEAT, program, say, seconds_of, stackctl, stand
from table import Figure, Row

THREADS = 1000
US = 1e6
WHOLE_OR_PARTIAL = (0, 5)
# Fields of the log line of a dump, in the order of the steps.
STEPS = {
    "capture_us": "list the threads, read or signal each, take records out of the ring",
    "runtimes_us": "read frames of runtimes (here: see that there are none)",
    "unwind_us": "unwind, and find equal stacks",
    "name_us": "name",
    "assemble_us": "assemble",
    "analyze_us": "find out who waits for whom",
    "pack_us": "pack (zstd), while the raw copy is written",
    "store_us": "store",
}


HANDLED = re.compile(r'^grpc_server_handling_seconds_sum{[^}]*grpc_method="CreateDump"[^}]*} (\S+)$', re.MULTILINE)


def last_steps(daemon):
    lines = [line for line in daemon.log().splitlines() if '"dump stored"' in line]
    logged = json.loads(lines[-1])
    return {field: logged[field] for field in STEPS}


def handled_us(port):
    """Time in CreateDump since the daemon's start, from the request to the answer that is handed to gRPC."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        return sum(map(float, HANDLED.findall(page.read().decode()))) * US


def rows_of(daemon, port, victim, quiet):
    command = stackctl(daemon, "dump", victim.pid, "--quiet", quiet)
    parts = {words: [] for words in STEPS.values()}
    view, little, whole = [], [], []
    for _ in range(3):
        seconds_of(command, WHOLE_OR_PARTIAL)
    for _ in range(REPEAT * 3):
        before_us = handled_us(port)
        whole.append(seconds_of(command, WHOLE_OR_PARTIAL) * US)
        steps = last_steps(daemon)
        for field, words in STEPS.items():
            parts[words].append(steps[field])
        view.append(handled_us(port) - before_us - sum(steps.values()))
        little.append(seconds_of(stackctl(daemon, "version")) * US)
    parts["make the text of it, and what else the call does"] = view
    parts["start, connect and end, as `stackctl version` does"] = little
    total_us = statistics.median(whole)
    rest_us = total_us - sum(statistics.median(values) for values in parts.values())
    parts["the rest: serialize, transport, print"] = [max(0, rest_us)]
    what = f"a dump of {THREADS:,} hung threads, --quiet {quiet}"
    rows = [Row(f"{what}: whole command", Figure(whole, "us"), ratio="100 %")]
    for words, values in parts.items():
        rows.append(Row(f"--quiet {quiet}: {words}", Figure(values, "us"),
                        ratio=f"{statistics.median(values) / total_us * 100:.1f} %"))
    return rows


def stage_rows():
    rows = []
    port = free_port()
    with stand(arguments=("--metrics-listen", f"127.0.0.1:{port}")) as daemon, program(daemon, "hung_program", THREADS) as victim:
        for quiet in ("prefer", "only", "never"):
            say(f"stages: --quiet {quiet}")
            rows += rows_of(daemon, port, victim, quiet)
    return rows
