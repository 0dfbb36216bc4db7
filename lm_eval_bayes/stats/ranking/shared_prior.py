"""The prior that the models of a board share, and the posterior of their logits under it.

The logits of the scores are normal around a common centre m. The sd is τ for most models; with
probability .3 a model is an outlier, whose variance is larger by (3, 9, 27 or 81)² times v, the
mean error variance of the models: a model far above or below the others is shrunk little. m is
flat; τ is half-Cauchy with scale 2√v, so that equal models and models far apart are both plausible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.distributions.weighted import weighted_quantiles
from lm_eval_bayes.stats.results import Posterior

#: What a user of this prior must know.
FAILS_NEAR_ENDS = (
    "The shared prior fails where a score is near an end of its range, such as 0 or 1: it pulls "
    "such a score far towards the others and makes its interval too wide."
)
#: Scores are at least this far from the ends of their range before a logit is taken.
_EDGE = 1e-9
#: First and last τ / √v of the first grid, the last one at least; steps of log τ; values of m.
_FIRST, _LAST, _STEP, _CENTRES = 0.002, 40.0, 0.2, 51
#: Values of τ on the second grid, and distances of m from its mean there, in sds.
_SCALES, _OFFSETS = 10, np.linspace(-3.3, 3.3, 11)
#: The mass of τ beyond either end of the second grid, and of the nodes left out at most.
_TAIL, _LEFT_OUT = 5e-4, 5e-4
#: The mass left out of a marginal distribution at most.
_NEGLIGIBLE = 1e-5
#: The probability that a model is an outlier; what is added to its variance, in units of v.
_OUTLIERS, _ADDED = 0.3, np.array([0.0, 9.0, 81.0, 729.0, 6561.0])
#: The probabilities of these variances.
_SHARE = np.array([1.0 - _OUTLIERS, *[_OUTLIERS / (_ADDED.size - 1)] * (_ADDED.size - 1)])
#: The scale of τ / √v.
_SCALE = 2.0
#: Nodes of the normal distributions where a mean is computed.
_HERMITE = 15


@dataclass(frozen=True, eq=False)
class LogitMixture:
    """A mixture of normal distributions of a logit."""

    weight: FloatArray
    mean: FloatArray
    sd: FloatArray

    def quantile(self, mass: float) -> float:
        """Return the logit below which `mass` lies."""
        ends = self.mean + self.sd * special.ndtri(mass)
        low, high = float(ends.min()), float(ends.max())
        if high - low <= 1e-12:
            return high

        def excess(x: float) -> float:
            return float(self.weight @ special.ndtr((x - self.mean) / self.sd)) - mass

        return float(optimize.brentq(excess, low - 1e-9, high + 1e-9, xtol=1e-10))

    def moments_of_expit(self) -> tuple[float, float]:
        """Return mean and sd of the score."""
        node, weight = np.polynomial.hermite_e.hermegauss(_HERMITE)
        score = special.expit(self.mean[:, None] + self.sd[:, None] * node)
        mass = self.weight[:, None] * (weight / weight.sum())
        mean = float((mass * score).sum())
        return mean, float(np.sqrt((mass * (score - mean) ** 2).sum()))


@dataclass(frozen=True, eq=False)
class SharedLogits:
    """The joint posterior of L logits, a mixture over G nodes of (m, τ).

    Given a node the logits are independent but for an error that all have in common, and each is
    a mixture of Λ normal distributions.

    Attributes
    ----------
    tau, tau_weight : array, shape (K,)
        Values of τ, and their posterior probabilities.
    weight : array, shape (G,)
        Posterior probabilities of the nodes.
    share : array, shape (G, L, Λ)
        Probabilities of the normal distributions of a logit.
    mean, variance : array, shape (G, L, Λ)
        Their means and variances, without the error that all logits have in common.
    common : float
        The variance of that error.
    """

    tau: FloatArray
    tau_weight: FloatArray
    weight: FloatArray
    share: FloatArray
    mean: FloatArray
    variance: FloatArray
    common: float

    def tau_quantiles(self, masses: FloatArray) -> FloatArray:
        """Return quantiles of τ."""
        return weighted_quantiles(self.tau, self.tau_weight, masses)

    def marginal(self, index: int) -> LogitMixture:
        """Return the distribution of one model's logit."""
        weight = self.weight[:, None] * self.share[:, index]
        large = weight > _NEGLIGIBLE / weight.size
        sd = np.sqrt(self.variance[:, index][large] + max(self.common, 1e-300))
        return LogitMixture(weight[large] / weight[large].sum(), self.mean[:, index][large], sd)

    def p_greater(self) -> FloatArray:
        """Return the probability that model i's logit is above model j's, shape (L, L)."""
        n_models = self.mean.shape[1]
        greater = np.full((n_models, n_models), 0.5)
        for i in range(n_models - 1):
            rest = slice(i + 1, None)
            variance = self.variance[:, i, None, :, None] + self.variance[:, rest, None, :]
            difference = self.mean[:, i, None, :, None] - self.mean[:, rest, None, :]
            z = difference / np.maximum(np.sqrt(variance), 1e-150)
            share = self.share[:, i], self.share[:, rest]
            above = np.einsum("gjkl,gk,gjl->gj", special.ndtr(z), *share)
            greater[i, rest] = np.clip(self.weight @ above, 0.0, 1.0)
            greater[rest, i] = 1.0 - greater[i, rest]
        return greater

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the logits jointly, shape (L, draws)."""
        n_models = self.mean.shape[1]
        logits = np.empty((n_models, draws))
        below = np.cumsum(self.share, axis=-1)
        nodes: IntArray = rng.choice(self.weight.size, draws, p=self.weight)
        for part in blocks(draws, self.mean[0].size):
            node = nodes[part]
            chosen = (rng.random((node.size, n_models, 1)) > below[node][..., :-1]).sum(axis=-1)
            at = (node[:, None], np.arange(n_models), chosen)
            normal = rng.standard_normal((node.size, n_models))
            logits[:, part] = (self.mean[at] + np.sqrt(self.variance[at]) * normal).T
        logits += np.sqrt(self.common) * rng.standard_normal(draws)
        return logits


def shared_logits(logit: FloatArray, own: FloatArray, common: float = 0.0) -> SharedLogits:
    """Return the posterior of L logits under the prior that they share.

    The estimates are normal around the logits; their errors have a part of their own, and one
    that all have in common. As m is flat, the latter is independent of the data.

    Parameters
    ----------
    logit : array, shape (L,)
        The estimates.
    own : array, shape (L,)
        The variances of the errors, without the part in common; at least one above 0.
    common : float
        The variance of the part in common.

    Examples
    --------
    Five equal estimates and one that is five standard errors above them:

    >>> posterior = shared_logits(np.array([5.0, 0.0, 0.0, 0.0, 0.0, 0.0]), np.ones(6))
    >>> means = (posterior.weight[:, None, None] * posterior.share * posterior.mean).sum((0, 2))
    >>> means.round(1).tolist()
    [4.7, 0.1, 0.1, 0.1, 0.1, 0.1]
    """
    scale, middle = np.sqrt(own.mean()), np.median(logit)
    reach = np.abs(logit - middle).max() + 3.0 * scale
    log_last = np.log(max(_LAST, 8.0 * reach / scale))
    x = np.linspace(np.log(_FIRST), log_last, int((log_last - np.log(_FIRST)) / _STEP) + 1)
    tau = scale * np.exp(x)
    # steps of m are fine around the median of the estimates, and reach beyond all of them
    width = 1.5 * np.sqrt((tau**2 + np.median(own)) / logit.size)
    stretch = np.arcsinh(np.maximum(reach / width, 8.0))[:, None]
    position = np.linspace(-1.0, 1.0, _CENTRES)
    centre = middle + width[:, None] * np.sinh(stretch * position)
    log_step = np.log(width[:, None] * stretch * np.cosh(stretch * position))
    log_weight = _log_evidence(logit, own, tau, centre) + log_step + _log_prior(x)[:, None]
    weight = np.exp(log_weight - log_weight.max())
    of_tau = weight.sum(axis=1)
    conditional = weight / np.maximum(of_tau[:, None], 1e-300)
    mean = (conditional * centre).sum(axis=1)
    sd = np.sqrt((conditional * (centre - mean[:, None]) ** 2).sum(axis=1))
    of_tau /= of_tau.sum()

    first, last = np.interp([_TAIL, 1.0 - _TAIL], np.cumsum(of_tau), x)
    x_fine = np.linspace(first, last, _SCALES)
    fine_sd = np.interp(x_fine, x, sd)[:, None]
    fine_centre = np.interp(x_fine, x, mean)[:, None] + fine_sd * _OFFSETS
    fine_tau = scale * np.exp(x_fine)
    log_weight = _log_evidence(logit, own, fine_tau, fine_centre) + np.log(fine_sd)
    weight = np.asarray(special.softmax(log_weight + _log_prior(x_fine)[:, None]))
    return _posterior(logit, own, common, (tau, of_tau), fine_tau, fine_centre, weight)


def _log_prior(x: FloatArray) -> FloatArray:
    """Return the log density of x = log(τ/√v) where τ is half-Cauchy, up to a constant."""
    return np.asarray(x - np.log1p(np.exp(2.0 * x) / _SCALE**2))


def _prior_variance(tau: FloatArray, own: FloatArray) -> FloatArray:
    """Return the variances of a model's logit around m, (K, Λ)."""
    return np.asarray(tau[:, None] ** 2 + own.mean() * _ADDED)


def _log_evidence(
    logit: FloatArray, own: FloatArray, tau: FloatArray, centre: FloatArray
) -> FloatArray:
    """Return the log density of the estimates given τ and m, (K, Z), for m of shape (K, Z)."""
    total = own[:, None] + _prior_variance(tau, own)[:, None, :]
    height, per_square = _SHARE / np.sqrt(total), -0.5 / total
    density = np.empty((*centre.shape, logit.size))
    for row in range(tau.size):
        squared = (logit - centre[row, :, None]) ** 2
        exponent = squared[..., None] * per_square[row]
        density[row] = np.einsum("zil,il->zi", np.exp(exponent, out=exponent), height[row])
    with np.errstate(divide="ignore"):  # 0 where an estimate is too far from m
        return np.asarray(np.log(density).sum(axis=-1))


def _posterior(
    logit: FloatArray,
    own: FloatArray,
    common: float,
    of_tau: tuple[FloatArray, FloatArray],
    tau: FloatArray,
    centre: FloatArray,
    weight: FloatArray,
) -> SharedLogits:
    """Return the posterior from the nodes of (τ, m) and their weights, (K, Z)."""
    ascending = np.sort(weight, axis=None)
    smallest = ascending[np.searchsorted(np.cumsum(ascending), _LEFT_OUT)]
    row, column = np.nonzero(weight >= smallest)
    of_node = weight[row, column]
    prior_variance = _prior_variance(tau, own)[row, None, :]
    total = own[:, None] + prior_variance
    m = centre[row, column][:, None, None]
    off = logit[:, None] - m
    shrinkage = prior_variance / total
    exponent = np.log(_SHARE) - 0.5 * (np.log(total) + off**2 / total)
    return SharedLogits(
        tau=of_tau[0],
        tau_weight=of_tau[1],
        weight=of_node / of_node.sum(),
        share=np.asarray(special.softmax(exponent, axis=-1)),
        mean=m + shrinkage * off,
        variance=shrinkage * own[:, None],
        common=common,
    )


def logits_and_slopes(
    posteriors: Mapping[str, Posterior],
) -> tuple[FloatArray, FloatArray]:
    """Return the logits of the posterior means, on the range of the scores, and their slopes.

    A slope is the derivative of the logit by the score, by which an sd of the score becomes one
    of the logit. All posteriors have one range.
    """
    low, high = next(iter(posteriors.values())).bounds
    mu = np.array([posterior.mu for posterior in posteriors.values()])
    score = np.clip((mu - low) / (high - low), _EDGE, 1.0 - _EDGE)
    return special.logit(score), 1.0 / ((high - low) * score * (1.0 - score))


def board_logits(posteriors: Mapping[str, Posterior], own: FloatArray) -> SharedLogits | None:
    """Return the joint posterior of the logits of a board's scores.

    In scope "population" models are compared by their posterior means of scope "benchmark", which
    vary as the questions' differences do; posterior means of scope "population" vary more. What
    is common to all logits is that of the latter.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model.
    own : array, shape (L,)
        The variances of the scores' errors without what all models have in common, see
        `PairErrors`.

    Returns
    -------
    SharedLogits or None
        None where all scores, or all differences, are certain.
    """
    sigma = np.array([posterior.sigma for posterior in posteriors.values()])
    if not (sigma.any() and own.any()):
        return None
    on_questions = {name: each.benchmark or each for name, each in posteriors.items()}
    logit, own_slope = logits_and_slopes(on_questions)
    level, slope = logits_and_slopes(posteriors)
    own_logit = own * own_slope**2
    common = max(float((sigma**2 * slope**2 - own_logit).mean()), 0.0)
    return shared_logits(logit + (level - logit).mean(), own_logit, common)
