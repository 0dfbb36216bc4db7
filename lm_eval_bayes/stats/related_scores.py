"""Scores of models that are related: by an earlier run, or by a prior that a board shares.

Each model's own posterior is kept as the masses of cells of the logit of its score, and multiplied
by a factor f(score) that is normalized under the own prior, the posterior of the same questions
without trials. So nothing is approximated by a normal distribution, and nothing fails at 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions import Distribution
from lm_eval_bayes.stats.outcomes import SCALES, LearnedShift

#: Scores within .0003 of 0 or 1 count as equally far from others: their logits are clipped.
_END = 8.0
#: Even edges of cells of the logit, every second of which an own prior is interpolated between,
#: and quantiles of every posterior that are edges as well.
_EVEN = np.linspace(-16.0, 16.0, 129)
_SMOOTH = _EVEN[::2]
_MASSES = special.ndtr(np.linspace(-3.5, 3.5, 113))
#: The probability that a model is unlike the others of a board, and the scale of τ.
_OUTLIER, _TAU_SCALE = 0.1, 1.0
#: Nodes of τ and of m, and joint draws of a board's scores.
_TAUS, _CENTRES, _DRAWS = 24, 60, 4_000


class _Cells:
    """Cells of the logit score, and the masses in them of D distributions on the same bounds."""

    def __init__(self, distributions: Sequence[Distribution], bounds: tuple[float, float]) -> None:
        low, high = self.bounds = bounds
        span = (high - low) or 1.0
        of_each = [(each.quantiles(_MASSES) - low) / span for each in distributions]
        ends = special.logit(np.clip(np.concatenate(of_each), 1e-7, 1.0 - 1e-7))
        self.edges = np.unique(np.concatenate([ends, _EVEN]).round(9))
        self.centre = np.clip(0.5 * (self.edges[1:] + self.edges[:-1]), -_END, _END)
        below = np.stack([self._below(each, self.edges) for each in distributions])
        self.mass = np.diff(below)

    def _below(self, distribution: Distribution, edges: FloatArray) -> FloatArray:
        """Return the masses below edges, of which the first and the last hold all of it."""
        low, high = self.bounds
        below = distribution.cdf(low + (high - low) * special.expit(edges))
        below[0], below[-1] = 0.0, 1.0
        return np.maximum.accumulate(below)

    def smooth_mass(self, distribution: Distribution) -> FloatArray:
        """Return the masses of a wide distribution that is known by draws, (cells,)."""
        below = np.clip(self._below(distribution, _SMOOTH), 1e-9, 1.0 - 1e-9)
        normal = np.interp(self.edges, _SMOOTH, special.ndtri(below))
        return np.diff(special.ndtr(normal))


class TwoRuns(NamedTuple):
    """A model's score by its own trials, by an earlier run alone, and without trials."""

    own: Distribution
    earlier: Distribution
    without_trials: Distribution
    bounds: tuple[float, float]


def learn_scales(models: Sequence[TwoRuns]) -> LearnedShift:
    """Return the posterior probabilities of the scales of the shift that models share."""
    log_evidence = np.zeros(len(SCALES))
    for model in models:
        _, mass = _shifted(model)
        log_evidence += np.log(mass.sum(axis=1))
    return LearnedShift(tuple(special.softmax(log_evidence).tolist()))


def _shifted(model: TwoRuns) -> tuple[FloatArray, FloatArray]:
    """Return edges of cells, and the masses of the score times f at every scale, (4, cells).

    logit score = logit earlier score + δ with δ ~ Cauchy(scale): f is the density of δ, averaged
    over the earlier score.
    """
    cells = _Cells(model[:3], model.bounds)
    own, earlier, of_prior = cells.mass
    lag = (cells.centre[:, None] - cells.centre) ** 2
    densities = [1.0 / (1.0 + lag / scale**2) for scale in SCALES]
    factor = np.stack([density @ (earlier / (of_prior @ density)) for density in densities])
    return cells.edges, own * factor


def score_after_earlier(model: TwoRuns, shift: LearnedShift) -> FloatArray:
    """Return draws of a score given an earlier run, (4000,), in ascending order."""
    edges, mass = _shifted(model)
    mixed = np.array(shift.weights) @ (mass / mass.sum(axis=1, keepdims=True))
    below = np.append(0.0, np.cumsum(mixed))
    middle = (np.arange(_DRAWS) + 0.5) / _DRAWS
    low, high = model.bounds
    logit = np.interp(middle * below[-1], below, edges)
    return np.asarray(low + (high - low) * special.expit(logit))


def draw_shared(
    own: Sequence[Distribution],
    prior: Distribution,
    bounds: tuple[float, float],
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """Draw the scores of a board's models under a prior that they share, (L, 4000), and its τ.

    f is normal in the logit of the score, with mean m, expit(m) ~ Beta(.7, .7), and sd τ, which is
    half-normal with scale 1; with probability .1 a model is unlike the others, f = 1. m and τ are
    summed over nodes.
    """
    rng = np.random.default_rng(seed)
    cells = _Cells(own, bounds)
    mass, of_prior = cells.mass, cells.smooth_mass(prior)
    below = mass.cumsum(axis=1)
    low_logit, middle = (cells.centre[np.argmax(below > q, axis=1)] for q in (0.16, 0.5))
    narrowest = np.clip((middle - low_logit).min(), 1e-3, 0.3)
    tau = np.geomspace(0.3 * narrowest, 4.0, _TAUS)
    # dense where the models are
    pooled = np.append(0.0, mass.mean(axis=0).cumsum())
    centre = np.interp(np.linspace(0.005, 0.995, _CENTRES), pooled, cells.edges)
    around = np.linspace(middle.min() - 1.0, middle.max() + 1.0, _CENTRES // 2)
    centre = np.unique(np.clip(np.append(centre, around), -_END, _END))
    step = np.gradient(centre)
    at_centre, at_tau = (nodes.ravel() for nodes in np.meshgrid(centre, tau))
    factor = cells.centre - at_centre[:, None]  # large: changed in place
    factor /= at_tau[:, None]
    np.exp(np.multiply(np.square(factor, out=factor), -0.5, out=factor), out=factor)
    factor *= (1.0 - _OUTLIER) / np.maximum(factor @ of_prior, 1e-300)[:, None]
    factor += _OUTLIER
    log_weight = np.log(mass @ factor.T).sum(axis=0) + np.log(np.tile(step, _TAUS))
    log_weight += np.log(at_tau) - 0.5 * (at_tau / _TAU_SCALE) ** 2
    log_weight += 0.7 * (special.log_expit(at_centre) + special.log_expit(-at_centre))
    node, times = np.unique(
        rng.choice(log_weight.size, _DRAWS, p=special.softmax(log_weight)), return_counts=True
    )
    logits = np.empty((len(own), _DRAWS))
    start = 0
    for index, n in zip(node, times, strict=True):
        for model, of_model in enumerate((mass * factor[index]).cumsum(axis=1)):
            u = rng.random(n) * of_model[-1]
            part = np.interp(u, np.append(0.0, of_model), cells.edges)
            logits[model, start : start + n] = part
        start += n
    low, high = bounds
    return low + (high - low) * special.expit(logits), np.repeat(at_tau[node], times)
