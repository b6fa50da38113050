"""Writes what is in the image as SPDX 2.3 JSON to standard output.

    sbom.py PROGRAM VERSION REVISION SECONDS < lines of linked_packages.py     SECONDS: since 1970, the time of creation

A line of a Go module has the linkage "go".

The same input gives the same bytes: the document's name on the web is made from its content.
"""

import datetime
import hashlib
import json
import re
import sys
import urllib.parse

WHEEL = ("googleapis-common-protos", "1.76.0")  # deploy/bazel/google_protos.bzl


def identifier(name):
    return "SPDXRef-Package-" + re.sub("[^A-Za-z0-9.-]", "-", name.replace("+", "p"))


def package(name, version, location="NOASSERTION", purpose="LIBRARY", **more):
    return {
        "SPDXID": identifier(name), "name": name, "versionInfo": version, "downloadLocation": location, "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": purpose, **more
    }


def reference(url):
    return {"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}]}


def debian(name, version, source):
    url = (f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}"
           "?arch=amd64&distro=debian-12&upstream=" + urllib.parse.quote(source))
    return package(name, version, supplier="Organization: Debian", **reference(url),
                   comment=f"Its copyright file is in the image: /usr/share/doc/{name}/copyright")


def go_module(name, version):
    return package(name, version, **reference(f"pkg:golang/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}"),
                   comment="Its licence is in the image, below /usr/share/doc")


def main():
    name, version, revision, seconds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    image = package(f"{name}-image", version, purpose="CONTAINER")
    program = package(name, version, purpose="APPLICATION", sourceInfo=f"built from revision {revision}")
    packages = [image, program]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", image), (image["SPDXID"], "CONTAINS", program)]
    if name == "stackd":
        protos = package(*WHEEL, licenseDeclared="Apache-2.0", **reference("pkg:pypi/{}@{}".format(*WHEEL)),
                         comment="protocol definitions, compiled in")
        packages.append(protos)
        relations.append((program["SPDXID"], "STATIC_LINK", protos))
    for line in sys.stdin:
        linked_name, linked_version, source, linkage = line.split()
        is_go = linkage == "go"
        linked = go_module(linked_name, linked_version) if is_go else debian(linked_name, linked_version, source)
        packages.append(linked)
        if linked_name == "ca-certificates":
            relations.append((image["SPDXID"], "CONTAINS", linked))
        else:
            relations.append((program["SPDXID"], "STATIC_LINK" if is_go else f"{linkage.upper()}_LINK", linked))
    relationships = [{"spdxElementId": subject, "relationshipType": relation, "relatedSpdxElement": what["SPDXID"]}
                     for subject, relation, what in relations]
    digest = hashlib.sha256(json.dumps([packages, relationships, seconds], sort_keys=True).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{image['name']}-{version}",
        "documentNamespace": f"https://stackd.dev/spdx/{image['name']}-{version}-{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: stackd-deploy-image"]},
        "packages": packages, "relationships": relationships
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
