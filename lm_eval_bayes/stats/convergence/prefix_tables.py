"""Tables of a question's score after n trials, c of them correct, as integers where possible.

Two models tie exactly when their sums over questions are equal, which rounding hides: 0.1 + 0.2 is
not 0.3. The pass family's scores are therefore tabulated as integer multiples of a unit that
depends on n alone, and rubric weights as integer multiples of one unit. Sums of integers are
exact, so rounding neither breaks nor makes a tie.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import FloatArray, Tau, check_k, check_option, successes_needed

Metric: TypeAlias = Literal[
    "bayes",
    "avg",
    "pass@k",
    "pass^k",
    "naive pass@k",
    "naive pass^k",
    "g-pass",
    "mg-pass",
]

#: Scores that are linear in the outcomes.
LINEAR: tuple[Metric, ...] = ("bayes", "avg")
#: Scores that depend on a question's number of correct trials, and on k.
PASS_FAMILY: tuple[Metric, ...] = (
    "pass@k",
    "pass^k",
    "naive pass@k",
    "naive pass^k",
    "g-pass",
    "mg-pass",
)
METRICS = LINEAR + PASS_FAMILY

#: Sums below this fit in a 64-bit integer with room for a difference.
_WHOLE = 2**62
_EPSILON = 2.0**-52


class Units(NamedTuple):
    """Rubric weights as `values`/`per_span` of their span; `exact` where those are integers."""

    values: npt.NDArray[Any]
    per_span: float
    low: float
    span: float
    exact: bool


class PassTable(NamedTuple):
    """A question's score after n trials, c correct: offset + values[n-1, c]/parts[n-1].

    The values of one row have one sign, so that their sums lose no digits; `exact` says that
    they are integers.
    """

    values: npt.NDArray[Any]
    parts: FloatArray
    offset: float
    exact: bool


def check_metric(metric: object, k: object, tau: object, n_trials: int) -> tuple[Metric, int, int]:
    """Return the metric, its k (1 where it has none) and the successes that G-Pass needs.

    Raises
    ------
    InvalidInputError
        If the metric is unknown, k or tau is missing, out of range, or given without need.
    """
    name = check_option("metric", metric, METRICS)
    if name in LINEAR:
        if k is not None:
            raise InvalidInputError.of("k", f'be left out for metric "{name}"', k)
        number = 1
    else:
        number = check_k(k, np.array([n_trials]))
    if name != "g-pass":
        if tau is not None:
            raise InvalidInputError.of("tau", 'be left out unless metric is "g-pass"', tau)
        return name, number, 1
    return name, number, successes_needed(cast(Tau, tau), number)


def rubric_units(weights: FloatArray, n_outcomes: int) -> Units:
    """Return rubric weights as integer multiples of a common unit, if they have one.

    Parameters
    ----------
    weights : array, shape (C+1,)
        The score of each category.
    n_outcomes : int
        The largest number of terms of a sum.

    Examples
    --------
    >>> units = rubric_units(np.array([0.0, 0.25, 1.0]), 30 * 80)
    >>> units.values.tolist(), units.per_span, units.exact
    ([0, 1, 4], 4.0, True)
    """
    low, span = float(weights.min()), float(np.ptp(weights))
    unit = (weights - low) / span if span > 0.0 else np.zeros_like(weights)
    near = [Fraction(float(u)).limit_denominator(10_000) for u in unit]
    common = math.lcm(*(f.denominator for f in near))
    # a ratio of typed decimals carries a few roundings, nothing more
    alike = all(abs(float(f) - u) <= 8 * _EPSILON for f, u in zip(near, unit, strict=True))
    if alike and common * n_outcomes < _WHOLE:
        integers = np.array([int(f * common) for f in near], dtype=np.int64)
        return Units(integers, float(common), low, span, True)
    return Units(unit, 1.0, low, span, False)


def pass_table(metric: Metric, k: int, needed: int, n_trials: int, n_questions: int) -> PassTable:
    """Tabulate a member of the pass family for every n <= N and c <= n.

    Pass@k is 1 − C(n−c, k)/C(n, k) [Chen 2021], Pass^k C(c, k)/C(n, k) [Yao 2024], G-Pass and
    mG-Pass sums of C(c, j) C(n−c, k−j)/C(n, k) [Liu 2025]; the naive pair is 1 − (1 − c/n)^k
    and (c/n)^k. Numerators are exact; where M of them could leave 64 bits each score is the
    correctly rounded quotient instead.

    Examples
    --------
    >>> table = pass_table("pass@k", 2, 1, 4, 30)
    >>> table.values[3].tolist(), table.offset, table.exact
    ([-6, -3, -1, 0, 0], 1.0, True)
    """
    choose = [[math.comb(n, j) for j in range(k + 1)] for n in range(n_trials + 1)]
    numerators = [
        [_numerator(metric, k, needed, n, c, choose) for c in range(n + 1)]
        for n in range(1, n_trials + 1)
    ]
    denominators = [_denominator(metric, k, n) for n in range(1, n_trials + 1)]
    largest = max(abs(value) for row in numerators for value in row)
    exact = largest * n_questions < _WHOLE
    values = np.zeros((n_trials, n_trials + 1), dtype=np.int64 if exact else np.float64)
    parts = np.ones(n_trials)
    for n, (row, denominator) in enumerate(zip(numerators, denominators, strict=True)):
        if exact:
            values[n, : len(row)] = row
            parts[n] = denominator
        else:
            values[n, : len(row)] = [value / denominator for value in row]
    parts[: k - 1] = np.nan
    return PassTable(values, parts, 1.0 if metric in ("pass@k", "naive pass@k") else 0.0, exact)


def _numerator(metric: Metric, k: int, needed: int, n: int, c: int, choose: list[list[int]]) -> int:
    """Return a question's score over its denominator; for Pass@k its difference from 1, below 0."""
    if metric == "pass@k":
        return -choose[n - c][k]
    if metric == "pass^k":
        return choose[c][k]
    if metric == "naive pass@k":
        return -int((n - c) ** k)
    if metric == "naive pass^k":
        return int(c**k)
    right, wrong = choose[c], choose[n - c]
    low, high = max(0, k - (n - c)), min(c, k)
    if metric == "g-pass":
        return sum(right[j] * wrong[k - j] for j in range(max(low, needed), high + 1))
    half = (k + 1) // 2
    js = range(max(low, half + 1), high + 1)
    return sum(2 * (j - half) * right[j] * wrong[k - j] for j in js)


def _denominator(metric: Metric, k: int, n: int) -> int:
    """Return the denominator; 1 where n < k leaves the score undefined."""
    if metric in ("naive pass@k", "naive pass^k"):
        return int(n**k)
    subsets = max(1, math.comb(n, k))
    return k * subsets if metric == "mg-pass" else subsets


def tie_tolerance(exact: bool, n_terms: int) -> float:
    """Return the relative difference up to which two sums of `n_terms` count as equal.

    0 for integers. A sum of terms of one sign, each rounded once, is off by at most
    (n_terms + 1)·2⁻⁵³ of itself, and so is the other sum.
    """
    return 0.0 if exact else (n_terms + 1) * _EPSILON


def signs(lower: npt.NDArray[Any], upper: npt.NDArray[Any], tolerance: float) -> npt.NDArray[Any]:
    """Return −1, 0 or 1 as `upper` is below, equal to or above `lower`.

    Examples
    --------
    >>> signs(np.array([1.0, 1.0]), np.array([1.0 + 1e-16, 2.0]), 1e-15).tolist()
    [0.0, 1.0]
    """
    gap = upper - lower
    if tolerance > 0.0:
        gap[np.abs(gap) <= tolerance * np.maximum(np.abs(lower), np.abs(upper))] = 0
    return np.asarray(np.sign(gap))
