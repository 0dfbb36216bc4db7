"""Confidence intervals for a mean score: what the CLT and Student's t say.

They are here to be compared with, and because readers ask for them: on small benchmarks most
of them hold the true score less often than they claim [Bowyer 2025].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.bayes_at_n import avg_at_n
from lm_eval_bayes.stats.frequentist.interval import (
    Bounds,
    ConfidenceInterval,
    as_scores,
    bounds_of,
    mean_interval,
    t_quantile,
)
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.validation import check_level


def within_question_clt(outcomes: Outcomes, level: float = 0.95) -> ConfidenceInterval:
    """Return the CLT interval for the score on these questions.

    The questions are taken as given and only the trials as random: with s_α² the unbiased
    variance of question α's N_α scores, SE = sqrt(Σ_α s_α²/N_α)/M and the ends are
    a ± z·SE around avg@N (the conditional variance of Miller 2024, §3). Prior trials do not
    enter.

    Parameters
    ----------
    outcomes : Outcomes
        Counts of M questions, at least two trials each.
    level : float
        In (0, 1).

    Returns
    -------
    ConfidenceInterval
        Of scope "benchmark".

    Raises
    ------
    InvalidInputError
        If a question has fewer than two trials or `level` is outside (0, 1).

    Examples
    --------
    >>> interval = within_question_clt(Outcomes.from_matrix([[0, 1, 1, 0], [1, 1, 1, 1]]))
    >>> interval.estimate, round(interval.standard_error, 4)
    (0.75, 0.1443)
    """
    check_outcomes("outcomes", outcomes)
    level = check_level(level)
    n_trials = outcomes.n_trials
    if n_trials.min() < 2:
        rule = "have at least two trials for every question, which the variance within one needs"
        few = int(n_trials.argmin())
        raise InvalidInputError.of("outcomes", rule, f"{n_trials[few]} for question {few}")
    means = avg_at_n(outcomes)
    deviations = outcomes.weights - means.per_question[:, None]
    variances = (outcomes.counts * deviations**2).sum(axis=1) / (n_trials - 1.0)
    error = float(np.sqrt((variances / n_trials).sum())) / outcomes.n_questions
    return mean_interval(
        means.value,
        error,
        level,
        float(special.ndtri(0.5 + 0.5 * level)),
        method="clt",
        estimand="mean score of these questions",
        scope="benchmark",
        bounds=bounds_of(outcomes),
    )


def clt_interval(
    scores: Outcomes | npt.ArrayLike, level: float = 0.95, bounds: Bounds = (0.0, 1.0)
) -> ConfidenceInterval:
    """Return the CLT interval for the mean score of questions like these.

    The mean ± z·SE with SE² = s²/n and s² the unbiased variance of the n scores (Miller
    2024, eq. 1; [Bowyer 2025, §3.1]). With Outcomes the n scores are the M question means, so
    the spread between questions and the one within them are both counted.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score a question, or outcomes with at least one trial a question; n >= 2.
    level : float
        In (0, 1).
    bounds : tuple of float or None
        The possible scores; outcomes bring their own.

    Returns
    -------
    ConfidenceInterval
        Of scope "population".

    Raises
    ------
    InvalidInputError
        If `scores` are fewer than two, not finite or outside `bounds`, or `level` is outside
        (0, 1).

    Examples
    --------
    >>> interval = clt_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4006, 0.9994)
    """
    level = check_level(level)
    z = float(special.ndtri(0.5 + 0.5 * level))
    return _from_spread(scores, level, z, "clt", bounds)


def t_interval(
    scores: Outcomes | npt.ArrayLike, level: float = 0.95, bounds: Bounds = (0.0, 1.0)
) -> ConfidenceInterval:
    """Return Student's t interval for the mean score of questions like these.

    As :func:`clt_interval` with the quantile of t at n − 1 degrees of freedom in place of z.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score a question, or outcomes with at least one trial a question; n >= 2.
    level : float
        In (0, 1).
    bounds : tuple of float or None
        The possible scores; outcomes bring their own.

    Returns
    -------
    ConfidenceInterval
        Of scope "population".

    Raises
    ------
    InvalidInputError
        If `scores` are fewer than two, not finite or outside `bounds`, or `level` is outside
        (0, 1).

    Examples
    --------
    >>> interval = t_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])
    >>> round(interval.low, 4), round(interval.raw_high, 4)
    (0.3544, 1.0456)
    """
    level = check_level(level)
    size = as_scores("scores", scores, bounds, 2)[0].size
    return _from_spread(scores, level, t_quantile(level, size - 1), "t", bounds)


def _from_spread(
    scores: Outcomes | npt.ArrayLike, level: float, quantile: float, method: str, bounds: Bounds
) -> ConfidenceInterval:
    """Return mean ± quantile·sqrt(s²/n)."""
    values, bounds = as_scores("scores", scores, bounds, 2)
    error = float(values.std(ddof=1) / np.sqrt(values.size))
    return mean_interval(
        float(values.mean()),
        error,
        level,
        quantile,
        method=method,
        estimand="mean score of questions like these",
        scope="population",
        bounds=bounds,
    )
