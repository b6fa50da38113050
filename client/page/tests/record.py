"""Records tests/answers.json: what a real daemon says of programs that hang, crash and are well.

    bazel build -c opt //daemon:stackd //client:stackctl //agent:libstackd_agent.so //tests/programs/...
    /usr/bin/python3 client/page/tests/record.py

Paths and names of the machine are replaced by general ones.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests/e2e"))

import go_programs  # noqa: E402
from harness import BIN, PROGRAMS, ROOT, Daemon, Victim, eventually  # noqa: E402

POD = {"POD_NAME": "billing-7d9f-x2x", "POD_NAMESPACE": "shop", "NODE_NAME": "node-1", "OTEL_RESOURCE_ATTRIBUTES": "service.version=1.4.2",
       "STACKD_CONTAINER_IMAGE": "registry.example/shop/billing:1.4.2"}


def call(daemon, method, request):
    grpcurl = shutil.which("grpcurl") or pathlib.Path.home() / ".cache/stackd/bin/grpcurl"
    done = subprocess.run([grpcurl, "-plaintext", "-max-msg-sz", str(8 << 20), "-d", json.dumps(request), f"127.0.0.1:{daemon.port}",
                           f"stackd.v1.Stackd/{method}"], capture_output=True, text=True, check=True)
    return with_json_names(json.loads(done.stdout))


def with_json_names(value, is_map=False):
    """The message with lowerCamelCase names: grpcurl prints those of the proto. Keys of maps stay as they are."""
    if isinstance(value, list):
        return [with_json_names(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name if is_map else re.sub(r"_(\w)", lambda match: match[1].upper(), name):
            with_json_names(one, name in ("resource_attributes", "counters")) for name, one in value.items()}


def victim(daemon, name, command, env=None, **kwargs):
    return Victim(command, directory=daemon.dir, env={"STACKD_NAME": name, **(env or {})}, **kwargs)


def crash(daemon, name, count):
    for _ in range(count):
        victim(daemon, "billing", [PROGRAMS / "crash_deaths", name, "thread"], POD, ready=None).process.wait()


def dumps_of(daemon, trigger):
    return call(daemon, "ListDumps", {"pageSize": 1000, "trigger": trigger}).get("dumps", [])


def record(daemon):
    """The answers, by method."""
    running = [victim(daemon, "orders", [PROGRAMS / "demo_orders"]),
               victim(daemon, "ledger", ["/usr/bin/python3", ROOT / "tests/programs/crossed_rlocks.py"]),
               victim(daemon, "gateway", [go_programs.kept("local", "hangs"), "mutex_cycle"]),
               victim(daemon, "queue", [PROGRAMS / "progress", "slow"]),
               victim(daemon, "store", [PROGRAMS / "waiting_threads", "12"])]
    crash(daemon, "double_free", 3)
    crash(daemon, "null_pointer", 1)
    eventually("four crashes are stored", lambda: len(dumps_of(daemon, "CRASH")) == 4)
    eventually("the hangs are dumped", lambda: len({dump["process"]["name"] for dump in dumps_of(daemon, "HANG")}) >= 2)
    for process in ("gateway", "queue", "queue"):
        call(daemon, "CreateDump", {"process": process, "view": "DUMP_VIEW_BASIC"})
    dumps = call(daemon, "ListDumps", {"pageSize": 1000})["dumps"]
    groups = {kind: call(daemon, "ListStackGroups", {"kind": kind}).get("stackGroups", []) for kind in ("CRASH", "HANG")}
    answers = {
        "processes": call(daemon, "ListProcesses", {})["processes"],
        "dumps": dumps,
        "full": {dump["name"]: call(daemon, "GetDump", {"name": dump["name"]}) for dump in dumps},
        "text": call(daemon, "GetDump", {"name": dumps[0]["name"], "view": "DUMP_VIEW_TEXT"})["lines"],
        "groups": groups,
        "group": {group["fingerprint"]: call(daemon, "GetStackGroup", {"name": group["name"]})
                  for of_kind in groups.values() for group in of_kind},
        "comparison": call(daemon, "CompareDumps", {}),
        "daemon": call(daemon, "GetDaemon", {}),
    }
    for program in running:
        program.kill()
    return answers


def main():
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(folder).start()
        try:
            text = json.dumps(record(daemon), separators=(",", ":"), ensure_ascii=False)
        finally:
            daemon.kill()
    (HERE / "answers.json").write_text(general(text, folder) + "\n", encoding="utf-8")
    print(f"{len(text)} bytes")


def general(text, folder):
    """The text without what only this machine has."""
    text = re.sub(r'[^"\s]*/(bazel-out/k8-opt/bin|built/go-\w+-\w+)/', "/srv/", text)
    for machine, word in ((folder, "/run/stackd"), (str(BIN), "/srv"), (str(ROOT), "/src/stackd"), (os.uname().nodename, "node-1"),
                          (str(pathlib.Path.home()), "/home/user")):
        text = text.replace(machine, word)
    return text


if __name__ == "__main__":
    main()
