"""Prints the modules that a program of Go is made of, as linked_packages.py does: name, version, "-", "go", licence, file with its
text.

    go_modules.py PROGRAM FOLDER    FOLDER: of the module that it was built in

The program itself says which modules are in it. A module whose licence is not declared here is an error.
"""

import json
import pathlib
import subprocess
import sys

# By the beginning of the path.
LICENCES = {
    "connectrpc.com/": "Apache-2.0",
    "github.com/beorn7/perks": "MIT",
    "github.com/cespare/xxhash/": "MIT",
    "github.com/davecgh/go-spew": "ISC",
    "github.com/fxamacker/cbor/": "MIT",
    "github.com/go-logr/logr": "Apache-2.0",
    "github.com/json-iterator/go": "MIT",
    "github.com/modern-go/": "Apache-2.0",
    "github.com/munnerz/goautoneg": "BSD-3-Clause",
    "github.com/pmezard/go-difflib": "BSD-3-Clause",
    "github.com/prometheus/": "Apache-2.0",
    "github.com/spf13/pflag": "BSD-3-Clause",
    "github.com/x448/float16": "MIT",
    "go.yaml.in/yaml/v2": "Apache-2.0 AND MIT",
    "golang.org/x/": "BSD-3-Clause",
    "google.golang.org/genproto/": "Apache-2.0",
    "google.golang.org/protobuf": "BSD-3-Clause",
    "gopkg.in/inf.v0": "BSD-3-Clause",
    "gopkg.in/yaml.v3": "MIT AND Apache-2.0",
    "k8s.io/": "Apache-2.0",
    "sigs.k8s.io/json": "Apache-2.0 AND BSD-3-Clause",
    "sigs.k8s.io/randfill": "Apache-2.0",
    "sigs.k8s.io/structured-merge-diff/": "Apache-2.0",
    "sigs.k8s.io/yaml": "MIT AND BSD-3-Clause AND Apache-2.0",
}
GO_LICENCE = "BSD-3-Clause"
OWN = "stackd.example"
TEXTS = ("LICENSE", "LICENCE", "COPYING")


def output_of(*command, **kwargs):
    return subprocess.run(command, check=True, capture_output=True, text=True, **kwargs).stdout


def modules_of(program):
    """(name, version) of each, and the version of Go."""
    lines = [line.split() for line in output_of("go", "version", "-m", program).splitlines() if line.strip()]
    dependencies = [(line[1], line[2]) for line in lines if line[0] == "dep" and not line[1].startswith(OWN)]
    return dependencies, lines[0][-1]


def licence_of(name):
    for beginning, licence in LICENCES.items():
        if name.startswith(beginning):
            return licence
    sys.exit(f"go_modules: {name} is linked, and LICENCES does not declare its licence")


def text_in(folder):
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.name.startswith(TEXTS):
            return path
    sys.exit(f"go_modules: there is no licence in {folder}")


def main():
    program, folder = sys.argv[1:]
    dependencies, go_version = modules_of(program)
    for name, version in dependencies:
        where = json.loads(output_of("go", "list", "-m", "-json", name, cwd=folder))["Dir"]
        print(name, version, "-", "go", licence_of(name), text_in(where), sep="\t")
    root = output_of("go", "env", "GOROOT").strip()
    print("stdlib", go_version, "-", "go", GO_LICENCE, f"{root}/LICENSE", sep="\t")


if __name__ == "__main__":
    main()
