"""The score of every model after each of its first n trials, n = 1..N.

All N prefixes are computed, from running counts that are updated trial by trial, for a block of
bootstrap replicates at a time. Scores are represented by *keys*, integers where possible, in the
order of the scores; :meth:`Prefixes.scores` converts keys to scores.

Two models tie exactly when their sums over questions are equal, which rounding hides: 0.1 + 0.2 is
not 0.3. The pass family's scores are therefore tabulated as integer multiples of a unit that
depends on n alone, and rubric weights as integer multiples of one unit. Sums of integers are
exact, so rounding neither breaks nor makes a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, check_matrix, check_weights, numeric
from lm_eval_bayes.stats.outcomes import BINARY_WEIGHTS, scaled_weights
from lm_eval_bayes.stats.validation import (
    Tau,
    check_k,
    check_option,
    check_seed,
    check_size,
    successes_needed,
)

Scheme: TypeAlias = Literal["column", "row"]

SCHEMES: tuple[Scheme, ...] = ("column", "row")

#: Replicates per block, few enough that their running counts stay in the cache.
BLOCK = 256

#: Integers, or floats where those would overflow.
Keys: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class BootstrapRanking(Record):
    """What ranks the models, and the bootstrap replicates of their trials.

    Attributes
    ----------
    metric : str
        The score that ranks the models.
    k : int or None
        The k of the metric, where it has one.
    tau : float or None
        Threshold of G-Pass.
    scheme : str
        "column" or "row".
    replicates, seed : int
        Their number and the seed they come from.
    """

    metric: Metric
    k: int | None
    tau: float | None
    scheme: Scheme
    replicates: int
    seed: int


class Step(NamedTuple):
    """After n trials: keys (B, L) of B replicates and L models, and Σ_α v_α in squared units."""

    n: int
    keys: Keys
    spread: FloatArray | None


@dataclass(frozen=True, eq=False)
class Prefixes:
    """A validated tensor of outcomes, with the scores of its prefixes.

    Attributes
    ----------
    values : array, shape (N, M, L)
        The contribution of each trial: 0 or 1 for the pass family, else units of the rubric.
    rubric : Units or PassTable
        The units of the keys; a table for the pass family.
    metric : str
        Which score.
    k : int
        Prefixes shorter than k are undefined; 1 for bayes and avg.
    tolerance : float
        Relative difference of keys that counts as a tie.
    """

    values: Keys
    rubric: Units | PassTable
    metric: Metric
    k: int
    tolerance: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """L, M, N."""
        n_trials, n_questions, n_models = self.values.shape
        return n_models, n_questions, n_trials

    def bootstrap(
        self, scheme: Scheme, replicates: int, seed: int, tau: Tau | None
    ) -> BootstrapRanking:
        """Return the checked settings of a bootstrap of these scores."""
        replicates = check_size("replicates", replicates, 1)
        scheme, seed = check_option("scheme", scheme, SCHEMES), check_seed(seed)
        k = None if self.metric in LINEAR else self.k
        threshold = None if tau is None else float(tau)
        return BootstrapRanking(self.metric, k, threshold, scheme, replicates, seed)

    def walk(self, columns: IntArray, spread: bool = False) -> Iterator[Step]:
        """Yield the keys after n = k..N trials.

        Parameters
        ----------
        columns : array of int, shape (B, 1, N) or (B, M, N)
            The number of the n-th trial, for all questions together or for each.
        spread : bool
            Whether to compute Σ_α v_α as well; bayes and avg only.
        """
        values, rubric = self.values, self.rubric
        if isinstance(rubric, Units) and not spread and columns.shape[1] == 1:
            # sums over questions are all that a linear score needs
            values = values.sum(axis=1, keepdims=True)
        running = np.zeros((columns.shape[0], *values.shape[1:]), dtype=values.dtype)
        squares = np.zeros((columns.shape[0], values.shape[2]))
        for n, added in enumerate(_gather(values, columns), 1):
            running += added
            if isinstance(rubric, PassTable):
                if n >= self.k:
                    # a count is in 0..n: clipping never bites, it only spares a check
                    keys = rubric.values[n - 1].take(running, mode="clip").sum(axis=1)
                    yield Step(n, keys, None)
            elif spread:
                squares += np.square(added, dtype=np.float64).sum(axis=1)
                yield Step(n, running.sum(axis=1), _spread(rubric, n, running, squares))
            else:
                yield Step(n, running.sum(axis=1), None)

    def scores(self, n: int, keys: Keys) -> FloatArray:
        """Return the scores of the keys after n trials."""
        _, n_questions, _ = self.shape
        if isinstance(self.rubric, PassTable):
            share = keys / (self.rubric.parts[n - 1] * n_questions)
            return np.asarray(np.clip(self.rubric.offset + share, 0.0, 1.0))
        units = self.rubric
        total, pseudo = n, 0
        if self.metric == "bayes":
            total = n + units.values.size
            pseudo = units.values.sum() * n_questions
        mean = (keys + pseudo) / (units.per_span * n_questions * total)
        return np.asarray(units.low + units.span * mean)


def _gather(values: Keys, columns: IntArray) -> Iterator[Keys]:
    """Yield the contribution of the n-th trial of every replicate, (B, rows, L), n = 1..N."""
    n_trials, rows, n_models = values.shape
    together = columns.shape[1] == 1
    flat = values.reshape(n_trials if together else n_trials * rows, -1)
    for n in range(n_trials):
        at = columns[:, :, n]
        if not together:
            at = at * rows + np.arange(rows)
        yield flat.take(at.ravel(), axis=0).reshape(-1, rows, n_models)


def _spread(units: Units, n: int, running: Keys, squares: FloatArray) -> FloatArray:
    """Return Σ_α v_α of Bayes@N, v_α = (Σ_k w_k² ν_αk/T − m_α²)/(T+1) [Hariri 2026, Alg. 1]."""
    unit = units.values.astype(np.float64)
    total = n + unit.size
    second = squares + running.shape[1] * np.square(unit).sum()
    first = running + unit.sum()
    mean_squares = np.einsum("bml,bml->bl", first, first) / total**2
    return np.asarray((second / total - mean_squares) / (total + 1.0))


def check_prefixes(
    R: npt.ArrayLike,
    metric: object,
    k: object,
    tau: object,
    weights: npt.ArrayLike | None,
    smallest: tuple[int, int],
) -> Prefixes:
    """Check a tensor of outcomes and the arguments of a metric.

    Parameters
    ----------
    R, metric, k, tau, weights
        As in :func:`prefix_scores`.
    smallest : tuple of int
        The least numbers of models and of trials.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.
    """
    guessed = weights is None
    checked = check_weights(BINARY_WEIGHTS if weights is None else weights)
    trials = _check_tensor(R, checked.size, guessed)
    n_models, n_questions, n_trials = trials.shape
    if n_models < smallest[0] or n_trials < smallest[1]:
        rule = f"hold at least {smallest[0]} models and {smallest[1]} trials, (L, M, N)"
        raise InvalidInputError.of("R", "empty", rule, f"shape {trials.shape}")
    name, number, needed = check_metric(metric, k, tau, n_trials)
    # trials first, models last: what a trial adds lies together in memory
    trials = trials.transpose(2, 1, 0)
    if name not in LINEAR and not guessed:
        raise InvalidInputError.of(
            "weights", "conflict", "be left out for the pass family", weights
        )
    if name not in LINEAR:
        table = pass_table(name, number, needed, n_trials, n_questions)
        counts = np.ascontiguousarray(trials, dtype=np.min_scalar_type(n_trials))
        tolerance = tie_tolerance(table.exact, n_questions)
        return Prefixes(counts, table, name, number, tolerance)
    n_terms = n_questions * n_trials
    units = rubric_units(checked, n_terms)
    values = np.ascontiguousarray(units.values[trials])
    tolerance = tie_tolerance(units.exact, n_terms)
    return Prefixes(values, units, name, number, tolerance)


def _check_tensor(R: npt.ArrayLike, n_categories: int, guessed: bool) -> IntArray:
    """Return an (L, M, N) array of categories."""
    array = numeric("R", R)
    if array.ndim != 3 or 0 in array.shape[:2]:
        rule = "be 3-D, (L, M, N): models, questions, trials"
        raise InvalidInputError.of("R", "shape", rule, f"shape {array.shape}")
    flat = array.reshape(-1, array.shape[2])
    return check_matrix("R", flat, n_categories, guessed, allow_no_trials=False).reshape(
        array.shape
    )


def prefix_scores(
    R: npt.ArrayLike,
    metric: Metric = "bayes",
    *,
    k: int | None = None,
    tau: Tau | None = None,
    weights: npt.ArrayLike | None = None,
) -> FloatArray:
    """Return the score of every model after its first n trials, for n = 1..N.

    Estimand: what `bayes_at_n`, `avg_at_n`, `pass_at_k`, … say of the first n trials alone, so
    the benchmark of these M questions [Hariri 2026, §3.3].

    Parameters
    ----------
    R : array, shape (L, M, N)
        Outcomes of L models on M questions in N trials: categories 0..C, or 0 and 1.
    metric : str
        "bayes", "avg"; or "pass@k", "pass^k", "naive pass@k", "naive pass^k", "g-pass" or
        "mg-pass" (binary outcomes, k needed).
    k : int, optional
        1 <= k <= N, for the pass family. Prefixes n < k have no such estimate: NaN.
    tau : float, Fraction or Decimal, optional
        In [0, 1], for "g-pass".
    weights : array, shape (C+1,), optional
        The score of each category, for bayes and avg; left out, outcomes are binary.

    Returns
    -------
    array, shape (L, N)
        Read-only; on the scale of the weights, in [0, 1] for the pass family.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> R = [[[0, 1, 1, 0], [1, 1, 0, 1]], [[0, 0, 1, 1], [0, 1, 1, 1]]]
    >>> prefix_scores(R, "avg").tolist()
    [[0.5, 0.75, 0.6666666666666666, 0.625], [0.0, 0.25, 0.5, 0.625]]
    >>> prefix_scores(R, "pass@k", k=2)[0].round(6).tolist()
    [nan, 1.0, 1.0, 0.916667]
    """
    prefixes = check_prefixes(R, metric, k, tau, weights, smallest=(1, 1))
    scores = scores_of(prefixes, np.arange(prefixes.shape[2])[None, None, :])
    scores.setflags(write=False)
    return scores


def scores_of(prefixes: Prefixes, columns: IntArray) -> FloatArray:
    """Return the scores (L, N) of one replicate's prefixes, NaN where undefined."""
    n_models, _, n_trials = prefixes.shape
    scores = np.full((n_models, n_trials), np.nan)
    for step in prefixes.walk(columns):
        scores[:, step.n - 1] = prefixes.scores(step.n, step.keys[0])
    return scores


def draw_blocks(
    scheme: Scheme, shape: tuple[int, int, int], replicates: int, seed: int
) -> Iterator[IntArray]:
    """Draw the trials of all replicates with replacement, a block at a time.

    Parameters
    ----------
    scheme : {"column", "row"}
        "column": N trial numbers a replicate, for all questions. "row": N for each question.
    shape : tuple of int
        L, M, N; all L models take the same draw.
    replicates : int
        How many replicates.
    seed : int
        The seed; block b draws from the seed sequence [seed, b].

    Yields
    ------
    array of int, shape (B, 1, N) or (B, M, N)
        Trial numbers in 0..N−1.

    Examples
    --------
    >>> [drawn.shape for drawn in draw_blocks("row", (2, 3, 5), 300, seed=7)]
    [(256, 3, 5), (44, 3, 5)]
    """
    _, n_questions, n_trials = shape
    rows = 1 if scheme == "column" else n_questions
    for block, start in enumerate(range(0, replicates, BLOCK)):
        rng = np.random.default_rng([seed, block])
        size = min(BLOCK, replicates - start)
        yield rng.integers(0, n_trials, (size, rows, n_trials))


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


def _credits(credit: Callable[[int], int], k: int, n: int, c: int, choose: list[list[int]]) -> int:
    """Return Σ_j credit(j) C(c, j) C(n−c, k−j), over the possible successes j in k trials."""
    possible = range(max(0, k - (n - c)), min(c, k) + 1)
    return sum(credit(j) * choose[c][j] * choose[n - c][k - j] for j in possible)


#: Scores that depend on a question's number of correct trials c of n, and on k: the score times
#: its denominator (for Pass@k its difference from 1, below 0), with the successes that G-Pass needs
#: and the table of binomial coefficients.
_NUMERATORS: Mapping[Metric, Callable[[int, int, int, int, list[list[int]]], int]] = {
    "pass@k": lambda k, needed, n, c, choose: -choose[n - c][k],
    "pass^k": lambda k, needed, n, c, choose: choose[c][k],
    "naive pass@k": lambda k, needed, n, c, choose: -((n - c) ** k),
    "naive pass^k": lambda k, needed, n, c, choose: c**k,
    "g-pass": lambda k, needed, n, c, choose: _credits(lambda j: int(j >= needed), k, n, c, choose),
    "mg-pass": lambda k, needed, n, c, choose: _credits(
        lambda j: 2 * max(j - (k + 1) // 2, 0), k, n, c, choose
    ),
}
PASS_FAMILY: tuple[Metric, ...] = tuple(_NUMERATORS)
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
    if name in LINEAR and k is not None:
        raise InvalidInputError.of("k", "conflict", f'be left out for metric "{name}"', k)
    number = 1 if name in LINEAR else check_k(k, np.array([n_trials]))
    if name == "g-pass":
        return name, number, successes_needed(cast(Tau, tau), number)
    if tau is not None:
        raise InvalidInputError.of("tau", "conflict", 'be left out unless metric is "g-pass"', tau)
    return name, number, 1


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
    low, span, unit = scaled_weights(weights)
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
        [_NUMERATORS[metric](k, needed, n, c, choose) for c in range(n + 1)]
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
