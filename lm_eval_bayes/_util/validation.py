"""Checks of numbers, options and sequences among the arguments of all functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError

_Option = TypeVar("_Option", bound=str)

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
#: The upper limit of seeds.
_SEEDS = 2**128


def check_integer(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """Return `value` as an int of at least `minimum`; bools and floats are refused.

    Raises
    ------
    InvalidInputError
        If `value` is not an integer, is below `minimum`, or above `maximum` where there is
        one.
    """
    rule = f"be an integer of at least {minimum}"
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < minimum:
        raise InvalidInputError.of(name, "range", rule, value)
    if maximum is not None and number > maximum:
        raise InvalidInputError.of(name, "range", f"{rule} and at most {maximum:,}", value)
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
        raise InvalidInputError.of(name, "type", "be True or False", value)
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
        raise InvalidInputError.of(name, "type", rule, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputError.of(name, "type", rule, "a masked array")
    try:
        entries = list(islice(value, most + 1))  # type: ignore[call-overload]
    except TypeError:
        raise InvalidInputError.of(name, "type", rule, value) from None
    if len(entries) > most:
        raise InvalidInputError.of(name, "range", f"{rule}, at most {most:,} of them", value)
    return entries


def check_k(k: object, n_trials: npt.NDArray[np.int64] | None = None) -> int:
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
        return check_integer("k", k, 1, smallest)
    except InvalidInputError:
        raise InvalidInputError.of("k", "range", rule, k) from None


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
        raise InvalidInputError.of(name, "range", rule, value)
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
        raise InvalidInputError.of(name, "range", rule, value)
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
        raise InvalidInputError.of(name, "range", rule, numbers)
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
    if isinstance(value, str) and value in options:
        return options[options.index(value)]
    words = join_words([f'"{option}"' for option in options], "or")
    rule = f"be {'one of ' if len(options) > 2 else ''}{words}"
    raise InvalidInputError.of(name, "choice", rule, value)


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
