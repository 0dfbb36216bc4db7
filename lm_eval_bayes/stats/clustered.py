"""The Bayesian cluster model: the mean score of a population of questions that come in groups."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from lm_eval_bayes.stats.arrays import cluster_index
from lm_eval_bayes.stats.hierarchical.clusters import clustered_population
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import Posterior


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
        Counts; the score of more than two categories counts as that share of a success. Prior
        trials do not enter.
    clusters : sequence, length M, optional
        The cluster of each question, e.g. its topic. Left out, those of the outcomes; without
        these, each question is a cluster of its trials.

    Returns
    -------
    Posterior
        Of scope "population"; `clusters` holds the posteriors of d and s, and `benchmark` the
        posterior of these questions.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

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
    labels = outcomes.clusters if clusters is None else clusters
    labels = range(outcomes.n_questions) if labels is None else labels
    index = cluster_index(labels, outcomes.n_questions, "question")
    outcomes = replace(outcomes.without_prior(), clusters=tuple(labels))
    benchmark = hbayes_at_n(outcomes)
    return replace(clustered_population(outcomes, index, benchmark), quantity="clustered mean")
