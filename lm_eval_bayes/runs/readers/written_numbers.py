"""Numbers of a column that may be written as texts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lm_eval_bayes.runs.log_fields import number

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


def measurement(value: Any) -> float | None:
    """Return a finite number of at least 0, or its text, or a duration; None for anything else.

    Examples
    --------
    >>> [measurement(value) for value in (12, "7.5", "", None, "12k", -3)]
    [12.0, 7.5, None, None, None, None]
    """
    real = number(value.total_seconds() if isinstance(value, timedelta) else value)
    return None if real is None or real < 0 else real
