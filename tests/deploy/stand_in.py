#!/usr/bin/python3
"""Stands in PATH for the programs that documents name, and runs them against what the test has started.

All that is changed on the way is in this file. It is the port of the API and of the metrics, and what goes into a container.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

SETTINGS = json.loads(pathlib.Path(os.environ["STACKD_STAND_IN"]).read_text()) if "STACKD_STAND_IN" in os.environ else {}


def end_as(*command):
    sys.stdout.flush()
    sys.exit(subprocess.run([str(part) for part in command]).returncode)


def here(argument):
    """The ports of this test's daemon for those of the documents."""
    for documented, real in SETTINGS["addresses"].items():
        argument = argument.replace(documented, real)
    return argument


def need(name):
    if not SETTINGS["programs"].get(name):
        sys.exit(f"stand-in: there is no {name} here")
    return SETTINGS["programs"][name]


def stackctl(arguments):
    end_as(need("stackctl"), *map(here, arguments))


def grpcurl(arguments):
    # The name in the certificate, at another address.
    server = next((a.split(":")[0] for a in arguments if re.fullmatch(r"[a-z.]+:7443", a)), None)
    end_as(need("grpcurl"), *(["-servername", server] if server else []), *map(here, arguments))


def curl(arguments):
    end_as("/usr/bin/curl", *map(here, arguments))


def kubectl(arguments):
    real = [need("kubectl")]
    verb = next(a for a in arguments if not a.startswith("-") and a != SETTINGS["namespace"])
    if verb in ("exec", "port-forward"):
        # The cluster has the pod and refuses the stream: a line that kubectl does not understand ends otherwise.
        done = subprocess.run([*real, *arguments], capture_output=True, text=True)
        if "no stream here" not in done.stderr:
            sys.exit(f"stand-in: {done.stderr}")
        if verb == "exec":
            container, command = arguments[arguments.index("-c") + 1], arguments[arguments.index("--") + 1:]
            if container != "stackd" or command[0] != "stackctl":
                sys.exit(f"stand-in: {container} has no {command[0]}")
            stackctl(command[1:])
        return
    if verb == "apply":
        # The server has no schemas; the test validates what arrives.
        arguments = [*arguments, "--validate=false"]
    end_as(*real, *arguments)


def helm(arguments):
    real = need("helm")
    if arguments[0] not in ("install", "upgrade"):
        end_as(real, *arguments, *(["--kube-version", "1.37.0"] if arguments[0] == "template" else []))
    # What a release was installed with, for --reuse-values.
    kept = pathlib.Path(SETTINGS["scratch"]) / f"helm-{arguments[1]}.json"
    options = [a for a in arguments[1:] if a not in ("--create-namespace", "--reuse-values")]
    if "--reuse-values" in arguments:
        before = json.loads(kept.read_text())
        options += before[2:]
    kept.write_text(json.dumps(options))
    end_as(real, "template", *options, "--kube-version", "1.37.0", "--api-versions", "monitoring.coreos.com/v1")


def skopeo(arguments):
    # There is no registry; image_test reads the layout with the real one.
    if arguments[0] != "copy" or not arguments[1].startswith("oci:") or not arguments[2].startswith("docker://"):
        sys.exit(f"stand-in: {arguments} is not a copy of our layout into a registry")


def build_sh(arguments):
    # image_test runs it; here its options must be those of the script.
    script = pathlib.Path(SETTINGS["root"]) / "deploy/image/build.sh"
    text = script.read_text()
    for option in (a for a in arguments if a.startswith("-")):
        if option not in text:
            sys.exit(f"stand-in: build.sh has no {option}")


NAMES = {"stackctl": stackctl, "grpcurl": grpcurl, "curl": curl, "kubectl": kubectl, "helm": helm, "skopeo": skopeo,
         "build.sh": build_sh}

if __name__ == "__main__":
    NAMES[pathlib.Path(sys.argv[0]).name](sys.argv[1:])
