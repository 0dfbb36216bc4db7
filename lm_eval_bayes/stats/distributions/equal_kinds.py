"""The distribution of a score where questions are of two kinds, all alike within their kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import TabulatedDistribution
from lm_eval_bayes.stats.distributions.beta_mixture import Cumulants, edgeworth_table
from lm_eval_bayes.stats.distributions.curve_kinds import systematic_points
from lm_eval_bayes.stats.distributions.curve_mixture import ROUNDING, spike_table
from lm_eval_bayes.stats.distributions.curve_population import distribution_over_nodes
from lm_eval_bayes.stats.distributions.success_curves import Curve

#: The most points of a table, and the smallest sd of the score at a point, relative to its own.
_TABULATED, _LEAST_SPREAD = 400, 0.05


@dataclass(frozen=True, eq=False)
class EqualKindsScore:
    """Questions of two kinds whose p is that of their kind, at weighted points.

    Parameters
    ----------
    times : array, shape (D,)
        How often each distinct question occurs; they sum to M.
    logit_p, share : array, shape (2, G)
        log(p / (1 − p)) and the probability of either kind.
    first_kind : array, shape (G, D)
        The probability of a question to be of the first kind, given its trials.
    weight : array, shape (G,)
        Posterior probability of each point, sum 1.
    """

    times: FloatArray
    logit_p: FloatArray
    share: FloatArray
    first_kind: FloatArray
    weight: FloatArray

    def of_questions(self, curve: Curve) -> TabulatedDistribution:
        """Return the distribution of the mean of a curve over these questions.

        At a point it is the sum of independent choices between two values, taken as normal.
        """
        first, second = self._values(curve)
        M = float(self.times.sum())
        of_first = self.first_kind @ self.times / M
        mean = of_first * first + (1.0 - of_first) * second
        noise = (self.first_kind * (1.0 - self.first_kind)) @ self.times
        variance = noise * ((first - second) / M) ** 2
        mu = float(self.weight @ mean)
        sigma = float(np.sqrt(self.weight @ (variance + (mean - mu) ** 2)))
        if sigma <= ROUNDING:
            return TabulatedDistribution(spike_table(mu, sigma).clipped(0.0, curve.top), mu, sigma)
        some, weight = systematic_points(mean, self.weight, _TABULATED)
        variance = np.maximum(variance[some], (_LEAST_SPREAD * sigma) ** 2)
        none = np.zeros_like(variance)
        at_point = Cumulants(mean[some], variance, none, none, none, none)
        table = edgeworth_table(weight, at_point, np.zeros((1, weight.size)), mu, sigma)
        return TabulatedDistribution(table.clipped(0.0, curve.top), mu, sigma)

    def of_population(self, curve: Curve) -> TabulatedDistribution:
        """Return the distribution of the mean of a curve over the population of questions."""
        first, second = self._values(curve)
        value = self.share[0] * first + self.share[1] * second
        return distribution_over_nodes(value, self.weight, curve.top, (1,))

    def _values(self, curve: Curve) -> tuple[FloatArray, FloatArray]:
        values = curve.value(special.expit(self.logit_p), special.expit(-self.logit_p))
        return values[0], values[1]
