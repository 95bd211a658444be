"""Measures how much slower updates are in steps that record the quantities of tokens (`record.tokens_every`).

    python3 tests/python/columns.py examples/search_orchestra.toml --binary target/release/maverl --steps 10 --rounds 3

Trains twice a round, with columns in every step and in none but the first and the last, in alternating order. Both runs
have equal weights and equal rows, so that only the recording differs. Prints the ratio of the medians of
`time/update_s`, without the first and the last step.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path


def update_seconds(args, every, out):
    """Trains, and returns the seconds of the updates and the metrics, without the first and the last step."""
    settings = [f"steps={args.steps}", f"record.tokens_every={every}", "eval.before_and_after=false", *args.set]
    command = [args.binary, "train", args.config, "--out", out]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (Path(out) / "timing.jsonl").open()]
    seconds = [row["time/update_s"] for row in rows if "time/update_s" in row]
    return seconds[1:-1], (Path(out) / "metrics.jsonl").read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--binary", default="maverl")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    found = {0: [], 1: []}
    metrics = set()
    for round_ in range(args.rounds):
        for every in [0, 1] if round_ % 2 == 0 else [1, 0]:
            with tempfile.TemporaryDirectory() as home:
                seconds, text = update_seconds(args, every, f"{home}/run")
            found[every].append(seconds)
            metrics.add(text)
    assert len(metrics) == 1, "the metrics depend on `record.tokens_every`"
    # The same step of the same round, with and without columns.
    ratios = [
        with_ / without
        for one, other in zip(found[1], found[0])
        for with_, without in zip(one, other)
    ]
    medians = {every: statistics.median(sum(of, [])) for every, of in found.items()}
    print(f"update without columns {medians[0]:.4f} s, with {medians[1]:.4f} s: {medians[1] / medians[0] - 1:+.2%}")
    low, _, high = statistics.quantiles(ratios, n=4)
    print(f"step by step: median {statistics.median(ratios) - 1:+.2%}, quartiles {low - 1:+.2%} to {high - 1:+.2%}")


if __name__ == "__main__":
    main()
