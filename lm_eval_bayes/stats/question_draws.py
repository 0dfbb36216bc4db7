"""Joint posterior draws of all questions' category probabilities.

For two categories the draws are averaged over models of how the p_α of questions differ:

1. one Beta distribution, the learned prior of `hbayes_at_n`;
2. the same p for all questions, with a tenth of the prior probability of model 1;
3. two kinds of questions, each with a Beta distribution (`hierarchical.two_kinds`), and
4. two kinds of questions, with the same p for all of a kind, as probable as model 1.

The variance between questions depends on the model more than their mean does: under one Beta
distribution it is never 0, and few questions of two kinds are taken for ones that are certain.
Models 3 and 4 enter where the trials make two kinds more probable than one. With the prior
probability of model 1 for model 2, intervals of the share between questions held .81 in place of
.89 on 30 questions with p uniform and two trials each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.distributions.mixtures import draw_particles
from lm_eval_bayes.stats.hierarchical.beta_binomial import hyper_posterior
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n, trials_by_weight
from lm_eval_bayes.stats.hierarchical.hyperprior import LOG_PRIOR_MASS, MEAN_SHAPE
from lm_eval_bayes.stats.hierarchical.two_kinds import EqualKinds, TwoKinds, equal_kinds
from lm_eval_bayes.stats.outcomes import Outcomes, distinct_pairs, scaled_weights
from lm_eval_bayes.stats.pass_family.several_kinds import is_known, probable_kinds
from lm_eval_bayes.stats.sequential.predictive_draws import PredictiveTrials

#: Log prior odds of the same p for all questions against one Beta distribution.
_EQUAL = float(np.log(0.1))
#: A larger log s is replaced by this one, at which the questions of a kind have the same p.
_MOST_LOG_STRENGTH = 30.0
_SMALLEST = float(np.finfo(np.float64).tiny)


class QuestionDraws(NamedTuple):
    """Draws of the category probabilities of all questions.

    `truth`, shape (D, M, K), are the probabilities of the K categories with distinct weights,
    `unit`, shape (K,), their scores scaled to [0, 1], and `span` the range of scores.
    """

    truth: FloatArray
    unit: FloatArray
    span: float


def draw_questions(outcomes: Outcomes, draws: int, seed: int) -> QuestionDraws:
    """Draw the category probabilities of all questions from their posterior.

    Parameters
    ----------
    outcomes : Outcomes
        M questions, or `ScoreOutcomes` as quasi-counts. Of more than two distinct weights, and
        of scores, the draws are those of the learned prior (model 1).
    draws : int
        D.
    seed : int
        Their seed.
    """
    rng = np.random.default_rng(seed)
    at_top = outcomes.top_categories()
    if at_top is None or outcomes.scored:
        drawn = PredictiveTrials.of(hbayes_at_n(outcomes, seed=seed), draws, rng)
        return QuestionDraws(drawn.truth, drawn.unit, drawn.span)
    x, y = trials_by_weight(outcomes, at_top)
    low, high = outcomes.bounds
    _, span, unit = scaled_weights(np.array([low, high]))
    p, q = _draw_pairs(x, y, draws, rng)
    return QuestionDraws(np.stack([q, p], axis=2), unit, span)


def _draw_pairs(
    x: FloatArray, y: FloatArray, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return draws of p and 1 − p given successes and failures (M,), each (D, M)."""
    pairs, grid = distinct_pairs(x, y), hyper_posterior(x, y)
    of_mean = float(special.betaln(MEAN_SHAPE, MEAN_SHAPE))
    log_masses = [
        grid.log_mass - LOG_PRIOR_MASS - of_mean,
        float(special.betaln(x.sum() + MEAN_SHAPE, y.sum() + MEAN_SHAPE)) - of_mean + _EQUAL,
    ]
    kinds, alike = probable_kinds(pairs, grid), None
    if kinds is not None and is_known(kinds):
        alike = equal_kinds(pairs, kinds)
        log_masses += [kinds.log_mass, kinds.log_mass + _log_odds(alike.probability)]
    share = np.exp(log_masses - np.max(log_masses))
    sizes = rng.multinomial(draws, share / share.sum())
    nodes = (grid.logit_mean.ravel(), grid.log_strength.ravel(), grid.weight.ravel())
    parts = []
    if sizes[0]:
        parts.append(_draw_beta(x, y, nodes, int(sizes[0]), rng))
    if sizes[1]:
        parts.append(_draw_equal(x, y, int(sizes[1]), rng))
    if kinds is not None and alike is not None:
        if sizes[2]:
            parts.append(_draw_kinds(x, y, pairs.where, kinds, int(sizes[2]), rng))
        if sizes[3]:
            parts.append(_draw_equal_kinds(pairs.where, alike, int(sizes[3]), rng))
    p, q = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return p, q


def _draw_beta(
    x: FloatArray,
    y: FloatArray,
    nodes: tuple[FloatArray, FloatArray, FloatArray],
    draws: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw p_α ~ Beta(x_α + s m, y_α + s (1 − m)) with (logit m, log s, weight) of nodes, (G,)."""
    logit_mean, log_strength, weight = nodes
    at = draw_particles(weight, draws, rng)
    s, logit = np.exp(log_strength[at]), logit_mean[at]
    a, b = s * special.expit(logit), s * special.expit(-logit)
    return _beta(x + a[:, None], y + b[:, None], rng)


def _draw_equal(
    x: FloatArray, y: FloatArray, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw the same p for all questions."""
    p, q = _beta(
        np.full((draws, 1), x.sum() + MEAN_SHAPE), np.full((draws, 1), y.sum() + MEAN_SHAPE), rng
    )
    return np.repeat(p, x.size, axis=1), np.repeat(q, x.size, axis=1)


def _draw_kinds(
    x: FloatArray,
    y: FloatArray,
    where: IntArray,
    kinds: TwoKinds,
    draws: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw every question's kind, and p given its kind."""
    at = draw_particles(kinds.weight, draws, rng)
    second = _draw_seconds(kinds.first_kind, at, where, rng)
    logit = np.where(second, kinds.logit_mean[1, at][:, None], kinds.logit_mean[0, at][:, None])
    log_s = np.where(second, kinds.log_strength[1, at][:, None], kinds.log_strength[0, at][:, None])
    s = np.exp(np.minimum(log_s, _MOST_LOG_STRENGTH))
    return _beta(x + s * special.expit(logit), y + s * special.expit(-logit), rng)


def _draw_equal_kinds(
    where: IntArray, alike: EqualKinds, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw every question's kind, whose p is that of the question."""
    at = draw_particles(alike.weight, draws, rng)
    second = _draw_seconds(alike.first_kind, at, where, rng)
    logit = np.where(second, alike.logit_p[1, at][:, None], alike.logit_p[0, at][:, None])
    return special.expit(logit), special.expit(-logit)


def _draw_seconds(
    first_kind: FloatArray, at: IntArray, where: IntArray, rng: np.random.Generator
) -> FloatArray:
    """Draw which questions are of the second kind, (D, M), given the points `at`, (D,)."""
    first = first_kind[at][:, where]
    return np.asarray(rng.random(first.shape) >= first)


def _beta(a: FloatArray, b: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw from Beta(a, b), and return 1 − p with its own digits."""
    # with parameters near 0 both gammas can underflow
    p = np.maximum(rng.standard_gamma(a), _SMALLEST)
    q = np.maximum(rng.standard_gamma(b), _SMALLEST)
    total = p + q
    return p / total, q / total


def _log_odds(probability: float) -> float:
    """Return the log odds of a probability that may be 0 or 1 by rounding."""
    return float(special.logit(np.clip(probability, 1e-15, 1.0 - 1e-15)))
