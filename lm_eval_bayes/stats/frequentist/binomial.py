"""Confidence intervals for the probability behind 0/1 outcomes: Wilson and Clopper–Pearson."""

from __future__ import annotations

import numpy as np
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.frequentist.interval import ConfidenceInterval
from lm_eval_bayes.stats.validation import check_count, check_integer, check_level


def wilson_interval(successes: int, trials: int, level: float = 0.95) -> ConfidenceInterval:
    """Return Wilson's score interval for the probability behind independent 0/1 outcomes.

    The p whose score test does not reject [Bowyer 2025, §3.1]; it never leaves [0, 1]. The
    outcomes must be independent: one trial a question, or many of one question.

    Parameters
    ----------
    successes, trials : int
        0 <= successes <= trials, trials >= 1.
    level : float
        In (0, 1).

    Returns
    -------
    ConfidenceInterval
        Of scope "population".

    Raises
    ------
    InvalidInputError
        If the counts or `level` break their rule.

    Examples
    --------
    >>> interval = wilson_interval(7, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.3968, 0.8922)
    """
    successes, trials, level = _check_binomial(successes, trials, level)
    z2 = float(special.ndtri(0.5 + 0.5 * level)) ** 2
    share, other = successes / trials, (trials - successes) / trials
    half = np.sqrt(z2 * (share * other / trials + z2 / (4.0 * trials**2)))
    middle = share + z2 / (2.0 * trials)
    # at no success and at no failure the root equals the rest; rounding must not move that end
    low = 0.0 if successes == 0 else float((middle - half) / (1.0 + z2 / trials))
    high = 1.0 if successes == trials else float((middle + half) / (1.0 + z2 / trials))
    return _binomial("wilson", share, low, high, level)


def clopper_pearson_interval(
    successes: int, trials: int, level: float = 0.95
) -> ConfidenceInterval:
    """Return the Clopper–Pearson interval for the probability behind independent 0/1 outcomes.

    The p that neither one-sided binomial test at (1 − level)/2 rejects: quantiles of
    Beta(S, n − S + 1) and Beta(S + 1, n − S) [Bowyer 2025, §3.1]. It holds the truth at least
    as often as it claims, whatever p is, and is wide for that.

    Parameters
    ----------
    successes, trials : int
        0 <= successes <= trials, trials >= 1.
    level : float
        In (0, 1).

    Returns
    -------
    ConfidenceInterval
        Of scope "population".

    Raises
    ------
    InvalidInputError
        If the counts or `level` break their rule.

    Examples
    --------
    >>> interval = clopper_pearson_interval(7, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.3475, 0.9333)
    """
    successes, trials, level = _check_binomial(successes, trials, level)
    tail, failures = 0.5 * (1.0 - level), trials - successes
    low, high = 0.0, 1.0
    if successes > 0:
        low = float(special.betaincinv(successes, failures + 1.0, tail))
    if failures > 0:
        high = float(special.betaincinv(successes + 1.0, failures, 1.0 - tail))
    return _binomial("clopper-pearson", successes / trials, low, high, level)


def _check_binomial(successes: object, trials: object, level: object) -> tuple[int, int, float]:
    """Return the counts and the level of a binomial interval."""
    n = check_count("trials", trials, 1)
    count = check_integer("successes", successes, 0)
    if count > n:
        raise InvalidInputError.of("successes", f"be at most `trials` ({n})", count)
    return count, n, check_level(level)


def _binomial(
    method: str, share: float, low: float, high: float, level: float
) -> ConfidenceInterval:
    """Return an interval that needs no clipping."""
    return ConfidenceInterval(
        low=low,
        high=high,
        level=level,
        method=method,
        estimand="success probability",
        scope="population",
        estimate=share,
        standard_error=None,
        raw_low=low,
        raw_high=high,
    )
