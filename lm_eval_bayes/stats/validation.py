"""Input checks shared by all functions, and the array types."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Option = TypeVar("_Option", bound=str)

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

#: A probability threshold: a float is read as the ratio or the decimal it was typed as.
Tau: TypeAlias = float | Fraction | Decimal

#: Pseudo-counts that a named prior adds to every category.
NAMED_PRIORS = {"uniform": 1.0, "jeffreys": 0.5}

#: The largest number of trials of a question; more would lose digits.
MOST_TRIALS = 10**12
#: The largest k of a posterior: with it the moments take seconds and half a gigabyte.
MOST_K = 10**7
#: The largest number of draws, replicates or simulated models; with it the Monte-Carlo error of
#: a probability is below 0.0002.
MOST_DRAWS = 10**7
#: The largest number of floats in memory at a time, 1.6 GB.
MOST_HELD = 2 * 10**8
#: The number of floats that loops work on at a time, 16 MB.
BLOCK = 2_000_000
#: The upper limit of seeds.
_SEEDS = 2**128


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


def check_integer(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """Return `value` as an int of at least `minimum`; bools and floats are refused.

    Raises
    ------
    InvalidInputError
        If `value` is not an integer, is below `minimum`, or above `maximum` where there is
        one.
    """
    rule = f"be an integer of at least {minimum}"
    if isinstance(value, (bool, np.bool_)):
        raise InvalidInputError.of(name, rule, value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError.of(name, rule, value) from None
    if number < minimum:
        raise InvalidInputError.of(name, rule, value)
    if maximum is not None and number > maximum:
        raise InvalidInputError.of(name, f"{rule} and at most {maximum:,}", value)
    return number


def check_count(name: str, value: object, minimum: int) -> int:
    """Return a number of trials, successes or the like: from `minimum` to 10¹².

    Raises
    ------
    InvalidInputError
        If `value` is no such integer.
    """
    return check_integer(name, value, minimum, MOST_TRIALS)


def check_size(name: str, value: object, minimum: int, per_item: int = 1) -> int:
    """Return how many draws, replicates or simulated things are asked for.

    Parameters
    ----------
    name, value, minimum
        As in `check_integer`.
    per_item : int
        How many numbers are held for each of them.

    Raises
    ------
    InvalidInputError
        If `value` is no integer of at least `minimum`, or more than 10 million, or more than
        make 200 million numbers at a time.

    Examples
    --------
    >>> check_size("draws", 20_000, 1000)
    20000
    >>> check_size("draws", 10**8, 1000)
    Traceback (most recent call last):
    lm_eval_bayes.errors.InvalidInputError: `draws` must be an integer of at least 1000 and at \
most 10,000,000; got 100000000
    """
    maximum = max(minimum, min(MOST_DRAWS, MOST_HELD // max(per_item, 1)))
    return check_integer(name, value, minimum, maximum)


def check_flag(name: str, value: object) -> bool:
    """Return a bool; nothing else is accepted, in particular no text such as "no".

    Raises
    ------
    InvalidInputError
        If `value` is neither True nor False.

    Examples
    --------
    >>> check_flag("paired", np.bool_(False))
    False
    """
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInputError.of(name, "be True or False", value)
    return bool(value)


def check_sequence(name: str, value: object, rule: str, most: int = MOST_DRAWS) -> list[Any]:
    """Return the entries of a sequence, or of anything else that gives them in an order.

    Parameters
    ----------
    name : str
        The argument.
    value : object
        A list, a range, an array, a generator, …; text, bytes, sets and mappings are none.
    rule : str
        What the argument must be, for the error.
    most : int
        More entries than this are refused.

    Raises
    ------
    InvalidInputError
        If `value` is no such sequence.

    Examples
    --------
    >>> check_sequence("looks", range(2, 5), "be numbers of trials")
    [2, 3, 4]
    """
    if isinstance(value, (str, bytes, bytearray, set, frozenset, dict)):
        raise InvalidInputError.of(name, rule, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputError.of(name, rule, "a masked array")
    try:
        entries = list(islice(value, most + 1))  # type: ignore[call-overload]
    except TypeError:
        raise InvalidInputError.of(name, rule, value) from None
    if len(entries) > most:
        raise InvalidInputError.of(name, f"{rule}, at most {most:,} of them", value)
    return entries


def check_k(k: object, n_trials: IntArray | None = None) -> int:
    """Return `k` as an int; with `n_trials`, k <= N must hold for every question.

    Raises
    ------
    InvalidInputError
        If k is not an integer, k < 1, or k exceeds the smallest number of trials (10⁷ without).
    """
    if n_trials is None:
        return check_integer("k", k, 1, MOST_K)
    smallest = int(n_trials.min())
    rule = f"satisfy 1 <= k <= N (N={smallest})"
    if n_trials.max() != smallest:
        rule = f"satisfy 1 <= k <= N for every question (the smallest N is {smallest})"
    try:
        number = check_integer("k", k, 1)
    except InvalidInputError:
        raise InvalidInputError.of("k", rule, k) from None
    if number > smallest:
        raise InvalidInputError.of("k", rule, k)
    return number


def check_level(level: object) -> float:
    """Return the credible level as a float strictly between 0 and 1.

    Raises
    ------
    InvalidInputError
        If `level` is not a number in (0, 1).
    """
    return check_fraction("level", level)


def check_fraction(name: str, value: object) -> float:
    """Return a number strictly between 0 and 1.

    Raises
    ------
    InvalidInputError
        If `value` is no such number.
    """
    return check_real(name, value, "be a number strictly between 0 and 1", lambda x: 0.0 < x < 1.0)


def check_positive(name: str, value: object) -> float:
    """Return a finite number above 0.

    Raises
    ------
    InvalidInputError
        If `value` is no such number.
    """
    return check_real(name, value, "be a finite number above 0", lambda x: 0.0 < x < np.inf)


def check_non_negative(name: str, value: object) -> float:
    """Return a finite number of at least 0.

    Raises
    ------
    InvalidInputError
        If `value` is no such number.
    """
    return check_real(name, value, "be a finite number of at least 0", lambda x: 0.0 <= x < np.inf)


def check_confidence(confidence: object) -> float:
    """Return a one-sided confidence as a float in [0.5, 1).

    Raises
    ------
    InvalidInputError
        If `confidence` is no such number.
    """
    rule = "be a number in [0.5, 1)"
    return check_real("confidence", confidence, rule, lambda x: 0.5 <= x < 1.0)


def check_real(name: str, value: object, rule: str, within: Callable[[float], bool]) -> float:
    """Return a real number as a float.

    Parameters
    ----------
    name : str
        The argument.
    value : object
        A real number of any type; bools are none.
    rule : str
        What the argument must be, for the error.
    within : callable
        Whether a number is in the range that `rule` describes.

    Raises
    ------
    InvalidInputError
        If `value` is no real number, or not `within` the range.
    """
    number = as_real(value)
    if number is None or not within(number):
        raise InvalidInputError.of(name, rule, value)
    return number


def check_pair(
    name: str, value: object, rule: str, within: Callable[[float, float], bool]
) -> tuple[float, float]:
    """Return a tuple or list of two real numbers as floats.

    Parameters
    ----------
    name, value, rule
        As in `check_real`.
    within : callable
        Whether the two numbers are as `rule` says.

    Raises
    ------
    InvalidInputError
        If `value` is no such pair.
    """
    numbers = [as_real(number) for number in value] if isinstance(value, (tuple, list)) else []
    first, second = numbers if len(numbers) == 2 else (None, None)
    if first is None or second is None or not within(first, second):
        raise InvalidInputError.of(name, rule, value)
    return first, second


def check_rising(
    name: str, values: object, rule: str, minimum: int, most: int = MOST_DRAWS
) -> list[int]:
    """Return one or more increasing integers of at least `minimum`.

    Parameters
    ----------
    name : str
        The argument.
    values : object
        As in `check_sequence`.
    rule : str
        What the argument must be, for the error.
    minimum : int
        Of each number; 10¹² is the maximum.
    most : int
        More numbers than this are refused.

    Raises
    ------
    InvalidInputError
        If `values` are no such numbers.
    """
    numbers = [check_count(name, n, minimum) for n in check_sequence(name, values, rule, most)]
    if not numbers or any(after <= n for n, after in pairwise(numbers)):
        raise InvalidInputError.of(name, rule, numbers)
    return numbers


def check_seed(seed: object) -> int:
    """Return the seed as a non-negative int of at most 128 bits.

    Raises
    ------
    InvalidInputError
        If `seed` is no such integer.
    """
    return check_integer("seed", seed, 0, _SEEDS - 1)


def check_option(name: str, value: object, options: tuple[_Option, ...]) -> _Option:
    """Return the one of `options` that `value` is.

    Raises
    ------
    InvalidInputError
        If it is none of them.

    Examples
    --------
    >>> check_option("scope", "benchmark", ("benchmark", "population"))
    'benchmark'
    """
    for option in options:
        if isinstance(value, str) and value == option:
            return option
    words = join_words([f'"{option}"' for option in options], "or")
    raise InvalidInputError.of(name, f"be {'one of ' if len(options) > 2 else ''}{words}", value)


def check_prior(prior: object) -> float:
    """Return the pseudo-count of a prior: 1 ("uniform"), 1/2 ("jeffreys"), or the number itself.

    Raises
    ------
    InvalidInputError
        If `prior` is neither a known name nor a finite number above 0.
    """
    rule = 'be "uniform", "jeffreys" or a number above 0 and at most 1e9'
    if isinstance(prior, str) and prior in NAMED_PRIORS:
        return NAMED_PRIORS[prior]
    return check_real("prior", prior, rule, lambda x: 0.0 < x <= 1e9)


def successes_needed(tau: Tau, k: int) -> int:
    """Return max(1, ⌈τk⌉), the successes that G-Pass@k_τ asks for [Liu 2025].

    In floats .28 · 25 is 7.000000000000001, whose ceiling is 8. So τ is compared
    with the fractions j/k instead: a Fraction or Decimal exactly, a float with the
    float j/k. Division is correctly rounded, so the literal ``0.28`` equals 7/25 and
    the ratio ``5 / 7`` equals 10/14, whichever way τ was written.

    Parameters
    ----------
    tau : float, Fraction or Decimal
        In [0, 1]; 0 asks for one success, like Pass@k.
    k : int
        At least 1.

    Raises
    ------
    InvalidInputError
        If `tau` is not a number in [0, 1].

    Examples
    --------
    >>> successes_needed(0.28, 25), successes_needed(0.55, 100), successes_needed(0.0, 4)
    (7, 55, 1)
    >>> successes_needed(5 / 7, 7), successes_needed(Fraction(5, 7), 14)
    (5, 10)
    """
    number = check_real("tau", tau, "be a number in [0, 1]", lambda x: 0.0 <= x <= 1.0 >= tau >= 0)
    if isinstance(tau, (Fraction, Decimal)):
        return max(1, math.ceil(Fraction(tau) * k))
    if isinstance(tau, np.floating):
        # np.float32(0.28) was typed as 0.28; its double is 0.2800000011920929.
        number = float(str(tau))
    needed = max(0, math.floor(number * k) - 1)
    while needed / k < number:
        needed += 1
    return max(1, needed)


def as_real(value: object) -> float | None:
    """Return a real number as a float, anything else (bools too) as None."""
    real = (int, float, np.integer, np.floating, Fraction, Decimal)
    if isinstance(value, bool) or not isinstance(value, real):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


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


def _first_bad(array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], unit: str) -> str:
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
            raise InvalidInputError.of(name, f"hold {what}", _first_bad(array, bad, unit))
    bad = array < 0
    if array.dtype.kind == "u":
        bad = array > np.iinfo(np.int64).max
    if bad.any():
        raise InvalidInputError.of(name, f"hold {what}", _first_bad(array, bad, unit))
    return array.astype(np.int64)


def check_matrix(
    name: str, values: npt.ArrayLike, n_categories: int, guessed: bool, allow_no_trials: bool
) -> IntArray:
    """Return R or R0 as an (M, N) array of categories."""
    array = numeric(name, values)
    if array.ndim != 2:
        rule = "be 2-D, one row per question and one column per trial"
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
            rule = "hold only 0 and 1 when `weights` is left out; give `weights`, one per category"
        raise InvalidInputError.of(name, rule, _first_bad(matrix, bad, "trial"))
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
        rule = f"hold at most {MOST_TRIALS:g} trials per question"
        raise InvalidInputError.of(name, rule, f"{most:g}")
    return counts


def check_weights(values: npt.ArrayLike) -> FloatArray:
    """Return the rubric weights as finite floats, at least two of them."""
    array = numeric("weights", values)
    if array.ndim != 1 or array.size < 2:
        rule = "be 1-D with at least two entries, one per category"
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
        raise InvalidInputError.of("question_ids", "be a sequence of ids, one per question", values)
    try:
        return tuple(values)  # type: ignore[arg-type]
    except TypeError:
        rule = "be a sequence of ids, one per question"
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


def check_clusters(values: object, n_questions: int) -> tuple[Hashable, ...] | None:
    """Return the cluster of each of M questions, or None."""
    if values is None:
        return None
    rule = f"have one entry per question ({n_questions})"
    labels = check_sequence("clusters", values, rule)
    cluster_index(labels, n_questions, "question")
    return tuple(labels)


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
    rule = f"have one entry per {of_what} ({size})"
    entries = check_sequence("clusters", clusters, rule)
    if len(entries) != size:
        raise InvalidInputError.of("clusters", rule, f"{len(entries)} entries")
    numbers: dict[Hashable, int] = {}
    try:
        indices = [numbers.setdefault(entry, len(numbers)) for entry in entries]
    except TypeError:
        raise InvalidInputError.of("clusters", "hold hashable entries", clusters) from None
    missing = next((i for i, entry in enumerate(entries) if entry is None or entry != entry), None)
    if missing is not None:
        rule = f"name the cluster of every {of_what}"
        raise InvalidInputError.of("clusters", rule, f"{entries[missing]} for number {missing}")
    return np.asarray(indices, dtype=np.int64)
