"""Adaptive importance sampling of an unnormalized density that may have several modes.

Incremental mixture importance sampling (Raftery & Bao 2010, "Estimating and projecting trends in
HIV/AIDS generalized epidemics using incremental mixture importance sampling", Biometrics 66). The
proposal is a mixture of multivariate t distributions: one at every mode of the density, with the
inverse of the negative Hessian as its scale, and a broad one. A second mixture is fitted to the
weighted points of the first (one step of population Monte Carlo, Cappé et al. 2008). Further t
distributions are then added where the largest weight is, until the effective sample size suffices.
Every point has the weight density / Σ_j n_j t_j(point), n_j the points drawn from t_j, so that no
point is discarded.

The points are those of an additive recurrence of low discrepancy instead of random numbers: the
same density always gives the same points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray

#: Degrees of freedom of the t distributions.
_FREEDOM = 5.0
#: Newton's method: iterations, the step of finite differences, the smallest curvature that is
#: believed, the longest step of a coordinate, the rise of the log density below which it stops, and
#: the fractions of a step that are tried.
_ITERATIONS, _DIFFERENCE, _LEAST_CURVATURE, _LONGEST, _LEAST_RISE = 12, 0.05, 0.1, 2.0, 1e-3
_FRACTIONS = np.array([1.0, 0.4, 0.1])
#: A mode is left out if its log density is this far below the highest; points whose squared
#: distance, in units of the curvature, is below the second number lead to the same mode.
_LOWEST_MODE, _SAME_MODE = 12.0, 0.1
#: The share of the broad component, and the power of the modes' masses that are their shares.
_BROAD_SHARE, _TEMPERED = 0.1, 0.7
#: Points of the mixture at the modes, of the fitted one, and of each further component.
_AT_MODES, _FITTED, _ADDED = 1024, 4096, 512
#: No further points are drawn if the first ones' log of the integral is this far below the least.
_FIRST_MARGIN = 0.5
#: The neighbours of the point of largest weight to whose covariance a component is fitted.
_NEIGHBOURS = 128
#: A component is refitted if its points' effective sample size is at least the first number, and
#: left out if its share is below the second.
_LEAST_POINTS, _LEAST_SHARE = 30.0, 0.002


class Density(Protocol):
    """An unnormalized density of d variables that does not change under a relabelling.

    A relabelling is its own inverse, as exchanging the labels of two components of a mixture.
    """

    def log_density(self, points: FloatArray) -> FloatArray:
        """Return the log of the density at points of shape (n, d)."""

    def relabelled(self, points: FloatArray) -> FloatArray:
        """Return the points with the same density under the other labels, shape (n, d)."""


class Points(NamedTuple):
    """Points of shape (n, d) and the log of each one's weight.

    The weights sum to the integral of the density.
    """

    points: FloatArray
    log_weight: FloatArray

    @property
    def log_mass(self) -> float:
        """The log of the integral of the density."""
        return float(special.logsumexp(self.log_weight))

    @property
    def weight(self) -> FloatArray:
        """The weights, normalized to sum 1."""
        weight = np.exp(self.log_weight - self.log_weight.max())
        return np.asarray(weight / weight.sum())

    @property
    def ess(self) -> float:
        """The effective sample size, 1 / Σ weight²."""
        return float(1.0 / (self.weight**2).sum())


class Modes(NamedTuple):
    """Modes of a density.

    `centre`, shape (J, d); `covariance`, shape (J, d, d), the inverse of the negative Hessian of
    the log density; `log_mass`, shape (J,), of the normal density fitted to each.
    """

    centre: FloatArray
    covariance: FloatArray
    log_mass: FloatArray


@dataclass(frozen=True, eq=False)
class _Mixture:
    """t distributions, of which the j-th gives `counts[j]` points.

    Parameters
    ----------
    counts : array, shape (J,)
        Whole numbers.
    centre : array, shape (J, d)
    root : array, shape (J, d, d)
        Cholesky factors of the scale matrices.
    """

    counts: FloatArray
    centre: FloatArray
    root: FloatArray

    @classmethod
    def of(
        cls, share: FloatArray, n_points: int, centre: FloatArray, scale: FloatArray
    ) -> _Mixture:
        """Divide points among components in proportion to their shares."""
        ends = np.floor(np.cumsum(share / share.sum()) * n_points + 0.5)
        ends[-1] = n_points
        root = np.asarray(np.linalg.cholesky(scale), dtype=np.float64)
        return cls(np.diff(ends, prepend=0.0), centre, root)

    def joined(self, other: _Mixture) -> _Mixture:
        """Return the components of both."""
        pairs = zip(
            (self.counts, self.centre, self.root),
            (other.counts, other.centre, other.root),
            strict=True,
        )
        return _Mixture(*(np.concatenate(pair) for pair in pairs))

    def draw(self, first: int) -> FloatArray:
        """Return the points, from the number `first` of the low-discrepancy sequence on."""
        n_points, d = int(self.counts.sum()), self.centre.shape[1]
        uniform = even_points(first, n_points, d + 1)
        normal = special.ndtri(uniform[:, :d])
        half = 0.5 * _FREEDOM
        scaled = normal / np.sqrt(special.gammaincinv(half, uniform[:, d:]) / half)
        which = np.repeat(np.arange(self.counts.size), self.counts.astype(np.int64))
        return np.asarray(self.centre[which] + np.einsum("nij,nj->ni", self.root[which], scaled))

    def log_parts(self, points: FloatArray) -> FloatArray:
        """Return the log of counts[j] times the j-th density, shape (J, n)."""
        d = points.shape[1]
        half = 0.5 * (_FREEDOM + d)
        constant = special.gammaln(half) - special.gammaln(0.5 * _FREEDOM)
        constant -= 0.5 * d * np.log(_FREEDOM * np.pi)
        parts = np.full((self.counts.size, points.shape[0]), -np.inf)
        for j in np.flatnonzero(self.counts):
            from_centre = (points - self.centre[j]) @ np.linalg.inv(self.root[j]).T
            square = np.einsum("ni,ni->n", from_centre, from_centre)
            log_root = np.log(np.diagonal(self.root[j])).sum()
            parts[j] = np.log(self.counts[j]) + constant - log_root
            parts[j] -= half * np.log1p(square / _FREEDOM)
        return parts

    def log_total(self, density: Density, points: FloatArray) -> FloatArray:
        """Return log Σ_j counts[j] t_j, averaged over both labellings, shape (n,)."""
        own = np.logaddexp.reduce(self.log_parts(points), axis=0)
        other = np.logaddexp.reduce(self.log_parts(density.relabelled(points)), axis=0)
        return np.asarray(np.logaddexp(own, other) - np.log(2.0))


def even_points(first: int, n_points: int, d: int) -> FloatArray:
    """Return points of the unit cube of low discrepancy, shape (n_points, d).

    Point i has the coordinates ½ + i g^-1, …, ½ + i g^-d modulo 1, with g the positive root of
    g^(d+1) = g + 1.

    Examples
    --------
    >>> even_points(1, 3, 1).ravel().round(3).tolist()
    [0.118, 0.736, 0.354]
    """
    g = 2.0
    for _ in range(64):
        g = (1.0 + g) ** (1.0 / (d + 1.0))
    number = np.arange(first, first + n_points, dtype=np.float64)[:, None]
    uniform = (0.5 + number * g ** -np.arange(1.0, d + 1.0)) % 1.0
    return np.clip(uniform, 1e-9, 1.0 - 1e-9)


def find_modes(density: Density, starts: FloatArray) -> Modes:
    """Find the distinct modes that Newton's method reaches from some points.

    Parameters
    ----------
    density : Density
        Smooth, with bounded level sets.
    starts : array, shape (S, d)
    """
    centre = starts.copy()
    value, gradient, curvature, axes = _derivatives(density, centre)
    climbing = np.arange(starts.shape[0])
    for _ in range(_ITERATIONS):
        step = _newton_step(gradient[climbing], curvature[climbing], axes[climbing])
        tried = centre[climbing, None] + _FRACTIONS[:, None] * step[:, None]
        values = density.log_density(tried.reshape(-1, tried.shape[2])).reshape(climbing.size, -1)
        best = values.argmax(axis=1)
        rows = np.arange(climbing.size)
        risen = values[rows, best] > value[climbing] + _LEAST_RISE
        climbing, reached = climbing[risen], tried[rows, best][risen]
        if not climbing.size:
            break
        centre[climbing] = reached
        found = _derivatives(density, reached)
        for of_all, of_some in zip((value, gradient, curvature, axes), found, strict=True):
            of_all[climbing] = of_some
        climbing = climbing[~_is_near_higher(density, reached, found)]
    covariance = np.einsum("nij,nj,nkj->nik", axes, 1.0 / curvature, axes)
    log_mass = value - 0.5 * np.log(curvature).sum(axis=1)
    log_mass += 0.5 * centre.shape[1] * np.log(2.0 * np.pi)
    distinct: list[int] = []
    mirror = density.relabelled(centre)
    for i in np.argsort(-value, kind="stable"):
        if value[i] < value.max() - _LOWEST_MODE:
            break
        distances = [
            (point - centre[j]) @ np.linalg.solve(covariance[j], point - centre[j])
            for j in distinct
            for point in (centre[i], mirror[i])
        ]
        if not distances or min(distances) >= 1.0:
            distinct.append(int(i))
    return Modes(centre[distinct], covariance[distinct], log_mass[distinct])


def _is_near_higher(
    density: Density, points: FloatArray, found: tuple[FloatArray, ...]
) -> NDArray[np.bool_]:
    """Return which points lie next to one of a higher density: both lead to the same mode.

    `found` is what `_derivatives` gives at the points.
    """
    value, _, curvature, axes = found
    labellings = np.stack([points, density.relabelled(points)])
    apart = labellings[:, :, None] - points  # shape (labellings, n, n, d)
    along = np.einsum("lijd,jde->lije", apart, axes)
    square = np.einsum("lije,je->lij", along**2, curvature).min(axis=0)
    rank = np.argsort(np.argsort(-value, kind="stable"), kind="stable")
    return np.asarray(((square < _SAME_MODE) & (rank[:, None] > rank)).any(axis=1))


def _newton_step(gradient: FloatArray, curvature: FloatArray, axes: FloatArray) -> FloatArray:
    """Return the steps towards the maxima of quadratic approximations, shape (n, d)."""
    step = np.einsum("nij,nj,nkj,nk->ni", axes, 1.0 / curvature, axes, gradient)
    longest = np.maximum(np.abs(step).max(axis=1), 1e-300)
    return np.asarray(step * np.minimum(1.0, _LONGEST / longest)[:, None])


def _derivatives(
    density: Density, points: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the log density, its gradient, and minus its Hessian's eigenvalues and axes.

    The eigenvalues are replaced by their sizes, where these are not too small.
    """
    n, d = points.shape
    unit = _DIFFERENCE * np.eye(d)
    first, second = np.triu_indices(d, 1)
    offsets = np.concatenate([np.zeros((1, d)), unit, -unit, unit[first] + unit[second]])
    values = density.log_density((points[:, None] + offsets).reshape(-1, d)).reshape(n, -1)
    middle, above, below = values[:, :1], values[:, 1 : d + 1], values[:, d + 1 : 2 * d + 1]
    square = _DIFFERENCE**2
    hessian = np.zeros((n, d, d))
    hessian[:, np.arange(d), np.arange(d)] = (above + below - 2.0 * middle) / square
    mixed = (values[:, 2 * d + 1 :] - above[:, first] - above[:, second] + middle) / square
    hessian[:, first, second] = hessian[:, second, first] = mixed
    curvature, axes = np.linalg.eigh(-hessian)
    gradient = (above - below) / (2.0 * _DIFFERENCE)
    return values[:, 0].copy(), gradient, np.maximum(np.abs(curvature), _LEAST_CURVATURE), axes


def sample(
    density: Density,
    modes: Modes,
    broad: tuple[FloatArray, FloatArray],
    enough: float,
    most_added: int,
    least_log_mass: float = -np.inf,
) -> Points:
    """Draw weighted points of a density.

    Parameters
    ----------
    density : Density
        The density.
    modes : Modes
        From `find_modes`.
    broad : (array of shape (d,), array of shape (d, d))
        Centre and scale matrix of a t distribution that is broader than the density.
    enough : float
        The effective sample size from which on no further components are added.
    most_added : int
        The most components that are added, of 512 points each.
    least_log_mass : float
        No components are added either where the log of the integral is below this.
    """
    share = np.exp(_TEMPERED * (modes.log_mass - modes.log_mass.max()))
    share = np.append((1.0 - _BROAD_SHARE) * share / share.sum(), _BROAD_SHARE)
    centre = np.concatenate([modes.centre, broad[0][None]])
    scale = np.concatenate([modes.covariance, broad[1][None]])
    mixture = _Mixture.of(share, _AT_MODES, centre, scale)
    points = mixture.draw(1)
    log_density, log_total = density.log_density(points), mixture.log_total(density, points)
    weighted = Points(points, log_density - log_total)
    if weighted.log_mass < least_log_mass - _FIRST_MARGIN:
        return weighted

    further = _fitted(density, mixture, weighted)
    for added in range(most_added + 1):
        mixture, drawn = mixture.joined(further), further.draw(1 + points.shape[0])
        log_total = np.append(
            np.logaddexp(log_total, further.log_total(density, points)),
            mixture.log_total(density, drawn),
        )
        points = np.concatenate([points, drawn])
        log_density = np.append(log_density, density.log_density(drawn))
        weighted = Points(points, log_density - log_total)
        is_enough = weighted.ess >= enough or weighted.log_mass < least_log_mass
        if is_enough or added == most_added:
            break
        further = _at_largest_weight(density, weighted)
    return weighted


def _fitted(density: Density, mixture: _Mixture, weighted: Points) -> _Mixture:
    """Fit the components to weighted points, and leave the last one, the broad one, as it is."""
    points, weight = weighted.points, weighted.weight
    mirror = density.relabelled(points)
    own, other = mixture.log_parts(points), mixture.log_parts(mirror)
    total = np.logaddexp(np.logaddexp.reduce(own, axis=0), np.logaddexp.reduce(other, axis=0))
    both = np.concatenate([points, mirror])
    d = points.shape[1]
    shares, centres, scales = [], [], []
    for j in range(mixture.counts.size - 1):
        part = np.concatenate([weight * np.exp(own[j] - total), weight * np.exp(other[j] - total)])
        share = float(part.sum())
        if share < _LEAST_SHARE:
            continue
        centre, scale = mixture.centre[j], mixture.root[j] @ mixture.root[j].T
        if share**2 >= _LEAST_POINTS * float((part**2).sum()):
            centre = part @ both / share
            scale = _covariance(part / share, both - centre)
            # the covariance of a t distribution is larger than its scale; a wider one is safer
            scale *= 1.1 * (_FREEDOM - 2.0) / _FREEDOM
        shares.append(share)
        centres.append(centre)
        scales.append(scale)
    of_modes = (1.0 - _BROAD_SHARE) * np.array(shares) / sum(shares)
    broad = mixture.root[-1] @ mixture.root[-1].T
    return _Mixture.of(
        np.append(of_modes, _BROAD_SHARE),
        _FITTED,
        np.concatenate([np.reshape(centres, (-1, d)), mixture.centre[-1:]]),
        np.concatenate([np.reshape(scales, (-1, d, d)), broad[None]]),
    )


def _at_largest_weight(density: Density, weighted: Points) -> _Mixture:
    """Return a component at the point of the largest weight, with its neighbours' covariance."""
    points, weight = weighted.points, weighted.weight
    spread = np.minimum(weight @ (points - weight @ points) ** 2, 4.0) + 1e-3
    centre = points[int(weight.argmax())]
    both = np.concatenate([points, density.relabelled(points)]) - centre
    near = np.argsort((both**2 / spread).sum(axis=1), kind="stable")[:_NEIGHBOURS]
    near_weight = np.tile(weight, 2)[near] + 1.0 / weight.size
    scale = _covariance(near_weight / near_weight.sum(), both[near])
    return _Mixture.of(np.ones(1), _ADDED, centre[None], scale[None])


def _covariance(weight: FloatArray, from_centre: FloatArray) -> FloatArray:
    """Return the weighted covariance, positive definite."""
    covariance = np.einsum("n,ni,nj->ij", weight, from_centre, from_centre, optimize=True)
    return np.asarray(covariance + 1e-6 * np.eye(from_centre.shape[1]))
