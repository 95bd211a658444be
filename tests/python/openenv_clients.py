"""Plays episodes of `maverl serve environment` with the client of the package openenv.

    python openenv_clients.py math|tools http://127.0.0.1:8000 KEY

The tasks are sums, as `What is 3 + 4?`. Prints the number of episodes; a failure raises.
"""

import importlib.metadata
import re
import sys

from openenv.core.generic_client import GenericEnvClient

EPISODES = 100
KIND, URL, KEY = sys.argv[1:4]


def terms(text):
    return [int(number) for number in re.search(r"(\d+) \+ (\d+)", text).groups()]


def play(env, index):
    """Plays an episode, and returns its reward."""
    begun = env.reset(index=index % 8, episode_id=f"episode-{index}")
    assert not begun.done and begun.reward is None, begun
    first, second = terms(begun.observation["text"])
    total = str(first + second)
    if KIND == "tools":
        names = [tool["name"] for tool in env.step({"type": "list_tools"}).observation["tools"]]
        assert names == ["calculator"], names
        call = {"type": "call_tool", "tool_name": "calculator", "arguments": {"expression": f"{first} + {second}"}}
        seen = env.step(call)
        assert not seen.done and seen.observation["error"] is None, seen
        total = seen.observation["result"]
    state = env.state()
    assert state["episode_id"] == f"episode-{index}", state
    message = total if index % 2 == 0 else "-1"
    judged = env.step({"message": f"<answer>{message}</answer>"})
    assert judged.done and judged.metadata["solved"] == (index % 2 == 0), judged
    return judged.reward


with GenericEnvClient(base_url=URL, headers={"Authorization": f"Bearer {KEY}"}).sync() as env:
    rewards = [play(env, index) for index in range(EPISODES)]
    assert rewards == [1.0 if index % 2 == 0 else 0.0 for index in range(EPISODES)], rewards
    try:
        env.step({"text": "no field of this environment"})
        raise SystemExit("an action without a message is accepted")
    except RuntimeError as error:
        assert "VALIDATION_ERROR" in str(error), error
print(f"openenv {importlib.metadata.version('openenv')}: {EPISODES} episodes of {KIND}")
