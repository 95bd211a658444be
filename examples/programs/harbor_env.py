"""A worker that plays tasks of the Harbor format in containers (docs/src/harbor.md). Standard library only, Python 3.11 or newer.

    harbor_env.py DIR --tasks                  prints the tasks below DIR, for `task.data`
    harbor_env.py DIR --play oracle            runs the solution of each task and prints its reward; `nop` runs nothing
    harbor_env.py DIR                          takes episodes of a run (`mode = "worker"`)

Containers are those of Docker if a daemon answers, otherwise directories under bubblewrap; `--in docker` and `--in bwrap` name
one. Programs have no network, unless `--network` gives it to tasks that ask for it.
"""

import argparse
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from harbor_sandbox import SandboxError, open_sandbox, sandbox_kind
from harbor_task import RewardError, TaskError, read_reward, read_tasks

RULE = (
    "You work in a terminal. Call the tool `bash` with one command at a time, and read its output. "
    "Reply without a call when the task is done."
)
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command in the task's directory, and returns what it prints.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
# Longest time of one command of a model, in seconds, and the longest output that it is shown, in characters.
COMMAND_S, SHOWN = 120, 8000


def post(url, body, key):
    head = {"authorization": "Bearer " + key, "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer) if answer.status == 200 else {}


def call_command(call):
    """Returns the command of a call, or None if the call is malformed."""
    try:
        command = json.loads(call["function"]["arguments"])["command"]
    except (ValueError, TypeError, KeyError):
        return None
    return command if call["function"]["name"] == "bash" and isinstance(command, str) else None


def work_on(task, sandbox, episode, turns):
    """Lets the model of an episode work until it calls no tool, its turns or its time are over, or the run refuses a call."""
    messages = [{"role": "system", "content": RULE}, {"role": "user", "content": task.instruction}]
    end = time.monotonic() + task.agent_s
    for _ in range(turns):
        body = {"model": episode["models"][0], "messages": messages, "tools": [BASH]}
        try:
            said = post(episode["base_url"] + "/chat/completions", body, episode["api_key"])["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            if error.code != 400:  # 400: a limit of the episode, or the length of the context
                raise
            return
        messages.append(said)
        if not said.get("tool_calls"):
            return
        for call in said["tool_calls"]:
            left = min(end - time.monotonic(), COMMAND_S)
            if left <= 0:
                return
            command = call_command(call)
            text = 'write {"command": ".."} for the tool `bash`'
            if command is not None:
                done = sandbox.run(["bash", "-c", command], left)
                text = f"{done.text[:SHOWN]}\n[exit code {done.code}]"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def judge(task, sandbox):
    """Runs the tests of a task, and returns its reward and its other numbers."""
    sandbox.begin_tests()
    done = sandbox.run(["/tests/test.sh"], task.verifier_s, env=task.verifier_env, output="/logs/verifier/test-stdout.txt")
    if done.late:
        raise RewardError(f"the tests took longer than {task.verifier_s:g} s")
    return read_reward(sandbox.reward_file)


def play(task, episode, arguments):
    """Plays an episode. Returns the path and the body of the request that ends it."""
    try:
        with open_sandbox(task, arguments.kind, arguments.network) as sandbox:
            work_on(task, sandbox, episode, arguments.turns)
            reward, metrics = judge(task, sandbox)
    except (SandboxError, RewardError) as error:
        return "/fail", {"by": "program", "message": str(error)}
    return "/finish", {"reward": reward, "metrics": metrics}


def solve(task, agent, arguments):
    """Returns the reward of a task after its own solution, or after nothing."""
    with open_sandbox(task, arguments.kind, arguments.network) as sandbox:
        if agent == "oracle":
            sandbox.add_solution()
            sandbox.run(["/solution/solve.sh"], task.agent_s, env=task.solution_env)
        return judge(task, sandbox)


def work(tasks, arguments):
    # Containers are removed when the run ends its workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root, key = os.environ["MAVERL_GATEWAY_URL"], os.environ["MAVERL_GATEWAY_KEY"]
    while True:
        try:
            claimed = post(root + "/claim", {"worker": "harbor", "wait_s": 20}, key)
        except OSError as error:  # 410, or the end of the connection: the run is over
            sys.exit(f"no more episodes: {error}")
        for episode in claimed.get("episodes", []):
            task = tasks.get(episode["task"]["id"])
            if task is None:
                path, body = "/fail", {"by": "program", "message": f"no task {episode['task']['id']!r}"}
            else:
                path, body = play(task, episode, arguments)
            try:
                post(episode["base_url"].removesuffix("/v1") + path, body, episode["api_key"])
            except urllib.error.HTTPError as error:
                if error.code != 409:  # 409: the episode was over, such as by its time limit
                    raise


def main():
    parser = argparse.ArgumentParser(description="Plays tasks of the Harbor format.")
    parser.add_argument("dir", type=Path, help="directory of task directories")
    parser.add_argument("--tasks", action="store_true", help="print the tasks as rows for `task.data`")
    parser.add_argument("--play", choices=["oracle", "nop"], help="play each task without a model")
    parser.add_argument("--in", dest="kind", choices=["docker", "bwrap"], help="kind of the containers")
    parser.add_argument("--network", action="store_true", help="let tasks with `network_mode = \"public\"` use the network")
    parser.add_argument("--turns", type=int, default=20, help="most calls of the model in an episode")
    arguments = parser.parse_args()
    try:
        tasks = read_tasks(arguments.dir)
        if arguments.tasks:
            for name, task in tasks.items():
                print(json.dumps({"id": name, "question": task.instruction}))
            return
        arguments.kind = arguments.kind or sandbox_kind()
    except (TaskError, SandboxError) as error:
        sys.exit(str(error))
    if arguments.play is None:
        work(tasks, arguments)
    failed = False
    for name, task in tasks.items():
        try:
            reward, metrics = solve(task, arguments.play, arguments)
            print(json.dumps({"task": name, "reward": reward, "metrics": metrics}))
        except (SandboxError, RewardError) as error:
            failed = True
            print(json.dumps({"task": name, "error": str(error)}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
