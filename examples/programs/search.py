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


def play(episode):
    """Plays an episode, and returns the report of its end; none if a malformed reply has ended it."""
    url, question = episode["base_url"].removesuffix("/v1"), episode["task"]["question"]
    information, calls = [], 0

    def post(path, body, headers={}):
        head = {"authorization": "Bearer " + episode["api_key"], "content-type": "application/json"}
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {**head, **headers})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def ask(model, last, tag, allowed=None):
        """Asks a seat, and returns what stands between its tags; none if the reply is malformed."""
        nonlocal calls
        prompt = "\n".join([f"Question: {question}", *(information or ["(none)"]), last])
        body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
        said = post("/v1/chat/completions", body, {"x-maverl-path": str(calls)})
        calls += 1
        choice = said["choices"][0]
        reply = choice["message"]["content"]
        found = re.findall(f"<{tag}>(.*?)</{tag}>", reply, re.DOTALL | ANY_CASE)
        tags = len(re.findall(f"</?{tag}>", reply, ANY_CASE))
        text = found[0].strip() if tags == 2 and found and choice["finish_reason"] != "length" else ""
        if not text or allowed and text.lower() not in allowed:
            post("/fail", {"by": "policy", "message": f"<{tag}> holds {text!r}", "completion": said["id"]})
            return None
        return text

    for _ in range(1, TURNS):
        last = "Is this enough to answer? Reply <verify>yes</verify> or <verify>no</verify>."
        if not (verdict := ask("verifier", last, "verify", ("yes", "no"))):
            return None
        if verdict.lower() == "yes":
            break
        if not (query := ask("searcher", "What is to be looked up? Reply <search>words</search>.", "search")):
            return None
        information.append(post("/act", {"text": query})["text"])
    answer = ask("answerer", "What is the answer? Reply <answer>words</answer>.", "answer")
    return {"answer": answer} if answer else None


if __name__ == "__main__":
    print(json.dumps(play(json.loads(sys.stdin.readline()))))
