"""The record of a confidence interval, and the scores that it is computed from.

A *confidence* interval is a statement about repeated experiments, never about the score
itself; a credible one is :class:`lm_eval_bayes.stats.intervals.Interval`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, numeric
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import avg_at_n

POPULATION_MEAN = "mean score of the population of questions"
NO_SPREAD = "the data have no variation, so this method gives an interval of width 0"


@dataclass(frozen=True, kw_only=True)
class ConfidenceInterval(Record):
    """A confidence interval together with what it is an interval of.

    Attributes
    ----------
    low, high : float
        The endpoints, clipped to the possible scores.
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
    seed, replicates : int or None
        Of the resampling, where there was any.
    note : str or None
        A warning about the numbers.

    Examples
    --------
    >>> from lm_eval_bayes.stats.frequentist.means import clt_interval
    >>> interval = clt_interval([1, 1, 1, 1, 0])
    >>> round(interval.low, 3), interval.high
    (0.408, 1.0)
    """

    low: float
    high: float
    level: float
    method: str
    estimand: str
    scope: Scope = "population"
    estimate: float
    standard_error: float | None = None
    seed: int | None = None
    replicates: int | None = None
    note: str | None = None

    @property
    def width(self) -> float:
        """High minus low."""
        return self.high - self.low


def mean_interval(
    estimate: float,
    error: float,
    level: float,
    *,
    df: int | None = None,
    method: str,
    estimand: str = POPULATION_MEAN,
    scope: Scope = "population",
    bounds: tuple[float, float],
) -> ConfidenceInterval:
    """Return estimate ± q·error, q the quantile of Student's t at `df`, of a normal without.

    It is clipped to `bounds`, the smallest and the largest possible estimate.
    """
    upper = 0.5 + 0.5 * level
    half = float(special.ndtri(upper) if df is None else special.stdtrit(df, upper)) * error
    least, most = bounds
    return ConfidenceInterval(
        low=max(estimate - half, least),
        high=min(estimate + half, most),
        level=level,
        method=method,
        estimand=estimand,
        scope=scope,
        estimate=estimate,
        standard_error=error,
        note=NO_SPREAD if error == 0.0 else None,
    )


def as_scores(
    name: str, scores: Outcomes | npt.ArrayLike, least: int
) -> tuple[FloatArray, tuple[float, float]]:
    """Return one score per question, and the smallest and the largest possible one.

    Raises
    ------
    InvalidInputError
        If the scores are fewer than `least`, or an array holds one outside [0, 1].
    """
    bounds = (0.0, 1.0)
    if isinstance(scores, Outcomes):
        values, bounds = avg_at_n(scores).per_question, scores.bounds
    else:
        array = numeric(name, scores)
        if array.ndim != 1:
            got = f"shape {array.shape}"
            raise InvalidInputError.of(name, "shape", "be 1-D, one score per question", got)
        values = array.astype(np.float64)
    if values.size < least:
        raise InvalidInputError.of(name, "empty", f"hold at least {least} scores", f"{values.size}")
    bad = ~((values >= bounds[0]) & (values <= bounds[1]))
    if bad.any():
        where = int(bad.argmax())
        rule = "lie in [0, 1]; Outcomes can have other scores"
        raise InvalidInputError.of(name, "range", rule, f"{values[where].item()!r} (score {where})")
    return values, bounds
