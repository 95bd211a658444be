"""The search team as a program: a verifier routes to a searcher until the information suffices, then an answerer answers.

It needs Python's standard library only. `maverl` starts it once for each episode; any client of OpenAI's protocol
would do as well (docs/src/programs.md).
"""

import json
import re
import sys
import urllib.request

TURNS = 3
ANY_CASE = re.IGNORECASE | re.ASCII
episode = json.loads(sys.stdin.readline())
url = episode["base_url"].removesuffix("/v1")
question = episode["task"]["question"]
calls = 0


def post(path, body, headers={}):
    head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {**head, **headers})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def ask(model, information, last, tag):
    """Asks a seat, and returns what stands between its tags. A reply without them ends the episode without an answer."""
    global calls
    prompt = "\n".join([f"Question: {question}", *(information or ["(none)"]), last])
    body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    said = post("/v1/chat/completions", body, {"x-maverl-path": str(calls)})
    calls += 1
    choice = said["choices"][0]
    reply = choice["message"]["content"]
    found = re.findall(f"<{tag}>(.*?)</{tag}>", reply, re.DOTALL | ANY_CASE)
    tags = len(re.findall(f"</?{tag}>", reply, ANY_CASE))
    if choice["finish_reason"] == "length" or tags != 2 or not found or not found[0].strip():
        malformed(said["id"], f"no <{tag}> block")
    return found[0].strip(), said["id"]


def malformed(completion, message):
    post("/fail", {"by": "policy", "message": message, "completion": completion})
    sys.exit()


information = []
for _ in range(1, TURNS):
    last = "Is this enough to answer? Reply <verify>yes</verify> or <verify>no</verify>."
    verdict, completion = ask("verifier", information, last, "verify")
    if verdict.lower() not in ("yes", "no"):
        malformed(completion, f"<verify> holds {verdict!r}")
    if verdict.lower() == "yes":
        break
    query, _ = ask("searcher", information, "What is to be looked up? Reply <search>words</search>.", "search")
    information.append(post("/act", {"text": query})["text"])
answer, _ = ask("answerer", information, "What is the answer? Reply <answer>words</answer>.", "answer")
print(json.dumps({"answer": answer}))
