"""Reads data sets of a hub with the package `datasets`: every configuration and split, as JSON.

    HF_ENDPOINT=http://127.0.0.1:8000 HF_HOME=cache python read_hub.py ORG/NAME ..
"""

import json
import sys

import datasets

datasets.disable_progress_bars()
read = {}
for name in sys.argv[1:]:
    configs = datasets.get_dataset_config_names(name)
    sets = {config: datasets.load_dataset(name, config) for config in configs}
    read[name] = {config: {split: list(rows) for split, rows in splits.items()} for config, splits in sets.items()}
print(json.dumps({"version": datasets.__version__, "rows": read}))
