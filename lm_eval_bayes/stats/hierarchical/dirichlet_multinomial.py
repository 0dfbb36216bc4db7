"""The prior that questions share, learned from rubric categories: its weighted particles.

θ_α ~ Dirichlet(s·m) for every question α, with the prior of (m, s) in
:mod:`lm_eval_bayes.stats.hierarchical.hyperprior`. The posterior of (m, s) given all counts is
sampled by importance: log s from a Laplace approximation of its posterior on a grid, and then the
shares m given s from a Dirichlet distribution, stretched until its mode and its curvature are those
of the posterior. The importance weights correct the approximations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.hierarchical.hyperprior import (
    log_prior_of_log_strength,
    mean_concentration,
)

#: The number of particles.
PARTICLES = 16_384

# The range of log s: the prior has a mass of 1e-10 below and of 1e-14 above.
_LOG_STRENGTH = (-30.0, 35.0)
# The smallest gamma variate of a share. Below it the densities of the prior, whose parameter may be
# near 0, and of the proposal are proportional, so that the importance weights do not change.
_SMALLEST = 1e-290
# The share of particles whose proposal has tails no lighter than the posterior's.
_DEFENSIVE = 0.1
# Factors of a rising factorial that the proposal takes one by one; above, in bins of 5%.
_SINGLE = 64
# Numbers held at a time.
_BLOCK = 200_000


@dataclass(frozen=True, eq=False)
class Particles:
    """Weighted draws of the hyperparameters, in random order.

    Attributes
    ----------
    share : array, shape (P, C+1)
        m, the share of each category in the population of questions.
    strength : array, shape (P,)
        s, the strength of the common prior, in trials.
    weight : array, shape (P,)
        Posterior probability of each particle, sum 1.
    log_evidence : float
        Log marginal likelihood of the counts, up to a constant that depends on C alone.
    """

    share: FloatArray
    strength: FloatArray
    weight: FloatArray
    log_evidence: float

    @property
    def ess(self) -> float:
        """Effective sample size, (Σ w)² / Σ w²."""
        return float(1.0 / np.square(self.weight).sum())


def learn_particles(
    counts: FloatArray, seed: int, mean_counts: FloatArray | float = 0.0
) -> Particles:
    """Sample the posterior of (m, s) given the counts of all questions.

    With counts x_αk of N_α trials the likelihood is
    Π_α [Γ(s)/Γ(s+N_α)] Π_k Γ(s m_k + x_αk)/Γ(s m_k).

    Parameters
    ----------
    counts : array, shape (M, C+1)
        Trials per question and category; fractions where prior trials have a
        weight below one, rows of zeros for questions without trials.
    seed : int
        Seed of the particles; the order of the questions does not matter.
    mean_counts : array, shape (C+1,), or float
        Pseudo-trials a of the prior m ~ Dirichlet(1.4/(C+1) + a).

    Returns
    -------
    Particles
        16,384 of them, in random order.

    Examples
    --------
    With one trial per question m is Dirichlet(1.4/3 + column sums):

    >>> particles = learn_particles(np.eye(3)[[0, 0, 1, 2, 0]], seed=0)
    >>> (particles.weight @ particles.share).round(2).tolist()  # 3.47/6.4, 1.47/6.4, 1.47/6.4
    [0.54, 0.23, 0.23]
    """
    rng = np.random.default_rng(seed)
    likelihood = Likelihood(counts)
    concentration = np.full(counts.shape[1], mean_concentration(counts.shape[1])) + mean_counts
    proposal = Proposal.fit(counts, likelihood, concentration)
    share, log_strength, log_density = proposal.draw(PARTICLES, rng)
    log_weight = log_posterior(likelihood, share, log_strength, concentration) - log_density
    weight = np.exp(log_weight - log_weight.max())
    log_evidence = float(log_weight.max() + np.log(weight.mean()))
    log_evidence += float(special.gammaln(concentration.sum()))
    log_evidence -= float(special.gammaln(concentration).sum())
    return Particles(share, np.exp(log_strength), weight / weight.sum(), log_evidence)


def log_posterior(
    likelihood: Likelihood,
    share: FloatArray,
    log_strength: FloatArray,
    concentration: FloatArray,
) -> FloatArray:
    """Return the log posterior density of (m, log s) up to a constant, shape (P,).

    The prior of m is Dirichlet(`concentration`), shape (C+1,).
    """
    prior = log_prior_of_log_strength(log_strength) + np.log(share) @ (concentration - 1.0)
    return np.asarray(prior + likelihood.log(share, np.exp(log_strength)))


class Likelihood:
    """The Dirichlet-multinomial likelihood of all questions at once.

    log Γ(a+x)/Γ(a) = Σ_{j<x} log(a + j), so for whole counts only the number of questions
    with x > j matters: a table as long as the largest count, however many questions. Where
    there are fewer distinct counts than that by far, or fractions, each is taken by itself.
    """

    def __init__(self, counts: FloatArray) -> None:
        self._categories = [_Rising(column) for column in counts.T]
        self._totals = _Rising(counts.sum(axis=1))
        self._longest = max(1, len(self._totals), *map(len, self._categories))

    def log(self, share: FloatArray, strength: FloatArray) -> FloatArray:
        """Return the log likelihood at shares (P, C+1) and strengths (P,), shape (P,)."""
        value = np.empty(strength.size)
        for part in blocks(strength.size, 1, _BLOCK // self._longest + 1):
            s = strength[part]
            value[part] = -self._totals.log(s)
            for category, m in zip(self._categories, share[part].T, strict=True):
                value[part] += category.log(s * m)
        return value


class _Rising:
    """Σ_α log Γ(a + x_α)/Γ(a) for the counts x_α of one category."""

    def __init__(self, counts: FloatArray) -> None:
        values, repeats = np.unique(counts[counts > 0.0], return_counts=True)
        integral = bool(np.all(values == np.floor(values)))
        self._tabulated = values.size == 0 or (integral and values[-1] <= 10 * values.size)
        if self._tabulated:
            reached = np.bincount(values.astype(np.int64), weights=repeats, minlength=1)
            repeats = reached[::-1].cumsum()[::-1][1:]  # questions with more than j
            values = np.arange(repeats.size, dtype=np.float64)
        self._values, self._times = values, repeats.astype(np.float64)

    def __len__(self) -> int:
        return self._values.size

    def log(self, a: FloatArray) -> FloatArray:
        """Return the sum at each `a`, shape (P,)."""
        if self._tabulated:
            return np.asarray(np.log(a[:, None] + self._values) @ self._times)
        ratio = special.gammaln(self._values) - special.betaln(a[:, None], self._values)
        return np.asarray(ratio @ self._times)


def _pooled(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the factors a + j of a category, pooled: near enough for a proposal.

    The first 64 are kept as they are, later ones in bins of 5%. Of a fractional count's
    last factor its part is there.

    Returns
    -------
    j, times : array, shape (B,)
        Where the factors are, and in how many questions.
    """
    values, repeats = np.unique(counts[counts > 0.0], return_counts=True)
    top = float(np.ceil(values[-1])) if values.size else 0.0
    edges = np.arange(min(top, _SINGLE) + 1.0)
    if top > _SINGLE:
        n_bins = int(np.log(top / _SINGLE) / 0.05) + 2
        edges = np.unique(np.concatenate((edges, np.ceil(np.geomspace(_SINGLE, top, n_bins)))))
    starts, widths = edges[:-1], np.diff(edges)
    inside = np.clip(values - starts[:, None], 0.0, widths[:, None])
    return starts + 0.5 * (widths - 1.0), np.asarray(inside @ repeats.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Proposal:
    """Where to look for (m, log s): a density on a grid of log s, and shares given log s.

    Given log s, m is g / Σ g with g_k ~ Gamma(ν_k) · centre_k / ν_k: a Dirichlet whose axes
    are stretched so that its mode (in log m) is `centre`. ν is `shape` for most particles
    and `tail`, the prior's parameter and the number of questions that show the category, for
    some: the posterior of log m_k falls off like m_k^ν at m_k = 0 with exactly that exponent.

    Attributes
    ----------
    log_strength, height : array, shape (G,)
        Nodes of log s, and the density there, linear in between.
    log_centre, log_shape : array, shape (G, C+1)
        log of the conditional mode of m and of ν at each node, linear in between.
    tail : array, shape (C+1,)
        The safe ν.
    """

    log_strength: FloatArray
    height: FloatArray
    log_centre: FloatArray
    log_shape: FloatArray
    tail: FloatArray

    @classmethod
    def fit(cls, counts: FloatArray, likelihood: Likelihood, concentration: FloatArray) -> Proposal:
        """Lay the grid: coarse over all of log s, then ever finer where the mass is."""
        tail = concentration + (counts > 0.0).sum(axis=0)
        steps = [_pooled(column) for column in counts.T]
        nodes = np.linspace(*_LOG_STRENGTH, 131)
        level, centre, shape = _laplace(nodes, steps, tail, likelihood, concentration)
        for _ in range(12):
            near = np.flatnonzero(level > level.max() - 20.0)
            if near.size > 60:
                break
            low, high = nodes[max(near[0] - 1, 0)], nodes[min(near[-1] + 1, nodes.size - 1)]
            extra = np.setdiff1d(np.linspace(low, high, 81), nodes)
            more = _laplace(extra, steps, tail, likelihood, concentration)
            order = np.argsort(np.concatenate((nodes, extra)))
            nodes, level, centre, shape = (
                np.concatenate(pair)[order]
                for pair in zip((nodes, level, centre, shape), (extra, *more), strict=True)
            )
        height = np.exp(level - level.max())
        wider = _normed(nodes, np.sqrt(height))
        height = (1.0 - _DEFENSIVE) * _normed(nodes, height) + _DEFENSIVE * wider
        # never quite 0, so that no division in `draw` is by 0
        return cls(nodes, np.maximum(height, 1e-200), np.log(centre), np.log(shape), tail)

    def draw(
        self, size: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw m (P, C+1) and log s (P,), with their log density (P,)."""
        # one log s from each of `size` slices of equal mass, in random order
        u = (rng.permutation(size) + rng.random(size)) / size
        left, right = self.height[:-1], self.height[1:]
        step = np.diff(self.log_strength)
        mass = np.concatenate(([0.0], np.cumsum(0.5 * (left + right) * step)))
        cell = np.clip(np.searchsorted(mass, u * mass[-1], side="right") - 1, 0, step.size - 1)
        left, right, step = left[cell], right[cell], step[cell]
        # left·f + (right − left)·f²/2 = what is left of the mass, in the cell's units
        rest = np.maximum(u * mass[-1] - mass[cell], 0.0) / step
        f = 2.0 * rest / (left + np.sqrt(np.maximum(left**2 + 2.0 * (right - left) * rest, 0.0)))
        f = np.minimum(f, 1.0)
        log_strength = self.log_strength[cell] + f * step
        log_density = np.log(left + f * (right - left))
        centre = np.exp(_between(self.log_centre, cell, f))
        shape = np.exp(_between(self.log_shape, cell, f))
        safe = (rng.random(size) < _DEFENSIVE)[:, None]
        nu = np.where(safe, self.tail, shape)
        gamma = np.maximum(rng.standard_gamma(nu) * (centre / nu), _SMALLEST)
        share = gamma / gamma.sum(axis=1, keepdims=True)
        ordinary = np.log1p(-_DEFENSIVE) + _log_stretched(share, centre, shape)
        defensive = np.log(_DEFENSIVE) + _log_stretched(share, centre, self.tail)
        return share, log_strength, log_density + np.logaddexp(ordinary, defensive)


def _laplace(
    log_strength: FloatArray,
    steps: list[tuple[FloatArray, FloatArray]],
    tail: FloatArray,
    likelihood: Likelihood,
    concentration: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Approximate the posterior of m given each log s.

    With r_kj = s m_k / (s m_k + j) over the factors j of all questions and the prior's parameter
    a, the log posterior has slope a + Σ_j r_kj − m_k·const in log m_k, and at its mode the
    curvature of a Dirichlet distribution with ν_k = a + Σ_j r_kj², or slightly more.

    Returns
    -------
    level, centre, shape : array, shape (G,), (G, C+1), (G, C+1)
        log of the approximate marginal density of log s, the mode, and ν.
    """
    s = np.exp(log_strength)
    log_m = np.broadcast_to(np.log(tail / tail.sum()), (s.size, tail.size)).copy()
    slope, shape = np.empty_like(log_m), np.empty_like(log_m)
    for _ in range(60):
        for k, (j, times) in enumerate(steps):
            ratio = 1.0 / (1.0 + j / (s * np.exp(log_m[:, k]))[:, None])
            slope[:, k] = concentration[k] + ratio @ times
            shape[:, k] = concentration[k] + (ratio * ratio) @ times
        m = np.exp(log_m)
        # Newton for log(slope_k / m_k) = the same number for every k, with Σ m_k = 1
        gain = slope / shape
        off = np.log(slope) - log_m
        off -= ((m * gain * off).sum(axis=1) / (m * gain).sum(axis=1))[:, None]
        move = np.clip(gain * off, -2.0, 2.0)
        log_m += move
        log_m -= special.logsumexp(log_m, axis=1, keepdims=True)
        if np.abs(move).max() < 1e-6:
            break
    m = np.exp(log_m)
    level = log_posterior(likelihood, m, log_strength, concentration) - _log_stretched(m, m, shape)
    return level, m, shape


def _log_stretched(share: FloatArray, centre: FloatArray, nu: FloatArray) -> FloatArray:
    """Return the log density on the simplex of g/Σg, g_k ~ Gamma(ν_k) · centre_k/ν_k."""
    total = nu.sum(axis=-1)
    rate = nu / centre
    log_share = np.log(share)
    return np.asarray(
        special.gammaln(total)
        - special.gammaln(nu).sum(axis=-1)
        + (nu * (log_share + np.log(rate)) - log_share).sum(axis=-1)
        - total * np.log((rate * share).sum(axis=-1))
    )


def _normed(nodes: FloatArray, height: FloatArray) -> FloatArray:
    """Scale a piecewise linear density to mass 1."""
    return np.asarray(height / (0.5 * (height[1:] + height[:-1]) @ np.diff(nodes)))


def _between(table: FloatArray, cell: IntArray, f: FloatArray) -> FloatArray:
    """Interpolate rows of a table, `f` of the way from row `cell` to the next."""
    low = table[cell]
    return np.asarray(low + f[:, None] * (table[cell + 1] - low))
