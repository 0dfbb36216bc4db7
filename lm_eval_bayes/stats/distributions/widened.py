"""A distribution of a score whose credible intervals allow for another model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import (
    CdfTable,
    Distribution,
    FromTable,
    Moments,
)


@dataclass(frozen=True, eq=False)
class AllowingForAnother(FromTable):
    """A distribution of which a credible interval allows for another model.

    Parameters
    ----------
    own : Distribution
        Its distribution function is computed.
    other : Distribution
        The score's distribution under the other model, by which intervals are widened.
    """

    own: Distribution
    other: Distribution

    def moments(self) -> Moments:
        """Return the mean and the standard deviation of the score."""
        return self.own.moments()

    @property
    def table(self) -> CdfTable:  # type: ignore[override]  # that of the distribution
        """The distribution function of the score."""
        return self.own.table  # type: ignore[attr-defined, no-any-return]

    def interval_quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the farther of both models' quantiles on either side."""
        own, other = self.own.interval_quantiles(masses), self.other.quantiles(masses)
        wider = np.where(masses < 0.5, np.minimum(other, own), np.maximum(other, own))
        return np.asarray(np.where(masses == 0.5, own, wider))
