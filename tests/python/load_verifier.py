#!/usr/bin/env python3
"""Loads a directory that `maverl export --verifier` wrote in transformers, and compares it with `maverl serve reward`.

Not part of the test command: it needs `pip install torch transformers` and a built maverl with the feature `serve`.

    python tests/python/load_verifier.py target/release/maverl verifiers/v1

The directory is opened with AutoModelForSequenceClassification, or one that scores by log-probs with AutoModelForCausalLM. It has
to give the probabilities that the server gives at `/predict`, to 1e-4. Exits with 1 if it does not.
"""

import json
import pathlib
import subprocess
import sys
import urllib.request

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

TOLERANCE = 1e-4
CONVERSATIONS = [
    [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": reply}]
    for reply in ["4", "5", "<answer>4</answer>", "I do not know: is it 22?"]
]
# As in the rows of `examples/verifier.toml`.
SUM = "Question: Sam has 6 stamps. Sam gets 5 more. How many stamps does Sam have now?\n(none)\nWhat is the answer? Reply <answer>words</answer>."
CONVERSATIONS += [
    [{"role": "user", "content": SUM}, {"role": "assistant", "content": f"<answer>{number}</answer>"}]
    for number in [10, 11, 12, 21]
]


def ours(maverl, directory):
    """Probabilities of the server."""
    args = [maverl, "serve", "reward", "--model", directory, "--address", "127.0.0.1:0"]
    with subprocess.Popen(args, stdout=subprocess.PIPE) as server:
        try:
            url = json.loads(server.stdout.readline())["listening"]
            body = json.dumps({"query_responses": CONVERSATIONS}).encode()
            with urllib.request.urlopen(urllib.request.Request(url + "/predict", body)) as answer:
                return json.load(answer)["result"]
        finally:
            server.terminate()


def calibrated(logit, head):
    """Probability of a logit."""
    return torch.sigmoid(logit / head["temperature"] + head["offset"]).item()


def theirs(directory):
    """Probabilities of transformers."""
    head = json.loads((pathlib.Path(directory) / "reward_head.json").read_text())
    # The class that `AutoTokenizer` of transformers 5 chooses for Qwen2 splits numbers into digits, whatever `tokenizer.json` says.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    if head["place"] == "reply":
        return likelihoods(directory, tokenizer, head)
    model = AutoModelForSequenceClassification.from_pretrained(directory, dtype=torch.float32).eval()
    found = []
    for messages in CONVERSATIONS:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            logit = model(ids).logits[0, 0]
        found.append(calibrated(logit, head))
    return found


def likelihoods(directory, tokenizer, head):
    """Probabilities of a verifier that scores the tokens of a reply by their log-probs."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    found = []
    for messages in CONVERSATIONS:
        given = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
        whole = tokenizer.apply_chat_template(messages, tokenize=False)
        encode = lambda text: tokenizer(text, add_special_tokens=False).input_ids
        prompt, reply = encode(given), encode(whole[len(given) :])
        reply = reply[: reply.index(tokenizer.eos_token_id) + 1]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])
        mean = logprobs.double().mean()
        found.append(calibrated(mean - torch.log(-torch.expm1(mean)), head))
    return found


def main():
    maverl, directory = sys.argv[1:]
    pairs = list(zip(ours(maverl, directory), theirs(directory), strict=True))
    for ours_, theirs_ in pairs:
        print(f"{ours_:.6f} {theirs_:.6f}")
    worst = max(abs(a - b) for a, b in pairs)
    print(f"largest difference {worst:.1e}")
    return 0 if worst <= TOLERANCE else 1


sys.exit(main())
