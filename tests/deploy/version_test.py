"""Wherever the version of a release stands, it is the daemon's (daemon/config/version.h): who sets a new one learns here of
each place."""

import re
import unittest

from harness import ROOT

# Where it stands, by a pattern of the paths, and how.
PLACES = [
    ("CHANGELOG.md", r"\A# .*\n\n## (\S+)"),
    ("agent/include/stackd/agent.h", r'/\* "(.+)" \*/\nconst char\* stackd_version'),
    ("agent/install/install.c", r'stackd_version\(void\) \{ return "(.+)"; \}'),
    ("agent/python/stackd/__init__.py", r'^__version__ = "(.+)"'),
    ("agent/go/stackd.go", r'^const Version = "(.+)"'),
    ("agent/go/other.go", r'^const Version = "(.+)"'),
    ("agent/go/README.md", r"stackd\.example/go@v(\S+)"),
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
    ("deploy/image/build.sh", r"\boci:stackd-image/oci:(\S+)"),
    ("deploy/image/README.md", r"\boci:(\d\S+)"),
    ("deploy/README.md", r"\b(?:oci|stackd|newTag): ?(\d+[\d.]+)"),
    ("deploy/kubernetes/agent/pod.yaml", r"/stackd:(\S+)"),
    ("deploy/kubernetes/sidecar/*.yaml", r"\b(?:stackd:|newTag: )(\d[\d.]+)"),
    ("deploy/kubernetes/inject/policy.yaml", r'/stackd:([^"\']+)'),
    ("deploy/kubernetes/node/daemonset.yaml", r"/stackd:(\S+)"),
    ("deploy/kubernetes/example/sidecar/kustomization.yaml", r"newTag: ([\d.]+)"),
]


class VersionTest(unittest.TestCase):
    def test_it_is_the_same_in_all_places(self):
        version = re.search(r'kVersion\[\] = "(.+)"', (ROOT / "daemon/config/version.h").read_text())[1]
        for places, pattern in PLACES:
            paths = list(ROOT.glob(places))
            self.assertTrue(paths, places)
            for path in paths:
                with self.subTest(path=path.relative_to(ROOT), pattern=pattern):
                    self.assertEqual({version}, set(re.findall(pattern, path.read_text(), re.MULTILINE)))
