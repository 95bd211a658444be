"""Reads what a tracker has of a run, by the tracker's own files and readers, and compares it with the run.

    python read_tracker.py wandb|trackio|swanlab RUN
    python read_tracker.py mlflow RUN URL
    python read_tracker.py wandb RUN ROWS    (what `wandb sync` has sent to tracker_server.py)
"""

import json
import re
import sys
from pathlib import Path


def log_records(data):
    """Records of W&B's file: a log of LevelDB, in blocks of 32 KiB, after seven bytes of its own."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if at % 32768 > 32768 - 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def of_mlflow(run, url):
    from mlflow import MlflowClient

    client = MlflowClient(url)
    [experiment] = client.search_experiments(filter_string="name = 'maverl'")
    [tracked] = client.search_runs([experiment.experiment_id])
    assert tracked.info.status == "FINISHED", tracked.info
    texts = [file.path for file in client.list_artifacts(tracked.info.run_id, "episodes")]
    assert len(texts) == len(written(run)), texts
    names = {re.sub("[#@]", ".", name): name for row in written(run).values() for name in row}
    for name in tracked.data.metrics:
        for point in client.get_metric_history(tracked.info.run_id, name) if name in names else ():
            yield point.step, {names[name]: point.value}


def of_wandb(run, sent=None):
    if sent is not None:
        for line in Path(sent).read_text().splitlines():
            row = json.loads(line)
            yield row.pop("_step"), row
        return
    from wandb.proto import wandb_internal_pb2 as proto

    for path in sorted((run / "track").glob("wandb/offline-run-*/run-*.wandb")):
        for data in log_records(path.read_bytes()):
            record = proto.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                yield row.pop("_step"), row


def of_trackio(run):
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    runs = list(trackio.Api().runs("maverl"))
    assert len(runs) == 1, [one.name for one in runs]
    for row in SQLiteStorage.get_logs("maverl", runs[0].name):
        yield row.pop("step"), row


def of_swanlab(run):
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    for path in sorted((run / "track").glob("swanlog/run-*/run-*.swanlab")):
        reader = DataStoreReader()
        reader.open(path)
        for data in reader:
            record = Record.FromString(data)
            if record.HasField("scalar"):
                yield record.scalar.step, {record.scalar.key: record.scalar.value.number}


def written(run):
    rows = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row.pop("step"), {}).update(row)
    return rows


package, run = sys.argv[1], Path(sys.argv[2])
rows = written(run)
got = {}
readers = {"mlflow": of_mlflow, "wandb": of_wandb, "trackio": of_trackio, "swanlab": of_swanlab}
for step, row in readers[package](run, *sys.argv[3:]):
    values = {name: value for name, value in row.items() if name in rows[step]}
    twice = set(values) & set(got.get(step, {}))
    assert not twice, (step, twice)
    got.setdefault(step, {}).update(values)
assert got == rows, {step: set(rows[step].items()) ^ set(got.get(step, {}).items()) for step in rows}
print(__import__(package).__version__, sum(map(len, rows.values())), "values")
