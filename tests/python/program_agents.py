"""A program with the OpenAI Agents SDK, which asks twice in one conversation."""

import asyncio
import json
import os
import sys

import agents

agents.set_tracing_disabled(True)
agents.set_default_openai_api(sys.argv[1])
episode = json.loads(sys.stdin.readline())


@agents.function_tool
def add(first: int, second: int) -> int:
    """Adds two numbers."""
    return first + second


async def play():
    agent = agents.Agent(name="solver", instructions="Answer briefly.", model="solver", tools=[add])
    first = await agents.Runner.run(agent, episode["task"]["question"])
    again = first.to_input_list() + [{"role": "user", "content": "Are you sure?"}]
    return (await agents.Runner.run(agent, again)).final_output


try:
    asyncio.run(play())
    print(json.dumps({"reward": int(os.environ["MAVERL_SEED"]) % 2}))
except agents.ModelBehaviorError as error:  # such as a reply that was truncated
    print(error, file=sys.stderr)
    sys.exit(65)
