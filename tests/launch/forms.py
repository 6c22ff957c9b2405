"""Checks the manifests of examples/launch for form.

usage: forms.py LAUNCH_FOLDER REFERENCE

Every manifest is YAML with the fields that its kind needs; every container
runs a role of Hooke; every flag is in the reference.
"""
import pathlib
import re
import shlex
import sys

import yaml

ROLES = ("center", "worker", "evaluator")
KINDS = {
    "TFJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "StatefulSet": "apps/v1",
    "Service": "v1",
    "Job": "batch/v1",
}


def pod_specs(doc):
    """(name, pod spec) of everything in the manifest that runs."""
    kind, spec = doc["kind"], doc["spec"]
    if kind == "TFJob":
        replicas = spec["tfReplicaSpecs"]
        assert set(replicas) <= {"PS", "Chief", "Worker", "Evaluator"}
        for name, part in replicas.items():
            assert part["replicas"] >= 1
            assert part["restartPolicy"] == "ExitCode"
            pod = part["template"]["spec"]
            assert pod["containers"][0]["name"] == "tensorflow"
            yield name, pod
    elif kind == "JobSet":
        for part in spec["replicatedJobs"]:
            job = part["template"]["spec"]
            assert job["completionMode"] == "Indexed"
            assert job["completions"] == job["parallelism"]
            yield part["name"], job["template"]["spec"]
    elif kind == "StatefulSet":
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        yield doc["metadata"]["name"], spec["template"]["spec"]
    elif kind == "Job":
        assert spec["completionMode"] == "Indexed"
        pod = spec["template"]["spec"]
        assert pod["restartPolicy"] in ("OnFailure", "Never")
        yield doc["metadata"]["name"], pod
    else:
        assert spec["selector"] and spec["ports"]


def commands(pod):
    names = {v["name"] for v in pod.get("volumes", [])}
    for container in pod["containers"]:
        for mount in container.get("volumeMounts", []):
            known = mount["name"] in names or mount["name"] == "state"
            assert known, f"volume {mount['name']} is not declared"
        words = container["command"] + container.get("args", [])
        if words[:2] == ["sh", "-c"]:
            words = shlex.split(words[2].split("&&")[0])
        yield words


def check_command(where, words, flags):
    assert words[0] in ("hooke", "/usr/bin/hooke"), f"{where}: {words[0]}"
    assert words[1] in ROLES, f"{where}: no role {words[1]}"
    for word in words[2:]:
        if word.startswith("--"):
            assert word in flags, f"{where}: {word} is not in the reference"


def unit_command(text):
    text = text.replace("\\\n", " ")
    return shlex.split(re.search(r"^ExecStart=(.*)$", text, re.M).group(1))


def main():
    folder, guide = map(pathlib.Path, sys.argv[1:3])
    flags = set(re.findall(r"--[a-z][a-z-]*", guide.read_text("utf-8")))
    seen = 0
    for path in sorted(folder.glob("kubernetes/*.yaml")):
        for doc in yaml.safe_load_all(path.read_text("utf-8")):
            assert KINDS[doc["kind"]] == doc["apiVersion"], path
            assert re.fullmatch(r"[a-z][a-z0-9-]*", doc["metadata"]["name"])
            for name, pod in pod_specs(doc):
                for words in commands(pod):
                    check_command(f"{path.name}: {name}", words, flags)
                    seen += 1
    for path in sorted(folder.glob("systemd/*.service")):
        words = unit_command(path.read_text("utf-8"))
        check_command(path.name, words, flags)
        seen += 1
    assert seen >= 11, f"only {seen} commands found"
    print(f"forms: {seen} commands, every flag in the reference")


main()
