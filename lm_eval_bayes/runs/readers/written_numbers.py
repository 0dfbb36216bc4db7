"""Numbers of a column that are written as percentages, with a decimal comma, or as texts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError

#: Texts that stand for no number.
MISSING = ("", "na", "n/a", "nan", "none", "null")

_PERCENT = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*%", re.ASCII)
_COMMA = re.compile(r"[+-]?\d*,\d+", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
#: 1,234 is 1234 in one country and 1.234 in another.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)


def plain_numbers(
    values: list[Any],
    name: str,
    file: str,
    argument: str,
    *,
    is_share: bool,
    is_bounded: bool = False,
) -> tuple[list[Any], str]:
    """Return the numbers of a column that is written as 85%, or as 0,85; and how it was read.

    Parameters
    ----------
    values : list
        The column. It is returned as it is where no text of it is so written.
    name : str
        The name of the column.
    file : str
        The file, in an error.
    argument : str
        The name of the argument in an error.
    is_share : bool
        Whether 85% may stand for 0.85, as of scores; percentages are else left as they are.
    is_bounded : bool
        Whether bounds of the scores were given. Percentages are then refused, as 85% may be .85
        or 85.

    Returns
    -------
    tuple of list and str
        The column, None for a missing number; and a note, "" where nothing was changed.

    Raises
    ------
    InvalidInputError
        If only some of the column are so written, or a number may be read in two ways.

    Examples
    --------
    >>> plain_numbers(["85%", "", "7.5 %"], "score", "a.csv", "RUN", is_share=True)
    ([0.85, None, 0.075], 'score is written in percent: 85% is read as 0.85')
    >>> plain_numbers(["0,85", "1"], "score", "a.csv", "RUN", is_share=True)
    ([0.85, 1.0], 'score is written with a decimal comma: 0,85 is read as 0.85')
    >>> plain_numbers(["pass", "fail"], "score", "a.csv", "RUN", is_share=True)
    (['pass', 'fail'], '')
    """
    if str not in set(map(type, values)):
        return values, ""
    distinct = {value for value in set(map(_key, values)) if isinstance(value, str)}
    if is_share and any("%" in text for text in distinct):
        return _percentages(values, name, file, argument, is_bounded)
    if any(_COMMA.fullmatch(text.strip()) for text in distinct):
        return _decimal_commas(values, name, file, argument)
    return values, ""


def measurements(values: Sequence[Any]) -> tuple[list[Any], int | None]:
    """Return measurements, None for a missing one; and the index of the first value that is none.

    A measurement is a finite number of at least 0, or its text; a time may be a duration.

    Examples
    --------
    >>> measurements([12, "7.5", "", None]), measurements([1, "12k", -3])[1]
    (([12.0, 7.5, None, None], None), 1)
    """
    if set(map(type, values)) <= {int, float, type(None)}:
        with suppress(OverflowError):
            numbers = np.array(values, dtype=np.float64)
            wrong = np.flatnonzero(np.isinf(numbers) | (numbers < 0))
            return list(values), int(wrong[0]) if wrong.size else None
    measured: list[float | None] = []
    for index, value in enumerate(values):
        if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
            measured.append(None)
            continue
        number = _measurement(value)
        if math.isinf(number) or number < 0:
            return [], index
        measured.append(number)
    return measured, None


def _measurement(value: Any) -> float:
    """Return a number, a text of one or a duration as a float; -1 for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (str, Real, Decimal)):
        return -1.0
    try:
        return float(value)
    except (ValueError, OverflowError):
        return -1.0


def _key(value: Any) -> Any:
    return value if isinstance(value, str) else None


def _percentages(
    values: Sequence[Any], name: str, file: str, argument: str, is_bounded: bool
) -> tuple[list[float | None], str]:
    rule = f"have one way of writing in the column {name} of {file}: all as 85%, or all as 0.85"
    numbers: list[float | None] = []
    first = ""
    for row, value in enumerate(values, 1):
        text = str(value).strip()
        if value is None or text.lower() in MISSING:
            numbers.append(None)
            continue
        match = _PERCENT.fullmatch(text) if isinstance(value, str) else None
        if match is None:
            raise InvalidInputError.of(
                argument, "format", rule, f"{text!r} in row {row}, beside percentages"
            )
        first = first or text
        numbers.append(float(match[1].replace(",", ".")) / 100.0)
    if is_bounded:
        rule = f"have numbers without % in the column {name} of {file} where bounds are given"
        raise InvalidInputError.of(argument, "format", rule, repr(first))
    example = next(number for number in numbers if number is not None)
    return numbers, f"{name} is written in percent: {first} is read as {example:g}"


def _decimal_commas(
    values: Sequence[Any], name: str, file: str, argument: str
) -> tuple[list[float | None], str]:
    rule = f"have numbers with a decimal point, such as 0.85, in the column {name} of {file}"
    numbers: list[float | None] = []
    first = ""
    for row, value in enumerate(values, 1):
        text = str(value).strip()
        if value is None or text.lower() in MISSING:
            numbers.append(None)
            continue
        has_comma = isinstance(value, str) and _COMMA.fullmatch(text) is not None
        if not has_comma and _WHOLE.fullmatch(text) is None:
            got = f"{text!r} in row {row}, beside numbers with a comma"
            raise InvalidInputError.of(argument, "format", rule, got)
        number = float(text.replace(",", "."))
        if _THOUSANDS.fullmatch(text):
            thousands = text.replace(",", "")
            got = f"{text!r} in row {row}, which may be {number:g} or {thousands}"
            raise InvalidInputError.of(argument, "format", rule, got)
        first = first or (text if has_comma else "")
        numbers.append(number)
    example = float(first.replace(",", "."))
    return numbers, f"{name} is written with a decimal comma: {first} is read as {example:g}"
