"""Laws: the true posterior distribution of a benchmark's score, from which intervals come.

The score is s̄ = (1/M) Σ_α s_α. Every law can be drawn from, as a whole or question by
question. Where each s_α is a rising function of one Beta variable (two distinct weights,
and the whole pass family) the law's quantiles are computed; where it is a weighted
Dirichlet vector they are drawn. The laws of a prior learned across questions stand in
:mod:`lm_eval_bayes.stats.distributions.mixtures`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.validation import FloatArray, protect

#: Numbers drawn at a time, which bounds the memory of a draw.
BLOCK = 2_000_000


class Law(Protocol):
    """The distribution of a benchmark's score."""

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M).

        A law of scope "population" speaks of no question and raises `InvalidInputError`.
        """


@dataclass(frozen=True, eq=False)
class BetaLaw:
    """s_α = low + (high − low)·curve(p_α) with p_α ~ Beta(a_α, b_α), low <= high.

    Parameters
    ----------
    a, b : array, shape (M,)
        Beta parameters of the M questions.
    curve : Curve
        What p_α scores.
    low, high : float
        The scores that curve values 0 and 1 stand for.
    """

    a: FloatArray
    b: FloatArray
    curve: Curve
    low: float
    high: float

    def __post_init__(self) -> None:
        protect(self)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return mean_in_blocks(self, self.a.size, n_draws, rng)

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions, shape (n_draws, M)."""
        p, q = draw_beta(self.a, self.b, (n_draws, self.a.size), rng)
        return np.asarray(self.low + (self.high - self.low) * self.curve.value(p, q))


@dataclass(frozen=True, eq=False)
class DirichletLaw:
    """s_α = Σ_k w_k θ_αk with θ_α ~ Dirichlet(ν_α).

    Parameters
    ----------
    nu : array, shape (M, C+1)
        Dirichlet parameters above 0.
    weights : array, shape (C+1,)
        The score of each category.
    """

    nu: FloatArray
    weights: FloatArray

    def __post_init__(self) -> None:
        protect(self)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return mean_in_blocks(self, self.nu.size, n_draws, rng)

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions, shape (n_draws, M)."""
        nu = np.broadcast_to(self.nu, (n_draws, *self.nu.shape))
        return draw_dirichlet_scores(nu, self.weights, rng)


def mean_in_blocks(law: Law, per_draw: int, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Average a law's questions draw by draw, never holding more than a block of numbers.

    Parameters
    ----------
    law : Law
        Whose questions are averaged.
    per_draw : int
        How many random numbers one draw takes.
    n_draws : int
        How many draws.
    rng : Generator
        The source of the draws.

    Returns
    -------
    array, shape (n_draws,)
    """
    means = np.empty(n_draws)
    block = max(1, BLOCK // per_draw)
    for start in range(0, n_draws, block):
        stop = min(n_draws, start + block)
        means[start:stop] = law.draw_questions(stop - start, rng).mean(axis=1)
    return means


def draw_beta(
    a: FloatArray, b: FloatArray, size: tuple[int, ...], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw p ~ Beta(a, b) and q = 1 − p, each with its own digits."""
    x, y = rng.standard_gamma(a, size=size), rng.standard_gamma(b, size=size)
    total = x + y
    # With both parameters near 0 both gammas can underflow: then one of two atoms it is.
    lost = total == 0.0
    if lost.any():
        top = rng.random(size) < a / (a + b)
        x, y = np.where(lost, top, x), np.where(lost, ~top, y)
        total = x + y
    return x / total, y / total


def draw_dirichlet_scores(
    nu: FloatArray, weights: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw Σ_k w_k θ_k with θ ~ Dirichlet(ν) for ν of shape (..., C+1)."""
    low = weights.min()
    span = weights.max() - low
    scaled = (weights - low) / span if span > 0.0 else np.zeros_like(weights)
    gammas = rng.standard_gamma(nu)
    totals = gammas.sum(axis=-1)
    # With parameters near 0 every gamma of a question can underflow: one atom it is.
    lost = totals == 0.0
    if lost.any():
        share = np.cumsum(nu[lost], axis=-1)
        atom = (rng.random(int(lost.sum()))[:, None] * share[:, -1:] > share).sum(axis=-1)
        gammas[lost] = np.eye(weights.size)[atom]
        totals = gammas.sum(axis=-1)
    return np.asarray(low + span * ((gammas @ scaled) / totals))
