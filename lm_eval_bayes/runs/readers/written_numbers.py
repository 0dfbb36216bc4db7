"""Numbers of a column that are written as percentages, or with a decimal comma."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    values: list[Any], name: str, file: str, argument: str, *, is_bounded: bool = False
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
    >>> plain_numbers(["85%", "", "7.5 %"], "score", "a.csv", "RUN")
    ([0.85, None, 0.075], 'score is written in percent: 85% is read as 0.85')
    >>> plain_numbers(["0,85", "1"], "score", "a.csv", "RUN")
    ([0.85, 1.0], 'score is written with a decimal comma: 0,85 is read as 0.85')
    >>> plain_numbers(["pass", "fail"], "score", "a.csv", "RUN")
    (['pass', 'fail'], '')
    """
    if str not in set(map(type, values)):
        return values, ""
    distinct = {value for value in set(map(_key, values)) if isinstance(value, str)}
    if any("%" in text for text in distinct):
        return _percentages(values, name, file, argument, is_bounded)
    if any(_COMMA.fullmatch(text.strip()) for text in distinct):
        return _decimal_commas(values, name, file, argument)
    return values, ""


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
            raise InvalidInputError.of(argument, rule, f"{text!r} in row {row}, beside percentages")
        first = first or text
        numbers.append(float(match[1].replace(",", ".")) / 100.0)
    if is_bounded:
        rule = f"have numbers without % in the column {name} of {file} where bounds are given"
        raise InvalidInputError.of(argument, rule, repr(first))
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
            raise InvalidInputError.of(argument, rule, got)
        number = float(text.replace(",", "."))
        if _THOUSANDS.fullmatch(text):
            thousands = text.replace(",", "")
            got = f"{text!r} in row {row}, which may be {number:g} or {thousands}"
            raise InvalidInputError.of(argument, rule, got)
        first = first or (text if has_comma else "")
        numbers.append(number)
    example = float(first.replace(",", "."))
    return numbers, f"{name} is written with a decimal comma: {first} is read as {example:g}"
