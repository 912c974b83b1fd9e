"""Kubernetes manifests: every document is an object with a name, and what it refers to is in the same file.

A line on stdout for each thing that is wrong; nothing when all is well. Usage: manifests.py FILE...
"""
import sys

import yaml


def pod_spec(document):
    return document["spec"]["template"]["spec"]


def check_indexed(document, by_kind):
    """The same of a Job whose pods reach one another by name."""
    name, spec = document["metadata"]["name"], document["spec"]
    pod = pod_spec(document)
    service = by_kind.get("Service", {}).get(pod.get("subdomain"))
    yield "its service exists", service is not None
    yield "its service selects its pods", bool(service) and service["spec"]["selector"] == {"job-name": name}
    yield "its service is headless", bool(service) and service["spec"].get("clusterIP") == "None"
    yield "all its pods run at once", spec["parallelism"] == spec["completions"]
    yield "its pods are not restarted", pod.get("restartPolicy") == "Never"
    words = " ".join(pod["containers"][0]["args"]).split()
    named = [host.split(":")[0] for host in words[words.index("-H") + 1].split(",")]
    pods = [f"{name}-{i}.{pod.get('subdomain')}" for i in range(spec["completions"])]
    yield "-H names its pods", named == pods


def references(document, by_kind):
    """What this document needs of the others: pairs of a text and whether it holds."""
    kind, spec = document["kind"], document.get("spec", {})
    if kind == "RoleBinding":
        yield "its role exists", document["roleRef"]["name"] in by_kind.get("Role", {})
        for subject in document["subjects"]:
            yield "its subject exists", subject["name"] in by_kind.get(subject["kind"], {})
    if kind == "StatefulSet":
        labels = spec["template"]["metadata"]["labels"]
        service = by_kind.get("Service", {}).get(spec["serviceName"])
        yield "its service exists", service is not None
        yield "its service selects its pods", bool(service) and service["spec"]["selector"].items() <= labels.items()
        yield "its service is headless", bool(service) and service["spec"].get("clusterIP") == "None"
        yield "it selects its pods", spec["selector"]["matchLabels"].items() <= labels.items()
    if kind == "Job" and spec.get("completionMode") == "Indexed":
        yield from check_indexed(document, by_kind)
    elif kind == "Job":
        account = pod_spec(document).get("serviceAccountName")
        yield "its service account exists", account in by_kind.get("ServiceAccount", {})
        yield "its pods are not restarted", pod_spec(document).get("restartPolicy") == "Never"
        hosts = [word for c in pod_spec(document)["containers"] for word in c["command"] if word.startswith("worker-")]
        pods = [f"{name}-{i}" for name, s in by_kind.get("StatefulSet", {}).items() for i in range(s["spec"]["replicas"])]
        named = [host.split(":")[0] for word in hosts for host in word.split(",")]
        yield "-H names the pods of the StatefulSet", named == pods
    if kind in ("Job", "StatefulSet"):
        volumes = {volume["name"] for volume in pod_spec(document).get("volumes", [])}
        for container in pod_spec(document)["containers"]:
            yield "each container has name, image and command", all(container.get(k) for k in ("name", "image", "command"))
            for mount in container.get("volumeMounts", []):
                yield f"volume {mount['name']} exists", mount["name"] in volumes
            yield "words of a command are texts", all(isinstance(word, str) for word in container["command"])


def problems(path):
    with open(path, encoding="utf-8") as file:
        documents = [d for d in yaml.safe_load_all(file) if d is not None]
    by_kind = {}
    for document in documents:
        if not {"apiVersion", "kind", "metadata"} <= document.keys():
            yield "a document lacks apiVersion, kind or metadata"
            return
        by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    for document in documents:
        for text, holds in references(document, by_kind):
            if not holds:
                yield f"{document['kind']} {document['metadata']['name']}: not so: {text}"


for name in sys.argv[1:]:
    try:
        for problem in problems(name):
            print(f"{name}: {problem}")
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}")
