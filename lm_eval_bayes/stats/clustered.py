"""The Bayesian cluster model: the mean score of a population of questions that come in groups."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.distributions.base import CdfTable, TabulatedDistribution
from lm_eval_bayes.stats.frequentist.means import cluster_index
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes, distinct_pairs, scaled_weights
from lm_eval_bayes.stats.results import STRENGTH_MASSES, LearnedPrior, PerQuestion, Posterior
from lm_eval_bayes.stats.validation import FloatArray

#: Nodes of the final grid, in logit θ and in log d; both integrands are smooth and die away
#: at both ends, where the trapezoid rule converges faster than any power of the step.
_NODES = (241, 121)
#: Nodes of the grids that locate the mass.
_SEARCH = (61, 61)
#: Depth of the log density below the peak at which it is cut off (e^-40 = 4e-18).
_DROP = 40.0
_TABLE = 8193


def clustered_posterior(
    outcomes: Outcomes, clusters: Sequence[Hashable] | None = None
) -> Posterior:
    """Return the posterior of the mean score under the cluster model [Bowyer 2025, §3.2].

    θ ~ U(0, 1) is the mean success probability of the population of questions and d ~ Gamma(1, 1)
    the similarity of the clusters; cluster t succeeds with p_t ~ Beta(dθ, d(1 − θ)), its n_t trials
    independently given p_t. With p_t integrated out,

        p(θ, d | data) ∝ e^{−d} Π_t B(S_t + dθ, n_t − S_t + d(1 − θ)) / B(dθ, d(1 − θ)),

    and θ's share of it is computed by quadrature over (logit θ, log d); the paper and its
    library `bayes_evals` draw the same posterior by importance sampling. The population
    scope of `hbayes_at_n` differs in the prior of d alone: Gamma(1, 1) expects clusters that
    are nearly all right or all wrong (d about 1), which suits topics of alike questions
    and repeated trials of decided models, and is strong where clusters are few.

    Parameters
    ----------
    outcomes : Outcomes
        Counts with two distinct weights. Each question is a cluster of its trials, unless
        `clusters` puts several together. Prior trials do not enter.
    clusters : sequence, length M, optional
        The cluster of each question, e.g. its topic.

    Returns
    -------
    Posterior
        Of scope "population"; `per_question` holds each cluster's p_t, in the order in which
        the clusters first come, and `learned` the posterior of d as `strength`.

    Raises
    ------
    InvalidInputError
        If there are more than two distinct weights, no trial at all, or `clusters` breaks its
        rule.

    Examples
    --------
    Five passages with four questions each; as twenty independent answers they would give
    Beta(13, 9), an interval of [0.38, 0.78]:

    >>> counts = [[0, 4], [4, 0], [0, 4], [1, 3], [3, 1]]
    >>> posterior = clustered_posterior(Outcomes.from_counts(counts))
    >>> interval = posterior.interval()
    >>> round(posterior.mu, 3), round(interval.low, 3), round(interval.high, 3)
    (0.58, 0.274, 0.851)
    """
    check_outcomes("outcomes", outcomes)
    successes, failures = outcomes.right_and_wrong()
    low, span, _ = scaled_weights(outcomes.weights)
    if clusters is not None:
        where = cluster_index(clusters, outcomes.n_questions, "question")
        successes = np.bincount(where, weights=successes)
        failures = np.bincount(where, weights=failures)
    if not (successes.any() or failures.any()):
        raise InvalidInputError.of("outcomes", "have at least one trial", "none")
    s, f = np.asarray(successes, dtype=np.float64), np.asarray(failures, dtype=np.float64)
    return _posterior(s, f, low, span)


def _posterior(s: FloatArray, f: FloatArray, low: float, span: float) -> Posterior:
    """Return the posterior from each cluster's successes and failures."""
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
    score = low + span * special.expit(table.score)
    mu, sigma = low + span * mean, span * sd
    return Posterior(
        quantity="clustered mean",
        mu=mu,
        sigma=sigma,
        per_question=PerQuestion(
            low + span * cluster_mean[alike.where], span * cluster_sd[alike.where]
        ),
        bounds=(low, low + span),
        prior=None,
        distribution=TabulatedDistribution(CdfTable(table.probability, score), mu, sigma),
        scope="population",
        learned=LearnedPrior.of([1.0 - mean, mean], np.exp(log_strength)),
        note="one cluster says little about others" if s.size == 1 else None,
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
