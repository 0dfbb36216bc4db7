"""Simultaneous comparisons of all pairs of models, with a familywise guarantee.

With L models there are L(L − 1)/2 pairs, and the largest |z| of many is large by chance alone.
Here a pair counts as separated if its |z| exceeds the quantile of the largest |z| under errors
drawn jointly for all pairs, so that with the given confidence no pair is separated the wrong way.
A step-down procedure [Romano & Wolf 2005] repeats this for the comparisons that are left. The
separations give confidence sets for the ranks [Mogstad et al. 2024].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks, protect
from lm_eval_bayes.stats.comparison.difference import (
    bootstrap_weight,
    few_clusters_factor,
    spreads_of_pairs,
)
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.tie_rules import distance_in_sd

BoolArray = npt.NDArray[np.bool_]

#: Errors of pairs drawn in all, and the fewest and the most joint draws.
_PAIR_DRAWS, _MIN_DRAWS, _MAX_DRAWS = 4_000_000, 4_000, 20_000
#: The fewest where there are more pairs than this.
_MANY_PAIRS, _MIN_DRAWS_OF_MANY = 1_500, 1_200
#: Numbers of matrices drawn at a time.
_AT_ONCE = 250_000
#: Means of fewer trials per question have an uncertain sampling variance.
_REPLICATED = 2.0


@dataclass(frozen=True, eq=False)
class SimultaneousComparisons(Record):
    """All pairs of L models compared at once; every array follows the models' order.

    Attributes
    ----------
    confidence : float
        Probability that every statement below is true, for each of the joint ones together.
    critical_value : float
        The |z| beyond which a pair is separated in the first step; later steps have smaller ones.
        0 for a single model.
    z : array, shape (L, L)
        (mean of i − mean of j) / sd of every two models, with its sign.
    separated : array of bool, shape (L, L)
        ``[i, j]``: whether model i is better than model j.
    rank_low, rank_high : array, shape (L,)
        Confidence sets for the ranks of all models jointly: 1 plus the number of models that
        are better, and L less the number that are worse.
    draws, seed : int
        The joint draws of the errors, 4,000 to 20,000 by the number of pairs (1,200 beyond 1,500
        pairs). The critical value has a standard error of about .015 for up to twenty models.
    """

    confidence: float
    critical_value: float
    z: FloatArray
    separated: BoolArray
    rank_low: FloatArray
    rank_high: FloatArray
    draws: int
    seed: int

    def __post_init__(self) -> None:
        protect(self)


class DrawnErrors(NamedTuple):
    """Errors of the differences of P pairs, (P, draws), and the variances estimated beside them.

    A known variance has a single column. Single precision is enough for quantiles, in half the
    memory.
    """

    error: npt.NDArray[np.float32]
    variance: npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class PairErrors:
    """The estimated differences of all pairs i < j on one task, and draws of their errors.

    Attributes
    ----------
    difference, variance : array, shape (P,)
        In the order of ``np.triu_indices(L, 1)``.
    draw : callable
        From the number of draws and a generator, the errors and the variances estimated beside
        them.
    """

    difference: FloatArray
    variance: FloatArray
    draw: Callable[[int, np.random.Generator], DrawnErrors]


def independent_errors(mu: FloatArray, sigma: FloatArray, freedom: float = np.inf) -> PairErrors:
    """Return the errors of models whose scores are independent given their trials.

    In the draws a sampling variance is σ² χ²/freedom, and never more than σ²: critical values are
    at least those of known variances.

    Parameters
    ----------
    mu, sigma : array, shape (L,)
        Posterior means and standard deviations.
    freedom : float
        Degrees of freedom behind each sd; ∞ where it is certain.
    """
    first, second = np.triu_indices(mu.size, 1)
    variance = np.asarray(sigma[first] ** 2 + sigma[second] ** 2)

    def draw(draws: int, rng: np.random.Generator) -> DrawnErrors:
        by_model = (sigma * rng.standard_normal((draws, mu.size))).astype(np.float32).T
        error = by_model[first] - by_model[second]
        if np.isinf(freedom):
            return DrawnErrors(error, variance[:, None])
        share = rng.chisquare(freedom, (draws, mu.size)) / freedom
        by_model = (sigma**2 * np.minimum(share, 1.0)).astype(np.float32).T
        return DrawnErrors(error, by_model[first] + by_model[second])

    return PairErrors(mu[first] - mu[second], variance, draw)


def paired_errors(
    average: FloatArray, noise: FloatArray, *, clustered: bool = False, about_zero: bool = False
) -> PairErrors:
    """Return the errors of models that answered the same M questions, a sample of a population.

    The covariance of the questions' mean scores is estimated from the M questions, so that a
    question's effect on all models cancels in every difference. As in `compare`, the variance of
    a difference is at least that due to the sampling of trials. In the draws that covariance is
    a Wishart matrix with M − 1 degrees of freedom, independent of the means. Where the variance
    has a lower bound it is never drawn larger than estimated, so that critical values are at
    least those of known variances.

    Parameters
    ----------
    average : array, shape (L, M)
        The mean score of every question.
    noise : array, shape (L, M)
        Its sampling variance.
    clustered : bool
        Whether these are the values of M clusters of questions. Their covariance is not estimated
        then, but models are taken to be independent in the draws.
    about_zero: bool
        Whether a variance is at least that of the questions' differences about 0, as it is between
        equal models: few differences that agree by chance have no variance about their mean.
    """
    n_models, n_questions = average.shape
    first, second = np.triu_indices(n_models, 1)
    freedom, mean = n_questions - 1, average.mean(axis=1)
    # from the mean of squared differences of questions to the variance of the mean difference
    to_variance = 1.0 / (n_questions * bootstrap_weight(n_questions) + 1.0)
    if clustered:
        to_variance *= few_clusters_factor(n_questions)
    chance = noise.mean(axis=1) / n_questions
    least = chance[first] + chance[second]
    if about_zero:
        square = to_variance * _of_pairs(average @ average.T / n_questions, first, second)
        least = np.maximum(least, square)
    spread = spreads_of_pairs(average, noise, clustered=clustered)
    estimated = np.maximum(spread.sd[first, second] ** 2, least)
    factor = _factor(average, clustered=clustered)
    n_factors = factor.shape[1]
    of_mean = _of_pairs(factor @ factor.T, first, second) / n_questions
    # what an error lacks of its least variance is independent for every model
    lacking = np.sqrt(0.5 * np.maximum(least - of_mean, 0.0))
    largest = np.maximum(to_variance * of_mean * freedom, least) if clustered else estimated
    largest = np.where(least > 0.0, largest, np.inf)[:, None]

    def draw(draws: int, rng: np.random.Generator) -> DrawnErrors:
        error, variance = np.empty((2, first.size, draws), dtype=np.float32)
        for part in blocks(draws, n_models * n_models, _AT_ONCE):
            size = part.stop - part.start
            drawn = rng.standard_normal((size, n_factors)) @ factor.T / np.sqrt(n_questions)
            rest = rng.standard_normal((size, n_models))
            error[:, part] = (drawn[:, first] - drawn[:, second]).T
            error[:, part] += (lacking * (rest[:, first] - rest[:, second])).T
            root = factor @ _wishart_roots(size, n_factors, freedom, rng)
            square = _of_pairs(root @ root.transpose(0, 2, 1), first, second)
            variance[:, part] = np.maximum(to_variance / n_questions * square, least).T
        return DrawnErrors(error, np.minimum(variance, largest, out=variance))

    return PairErrors(mean[first] - mean[second], estimated, draw)


def _of_pairs(product: FloatArray, first: IntArray, second: IntArray) -> FloatArray:
    """Return |x_i − x_j|² of pairs from the inner products of all x, (..., L, L)."""
    own = np.einsum("...ii->...i", product)
    between = own[..., first] + own[..., second] - 2.0 * product[..., first, second]
    return np.asarray(between)


def _factor(average: FloatArray, *, clustered: bool) -> FloatArray:
    """Return F, (L, K), such that F Fᵀ is the covariance of the models' scores of a question.

    With clusters it is that of independent models of equal variance: few clusters tell too
    little of it, and may be fewer than the models. (With their own covariance six equal models
    with independent effects of 5 to 20 clusters were separated on 7–8% of boards.)
    """
    n_models, freedom = len(average), average.shape[1] - 1
    centred = (average - average.mean(axis=1, keepdims=True)) / np.sqrt(freedom)
    if not clustered:
        left, scale, _ = np.linalg.svd(centred, full_matrices=False)
        n_factors = min(n_models, freedom)
        return np.asarray(left[:, :n_factors] * scale[:n_factors])
    of_pairs = n_models * (centred**2).sum() - (centred.sum(axis=0) ** 2).sum()
    return np.asarray(np.eye(n_models) * np.sqrt(of_pairs / max(n_models * (n_models - 1), 1)))


def _mixed_errors(chosen: BoolArray, first: PairErrors, second: PairErrors) -> PairErrors:
    """Return those of `first` for the chosen pairs, and of `second` for the others."""

    def draw(draws: int, rng: np.random.Generator) -> DrawnErrors:
        both = zip(first.draw(draws, rng), second.draw(draws, rng), strict=True)
        return DrawnErrors(*(np.where(chosen[:, None], x, y) for x, y in both))

    return PairErrors(
        np.where(chosen, first.difference, second.difference),
        np.where(chosen, first.variance, second.variance),
        draw,
    )


def _wishart_roots(draws: int, size: int, freedom: int, rng: np.random.Generator) -> FloatArray:
    """Return T with T Tᵀ ~ Wishart(I, freedom), (draws, K, min(K, freedom)).

    Lower triangular [Bartlett] where there are as many degrees of freedom as rows.
    """
    if freedom < size:
        return rng.standard_normal((draws, size, freedom))
    roots = np.tril(rng.standard_normal((draws, size, size)), -1)
    diagonal = np.arange(size)
    roots[:, diagonal, diagonal] = np.sqrt(rng.chisquare(freedom - diagonal, (draws, size)))
    return roots


def pair_errors(posteriors: Sequence[Posterior]) -> PairErrors:
    """Return the differences of all pairs of models on one task, and their errors.

    In scope "population" the questions are paired where all models answered the same ones. In
    scope "benchmark" the scores are independent given the trials, each sd with 2M(N − 1) degrees of
    freedom, of the model with the smallest N from 2 on. With fewer than two trials per question the
    sampling variance and the differences between questions cannot be distinguished, and the
    posterior sd depends on the prior: a pair with such a model is compared as in scope
    "population" where questions can be paired, whose variance is the larger one; its lower bound is
    then not from the prior but the variance of the questions' differences about 0.

    Parameters
    ----------
    posteriors : sequence of Posterior
        One per model, of one scope.
    """
    trials = [np.inf if p.n_trials is None else p.n_trials for p in posteriors]
    few = np.array([n < _REPLICATED for n in trials])
    population = posteriors[0].scope == "population"
    shared = SharedQuestions.of(posteriors) if population or few.any() else None
    paired = None
    if shared is not None:
        average, noise = shared.question_means
        paired = paired_errors(
            average,
            np.where(few[:, None], 0.0, noise),
            clustered=shared.cluster_index is not None,
            about_zero=bool(few.any()),
        )
    if paired is not None and population:
        return paired
    # proportions vary less than normal scores, of which it is M(N − 1): as with 1.7 and 14 times as
    # many where the logits of 30 questions have sd 1.5 and .5, and .8 times where 3
    repeated = min((n for n in trials if n >= _REPLICATED), default=np.inf)
    freedom = np.inf if population else 2.0 * posteriors[0].per_question.mu.size * (repeated - 1.0)
    independent = independent_errors(
        np.array([posterior.mu for posterior in posteriors]),
        np.array([posterior.sigma for posterior in posteriors]),
        freedom,
    )
    if paired is None:
        return independent
    first, second = np.triu_indices(few.size, 1)
    return _mixed_errors(few[first] | few[second], paired, independent)


def compare_simultaneously(
    tasks: Sequence[PairErrors],
    n_models: int,
    confidence: float,
    seed: int,
    tolerance: float = 0.0,
    *,
    in_order: bool = False,
) -> SimultaneousComparisons:
    """Compare all pairs of models on the mean of one or more tasks.

    Every ordered pair is a hypothesis, "i is not better than j", tested by its z. The critical
    value is the quantile of the largest statistic among the hypotheses that are left, under
    errors drawn jointly and divided by sds, which are drawn too where they are estimated. The
    rejected hypotheses are left out and the rest is tested again, until none is.
    What follows
    from the rejections (i better than j, j than k, so i than k) counts as separated too.

    Parameters
    ----------
    tasks : sequence of PairErrors
        One per task, of the same models in the same order; tasks are independent and have equal
        weights.
    n_models : int
        L.
    confidence : float
        In [0.5, 1): the probability that no pair is separated the wrong way.
    seed : int
        Seed of the draws.
    tolerance : float
        Differences up to this are rounding: such a pair is never separated.
    in_order : bool
        Whether the models are in descending order of their posterior means. A pair whose observed
        difference contradicts that order is then never separated.

    Examples
    --------
    Three models with sd .03; for a single pair a difference of 1.96 · .03 · √2 = .083 would do:

    >>> errors = independent_errors(np.array([0.60, 0.51, 0.40]), np.full(3, 0.03))
    >>> result = compare_simultaneously([errors], 3, 0.95, seed=0)
    >>> 2.2 < result.critical_value < 2.5, result.separated.astype(int).tolist()
    (True, [[0, 0, 1], [0, 0, 1], [0, 0, 0]])
    >>> result.rank_low.tolist(), result.rank_high.tolist()
    ([1.0, 1.0, 3.0], [2.0, 2.0, 3.0])
    """
    difference = np.mean([task.difference for task in tasks], axis=0)
    variance = np.sum([task.variance for task in tasks], axis=0) / len(tasks) ** 2
    size = difference if in_order else np.abs(difference)
    difference = np.where(size > tolerance, difference, 0.0)
    z = np.sign(difference) * distance_in_sd(np.abs(difference), np.sqrt(variance))
    fewest = _MIN_DRAWS if z.size <= _MANY_PAIRS else _MIN_DRAWS_OF_MANY
    draws = int(np.clip(_PAIR_DRAWS // max(z.size, 1), fewest, _MAX_DRAWS))
    statistic = _draw_statistics(tasks, variance > tolerance**2, draws, seed)
    first, second = np.triu_indices(n_models, 1)
    critical_value, is_better = _step_down(z, statistic, confidence)
    separated = _implied(_by_models(is_better, first, second, n_models))
    return SimultaneousComparisons(
        confidence=confidence,
        critical_value=critical_value,
        z=_by_models(np.stack([z, -z]), first, second, n_models),
        separated=separated,
        rank_low=1.0 + separated.sum(axis=0),
        rank_high=n_models - separated.sum(axis=1).astype(np.float64),
        draws=draws,
        seed=seed,
    )


def _draw_statistics(
    tasks: Sequence[PairErrors], is_uncertain: BoolArray, draws: int, seed: int
) -> npt.NDArray[np.float32]:
    """Draw error / sd of the mean of the tasks for every pair, shape (P, draws).

    Pairs whose difference is certain have 0.
    """
    streams = np.random.SeedSequence(seed).spawn(len(tasks))
    error, variance = tasks[0].draw(draws, np.random.default_rng(streams[0]))
    for task, stream in zip(tasks[1:], streams[1:], strict=True):
        of_task = task.draw(draws, np.random.default_rng(stream))
        error += of_task.error
        variance = variance + of_task.variance
        del of_task  # before the next is drawn: each has a number per pair and draw
    sd = np.sqrt(variance, out=variance)
    sd[sd == 0.0] = np.inf
    error /= sd
    error[~is_uncertain] = 0.0
    return error


def _step_down(
    z: FloatArray, statistic: npt.NDArray[np.float32], confidence: float
) -> tuple[float, BoolArray]:
    """Return the first critical value, and which hypotheses are rejected, shape (2, P).

    ``[0, p]``: the first model of pair p is better; ``[1, p]``: the second is.

    Parameters
    ----------
    z : array, shape (P,)
        With the sign of the first model less the second.
    statistic : array, shape (P, draws)
        From `_draw_statistics`.
    """
    rejected = np.zeros((2, z.size), dtype=np.bool_)
    signed = np.stack([z, -z])
    first_value: float | None = None
    while not rejected.all():
        left = ~rejected
        largest = np.zeros(statistic.shape[1])
        for part in blocks(z.size, largest.size):
            drawn, (up, down) = statistic[part], left[:, part]
            if up.any():
                np.maximum(largest, drawn[up].max(axis=0), out=largest)
            if down.any():
                np.maximum(largest, -drawn[down].min(axis=0), out=largest)
        value = float(np.quantile(largest, confidence))
        first_value = value if first_value is None else first_value
        new = left & (signed > value)
        if not new.any():
            break
        rejected |= new
    return first_value or 0.0, rejected


def _by_models(
    values: npt.NDArray[Any], first: IntArray, second: IntArray, n_models: int
) -> npt.NDArray[Any]:
    """Return ``[i, j]``: what holds of model i and j, from the pairs' two directions, (2, P)."""
    matrix = np.zeros((n_models, n_models), dtype=values.dtype)
    matrix[first, second], matrix[second, first] = values
    return matrix


def _implied(better: BoolArray) -> BoolArray:
    """Return which model is better than which, by a chain of separations."""
    while True:
        longer = better | (better.astype(np.int64) @ better.astype(np.int64) > 0)
        if (longer == better).all():
            return better
        better = longer
