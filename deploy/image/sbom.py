"""Writes what is in the image as SPDX 2.3 JSON to standard output.

    sbom.py PROGRAM VERSION REVISION SECONDS < lines of linked_packages.py or go_modules.py     SECONDS: since 1970, the time of creation

The same input gives the same bytes: the document's name on the web is made from its content.
"""

import datetime
import hashlib
import json
import re
import sys
import urllib.parse

# Licence of packages that are in the public domain, which SPDX has no name for.
PUBLIC_DOMAIN = {"licenseId": "LicenseRef-public-domain", "extractedText": "The authors have put it into the public domain."}

# Kind of the package's URL, and how it is related to the program, by linkage.
KINDS = {
    "static": ("deb/debian", "STATIC_LINK"), "dynamic": ("deb/debian", "DYNAMIC_LINK"), "protos": ("pypi", "STATIC_LINK"),
    "bundled": ("npm", "STATIC_LINK"), "go": ("golang", "STATIC_LINK")
}


def identifier(name):
    return "SPDXRef-Package-" + re.sub("[^A-Za-z0-9.-]", "-", name.replace("+", "p"))


def package(name, version, location="NOASSERTION", purpose="LIBRARY", **more):
    return {
        "SPDXID": identifier(name), "name": name, "versionInfo": version, "downloadLocation": location, "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": purpose, **more
    }


def linked_package(name, version, source, linkage, licence):
    kind = KINDS[linkage][0]
    url = f"pkg:{kind}/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}"
    more = {}
    if kind == "deb/debian":
        url += "?arch=amd64&distro=debian-12&upstream=" + urllib.parse.quote(source)
        more["supplier"] = "Organization: Debian"
    return package(name, version, licenseDeclared=licence, comment=f"Its licence is in the image: /usr/share/doc/{name}/copyright",
                   externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}], **more)


def main():
    name, version, revision, seconds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    image = package(f"{name}-image", version, purpose="CONTAINER")
    program = package(name, version, purpose="APPLICATION", licenseDeclared="Apache-2.0",
                      sourceInfo=f"built from revision {revision}")
    packages = [image, program]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", image), (image["SPDXID"], "CONTAINS", program)]
    for line in sys.stdin:
        linked_name, linked_version, source, linkage, licence, _ = line.rstrip("\n").split("\t")
        linked = linked_package(linked_name, linked_version, source, linkage, licence)
        packages.append(linked)
        if linked_name == "ca-certificates":
            relations.append((image["SPDXID"], "CONTAINS", linked))
        else:
            relations.append((program["SPDXID"], KINDS[linkage][1], linked))
    relationships = [{"spdxElementId": subject, "relationshipType": relation, "relatedSpdxElement": what["SPDXID"]}
                     for subject, relation, what in relations]
    digest = hashlib.sha256(json.dumps([packages, relationships, seconds], sort_keys=True).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{image['name']}-{version}",
        "documentNamespace": f"https://stackd.dev/spdx/{image['name']}-{version}-{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: stackd-deploy-image"]},
        "packages": packages, "relationships": relationships, "hasExtractedLicensingInfos": [PUBLIC_DOMAIN | {"name": "public domain"}]
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
