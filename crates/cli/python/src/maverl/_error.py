"""The error of this package."""

from typing import Optional


class Error(Exception):
    """A failure of the program, with the message that it printed, or a wrong call of this package."""

    code: Optional[int]
    """Exit code of the program; negative if a signal ended it (``-9``: it was killed), ``None`` if it was not started."""

    def __init__(self, message: str, code: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code
