"""Measures what `[record]` costs: updates in steps that record the quantities of tokens, and whole steps.

    python3 tests/python/columns.py examples/search_orchestra.toml --binary target/release/maverl --steps 10 --rounds 3

Trains once a round with each kind of record, in turn: nothing, everything but the quantities of tokens, and everything in every
step. All runs have equal weights and equal rows, so that only the recording differs. Prints the medians of `time/update_s` and
`time/step_s` without the first and the last step, and the ratios step by step.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

OFF = ["record.samples=false", "record.clock=false", "record.evaluations=false"]
KINDS = {"nothing": OFF, "all but tokens": ["record.tokens_every=0"], "all, tokens in every step": ["record.tokens_every=1"]}
TIMES = ["time/update_s", "time/step_s"]


def seconds(args, settings, out):
    """Trains, and returns the times of its steps, without the first and the last one, and its metrics."""
    settings = [f"steps={args.steps}", "eval.before_and_after=false", *settings, *args.set]
    command = [args.binary, "train", args.config, "--out", out]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (Path(out) / "timing.jsonl").open()]
    rows = [row for row in rows if TIMES[0] in row][1:-1]
    return rows, (Path(out) / "metrics.jsonl").read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--binary", default="maverl")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    found = {kind: [] for kind in KINDS}
    metrics = set()
    for round_ in range(args.rounds):
        kinds = list(KINDS)
        for kind in kinds if round_ % 2 == 0 else reversed(kinds):
            with tempfile.TemporaryDirectory() as home:
                rows, text = seconds(args, KINDS[kind], f"{home}/run")
            found[kind] += rows
            metrics.add(text)
    assert len(metrics) == 1, "the metrics depend on what is recorded"
    for name in TIMES:
        times = {kind: [row[name] for row in rows] for kind, rows in found.items()}
        for kind, of in times.items():
            print(f"{name}, record: {kind}: median {statistics.median(of):.4f} s of {len(of)} steps")
        for less, more in [("all but tokens", "all, tokens in every step"), ("nothing", "all, tokens in every step")]:
            # The same step of the same round.
            ratios = [after / before for before, after in zip(times[less], times[more])]
            low, _, high = statistics.quantiles(ratios, n=4)
            print(f"{name}, {more} against {less}: median {statistics.median(ratios) - 1:+.2%}, quartiles {low - 1:+.2%} to {high - 1:+.2%}")


if __name__ == "__main__":
    main()
