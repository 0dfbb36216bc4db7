"""Confidence intervals for two models: the difference of their scores and the odds ratio."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.comparison.alignment import align_questions
from lm_eval_bayes.stats.frequentist.clt import within_question_clt
from lm_eval_bayes.stats.frequentist.interval import (
    Bounds,
    ConfidenceInterval,
    as_scores,
    bounds_of,
    mean_interval,
)
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import (
    check_count,
    check_flag,
    check_integer,
    check_level,
    check_option,
)

#: Trials up to which scipy finds the conditional likelihood's interval within half a minute.
_MOST_FISHER = 50_000


def difference_interval(
    a: Outcomes | npt.ArrayLike,
    b: Outcomes | npt.ArrayLike,
    level: float = 0.95,
    *,
    paired: bool = True,
    scope: Scope = "population",
    bounds: Bounds = (0.0, 1.0),
) -> ConfidenceInterval:
    """Return the CLT interval for the score of model a less that of model b.

    Scope "population", paired: the mean of d_α = s_α − s'_α ± z·sqrt(s_d²/M) (Miller 2024,
    §4; [Bowyer 2025, §3.4]). Unpaired: SE² = SE_a² + SE_b² [Bowyer 2025, §3.3], which throws
    away that both answered the same questions. Scope "benchmark": the questions are given
    and only trials vary, SE² = SE_a² + SE_b² with the SE of
    :func:`lm_eval_bayes.stats.frequentist.clt.within_question_clt`.

    Parameters
    ----------
    a, b : Outcomes or array, shape (n,)
        One score a question each, or outcomes; scope "benchmark" needs outcomes.
    level : float
        In (0, 1).
    paired : bool
        Whether both answered the same questions, as in scope "benchmark" they always do;
        outcomes are paired by their question ids where they have them, else by position.
    scope : {"population", "benchmark"}
        About questions like these, or about these.
    bounds : tuple of float or None
        The possible scores of one model; outcomes bring their own.

    Returns
    -------
    ConfidenceInterval
        Of method "clt-paired", "clt-unpaired" or "clt".

    Raises
    ------
    InvalidInputError
        If the inputs break their rule, or the questions do not pair (the first ids that
        only one side has are named).

    Examples
    --------
    >>> a, b = [1, 1, 1, 0, 1, 1, 0, 1], [1, 0, 1, 0, 1, 0, 0, 1]
    >>> pairs = difference_interval(a, b)
    >>> round(pairs.estimate, 3), round(pairs.low, 3), round(pairs.high, 3)
    (0.25, -0.071, 0.571)
    >>> round(difference_interval(a, b, paired=False).low, 3)
    -0.24
    """
    level, paired = check_level(level), check_flag("paired", paired)
    scope = check_option("scope", scope, SCOPES)
    z = float(special.ndtri(0.5 + 0.5 * level))
    if scope == "benchmark":
        pair = align_questions(_as_outcomes("a", a), _as_outcomes("b", b))
        first, second = within_question_clt(pair.a, level), within_question_clt(pair.b, level)
        error = math.hypot(first.standard_error or 0.0, second.standard_error or 0.0)
        estimate, method = first.estimate - second.estimate, "clt"
        ends = [bounds_of(pair.a), bounds_of(pair.b)]
        estimand = "difference of the mean scores of these questions"
    else:
        if paired and isinstance(a, Outcomes) and isinstance(b, Outcomes):
            pair = align_questions(a, b)
            a, b = pair.a, pair.b
        x, bounds_a = as_scores("a", a, bounds, 2)
        y, bounds_b = as_scores("b", b, bounds, 2)
        if paired:
            if x.size != y.size:
                rule = f"have as many questions as `a` ({x.size}) where `paired`"
                raise InvalidInputError.of("b", rule, y.size)
            error = float((x - y).std(ddof=1) / np.sqrt(x.size))
        else:
            error = math.sqrt(x.var(ddof=1) / x.size + y.var(ddof=1) / y.size)
        estimate = float(x.mean() - y.mean())
        method = "clt-paired" if paired else "clt-unpaired"
        ends = [end for end in (bounds_a, bounds_b) if end is not None]
        estimand = "difference of the mean scores of questions like these"
    possible = (ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]) if len(ends) == 2 else None
    return mean_interval(
        estimate, error, level, z, method=method, estimand=estimand, scope=scope, bounds=possible
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
        0 <= successes <= trials, trials >= 1; one trial a question, or many of one.
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
    wins = _wins_and_losses("a", successes_a, trials_a)
    others = _wins_and_losses("b", successes_b, trials_b)
    note = None
    if method == "delta":
        cells = np.array([*wins, *others], dtype=np.float64)
        if (cells == 0.0).any():
            cells += 0.5
            note = "a cell is 0, so one half was added to each of the four"
        log_ratio = float(np.log(cells[0]) - np.log(cells[1]) - np.log(cells[2]) + np.log(cells[3]))
        error = float(np.sqrt((1.0 / cells).sum()))
        half = float(special.ndtri(0.5 + 0.5 * level)) * error
        estimate, low, high = (math.exp(log_ratio + step) for step in (0.0, -half, half))
        return _ratio(low, high, level, "delta", estimate, error, note)
    if sum(wins) + sum(others) > _MOST_FISHER:
        rule = f'be at most {_MOST_FISHER:,} on both sides together for "fisher"; take "delta"'
        raise InvalidInputError.of("trials_a, trials_b", rule, (sum(wins), sum(others)))
    # scipy.stats takes long to import, and nothing else here wants it
    from scipy.stats import contingency

    found = contingency.odds_ratio(np.array([wins, others]), kind="conditional")
    ends = found.confidence_interval(confidence_level=level)
    estimate = float(found.statistic)
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


def _wins_and_losses(side: str, successes: object, trials: object) -> tuple[int, int]:
    """Return successes and failures of one side."""
    n = check_count(f"trials_{side}", trials, 1)
    count = check_integer(f"successes_{side}", successes, 0)
    if count > n:
        raise InvalidInputError.of(f"successes_{side}", f"be at most `trials_{side}` ({n})", count)
    return count, n - count


def _as_outcomes(name: str, side: object) -> Outcomes:
    """Return outcomes, refusing anything else."""
    if not isinstance(side, Outcomes):
        raise InvalidInputError.of(name, 'be outcomes in scope "benchmark"', side)
    return side
