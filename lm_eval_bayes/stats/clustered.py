"""The Bayesian cluster model: the mean score of a population of questions that come in groups."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import check_clusters, cluster_index
from lm_eval_bayes.stats.distributions.base import TabulatedDistribution
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
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes, scaled_weights
from lm_eval_bayes.stats.results import LearnedPrior, PerQuestion, Posterior


def clustered_posterior(
    outcomes: Outcomes, clusters: Sequence[Hashable] | None = None
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

    The prior is θ ~ Beta(.7, .7), d/(3 + d) ~ Beta(1, .7), s/(20 + s) ~ Beta(.7, 1), chosen by
    simulated coverage (`examples/clusters.py`). [Bowyer 2025, §3.2] has the same model with other
    priors, θ ~ U(0, 1) and d ~ Gamma(1, 1), and without s.

    Parameters
    ----------
    outcomes : Outcomes
        Counts with two distinct weights. Prior trials do not enter.
    clusters : sequence, length M, optional
        The cluster of each question, e.g. its topic. Left out, those of the outcomes; without
        these, each question is a cluster of its trials.

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
    several = index.max() + 1 < n_questions
    likelihood = NestedLikelihood(Clusters.of(x, y, index) if several else Clusters.of_trials(s, f))
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
