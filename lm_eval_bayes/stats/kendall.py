"""Kendall's τ_b, for many rankings at once, and its curve over the number of trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.validation import Tau
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, numeric, read_only
from lm_eval_bayes.stats.prefixes import (
    BootstrapRanking,
    Metric,
    Scheme,
    check_prefixes,
    draw_blocks,
    signs,
)


@dataclass(frozen=True, eq=False)
class KendallCurve(BootstrapRanking):
    """Agreement with a gold ranking after n = 1..N trials, over bootstrap replicates.

    Attributes
    ----------
    metric, k, tau, scheme, replicates, seed
        As in `BootstrapRanking`.
    gold : array, shape (L,)
        The scores that define the gold ranking.
    mean, sd : array, shape (N,)
        Of τ_b over the replicates where it is defined; NaN where it is nowhere.
    undefined : array, shape (N,)
        Share of replicates without a τ_b: all models tie, or n < k.
    """

    gold: FloatArray
    mean: FloatArray
    sd: FloatArray
    undefined: FloatArray


def kendall_tau_b(x: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Return Kendall's τ_b of two sets of scores, ties counted [Hariri 2026, §2.7].

    τ_b = Σ sign(x_i − x_j) sign(y_i − y_j) / sqrt(P_x P_y) over pairs i < j, with P the pairs
    that are not tied. The same as `scipy.stats.kendalltau`, for many rankings at once.

    Parameters
    ----------
    x, y : array, shape (..., L)
        Scores (or ranks) of L >= 2 models; all but the last axis are broadcast.

    Returns
    -------
    array, shape (...)
        In [−1, 1]; NaN where all of x or all of y tie, or where a score is NaN.

    Raises
    ------
    InvalidInputError
        If the last axes differ, hold fewer than two models, or the others do not broadcast.

    Examples
    --------
    >>> kendall_tau_b([[0.1, 0.2, 0.3], [0.1, 0.1, 0.3]], [1, 2, 3]).round(6).tolist()
    [1.0, 0.816497]
    """
    first, second = numeric("x", x), numeric("y", y)
    if first.ndim == 0 or first.shape[-1] < 2:
        rule = "hold the scores of at least two models along the last axis"
        raise InvalidInputError.of("x", "empty", rule, f"shape {first.shape}")
    pairs = np.triu_indices(first.shape[-1], 1)
    try:
        np.broadcast_shapes(first.shape, second.shape)
        return _tau_b(_compare(first, pairs), _compare(second, pairs))
    except (IndexError, ValueError):
        rule = f"have as many models as x, and broadcast with it (shape {first.shape})"
        raise InvalidInputError.of("y", "shape", rule, f"shape {second.shape}") from None


def kendall_curve(  # noqa: PLR0913  public options
    R: npt.ArrayLike,
    gold: npt.ArrayLike,
    metric: Metric = "bayes",
    *,
    k: int | None = None,
    tau: Tau | None = None,
    weights: npt.ArrayLike | None = None,
    replicates: int = 10_000,
    scheme: Scheme = "column",
    seed: int = 0,
) -> KendallCurve:
    """Return the agreement of prefix rankings with a gold ranking [Hariri 2026, §2.7, 3.1].

    Estimand: the mean of τ_b between the ranking of L models by the first n of N resampled
    trials and the gold ranking, n = 1..N, for these questions (scope benchmark).

    Parameters
    ----------
    R : array, shape (L, M, N)
        Outcomes of L >= 2 models on M questions in N trials: categories 0..C, or 0 and 1.
    gold : array, shape (L,)
        Scores whose order is the truth: known success rates, or the scores of all N trials.
    metric : str
        "bayes", "avg" or, for binary outcomes, "pass@k", "pass^k", "naive pass@k",
        "naive pass^k", "g-pass" or "mg-pass".
    k : int, optional
        1 <= k <= N, for the pass family; prefixes n < k are undefined.
    tau : float, Fraction or Decimal, optional
        In [0, 1], for "g-pass".
    weights : array, shape (C+1,), optional
        The score of each category, for bayes and avg; left out, outcomes are binary.
    replicates : int
        How many bootstrap replicates, up to 10⁷.
    scheme : {"column", "row"}
        As in `convergence_at_n`.
    seed : int
        The seed of the replicates.

    Returns
    -------
    KendallCurve

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> truth = np.array([0.3, 0.5, 0.6])
    >>> R = np.random.default_rng(4).random((3, 30, 40)) < truth[:, None, None]
    >>> curve = kendall_curve(R, truth, replicates=1000, seed=1)
    >>> round(float(curve.mean[0]), 2), round(float(curve.mean[39]), 2)
    (0.78, 1.0)
    """
    prefixes = check_prefixes(R, metric, k, tau, weights, smallest=(2, 1))
    n_models, _, n_trials = prefixes.shape
    truth = numeric("gold", gold).astype(np.float64)
    if truth.shape != (n_models,) or not np.isfinite(truth).all() or np.ptp(truth) == 0.0:
        rule = f"be {n_models} finite scores, one per model, not all the same"
        raise InvalidInputError.of("gold", "range", rule, truth.tolist())
    settings = prefixes.bootstrap(scheme, replicates, seed, tau)
    pairs = np.triu_indices(n_models, 1)
    right = _compare(truth, pairs)
    n_defined, total, square = sums = np.zeros((3, n_trials))
    for columns in draw_blocks(settings.scheme, prefixes.shape, replicates, seed):
        for step in prefixes.walk(columns):
            values = _tau_b(signs(step.scores[:, pairs[0]], step.scores[:, pairs[1]]), right)
            values = values[~np.isnan(values)]
            sums[:, step.n - 1] += values.size, values.sum(), np.square(values).sum()
    with np.errstate(invalid="ignore"):
        mean = total / n_defined
        sd = np.sqrt(np.maximum(square / n_defined - np.square(mean), 0.0))
    return KendallCurve(
        **vars(settings),
        gold=read_only(truth, np.float64),
        mean=read_only(mean, np.float64),
        sd=read_only(sd, np.float64),
        undefined=read_only(1.0 - n_defined / replicates, np.float64),
    )


def _compare(scores: npt.NDArray[Any], pairs: tuple[Any, Any]) -> FloatArray:
    """Return −1, 0 or 1 for every pair; NaN where a score is."""
    lower, upper = scores[..., pairs[0]], scores[..., pairs[1]]
    # comparisons, unlike differences, do not overflow
    compared = (upper > lower).astype(np.float64) - (upper < lower)
    return np.where(np.isnan(lower) | np.isnan(upper), np.nan, compared)


def _tau_b(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return τ_b from the comparisons of two rankings, (..., P)."""
    # the root of a product, so that equal rankings give exactly 1.0
    untied = np.sqrt(np.abs(a).sum(axis=-1) * np.abs(b).sum(axis=-1))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.clip((a * b).sum(axis=-1) / untied, -1.0, 1.0))
