"""Two agents of AG2: a solver, whose answer a critic reads before it answers again (docs/src/programs.md).

It needs the package `ag2` with `openai`, whose client reads the address and the key of the episode from the environment
variables.
"""

import asyncio
import json
import sys

from ag2 import Agent
from ag2.config import OpenAIConfig

SOLVER = Agent("solver", prompt="Answer briefly.", config=OpenAIConfig(model="solver"))
CRITIC = Agent("critic", prompt="Say in one sentence what is wrong.", config=OpenAIConfig(model="critic"))


async def play(question):
    draft = await SOLVER.ask(question)
    told = await CRITIC.ask(f"Question: {question}\nAnswer: {draft.body}")
    final = await draft.ask(f"A critic says: {told.body}\nAnswer again.")
    return {"answer": final.body}


if __name__ == "__main__":
    episode = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(play(episode["task"]["question"]))))
