"""The Bayesian cluster model: the mean score of a population of questions that come in groups."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, check_clusters, cluster_index
from lm_eval_bayes.stats.distributions.base import CdfTable, TabulatedDistribution
from lm_eval_bayes.stats.hierarchical.clusters import (
    cluster_mean,
    few_clusters_note,
    learned_clusters,
)
from lm_eval_bayes.stats.hierarchical.nested_beta import (
    Clusters,
    NestedLikelihood,
    cluster_moments,
    cluster_posterior,
)
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes, distinct_pairs, scaled_weights
from lm_eval_bayes.stats.results import STRENGTH_MASSES, LearnedPrior, PerQuestion, Posterior
from lm_eval_bayes.stats.validation import check_option

ClusterPrior: TypeAlias = Literal["learned", "gamma"]
CLUSTER_PRIORS: tuple[ClusterPrior, ...] = ("learned", "gamma")

#: Nodes of the final grid, in logit θ and in log d; both integrands are smooth and die away
#: at both ends, where the trapezoid rule converges faster than any power of the step.
_NODES = (241, 121)
#: Nodes of the grids that locate the mass.
_SEARCH = (61, 61)
#: Depth of the log density below the peak at which it is cut off (e^-40 = 4e-18).
_DROP = 40.0
_TABLE = 8193


def clustered_posterior(
    outcomes: Outcomes,
    clusters: Sequence[Hashable] | None = None,
    prior: ClusterPrior = "learned",
) -> Posterior:
    """Return the posterior of the mean score of a population of clusters of questions.

    θ is the mean over the population of clusters, whatever their sizes: sizes are taken to be
    unrelated to scores. Cluster t has the mean p_t ~ Beta(dθ, d(1 − θ)), and a question α in it
    the success probability q_α ~ Beta(s p_t, s(1 − p_t)); its trials are independent given q_α.
    With the q_α integrated out,

        p(θ, d, s | data) ∝ p(θ) p(d) p(s) Π_t ∫ Beta(p; dθ, d(1 − θ)) Π_{α in t} p(x_α | p, s) dp,

    where p(x_α | p, s) is beta-binomial. All integrals are computed by quadrature. With one trial
    per question s cancels; without clusters of several questions it is left out, and the trials
    of a cluster are independent given p_t.

    The prior "learned" is θ ~ Beta(.7, .7), d/(3 + d) ~ Beta(1, .7), s/(20 + s) ~ Beta(.7, 1),
    chosen by simulated coverage (`examples/clusters.py`). "gamma" is the model of [Bowyer 2025,
    §3.2]: θ ~ U(0, 1), d ~ Gamma(1, 1), and all trials of a cluster independent given p_t. It
    expects clusters that are nearly all right or all wrong (d about 1): where they are more alike
    its intervals hold 97 to 100% at 95% and are up to 1.7 times as wide as necessary, and for five
    clusters of mean .93 they hold 86%.

    Parameters
    ----------
    outcomes : Outcomes
        Counts with two distinct weights. Prior trials do not enter.
    clusters : sequence, length M, optional
        The cluster of each question, e.g. its topic. Left out, those of the outcomes; without
        these, each question is a cluster of its trials.
    prior : {"learned", "gamma"}
        The prior of θ, d and s.

    Returns
    -------
    Posterior
        Of scope "population"; `per_question` holds each cluster's p_t, in the order in which
        the clusters first come, `learned` the posterior of d as `strength`, and `clusters` those of
        d and s.

    Raises
    ------
    InvalidInputError
        If there are more than two distinct weights, no trial at all, or an argument breaks its
        rule.

    Examples
    --------
    Five passages with four questions each; as twenty independent answers they would give
    Beta(13, 9), an interval of [0.38, 0.78]:

    >>> counts = [[0, 4], [4, 0], [0, 4], [1, 3], [3, 1]]
    >>> posterior = clustered_posterior(Outcomes.from_counts(counts))
    >>> interval = posterior.interval()
    >>> round(posterior.mu, 3), round(interval.low, 3), round(interval.high, 3)
    (0.591, 0.286, 0.858)
    """
    check_outcomes("outcomes", outcomes)
    prior = check_option("prior", prior, CLUSTER_PRIORS)
    successes, failures = outcomes.right_and_wrong()
    low, span, _ = scaled_weights(outcomes.weights)
    labels = outcomes.clusters if clusters is None else clusters
    n_questions = outcomes.n_questions
    if labels is None:
        labels = range(n_questions)
    labels = check_clusters(labels, n_questions) or ()
    index = cluster_index(labels, n_questions, "question")
    if not (successes.any() or failures.any()):
        raise InvalidInputError.of("outcomes", "empty", "have at least one trial", "none")
    x, y = successes.astype(np.float64), failures.astype(np.float64)
    s, f = (np.bincount(index, weights=trials).astype(np.float64) for trials in (x, y))
    learned = None
    if prior == "gamma":
        mean, sd, table, cluster_means, cluster_sds, strength = _under_gamma_prior(s, f)
    else:
        several = index.max() + 1 < n_questions
        alike = Clusters.of(x, y, index) if several else Clusters.of_trials(s, f)
        likelihood = NestedLikelihood(alike)
        grid = cluster_posterior(likelihood)
        mean, sd, table = cluster_mean(grid)
        cluster_means, cluster_sds = cluster_moments(likelihood, grid)
        learned = learned_clusters(grid, labels, index)
        strength = np.array([learned.strength_low, learned.strength, learned.strength_high])
    mu, sigma = low + span * mean, span * sd
    return Posterior(
        quantity="clustered mean",
        mu=mu,
        sigma=sigma,
        per_question=PerQuestion(low + span * cluster_means, span * cluster_sds),
        bounds=(low, low + span),
        prior=None,
        distribution=TabulatedDistribution(table.scaled(low, low + span), mu, sigma),
        scope="population",
        learned=LearnedPrior.of([1.0 - mean, mean], strength),
        clusters=learned,
        note=few_clusters_note(s.size),
    )


def _under_gamma_prior(
    s: FloatArray, f: FloatArray
) -> tuple[float, float, CdfTable, FloatArray, FloatArray, FloatArray]:
    """Return the posterior under Gamma(1, 1) from each cluster's successes and failures.

    Mean, sd and distribution function of θ, means and sds of the clusters' p_t, and the quantiles
    of d at `STRENGTH_MASSES`.
    """
    y, log_d, density = _grid(s, f)
    theta, other, d = special.expit(y), special.expit(-y), np.exp(log_d)
    mass = density / density.sum()
    by_theta, by_d = mass.sum(axis=1), mass.sum(axis=0)
    mean = float(by_theta @ theta)
    sd = float(np.sqrt(by_theta @ (theta - mean) ** 2))
    a, b = np.outer(theta, d), np.outer(other, d)
    alike = distinct_pairs(s, f)
    cluster_mean, cluster_sd = np.empty(alike.times.size), np.empty(alike.times.size)
    for t, (right, wrong) in enumerate(zip(alike.first, alike.second, strict=True)):
        total = right + wrong + d
        p = (right + a) / total
        cluster_mean[t] = (mass * p).sum()
        spread = p * (wrong + b) / (total * (total + 1.0)) + (p - cluster_mean[t]) ** 2
        cluster_sd[t] = np.sqrt((mass * spread).sum())
    log_strength = _tabulate(log_d, by_d).quantile(STRENGTH_MASSES)
    table = _tabulate(y, by_theta)
    return (
        mean,
        sd,
        CdfTable(table.probability, special.expit(table.score)),
        cluster_mean[alike.where],
        cluster_sd[alike.where],
        np.exp(log_strength),
    )


def _grid(s: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the nodes in logit θ and log d, and the density on them (peak 1).

    The box is found by zooming: from a coarse grid that contains the mass, keep the part
    within `_DROP` of the peak, three times over.
    """
    box = np.array([[-45.0, 45.0], [-45.0, 12.0]])
    for step in range(4):
        nodes = _NODES if step == 3 else _SEARCH
        y = np.linspace(box[0, 0], box[0, 1], nodes[0])
        log_d = np.linspace(box[1, 0], box[1, 1], nodes[1])
        logs = _log_density(s, f, y, log_d)
        logs -= logs.max()
        near_peak = logs > -_DROP
        for axis, points in enumerate((y, log_d)):
            inside = np.flatnonzero(near_peak.any(axis=1 - axis))
            # one node more on either side: the density may cross the threshold between nodes
            first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, points.size - 1)
            box[axis] = points[first], points[last]
    return y, log_d, np.exp(logs)


def _log_density(s: FloatArray, f: FloatArray, y: FloatArray, log_d: FloatArray) -> FloatArray:
    """Return log p(logit θ, log d | data) up to a constant, shape (y, log d).

    Π_t (dθ)_{S_t} (d(1 − θ))_{F_t} / (d)_{n_t} with rising factorials, so only the distinct
    S_t, F_t and n_t are worked on. log θ(1 − θ) and log d are the Jacobians.
    """
    d = np.exp(log_d)
    log_theta, log_other = special.log_expit(y), special.log_expit(-y)
    out = (log_theta + log_other)[:, None] + (log_d - d)
    for sign, counts, log_a in (
        (1.0, s, log_theta[:, None] + log_d),
        (1.0, f, log_other[:, None] + log_d),
        (-1.0, s + f, log_d),
    ):
        for value, times in zip(*np.unique(counts[counts > 0], return_counts=True), strict=True):
            out += sign * times * _log_rising(log_a, value)
    return np.asarray(out)


def _log_rising(log_a: FloatArray, n: float) -> FloatArray:
    """Return log of a(a + 1)…(a + n − 1) for n >= 1, with full digits when a is tiny."""
    a = np.exp(log_a)
    return np.asarray(log_a + special.gammaln(a + n) - special.gammaln(a + 1.0))


def _tabulate(points: FloatArray, mass: FloatArray) -> CdfTable:
    """Return the distribution function of a smooth density, given at even steps, as a table."""
    from scipy.interpolate import CubicSpline  # takes long to import

    rising = CubicSpline(points, mass).antiderivative()
    fine = np.linspace(points[0], points[-1], _TABLE)
    share = np.maximum.accumulate(rising(fine))
    return CdfTable((share - share[0]) / (share[-1] - share[0]), fine)
