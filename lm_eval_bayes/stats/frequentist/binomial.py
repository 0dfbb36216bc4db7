"""Confidence intervals from binomial counts: Wilson, Clopper–Pearson and the odds ratio."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.frequentist.interval import ConfidenceInterval
from lm_eval_bayes.stats.validation import check_count, check_integer, check_level, check_option

#: Trials up to which scipy finds the conditional likelihood's interval within half a minute.
_MOST_FISHER = 50_000


def wilson_interval(successes: int, trials: int, level: float = 0.95) -> ConfidenceInterval:
    """Return Wilson's score interval for a binomial proportion.

    The p whose score test does not reject [Bowyer 2025, §3.1]; it never leaves [0, 1]. The
    outcomes must be independent: one trial per question, or many of one question.

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
    return _proportion_interval("wilson", "wilson", successes, trials, level)


def clopper_pearson_interval(
    successes: int, trials: int, level: float = 0.95
) -> ConfidenceInterval:
    """Return the Clopper–Pearson interval for a binomial proportion.

    The p that neither one-sided binomial test at (1 − level)/2 rejects: quantiles of
    Beta(S, n − S + 1) and Beta(S + 1, n − S) [Bowyer 2025, §3.1]. Its coverage is at
    least `level` for every p, and it is wide for that reason.

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
    return _proportion_interval("clopper-pearson", "exact", successes, trials, level)


def _proportion_interval(
    name: str, scipy_name: str, successes: object, trials: object, level: object
) -> ConfidenceInterval:
    """Return scipy's interval for a binomial proportion, which needs no clipping."""
    from scipy.stats import binomtest  # takes long to import

    n = check_count("trials", trials, 1)
    count = check_integer("successes", successes, 0)
    if count > n:
        raise InvalidInputError.of("successes", f"be at most `trials` ({n})", count)
    level = check_level(level)
    interval = binomtest(count, n).proportion_ci(level, method=scipy_name)
    low, high = float(interval.low), float(interval.high)
    return ConfidenceInterval(
        low=low,
        high=high,
        level=level,
        method=name,
        estimand="success probability",
        scope="population",
        estimate=count / n,
        standard_error=None,
        raw_low=low,
        raw_high=high,
    )


def odds_ratio_interval(
    successes_a: int,
    trials_a: int,
    successes_b: int,
    trials_b: int,
    level: float = 0.95,
    *,
    method: str = "delta",
) -> ConfidenceInterval:
    """Return an interval for the odds ratio of two independent success probabilities.

    "delta": log OR ± z·sqrt(1/S + 1/F + 1/S' + 1/F'), the delta method on the log scale
    [Bowyer 2025, §3.3]; where one of the four is 0, a half is added to each (Haldane and
    Anscombe) and the note says so. "fisher": the exact interval of the conditional
    likelihood, whose estimate is the conditional one, from `scipy.stats.contingency`; for at
    most 50,000 trials in all.

    Parameters
    ----------
    successes_a, trials_a, successes_b, trials_b : int
        0 <= successes <= trials, trials >= 1; one trial per question, or many of one.
    level : float
        In (0, 1).
    method : {"delta", "fisher"}
        See above.

    Returns
    -------
    ConfidenceInterval
        Of scope "population"; `standard_error` is that of log OR, for "delta" only. An end
        may be 0 or infinite for "fisher".

    Raises
    ------
    InvalidInputError
        If a count, `level` or `method` breaks its rule.

    Examples
    --------
    >>> interval = odds_ratio_interval(15, 20, 9, 20)
    >>> round(interval.estimate, 3), round(interval.low, 3), round(interval.high, 3)
    (3.667, 0.958, 14.028)
    """
    level = check_level(level)
    method = check_option("method", method, ("delta", "fisher"))
    counts_a = _successes_and_failures("a", successes_a, trials_a)
    counts_b = _successes_and_failures("b", successes_b, trials_b)
    note = None
    if method == "delta":
        cells = np.array([*counts_a, *counts_b], dtype=np.float64)
        if (cells == 0.0).any():
            cells += 0.5
            note = "a cell is 0, so one half was added to each of the four"
        log_ratio = float(np.log(cells[0]) - np.log(cells[1]) - np.log(cells[2]) + np.log(cells[3]))
        error = float(np.sqrt((1.0 / cells).sum()))
        half = float(special.ndtri(0.5 + 0.5 * level)) * error
        estimate, low, high = (math.exp(log_ratio + step) for step in (0.0, -half, half))
        return _ratio(low, high, level, "delta", estimate, error, note)
    if sum(counts_a) + sum(counts_b) > _MOST_FISHER:
        rule = f'be at most {_MOST_FISHER:,} on both sides together for "fisher"; take "delta"'
        raise InvalidInputError.of("trials_a, trials_b", rule, (sum(counts_a), sum(counts_b)))
    from scipy.stats import contingency  # takes long to import

    result = contingency.odds_ratio(np.array([counts_a, counts_b]), kind="conditional")
    ends = result.confidence_interval(confidence_level=level)
    estimate = float(result.statistic)
    if math.isnan(estimate):
        note = "no success or no failure at all: every odds ratio is possible"
    return _ratio(float(ends.low), float(ends.high), level, "fisher", estimate, None, note)


def _ratio(
    low: float,
    high: float,
    level: float,
    method: str,
    estimate: float,
    error: float | None,
    note: str | None,
) -> ConfidenceInterval:
    """Return an odds ratio's interval, which needs no clipping."""
    return ConfidenceInterval(
        low=low,
        high=high,
        level=level,
        method=method,
        estimand="odds ratio of a to b",
        scope="population",
        estimate=estimate,
        standard_error=error,
        raw_low=low,
        raw_high=high,
        note=note,
    )


def _successes_and_failures(side: str, successes: object, trials: object) -> tuple[int, int]:
    """Return the successes and failures of one model."""
    n = check_count(f"trials_{side}", trials, 1)
    count = check_integer(f"successes_{side}", successes, 0)
    if count > n:
        raise InvalidInputError.of(f"successes_{side}", f"be at most `trials_{side}` ({n})", count)
    return count, n - count
