"""Where the version of a release stands. daemon/config/version.h is the source; the others are copies, in files that must have one.

    version_places.py            prints the version
    version_places.py 0.2.0      writes it into each place but CHANGELOG.md, whose section is headed by hand
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ("daemon/config/version.h", r'kVersion\[\] = "(.+)"')
CHANGELOG = ("CHANGELOG.md", r"\A# .*\n\n## (\S+)")

# By a pattern of the paths.
COPIES = [
    ("agent/include/stackd/agent.h", r'/\* "(.+)" \*/\nconst char\* stackd_version'),
    ("agent/install/install.c", r'stackd_version\(void\) \{ return "(.+)"; \}'),
    ("agent/python/stackd/__init__.py", r'^__version__ = "(.+)"'),
    ("agent/go/stackd.go", r'^const Version = "(.+)"'),
    ("agent/go/other.go", r'^const Version = "(.+)"'),
    ("agent/go/README.md", r"stackd\.example/go@v(\S+)"),
    ("client/fleet/version/version.go", r'^const Version = "(.+)"'),
    ("agent/java/pom.xml", r"<artifactId>stackd</artifactId>\n *<version>(.+)</version>"),
    ("agent/java/README.md", r"Version (\S+)\. "),
    ("agent/node/package.json", r'^  "version": "(.+)"'),
    ("agent/node/BUILD", r'"stackd-(.+)\.tgz"'),
    ("agent/node/README.md", r"stackd-(\S+)\.tgz"),
    ("agent/rust/Cargo.toml", r'^name = "stackd"\nversion = "(.+)"'),
    ("agent/rust/src/lib.rs", r'The version of the agent inside, "(.+)"'),
    ("agent/rust/Cargo.lock", r'^name = "stackd"\nversion = "(.+)"'),
    ("tests/languages/rust*/Cargo.lock", r'^name = "stackd"\nversion = "(.+)"'),
    ("tests/languages/go/go.mod", r"stackd\.example/go v(\S+)"),
    ("deploy/helm/stackd/Chart.yaml", r"^version: (.+)"),
    ("deploy/helm/stackd/Chart.yaml", r"^appVersion: (.+)"),
    ("deploy/helm/example-app/Chart.yaml", r"name: stackd\n *version: (.+)"),
    ("deploy/image/build.sh", r"\b(?:oci:stackd-image/oci|/stackd|tar:stackd):(\d\S+)"),
    ("deploy/image/README.md", r"\b(?:oci|stackd):(\d\S+)"),
    ("deploy/release/README.md", r"[a-z]_(\d\S+)_amd64\.deb"),
    ("deploy/README.md", r"\b(?:oci|stackd|newTag): ?(\d+[\d.]+)"),
    ("deploy/kubernetes/agent/pod.yaml", r"/stackd:(\S+)"),
    ("deploy/kubernetes/sidecar/*.yaml", r"\b(?:stackd:|newTag: )(\d[\d.]+)"),
    ("deploy/kubernetes/inject/policy.yaml", r'/stackd:([^"\']+)'),
    ("deploy/kubernetes/node/daemonset.yaml", r"/stackd:(\S+)"),
    ("tests/deploy/docs_test.py", r"/stackd:(\d[\d.]+)"),
    ("tests/deploy/manifests.py", r"/stackd:(\d[\d.]+)"),
    ("deploy/kubernetes/example/sidecar/kustomization.yaml", r"newTag: ([\d.]+)"),
]


def version():
    path, pattern = SOURCE
    return re.search(pattern, (ROOT / path).read_text())[1]


def stamp(text, pattern, new):
    """`text` with `new` in place of group 1 of each match."""
    def replaced(match):
        begin, end = (position - match.start() for position in match.span(1))
        return match[0][:begin] + new + match[0][end:]
    return re.sub(pattern, replaced, text, flags=re.MULTILINE)


def main():
    if len(sys.argv) < 2:
        print(version())
        return
    if not re.fullmatch(r"\d+\.\d+\.\d+", sys.argv[1]):
        sys.exit(f"version: '{sys.argv[1]}' is none: write it like 0.2.0")
    for places, pattern in (SOURCE, *COPIES):
        for path in ROOT.glob(places):
            text = path.read_text()
            stamped = stamp(text, pattern, sys.argv[1])
            if stamped != text:
                path.write_text(stamped)
                print(path.relative_to(ROOT))
    print(f"now head its section of CHANGELOG.md: ## {sys.argv[1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
