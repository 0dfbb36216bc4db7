"""The posterior of scope "population" where questions come in clusters."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.distributions.base import CdfTable, TabulatedDistribution, logit_table
from lm_eval_bayes.stats.distributions.curve_population import distribution_over_nodes
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.distributions.weighted import weighted_quantiles
from lm_eval_bayes.stats.hierarchical.nested_beta import (
    ClusterGrid,
    Clusters,
    NestedLikelihood,
    cluster_posterior,
    curve_values,
    grid_with_within,
)
from lm_eval_bayes.stats.outcomes import Outcomes, scaled_weights
from lm_eval_bayes.stats.results import STRENGTH_MASSES, LearnedClusters, Posterior

#: The note on a rubric's clusters.
SCORES_AS_SHARES = (
    "The cluster model takes the score of a trial with more than two categories as that share of a "
    "success."
)
#: Points between two nodes of logit θ at which a population's score is interpolated.
_FINER = 4
#: With fewer clusters than this, the interval depends on the prior of their similarity.
_FEW_CLUSTERS = 5


def clustered_population(outcomes: Outcomes, index: IntArray, benchmark: Posterior) -> Posterior:
    """Return the posterior of θ, the mean of a population of clusters.

    Parameters
    ----------
    outcomes : Outcomes
        The trials, with clusters. Prior trials count as trials, each with the weight λ.
    index : array of int, shape (M,)
        Their `cluster_index`.
    benchmark : Posterior
        Of scope "benchmark", from the same outcomes.
    """
    low, span, unit = scaled_weights(outcomes.weights)
    trials = outcomes.weighted_counts
    likelihood = NestedLikelihood(Clusters.of(trials @ unit, trials @ (1.0 - unit), index))
    grid = cluster_posterior(likelihood)
    mean, sd, table = cluster_mean(grid)
    mu = float(np.clip(low + span * mean, *outcomes.bounds))
    notes = [few_clusters_note(int(index.max()) + 1)]
    if outcomes.top_categories() is None:
        notes.append(SCORES_AS_SHARES)
    return replace(
        benchmark,
        mu=mu,
        sigma=span * sd,
        distribution=TabulatedDistribution(table.scaled(*outcomes.bounds), mu, span * sd),
        scope="population",
        ess=None,
        seed=None,
        note=" ".join(note for note in notes if note) or None,
        benchmark=benchmark,
        clusters=learned_clusters(grid, outcomes.clusters or (), index),
    )


def clustered_curves(
    outcomes: Outcomes, index: IntArray, curves: Sequence[Curve]
) -> tuple[list[TabulatedDistribution], LearnedClusters]:
    """Return the distributions of E curve(q) for a question of a further cluster.

    Parameters
    ----------
    outcomes : Outcomes
        Binary trials, with clusters. Prior trials count as trials, each with the weight λ.
    index : array of int, shape (M,)
        Their `cluster_index`.
    curves : sequence of Curve, length K
        The scores of a question as functions of its success probability q.

    Returns
    -------
    distributions : list of TabulatedDistribution, length K
    clusters : LearnedClusters
    """
    wrong, right = outcomes.weighted_counts.T
    likelihood = NestedLikelihood(Clusters.of(right, wrong, index))
    clusters = likelihood.clusters
    grid = cluster_posterior(likelihood)
    learned = learned_clusters(grid, outcomes.clusters or (), index)
    mean, sd, table = cluster_mean(grid)
    # of one trial, the expected score is θ
    of_one_trial = TabulatedDistribution(table, mean, sd)
    grid = grid_with_within(clusters, grid, max(curve.degree for curve in curves))
    values = curve_values(clusters, grid, curves)
    distributions = [
        of_one_trial
        if curve.degree == 1 and curve.top == 1.0
        else distribution_over_nodes(value, grid.mass, curve.top, (_FINER, 1, 1))
        for value, curve in zip(values, curves, strict=True)
    ]
    return distributions, learned


def cluster_mean(grid: ClusterGrid) -> tuple[float, float, CdfTable]:
    """Return mean, sd and distribution function of θ."""
    axis = grid.logit_mean
    return logit_table(axis, grid.mass.sum(axis=(1, 2)) / (axis[1] - axis[0]))


def learned_clusters(
    grid: ClusterGrid, labels: tuple[Hashable, ...], index: IntArray
) -> LearnedClusters:
    """Summarize what is learned of the clusters of M questions, numbered by `index` (M,)."""
    n_clusters = int(index.max()) + 1
    low, median, high = _log_quantiles(grid.log_strength, grid.mass.sum(axis=(0, 2)))
    if grid.log_within.size == 1:
        return LearnedClusters(labels, n_clusters, median, low, high)
    within = _log_quantiles(grid.log_within, grid.mass.sum(axis=(0, 1)))
    return LearnedClusters(labels, n_clusters, median, low, high, within[1], within[0], within[2])


def _log_quantiles(axis: FloatArray, mass: FloatArray) -> list[float]:
    """Return the 2.5%, 50% and 97.5% quantiles of exp(axis), the mass being around the nodes."""
    return [float(x) for x in np.exp(weighted_quantiles(axis, mass, STRENGTH_MASSES))]


def few_clusters_note(n_clusters: int) -> str | None:
    """Return the warning of an interval from few clusters."""
    if n_clusters >= _FEW_CLUSTERS:
        return None
    return (
        f"There are only {n_clusters} clusters: the interval for the population of questions "
        "depends on the prior of how alike clusters are."
    )
