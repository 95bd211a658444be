"""Gives files of `maverl launch` to the programs that read them: `python launch_files.py FILE..`.

Batch scripts go to shellcheck, tasks of SkyPilot to `sky.Task.from_yaml`, and jobs of Kubernetes are compared with the schemas of the
custom resource definitions in the folder `MAVERL_TEST_CRDS`: `jobset.x-k8s.io_jobsets.yaml` of JobSet, and `kubeflow.org_mpijobs.yaml`
of the MPI operator. Shell programs inside of the files go to shellcheck too. What is missing here is skipped, with a reason.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

CRDS = "MAVERL_TEST_CRDS"


def missing(what):
    print(f"skipped: there is no {what} here")
    return []


def shellcheck(text, shell):
    """Returns the findings of shellcheck about a script."""
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.is_file() else shutil.which("shellcheck")
    if program is None:
        return missing("shellcheck")
    command = [program, f"--shell={shell}", "--enable=all", f"--exclude={UNWANTED}", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    return [done.stdout + done.stderr] if done.returncode else []


# Words that shells must not expand (2016), variables of Slurm (2154), and two matters of taste: braces around every variable, and `[[`.
UNWANTED = "SC2016,SC2154,SC2250,SC2292"


def strict(schema):
    """Returns a schema in which unknown fields are errors, as `kubectl apply --validate=strict` has it."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    is_object = isinstance(schema.get("properties"), dict)
    if is_object and not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
        schema["additionalProperties"] = False
    return schema


def resource(content, definition):
    """Returns where a resource differs from its definition."""
    import jsonschema
    import yaml

    folder = os.environ.get(CRDS)
    if not folder:
        return missing(f"definition of {content['kind']} ({CRDS})")
    defined = yaml.safe_load((Path(folder) / definition).read_text())
    group, version = content["apiVersion"].split("/")
    if (defined["spec"]["group"], defined["spec"]["names"]["kind"]) != (group, content["kind"]):
        return [f"{definition} defines another kind"]
    schemas = [v["schema"]["openAPIV3Schema"] for v in defined["spec"]["versions"] if v["name"] == version]
    if not schemas:
        return [f"{definition} has no version {version}"]
    top = strict(schemas[0])
    top["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    errors = jsonschema.Draft202012Validator(top).iter_errors(content)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def pods(value):
    """Returns the specifications of all pods below a value."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for item in value.values():
            yield from pods(item)
    elif isinstance(value, list):
        for item in value:
            yield from pods(item)


def job_problems(file):
    import yaml

    content = yaml.safe_load(file.read_text())
    definitions = {"JobSet": "jobset.x-k8s.io_jobsets.yaml", "MPIJob": "kubeflow.org_mpijobs.yaml"}
    problems = resource(content, definitions[content["kind"]])
    for pod in pods(content):
        for container in pod["containers"]:
            for script in container.get("args", []):
                # Kubernetes makes a dollar of two.
                problems += shellcheck(script.replace("$$", "$"), "sh")
    return problems


def task_problems(file):
    import sky

    task = sky.Task.from_yaml(str(file))
    scripts = [script for script in (task.setup, task.run) if script]
    print(f"{file.name}: {task.num_nodes} nodes, {task.resources}, volumes {task.volumes}")
    return [problem for script in scripts for problem in shellcheck(script, "bash")]


def problems(file):
    if file.suffix == ".sbatch":
        return shellcheck(file.read_text(), "bash")
    if file.name.startswith("skypilot"):
        return task_problems(file) if importlib.util.find_spec("sky") else missing("package skypilot")
    if importlib.util.find_spec("yaml") and importlib.util.find_spec("jsonschema"):
        return job_problems(file)
    return missing("package jsonschema or pyyaml")


def main():
    found = [f"{file}: {problem}" for file in map(Path, sys.argv[1:]) for problem in problems(file)]
    print("\n".join(found) or "no problem")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
