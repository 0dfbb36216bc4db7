"""The posterior of the common prior of a benchmark's questions if they are of two kinds.

A question is of the first kind with probability w and of the second with probability 1 − w; of
kind j, p_α ~ Beta(s_j m_j, s_j (1 − m_j)). Both (m_j, s_j) have the prior of `hyperprior`
independently, and w is uniform on [0, 1]. The likelihood of a question's trials is the mixture of
two beta-binomials. The posterior of (m_1, s_1, m_2, s_2, w) is represented by weighted points, see
`importance`, in the coordinates logit m_j, log s_j and logit w.

The limit of s_1 and s_2 growing to infinity, in which the questions of a kind all have the same p,
is a model of its own: the prior of s has too little mass there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, blocks
from lm_eval_bayes.stats.hierarchical.beta_binomial import HyperGrid, log_rising
from lm_eval_bayes.stats.hierarchical.hyperprior import (
    LOG_PRIOR_MASS,
    MEAN_SHAPE,
    log_prior_of_log_strength,
)
from lm_eval_bayes.stats.hierarchical.importance import find_modes, sample
from lm_eval_bayes.stats.outcomes import Pairs

#: Rising factorials of up to so many factors are computed factor by factor, and so many factors,
#: each at most the exponential of the largest log s, are multiplied without overflow.
_MOST_FACTORS, _FACTORS_AT_ONCE = 256, 16
_BLOCK = 1_000_000
#: A larger log s is replaced by this one, at which a question of a kind has a constant p.
_MOST_LOG_STRENGTH = 30.0
#: Larger sizes of a logit, and of a negative log s, are replaced by this one.
_MOST_LOGIT = 40.0
#: Centre and standard deviations of a proposal that is broader than the posterior.
_BROAD = np.array([0.0, 2.5, 0.0, 2.5, 0.0]), np.array([3.0, 2.5, 3.0, 2.5, 2.0])
#: Shares of the questions that the search for modes takes for the first kind, the easiest ones
#: being of the second; and both kinds' log s there.
_CUTS = (0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.92)
_STARTING_STRENGTHS = ((1.0, 1.0), (3.5, 3.5), (1.0, 3.5), (3.5, 1.0))
#: The effective sample size that is aimed at, and the most components that are added for it.
_ENOUGH, _MOST_ADDED = 2500.0, 12
#: Two kinds are not examined further if the normal densities at the modes give them log odds below
#: the first number, or the points so far below the second.
_HOPELESS, _UNLIKELY = -1.5, 0.0


class TwoKinds(NamedTuple):
    """The posterior of two kinds of questions, at G weighted points.

    `logit_mean`, `log_strength` and `share`, each (2, G), of the first and of the second kind;
    `first_kind`, shape (G, D), is the probability of every distinct question to be of the first
    kind given its trials; `weight`, shape (G,), sums to 1. `probability` is the posterior
    probability of two kinds, where one kind and two have the prior probability ½ each; `ess` the
    effective sample size of the points.
    """

    logit_mean: FloatArray
    log_strength: FloatArray
    share: FloatArray
    first_kind: FloatArray
    weight: FloatArray
    probability: float
    ess: float
    log_mass: float


class EqualKinds(NamedTuple):
    """The posterior of two kinds of questions that all have their kind's p, at G weighted points.

    `logit_p` and `share`, both (2, G), of the first and of the second kind; `first_kind` and
    `weight` as in `TwoKinds`. `probability` is that of this model where it and two kinds in general
    have the prior probability ½ each.
    """

    logit_p: FloatArray
    share: FloatArray
    first_kind: FloatArray
    weight: FloatArray
    probability: float


class TwoKindsDensity:
    """The unnormalized posterior density of (logit m_1, log s_1, logit m_2, log s_2, logit w).

    Its integral is the marginal likelihood of the trials, without the binomial coefficients.

    Parameters
    ----------
    pairs : Pairs
        Successes and failures of the distinct questions, not necessarily whole.
    """

    def __init__(self, pairs: Pairs) -> None:
        self.x, self.y = pairs.first, pairs.second
        self.times = pairs.times.astype(np.float64)
        self.of_right, self.of_wrong = _RisingFactorials(self.x), _RisingFactorials(self.y)
        self.of_trials = _RisingFactorials(self.x + self.y)

    def log_density(self, points: FloatArray) -> FloatArray:
        """Return the log density at points of shape (n, 5)."""
        value = np.empty(points.shape[0])
        width = 4 * self.x.size + int(min(_MOST_FACTORS, (self.x + self.y).max()))
        for some in blocks(value.size, width, _BLOCK):
            first, second = self._log_kinds(points[some])
            value[some] = self.times @ np.logaddexp(first, second)
        for kind in (points[:, :2], points[:, 2:4]):
            value += _log_prior(kind[:, 0], kind[:, 1])
        return value - np.logaddexp(0.0, -points[:, 4]) - np.logaddexp(0.0, points[:, 4])

    def relabelled(self, points: FloatArray) -> FloatArray:
        """Exchange the two kinds."""
        return np.asarray(points[:, [2, 3, 0, 1, 4]] * np.array([1.0, 1.0, 1.0, 1.0, -1.0]))

    def first_kind(self, points: FloatArray) -> FloatArray:
        """Return the probability of every distinct question to be of the first kind, (n, D)."""
        first, second = self._log_kinds(points)
        return np.asarray(special.expit(first - second).T)

    def starts(self) -> FloatArray:
        """Return points from which the modes are searched, shape (S, 5)."""
        rate = _rates(self.x, self.y, self.times)
        M = rate.size
        splits = [
            (rate[:cut], rate[cut:], strengths)
            for cut in _cuts(M)
            for strengths in _STARTING_STRENGTHS
        ]
        quarter = M // 4
        # a narrow kind between the questions of a wide one
        inner, outer = rate[quarter : M - quarter], np.append(rate[:quarter], rate[M - quarter :])
        if outer.size:
            splits.append((inner, outer, (3.5, 0.0)))
        starts = [
            (
                special.logit(first.mean()),
                strengths[0],
                special.logit(second.mean()),
                strengths[1],
                np.log(first.size / second.size),
            )
            for first, second, strengths in splits
        ]
        # one kind, and next to no question of the other
        starts.append((special.logit(rate.mean()), 2.5, 0.0, 2.5, 3.5))
        return np.array(starts)

    def _log_kinds(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log of each kind's share times its likelihood of each question, (D, n)."""
        log_share = -np.logaddexp(0.0, -points[:, 4]), -np.logaddexp(0.0, points[:, 4])
        return (
            log_share[0] + self._log_likelihood(points[:, 0], points[:, 1]),
            log_share[1] + self._log_likelihood(points[:, 2], points[:, 3]),
        )

    def _log_likelihood(self, logit_mean: FloatArray, log_strength: FloatArray) -> FloatArray:
        log_s = np.minimum(log_strength, _MOST_LOG_STRENGTH)
        right = self.of_right(log_s - np.logaddexp(0.0, -logit_mean))
        wrong = self.of_wrong(log_s - np.logaddexp(0.0, logit_mean))
        return np.asarray(right + wrong - self.of_trials(log_s))


class _RisingFactorials:
    """log Γ(a + x) / Γ(a) at fixed x, as a function of log a.

    Few whole x are computed factor by factor, with a logarithm only where an x is reached.

    Parameters
    ----------
    x : array, shape (D,)
        At least 0, not necessarily whole.
    """

    def __init__(self, x: FloatArray) -> None:
        self.x = x
        self.is_product = bool(np.all(x == np.floor(x))) and x.max() <= _MOST_FACTORS
        reached, self.where = np.unique(x, return_inverse=True)
        self.reached = reached.tolist()

    def __call__(self, log_a: FloatArray) -> FloatArray:
        """Return the logarithms, shape (D, n), for log a of shape (n,)."""
        a = np.exp(log_a)
        if not self.is_product:
            rising = log_rising(a, log_a, np.maximum(self.x, 1e-300)[:, None])
            return np.where(self.x[:, None] > 0.0, rising, 0.0)
        # the first factor, a itself, may be below the smallest float: its logarithm is known
        total, product, n_factors = log_a, np.ones_like(a), 1
        rising = np.zeros((len(self.reached), a.size))
        for row, x in zip(rising, self.reached, strict=True):
            while n_factors < x:
                product *= a + n_factors
                n_factors += 1
                if n_factors % _FACTORS_AT_ONCE == 0:
                    total, product = total + np.log(product), np.ones_like(a)
            if x > 0.0:
                np.add(total, np.log(product), out=row)
        return rising[self.where]


def two_kinds(pairs: Pairs, grid: HyperGrid) -> TwoKinds | None:
    """Return the posterior of two kinds of questions; None where they are less probable than one.

    Parameters
    ----------
    pairs : Pairs
        Successes and failures of the distinct questions.
    grid : HyperGrid
        The posterior of (m, s) of one kind, from `hyper_posterior` on the same questions.
    """
    density = TwoKindsDensity(pairs)
    modes = find_modes(density, density.starts())
    log_one_kind = grid.log_mass - LOG_PRIOR_MASS - special.betaln(MEAN_SHAPE, MEAN_SHAPE)
    # every mode is there a second time with the kinds exchanged
    if special.logsumexp(modes.log_mass) + np.log(2.0) - log_one_kind < _HOPELESS:
        return None
    broad = _BROAD[0], np.diag(_BROAD[1] ** 2)
    least = log_one_kind + _UNLIKELY
    weighted = sample(density, modes, broad, _ENOUGH, _MOST_ADDED, least)
    if weighted.log_mass < least:
        return None
    points, weight = weighted.points, weighted.weight
    return TwoKinds(
        logit_mean=np.clip(points[:, [0, 2]].T, -_MOST_LOGIT, _MOST_LOGIT),
        log_strength=np.clip(points[:, [1, 3]].T, -_MOST_LOGIT, None),
        share=special.expit(np.stack([points[:, 4], -points[:, 4]])),
        first_kind=density.first_kind(points),
        weight=weight,
        probability=float(special.expit(weighted.log_mass - log_one_kind)),
        ess=weighted.ess,
        log_mass=weighted.log_mass,
    )


class EqualKindsDensity:
    """The unnormalized posterior density of (logit p_1, logit p_2, logit w).

    Its integral is the marginal likelihood of the trials where all questions of a kind have the
    same p, of which the prior is that of m.

    Parameters
    ----------
    pairs : Pairs
        Successes and failures of the distinct questions, not necessarily whole.
    """

    def __init__(self, pairs: Pairs) -> None:
        self.x, self.y = pairs.first, pairs.second
        self.times = pairs.times.astype(np.float64)

    def log_density(self, points: FloatArray) -> FloatArray:
        """Return the log density at points of shape (n, 3)."""
        first, second = self._log_kinds(points)
        value = np.logaddexp(first, second) @ self.times
        value += _log_prior_of_mean(points[:, 0]) + _log_prior_of_mean(points[:, 1])
        return np.asarray(
            value - np.logaddexp(0.0, -points[:, 2]) - np.logaddexp(0.0, points[:, 2])
        )

    def relabelled(self, points: FloatArray) -> FloatArray:
        """Exchange the two kinds."""
        return np.asarray(points[:, [1, 0, 2]] * np.array([1.0, 1.0, -1.0]))

    def first_kind(self, points: FloatArray) -> FloatArray:
        """Return the probability of every distinct question to be of the first kind, (n, D)."""
        first, second = self._log_kinds(points)
        return np.asarray(special.expit(first - second))

    def starts(self) -> FloatArray:
        """Return points from which the modes are searched, shape (S, 3)."""
        rate = _rates(self.x, self.y, self.times)
        return np.array(
            [
                (
                    special.logit(rate[:cut].mean()),
                    special.logit(rate[cut:].mean()),
                    np.log(cut / (rate.size - cut)),
                )
                for cut in _cuts(rate.size)
            ]
        )

    def _log_kinds(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log of each kind's share times its likelihood of each question, (n, D)."""
        log_p, log_q = -np.logaddexp(0.0, -points), -np.logaddexp(0.0, points)
        first, second = (
            np.multiply.outer(log_p[:, kind], self.x) + np.multiply.outer(log_q[:, kind], self.y)
            for kind in (0, 1)
        )
        return first + log_p[:, 2:], second + log_q[:, 2:]


def equal_kinds(pairs: Pairs, kinds: TwoKinds) -> EqualKinds:
    """Return the posterior of two kinds of questions that all have their kind's p.

    Parameters
    ----------
    pairs : Pairs
        Successes and failures of the distinct questions.
    kinds : TwoKinds
        The posterior of two kinds in general, from `two_kinds` on the same questions.
    """
    density = EqualKindsDensity(pairs)
    broad = _BROAD[0][[0, 2, 4]], np.diag(_BROAD[1][[0, 2, 4]] ** 2)
    weighted = sample(density, find_modes(density, density.starts()), broad, _ENOUGH, _MOST_ADDED)
    points = weighted.points
    return EqualKinds(
        logit_p=np.clip(points[:, :2].T, -_MOST_LOGIT, _MOST_LOGIT),
        share=special.expit(np.stack([points[:, 2], -points[:, 2]])),
        first_kind=density.first_kind(points),
        weight=weighted.weight,
        probability=float(special.expit(weighted.log_mass - kinds.log_mass)),
    )


def _rates(x: FloatArray, y: FloatArray, times: FloatArray) -> FloatArray:
    """Return the share of right answers of all questions, ascending."""
    return np.sort(np.repeat((x + 0.5) / (x + y + 1.0), times.astype(np.int64)))


def _cuts(M: int) -> list[int]:
    """Return numbers of questions that may be of the first kind."""
    return sorted({min(max(round(share * M), 1), M - 1) for share in _CUTS})


def _log_prior(logit_mean: FloatArray, log_strength: FloatArray) -> FloatArray:
    """Return the log of the prior density of (logit m, log s), normalized."""
    of_strength = log_prior_of_log_strength(log_strength) - LOG_PRIOR_MASS
    return np.asarray(_log_prior_of_mean(logit_mean) + of_strength)


def _log_prior_of_mean(logit_mean: FloatArray) -> FloatArray:
    """Return the log of the prior density of logit m, normalized."""
    both = np.logaddexp(0.0, -logit_mean) + np.logaddexp(0.0, logit_mean)
    return np.asarray(-MEAN_SHAPE * both - special.betaln(MEAN_SHAPE, MEAN_SHAPE))
