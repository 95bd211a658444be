"""A program with LangChain, which asks twice in one conversation."""

import json
import os
import sys

from langchain_openai import ChatOpenAI

episode = json.loads(sys.stdin.readline())
model = ChatOpenAI(model="solver")
messages = [("system", "Answer briefly."), ("user", episode["task"]["question"])]
first = model.invoke(messages)
second = model.invoke([*messages, first, ("user", "Are you sure?")])
assert isinstance(second.content, str)
print(json.dumps({"reward": int(os.environ["MAVERL_SEED"]) % 2}))
