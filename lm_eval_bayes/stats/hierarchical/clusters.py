"""The posterior of scope "population" where questions come in clusters."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.distributions import (
    beta_quantile,
    of_logit,
    weighted_quantiles,
)
from lm_eval_bayes.stats.hierarchical.nested_beta import (
    ClusterGrid,
    Clusters,
    NestedLikelihood,
    cluster_posterior,
    grid_with_within,
)
from lm_eval_bayes.stats.outcomes import Outcomes, scaled_weights
from lm_eval_bayes.stats.results import LearnedClusters, Posterior
from lm_eval_bayes.stats.states import MomentsOf

#: States of a further cluster, quantiles of its mean in each, and the most trials of a question
#: that its own strength is told from infinity by.
_STATES, _QUANTILES, _MOST_WITHIN = 1_000, 24, 100
#: With fewer clusters than this, the interval depends on the prior of their similarity.
_FEW_CLUSTERS = 5


def clustered_population(outcomes: Outcomes, index: IntArray, benchmark: Posterior) -> Posterior:
    """Return the posterior of θ, the mean of a population of clusters.

    Parameters
    ----------
    outcomes : Outcomes
        The trials, with clusters; the score of more than two categories counts as that share of
        a success. Prior trials count as trials, each with the weight λ.
    index : array of int, shape (M,)
        Their `cluster_index`.
    benchmark : Posterior
        Of scope "benchmark", from the same outcomes.
    """
    low, span, unit = scaled_weights(outcomes.weights)
    trials = outcomes.weighted_counts
    right, wrong = trials @ unit, trials @ (1.0 - unit)
    n_clusters = int(index.max()) + 1
    if n_clusters == index.size:
        clusters = Clusters.of_trials(right, wrong)
    else:
        clusters = Clusters.of(right, wrong, index)
    grid = cluster_posterior(NestedLikelihood(clusters))
    axis = grid.logit_mean
    density = grid.mass.sum(axis=(1, 2)) / (axis[1] - axis[0])
    distribution = of_logit(axis, density).scaled(low, low + span)
    return replace(
        benchmark,
        mu=float(np.clip(distribution.mean, *outcomes.bounds)),
        sigma=distribution.sd,
        distribution=distribution,
        scope="population",
        ess=None,
        seed=None,
        note=few_clusters_note(n_clusters),
        benchmark=benchmark,
        clusters=learned_clusters(grid, outcomes.clusters or (), index),
    )


def clustered_values(
    outcomes: Outcomes, index: IntArray, moments_of: MomentsOf, n_quantities: int, seed: int
) -> tuple[FloatArray, LearnedClusters]:
    """Return the mean of quantities of a question of a further cluster in P states, (J, P).

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    index : array of int, shape (M,)
        The cluster of each question.
    moments_of : callable
        The moments of J quantities of a question, given the parameters of its Beta distribution.
    n_quantities : int
        J.
    seed : int
        Of the states.
    """
    wrong, right = outcomes.weighted_counts.T
    clusters = Clusters.of(right, wrong, index)
    grid = cluster_posterior(NestedLikelihood(clusters))
    learned = learned_clusters(grid, outcomes.clusters or (), index)
    grid = grid_with_within(clusters, grid, _MOST_WITHIN)
    rng = np.random.default_rng(seed)
    below = np.cumsum(grid.mass)
    node = np.searchsorted(below, (np.arange(_STATES) + rng.random()) * (below[-1] / _STATES))
    axes = (grid.logit_mean, grid.log_strength, grid.log_within)
    steps = [axis[1] - axis[0] if axis.size > 1 else 0.0 for axis in axes]
    y, log_d, log_s = (
        axis[at] + step * (rng.random(_STATES) - 0.5)
        for axis, at, step in zip(axes, np.unravel_index(node, grid.mass.shape), steps, strict=True)
    )
    d, s = np.exp(log_d)[:, None], np.exp(log_s)[:, None]
    theta, other = special.expit(y)[:, None], special.expit(-y)[:, None]
    middle = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    p = beta_quantile(d * theta, d * other, middle)
    q = beta_quantile(d * other, d * theta, 1.0 - middle)
    alpha = np.maximum(np.stack([(s * q).ravel(), (s * p).ravel()]), 1e-9)
    values = moments_of(alpha).first.reshape(n_quantities, _STATES, _QUANTILES)
    return values.mean(axis=2), learned


def learned_clusters(
    grid: ClusterGrid, labels: tuple[Hashable, ...], index: IntArray
) -> LearnedClusters:
    """Summarize what is learned of the clusters of M questions, numbered by `index` (M,)."""
    n_clusters = int(index.max()) + 1
    d = _log_median(grid.log_strength, grid.mass.sum(axis=(0, 2)))
    if grid.log_within.size == 1:
        return LearnedClusters(labels, n_clusters, d)
    s = _log_median(grid.log_within, grid.mass.sum(axis=(0, 1)))
    return LearnedClusters(labels, n_clusters, d, s)


def _log_median(axis: FloatArray, mass: FloatArray) -> float:
    """Return the median of exp(axis), the mass being around the nodes."""
    return float(np.exp(weighted_quantiles(axis, mass, np.array(0.5))))


def few_clusters_note(n_clusters: int) -> str | None:
    """Return the warning of an interval from few clusters."""
    if n_clusters >= _FEW_CLUSTERS:
        return None
    return (
        f"There are only {n_clusters} clusters: the interval for the population of questions "
        "depends on the prior of how alike clusters are."
    )
