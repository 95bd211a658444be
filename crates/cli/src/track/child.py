"""Sends rows of a run by the package of a tracker. `maverl track` runs it as `python -c`.

The first line of the standard input describes the run, each other line is a row. After a row is logged, its name is written
to the standard output. The end of the standard input ends the run, and the process ends when the package has written all.
"""

import importlib
import inspect
import json
import os
import sys

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what the package prints is no answer
run = json.loads(sys.stdin.readline())
package = importlib.import_module(run["to"])


def wandb_table(texts):
    return package.Table(columns=["episode"], data=[[one] for one in texts])


def trackio_table(texts):
    return package.Table(dataframe=__import__("pandas").DataFrame({"episode": texts}))


def begin():
    common = {"project": run["project"], "name": run["name"], "group": run["group"] or None, "config": run["config"]}
    if run["to"] == "wandb":
        os.environ.setdefault("WANDB_DIR", run["folder"])
        # Nothing about the machine is sent but what the run itself has.
        private = dict(
            x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True, disable_git=True,
            disable_job_creation=True, console="off", silent=True, save_code=False, x_save_requirements=False,
        )
        return package.init(id=run["id"], resume="allow", settings=package.Settings(**private), **common)
    if run["to"] == "swanlab":
        os.environ.setdefault("SWANLAB_LOG_DIR", os.path.join(run["folder"], "swanlog"))
        mode = {"mode": os.environ["SWANLAB_MODE"]} if "SWANLAB_MODE" in os.environ else {}
        private = dict.fromkeys(["hardware", "runtime", "requirements", "git", "monitor"], False)
        settings = package.Settings(probe=private)
        return package.init(id=run["id"][:21], resume="allow", settings=settings, **mode, **common)
    # Its runs are known by their names: two runs of one name would become one.
    common["name"] = run["id"] if run["joins"] else f"{run['name']}-{run['id'][:8]}"
    known = inspect.signature(package.init).parameters
    private = {name: False for name in ("auto_log_gpu", "auto_log_cpu") if name in known}
    return package.init(resume="must" if run["joins"] else "allow", **private, **common)


def values(row):
    found = dict(row["metrics"])
    if run["to"] == "wandb":
        found["_timestamp"] = row["time_ms"] / 1000
    texts = row["episodes"]
    if texts:
        table = {"wandb": wandb_table, "trackio": trackio_table}.get(run["to"])
        found["episodes"] = table(texts) if table else [package.Text(one) for one in texts]
    return found


def write_queue():
    """Writes the rows that trackio keeps for its local files. W&B and SwanLab have no such call."""
    if getattr(logger, "_is_local", False) and hasattr(logger, "_flush_queues_inline"):
        with logger._client_lock:
            logger._flush_queues_inline()


def page():
    """Returns the address of the run's page; empty without one, as offline."""
    try:
        return getattr(logger, "url", None) or ""
    except Exception:  # SwanLab's property fails in every mode but online
        return ""


logger = begin()
print(f"ready {page()}".rstrip(), file=answers)
log = getattr(logger, "log", None) or package.log
for line in sys.stdin:
    row = json.loads(line)
    log(values(row), step=row["step"])
    write_queue()
    print(row["id"], file=answers)
finish = getattr(logger, "finish", None) or package.finish
finish()
print("finished", file=answers)
