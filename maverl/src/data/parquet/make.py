"""Writes the Parquet files of the tests beside this script: `pip install pyarrow`, then `python make.py`."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent


def user(text):
    return [{"role": "user", "content": text}]


# verl: examples/data_preprocess/gsm8k.py. The last rows lack what only some data sets have.
verl = [
    {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "system", "content": "Think."}] + user(f"What is {i} + {i}?"),
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(2 * i)},
        "extra_info": {"split": "train", "index": i, "answer": f"#### {2 * i}", "question": f"What is {i} + {i}?"},
    }
    for i in range(20)
]
verl += [
    {
        "data_source": "openai/gsm8k",
        "prompt": user("What is 1 - 1?"),
        "reward_model": {"style": "rule", "ground_truth": "0"},
        "extra_info": {"split": "test"},
    },
    {"data_source": None, "prompt": user("Why?"), "reward_model": None},
]
pq.write_table(pa.Table.from_pylist(verl), HERE / "verl.parquet", compression="snappy", row_group_size=7)

# Search-R1: the truth is a struct with a list.
search = [
    {
        "id": "test_0",
        "data_source": "nq",
        "prompt": user("Who?"),
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada", "Ada T."]}},
        "extra_info": {"index": 0, "split": "test"},
    }
]
pq.write_table(pa.Table.from_pylist(search), HERE / "search.parquet", compression="gzip")

# TRL: a prompt and columns of the user's own, of every type that has a JSON form.
trl = [
    {"prompt": "What is 1/2 of 3?", "solution": "It is $\\boxed{3/2}$.", "level": 2, "score": 0.5, "hard": True},
    {"prompt": user("What is 7?"), "answer": 7},
]
for name, rows in {"solution": trl[:1], "answer": trl[1:]}.items():
    pq.write_table(pa.Table.from_pylist(rows), HERE / f"trl_{name}.parquet", compression="zstd")

# HotpotQA as the hub has it.
hotpot = [
    {
        "id": "x1",
        "question": "Q?",
        "answer": "yes",
        "supporting_facts": {"title": ["B", "A"], "sent_id": [0, 0]},
        "context": {"title": ["A", "B"], "sentences": [["One.", " Two."], ["Three."]]},
    }
]
pq.write_table(pa.Table.from_pylist(hotpot), HERE / "hotpot.parquet", compression="none")

# What cannot be a task, and what cannot be read.
pq.write_table(pa.table({"prompt": [1, 2], "answer": ["a", "b"]}), HERE / "wrong_type.parquet")
pq.write_table(pa.table({"text": ["a"], "label": [1]}), HERE / "no_question.parquet")
pq.write_table(pa.table({"question": ["?"] * 50}), HERE / "brotli.parquet", compression="brotli")
