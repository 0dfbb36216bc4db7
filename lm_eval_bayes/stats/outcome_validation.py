"""What an outcome matrix, counts, weights and question ids must look like."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import MOST_TRIALS, FloatArray, IntArray


def numeric(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a bool, integer or real array; anything else is refused."""
    rule = "be a rectangular array of numbers"
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInputError.of(name, f"{rule} without masked entries", "a masked array")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError.of(name, rule, str(error)) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError.of(name, rule, f"dtype {array.dtype}")
    return array


def _first(array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], unit: str) -> str:
    """Say where the first bad entry stands and what it is."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    return f"{array[row, column].item()!r} (question {row}, {unit} {column})"


def _check_whole(name: str, array: npt.NDArray[Any], what: str, unit: str) -> IntArray:
    """Refuse NaN, infinite, fractional and negative entries of a 2-D array."""
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array)
        bad |= np.where(bad, 0, array) != np.trunc(np.where(bad, 0, array))
        bad |= np.abs(array) > 2.0**53
        if bad.any():
            raise InvalidInputError.of(name, f"hold {what}", _first(array, bad, unit))
    bad = array < 0
    if array.dtype.kind == "u":
        bad = array > np.iinfo(np.int64).max
    if bad.any():
        raise InvalidInputError.of(name, f"hold {what}", _first(array, bad, unit))
    return array.astype(np.int64)


def check_matrix(
    name: str, values: npt.ArrayLike, n_categories: int, guessed: bool, allow_no_trials: bool
) -> IntArray:
    """Return R or R0 as an (M, N) array of categories."""
    array = numeric(name, values)
    if array.ndim != 2:
        rule = "be 2-D, one row a question and one column a trial"
        raise InvalidInputError.of(name, rule, f"shape {array.shape}")
    if array.shape[0] == 0 or (array.shape[1] == 0 and not allow_no_trials):
        rule = "not be empty (M >= 1 questions, N >= 1 trials)"
        raise InvalidInputError.of(name, rule, f"shape {array.shape}")
    if array.dtype.kind == "b" and n_categories > 2:
        rule = f"hold the categories 0..{n_categories - 1}, not booleans, with these weights"
        raise InvalidInputError.of(name, rule, "dtype bool")
    top = n_categories - 1
    matrix = _check_whole(name, array, f"whole categories in 0..{top}", "trial")
    bad = matrix > top
    if bad.any():
        rule = f"hold categories in 0..{top}, one for each of the {n_categories} weights"
        if guessed:
            rule = "hold only 0 and 1 when `weights` is left out; give `weights`, one a category"
        raise InvalidInputError.of(name, rule, _first(matrix, bad, "trial"))
    return matrix


def check_counts(name: str, values: npt.ArrayLike, n_categories: int) -> IntArray:
    """Return an (M, C+1) array of counts."""
    array = numeric(name, values)
    if array.ndim != 2 or array.shape[0] == 0:
        rule = "be 2-D with at least one question, (M, C+1)"
        raise InvalidInputError.of(name, rule, f"shape {array.shape}")
    if array.dtype.kind == "b":
        raise InvalidInputError.of(name, "hold counts, not booleans", "dtype bool")
    if array.shape[1] != n_categories:
        rule = f"have one column for each of the {n_categories} weights"
        raise InvalidInputError.of(name, rule, f"{array.shape[1]} columns")
    counts = _check_whole(name, array, "whole counts of at least 0", "category")
    most = counts.sum(axis=1, dtype=np.float64).max()
    if most > MOST_TRIALS:
        rule = f"hold at most {MOST_TRIALS:g} trials a question"
        raise InvalidInputError.of(name, rule, f"{most:g}")
    return counts


def check_weights(values: npt.ArrayLike) -> FloatArray:
    """Return the rubric weights as finite floats, at least two of them."""
    array = numeric("weights", values)
    if array.ndim != 1 or array.size < 2:
        rule = "be 1-D with at least two entries, one a category"
        raise InvalidInputError.of("weights", rule, f"shape {array.shape}")
    if array.dtype.kind == "b":
        raise InvalidInputError.of("weights", "be numbers, not booleans", "dtype bool")
    weights = array.astype(np.float64)
    if not np.isfinite(weights).all():
        raise InvalidInputError.of("weights", "be finite", weights.tolist())
    if np.abs(weights).max() > 1e150:
        # beyond this the squares that a variance needs leave the range of a float
        raise InvalidInputError.of("weights", "lie within ±1e150", weights.tolist())
    return weights


def as_ids(values: object) -> tuple[Hashable, ...]:
    """Return the ids as a tuple; a bare string is one id, not many, and a set has no order."""
    if isinstance(values, (str, bytes, set, frozenset)):
        raise InvalidInputError.of("question_ids", "be a sequence of ids, one a question", values)
    try:
        return tuple(values)  # type: ignore[arg-type]
    except TypeError:
        rule = "be a sequence of ids, one a question"
        raise InvalidInputError.of("question_ids", rule, values) from None


def check_ids(values: object, n_questions: int) -> tuple[Hashable, ...] | None:
    """Return M distinct ids, or None."""
    if values is None:
        return None
    ids = as_ids(values)
    if len(ids) != n_questions:
        rule = f"have one entry per question ({n_questions})"
        raise InvalidInputError.of("question_ids", rule, f"{len(ids)} entries")
    seen: set[Hashable] = set()
    for position, name in enumerate(ids):
        try:
            repeated = name in seen
            seen.add(name)
        except TypeError:
            raise InvalidInputError.of("question_ids", "be hashable", name) from None
        if repeated:
            got = f"{name!r} again (question {position})"
            raise InvalidInputError.of("question_ids", "be distinct", got)
    return ids
