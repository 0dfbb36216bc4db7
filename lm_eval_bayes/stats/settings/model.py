"""The model of settings: Beta-binomial means of settings, and what follows given t.

A setting is a way in which a model is run: a prompt, an engine instance, a day. Of S settings with
trials of the same M questions, setting s has the mean score y_s on [0, 1], and

    n_s y_s ~ BetaBinomial(n_s, m, ρ),   ρ = t² m (1 − m),   t ~ half-t₄ of scale .2,

so that a setting's own score is Beta with the mean m and the sd t m (1 − m): t is the sd between
settings in logits. n_s are effective trials. Their sum n is that of the Beta distribution with the
mean and the variance of hbayes@N of all trials together (scope "benchmark"), n + 1 =
m (1 − m)/σ²: trials of the same question differ less than any two trials, by the intraclass
correlation, and hbayes@N has learned by how much. With t = 0 the posterior of m is that of
hbayes@N. Random settings of this kind are those of the generalizability theory [Brennan 2001];
the prior of t is of the family that [Gelman 2006] proposes for few groups.

t lies on a grid, and so does logit m. All results are mixtures over t, of Beta distributions with
the moments of m given t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, protect
from lm_eval_bayes.stats.distributions.base import TabulatedDistribution

#: The scale of the prior of t, and its degrees of freedom.
SCALE, _FREEDOM = 0.2, 4.0
#: Nodes of t, from 0 to 2, denser near 0.
_NEAR_ZERO, _LARGEST, _NODES = 0.03, 2.0, 48
_EVEN = np.linspace(0.0, np.arcsinh(_LARGEST / _NEAR_ZERO), _NODES)
T = _NEAR_ZERO * np.sinh(_EVEN)
#: The trapezoidal rule in these nodes.
_STEPS = np.cosh(_EVEN) * np.where((T == 0.0) | (T == T[-1]), 0.5, 1.0)
#: Nodes of logit m, this far to both sides of the mean's.
_AXIS, _REACH = 161, 10.0
#: The smallest total of a Beta distribution's parameters.
_LEAST_TOTAL = 1e-3
#: Nodes of t with less than this mass are left out of a mixture.
_NEGLIGIBLE = 1e-7


def log_prior(scale: float = SCALE) -> FloatArray:
    """Return the log prior mass of the nodes of t up to a constant: half-t₄ of this scale."""
    log_density = -0.5 * (_FREEDOM + 1.0) * np.log1p((T / scale) ** 2 / _FREEDOM)
    return np.asarray(log_density + np.log(_STEPS))


def log_normalized(log_mass: FloatArray) -> FloatArray:
    """Return the masses of the nodes of t, which sum to 1, from their logarithms."""
    mass = np.exp(log_mass - log_mass.max())
    return np.asarray(mass / mass.sum())


class GivenT(NamedTuple):
    """The mass of every node of t, and the moments of scores given t, each of shape (T,).

    `mean` and `variance` are those of m, and `between` is the variance between settings.
    """

    mass: FloatArray
    mean: FloatArray
    variance: FloatArray
    between: FloatArray

    def mixture(self, variance: FloatArray | float = 0.0, shift: float = 0.0) -> BetaMixture:
        """Return the distribution of m + shift + an error of this variance given t."""
        mean = np.clip(self.mean + shift, 1e-9, 1.0 - 1e-9)
        total = mean * (1.0 - mean) / (self.variance + variance) - 1.0
        kept = self.mass > _NEGLIGIBLE
        return BetaMixture(self.mass[kept], mean[kept], np.maximum(total, _LEAST_TOTAL)[kept])


class BetaMixture(NamedTuple):
    """A mixture of Beta distributions with these means and totals of parameters, each (K,)."""

    mass: FloatArray
    mean: FloatArray
    total: FloatArray

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses below the scores, an array of one dimension on [0, 1]."""
        a, b = self.total * self.mean, self.total * (1.0 - self.mean)
        return np.asarray(self.mass @ special.betainc(a[:, None], b[:, None], scores)) / (
            self.mass.sum()
        )

    def tabulated(self, low: float, span: float) -> TabulatedDistribution:
        """Return the distribution of low + span·score."""
        mass = self.mass / self.mass.sum()
        mean = float(mass @ self.mean)
        square = self.mean * (1.0 - self.mean) / (self.total + 1.0) + (self.mean - mean) ** 2
        sd = float(np.sqrt(mass @ square))
        centre = float(special.logit(mean))
        narrow = np.sqrt(1.0 / ((self.total.max() + 1.0) * mean * (1.0 - mean)))
        even, axis = logit_axis(centre, float(narrow))
        # the probit of the masses is almost linear in the logit
        probit = special.ndtri(np.clip(self.cdf(special.expit(axis)), 1e-15, 1.0 - 1e-15))
        finer = np.linspace(-1.0, 1.0, 16 * _AXIS)
        below = special.ndtr(np.interp(finer, even, probit))
        score = special.expit(np.interp(finer, even, axis))
        below[0], below[-1] = 0.0, 1.0
        return TabulatedDistribution(below, score, mean, sd).scaled(low, low + span)


def logit_axis(centre: float, sd: float) -> tuple[FloatArray, FloatArray]:
    """Return even steps from −1 to 1, and logits around the centre, denser within a few sds."""
    even = np.linspace(-1.0, 1.0, _AXIS)
    return even, centre + sd * np.sinh(even * np.arcsinh(_REACH / sd))


@dataclass(frozen=True, eq=False)
class SettingsLikelihood:
    """The likelihood of (t, m), with what m has from hbayes@N.

    Attributes
    ----------
    share : array, shape (S,)
        y_s: the mean of each setting, such that their mean weighted by trials is m of hbayes@N.
    trials : array, shape (S,)
        n_s.
    m, other : array, shape (J,)
        The nodes of m, and 1 − m.
    of_setting : array, shape (S, T, J)
        The log likelihood of each setting.
    """

    share: FloatArray
    trials: FloatArray
    m: FloatArray
    other: FloatArray
    step: FloatArray
    of_setting: FloatArray

    def __post_init__(self) -> None:
        protect(self)

    @classmethod
    def of(cls, share: FloatArray, trials: FloatArray) -> SettingsLikelihood:
        """Compute it on the grid."""
        mean = float(share @ trials / trials.sum())
        sd = 1.0 / np.sqrt(trials.sum() * mean * (1.0 - mean) + 1.0)
        even, axis = logit_axis(float(special.logit(mean)), float(sd))
        m, other = special.expit(axis), special.expit(-axis)
        right, wrong = trials * share, trials * (1.0 - share)
        total = 1.0 / (T[1:, None] ** 2 * m * other) - 1.0
        a = np.maximum(total, _LEAST_TOTAL) * m
        b = np.maximum(total, _LEAST_TOTAL) * other
        prior = special.betaln(a, b)
        of_setting = np.empty((share.size, T.size, m.size))
        for s, (x, y) in enumerate(zip(right, wrong, strict=True)):
            of_setting[s, 0] = x * special.log_expit(axis) + y * special.log_expit(-axis)
            of_setting[s, 1:] = special.betaln(a + x, b + y) - prior
        return cls(share, trials, m, other, np.gradient(axis, even), of_setting)

    def log_of_t(self) -> FloatArray:
        """Return the log likelihood of t up to a constant, (T,): m is integrated out."""
        joint = self.of_setting.sum(axis=0)
        largest = joint.max()
        return np.asarray(np.log(np.exp(joint - largest) @ self.step) + largest)

    def given_t(self, log_mass: FloatArray, without: int | None = None) -> GivenT:
        """Return the moments of m given t, and the masses of t.

        Parameters
        ----------
        log_mass : array, shape (T,)
            The log of the prior masses of t.
        without : int, optional
            A setting that is left out.
        """
        joint = self.of_setting.sum(axis=0)
        if without is not None:
            joint = joint - self.of_setting[without]
        largest = joint.max(axis=1, keepdims=True)
        density = np.exp(joint - largest) * self.step
        of_t = density.sum(axis=1)
        density /= of_t[:, None]
        mean = density @ self.m
        variance = ((self.m - mean[:, None]) ** 2 * density).sum(axis=1)
        between = (T * (density @ (self.m * self.other))) ** 2
        mass = log_normalized(np.log(of_t) + largest[:, 0] + log_mass)
        return GivenT(mass, mean, variance, between)
