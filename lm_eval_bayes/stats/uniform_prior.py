"""Bayes@N, the posterior of a benchmark's score; and avg@N, its sample mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lm_eval_bayes._util.validation import check_level, check_prior
from lm_eval_bayes.stats.arrays import FloatArray, read_only
from lm_eval_bayes.stats.distributions import IndependentDirichlets
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import distinct_weights
from lm_eval_bayes.stats.outcomes import (
    Outcomes,
    check_outcomes,
    require_single_trials,
    require_trials,
    scaled_weights,
)
from lm_eval_bayes.stats.results import Estimate, PerQuestion, Posterior
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes


def bayes_at_n(outcomes: Outcomes, prior: str | float = "uniform") -> Posterior:
    """Return the posterior of the benchmark's score [Hariri 2026, Alg. 1, eq. 15].

    Each question's category probabilities get a Dirichlet prior of their own. With
    ν_αk = n_αk + pseudo + λ n0_αk and T_α = Σ_k ν_αk, question α has posterior mean
    m_α = Σ_k w_k ν_αk / T_α and variance v_α = (Σ_k w_k² ν_αk / T_α − m_α²) / (T_α + 1);
    μ is the mean of the m_α and σ = sqrt(Σ v_α) / M.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M questions; N_α may differ and may be 0.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of every category: 1 (the paper), ½, or a finite number above 0.

    Returns
    -------
    Posterior
        Its `mu`, `sigma` and `per_question` are on the scale of the weights.

    Raises
    ------
    InvalidInputError
        If `prior` is none of these.

    Examples
    --------
    The check values of the paper's code, without and with two prior trials per question:

    >>> R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    >>> posterior = bayes_at_n(Outcomes.from_matrix(R, weights=[0, 0.5, 1]))
    >>> round(posterior.mu, 6), round(posterior.sigma, 6)
    (0.5625, 0.091998)
    >>> with_prior = Outcomes.from_matrix(R, weights=[0, 0.5, 1], R0=[[0, 2], [1, 2]])
    >>> round(bayes_at_n(with_prior).mu, 6), round(bayes_at_n(with_prior).sigma, 6)
    (0.575, 0.084275)
    """
    check_outcomes("outcomes", outcomes)
    pseudo = check_prior(prior)
    nu = outcomes.weighted_counts + pseudo
    weights, belongs = distinct_weights(outcomes)
    bounds = outcomes.bounds
    mean, sd = _dirichlet_moments(nu, outcomes.weights)
    mu, sigma = float(np.clip(mean.mean(), *bounds)), float(np.linalg.norm(sd)) / mean.size
    return Posterior(
        quantity="bayes@N",
        mu=mu,
        sigma=sigma,
        per_question=PerQuestion(mean, sd),
        bounds=bounds,
        prior=pseudo,
        distribution=IndependentDirichlets(mu, sigma, bounds, nu=nu @ belongs, weights=weights),
        n_trials=outcomes.mean_trials,
        trials_range=outcomes.trials_range,
    )


def avg_at_n(outcomes: Outcomes) -> Estimate:
    """Return the mean score with the standard deviation that Bayes@N gives it.

    a_α is question α's mean score over its N_α trials and a the mean of the a_α. For equal
    N the standard deviation is σ_avg = (T/N) σ_Bayes at D = 0 and the uniform prior, with
    T = 1 + C + N [Hariri 2026, eq. 20]. Where N_α differ the same holds question by
    question, σ_α = (T_α/N_α) sqrt(v_α) with T_α = 1 + C + N_α, and σ_avg = sqrt(Σ σ_α²)/M.
    Prior trials do not enter.

    Of scores (`ScoreOutcomes`) the standard deviation is their standard error,
    sqrt(v Σ_α 1/N_α)/M with the variance v of scores around their question's mean, pooled over
    questions; NaN where none has two trials.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M questions, at least one trial each, or their scores.

    Returns
    -------
    Estimate
        With `value` a, `per_question` the a_α and `sigma` σ_avg, on the scale of the weights. Its
        :meth:`~lm_eval_bayes.stats.results.Estimate.interval` is a ± z σ_avg.

    Raises
    ------
    InvalidInputError
        If a question has no trial.

    Examples
    --------
    >>> R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    >>> estimate = avg_at_n(Outcomes.from_matrix(R, weights=[0, 0.5, 1]))
    >>> round(estimate.value, 6), round(estimate.sigma, 6)
    (0.6, 0.147196)
    """
    check_outcomes("outcomes", outcomes, scores=True)
    n_trials = require_trials(outcomes)
    bounds = outcomes.bounds
    if isinstance(outcomes, ScoreOutcomes):
        means, sigma = outcomes.means, outcomes.standard_error
    else:
        low, span, unit = scaled_weights(outcomes.weights)
        means = np.clip(low + span * (outcomes.counts @ unit) / n_trials, *bounds)
        _, sd = _dirichlet_moments(np.asarray(outcomes.counts + 1.0), outcomes.weights)
        sd *= (n_trials + outcomes.n_categories) / n_trials
        sigma = float(np.linalg.norm(sd)) / means.size
    return Estimate(
        quantity="avg@N",
        value=float(np.clip(means.mean(), *bounds)),
        per_question=read_only(means, np.float64),
        sigma=sigma,
        bounds=bounds,
    )


def single_trial_posterior(outcomes: Outcomes, level: float = 0.95) -> Posterior:
    """Return the posterior of the chance of a right answer, one trial per question.

    θ ~ U(0, 1) and S ~ Binomial(M, θ), so that θ given S of M right answers is
    Beta(1 + S, 1 + M − S) [Bowyer 2025, eq. 7]. Each answer is that of a question drawn from the
    population, whose mean θ is. `hbayes_at_n(..., scope="population")` gives
    Beta(.7 + S, .7 + M − S) at one trial per question, and applies to more.

    Parameters
    ----------
    outcomes : Outcomes
        Binary, with one trial per question and without prior trials.
    level : float
        Posterior mass of the result's `interval()`, strictly between 0 and 1.

    Returns
    -------
    Posterior
        Of scope "population"; its default interval is the exact one.

    Raises
    ------
    InvalidInputError
        If the outcomes or the level break their rule.

    Examples
    --------
    >>> posterior = single_trial_posterior(Outcomes.from_matrix([[1], [1], [0]]))
    >>> posterior.mu, posterior.scope  # Beta(3, 2)
    (0.6, 'population')
    """
    right = require_single_trials("outcomes", outcomes)
    pooled = bayes_at_n(
        Outcomes.from_counts([[int((~right).sum()), int(right.sum())]], weights=outcomes.weights)
    )
    return replace(
        bayes_at_n(outcomes),
        quantity="θ",
        mu=pooled.mu,
        sigma=pooled.sigma,
        distribution=pooled.distribution,
        scope="population",
        level=check_level(level),
    )


def _dirichlet_moments(nu: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each question's posterior mean and sd on the scale of the weights.

    Worked on weights shifted and scaled to [0, 1] and about the mean: nothing cancels,
    equal weights give σ = 0 exactly, and no weight's square overflows.
    """
    low, span, unit = scaled_weights(weights)
    if span == 0.0:
        return np.full(nu.shape[0], low), np.zeros(nu.shape[0])
    total = nu.sum(axis=1)
    mean = nu @ unit / total
    spread = (nu * (unit - mean[:, None]) ** 2).sum(axis=1) / total
    mu = np.clip(low + span * mean, low, weights.max())
    return mu, span * np.sqrt(spread / (total + 1.0))
