"""The posterior of a weighted mean of independent scores.

Scores under a uniform prior for every question, and differences that are paired by question, are
independent from task to task. Those of hbayes@N share a prior: see
`lm_eval_bayes.stats.hierarchical.mean_over_tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lm_eval_bayes.stats import PerQuestion, Posterior, WeightedSum, joined_notes


def mean_posterior(
    posteriors: Sequence[Posterior], weights: Sequence[float] | None = None
) -> Posterior:
    """Return the posterior of Σ w_t S_t for independent scores S_t.

    Its mean is Σ w μ and its standard deviation sqrt(Σ w² σ²), exactly. Its distribution is drawn.

    Parameters
    ----------
    posteriors : sequence of Posterior
        At least one, one per task: scores, or differences of scores; all of one scope.
    weights : sequence of float, optional
        Positive weights, scaled to sum to 1. Equal by default.

    Returns
    -------
    Posterior
        With all questions in `per_question`, task by task, and without `benchmark`.

    Examples
    --------
    Beta(2, 1) and Beta(1, 2), each of sd 1/√18, with equal weights:

    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> a, b = (bayes_at_n(Outcomes.from_matrix([[r]])) for r in (1, 0))
    >>> mean = mean_posterior([a, b])
    >>> mean.mu, round(mean.sigma, 6)  # 1/6
    (0.5, 0.166667)
    """
    shares = np.ones(len(posteriors)) if weights is None else np.array(weights, dtype=np.float64)
    shares /= shares.sum()
    first, lows_highs = posteriors[0], np.array([posterior.bounds for posterior in posteriors])
    low, high = (shares @ lows_highs).tolist()
    sizes = np.array([posterior.per_question.mu.size for posterior in posteriors])
    n_trials = [post.n_trials for post in posteriors if post.n_trials is not None]
    ranges = [post.trials_range for post in posteriors if post.trials_range is not None]
    distribution = WeightedSum(
        tuple(posterior.distribution for posterior in posteriors), tuple(shares.tolist())
    )
    return replace(
        first,
        quantity=f"mean of {first.quantity}",
        mu=float(np.clip(shares @ [posterior.mu for posterior in posteriors], low, high)),
        sigma=float(np.linalg.norm(shares * [posterior.sigma for posterior in posteriors])),
        per_question=PerQuestion(
            np.concatenate([posterior.per_question.mu for posterior in posteriors]),
            np.concatenate([posterior.per_question.sigma for posterior in posteriors]),
        ),
        bounds=(low, high),
        distribution=distribution,
        n_trials=float(np.average(n_trials, weights=sizes)) if n_trials else None,
        trials_range=(min(r[0] for r in ranges), max(r[1] for r in ranges)) if ranges else None,
        note=joined_notes(posterior.note for posterior in posteriors),
        question_ids=None,
    )
