"""Numbers of a column that are written as percentages, with a decimal comma, or as texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

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
    distinct = {value for value in values if isinstance(value, str)}
    if is_share and any("%" in text for text in distinct):
        if is_bounded:
            rule = f"have numbers without % in the column {name} of {file} where bounds are given"
            first = next(text for text in values if "%" in str(text))
            raise InvalidInputError.of(argument, "format", rule, repr(first))
        rule = f"have one way of writing in the column {name} of {file}: all as 85%, or all as 0.85"
        return _converted(values, _percentage, f"{name} is written in percent", rule, argument)
    if any(_COMMA.fullmatch(text.strip()) for text in distinct):
        rule = f"have numbers with a decimal point, such as 0.85, in the column {name} of {file}"
        how = f"{name} is written with a decimal comma"
        return _converted(values, _decimal_comma, how, rule, argument)
    return values, ""


def _converted(
    values: Sequence[Any],
    number_of: Callable[[str], float | None],
    how: str,
    rule: str,
    argument: str,
) -> tuple[list[float | None], str]:
    """Return the numbers of texts, with a note that shows the first that is so written."""
    numbers: list[float | None] = []
    example = ""
    for row, value in enumerate(values, 1):
        text = str(value).strip()
        if value is None or text.lower() in MISSING:
            numbers.append(None)
            continue
        number = number_of(text)
        if number is None:
            got = f"{text!r} in row {row}, beside numbers of another way of writing"
            raise InvalidInputError.of(argument, "format", rule, got)
        numbers.append(number)
        if not example and _WHOLE.fullmatch(text) is None:
            example = f"{text} is read as {number:g}"
    return numbers, f"{how}: {example}"


def _percentage(text: str) -> float | None:
    match = _PERCENT.fullmatch(text)
    return None if match is None else float(match[1].replace(",", ".")) / 100.0


def _decimal_comma(text: str) -> float | None:
    """Return a number with a decimal comma, or without decimals; None for one of two meanings."""
    is_plain = _COMMA.fullmatch(text) is not None or _WHOLE.fullmatch(text) is not None
    return float(text.replace(",", ".")) if is_plain and not _THOUSANDS.fullmatch(text) else None


def measurements(values: Sequence[Any]) -> tuple[list[Any], int | None]:
    """Return measurements, None for a missing one; and the index of the first value that is none.

    A measurement is a finite number of at least 0, or its text; a time may be a duration.

    Examples
    --------
    >>> measurements([12, "7.5", "", None]), measurements([1, "12k", -3])[1]
    (([12.0, 7.5, None, None], None), 1)
    """
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
