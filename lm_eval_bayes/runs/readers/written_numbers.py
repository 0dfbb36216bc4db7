"""Numbers of a column that may be written as texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

#: Texts that stand for no number.
MISSING = ("", "na", "n/a", "nan", "none", "null")


def is_missing(value: object) -> bool:
    """Return whether a cell is empty, NaN, or a text that stands for no number.

    Examples
    --------
    >>> [is_missing(cell) for cell in (None, " n/a", float("nan"), 0, "0")]
    [True, True, True, False, False]
    """
    is_empty = isinstance(value, str) and value.strip().lower() in MISSING
    return is_empty or value is None or value != value


def measurements(values: Sequence[Any]) -> tuple[list[float | None], int | None]:
    """Return measurements, None for a missing one; and the index of the first value that is none.

    A measurement is a finite number of at least 0, or its text; a time may be a duration.

    Examples
    --------
    >>> measurements([12, "7.5", "", None]), measurements([1, "12k", -3])[1]
    (([12.0, 7.5, None, None], None), 1)
    """
    measured: list[float | None] = []
    for index, value in enumerate(values):
        try:
            seconds = value.total_seconds() if isinstance(value, timedelta) else value
            number = None if is_missing(value) else float(seconds)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if number is not None and not 0 <= number < float("inf"):
            return [], index
        measured.append(number)
    return measured, None
