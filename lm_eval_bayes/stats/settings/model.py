"""The model of settings: Beta-binomial means of settings, and what follows given t.

A setting is a way in which a model is run: a prompt, an engine instance, a day. Of S settings with
trials of the same M questions, setting s has the mean score y_s on [0, 1], and

    n_s y_s ~ BetaBinomial(n_s, m, ρ),   ρ = t² m (1 − m),   t ~ half-t₄ of scale .2,

so that a setting's own score is Beta with the mean m and the sd t m (1 − m): t is the sd between
settings in logits. n_s are effective trials. Their sum n is that of the Beta distribution with the
mean and the variance of hbayes@N of all trials together (scope "benchmark"), n + 1 =
m (1 − m)/σ²: trials of the same question differ less than any two trials, by the intraclass
correlation, and hbayes@N has learned by how much. With t = 0 the posterior of m is that of
hbayes@N. Settings as a random facet are those of generalizability theory [Brennan 2001]; a
half-t prior of the sd between few groups is that of [Gelman 2006].

t lies on a grid, and so does logit m. Distributions of scores are mixtures over t, of Beta
distributions with the moments given t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions import TabulatedDistribution
from lm_eval_bayes.stats.intervals import Ends

#: The scale of the prior of t.
SCALE = 0.2
#: Nodes of t, from all but 0 to 2, denser near 0, and the trapezoidal rule in these.
_SMALLEST, _NEAR_ZERO, _LARGEST, _NODES = 1e-4, 0.03, 2.0, 48
_EVEN = np.linspace(0.0, np.arcsinh(_LARGEST / _NEAR_ZERO), _NODES)
T = np.maximum(_NEAR_ZERO * np.sinh(_EVEN), _SMALLEST)
_STEPS = np.cosh(_EVEN) * np.r_[0.5, np.ones(_NODES - 2), 0.5]
#: Even steps for nodes of logit m, which lie this far to both sides of the mean's; and finer ones.
_AXIS, _FINER, _REACH = np.linspace(-1.0, 1.0, 161), np.linspace(-1.0, 1.0, 2_561), 10.0
#: The smallest sum of a Beta distribution's parameters, and the smallest mass in a mixture.
_LEAST_TOTAL, _NEGLIGIBLE = 1e-3, 1e-7


def log_prior(scale: float = SCALE) -> FloatArray:
    """Return the log prior masses of the nodes of t up to a constant: half-t₄ of this scale."""
    return np.asarray(np.log(_STEPS) - 2.5 * np.log1p((T / scale) ** 2 / 4.0))


def _logit_axis(mean: float, sd: float) -> FloatArray:
    """Return logits around that of a mean, denser within some of these sds, one for each step."""
    return np.asarray(special.logit(mean) + sd * np.sinh(_AXIS * np.arcsinh(_REACH / sd)))


class GivenT(NamedTuple):
    """What is known of scores on [0, 1] in every node of t, arrays of shape (T,).

    `log_likelihood` is that of t, up to a constant, and `log_of_others` that of the other models of
    a board; `mean` and `variance` are those of m given t, and `between` is the variance between
    settings.
    """

    log_likelihood: FloatArray
    log_of_others: FloatArray
    mean: FloatArray
    variance: FloatArray
    between: FloatArray

    @property
    def mass(self) -> FloatArray:
        """The posterior probabilities of the nodes."""
        return np.asarray(special.softmax(log_prior() + self.log_likelihood + self.log_of_others))

    def plus(self, variance: FloatArray | float, shift: float = 0.0) -> GivenT:
        """Return what is known of m + shift + an error that has this variance given t."""
        mean = np.clip(self.mean + shift, 1e-9, 1.0 - 1e-9)
        return self._replace(mean=mean, variance=self.variance + variance)

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses below scores, an array of one dimension."""
        mass = self.mass
        nodes = mass > _NEGLIGIBLE
        total = np.maximum(self.mean * (1.0 - self.mean) / self.variance - 1.0, _LEAST_TOTAL)
        a, b = (total * self.mean)[nodes, None], (total * (1.0 - self.mean))[nodes, None]
        return np.asarray(mass[nodes] @ special.betainc(a, b, scores) / mass[nodes].sum())

    def distribution(self, bounds: Ends) -> TabulatedDistribution:
        """Return the distribution of m, from the scale [0, 1] to these bounds."""
        mass = self.mass
        centre = float(mass @ self.mean)
        sd = float(np.sqrt(mass @ (self.variance + (self.mean - centre) ** 2)))
        least = float(np.sqrt(self.variance.min()))
        axis = _logit_axis(centre, least / (centre * (1.0 - centre)))
        masses = np.clip(self.cdf(special.expit(axis)), 1e-15, 1.0 - 1e-15)
        # their probit is almost linear in the logit
        below = special.ndtr(np.interp(_FINER, _AXIS, special.ndtri(masses)))
        score = special.expit(np.interp(_FINER, _AXIS, axis))
        return TabulatedDistribution(below, score, centre, sd).scaled(*bounds)


def log_likelihoods(share: FloatArray, trials: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the nodes of logit m, (J,), and the log likelihood of every setting, (S, T, J).

    Parameters
    ----------
    share, trials : array, shape (S,)
        y_s and n_s.
    """
    mean = float(share @ trials / trials.sum())
    axis = _logit_axis(mean, float((trials.sum() * mean * (1.0 - mean) + 1.0) ** -0.5))
    m, other = special.expit(axis), special.expit(-axis)
    total = np.maximum(1.0 / (T[:, None] ** 2 * m * other) - 1.0, _LEAST_TOTAL)
    a, b = total * m, total * other
    right, wrong = trials * share, trials * (1.0 - share)
    tables = special.betaln(a + right[:, None, None], b + wrong[:, None, None])
    return axis, tables - special.betaln(a, b)


def given_t(axis: FloatArray, tables: FloatArray) -> GivenT:
    """Integrate m out of the product of settings' likelihoods, see `log_likelihoods`.

    Logit m has an even prior: what hbayes@N knows beside the trials is in the effective ones.
    """
    m, unit_variance = special.expit(axis), special.expit(axis) * special.expit(-axis)
    log_joint = tables.sum(axis=0)
    largest = log_joint.max(axis=1)
    density = np.exp(log_joint - largest[:, None]) * np.gradient(axis)
    of_t = density.sum(axis=1)
    density /= of_t[:, None]
    mean = density @ m
    variance = ((m - mean[:, None]) ** 2 * density).sum(axis=1)
    between = (T * (density @ unit_variance)) ** 2
    return GivenT(np.log(of_t) + largest, np.zeros(T.size), mean, variance, between)


def normal_quantile(
    mass: FloatArray, mean: FloatArray, sd: FloatArray, probability: float
) -> float:
    """Return the quantile of a mixture of normal distributions, arrays of shape (K,)."""

    def excess(x: float) -> float:
        return float(mass @ special.ndtr((x - mean) / np.maximum(sd, 1e-12))) - probability

    return float(optimize.brentq(excess, (mean - 12.0 * sd).min(), (mean + 12.0 * sd).max()))
