"""The posterior of the difference of two models' scores.

Given the data the two posteriors are independent. In scope "population" the questions are drawn
too, the same ones for both models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.distributions import Distribution
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.states import WeightedSum

#: Weights of questions drawn in all, and the fewest and the most draws of a bootstrap.
_BOOTSTRAP, _FEWEST, _MOST = 1_000_000, 4_000, 20_000


@dataclass(frozen=True, eq=False)
class PairedBootstrap(Distribution):
    """d̄ + κ Σ_α g_α (d_α − d̄) + ε, g ~ Dirichlet(c, …, c): a Bayesian bootstrap over questions.

    Parameters
    ----------
    difference : array, shape (M,)
        d_α, the difference of each question's mean scores; or T values of clusters, see
        `cluster_values`.
    spread : PairedSpread
        κ and the sd of ε, which is normal.
    """

    difference: FloatArray
    spread: PairedSpread
    seed: int = 0

    def __post_init__(self) -> None:
        n_draws = int(np.clip(_BOOTSTRAP // self.difference.size, _FEWEST, _MOST))
        object.__setattr__(self, "n_draws", n_draws)

    @property
    def mean(self) -> float:  # type: ignore[override]
        """Exact mean."""
        return float(self.difference.mean())

    @property
    def sd(self) -> float:  # type: ignore[override]
        """Exact standard deviation."""
        return float(self.spread.sd)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the population's difference `n_draws` times, shape (n_draws,)."""
        mean, size = self.difference.mean(), self.difference.size
        distance = self.difference - mean
        # the questions' order does not matter, nor whether it is A − B or B − A
        times: IntArray = np.ones(size, dtype=np.int64)
        if abs(mean) > 1e-12:  # questions of equal differences are drawn together
            distance, times = np.unique(distance, return_counts=True)
        order = np.lexsort((np.sign(distance) * np.sign(mean), np.abs(distance)))
        distance, weight = distance[order], bootstrap_weight(size) * times[order]
        # of the first sign that there is, so that A − B and B − A have the same draws but for it
        sign = next((each for each in np.sign([mean, *distance]) if each), 1.0)
        half = sign * float(self.spread.chance) * rng.standard_normal(-(-n_draws // 2))
        drawn = np.stack([half, -half], axis=1).ravel()[:n_draws]
        for part in blocks(n_draws, 2 * weight.size):
            share = rng.standard_gamma(weight, (part.stop - part.start, weight.size))
            off = share @ distance / share.sum(axis=1)
            drawn[part] += mean + self.spread.kappa * off
        return drawn


def difference_posterior(a: Posterior, b: Posterior) -> Posterior:
    """Return the posterior of A − B for two posteriors of scope "benchmark".

    Mean μ_A − μ_B and standard deviation sqrt(σ_A² + σ_B²) are exact; the distribution is drawn.

    Parameters
    ----------
    a, b : Posterior
        Of the same questions in the same order, independent given the data.

    Returns
    -------
    Posterior
        With bounds [low_A − high_B, high_A − low_B].

    Examples
    --------
    One trial right for A, one wrong for B: Beta(2, 1) minus Beta(1, 2).

    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> a, b = (bayes_at_n(Outcomes.from_matrix([[r]])) for r in (1, 0))
    >>> difference = difference_posterior(a, b)
    >>> round(difference.mu, 6), round(p_above(difference, 0.0), 2)
    (0.333333, 0.83)
    """
    # the larger first, so that A − B and B − A have the same draws but for their sign
    first, second = sorted((a, b), key=lambda side: (side.mu, side.sigma), reverse=True)
    signs = (1.0, -1.0) if first is a else (-1.0, 1.0)
    # of equal moments no order is the larger one
    equal = (a.mu, a.sigma) == (b.mu, b.sigma)
    distribution = WeightedSum((first.distribution, second.distribution), signs, symmetric=equal)
    moments = a.mu - b.mu, float(np.hypot(a.sigma, b.sigma))
    return posterior_of_difference(a, b, moments, distribution)


class PairedSpread(NamedTuple):
    """The sd of a difference that is paired by question, and its components.

    `chance` is the sd due to the sampling of trials, and `kappa`² the share of the bootstrap's
    variance that is due to the differences between questions.
    """

    sd: FloatArray
    chance: FloatArray
    kappa: FloatArray


def cluster_values(
    average: FloatArray, noise: FloatArray, cluster_index: IntArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return values of clusters in place of questions, for the spread of a mean over questions.

    The mean over the questions of a sample of clusters with weights g_t is
    ā + Σ_t g_t Σ_{α in t} (a_α − ā)/n̄ to first order, n̄ = M/T being the mean number of questions
    of a cluster. The value of a cluster is ā + Σ_{α in t} (a_α − ā)/n̄, so that the mean of these
    values is ā.

    Parameters
    ----------
    average, noise : array, shape (..., M)
        Mean scores of the questions, or differences of them, and their sampling variances.
    cluster_index : array of int, shape (M,), or None
        The number of each question's cluster; without it the questions are returned.

    Returns
    -------
    value, noise : array, shape (..., T)

    Examples
    --------
    >>> index = np.array([0, 0, 0, 1])
    >>> value, noise = cluster_values(np.array([0.2, 0.4, 0.6, 0.8]), np.full(4, 0.01), index)
    >>> value.round(6).tolist(), noise.round(6).tolist()
    ([0.35, 0.65], [0.0075, 0.0025])
    """
    if cluster_index is None:
        return average, noise
    n_clusters = int(cluster_index.max()) + 1
    member = np.zeros((cluster_index.size, n_clusters))
    member[np.arange(cluster_index.size), cluster_index] = n_clusters / cluster_index.size
    mean = average.mean(axis=-1, keepdims=True)
    return mean + (average - mean) @ member, noise @ member**2


def paired_spread(
    difference: FloatArray, noise: FloatArray, *, clustered: bool = False
) -> PairedSpread:
    """Return the sd of a population's difference, see `SharedQuestions`.

    Parameters
    ----------
    difference : array, shape (..., M)
        The difference of the mean scores of every question.
    noise : array, shape (..., M)
        Its sampling variance.
    clustered : bool
        Whether they are those of clusters, of which there are few: the variance is then s²/T times
        (t/1.96)², with t the 97.5% quantile of Student's t at T − 1 degrees of freedom.

    Returns
    -------
    PairedSpread
        Of arrays of shape (...).

    Examples
    --------
    Four questions without sampling variance have Σ (d_α − d̄)²/M over M·½ + 1 = 3 for a variance:

    >>> round(float(paired_spread(np.array([0.1, 0.3, 0.5, 0.7]), np.zeros(4)).sd), 4)  # √(.05/3)
    0.1291

    For four equal ones the variance is that of the trials:

    >>> round(float(paired_spread(np.zeros(4), np.full(4, 0.04)).sd), 4)  # √(.04/4)
    0.1
    """
    n_questions = difference.shape[-1]
    centre = difference.mean(axis=-1, keepdims=True)
    bootstrap = ((difference - centre) ** 2).mean(axis=-1)
    bootstrap /= n_questions * bootstrap_weight(n_questions) + 1.0
    between = bootstrap * (few_clusters_factor(n_questions) if clustered else 1.0)
    chance = noise.mean(axis=-1) / n_questions
    rest = np.maximum(between - chance, 0.0)
    share = np.divide(rest, bootstrap, out=np.zeros_like(rest), where=bootstrap > 0.0)
    return PairedSpread(np.sqrt(rest + chance), np.sqrt(chance), np.sqrt(share))


def spreads_of_pairs(average: FloatArray, noise: FloatArray, *, clustered: bool) -> PairedSpread:
    """Return `paired_spread` of every two of L models, (L, L), from arrays of shape (L, M)."""
    rows = [
        paired_spread(of_model - average, noise_of_model + noise, clustered=clustered)
        for of_model, noise_of_model in zip(average, noise, strict=True)
    ]
    return PairedSpread(*(np.stack(parts) for parts in zip(*rows, strict=True)))


def few_clusters_factor(n_clusters: int) -> float:
    """Return the factor from the bootstrap's variance of T clusters to that of Student's t."""
    t = float(special.stdtrit(n_clusters - 1, 0.975) / special.ndtri(0.975))
    precision = n_clusters * bootstrap_weight(n_clusters) + 1.0
    return t**2 * precision / (n_clusters - 1)


def bootstrap_weight(n_questions: int) -> float:
    """Return c, the Dirichlet parameter of each question's weight in the bootstrap.

    c = 1 − 4/M gives a mean of independent values the variance s²/M · (M − 1)/(M − 3) that
    Student's t gives it, and not the bootstrap's own (M − 1)/(M + 1); for M below 8 it is ½.

    Examples
    --------
    >>> bootstrap_weight(100), bootstrap_weight(4)
    (0.96, 0.5)
    """
    return max(1.0 - 4.0 / n_questions, 0.5)


def p_above(difference: Posterior, threshold: float) -> float:
    """Return P(D > threshold) + ½ P(D = threshold)."""
    if difference.sigma == 0.0:
        return float(0.5 + 0.5 * np.sign(difference.mu - threshold))
    return float(1.0 - difference.distribution.cdf(np.array([threshold]))[0])


def separation_in_sd(difference: float, sd: float) -> float:
    """Return z = |difference| / sd [Hariri 2026, §2.5]; 0 for equal means, else up to ∞."""
    if difference == 0.0:
        return 0.0
    return abs(difference) / sd if sd > 0.0 else float("inf")


def draw_variance(n_draws: int, posteriors: Iterable[Posterior]) -> float:
    """Return the variance of a mean of draws in units of that of a single one.

    For rubrics each posterior's hyperparameters are represented by weighted particles, drawn
    once, with the effective sample size `ess`. The parts of an outcome's variance that are due to
    the models' hyperparameters sum to at most all of it (the first terms of Hoeffding's
    decomposition). So 1/n_draws + 1/ess, with the smallest ess, is an upper bound.

    Parameters
    ----------
    n_draws : int
        Draws, independent given the particles.
    posteriors : iterable of Posterior
        What is drawn from.
    """
    particles = [posterior.ess for posterior in posteriors if posterior.ess is not None]
    return 1.0 / n_draws + (1.0 / min(particles) if particles else 0.0)


def posterior_of_difference(
    a: Posterior,
    b: Posterior,
    moments: tuple[float, float],
    distribution: Distribution,
    scope: Scope = "benchmark",
) -> Posterior:
    """Return the posterior of a difference with this mean and sd and this distribution."""
    bounds = (a.bounds[0] - b.bounds[1], a.bounds[1] - b.bounds[0])
    is_population, (mean, sd) = scope == "population", moments
    sides = (a.note_on_data, b.note_on_data) if is_population else (a.note, b.note)
    return Posterior(
        quantity=f"difference of {a.quantity}",
        mu=float(np.clip(mean, *bounds)),
        sigma=sd,
        per_question=PerQuestion(
            a.per_question.mu - b.per_question.mu,
            np.hypot(a.per_question.sigma, b.per_question.sigma),
        ),
        bounds=bounds,
        prior=a.prior,
        distribution=distribution,
        scope=scope,
        k=a.k,
        tau=a.tau,
        note=joined_notes(sides),
    )
