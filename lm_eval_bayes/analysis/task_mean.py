"""The posterior of a weighted mean of independent scores.

Scores under a uniform prior for every question, and differences that are paired by question, are
independent from task to task. Those of hbayes@N share a prior: see
`lm_eval_bayes.stats.hierarchical.mean_over_tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_eval_bayes.stats.arrays import read_only
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.states import WeightedSum


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
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> a, b = (bayes_at_n(Outcomes.from_matrix([[r]])) for r in (1, 0))
    >>> mean = mean_posterior([a, b])
    >>> mean.mu, round(mean.sigma, 6)  # 1/6
    (0.5, 0.166667)
    """
    relative = [1.0] * len(posteriors) if weights is None else list(weights)
    total = sum(relative)
    weighted = [(w / total, post) for w, post in zip(relative, posteriors, strict=True)]
    bounds = (
        float(sum(w * post.bounds[0] for w, post in weighted)),
        float(sum(w * post.bounds[1] for w, post in weighted)),
    )
    sizes = np.array([post.per_question.mu.size for post in posteriors], dtype=np.float64)
    n_trials = [post.n_trials for post in posteriors if post.n_trials is not None]
    ranges = [post.trials_range for post in posteriors if post.trials_range is not None]
    sample_sizes = [post.ess for post in posteriors if post.ess is not None]
    first = posteriors[0]
    return Posterior(
        quantity=f"mean of {first.quantity}",
        mu=float(np.clip(sum(w * post.mu for w, post in weighted), *bounds)),
        sigma=float(np.sqrt(sum((w * post.sigma) ** 2 for w, post in weighted))),
        per_question=PerQuestion(
            read_only(np.concatenate([post.per_question.mu for post in posteriors]), np.float64),
            read_only(np.concatenate([post.per_question.sigma for post in posteriors]), np.float64),
        ),
        bounds=bounds,
        prior=first.prior,
        distribution=WeightedSum(
            tuple(post.distribution for post in posteriors), tuple(w for w, _ in weighted)
        ),
        scope=first.scope,
        level=first.level,
        method=first.method,
        n_trials=float(sizes @ n_trials / sizes.sum())
        if len(n_trials) == len(posteriors)
        else None,
        trials_range=(min(low for low, _ in ranges), max(high for _, high in ranges))
        if len(ranges) == len(posteriors)
        else None,
        ess=min(sample_sizes) if sample_sizes else None,
        seed=next((post.seed for post in posteriors if post.seed is not None), None),
        note=joined_notes(post.note for post in posteriors),
    )
