"""Archives whose form other tools define, from files of the tree. Equal input gives equal bytes.

    artefacts.py go-module VERSION SECONDS FOLDER    a tree that GOPROXY=file://FOLDER takes for a proxy
    artefacts.py jar VERSION SECONDS FILE CLASSES    the jar of the compiled classes below CLASSES
    artefacts.py chart VERSION SECONDS FILE CHART    the packed Helm chart CHART as an OCI layout, in a tar archive

SECONDS: since 1970, the time of the release.
"""

import datetime
import hashlib
import io
import json
import pathlib
import sys
import tarfile
import zipfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
GO_MODULE = "stackd.example/go"
# What the licence asks to be in each copy.
LICENCES = ("LICENSE", "NOTICE")


def write_zip(file, contents):
    """A zip archive of (name, bytes), in this order. Its entries have the time that zip archives begin with."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def licences(folder):
    return [(folder + name, (ROOT / name).read_bytes()) for name in LICENCES]


def make_go_module(version, seconds, folder):
    """The four files that `go get` asks a proxy for (https://go.dev/ref/mod#goproxy-protocol)."""
    sources = ROOT / "agent/go"
    inside = f"{GO_MODULE}@v{version}/"
    contents = [(inside + path.name, path.read_bytes()) for path in sorted(sources.iterdir()) if path.is_file()]
    answers = pathlib.Path(folder) / GO_MODULE / "@v"
    answers.mkdir(parents=True)
    (answers / "list").write_text(f"v{version}\n")
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (answers / f"v{version}.info").write_text(json.dumps({"Version": f"v{version}", "Time": time}))
    (answers / f"v{version}.mod").write_bytes((sources / "go.mod").read_bytes())
    write_zip(answers / f"v{version}.zip", contents + licences(inside))


def make_jar(version, seconds, file, classes):
    del seconds
    manifest = (f"Manifest-Version: 1.0\r\nImplementation-Title: stackd\r\nImplementation-Version: {version}\r\n"
                "Automatic-Module-Name: dev.stackd\r\n\r\n")
    contents = [("META-INF/MANIFEST.MF", manifest.encode()), *licences("META-INF/"),
                ("META-INF/maven/dev.stackd/stackd/pom.xml", (ROOT / "agent/java/pom.xml").read_bytes())]
    for path in sorted(pathlib.Path(classes).rglob("*.class")):
        contents.append((str(path.relative_to(classes)), path.read_bytes()))
    write_zip(file, contents)


def make_chart(version, seconds, file, chart):
    """An image that Helm pulls as a chart: its configuration is Chart.yaml, its one layer the packed chart."""
    blobs = {}

    def blob(media_type, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    described = yaml.safe_load((ROOT / "deploy/helm/stackd/Chart.yaml").read_text())
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = {
        "schemaVersion": 2, "mediaType": manifest_type,
        "config": blob("application/vnd.cncf.helm.config.v1+json", json.dumps(described, sort_keys=True).encode()),
        "layers": [blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", pathlib.Path(chart).read_bytes())],
    }
    index = {"schemaVersion": 2, "manifests": [{**blob(manifest_type, json.dumps(manifest).encode()),
                                                "annotations": {"org.opencontainers.image.ref.name": version}}]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), seconds, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))


MAKERS = {"go-module": make_go_module, "jar": make_jar, "chart": make_chart}


def main():
    what, version, seconds, *where = sys.argv[1:]
    MAKERS[what](version, int(seconds), *where)


if __name__ == "__main__":
    main()
