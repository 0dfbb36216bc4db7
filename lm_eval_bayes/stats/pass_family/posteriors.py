"""Posteriors of Pass@k, Pass^k, G-Pass@k and their relatives, the expected score of k new trials.

Given a question's success probability p that score is a polynomial of p, its success curve, so it
has a posterior at any k >= 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.distributions.base import TabulatedDistribution
from lm_eval_bayes.stats.distributions.curve_mixture import (
    CurveMixture,
    CurveMixtureDistribution,
    CurveMoments,
    curve_means,
    population_of_curve,
)
from lm_eval_bayes.stats.distributions.independent import IndependentBetas
from lm_eval_bayes.stats.distributions.success_curves import (
    Curve,
    beta_moments,
)
from lm_eval_bayes.stats.hierarchical.beta_binomial import hyper_posterior
from lm_eval_bayes.stats.hierarchical.clusters import clustered_curves, few_clusters_note
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    NO_TRIALS,
    PRIOR_ALONE,
    learned_from_grid,
)
from lm_eval_bayes.stats.intervals import SCOPES, IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes, distinct_pairs, require_binary
from lm_eval_bayes.stats.pass_family.estimators import PassQuantity
from lm_eval_bayes.stats.results import LearnedClusters, PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.validation import FloatArray, Tau, check_k, check_option, check_prior

#: Pseudo-counts of correct and of wrong trials, or how they are found.
Prior: TypeAlias = Literal["learned", "uniform", "jeffreys"] | float | tuple[float, float]


#: Maximum number of rows of a table whose intervals are quantiles.
_MOST_EXACT_ROWS = 32
#: The warning of a posterior where no question has two trials.
SINGLE_TRIALS = (
    "With one trial per question, chance and difficulty cannot be distinguished: at k > 1 the "
    "posterior depends on the prior of the questions' spread alone."
)
#: The warning of a posterior at more trials than there are.
BEYOND_TRIALS = (
    "k = {k} exceeds the trials of some question (N = {n}): beyond N the answer "
    "rests on the Beta shape of the questions' common prior, and the interval does not include the "
    "doubt about that shape. Simulated 95% intervals at N = 4 with 30 questions held the true "
    "Pass@8 | Pass@32 in 87 | 94% of runs (p = .5 for all), 92 | 92% (p ~ Beta(.3,.3)) and "
    "94 | 77% (Beta(2,2))."
)
#: A posterior is skewed if its sd exceeds this share of the mean's distance from a bound.
_SKEWED = 0.7
#: The warning of a skewed posterior at k > 1.
NEAR_BOUND = (
    "The posterior is skewed towards a score that is nearly certain: where the questions are "
    "alike, its equal-tailed interval can end short of the true score. Simulated 95% intervals at "
    "N = 4 with 30 questions held the true Pass@2 in 86% of runs (p = .98 for all) and the true "
    "Pass@4 in 88% (p = .02 for all)."
)


def family_notes(posteriors: Mapping[str, Posterior]) -> tuple[str, ...]:
    """Return the distinct notes of a table's rows at k > 1, each behind the names of its rows.

    At k = 1 the posterior and its note are those of hbayes@N.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        The posteriors of the family by the names of their rows.

    Examples
    --------
    >>> outcomes = Outcomes.from_counts([[0, 4]] * 29 + [[1, 3]])
    >>> members = {"pass@1": PassQuantity("pass@k", 1), "pass@4": PassQuantity("pass@k", 4)}
    >>> posteriors = pass_posteriors(outcomes, list(members.values()))
    >>> (note,) = family_notes(dict(zip(members, posteriors)))
    >>> note[:32]
    'pass@4: The posterior is skewed '
    """
    rows: dict[str, list[str]] = {}
    for name, posterior in posteriors.items():
        if posterior.note is not None and posterior.k != 1:
            rows.setdefault(posterior.note, []).append(name)
    return tuple(f"{', '.join(names)}: {note}" for note, names in rows.items())


def table_method(method: IntervalMethod, n_rows: int) -> IntervalMethod:
    """Return the method of the intervals in a table of so many rows.

    In a table of more than 32 rows of the family, "beta" in place of "exact" and "hdi": their
    quantiles take 1 to 30 ms a row.

    Parameters
    ----------
    method : {"exact", "normal", "beta", "hdi"}
        The method asked for.
    n_rows : int
        Rows of the family.
    """
    return "beta" if n_rows > _MOST_EXACT_ROWS and method in ("exact", "hdi") else method


def pass_at_k_posterior(
    outcomes: Outcomes, k: int, prior: Prior = "learned", scope: Scope = "benchmark"
) -> Posterior:
    """Return the posterior of the mean of 1 − (1 − p_α)^k.

    The chance that one of k new trials is correct, with p_α ~ Beta(ν_α1, ν_α0) as in
    [Hariri 2026, Alg. 1].

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    prior : "learned", "uniform", "jeffreys", float or (float, float)
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1].

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior or the scope breaks its rule.

    Examples
    --------
    One of two correct, so p ~ Beta(2, 2) and E(1 − p)² = 3/10:

    >>> round(pass_at_k_posterior(Outcomes.from_matrix([[0, 1]]), 2, "uniform").mu, 12)
    0.7
    """
    return _posterior(PassQuantity("pass@k", k), outcomes, prior, scope)


def pass_hat_k_posterior(
    outcomes: Outcomes, k: int, prior: Prior = "learned", scope: Scope = "benchmark"
) -> Posterior:
    """Return the posterior of the mean of p_α^k.

    The chance that all of k new trials are correct.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    prior : "learned", "uniform", "jeffreys", float or (float, float)
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1].

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior or the scope breaks its rule.

    Examples
    --------
    >>> round(pass_hat_k_posterior(Outcomes.from_matrix([[0, 1]]), 2, "uniform").mu, 12)
    0.3
    """
    return _posterior(PassQuantity("pass^k", k), outcomes, prior, scope)


def g_pass_at_k_posterior(
    outcomes: Outcomes, k: int, tau: Tau, prior: Prior = "learned", scope: Scope = "benchmark"
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
    prior : "learned", "uniform", "jeffreys", float or (float, float)
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1].

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, tau is outside [0, 1], or the prior or the scope
        breaks its rule.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1]])
    >>> round(g_pass_at_k_posterior(outcomes, 3, 0.5, "uniform").mu, 12)
    0.5
    """
    return _posterior(PassQuantity("g-pass@k", k, tau), outcomes, prior, scope)


def mg_pass_at_k_posterior(
    outcomes: Outcomes, k: int, prior: Prior = "learned", scope: Scope = "benchmark"
) -> Posterior:
    """Return the posterior of the mean latent mG-Pass@k.

    (2/k) E max(J − ⌈k/2⌉, 0) for J correct of k new trials; see `mg_pass_at_k`.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        At least 1; at k = 1 the quantity is 0 by its definition.
    prior : "learned", "uniform", "jeffreys", float or (float, float)
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1] for an even k, [0, (k − 1)/k] for an odd one.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior or the scope breaks its rule.

    Examples
    --------
    At k = 2 it is p²:

    >>> round(mg_pass_at_k_posterior(Outcomes.from_matrix([[0, 1]]), 2, "uniform").mu, 12)
    0.3
    """
    return _posterior(PassQuantity("mg-pass@k", k), outcomes, prior, scope)


def strict_majority_at_k_posterior(
    outcomes: Outcomes, k: int, prior: Prior = "learned", scope: Scope = "benchmark"
) -> Posterior:
    """Return the posterior of the mean chance that more than half of k new trials are correct.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ.
    k : int
        From 1 to 10⁷.
    prior : "learned", "uniform", "jeffreys", float or (float, float)
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1].

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, k < 1, or the prior or the scope breaks its rule.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1]])
    >>> round(strict_majority_at_k_posterior(outcomes, 3, "uniform").mu, 12)
    0.5
    """
    return _posterior(PassQuantity("strict-maj@k", k), outcomes, prior, scope)


def _posterior(quantity: PassQuantity, outcomes: Outcomes, prior: Prior, scope: Scope) -> Posterior:
    (posterior,) = pass_posteriors(outcomes, [quantity], prior, scope)
    return posterior


def pass_posteriors(
    outcomes: Outcomes,
    quantities: Sequence[PassQuantity],
    prior: Prior = "learned",
    scope: Scope = "benchmark",
) -> list[Posterior]:
    """Return the posteriors of several members of the family, which share their computation.

    Under the learned prior p_α ~ Beta(s m, s (1 − m)) for every question α, with (m, s)
    integrated out as in `hbayes_at_n`.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions; N_α may differ. Prior trials count as trials, each with
        the weight λ.
    quantities : sequence of PassQuantity
        The members.
    prior : "learned", "uniform", "jeffreys", float or (float, float)
        "learned", shared by the questions; or the pseudo-count of correct and of wrong trials of
        every question: 1 each ("uniform", that of [Hariri 2026, Alg. 1] and of scorio), 1/2 each
        ("jeffreys"), any number above 0 for both, or a pair (correct, wrong). A fixed prior pulls
        every question in one direction: on hard or on easy benchmarks its intervals miss.
    scope : {"benchmark", "population"}
        "benchmark": the mean of curve(p_α) over these M questions. "population", with the learned
        prior only: the mean over the population of questions, E curve(p), p ~ Beta(s m, s (1 − m));
        where the outcomes have clusters, over the questions of a population of clusters, by the
        model of `clustered_posterior`.

    Returns
    -------
    list of Posterior
        In the order of `quantities`; a `note` where the trials alone do not determine the answer,
        or the interval is known to cover too rarely (see Notes).

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, a k or a tau is out of range, or the prior or the scope
        breaks its rule.

    Notes
    -----
    Two cases in which the 95% intervals under the learned prior cover too rarely have a `note`.
    Simulated coverage at N = 4 and 30 questions (200 runs per cell, standard error 2 to 3):

    - k > N. Pass@8: 87% (p = .5 for all questions), 92% (p ~ Beta(.3,.3)), 94% (Beta(2,2)),
      79% (Beta(20,5)); Pass@32: 94, 92 and 77% of the first three. Where the questions are
      alike, it is the upper end that is too low.
    - k > 1 and σ > .7 times the distance of μ from 0 or from the largest score, so that the
      posterior is skewed. Pass@2: 86% (p = .98 for all); Pass@4: 88% (p = .02 for all), where the
      interval after 0 right answers, in 9% of runs, ends below the true score. Where the endpoint
      is so near 1 that it is returned as 1 (Pass@4 with p = .98) the interval covers too often,
      99%.

    Examples
    --------
    Twelve questions that the model rarely solves, two right answers in 48 trials:

    >>> outcomes = Outcomes.from_counts([[4, 0]] * 10 + [[3, 1]] * 2)
    >>> members = [PassQuantity("pass@k", k) for k in (1, 2, 4)]
    >>> [round(posterior.mu, 2) for posterior in pass_posteriors(outcomes, members)]
    [0.06, 0.1, 0.18]
    >>> [round(posterior.mu, 2) for posterior in pass_posteriors(outcomes, members, "uniform")]
    [0.19, 0.33, 0.49]
    """
    check_outcomes("outcomes", outcomes)
    quantities = [quantity._replace(k=check_k(quantity.k)) for quantity in quantities]
    curves = [quantity.curve() for quantity in quantities]
    require_binary(outcomes)
    scope = check_option("scope", scope, SCOPES)
    if not curves:
        return []
    if isinstance(prior, str) and prior == "learned":
        return _learned(outcomes, quantities, curves, scope)
    pseudo = _pseudo_counts(prior)
    if scope == "population":
        rule = 'be "benchmark" unless the prior is learned'
        raise InvalidInputError.of("scope", rule, scope)
    nu = outcomes.weighted_counts + np.array(pseudo[::-1])
    return [
        _under_fixed_prior(outcomes, nu, pseudo, quantity, curve)
        for quantity, curve in zip(quantities, curves, strict=True)
    ]


def _pseudo_counts(prior: object) -> tuple[float, float]:
    """Return the pseudo-counts of correct and of wrong trials."""
    if isinstance(prior, tuple) and len(prior) == 2:
        return check_prior(prior[0]), check_prior(prior[1])
    if isinstance(prior, (str, tuple, list)) and prior not in ("uniform", "jeffreys"):
        rule = 'be "learned", "uniform", "jeffreys", a number above 0 or a pair of them'
        raise InvalidInputError.of("prior", rule, prior)
    pseudo = check_prior(prior)
    return pseudo, pseudo


def _under_fixed_prior(
    outcomes: Outcomes,
    nu: FloatArray,
    pseudo: tuple[float, float],
    quantity: PassQuantity,
    curve: Curve,
) -> Posterior:
    """Return the posterior with p_α ~ Beta(ν_α1, ν_α0)."""
    pairs = distinct_pairs(nu[:, 1], nu[:, 0])
    mean, variance = beta_moments(pairs.first, pairs.second, curve)
    question_mean = np.clip(mean, 0.0, curve.top)[pairs.where]
    question_sd = np.sqrt(variance)[pairs.where]
    mu = float(min(question_mean.mean(), curve.top))
    sigma = float(np.sqrt((question_sd**2).sum()) / question_sd.size)
    return Posterior(
        quantity=f"{quantity.name} posterior",
        mu=mu,
        sigma=sigma,
        per_question=PerQuestion(question_mean, question_sd),
        bounds=(0.0, curve.top),
        prior=pseudo[0] if pseudo[0] == pseudo[1] else pseudo,
        distribution=IndependentBetas(nu[:, 1], nu[:, 0], curve, 0.0, 1.0, mu, sigma),
        k=quantity.k,
        tau=None if quantity.tau is None else float(quantity.tau),
        trials_range=outcomes.trials_range,
    )


def _learned(
    outcomes: Outcomes, quantities: Sequence[PassQuantity], curves: Sequence[Curve], scope: Scope
) -> list[Posterior]:
    """Return the posteriors under the learned prior."""
    y, x = outcomes.weighted_counts.T
    pairs = distinct_pairs(x, y)
    grid = hyper_posterior(x, y, rough=True)
    mixture = CurveMixture.of(pairs, grid.logit_mean, grid.log_strength[:, 0], grid.weight, curves)
    learned = learned_from_grid(grid)

    def posterior_of(quantity: PassQuantity, curve: Curve, moments: CurveMoments) -> Posterior:
        return Posterior(
            quantity=f"{quantity.name} posterior",
            mu=float(np.clip(moments.mu, 0.0, curve.top)),
            sigma=moments.sigma,
            per_question=PerQuestion(
                np.clip(moments.question_mean, 0.0, curve.top)[pairs.where],
                moments.question_sd[pairs.where],
            ),
            bounds=(0.0, curve.top),
            prior=None,
            distribution=CurveMixtureDistribution(mixture, pairs.where, curve, moments),
            k=quantity.k,
            tau=None if quantity.tau is None else float(quantity.tau),
            n_trials=float((x + y).mean()),
            trials_range=outcomes.trials_range,
            learned=learned,
            note=_note(x + y, quantity.k, "benchmark", moments.mu, moments.sigma, curve.top),
            question_ids=outcomes.question_ids,
        )

    posteriors = [
        posterior_of(quantity, curve, moments)
        for quantity, curve, moments in zip(
            quantities, curves, mixture.moments(curves), strict=True
        )
    ]
    if scope == "benchmark":
        return posteriors
    index = outcomes.cluster_index
    clusters = None
    if index is not None:
        distributions, clusters = clustered_curves(outcomes, index, curves)
    else:
        at_nodes = curve_means(mixture.logit_mean, mixture.log_strength, curves)
        distributions = [
            population_of_curve(mixture, curve, at_node)
            for curve, at_node in zip(curves, at_nodes, strict=True)
        ]
    few = None if clusters is None else few_clusters_note(clusters.n_clusters)
    return [
        _population(posterior, distribution, clusters, few, x + y)
        for posterior, distribution in zip(posteriors, distributions, strict=True)
    ]


def _population(
    benchmark: Posterior,
    distribution: TabulatedDistribution,
    clusters: LearnedClusters | None,
    few_clusters: str | None,
    trials: FloatArray,
) -> Posterior:
    """Return the posterior of scope "population"."""
    mu, sigma = distribution.moments()
    top, k = benchmark.bounds[1], benchmark.k or 1
    note = _note(trials, k, "population", mu, sigma, top)
    return replace(
        benchmark,
        mu=float(np.clip(mu, 0.0, top)),
        sigma=sigma,
        distribution=distribution,
        scope="population",
        note=joined_notes([note, few_clusters]),
        benchmark=benchmark,
        clusters=clusters,
    )


def _note(
    trials: FloatArray, k: int, scope: Scope, mu: float, sigma: float, top: float
) -> str | None:
    """Return the warnings about a posterior, if any."""
    if trials.max() == 0.0:
        return NO_TRIALS
    if trials.max() <= 1.0 and k > 1:
        return SINGLE_TRIALS
    if trials.max() <= 1.0:
        return PRIOR_ALONE if scope == "benchmark" else None
    fewest = trials.min()
    beyond = BEYOND_TRIALS.format(k=k, n=f"{fewest:g}") if k > fewest else None
    skewed = k > 1 and sigma > _SKEWED * min(mu, top - mu)
    return joined_notes([beyond, NEAR_BOUND if skewed else None])
