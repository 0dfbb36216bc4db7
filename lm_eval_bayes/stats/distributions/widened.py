"""A distribution of a score whose credible intervals allow for another model."""

from __future__ import annotations

from dataclasses import dataclass

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import (
    CdfTable,
    Distribution,
    FromTable,
)
from lm_eval_bayes.stats.distributions.success_curves import farther


@dataclass(frozen=True, eq=False)
class AllowingForAnother(FromTable):
    """A distribution of which a credible interval allows for another model.

    Parameters
    ----------
    own : Distribution
        Its distribution function is computed.
    other : Distribution
        The score's distribution under the other model, by which intervals are widened.
    mean, sd : float
        Those of `own`.
    """

    own: Distribution
    other: Distribution
    mean: float
    sd: float

    @property
    def table(self) -> CdfTable:  # type: ignore[override]  # that of the distribution
        """The distribution function of the score."""
        return self.own.table  # type: ignore[attr-defined, no-any-return]

    def interval_quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the farther of both models' quantiles on either side."""
        return farther(self.own.interval_quantiles(masses), self.other.quantiles(masses), masses)
