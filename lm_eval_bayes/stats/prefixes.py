"""The score of every model after each of its first n trials, n = 1..N.

All N prefixes are computed, from running counts that are updated trial by trial, for a block of
bootstrap replicates at a time. Scores within 10⁻¹² of the range of scores of each other count as
equal: 0.1 + 0.2 is not 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import (
    Tau,
    check_k,
    check_option,
    check_seed,
    check_size,
    successes_needed,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, check_matrix, check_weights, numeric
from lm_eval_bayes.stats.outcomes import BINARY_WEIGHTS, Outcomes, scaled_weights
from lm_eval_bayes.stats.pass_family_estimators import (
    g_pass_at_k,
    mg_pass_at_k,
    naive_pass_at_k,
    naive_pass_hat_k,
    pass_at_k,
    pass_hat_k,
)
from lm_eval_bayes.stats.results import Estimate

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
#: Scores that are linear in the outcomes, and those of the pass family.
LINEAR: tuple[Metric, ...] = ("bayes", "avg")
_FAMILY: Mapping[Metric, Callable[[Outcomes, int, Any], Estimate]] = {
    "pass@k": lambda outcomes, k, tau: pass_at_k(outcomes, k),
    "pass^k": lambda outcomes, k, tau: pass_hat_k(outcomes, k),
    "naive pass@k": lambda outcomes, k, tau: naive_pass_at_k(outcomes, k),
    "naive pass^k": lambda outcomes, k, tau: naive_pass_hat_k(outcomes, k),
    "g-pass": g_pass_at_k,
    "mg-pass": lambda outcomes, k, tau: mg_pass_at_k(outcomes, k),
}
METRICS: tuple[Metric, ...] = (*LINEAR, *_FAMILY)
Scheme: TypeAlias = Literal["column", "row"]
SCHEMES: tuple[Scheme, ...] = ("column", "row")
#: Replicates per block, few enough that their running counts stay in the cache.
BLOCK = 256
#: Scores, as shares of their range, that differ by less are equal.
_ROUNDING = 1e-12


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
    """After n trials: scores (B, L) of B replicates and L models in [0, 1], and their variances."""

    n: int
    scores: FloatArray
    variance: FloatArray | None


@dataclass(frozen=True, eq=False)
class Prefixes:
    """A validated tensor of outcomes, with the scores of its prefixes.

    Attributes
    ----------
    values : array, shape (N, M, L)
        The contribution of each trial: 0 or 1 for the pass family, else its weight in [0, 1].
    weights : array, shape (C+1,)
        The weights of the categories, scaled to [0, 1].
    table : array, shape (N, N+1), or None
        Of the pass family, a question's score after n trials, c correct: ``[n-1, c]``.
    metric : str
        Which score.
    k : int
        Prefixes shorter than k are undefined; 1 for bayes and avg.
    low, span : float
        The smallest score, and the largest less it.
    """

    values: npt.NDArray[Any]
    weights: FloatArray
    table: FloatArray | None
    metric: Metric
    k: int
    low: float = 0.0
    span: float = 1.0

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
        """Yield the scores after n = k..N trials.

        Parameters
        ----------
        columns : array of int, shape (B, 1, N) or (B, M, N)
            The number of the n-th trial, for all questions together or for each.
        spread : bool
            Whether to compute the variances of Bayes@N as well; bayes and avg only.
        """
        values, n_questions = self.values, self.values.shape[1]
        if self.table is None and not spread and columns.shape[1] == 1:
            # sums over questions are all that a linear score needs
            values = values.sum(axis=1, keepdims=True)
        running = np.zeros((columns.shape[0], *values.shape[1:]), dtype=values.dtype)
        squares = np.zeros((columns.shape[0], values.shape[2]))
        size, prior = self.weights.size, self.weights.sum()
        pseudo = (size, prior) if self.metric == "bayes" else (0, 0.0)
        for n, added in enumerate(_gather(values, columns), 1):
            running += added
            if self.table is not None:
                if n >= self.k:
                    # a count is in 0..n: clipping never bites, it only spares a check
                    of_questions = self.table[n - 1].take(running, mode="clip")
                    yield Step(n, of_questions.sum(axis=1) / n_questions, None)
                continue
            total = n + pseudo[0]
            scores = (running.sum(axis=1) / n_questions + pseudo[1]) / total
            variance = None
            if spread:
                squares += np.square(added).sum(axis=1)
                # σ² of Bayes@N [Hariri 2026, Alg. 1], times (T/n)² for avg@N [eq. 20]
                mean = (running + prior) / (n + size)
                second = squares + n_questions * np.square(self.weights).sum()
                of_questions = second / (n + size) - np.einsum("bml,bml->bl", mean, mean)
                scale = n_questions * total / (n + size)
                variance = of_questions / ((n + size + 1.0) * scale**2)
            yield Step(n, scores, variance)


def _gather(values: FloatArray, columns: IntArray) -> Iterator[FloatArray]:
    """Yield the contribution of the n-th trial of every replicate, (B, rows, L), n = 1..N."""
    n_trials, rows, n_models = values.shape
    together = columns.shape[1] == 1
    flat = values.reshape(n_trials if together else n_trials * rows, -1)
    for n in range(n_trials):
        at = columns[:, :, n]
        if not together:
            at = at * rows + np.arange(rows)
        yield flat.take(at.ravel(), axis=0).reshape(-1, rows, n_models)


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
    array = numeric("R", R)
    if array.ndim != 3 or 0 in array.shape[:2]:
        rule = "be 3-D, (L, M, N): models, questions, trials"
        raise InvalidInputError.of("R", "shape", rule, f"shape {array.shape}")
    n_models, _, n_trials = array.shape
    flat = array.reshape(-1, n_trials)
    trials = check_matrix("R", flat, checked.size, guessed, allow_no_trials=False)
    if n_models < smallest[0] or n_trials < smallest[1]:
        rule = f"hold at least {smallest[0]} models and {smallest[1]} trials, (L, M, N)"
        raise InvalidInputError.of("R", "empty", rule, f"shape {array.shape}")
    name = check_option("metric", metric, METRICS)
    linear = name in LINEAR
    if linear and k is not None:
        raise InvalidInputError.of("k", "conflict", f'be left out for metric "{name}"', k)
    number = 1 if linear else check_k(k, np.array([n_trials]))
    if name == "g-pass":
        successes_needed(cast(Tau, tau), number)
    elif tau is not None:
        raise InvalidInputError.of("tau", "conflict", 'be left out unless metric is "g-pass"', tau)
    if not linear and not guessed:
        rule = "be left out for the pass family"
        raise InvalidInputError.of("weights", "conflict", rule, weights)
    # trials first, models last: what a trial adds lies together in memory
    trials = trials.reshape(array.shape).transpose(2, 1, 0)
    low, span, unit = scaled_weights(checked)
    if linear:
        return Prefixes(np.ascontiguousarray(unit[trials]), unit, None, name, 1, low, span)
    table = np.zeros((n_trials, n_trials + 1))
    for n in range(number, n_trials + 1):
        correct = np.arange(n + 1)
        bank = Outcomes.from_counts(np.stack([n - correct, correct], axis=1))
        table[n - 1, : n + 1] = _FAMILY[name](bank, number, tau).per_question
    counts = np.ascontiguousarray(trials, dtype=np.min_scalar_type(n_trials))
    return Prefixes(counts, unit, table, name, number)


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
        scores[:, step.n - 1] = step.scores[0]
    return prefixes.low + prefixes.span * scores


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


def signs(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Return −1, 0 or 1 as `upper` is below, equal to or above `lower`.

    Examples
    --------
    >>> signs(np.array([0.3, 0.3]), np.array([0.1 + 0.2, 0.4])).tolist()
    [0.0, 1.0]
    """
    gap = upper - lower
    gap[np.abs(gap) <= _ROUNDING] = 0.0
    return np.sign(gap)
