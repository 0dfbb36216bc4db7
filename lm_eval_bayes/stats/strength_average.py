"""Posteriors averaged over λ, the weight of prior trials, where it was learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.weighted import weighted_distribution
from lm_eval_bayes.stats.prior_strength import LearnedStrength
from lm_eval_bayes.stats.results import PerQuestion, Posterior

#: Posterior probability below which a value of λ is left out.
_NEGLIGIBLE = 1e-3


def average_over_strength(
    strength: LearnedStrength, posterior_at: Callable[[float], Posterior]
) -> Posterior:
    """Return the posterior with λ integrated out.

    Its mean, sd and distribution are those of the mixture over λ. `learned`, `note` and `seed` are
    those at the most probable λ.

    Parameters
    ----------
    strength : LearnedStrength
        The posterior of λ.
    posterior_at : callable
        Returns the posterior at a fixed λ.
    """
    values, weight = np.array(strength.values), np.array(strength.weights)
    matters = weight > _NEGLIGIBLE
    posteriors = [posterior_at(value) for value in values[matters].tolist()]
    return average_posteriors(posteriors, weight[matters] / weight[matters].sum())


def average_posteriors(posteriors: list[Posterior], weight: FloatArray) -> Posterior:
    """Return the average of posteriors of the same score under several models.

    Parameters
    ----------
    posteriors : list of Posterior, length J
        Their distributions are averaged; what else they hold is that of the most probable one.
    weight : array, shape (J,)
        The models' probabilities, sum 1.
    """
    most_probable = posteriors[int(weight.argmax())]
    if len(posteriors) == 1:
        return most_probable
    mu, sigma = _moments(
        weight, np.array([p.mu for p in posteriors]), np.array([p.sigma for p in posteriors])
    )
    per_question = PerQuestion(
        *_moments(
            weight,
            np.stack([p.per_question.mu for p in posteriors]),
            np.stack([p.per_question.sigma for p in posteriors]),
        )
    )
    benchmarks = [p.benchmark for p in posteriors if p.benchmark is not None]
    trials = [p.n_trials for p in posteriors if p.n_trials is not None]
    sizes = [p.ess for p in posteriors if p.ess is not None]
    mean, sd = float(np.clip(mu, *most_probable.bounds)), float(sigma)
    return replace(
        most_probable,
        mu=mean,
        sigma=sd,
        per_question=per_question,
        distribution=weighted_distribution([p.distribution for p in posteriors], weight, mean, sd),
        benchmark=average_posteriors(benchmarks, weight) if benchmarks else None,
        n_trials=float(weight @ trials) if trials else None,
        ess=min(sizes, default=None),
    )


def _moments(
    weight: FloatArray, mu: FloatArray, sigma: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of a mixture whose components have these along the first axis."""
    mean = weight @ mu
    return np.asarray(mean), np.sqrt(weight @ (sigma**2 + (mu - mean) ** 2))
