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
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import Distribution
from lm_eval_bayes.stats.distributions.curve_mixture import (
    CurveMixture,
    CurveMixtureDistribution,
)
from lm_eval_bayes.stats.distributions.curve_moments import CurveMoments
from lm_eval_bayes.stats.distributions.curve_population import curve_means, population_of_curve
from lm_eval_bayes.stats.distributions.independent import IndependentBetas
from lm_eval_bayes.stats.distributions.success_curves import (
    Curve,
    beta_moments,
)
from lm_eval_bayes.stats.distributions.widened import AllowingForAnother
from lm_eval_bayes.stats.hierarchical.beta_binomial import (
    LEAST_EQUAL,
    OF_CURVES,
    HyperGrid,
    equal_probability,
    histogram_discrepancy,
    hyper_posterior,
)
from lm_eval_bayes.stats.hierarchical.clusters import clustered_curves, few_clusters_note
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    NO_TRIALS,
    PRIOR_ALONE,
    hbayes_at_n,
    learned_from_grid,
)
from lm_eval_bayes.stats.hierarchical.hyperprior import MEAN_SHAPE
from lm_eval_bayes.stats.intervals import SCOPES, IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, distinct_pairs, require_binary
from lm_eval_bayes.stats.pass_family.estimators import PassQuantity
from lm_eval_bayes.stats.pass_family.several_kinds import (
    UNKNOWN_KINDS,
    averaged_over_kinds,
    is_known,
    probable_kinds,
)
from lm_eval_bayes.stats.pass_family.wider_spread import allowing_for_spread
from lm_eval_bayes.stats.results import LearnedClusters, PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.validation import Tau, check_k, check_option, check_prior

#: Pseudo-counts of correct and of wrong trials, or how they are found.
Prior: TypeAlias = Literal["learned", "uniform", "jeffreys"] | float | tuple[float, float]


#: Maximum number of rows of a table whose intervals are quantiles.
_MOST_EXACT_ROWS = 64
#: The warning of a posterior where no question has two trials.
SINGLE_TRIALS = (
    "With one trial per question, chance and difficulty cannot be distinguished: at k > 1 the "
    "posterior depends on the prior of the questions' spread alone."
)
#: The warning of a posterior at more trials than there are.
BEYOND_TRIALS = (
    "k = {k} exceeds the trials of some question (N = {n}): beyond N the answer "
    "rests on the Beta shape of the questions' common prior, and the interval does not include the "
    "doubt about that shape. In simulations with 30 questions and N = 4, 95% intervals held the "
    "true Pass@8 in 96% of runs and Pass@32 in 98% where p = .5 for all questions, in 98% and 95% "
    "where p ~ Beta(.3,.3), in 92% and 82% where p ~ U(0,1), and in 89% and 69% where "
    "p ~ Beta(2,2)."
)
#: Most questions are extreme if this share has no right answer, or no wrong one.
_MOSTLY = 2.0 / 3.0
#: The warning at k > 1 of questions that mostly are extreme, while the others differ.
MOSTLY_EXTREME = (
    "Most questions have no right answer, or most have no wrong one, and the others differ: the "
    "score rests on few questions. In simulations with 30 questions and N = 4, 95% intervals "
    "held the true Pass^2 in 93% of runs and G-Pass@4 in 92%, where four fifths of the questions "
    "are never solved. Those of the population held Pass@2 in 93% and G-Pass@4 in 93%, where "
    "p ~ Beta(.05,.5)."
)
#: The most trials per question at which intervals allow for a wider spread.
_FEW_TRIALS = 10.0
#: The histogram of successes contradicts one Beta distribution from this discrepancy on.
_CONTRADICTED = 7.5
#: The warning at k > 1 of questions that one Beta distribution does not describe.
SEVERAL_KINDS = (
    "The counts of right answers are unlike those of questions from one Beta distribution, as the "
    "learned prior assumes: there may be several kinds of questions, and the interval can miss. "
    "In simulations with N = 16, where half of 30 questions are from Beta(.3,3) and half from "
    "Beta(8,2), 95% intervals held the true Pass@16 in 94% of runs and Pass^16 in 70%, and those "
    "of the population in 93% and 85%."
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
    >>> outcomes = Outcomes.from_counts([[0, 4]] * 25 + [[3, 1]] * 5)
    >>> members = {"pass@1": PassQuantity("pass@k", 1), "pass@4": PassQuantity("pass@k", 4)}
    >>> posteriors = pass_posteriors(outcomes, list(members.values()))
    >>> (note,) = family_notes(dict(zip(members, posteriors)))
    >>> note[:46]
    'pass@4: Most questions have no right answer, o'
    """
    rows: dict[str, list[str]] = {}
    for name, posterior in posteriors.items():
        if posterior.note is not None and posterior.k != 1:
            rows.setdefault(posterior.note, []).append(name)
    return tuple(f"{', '.join(names)}: {note}" for note, names in rows.items())


def table_method(method: IntervalMethod, n_rows: int) -> IntervalMethod:
    """Return the method of the intervals in a table of so many rows.

    In a table of more than 64 rows of the family, "beta" in place of "exact" and "hdi": their
    quantiles take 1 to 10 ms a row.

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
    prior : "learned", "uniform", "jeffreys", float or (float, float)
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
    prior : "learned", "uniform", "jeffreys", float or (float, float)
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
    prior : "learned", "uniform", "jeffreys", float or (float, float)
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
        In [0, 1]; of mG-Pass@k, in [0, (k − 1)/k] for an odd k.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument breaks its rule.

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
        "learned", shared by the questions (of one kind or two, see Notes); or the pseudo-count of
        correct and of wrong trials of every question: 1 each ("uniform", of [Hariri 2026, Alg. 1]
        and scorio), 1/2 each ("jeffreys"), any number above 0 for both, or a pair (correct, wrong).
        Intervals of a fixed prior miss on hard and on easy benchmarks.
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
    Scores of k > 1 trials depend on how far apart the questions are, and the learned prior has too
    little mass where they are all alike, s → ∞. Where that has a posterior probability of at least
    1/4 (prior 1/2), the ends of "exact" and "hdi" intervals are the farther ones of the learned
    prior and of curve(p), p ~ Beta(.7 + S, .7 + F) with S correct and F wrong trials in all. Mean
    and sd are those of the learned prior; so is everything at k = 1, and for clusters.

    Questions of two kinds have p_α ~ w Beta(s₁ m₁, s₁ (1 − m₁)) + (1 − w) Beta(s₂ m₂, s₂ (1 − m₂)),
    w uniform and each (m_j, s_j) with the prior of (m, s), integrated out by importance sampling.
    Where that has a posterior probability P of at least .6 (prior 1/2; of 8 questions or more), the
    posterior of a score of k > 1 is the average over one kind and two, of weights 1 − P and P, and
    intervals allow as above for questions that are all alike within their kind. Against 4,000,000
    plain draws (10 benchmarks, 5 scores) mean and sd under two kinds are off by .01 posterior sd,
    root mean square, and ends by .03 (at most .11); ends of the population by .05 (at most .23).

    Where two thirds of the questions or more have no right answer (or none a wrong one), and there
    are at most 10 trials per question on average, the ends of "exact" and "hdi" intervals of a
    score of k > 1 are the farther ones of the learned prior and of s / (2 + s) ~ Beta(.7, 1), if
    that has a posterior probability of at least 1/4 (prior 1/2). `wider_spread` says what this
    costs.

    Coverage of 95% intervals in simulations of 30 questions (`examples/calibration.py --parts
    pass`; 19 shapes, 200 to 600 runs, standard error 1 to 2; the docs on intervals have the
    tables):

    - N = 4, k = 2, 4: 92 to 100%, near-certain questions that are all alike among them.
    - N = 8 and 16, k = 2 and N: 92 to 100%; the least is Pass@16 of p ~ Beta(5,5), 91.9%.
    - Two kinds of questions, N = 8 and 16, k = 2 to N, 300 runs: half p = .2, half .9 (also .05 and
      .9, .02 and .5) 92 to 100%, half Beta(.3,3), half Beta(8,2) 91 to 97% (with one kind alone 37
      to 100% and 66 to 97%).
    - Ends of exact intervals of two questions are off by more than .2 posterior sd in 12 of 150
      cases (against 400,000 draws), where the score is next to 0 or 1, since they are computed
      from moments: Pass^2 of two questions without a right answer in 4 trials ends at .13 in place
      of .08, Pass^4 with one right answer at .051 in place of .066.
    - k > N, which a `note` says too: Pass@8 | Pass@32 96 | 98% (p = .5 for all), 98 | 95%
      (Beta(.3,.3)), 98 | 82% (Beta(5,5)), 92 | 82% (U(0,1)), 89 | 69% (Beta(2,2)).

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
    quantities = [quantity._replace(k=check_k(quantity.k)) for quantity in quantities]
    curves = [quantity.curve() for quantity in quantities]
    require_binary(outcomes)
    scope = check_option("scope", scope, SCOPES)
    if not curves:
        return []
    if isinstance(prior, str) and prior == "learned":
        if scope == "benchmark" and _are_scores_of_single_trials(outcomes, curves):
            score = hbayes_at_n(replace(outcomes, weights=np.array([0.0, 1.0])))
            return [
                replace(
                    score,
                    quantity=f"{name} posterior",
                    k=k,
                    tau=None if tau is None else float(tau),
                )
                for name, k, tau in quantities
            ]
        return _learned(outcomes, quantities, curves, scope)
    pseudo = _pseudo_counts(prior)
    if scope == "population":
        rule = 'be "benchmark" unless the prior is learned'
        raise InvalidInputError.of("scope", "unsupported", rule, scope)
    nu = outcomes.weighted_counts + np.array(pseudo[::-1])
    return [
        _under_fixed_prior(outcomes, nu, pseudo, quantity, curve)
        for quantity, curve in zip(quantities, curves, strict=True)
    ]


def _are_scores_of_single_trials(outcomes: Outcomes, curves: Sequence[Curve]) -> bool:
    """Return whether no question has two trials, and every member is the mean score itself.

    Their posterior is that of hbayes@N, and boards of many such models need no other.
    """
    is_score = all(curve.degree == 1 and curve.top == 1.0 for curve in curves)
    return is_score and outcomes.most_trials <= 1 and not outcomes.prior_counts.any()


def _pseudo_counts(prior: object) -> tuple[float, float]:
    """Return the pseudo-counts of correct and of wrong trials."""
    if isinstance(prior, tuple) and len(prior) == 2:
        return check_prior(prior[0]), check_prior(prior[1])
    if isinstance(prior, (str, tuple, list)) and prior not in ("uniform", "jeffreys"):
        rule = 'be "learned", "uniform", "jeffreys", a number above 0 or a pair of them'
        raise InvalidInputError.of("prior", "range", rule, prior)
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
    grid = hyper_posterior(x, y, OF_CURVES)
    mixture = CurveMixture.of(pairs, grid.logit_mean, grid.log_strength[:, 0], grid.weight, curves)
    learned = learned_from_grid(grid)
    equal = _common_probability(x, y, grid)
    is_of_trials = max(quantity.k for quantity in quantities) > 1
    kinds = probable_kinds(pairs, grid) if is_of_trials and equal is None else None
    of_kinds = None
    if kinds is not None and not is_known(kinds):
        of_kinds = UNKNOWN_KINDS.format(ess=kinds.ess)
    elif is_of_trials and kinds is None and histogram_discrepancy(x, y, grid) > _CONTRADICTED:
        of_kinds = SEVERAL_KINDS

    def note_of(k: int, scope: Scope) -> str | None:
        of_trials = _note(x, y, k, scope, alike=equal is not None)
        return joined_notes([of_trials, of_kinds if k > 1 else None])

    def averaged(posteriors: list[Posterior]) -> list[Posterior]:
        if kinds is None or not is_known(kinds):
            return posteriors
        return averaged_over_kinds(posteriors, curves, pairs, kinds)

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
            distribution=_allowing_for_equal(
                CurveMixtureDistribution(mixture, curve, moments), quantity.k, curve, equal
            ),
            k=quantity.k,
            tau=None if quantity.tau is None else float(quantity.tau),
            n_trials=float((x + y).mean()),
            trials_range=outcomes.trials_range,
            learned=learned,
            note=note_of(quantity.k, "benchmark"),
            question_ids=outcomes.question_ids,
        )

    posteriors = [
        posterior_of(quantity, curve, moments)
        for quantity, curve, moments in zip(
            quantities, curves, mixture.moments(curves), strict=True
        )
    ]
    spread = _mostly_extreme(x, y) and (x + y).mean() <= _FEW_TRIALS
    if scope == "benchmark":
        posteriors = averaged(posteriors)
        return allowing_for_spread(posteriors, mixture, curves) if spread else posteriors
    index = outcomes.cluster_index
    clusters = None
    at_nodes: FloatArray | None = None
    if index is not None:
        of_clusters, clusters = clustered_curves(outcomes, index, curves)
        distributions: list[Distribution] = [*of_clusters]
    else:
        at_nodes = curve_means(mixture.logit_mean, mixture.log_strength, curves)
        distributions = [
            _allowing_for_equal(population_of_curve(mixture, curve, at_node), k, curve, equal)
            for (_, k, _), curve, at_node in zip(quantities, curves, at_nodes, strict=True)
        ]
    few = None if clusters is None else few_clusters_note(clusters.n_clusters)
    notes = [joined_notes([note_of(k, "population"), few]) for _, k, _ in quantities]
    populations = averaged(
        [
            _population(posterior, distribution, clusters, note)
            for posterior, distribution, note in zip(posteriors, distributions, notes, strict=True)
        ]
    )
    if spread:
        return allowing_for_spread(populations, mixture, curves, at_nodes)
    return populations


def _common_probability(
    x: FloatArray, y: FloatArray, grid: HyperGrid
) -> tuple[FloatArray, FloatArray] | None:
    """Return a and b, each (1,), of p ~ Beta(a, b) if the same for all questions, else None."""
    if x.size == 1 or equal_probability(x, y, grid) < LEAST_EQUAL:
        return None
    return np.array([x.sum() + MEAN_SHAPE]), np.array([y.sum() + MEAN_SHAPE])


def _allowing_for_equal(
    distribution: Distribution,
    k: int,
    curve: Curve,
    common: tuple[FloatArray, FloatArray] | None,
) -> Distribution:
    """Allow in intervals for questions that are all alike, where they may be, at k > 1."""
    if common is None or k == 1:
        return distribution
    (mean,), (variance,) = beta_moments(*common, curve)
    alike = IndependentBetas(*common, curve, 0.0, 1.0, float(mean), float(np.sqrt(variance)))
    return AllowingForAnother(distribution, alike)


def _population(
    benchmark: Posterior,
    distribution: Distribution,
    clusters: LearnedClusters | None,
    note: str | None,
) -> Posterior:
    """Return the posterior of scope "population"."""
    mu, sigma = distribution.moments()
    return replace(
        benchmark,
        mu=float(np.clip(mu, *benchmark.bounds)),
        sigma=sigma,
        distribution=distribution,
        scope="population",
        note=note,
        benchmark=benchmark,
        clusters=clusters,
    )


def _note(x: FloatArray, y: FloatArray, k: int, scope: Scope, *, alike: bool) -> str | None:
    """Return the warnings about a posterior by its trials, if any.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question.
    k : int
        New trials.
    scope : {"benchmark", "population"}
        What the score is the mean of.
    alike : bool
        Whether the questions may all be alike.
    """
    trials = x + y
    if trials.max() == 0.0:
        return NO_TRIALS
    if trials.max() <= 1.0 and k > 1:
        return SINGLE_TRIALS
    if trials.max() <= 1.0:
        return PRIOR_ALONE if scope == "benchmark" else None
    fewest = trials.min()
    beyond = BEYOND_TRIALS.format(k=k, n=f"{fewest:g}") if k > fewest else None
    warns = k > 1 and not alike and _mostly_extreme(x, y)
    return joined_notes([beyond, MOSTLY_EXTREME if warns else None])


def _mostly_extreme(x: FloatArray, y: FloatArray) -> bool:
    """Return whether most questions have no right answer, or most have no wrong one."""
    return bool(max((x == 0.0).mean(), (y == 0.0).mean()) >= _MOSTLY)
