"""Records as plain JSON types, by one generic function."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

#: ``field(metadata=NOT_IN_JSON)`` leaves a field of a record out of its JSON.
NOT_IN_JSON: Mapping[str, bool] = {"json": False}


def json_name(name: str) -> Mapping[str, str]:
    """Return the metadata of a field that has another name in JSON: ``field(metadata=...)``."""
    return {"json": name}


class Record:
    """Base of dataclasses whose :meth:`to_dict` is made from their fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON types, see :func:`to_plain`."""
        return _fields_to_plain(self)


def _fields_to_plain(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass but those with ``metadata=NOT_IN_JSON``."""
    return {key: to_plain(getattr(record, f)) for f, key in _json_fields(record.__class__).items()}


@functools.cache
def _json_fields(record_type: Any) -> dict[str, str]:
    """Return the keys in JSON by the names of the fields."""
    keys = {f.name: f.metadata.get("json", f.name) for f in fields(record_type)}
    return {name: key for name, key in keys.items() if key is not False}


def to_plain(value: Any) -> Any:
    """Return a value as dicts, lists, strings, numbers, booleans and None.

    Parameters
    ----------
    value : object
        A :class:`Record`, another dataclass, a mapping, a sequence, a set, a numpy array or
        scalar, an Enum, a path, or a JSON value. Any other object becomes its text.

    Returns
    -------
    object
        What :func:`json.dumps` takes with ``allow_nan=False``: NaN and infinities become None.

    Examples
    --------
    >>> to_plain({"low": float("-inf"), "ids": ("a", 1)})
    {'low': None, 'ids': ['a', 1]}
    """
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Enum):
        return to_plain(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        return value.to_dict() if hasattr(value, "to_dict") else _fields_to_plain(value)
    if hasattr(value, "tolist"):  # numpy, which this module does without
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((to_plain(item) for item in value), key=repr)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
