"""A ReAct agent of LangGraph, with the tools of its environment (docs/src/programs.md).

It needs the packages `langgraph` and `langchain-openai`, whose model reads the address and the key of the episode from the
environment variables.
"""

import json
import sys
import urllib.request

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.prebuilt import create_react_agent


def play(episode):
    url = episode["base_url"].removesuffix("/v1")

    def request(path, body=None):
        head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(urllib.request.Request(url + path, data, head)) as answer:
            return json.load(answer)

    def tool(name, description, parameters):
        def act(**arguments):
            return request("/act", {"name": name, "arguments": arguments})["text"]

        return StructuredTool.from_function(act, name=name, description=description, args_schema=parameters)

    tools = [tool(**declared["function"]) for declared in request("/tools")["tools"]]
    agent = create_react_agent(ChatOpenAI(model="agent"), tools, prompt="Use the tools, then answer.")
    try:
        said = agent.invoke({"messages": [("user", episode["task"]["question"])]}, {"recursion_limit": 8})
    except GraphRecursionError:  # it calls tools without end: scored without an answer
        return {"answer": None}
    return {"answer": said["messages"][-1].content}


if __name__ == "__main__":
    print(json.dumps(play(json.loads(sys.stdin.readline()))))
