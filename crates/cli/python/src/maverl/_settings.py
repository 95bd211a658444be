"""Keys of a configuration as arguments of the program."""

import json
import math
import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Tuple, cast

from ._error import Error

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def set_arguments(settings: Mapping[str, Any]) -> List[str]:
    """Returns ``--set KEY=VALUE`` for each key. A key may have dots; a mapping as value sets each of its keys."""
    arguments: List[str] = []
    for key, value in _flattened(settings, ""):
        arguments += ["--set", f"{key}={toml_value(key, value)}"]
    return arguments


def _flattened(settings: Mapping[str, Any], prefix: str) -> Iterator[Tuple[str, Any]]:
    """Returns the dotted keys of nested mappings. Those of the outermost one are given as they are."""
    for given, value in settings.items():
        key = _key(given, prefix)
        name = prefix + (_quoted_key(key) if prefix else key)
        table = _table(value)
        if table:
            yield from _flattened(table, name + ".")
        else:
            yield name, value


def _table(value: Any) -> Dict[str, Any]:
    """Returns the keys of a mapping; none of any other value."""
    return dict(cast(Any, value)) if isinstance(value, Mapping) else {}


def _key(key: Any, within: str) -> str:
    """Returns a key as text. Seats are numbered, so a whole number is one, too."""
    if isinstance(key, str):
        return key
    if hasattr(key, "__index__") and not isinstance(key, bool):
        return str(key.__index__())
    place = f" in `{within.rstrip('.')}`" if within else ""
    raise Error(f"the key {key!r}{place} is no text; write the name of a key")


def _quoted_key(key: str) -> str:
    return key if _BARE.match(key) else _text(key)


def toml_value(key: str, value: Any) -> str:
    """Returns a value as TOML. Raises `Error` for one that TOML does not have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return _text(os.fspath(value))
    if isinstance(value, float):
        return _float(value)
    if hasattr(value, "tolist"):
        # A number or an array of NumPy.
        return toml_value(key, value.tolist())
    if hasattr(value, "__index__"):
        return str(value.__index__())
    if isinstance(value, (list, tuple)):
        items: List[Any] = list(cast(Any, value))
        return "[" + ", ".join(toml_value(key, item) for item in items) + "]"
    if isinstance(value, Mapping):
        pairs = (f"{_quoted_key(_key(name, key))} = {toml_value(key, item)}" for name, item in _table(value).items())
        return "{" + ", ".join(pairs) + "}"
    raise Error(f"`{key}` is {value!r}; write a text, number, truth value, list or dict, or leave the key out for its default")


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _text(text: str) -> str:
    """Returns a basic string of TOML: a string of JSON, in which one more character is escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
