"""The search team of `examples/programs/search.py` with `maverl.worker`: for `mode = "worker"` and for a process for each episode."""

import json
import re
import urllib.request

from maverl import worker

TURNS = 3
ANY_CASE = re.IGNORECASE | re.ASCII


class Search:
    """An episode of the team."""

    def __init__(self, episode):
        self.episode, self.information, self.calls = episode, [], 0

    def ask(self, model, last, tag, allowed=None):
        """Asks a seat, and returns what stands between its tags."""
        prompt = "\n".join([f"Question: {self.episode.task['question']}", *(self.information or ["(none)"]), last])
        said = self.complete({"model": model, "messages": [{"role": "user", "content": prompt}]})
        choice = said["choices"][0]
        reply = choice["message"]["content"]
        found = re.findall(f"<{tag}>(.*?)</{tag}>", reply, re.DOTALL | ANY_CASE)
        tags = len(re.findall(f"</?{tag}>", reply, ANY_CASE))
        text = found[0].strip() if tags == 2 and found and choice["finish_reason"] != "length" else ""
        if not text or allowed and text.lower() not in allowed:
            raise worker.Malformed(f"<{tag}> holds {text!r}", said["id"])
        return text

    def complete(self, body):
        head = {"authorization": f"Bearer {self.episode.api_key}", "content-type": "application/json", "x-maverl-path": str(self.calls)}
        self.calls += 1
        request = urllib.request.Request(self.episode.base_url + "/chat/completions", json.dumps(body).encode(), head)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def play(self):
        for _ in range(1, TURNS):
            last = "Is this enough to answer? Reply <verify>yes</verify> or <verify>no</verify>."
            if self.ask("verifier", last, "verify", ("yes", "no")).lower() == "yes":
                break
            query = self.ask("searcher", "What is to be looked up? Reply <search>words</search>.", "search")
            self.information.append(self.episode.act(query)["text"])
        return self.ask("answerer", "What is the answer? Reply <answer>words</answer>.", "answer")


async def play(episode):
    episode.heartbeat()
    return Search(episode).play()


if __name__ == "__main__":
    worker.run(play)
