"""The pass family's posteriors: the expected score of k new trials of each question.

With a Beta posterior for each question's success probability p, the latent quantity is a
polynomial of p, at any k >= 1, also above N. It differs from the estimand of the finite-bank
estimators in :mod:`lm_eval_bayes.stats.pass_family`, which have other names.
"""

from __future__ import annotations

import numpy as np

from lm_eval_bayes.stats.distributions.independent import IndependentBetas
from lm_eval_bayes.stats.distributions.success_curves import (
    Curve,
    MeanExcess,
    at_least,
    beta_moments,
)
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes, distinct_pairs
from lm_eval_bayes.stats.pass_family import THRESHOLDS, require_binary
from lm_eval_bayes.stats.results import PerQuestion, Posterior
from lm_eval_bayes.stats.validation import Tau, check_k, check_prior, read_only


def pass_at_k_posterior(outcomes: Outcomes, k: int, prior: str | float = "uniform") -> Posterior:
    """Return the posterior of the mean of 1 − (1 − p_α)^k.

    The chance that one of k new trials is correct, with p_α ~ Beta(ν_α1, ν_α0) as in
    [Hariri 2026, Alg. 1].

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of both categories.

    Returns
    -------
    Posterior
        In [0, 1], scope "benchmark".

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior is unknown.

    Examples
    --------
    One of two correct, so p ~ Beta(2, 2) and E(1 − p)² = 3/10:

    >>> round(pass_at_k_posterior(Outcomes.from_matrix([[0, 1]]), 2).mu, 12)
    0.7
    """
    return _posterior("pass@k", outcomes, k, prior)


def pass_hat_k_posterior(outcomes: Outcomes, k: int, prior: str | float = "uniform") -> Posterior:
    """Return the posterior of the mean of p_α^k.

    The chance that all of k new trials are correct.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of both categories.

    Returns
    -------
    Posterior
        In [0, 1], scope "benchmark".

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior is unknown.

    Examples
    --------
    >>> round(pass_hat_k_posterior(Outcomes.from_matrix([[0, 1]]), 2).mu, 12)
    0.3
    """
    return _posterior("pass^k", outcomes, k, prior)


def g_pass_at_k_posterior(
    outcomes: Outcomes, k: int, tau: Tau, prior: str | float = "uniform"
) -> Posterior:
    """Return the posterior of the mean chance that max(1, ⌈τk⌉) of k new trials are correct.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    tau : float, Fraction or Decimal
        In [0, 1], with an exact ceiling, see `successes_needed`.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of both categories.

    Returns
    -------
    Posterior
        In [0, 1], scope "benchmark".

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, tau is outside [0, 1], or the prior is unknown.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1]])
    >>> round(g_pass_at_k_posterior(outcomes, 3, 0.5).mu, 12)
    0.5
    """
    return _posterior("g-pass@k", outcomes, k, prior, tau)


def mg_pass_at_k_posterior(outcomes: Outcomes, k: int, prior: str | float = "uniform") -> Posterior:
    """Return the posterior of the mean latent mG-Pass@k.

    (2/k) E max(J − ⌈k/2⌉, 0) for J correct of k new trials; see `mg_pass_at_k`.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        At least 1; at k = 1 the quantity is 0 by its definition.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of both categories.

    Returns
    -------
    Posterior
        In [0, 1] for an even k, [0, (k − 1)/k] for an odd one; scope "benchmark".

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior is unknown.

    Examples
    --------
    At k = 2 it is p²:

    >>> round(mg_pass_at_k_posterior(Outcomes.from_matrix([[0, 1]]), 2).mu, 12)
    0.3
    """
    return _posterior("mg-pass@k", outcomes, k, prior)


def strict_majority_at_k_posterior(
    outcomes: Outcomes, k: int, prior: str | float = "uniform"
) -> Posterior:
    """Return the posterior of the mean chance that more than half of k new trials are correct.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of both categories.

    Returns
    -------
    Posterior
        In [0, 1], scope "benchmark".

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior is unknown.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1]])
    >>> round(strict_majority_at_k_posterior(outcomes, 3).mu, 12)
    0.5
    """
    return _posterior("strict-maj@k", outcomes, k, prior)


def _posterior(
    quantity: str, outcomes: Outcomes, k: int, prior: str | float, tau: Tau | None = None
) -> Posterior:
    """Return the posterior of the mean of curve(p_α)."""
    check_outcomes("outcomes", outcomes)
    k = check_k(k)
    curve: Curve = MeanExcess(k)
    if quantity in THRESHOLDS:
        curve = at_least(THRESHOLDS[quantity](k, tau), k)
    require_binary(outcomes)
    pseudo = check_prior(prior)
    nu = outcomes.counts + pseudo + outcomes.prior_strength * outcomes.prior_counts
    pairs = distinct_pairs(nu[:, 1], nu[:, 0])
    mean, variance = beta_moments(pairs.first, pairs.second, curve)
    question_mean = np.clip(mean, 0.0, curve.top)[pairs.where]
    question_sd = np.sqrt(variance)[pairs.where]
    mu = float(min(question_mean.mean(), curve.top))
    sigma = float(np.sqrt((question_sd**2).sum()) / question_sd.size)
    return Posterior(
        quantity=f"{quantity} posterior",
        mu=mu,
        sigma=sigma,
        per_question=PerQuestion(
            read_only(question_mean, np.float64), read_only(question_sd, np.float64)
        ),
        bounds=(0.0, curve.top),
        prior=pseudo,
        distribution=IndependentBetas(nu[:, 1], nu[:, 0], curve, 0.0, 1.0, mu, sigma),
        k=k,
        tau=None if tau is None else float(tau),
        trials_range=outcomes.trials_range,
    )
