"""A small coding agent in Anthropic's Messages API: it may run commands, streams its answers, and is asked once more.

It has the shape of larger harnesses: a system section of cached blocks, streams, results of tools as blocks, and a
bound on tokens that no context has. Needs the package `anthropic` (docs/src/programs.md).
"""

import json
import os
import re
import subprocess
import sys

import anthropic

TURNS = 4
SYSTEM = [{"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}]
RULE = "What is the answer? Reply <answer>words</answer>."
BASH = {
    "name": "Bash",
    "description": "Runs a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def run(block):
    """Runs the command of a call in the program's own directory, and returns the result as a block."""
    command = str(block.input.get("command", ""))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=20, check=False)
    text = (done.stdout + done.stderr)[:200]
    return {"type": "tool_result", "tool_use_id": block.id, "content": text, "is_error": done.returncode != 0}


def play(question):
    """Plays an episode, and returns its last answer."""
    client, answer = anthropic.Anthropic(), None
    first = [{"type": "text", "text": text} for text in (f"Question: {question}", RULE)]
    messages = [{"role": "user", "content": first}]
    asked_again = False
    for _ in range(TURNS):
        with client.messages.stream(
            model=os.environ["ANTHROPIC_MODEL"], max_tokens=32000, system=SYSTEM, messages=messages, tools=[BASH]
        ) as stream:
            said = stream.get_final_message()
        text = "".join(block.text for block in said.content if block.type == "text")
        found = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
        answer = found[-1] if found else answer
        messages.append({"role": "assistant", "content": said.content})
        results = [run(block) for block in said.content if block.type == "tool_use"]
        if not results and asked_again:
            break
        asked_again = asked_again or not results
        messages.append({"role": "user", "content": results or [{"type": "text", "text": RULE}]})
    return answer


if __name__ == "__main__":
    episode = json.loads(sys.stdin.readline())
    print(json.dumps({"answer": play(episode["task"]["question"])}))
