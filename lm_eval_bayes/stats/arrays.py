"""Array types, blocks of arrays, and the checks of arrays and of what stands beside their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.validation import MOST_TRIALS, check_sequence
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

#: The number of floats that loops work on at a time, 16 MB.
BLOCK = 2_000_000


def read_only(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Copy `values` into a read-only array."""
    array = np.array(values, dtype=dtype, order="C", copy=True)
    array.setflags(write=False)
    return array


def protect(record: DataclassInstance) -> None:
    """Put read-only views in place of all arrays of a frozen dataclass.

    Unlike `read_only` it does not copy: it is for arrays made by this package.
    """
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            view = value.view()
            view.setflags(write=False)
            object.__setattr__(record, field.name, view)


def blocks(size: int, per_item: int, most: int = BLOCK) -> Iterator[slice]:
    """Cut `size` items of `per_item` numbers each into slices of at most `most` numbers.

    Examples
    --------
    >>> list(blocks(5, per_item=10, most=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, most // max(per_item, 1))
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def numeric(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a bool, integer or real array; anything else is refused."""
    rule = "be a rectangular array of numbers"
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInputError.of(name, "type", f"{rule} without masked entries", "a masked array")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError.of(name, "shape", rule, str(error)) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError.of(name, "type", rule, f"dtype {array.dtype}")
    return array


def _first_bad(array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], unit: str) -> str:
    """Say where the first bad entry stands and what it is."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    return f"{array[row, column].item()!r} (question {row}, {unit} {column})"


def _check_whole(name: str, array: npt.NDArray[Any], what: str, unit: str) -> IntArray:
    """Refuse NaN, infinite, fractional and negative entries of a 2-D array."""
    most = 2.0**53 if array.dtype.kind == "f" else np.iinfo(np.int64).max
    bad = ~((array >= 0) & (array <= most) & (np.floor(array) == array))
    if bad.any():
        raise InvalidInputError.of(name, "range", f"hold {what}", _first_bad(array, bad, unit))
    return array.astype(np.int64)


def check_matrix(
    name: str, values: npt.ArrayLike, n_categories: int, guessed: bool, allow_no_trials: bool
) -> IntArray:
    """Return R or R0 as an (M, N) array of categories."""
    array = numeric(name, values)
    if array.ndim != 2:
        rule = "be 2-D, one row per question and one column per trial"
        raise InvalidInputError.of(name, "shape", rule, f"shape {array.shape}")
    if array.shape[0] == 0 or (array.shape[1] == 0 and not allow_no_trials):
        rule = "not be empty (M >= 1 questions, N >= 1 trials)"
        raise InvalidInputError.of(name, "empty", rule, f"shape {array.shape}")
    if array.dtype.kind == "b" and n_categories > 2:
        rule = f"hold the categories 0..{n_categories - 1}, not booleans, with these weights"
        raise InvalidInputError.of(name, "type", rule, "dtype bool")
    top = n_categories - 1
    matrix = _check_whole(name, array, f"whole categories in 0..{top}", "trial")
    bad = matrix > top
    if bad.any():
        rule = f"hold categories in 0..{top}, one for each of the {n_categories} weights"
        if guessed:
            rule = "hold only 0 and 1 when `weights` is left out; give `weights`, one per category"
        raise InvalidInputError.of(name, "range", rule, _first_bad(matrix, bad, "trial"))
    return matrix


def check_counts(name: str, values: npt.ArrayLike, n_categories: int) -> IntArray:
    """Return an (M, C+1) array of counts."""
    array = numeric(name, values)
    if array.ndim != 2 or array.shape[0] == 0:
        rule = "be 2-D with at least one question, (M, C+1)"
        raise InvalidInputError.of(name, "shape", rule, f"shape {array.shape}")
    if array.dtype.kind == "b":
        raise InvalidInputError.of(name, "type", "hold counts, not booleans", "dtype bool")
    if array.shape[1] != n_categories:
        rule = f"have one column for each of the {n_categories} weights"
        raise InvalidInputError.of(name, "shape", rule, f"{array.shape[1]} columns")
    counts = _check_whole(name, array, "whole counts of at least 0", "category")
    most = counts.sum(axis=1, dtype=np.float64).max()
    if most > MOST_TRIALS:
        rule = f"hold at most {MOST_TRIALS:g} trials per question"
        raise InvalidInputError.of(name, "range", rule, f"{most:g}")
    return counts


def check_weights(values: npt.ArrayLike) -> FloatArray:
    """Return the rubric weights as finite floats, at least two of them."""
    array = numeric("weights", values)
    if array.ndim != 1 or array.size < 2:
        rule = "be 1-D with at least two entries, one per category"
        raise InvalidInputError.of("weights", "shape", rule, f"shape {array.shape}")
    if array.dtype.kind == "b":
        raise InvalidInputError.of("weights", "type", "be numbers, not booleans", "dtype bool")
    weights = array.astype(np.float64)
    if not np.isfinite(weights).all():
        raise InvalidInputError.of("weights", "range", "be finite", weights.tolist())
    if np.abs(weights).max() > 1e150:
        # beyond this the squares that a variance needs leave the range of a float
        raise InvalidInputError.of("weights", "range", "lie within ±1e150", weights.tolist())
    return weights


def check_ids(values: object, n_questions: int) -> tuple[Hashable, ...] | None:
    """Return M distinct ids, or None."""
    if values is None:
        return None
    ids = _check_labels("question_ids", values, n_questions, "question")
    if len(set(ids)) < len(ids):
        repeated = Counter(ids).most_common(1)[0][0]
        got = f"{repeated!r} again (question {ids.index(repeated, ids.index(repeated) + 1)})"
        raise InvalidInputError.of("question_ids", "duplicate", "be distinct", got)
    return ids


def _check_labels(name: str, values: object, size: int, of_what: str) -> tuple[Hashable, ...]:
    """Return the hashable entries of a sequence of this size."""
    rule = f"have one entry per {of_what} ({size})"
    labels = tuple(check_sequence(name, values, rule))
    if len(labels) != size:
        raise InvalidInputError.of(name, "shape", rule, f"{len(labels)} entries")
    try:
        hash(labels)
    except TypeError:
        raise InvalidInputError.of(name, "type", "hold hashable entries", values) from None
    return labels


def check_clusters(values: object, size: int, of_what: str = "question") -> tuple[Hashable, ...]:
    """Return the cluster of each of M questions, none of them None or NaN."""
    labels = _check_labels("clusters", values, size, of_what)
    for i, label in enumerate(labels):
        if label is None or label != label:
            rule = f"name the cluster of every {of_what}"
            raise InvalidInputError.of("clusters", "missing", rule, f"{label} for number {i}")
    return labels


def cluster_index(
    clusters: Sequence[Hashable] | npt.NDArray[np.generic], size: int, of_what: str
) -> IntArray:
    """Number the clusters in the order of their first entries.

    Raises
    ------
    InvalidInputError
        If there is not one hashable entry for each of the `size` things, or one is None or NaN.

    Examples
    --------
    >>> cluster_index(["b", "a", "b"], 3, "score").tolist()
    [0, 1, 0]
    """
    labels = check_clusters(clusters, size, of_what)
    number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([number[label] for label in labels], dtype=np.int64)
