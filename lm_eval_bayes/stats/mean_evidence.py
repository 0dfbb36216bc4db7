"""Trials of another benchmark as a prior of the common mean m: their pseudo-trials and weight λ.

The other questions say nothing about single questions, but about how hard questions are: the
posterior of their population's mean vector, Dirichlet(1.4/K + a), becomes a power prior of the
means of the kinds of questions,

    m ~ Dirichlet(1.4/K + λ a).

The pseudo-trials a allow for trials of a question being alike: with one trial per question they
are the counts, with more there are fewer of them [Hariri 2026, D.2].
"""

from __future__ import annotations

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import distinct_weights, hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalMethod, Scope
from lm_eval_bayes.stats.mixture import MEAN_TOTAL
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import check_real


def mean_pseudo_trials(other: Outcomes, *, seed: int = 0) -> FloatArray:
    """Return the pseudo-trials by which a benchmark informs the mean of another, shape (C+1,).

    Dirichlet(1.4/K + a) has the mean vector of the posterior of the benchmark's population, and
    its score has the sd of that posterior: that of Beta(.7 + a_0, .7 + a_1) for two categories.
    Pseudo-trials of categories of equal weight stand in the first of them.

    Parameters
    ----------
    other : Outcomes
        The other benchmark; prior trials and clusters count as in `hbayes_at_n`.
    seed : int
        Seed of the draws, for more than two distinct weights.

    Returns
    -------
    array, shape (C+1,)

    Raises
    ------
    InvalidInputError
        If `other` is no Outcomes, or all of its weights are equal.

    Examples
    --------
    With one trial per question they are the counts, up to the error of the draws. Six trials of as
    many questions say more about how hard these are, but not as much as sixty questions:

    >>> mean_pseudo_trials(Outcomes.from_counts([[1, 0]] * 6 + [[0, 1]] * 4)).round().tolist()
    [6.0, 4.0]
    >>> mean_pseudo_trials(Outcomes.from_counts([[5, 1]] * 6 + [[1, 5]] * 4)).round().tolist()
    [14.0, 10.0]
    """
    check_outcomes("other", other)
    low, high = other.bounds
    if low == high:
        rule = "have two distinct category weights"
        raise InvalidInputError.of("other", "unsupported", rule, other.weights.tolist())
    posterior = hbayes_at_n(other, "population", seed=seed)
    weights, belongs = distinct_weights(other)
    if weights.size == 2 or posterior.learned is None:
        right = (posterior.mu - low) / (high - low)
        share = np.where(weights == high, right, 1.0 - right)
    else:
        share = posterior.learned.mean
    variance = float(share @ weights**2 - (share @ weights) ** 2)
    total = variance / posterior.sigma**2 - 1.0
    merged = np.maximum(total * share - MEAN_TOTAL / weights.size, 0.0)
    pseudo_trials = np.zeros(other.n_categories)
    pseudo_trials[belongs.argmax(axis=0)] = merged
    return pseudo_trials


def mean_evidence(
    outcomes: Outcomes,
    other: Outcomes,
    prior_strength: float,
    scope: Scope = "benchmark",
    level: float = 0.95,
    interval: IntervalMethod = "exact",
    *,
    seed: int = 0,
) -> Posterior:
    """Return hbayes@N with another benchmark as prior of the common mean.

    Parameters
    ----------
    outcomes : Outcomes
        The benchmark.
    other : Outcomes
        The same model's trials of other questions, in the same categories. For an earlier run of
        the same questions see `learn_shift`.
    prior_strength : float
        λ in [0, 1], the weight of the other benchmark. 1 assumes that both are samples of one
        population of questions.
    scope, level, interval, seed
        As for `hbayes_at_n`.

    Returns
    -------
    Posterior

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, the weights differ, or scope is "population" and the
        outcomes have clusters.

    Examples
    --------
    Ten questions, and a hundred of another benchmark that are as hard:

    >>> outcomes = Outcomes.from_counts([[3, 1]] * 5 + [[1, 3]] * 5)
    >>> other = Outcomes.from_counts([[3, 1]] * 55 + [[1, 3]] * 45)
    >>> alone = mean_evidence(outcomes, other, 0.0, scope="population")
    >>> mean_evidence(outcomes, other, 0.3, scope="population").sigma < 0.9 * alone.sigma
    True
    """
    check_outcomes("outcomes", outcomes)
    check_outcomes("other", other)
    if other.weights.tolist() != outcomes.weights.tolist():
        rule = f"have the category weights of `outcomes`, {outcomes.weights.tolist()}"
        raise InvalidInputError.of("other", "mismatch", rule, other.weights.tolist())
    rule = "be a number from 0 to 1"
    strength = check_real("prior_strength", prior_strength, rule, lambda x: 0.0 <= x <= 1.0)
    counts = strength * mean_pseudo_trials(other, seed=seed) if strength > 0.0 else None
    return hbayes_at_n(outcomes, scope, level, interval, mean_counts=counts, seed=seed)
