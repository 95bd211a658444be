"""Files of a run that grow while it is trained."""

import json
from pathlib import Path
from typing import IO, Iterator, Optional

from ._types import MetricRow

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class MetricsReader:
    """A reader of `metrics.jsonl` that remembers how far it has read.

    When a run is resumed, the file is cut back to the checkpoint, and the same rows are written again; they are not read twice.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / "metrics.jsonl"
        self._offset = 0
        self._count = 0
        """Number of rows that were read."""
        self._skipped = 0
        """Number of them that are before the offset no more."""

    def new_rows(self) -> Iterator[MetricRow]:
        """Yields the rows that were written since. The last line may be incomplete; it is left for the next time."""
        file = _open_existing(self._path)
        if file is None:
            return
        with file:
            self._find_place(file)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if self._skipped:
                    self._skipped -= 1
                else:
                    self._count += 1
                    yield json.loads(line)

    def _find_place(self, file: IO[bytes]) -> None:
        """Goes to the first row that was not read; to the start of the file, if it was cut before that row."""
        before = max(self._offset - 1, 0)
        file.seek(before)
        if self._offset and file.read(1) != b"\n":
            file.seek(0)
            self._offset, self._skipped = 0, self._count


def _open_existing(path: Path) -> Optional[IO[bytes]]:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def is_written(run: Path) -> bool:
    """Returns true if a process writes the run: it holds a lock on `metrics.jsonl`."""
    file = _open_existing(run / "metrics.jsonl")
    if file is None or fcntl is None:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
