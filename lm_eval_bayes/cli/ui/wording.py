"""Numbers as the commands write them into tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval_bayes.stats.results import Estimate, Interval

#: Stands where there is no number.
NONE = "-"


def digits(value: float) -> str:
    """Return a score with three digits; the order in which it was added up does not show.

    Examples
    --------
    >>> digits(0.9625), digits(0.9625 + 2e-16), digits(0.9625 - 2e-16), digits(-1e-16)
    ('0.963', '0.963', '0.963', '0.000')
    """
    return f"{round(value, 9) + 0.0:.3f}"


def mean_sd(mu: float, sigma: float | None) -> str:
    """Return a mean with its standard deviation.

    Examples
    --------
    >>> mean_sd(0.38817, 0.02488), mean_sd(0.5, None)
    ('0.388 ± 0.025', '0.500')
    """
    return f"{mu:.3f}" if sigma is None else f"{mu:.3f} ± {sigma:.3f}"


def number_or_none(value: float | None) -> str:
    """Return a score with three digits.

    Examples
    --------
    >>> number_or_none(0.58839), number_or_none(None), number_or_none(float("nan"))
    ('0.588', '-', '-')
    """
    return NONE if value is None or value != value else digits(value)


def average(estimate: Estimate | None) -> str:
    """Return avg@N."""
    return NONE if estimate is None else digits(estimate.value)


def ends(interval: Interval) -> str:
    """Return the ends of an interval.

    Examples
    --------
    >>> from lm_eval_bayes.stats.results import Interval
    >>> ends(Interval(-0.0412, 0.26, level=0.95, method="exact", scope="benchmark"))
    '-0.041 to 0.260'
    """
    return f"{interval.low:.3f} to {interval.high:.3f}"


def interval_name(level: float, method: str) -> str:
    """Return what heads a column of intervals.

    Examples
    --------
    >>> interval_name(0.95, "exact"), interval_name(0.999, "hdi")
    ('95% interval', '99.9% hdi interval')
    """
    return f"{100 * level:g}% " + ("" if method == "exact" else f"{method} ") + "interval"


def about(scope: str) -> str:
    """Return what a scope means.

    Examples
    --------
    >>> about("benchmark"), about("population")
    ('about these questions', 'about questions like these')
    """
    return "about these questions" if scope == "benchmark" else "about questions like these"


def number(n: float | None) -> str:
    """Return a large number as it is read.

    Examples
    --------
    >>> number(950), number(1_234_567), number(2.5e9), number(None)
    ('950', '1.23 M', '2.5 G', '-')
    """
    if n is None:
        return NONE
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e5, "k")):
        if n >= unit:
            scale = 1e3 if name == "k" else unit
            return f"{n / scale:.3g} {name}"
    return f"{round(n):,}"


def duration(seconds: float | None) -> str:
    """Return a time as it is read.

    Examples
    --------
    >>> duration(0.04), duration(41.7), duration(4_000), duration(400_000), duration(None)
    ('0.04 s', '41.7 s', '1 h 7 min', '111 h', '-')
    """
    if seconds is None:
        return NONE
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours:,} h"


def trials(n_range: tuple[int, int] | None) -> str:
    """Return N, the trials of a question.

    Examples
    --------
    >>> trials((8, 8)), trials((6, 8)), trials(None)
    ('8', '6 to 8', '-')
    """
    if n_range is None:
        return NONE
    least, most = n_range
    return str(least) if least == most else f"{least} to {most}"
