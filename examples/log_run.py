"""Logs a run directory to Weights & Biases or trackio.

    python examples/log_run.py runs/first            # wandb
    python examples/log_run.py runs/first trackio
"""

import importlib
import json
import sys
import tomllib
from pathlib import Path

path = Path(sys.argv[1])
tracker = importlib.import_module(sys.argv[2] if len(sys.argv) > 2 else "wandb")

config = tomllib.loads((path / "resolved.toml").read_text())
tracker.init(project="maverl", name=path.name, config=config)
timing = {}
for row in map(json.loads, (path / "timing.jsonl").open()):
    timing.setdefault(row.pop("step"), {}).update(row)
for row in map(json.loads, (path / "metrics.jsonl").open()):
    step = row.pop("step")
    tracker.log({**row, **timing.get(step, {})}, step=step)
tracker.finish()
