"""A worker that plays an environment of the package `verifiers` 0.4 (docs/src/programs.md).

Its first argument is the configuration of the environment: the table `[env]` of a configuration of verifiers, as JSON. With
`--tasks` as the second one, it prints the tasks of the environment, for `task.data`. A task's id is its place in the taskset.
"""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request

import verifiers.v1 as vf

# Harnesses make their environments with `uv`, which is beside this Python.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]


def post(url, body, key):
    head = {"authorization": "Bearer " + key, "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer) if answer.status == 200 else {}


async def play(env, task, episode):
    """Plays an episode. Returns the path and the body of the request that ends it."""
    variable = "KEY_" + episode["id"].replace("-", "_")
    os.environ[variable] = episode["api_key"]
    client = vf.EvalClientConfig(base_url=episode["base_url"], api_key_var=variable)
    done = await env.run_episode(task, vf.ModelContext(model=episode["models"][0], client=client))
    del os.environ[variable]
    if done.ok:
        return "/finish", {"reward": sum(trace.reward for trace in done.traces)}
    errors = done.errors + [error for trace in done.traces for error in trace.errors]
    return "/fail", {"by": "program", "message": "; ".join(error.message for error in errors)}


async def work(env):
    root, key = os.environ["MAVERL_GATEWAY_URL"], os.environ["MAVERL_GATEWAY_KEY"]
    tasks = {str(task.data.idx): task for task in env.taskset}
    async with env.serving():
        while True:
            try:
                claimed = post(root + "/claim", {"worker": "verifiers", "wait_s": 20}, key)
            except OSError as error:  # 410, or the end of the connection: the run is over
                sys.exit(f"no more episodes: {error}")
            for episode in claimed.get("episodes", []):
                path, body = await play(env, tasks[episode["task"]["id"]], episode)
                try:
                    post(episode["base_url"].removesuffix("/v1") + path, body, episode["api_key"])
                except urllib.error.HTTPError as error:
                    if error.code != 409:  # 409: the episode was over, such as by its time limit
                        raise


if __name__ == "__main__":
    env = vf.load_environment(vf.resolve_env_config(json.loads(sys.argv[1])))
    if sys.argv[2:] == ["--tasks"]:
        for task in env.taskset:
            print(json.dumps({"id": str(task.data.idx), "question": task.data.prompt_text}))
    else:
        asyncio.run(work(env))
