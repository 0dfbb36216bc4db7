"""Posteriors of Pass@k, Pass^k, G-Pass@k and their relatives, the expected score of k new trials.

Given a question's success probability p that score is a polynomial of p, so it has a posterior at
any k >= 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from lm_eval_bayes._util.validation import Tau, check_k, check_option, check_prior
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions import MatchedBeta
from lm_eval_bayes.stats.hierarchical.clusters import clustered_values, few_clusters_note
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    NO_TRIALS,
    few_questions_note,
    hbayes_at_n,
    learned_prior,
    of_population,
    posterior_by_states,
)
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.mixture import learn_mixture
from lm_eval_bayes.stats.outcomes import Outcomes, distinct_pairs, require_binary
from lm_eval_bayes.stats.pass_family_estimators import THRESHOLDS, PassQuantity
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.states import (
    MOST_DEGREE,
    MomentsOf,
    StateDistribution,
    extreme_moments,
    state_moments,
    states_for,
    vote_moments,
)

#: The pseudo-count of correct and of wrong trials, or how it is found.
Prior: TypeAlias = Literal["learned", "uniform", "jeffreys"] | float

#: The warning of a posterior where no question has two trials.
SINGLE_TRIALS = (
    "With one trial per question, chance and difficulty cannot be distinguished: at k > 1 the "
    "posterior depends on the prior of the questions' spread alone."
)
#: The warning of a posterior at more than twice the trials there are.
BEYOND_TRIALS = (
    "k = {k} is more than twice the trials of some question (N = {n}): the interval rests on the "
    "shape of the prior."
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
    >>> outcomes = Outcomes.from_counts([[0, 1]] * 25 + [[1, 0]] * 5)
    >>> members = {"pass@1": PassQuantity("pass@k", 1), "pass@4": PassQuantity("pass@k", 4)}
    >>> posteriors = pass_posteriors(outcomes, list(members.values()))
    >>> (note,) = family_notes(dict(zip(members, posteriors)))
    >>> note[:49]
    'pass@4: With one trial per question, chance and d'
    """
    rows: dict[str, list[str]] = {}
    for name, posterior in posteriors.items():
        if posterior.note is not None and posterior.k != 1:
            rows.setdefault(posterior.note, []).append(name)
    return tuple(f"{', '.join(names)}: {note}" for note, names in rows.items())


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
    prior : "learned", "uniform", "jeffreys" or float
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1]; of mG-Pass@k, in [0, (k − 1)/k] for an odd k.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument breaks its rule.

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
    prior : "learned", "uniform", "jeffreys" or float
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1]; of mG-Pass@k, in [0, (k − 1)/k] for an odd k.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument breaks its rule.

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
        In [0, 1]. The ceiling is exact: .28 · 25 asks for 7, see `successes_needed`.
    prior : "learned", "uniform", "jeffreys" or float
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1]; of mG-Pass@k, in [0, (k − 1)/k] for an odd k.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument breaks its rule.

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
        From 1 to 10⁷.
    prior : "learned", "uniform", "jeffreys" or float
        See `pass_posteriors`.
    scope : {"benchmark", "population"}
        See `pass_posteriors`.

    Returns
    -------
    Posterior
        In [0, 1]; of mG-Pass@k, in [0, (k − 1)/k] for an odd k.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument breaks its rule.

    Examples
    --------
    At k = 2 it is p²:

    >>> round(mg_pass_at_k_posterior(Outcomes.from_matrix([[0, 1]]), 2, "uniform").mu, 12)
    0.3
    """
    return _posterior(PassQuantity("mg-pass@k", k), outcomes, prior, scope)


def _posterior(quantity: PassQuantity, outcomes: Outcomes, prior: Prior, scope: Scope) -> Posterior:
    (posterior,) = pass_posteriors(outcomes, [quantity], prior, scope)
    return posterior


def pass_posteriors(
    outcomes: Outcomes,
    quantities: Sequence[PassQuantity],
    prior: Prior = "learned",
    scope: Scope = "benchmark",
    seed: int = 0,
    score: Posterior | None = None,
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
    prior : "learned", "uniform", "jeffreys" or float
        "learned", shared by the questions (of one kind or two, see Notes); or the pseudo-count of
        correct and of wrong trials of every question: 1 each ("uniform", of [Hariri 2026, Alg. 1]
        and scorio), 1/2 each ("jeffreys"), or any number above 0. Intervals of a fixed
        prior miss on hard and on easy benchmarks.
    scope : {"benchmark", "population"}
        "benchmark": the mean of curve(p_α) over these M questions. "population", with the learned
        prior only: the mean over the population of questions, E curve(p), p ~ Beta(s m, s (1 − m));
        where the outcomes have clusters, over the questions of a population of clusters, by the
        model of `clustered_posterior`.
    seed : int
        Of the states under the learned prior.
    score : Posterior, optional
        hbayes@N of the outcomes with this scope and seed, where it is known already.

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

    Examples
    --------
    Twelve questions that the model rarely solves, two right answers in 48 trials:

    >>> outcomes = Outcomes.from_counts([[4, 0]] * 10 + [[3, 1]] * 2)
    >>> members = [PassQuantity("pass@k", k) for k in (1, 2, 4)]
    >>> [round(posterior.mu, 2) for posterior in pass_posteriors(outcomes, members)]
    [0.06, 0.11, 0.19]
    >>> [round(posterior.mu, 2) for posterior in pass_posteriors(outcomes, members, "uniform")]
    [0.19, 0.33, 0.49]
    """
    quantities = [quantity._replace(k=check_k(quantity.k)) for quantity in quantities]
    require_binary(outcomes)
    scope = check_option("scope", scope, SCOPES)
    if not quantities:
        return []
    if isinstance(prior, str) and prior == "learned":
        return _learned(outcomes, quantities, scope, seed, score)
    pseudo = check_prior(prior)
    if scope == "population":
        rule = 'be "benchmark" unless the prior is learned'
        raise InvalidInputError.of("scope", "unsupported", rule, scope)
    return _under_fixed_prior(outcomes, pseudo, quantities)


def moments_of_trials(quantities: Sequence[PassQuantity]) -> list[tuple[list[int], MomentsOf]]:
    """Return which of the quantities share a computation, by index, and their moments.

    Raises
    ------
    InvalidInputError
        If k exceeds 500, except for Pass@k and Pass^k.
    """
    needed = [THRESHOLDS[name](k, tau) for name, k, tau in quantities]
    tables = [i for i, quantity in enumerate(quantities) if 2 * quantity.k <= MOST_DEGREE]
    groups: list[tuple[list[int], MomentsOf]] = []
    if tables:
        credits = [_credit(quantities[i].k, needed[i]) for i in tables]
        groups.append((tables, vote_moments(credits)))
    for i, quantity in enumerate(quantities):
        if i in tables:
            continue
        if needed[i] not in (1, quantity.k):
            rule = f"be at most {MOST_DEGREE // 2}, except for Pass@k and Pass^k"
            raise InvalidInputError.of("k", "range", rule, quantity.k)
        groups.append(([i], extreme_moments(quantity.k, right=needed[i] == quantity.k)))
    return groups


def _credit(k: int, needed: int | None) -> FloatArray:
    """Return the score of 0 .. k right answers of k; see `THRESHOLDS`."""
    right = np.arange(k + 1.0)
    if needed is None:
        return np.asarray(np.maximum(right - (k + 1) // 2, 0.0) * (2.0 / k))
    return (right >= needed).astype(np.float64)


def _largest(quantity: PassQuantity) -> float:
    """Return the largest score, that of k right answers of k."""
    name, k, tau = quantity
    return 1.0 if THRESHOLDS[name](k, tau) is not None else 2.0 * (k // 2) / k


def _under_fixed_prior(
    outcomes: Outcomes, pseudo: float, quantities: Sequence[PassQuantity]
) -> list[Posterior]:
    """Return the posteriors with p_α ~ Beta(ν_α1, ν_α0), by their exact mean and sd."""
    nu = outcomes.weighted_counts + pseudo
    pairs = distinct_pairs(nu[:, 0], nu[:, 1])
    alpha = np.stack([pairs.first, pairs.second])
    means, sds = np.empty((2, len(quantities), pairs.times.size))
    for indices, moments_of in moments_of_trials(quantities):
        first, second = moments_of(alpha)
        means[indices], sds[indices] = first, np.sqrt(np.maximum(second - first**2, 0.0))
    posteriors = []
    for quantity, mean, sd in zip(quantities, means, sds, strict=True):
        top = _largest(quantity)
        question_mean, question_sd = np.clip(mean, 0.0, top)[pairs.where], sd[pairs.where]
        mu = float(question_mean.mean())
        sigma = float(np.linalg.norm(question_sd)) / question_sd.size
        posteriors.append(
            Posterior(
                quantity=f"{quantity.name} posterior",
                mu=mu,
                sigma=sigma,
                per_question=PerQuestion(question_mean, question_sd),
                bounds=(0.0, top),
                prior=pseudo,
                distribution=MatchedBeta(mu, sigma, (0.0, top)),
                method="beta",
                k=quantity.k,
                tau=None if quantity.tau is None else float(quantity.tau),
                trials_range=outcomes.trials_range,
            )
        )
    return posteriors


def _learned(
    outcomes: Outcomes,
    quantities: Sequence[PassQuantity],
    scope: Scope,
    seed: int,
    score: Posterior | None,
) -> list[Posterior]:
    """Return the posteriors under the learned prior; at k = 1, those of hbayes@N."""
    counts = outcomes.weighted_counts
    fitted = learn_mixture(counts, seed=seed)
    index = outcomes.cluster_index if scope == "population" else None
    posteriors: dict[int, Posterior] = {}
    of_several = [i for i, quantity in enumerate(quantities) if quantity.k > 1]
    groups = moments_of_trials([quantities[i] for i in of_several])
    for group, moments_of in groups:
        members = [quantities[of_several[i]] for i in group]
        degree = min(2 * max(member.k for member in members), MOST_DEGREE)
        mixture = states_for(fitted, degree)
        moments = state_moments(mixture, moments_of, 2 * degree)
        population, clusters = moments.population[:, 0], None
        if index is not None:
            population, clusters = clustered_values(outcomes, index, moments_of, len(members), seed)
        learned = learned_prior(mixture)
        few = few_questions_note(outcomes.n_questions)
        if clusters is not None:
            few = few_clusters_note(clusters.n_clusters)
        for j, (i, member) in enumerate(zip(group, members, strict=True)):
            bounds = (0.0, _largest(member))
            common = (mixture.chain, bounds, seed)
            scores = StateDistribution(moments.mean[j, 0], moments.variance[j, 0], *common)
            questions = moments.question_mean[j], moments.question_sd[j]
            benchmark = posterior_by_states(
                f"{member.name} posterior",
                scores,
                PerQuestion(*(values[mixture.where] for values in questions)),
                outcomes,
                learned,
                k=member.k,
                tau=None if member.tau is None else float(member.tau),
                note=joined_notes([trials_note(counts, member.k), few]),
            )
            if scope == "population":
                chain = mixture.chain if clusters is None else np.arange(population.shape[1])
                benchmark = of_population(benchmark, population[j], chain, clusters=clusters)
            posteriors[of_several[i]] = benchmark
    for i, quantity in enumerate(quantities):
        if quantity.k == 1:
            # of mG-Pass@1 it is 0
            bounds = (0.0, _largest(quantity))
            if score is None or score.bounds != bounds:
                scaled = replace(outcomes, weights=np.array(bounds))
                score = hbayes_at_n(scaled, scope, seed=seed)
            posteriors[i] = replace(
                score,
                quantity=f"{quantity.name} posterior",
                k=1,
                tau=None if quantity.tau is None else float(quantity.tau),
            )
    return [posteriors[i] for i in range(len(quantities))]


def trials_note(counts: FloatArray, k: int) -> str | None:
    """Return the warnings about a posterior at k > 1 by its trials, if any."""
    trials = counts.sum(axis=1)
    if trials.max() == 0.0:
        return NO_TRIALS
    if trials.max() <= 1.0:
        return SINGLE_TRIALS
    if k > 2.0 * trials.min():
        return BEYOND_TRIALS.format(k=k, n=f"{trials.min():g}")
    return None
