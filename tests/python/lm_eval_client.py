"""Drives `maverl serve model` with lm-evaluation-harness: likelihoods, and generated texts of both routes.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=key python lm_eval_client.py

The server serves one model, `builtin:tiny` as `tiny`. The tasks are made here, so nothing is downloaded. The tokenizer is that
of the server. Each part prints a line; a failure raises.
"""

import importlib.metadata
import json
import os
import pathlib
import tempfile
import urllib.request

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
BASE, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]

ROWS = [
    {"question": f"Question: Who wrote {book}?", "choices": [" Ana", " Bo", " nobody at all"], "gold": i % 3}
    for i, book in enumerate(["Magdor", "Tellin", "Ossa", "Brem", "Lukar", "Dovan"])
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
output_type: {output}
"""
CHOICE = """
doc_to_choice: choices
target_delimiter: ""
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
TEXT = """
doc_to_target: "{{choices[gold]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, temperature: 0.0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def score(row, choice):
    """Returns the log-prob of a choice, as the server gives it without the harness."""
    def ids(text):
        return post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    whole, start = ids(row["question"] + choice), len(ids(row["question"]))
    body = {"model": "tiny", "prompt": whole, "max_tokens": 0, "echo": True, "logprobs": 0, "temperature": 0}
    return sum(post("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"][start:])


def post(path, body):
    head = {"authorization": "Bearer " + KEY, "content-type": "application/json"}
    request = urllib.request.Request(BASE.removesuffix("/v1") + path, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main():
    import lm_eval
    from lm_eval.tasks import TaskManager

    with tempfile.TemporaryDirectory() as home:
        os.environ["HF_HOME"] = home
        home = pathlib.Path(home)
        data = home / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        (home / "choice.yaml").write_text(TASK.format(name="choice", data=data, output="multiple_choice") + CHOICE)
        (home / "text.yaml").write_text(TASK.format(name="text", data=data, output="generate_until") + TEXT)
        manager = TaskManager(include_path=str(home), include_defaults=False)

        def evaluate(model, route, tasks, **options):
            arguments = {"model": "tiny", "base_url": BASE + route, "auth_token": KEY, **options}
            return lm_eval.simple_evaluate(
                model=model, model_args=arguments, tasks=tasks, task_manager=manager, log_samples=True,
                apply_chat_template="chat" in model,
            )

        done = evaluate("local-completions", "/completions", ["choice", "text"], batch_size=3, max_length=256)
        for sample in done["samples"]["choice"]:
            row = sample["doc"]
            for choice, found in zip(row["choices"], sample["filtered_resps"]):
                expected = score(row, choice)
                assert abs(found[0] - expected) < 1e-4, (row, choice, found, expected)
        texts = [sample["resps"][0][0] for sample in done["samples"]["text"]]
        assert len(texts) == len(ROWS) and all("\n" not in text for text in texts), texts
        accuracy = done["results"]["choice"]["acc,none"]
        print(f"local-completions: accuracy {accuracy}, log-probs equal, {len(texts)} texts")
        chat = evaluate("local-chat-completions", "/chat/completions", ["text"], num_concurrent=4)
        texts = [sample["resps"][0][0] for sample in chat["samples"]["text"]]
        assert len(texts) == len(ROWS) and all(isinstance(text, str) for text in texts), texts
        print(f"local-chat-completions: {len(texts)} texts")
    print(f"lm_eval {importlib.metadata.version('lm_eval')}: good", flush=True)


if __name__ == "__main__":
    main()
