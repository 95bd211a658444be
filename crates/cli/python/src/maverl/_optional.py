"""Packages that a user may have."""

import importlib
from typing import Any

from ._error import Error


def import_optional(name: str, otherwise: str) -> Any:
    """Imports a package. Raises `Error` if it is not installed, with what works without it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise Error(f"there is no package `{name}` here; run `pip install {name}` ({otherwise})") from None
