"""The posterior of a rubric's score where the questions share a prior learned from them all."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lm_eval_bayes.stats.distributions.mixtures import DirichletMixtureLaw, WeightedMeanLaw
from lm_eval_bayes.stats.hierarchical.dirichlet_multinomial import Particles, learn_particles
from lm_eval_bayes.stats.hierarchical.notes import note_on_trials
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import (
    IntervalMethod,
    LearnedPrior,
    PerQuestion,
    Posterior,
    Scope,
)
from lm_eval_bayes.stats.validation import FloatArray, read_only

#: The effective sample size below which a posterior says so.
FEW = 400.0


def category_posterior(
    outcomes: Outcomes, scope: Scope, level: float, method: IntervalMethod, seed: int
) -> Posterior:
    """Return the posterior of the score under a learned Dirichlet prior, for any weights.

    θ_α ~ Dirichlet(s·m) with m uniform on the simplex and 1/(1+s) uniform on (0, 1); (m, s)
    is integrated out by importance sampling. Scope "benchmark": the posterior of
    (1/M) Σ_α Σ_k w_k θ_αk, about these M questions. Scope "population": that of Σ_k w_k m_k,
    about questions like these. Prior trials count as trials, each worth `prior_strength`.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M >= 1 questions; N_α may differ and may be 0.
    scope : "benchmark" or "population"
        What the posterior is about; `per_question` is about the benchmark's questions in both.
    level, method
        What the posterior's `interval()` gives where nothing else is asked for.
    seed : int
        Seed of the particles that stand for (m, s).

    Returns
    -------
    Posterior
        With `ess`, `seed` and `learned` set. Its `mu`, `sigma` and `per_question` are on the
        scale of the weights; given (m, s) they are computed, so only (m, s) is sampled.

    Examples
    --------
    >>> counts = [[7, 1, 0], [8, 0, 0], [6, 2, 0], [1, 2, 5]]
    >>> outcomes = Outcomes.from_counts(counts)  # weights 0, ½, 1
    >>> posterior = category_posterior(outcomes, "benchmark", 0.95, "exact", seed=0)
    >>> round(posterior.mu, 2), round(posterior.sigma, 2), posterior.ess > 10_000
    (0.24, 0.05, True)
    """
    counts = outcomes.counts + outcomes.prior_strength * outcomes.prior_counts
    weights = outcomes.weights
    low, high = float(weights.min()), float(weights.max())
    span = high - low
    unit = (weights - low) / span if span > 0.0 else np.zeros_like(weights)
    # the order of the questions must not matter, not even to the last digit
    order = np.lexsort(counts.T)
    particles = learn_particles(counts[order], seed)
    moments = _moments(counts[order], unit, particles)
    mean, sd = np.empty(order.size), np.empty(order.size)
    mean[order], sd[order] = moments.question_mean, moments.question_sd
    benchmark = Posterior(
        quantity="hbayes@N",
        mu=float(np.clip(low + span * moments.mean, low, high)),
        sigma=span * moments.sd,
        per_question=PerQuestion(
            read_only(np.clip(low + span * mean, low, high), np.float64),
            read_only(span * sd, np.float64),
        ),
        bounds=(low, high),
        prior=None,
        law=DirichletMixtureLaw(
            read_only(counts, np.float64),
            read_only(particles.share * particles.strength[:, None], np.float64),
            particles.weight,
            weights,
        ),
        level=level,
        method=method,
        n_trials=outcomes.mean_trials,
        trials_range=outcomes.trials_range,
        learned=_learned(particles),
        ess=particles.ess,
        seed=seed,
        note=_note(outcomes, "benchmark", particles.ess),
        question_ids=outcomes.question_ids,
    )
    if scope == "benchmark":
        return benchmark
    return replace(
        benchmark,
        mu=float(np.clip(low + span * moments.population_mean, low, high)),
        sigma=span * moments.population_sd,
        law=WeightedMeanLaw(
            read_only(low + span * (particles.share @ unit), np.float64), particles.weight
        ),
        scope=scope,
        note=_note(outcomes, scope, particles.ess),
        benchmark=benchmark,
    )


class _Moments(NamedTuple):
    """Means and sds for weights in [0, 1]; the questions' have shape (M,)."""

    mean: float
    sd: float
    population_mean: float
    population_sd: float
    question_mean: FloatArray
    question_sd: FloatArray


def _moments(counts: FloatArray, unit: FloatArray, particles: Particles) -> _Moments:
    """Average over the particles what is known given (m, s).

    Question α has mean (1−κ) a + κ b and variance [(1−κ) A + κ B + κ(1−κ)(a−b)²] / (N+s+1),
    where a and A are the mean and variance of its own trials' scores, b and B those under
    m, and κ = s/(N+s). So the averages are polynomials in a and A, with the same
    coefficients for all questions of one N. Scores count from the population's mean.
    """
    weight, strength = particles.weight, particles.strength
    score = particles.share @ unit
    origin = float(weight @ score)
    b = score - origin
    spread = (particles.share * np.square(unit - score[:, None])).sum(axis=1)
    trials = counts.sum(axis=1)
    own = np.divide(counts, trials[:, None], out=np.zeros_like(counts), where=trials[:, None] > 0)
    average = own @ unit
    a = np.where(trials > 0.0, average - origin, 0.0)
    own_spread = (own * np.square(unit - average[:, None])).sum(axis=1)
    within, between, mean = (np.empty(trials.size) for _ in range(3))
    total = np.zeros_like(b)
    sizes, group = np.unique(trials, return_inverse=True)
    for index, n in enumerate(sizes):
        these = np.flatnonzero(group == index)
        here = a[these]
        pull, keep = strength / (n + strength), n / (n + strength)
        share = weight / (n + strength + 1.0)
        cross = share * pull * keep
        within[these] = (
            own_spread[these] * (share @ keep)
            + share @ (pull * spread)
            + cross.sum() * here**2
            - 2.0 * (cross @ b) * here
            + cross @ b**2
        )
        pulled = pull * b
        pull_mean, pulled_mean = weight @ pull, weight @ pulled
        mean[these] = here * (weight @ keep) + pulled_mean
        pull, pulled = pull - pull_mean, pulled - pulled_mean
        between[these] = (
            here**2 * (weight @ pull**2)
            - 2.0 * here * (weight @ (pull * pulled))
            + weight @ pulled**2
        )
        total += pulled * these.size - pull * here.sum()
    m = trials.size
    variance = within.sum() / m**2 + float(weight @ np.square(total)) / m**2
    return _Moments(
        mean=origin + float(mean.mean()),
        sd=float(np.sqrt(variance)),
        population_mean=origin,
        population_sd=float(np.sqrt(weight @ b**2)),
        question_mean=origin + mean,
        question_sd=np.sqrt(np.maximum(within, 0.0) + np.maximum(between, 0.0)),
    )


def _learned(particles: Particles) -> LearnedPrior:
    """Sum up what the questions taught about their common prior."""
    low, median, high = particles.quantile(particles.strength, np.array([0.025, 0.5, 0.975]))
    return LearnedPrior(
        mean=read_only(particles.weight @ particles.share, np.float64),
        strength=float(median),
        strength_low=float(low),
        strength_high=float(high),
    )


def _note(outcomes: Outcomes, scope: Scope, ess: float) -> str | None:
    """Say what a reader must know before using the numbers."""
    few = f"The effective sample size is only {ess:.0f}: compare another seed's numbers."
    notes = (note_on_trials(outcomes, scope), few if ess < FEW else None)
    return " ".join(filter(None, notes)) or None
