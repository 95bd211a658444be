"""Trains teams of language-model agents with reinforcement learning.

The work is done by the program ``maverl``, which this package installs. It runs as a process of its own, and a run is a directory:
this package starts the program, follows what it writes, and reads it.

    run = maverl.train("run.toml", {"steps": 20}, out="runs/a")
    for row in run.follow():
        print(row["step"], row.get("rollout/solved"))
"""

from . import worker
from ._error import Error
from ._run import Run, train
from ._server import Server, serve
from ._version import __version__

__all__ = ["Error", "Run", "Server", "__version__", "serve", "train", "worker"]
