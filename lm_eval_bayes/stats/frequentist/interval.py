"""The record of a confidence interval, and the scores that it is computed from.

A *confidence* interval is a statement about repeated experiments, never about the score
itself; a credible one is :class:`lm_eval_bayes.stats.intervals.Interval`.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, numeric
from lm_eval_bayes.stats.bayes_at_n import avg_at_n
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import check_pair

#: The smallest and the largest score that are possible; None where nothing bounds them.
Bounds: TypeAlias = tuple[float, float] | None

POPULATION_MEAN = "mean score of the population of questions"
NO_SPREAD = "the data have no variation, so this method gives an interval of width 0"


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval(Record):
    """A confidence interval together with what it is an interval of.

    Attributes
    ----------
    low, high : float
        The endpoints, clipped to `bounds`.
    level : float
        The nominal coverage, in (0, 1).
    method : str
        E.g. "clt", "t", "wilson", "clopper-pearson", "clustered", "bootstrap", "delta".
    estimand : str
        What is estimated.
    scope : str
        "benchmark": about these questions; "population": about the population of questions.
    estimate : float
        The point estimate.
    standard_error : float or None
        Of the estimate, where the method has one; on the log scale for an odds ratio.
    raw_low, raw_high : float
        The endpoints before clipping. A mean ± z·SE can leave the possible scores.
    seed, replicates : int or None
        Of the resampling, where there was any.
    note : str or None
        A warning about the numbers.
    bounds : tuple of float or None
        The possible scores, an argument of the constructor only.

    Examples
    --------
    >>> from lm_eval_bayes.stats.frequentist.means import clt_interval
    >>> interval = clt_interval([1, 1, 1, 1, 0])
    >>> interval.high, round(interval.raw_high, 3), interval.clipped
    (1.0, 1.192, True)
    """

    low: float
    high: float
    level: float
    method: str
    estimand: str
    scope: Scope = "population"
    estimate: float
    standard_error: float | None = None
    raw_low: float = field(init=False)
    raw_high: float = field(init=False)
    seed: int | None = None
    replicates: int | None = None
    note: str | None = None
    bounds: InitVar[Bounds] = None

    def __post_init__(self, bounds: Bounds) -> None:
        for end, raw_end in (("low", "raw_low"), ("high", "raw_high")):
            raw = float(getattr(self, end))
            object.__setattr__(self, raw_end, raw)
            clipped = raw if bounds is None else min(max(raw, bounds[0]), bounds[1])
            object.__setattr__(self, end, clipped)

    @property
    def width(self) -> float:
        """High minus low."""
        return self.high - self.low

    @property
    def clipped(self) -> bool:
        """Whether an endpoint was clipped to the possible scores."""
        return self.low != self.raw_low or self.high != self.raw_high


def mean_interval(
    estimate: float,
    error: float,
    level: float,
    *,
    df: int | None = None,
    method: str,
    estimand: str = POPULATION_MEAN,
    scope: Scope = "population",
    bounds: Bounds,
) -> ConfidenceInterval:
    """Return estimate ± q·error, q the quantile of Student's t at `df`, of a normal without."""
    upper = 0.5 + 0.5 * level
    half = float(special.ndtri(upper) if df is None else special.stdtrit(df, upper)) * error
    return ConfidenceInterval(
        low=estimate - half,
        high=estimate + half,
        level=level,
        method=method,
        estimand=estimand,
        scope=scope,
        estimate=estimate,
        standard_error=error,
        bounds=bounds,
        note=NO_SPREAD if error == 0.0 else None,
    )


def as_scores(
    name: str, scores: Outcomes | npt.ArrayLike, bounds: Bounds, least: int
) -> tuple[FloatArray, Bounds]:
    """Return one score per question, and the scores that are possible.

    Raises
    ------
    InvalidInputError
        If the scores are fewer than `least`, not finite, or outside `bounds`.
    """
    if isinstance(scores, Outcomes):
        values, bounds = avg_at_n(scores).per_question, scores.bounds
    else:
        array = numeric(name, scores)
        if array.ndim != 1:
            raise InvalidInputError.of(
                name, "shape", "be 1-D, one score per question", f"shape {array.shape}"
            )
        values, bounds = array.astype(np.float64), _check_bounds(bounds)
    if values.size < least:
        raise InvalidInputError.of(name, "empty", f"hold at least {least} scores", f"{values.size}")
    bad = ~np.isfinite(values)
    rule = "be finite"
    if bounds is not None and not bad.any():
        bad = (values < bounds[0]) | (values > bounds[1])
        rule = f"lie in [{bounds[0]:g}, {bounds[1]:g}]; give `bounds` where others are possible"
    if bad.any():
        where = int(bad.argmax())
        raise InvalidInputError.of(name, "range", rule, f"{values[where].item()!r} (score {where})")
    return values, bounds


def _check_bounds(bounds: Bounds) -> Bounds:
    """Return the bounds as two floats in order, or None."""
    if bounds is None:
        return None
    rule = "be two numbers, low < high, or None"
    return check_pair("bounds", bounds, rule, lambda low, high: low < high)
