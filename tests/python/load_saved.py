#!/usr/bin/env python3
"""Loads directories that maverl wrote in transformers and peft, and compares them with `maverl score`.

Not part of the test command: it needs `pip install torch transformers peft` and a built maverl.

    cargo build --release --bin maverl
    python tests/python/load_saved.py target/release/maverl /path/to/model [/path/to/model ...] [--adapter MODEL=DIR ...]

Each model is exported whole, in shards and in bfloat16; each adapter as it is, and merged. Every directory is opened
with AutoModelForCausalLM (or PeftModel) and has to give the log-probs of its rows that maverl gives, and the tokenizer
the same ids. Exits with 1 if one does not.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TEXTS = ["The quick brown fox", "naïve café ✓ 1234", "def f(x):\n    return x + 1\n", "a"]
TOLERANCE = 1e-4

logging.disable_progress_bar()


def run(*args):
    subprocess.run([str(arg) for arg in args], check=True, stdout=subprocess.DEVNULL)


def scored(maverl, work, model, adapter):
    """What maverl gives for the texts."""
    source, target = work / "in.jsonl", work / "out.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    more = ["--adapter", adapter] if adapter else []
    run(maverl, "score", "--model", model, *more, "--input", source, "--output", target)
    return [json.loads(line) for line in target.read_text().splitlines()]


def difference(rows, directory, adapter):
    """The largest difference of log-probs and entropies; infinite if the ids differ."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    if adapter:
        model = PeftModel.from_pretrained(model, str(adapter))
    model.eval()
    worst = 0.0
    for row in rows:
        ids = row["input_ids"]
        if tokenizer(row["text"])["input_ids"] != ids:
            print(f"    other ids for {row['text']!r}: {tokenizer(row['text'])['input_ids']}, not {ids}")
            return math.inf
        with torch.no_grad():
            logp = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        pairs = [(logp[t, ids[t + 1]].item(), row["logprobs"][t]) for t in range(len(ids) - 1)]
        pairs += list(zip(entropy.tolist(), row["entropy"]))
        worst = max(worst, max(abs(a - b) for a, b in pairs))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("maverl", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    parser.add_argument("--adapter", action="append", default=[], metavar="MODEL=DIR")
    args = parser.parse_args()
    failed = False

    def compare(name, work, model, adapter=None):
        nonlocal failed
        worst = difference(scored(args.maverl, work, model, adapter), model, adapter)
        failed |= not worst <= TOLERANCE
        print(f"{name:<60} {worst:.1e}", flush=True)

    kinds = {"whole": ["--dtype", "f32"], "shards": ["--dtype", "f32", "--max-shard-size", "300KB"],
             "bf16": ["--dtype", "bf16"]}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for number, model in enumerate(args.models):
            for kind, options in kinds.items():
                out = work / f"{number}-{kind}"
                run(args.maverl, "export", "--model", model, "--out", out, *options)
                compare(f"{model.name}, {kind}", work, out)
        for number, pair in enumerate(args.adapter):
            model, adapter = map(pathlib.Path, pair.split("=", 1))
            both = ["--model", model, "--adapter", adapter]
            apart, merged = work / f"adapter-{number}", work / f"merged-{number}"
            run(args.maverl, "export", *both, "--out", apart)
            compare(f"{model.name} with {adapter.name}", work, model, apart)
            run(args.maverl, "export", *both, "--merge", "--out", merged)
            compare(f"{model.name} with {adapter.name}, merged", work, merged)
    sys.exit(failed)


main()
