#!/usr/bin/python3
"""The software bill of materials of a build, as SPDX 2.3 in JSON on stdout.

sbom.py VERSION COMMIT EPOCH ROOT TRACE

ROOT is an installation (make install DESTDIR=ROOT). TRACE is what the linker has said of its input (-Wl,--trace): objects and
libraries. Nothing is listed that the linker has not read. Which package of the system a file belongs to is asked of dpkg or rpm.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys


def run(*command):
    """The output of a command; None when it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def package_of(path):
    """Name, version and source of the system's package with that file; None when it belongs to none."""
    for name in (path, re.sub("^/usr/lib", "/lib", path), re.sub("^/lib", "/usr/lib", path)):
        owner = run("dpkg", "-S", name)
        if owner:
            package = owner.split(": ")[0]
            told = run("dpkg-query", "-W", "-f", "${Package} ${Version} ${source:Package}", package)
            return tuple(told.split())
    told = run("rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{SOURCERPM}", path)
    return tuple(told.split()) if told else None


def read_trace(path):
    """The files of the system that the linker has read, with how: static or dynamic."""
    files = {}
    with open(path) as trace:
        for line in trace:
            found = re.match(r"\(?(/[^()\s]+\.(?:a|o|so[.0-9]*))\)?", line.strip())
            if found and os.path.exists(found[1]):
                real = os.path.realpath(found[1])
                files[real] = "DYNAMIC_LINK" if ".so" in os.path.basename(real) else "STATIC_LINK"
    return files


def installed_files(root):
    """The programs and libraries, with their digests."""
    for directory, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            path = os.path.join(directory, name)
            if os.path.islink(path):
                continue
            with open(path, "rb") as file:
                content = file.read()
            if content.startswith(b"\x7fELF") or content.startswith(b"!<arch>"):
                yield "/" + os.path.relpath(path, root), content


def needed(path):
    """The sonames that the dynamic linker will look for."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path) or "")


def identifier(*words):
    return "SPDXRef-" + "-".join(re.sub("[^A-Za-z0-9.]+", "-", word).strip("-") for word in words)


def package(name, version, source):
    return {
        "SPDXID": identifier("package", name),
        "name": name,
        "versionInfo": version,
        "sourceInfo": f"built from {source}",
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def main():
    version, commit, epoch, root, trace = sys.argv[1:]
    ours = identifier("package", "hvdrun")
    packages, relationships, files, sonames = {}, [], [], {}
    unknown = []
    for path, how in sorted(read_trace(trace).items()):
        owner = package_of(path)
        if not owner:
            unknown.append(path)
            continue
        packages[owner[0]] = package(*owner)
        relation = {"spdxElementId": ours, "relationshipType": how, "relatedSpdxElement": identifier("package", owner[0])}
        if relation not in relationships:
            relationships.append(relation)
        found = re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-d", path) or "") if how == "DYNAMIC_LINK" else None
        if found:
            sonames[found[1]] = owner[0]
    for path, content in installed_files(root):
        own = identifier("file", path)
        files.append(
            {
                "SPDXID": own,
                "fileName": "." + path,
                "checksums": [
                    {"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()},
                    {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()},
                ],
                "licenseConcluded": "Apache-2.0",
                "copyrightText": "NOASSERTION",
            }
        )
        relationships.append({"spdxElementId": ours, "relationshipType": "CONTAINS", "relatedSpdxElement": own})
        for soname in needed(root + path):
            if soname in sonames:
                relationships.append(
                    {"spdxElementId": own, "relationshipType": "DYNAMIC_LINK", "relatedSpdxElement": identifier("package", sonames[soname])}
                )
            elif not soname.startswith("libhvd.so"):
                unknown.append(f"{soname} of {path}")
    if unknown:
        sys.exit("sbom: no package of the system has " + ", ".join(sorted(set(unknown))))
    made = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    own = dict(package("hvdrun", version, f"commit {commit}"), licenseConcluded="Apache-2.0", licenseDeclared="Apache-2.0")
    json.dump(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"hvdrun-{version}",
            "documentNamespace": f"https://hvdrun.invalid/spdx/{version}/{commit}",
            "creationInfo": {"created": made, "creators": ["Tool: contrib/release/sbom.py"]},
            "documentDescribes": [ours],
            "packages": [own] + [packages[name] for name in sorted(packages)],
            "files": files,
            "relationships": relationships,
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
