"""Runs: directories that the program writes while it trains."""

import json
import operator
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union, cast, overload

from ._binary import run_binary, stream_json
from ._error import Error
from ._follow import MetricsReader, is_written
from ._optional import import_optional
from ._process import Process
from ._settings import set_arguments
from ._types import Episode, MetricRow

if TYPE_CHECKING:
    import datasets  # pyright: ignore[reportMissingTypeStubs]
    import pandas
    import polars

StrPath = Union[str, "os.PathLike[str]"]

_MANIFEST = "manifest.json"
_DIRECTORY = "run directory: "
_STAGES = "stage 1 of "


class Run:
    """A run directory: of a run of this process, of another one, or of one that has ended.

    `path` is its absolute path.
    """

    path: Path

    def __init__(self, path: StrPath, process: Optional[Process] = None) -> None:
        """Opens a run directory. `process` is what `maverl.train` has started for it."""
        self.path = Path(os.path.abspath(path))
        self._process = process
        if not (self.path / _MANIFEST).is_file():
            raise Error(f"`{path}` is not a run directory: it has no `{_MANIFEST}`")

    def __repr__(self) -> str:
        return f"maverl.Run({str(self.path)!r})"

    @property
    def is_running(self) -> bool:
        """True while a process trains the run: one that this process has started, or another one."""
        if self._process is not None and self._process.code is None:
            return True
        return is_written(self.path)

    @property
    def summary(self) -> Optional[Dict[str, Any]]:
        """Results of the run, as `summary.json` has them; ``None`` before a first end."""
        try:
            return _read_object(self.path / "summary.json")
        except FileNotFoundError:
            return None

    def resume(
        self, settings: Optional[Mapping[str, Any]] = None, *, ranks_per_node: int = 1, quiet: bool = False
    ) -> "Run":
        """Goes on with the run from its last checkpoint, or adds steps to a complete one (``{"steps": 200}``).

        Returns the run. Raises `Error` if a process trains it already, or if one of `settings` may not change.
        """
        if self._process is not None and self._process.code is None:
            raise Error(f"{self!r} is running; `stop` it first")
        args = ["train", "--resume", str(self.path), *set_arguments(settings or {}), *_ranks(ranks_per_node)]
        # A complete run without further steps prints no directory, and ends.
        self._process, _ = _start(args, quiet)
        return self

    def follow(self, interval: float = 0.25) -> Iterator[MetricRow]:
        """Yields each row of metrics, those that exist first, until the run ends.

        Files are looked at every `interval` seconds. Raises `Error` if a run of this process fails. The run does not wait for the
        loop, and leaving the loop does not stop it.
        """
        reader = MetricsReader(self.path)
        while True:
            running = self.is_running
            # What was written before the end is read after it.
            yield from reader.new_rows()
            if not running:
                break
            time.sleep(interval)
        if self._process is not None:
            self.wait()

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits until the run ends: it is complete, or was stopped. Raises `Error` with its message if it fails.

        A `timeout` in seconds raises `TimeoutError`. Returns the run.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        late = f"{self!r} is still running after {timeout} s"
        if self._process is not None:
            if not self._process.wait(timeout):
                raise TimeoutError(late)
            error = self._process.error()
            if error is not None:
                raise error
        while self.is_running:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(late)
            time.sleep(0.25)
        return self

    def stop(self) -> "Run":
        """Stops a run of this process as Ctrl-C does: it finishes its step, and writes a checkpoint. Waits for the end.

        `resume` goes on with it. Ctrl-C while waiting ends it at once, with what its last checkpoint has. Returns the run.
        """
        if self._process is None:
            if self.is_running:
                raise Error(f"another process trains {self!r}; stop that one")
            return self
        self._process.stop_and_wait()
        return self.wait()

    @overload
    def metrics(self, frame: Literal['pandas'] = ...) -> "pandas.DataFrame": ...

    @overload
    def metrics(self, frame: Literal['polars']) -> "polars.DataFrame": ...

    @overload
    def metrics(self, frame: None) -> List[MetricRow]: ...

    def metrics(self, frame: Optional[str] = "pandas") -> Any:
        """Returns the metrics so far: a row per step, and one per evaluation before and after training.

        `frame` is the package that makes the table, ``"pandas"`` or ``"polars"``; ``None`` returns a list of dicts. A metric that
        a row does not have is missing there.
        """
        rows = list(MetricsReader(self.path).new_rows())
        if frame is None:
            return rows
        if frame not in ("pandas", "polars"):
            raise Error(f"`{frame}` makes no table of metrics; write 'pandas', 'polars' or None")
        module = import_optional(frame, "metrics(None) needs no package")
        if frame == "pandas":
            return module.DataFrame(rows)
        return module.DataFrame(rows, infer_schema_length=None)

    def episodes(self, step: Union[int, Sequence[int], None] = None) -> Iterator[Episode]:
        """Yields the recorded episodes of training, with turns, token ids, log-probs and rewards.

        `step` is a step, or the first and the last of several; without it, those of all steps come, in order. Of a step that is
        being played, these are the episodes that have ended. One episode is in memory at a time.
        """
        args = ["extract", str(self.path), "rollouts", "--out", "-"]
        if step is not None:
            args.append(f"--steps={_steps(step)}")
        return stream_json(args)  # type: ignore[return-value]

    def dataset(self, kind: str, *, out: Optional[StrPath] = None, **options: Any) -> "datasets.Dataset":
        """Returns rows for another training: `maverl collect --from RUN --as KIND` with these options, as a data set in memory.

        `kind` is ``"sft"``, ``"preference"``, ``"verifier"`` or ``"steps"``. `options` are those of the command, such as
        ``solved=True``, ``min_reward=0.5``, ``seat="search/verifier"``. With `out`, the files stay in that directory, with a card
        and their provenance.
        """
        if "test_share" in options:
            raise Error("`test_share` makes two data sets; write both with `maverl collect`, and load each")
        datasets = import_optional("datasets", "`maverl collect` writes files without it")
        with tempfile.TemporaryDirectory(prefix="maverl-") as scratch:
            folder = os.path.join(scratch, "rows") if out is None else os.fspath(out)
            args = ["collect", "--from", str(self.path), "--as", kind, "--format", "parquet", "--out", folder]
            run_binary(args + _options(options))
            file = os.path.join(folder, f"{kind}.parquet")
            return datasets.Dataset.from_parquet(file, cache_dir=os.path.join(scratch, "cache"), keep_in_memory=True)


def train(
    config: Optional[StrPath] = None,
    settings: Optional[Mapping[str, Any]] = None,
    *,
    out: Optional[StrPath] = None,
    quick: bool = False,
    ranks_per_node: int = 1,
    quiet: bool = False,
) -> Run:
    """Starts a run, and returns it as soon as its directory exists.

    `config` is a file, or a name such as ``"example:search_orchestra"``. `settings` are keys above those of the file:
    ``{"steps": 20, "algorithm.name": "grpo"}``. `out` is the run directory, new or empty; without it the run is
    ``runs/NAME-N``. `quick` runs two steps of a few tasks. `ranks_per_node` trains with so many processes. The program prints on
    standard error, unless `quiet`.

    The run ends with this process: a script that has come to its end waits for it, one that fails or is interrupted stops it
    in order, and so does the run itself if Python is killed. Raises `Error` with the printed problems of a configuration.
    """
    args = ["train", *([] if config is None else [os.fspath(config)]), *set_arguments(settings or {})]
    args += ["--quick"] if quick else []
    args += [] if out is None else ["--out", os.fspath(out)]
    process, directory = _start(args + _ranks(ranks_per_node), quiet)
    path = directory if out is None else out
    if path is None:
        raise Error("the program ended without a run directory", process.code)
    return Run(path, process)


def _start(args: Sequence[str], quiet: bool) -> Tuple[Process, Optional[str]]:
    """Starts a process that trains, and returns it with the run directory that it prints."""
    process = Process(args, quiet=quiet, is_awaited=True)
    try:
        line = process.wait_for_line(_DIRECTORY, _STAGES)
    except KeyboardInterrupt:
        process.stop_and_wait()
        raise
    if line is None:
        return process, None
    if line.startswith(_STAGES):
        process.stop_and_wait()
        raise Error("the configuration has stages; train each of them, or all with `maverl train`")
    return process, line[len(_DIRECTORY) :]


def _ranks(ranks_per_node: int) -> List[str]:
    return [] if ranks_per_node == 1 else [f"--ranks-per-node={ranks_per_node}"]


def _steps(step: Union[int, Sequence[int]]) -> str:
    if hasattr(step, "__index__"):
        return str(operator.index(cast(Any, step)))
    if not hasattr(step, "__len__") or len(cast(Any, step)) != 2:
        raise Error(f"`step` is {step!r}; write a step, or the first and the last: (1, 30)")
    first, last = cast(Any, step)
    return f"{first}..{last}"


def _options(options: Mapping[str, Any]) -> List[str]:
    """Returns options of a command: ``solved=True`` is ``--solved``, ``seat=["a", "b"]`` is ``--seat=a --seat=b``."""
    args: List[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        values: List[Any] = list(cast(Any, value)) if isinstance(value, (list, tuple)) else [value]
        for item in values:
            if item is True:
                args.append(option)
            elif item is not False and item is not None:
                args.append(f"{option}={item}")
    return args


def _read_object(path: Path) -> Dict[str, Any]:
    content: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
