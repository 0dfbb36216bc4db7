"""The distribution of a benchmark's score under a learned prior, for two categories.

Given the hyperparameters (m, s) the questions are independent Betas; the score's distribution is a
mixture over the nodes of a grid of (m, s). At a node where the questions' mean is close to normal,
its distribution function is Edgeworth's expansion to the fourth cumulant. Where all questions are
equal (one question; a benchmark that is all right or all wrong), or all close to one end, it is
Pearson's curve. Otherwise (few questions, or nearly certain questions of both kinds) it is
convolved on a lattice. A node represents its cell, over which the mean varies a little: that
variation is added as a uniform one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.distributions.base import CdfTable, beta_cdf, beta_quantile
from lm_eval_bayes.stats.distributions.independent import lattice_masses, raised, tabulate
from lm_eval_bayes.stats.distributions.success_curves import Identity


class Cumulants(NamedTuple):
    """Of the score (1/M) Σ p_α at every node, each of shape (G,).

    `third` and `fourth` are cumulants, and `third_size` and `fourth_size` the same with the
    absolute values of each question's, so that opposite signs do not cancel.
    """

    mean: FloatArray
    variance: FloatArray
    third: FloatArray
    third_size: FloatArray
    fourth: FloatArray
    fourth_size: FloatArray


@dataclass(frozen=True, eq=False)
class BetaMixture:
    """p_α ~ Beta(x_α + s m, y_α + s (1 − m)) with (m, s) at one of G weighted nodes.

    Parameters
    ----------
    x, y : array, shape (D,)
        Successes and failures of the D distinct questions.
    times : array, shape (D,)
        How often each occurs; they sum to M.
    m, rest : array, shape (G,)
        The mean and 1 minus it.
    s : array, shape (G,)
        The strength.
    weight : array, shape (G,)
        Probability of each node.
    steps : array, shape (2, G)
        Width of a node's cell in log(m / (1 − m)) and in log s.
    """

    x: FloatArray
    y: FloatArray
    times: FloatArray
    m: FloatArray
    rest: FloatArray
    s: FloatArray
    weight: FloatArray
    steps: FloatArray

    @property
    def n_questions(self) -> float:
        """M."""
        return float(self.times.sum())

    def parameters(self, some: slice | int) -> tuple[FloatArray, FloatArray]:
        """Return the Beta parameters of some of the distinct questions, each (G, those)."""
        a = self.x[some] + (self.s * self.m)[:, None]
        b = self.y[some] + (self.s * self.rest)[:, None]
        return a, b

    def question_moments(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of each distinct question's p_α over all nodes, each (D,)."""
        mean, variance = np.empty_like(self.x), np.empty_like(self.x)
        for some in self._blocks():
            at_node, within = _moments(*self.parameters(some))
            mean[some] = self.weight @ at_node
            variance[some] = self.weight @ (within + (at_node - mean[some]) ** 2)
        return mean, np.sqrt(variance)

    def score_moments(self) -> tuple[float, float]:
        """Return mean and sd of (1/M) Σ p_α over all nodes."""
        score, within = np.zeros_like(self.weight), np.zeros_like(self.weight)
        for some in self._blocks():
            mean, variance = _moments(*self.parameters(some))
            score += mean @ self.times[some]
            within += variance @ self.times[some]
        M = self.n_questions
        score, within = score / M, within / M**2
        mu = float(self.weight @ score)
        return mu, float(np.sqrt(self.weight @ (within + (score - mu) ** 2)))

    def cumulants(self) -> Cumulants:
        """Return the first four cumulants of the score at every node."""
        sums = np.zeros((6, self.weight.size))
        for some in self._blocks():
            a, b = self.parameters(some)
            total = a + b
            mean, variance = _moments(a, b)
            third = variance * (b - a) * 2.0 / (total * (total + 2.0))
            fourth = (variance / (total * (total + 2.0))) * (
                6.0
                * ((a - b) ** 2 * (total + 1.0) - a * b * (total + 2.0))
                / (total * (total + 1.0) * (total + 3.0))
            )
            cumulants = (mean, variance, third, np.abs(third), fourth, np.abs(fourth))
            sums += np.stack([values @ self.times[some] for values in cumulants])
        return Cumulants(*(sums / self.n_questions ** np.array([1, 2, 3, 3, 4, 4])[:, None]))

    def sensitivity(self) -> FloatArray:
        """Return how much the score's mean changes over a node's cell, by direction, (2, G)."""
        with_mean, with_strength = np.zeros_like(self.weight), np.zeros_like(self.weight)
        s, m = self.s[:, None], self.m[:, None]
        for some in self._blocks():
            n = self.x[some] + self.y[some]
            with_mean += (s / (n + s)) @ self.times[some]
            with_strength += (s * (m * n - self.x[some]) / (n + s) ** 2) @ self.times[some]
        slopes = np.stack([with_mean * self.m * self.rest, np.abs(with_strength)])
        return np.asarray(self.steps * slopes / self.n_questions)

    def _blocks(self) -> Iterator[slice]:
        return blocks(self.x.size, self.weight.size)


def _moments(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of Beta(a, b)."""
    total = a + b
    mean = a / total
    return mean, mean * (b / total) / (total + 1.0)


#: Points of a table, half evenly in the score and half evenly in a normal's quantiles.
_PEARSON_POINTS = 100
_FINER = 6

ComplexArray: TypeAlias = npt.NDArray[np.complex128]

#: Edgeworth's expansion is used from this number of questions, up to these sizes of the third and
#: fourth standardized cumulant, and where the latter times σ is below the last number: the error
#: of its quantiles is up to 0.18 times that, less than 5e-4.
_MANY = 8
_EDGEWORTH = (0.45, 0.2, 2.8e-3)
_POINTS = 160
#: Pearson's curves are used where the mean of 1/r, r the sum of their parameters, is at most the
#: first number and, times σ, the second: their error is up to 0.8 σ / r. For equal questions it
#: is smaller for any r.
_PEARSON = (0.06, 5e-4)
#: Above this length the lattice is not convolved: a Beta with the exact moments is used.
_LONGEST = 1 << 19
#: Posterior mass in the least likely nodes, which are left out.
_LEFT_OUT = 5e-5
#: Minimum number of lattice steps per standard deviation of the sum.
_STEPS = 16.0
#: Posterior mass that may lie outside the window of the lattice.
_OUTSIDE = 1e-6
#: A Beta whose parameter of one end is at most this has its mass at that end. The distance of its
#: lattice points may then grow in proportion to their distance from that end, the more so for
#: many questions.
_MASS_AT_END = 8.0
_THINNED, _THINNED_IN_MANY = 0.04, 0.08
_COMPLEX_BLOCK = 1 << 20


def mixture_table(mixture: BetaMixture, mu: float, sigma: float) -> CdfTable:
    """Tabulate the distribution function of (1/M) Σ p_α.

    Parameters
    ----------
    mixture : BetaMixture
        The questions.
    mu, sigma : float
        Exact mean and standard deviation; sigma > 0.

    Returns
    -------
    CdfTable
        Scores within [0, 1].
    """
    at_node = mixture.cumulants()
    sensitivity = mixture.sensitivity()
    wide_sensitivity = wide_cells(sensitivity, at_node)
    if mixture.n_questions >= _MANY and is_nearly_normal(mixture.weight, at_node, sigma):
        return edgeworth_table(mixture.weight, at_node, wide_sensitivity, mu, sigma)
    nodes = PearsonNodes.of(at_node)
    if is_near_pearson(mixture.weight, nodes, sigma, equal=mixture.x.size == 1):
        return pearson_table(mixture.weight, nodes, sensitivity, mu, sigma)
    return _convolved(mixture, at_node, wide_sensitivity, mu, sigma)


def mean_shape(weight: FloatArray, at_node: Cumulants) -> tuple[float, float]:
    """Return the sizes of the nodes' third and fourth standardized cumulants, on average."""
    spread = np.sqrt(at_node.variance)
    skew = float((weight * (at_node.third_size / spread**3)).sum())
    return skew, float((weight * (at_node.fourth_size / spread**4)).sum())


def is_nearly_normal(weight: FloatArray, at_node: Cumulants, sigma: float) -> bool:
    """Whether Edgeworth's expansion is accurate at the nodes, on average over their weights."""
    skew, kurtosis = mean_shape(weight, at_node)
    return bool(np.all(np.array([skew, kurtosis, kurtosis * sigma]) <= _EDGEWORTH))


def wide_cells(sensitivity: FloatArray, at_node: Cumulants) -> FloatArray:
    """Return how much the mean changes over a cell, 0 where its spread is larger, (2, G)."""
    return np.where(sensitivity > np.sqrt(at_node.variance), sensitivity, 0.0)


def edgeworth_table(
    weight: FloatArray, at_node: Cumulants, sensitivity: FloatArray, mu: float, sigma: float
) -> CdfTable:
    """Mix Edgeworth's expansions on a grid of scores, then refine it.

    Parameters
    ----------
    weight : array, shape (G,)
        Probability of each node.
    at_node : Cumulants
        Of the score at every node, each of shape (G,).
    sensitivity : array, shape (K, G)
        How much the mean changes over a node's cell, in K directions.
    mu, sigma : float
        Exact mean and standard deviation over all nodes.

    Returns
    -------
    CdfTable
        Scores within [0, 1].
    """
    mean, third, fourth = at_node.mean, at_node.third, at_node.fourth
    # a uniform variation of width h adds h²/12 to the variance
    variance = at_node.variance + (sensitivity**2).sum(axis=0) / 12.0
    spread = np.sqrt(variance)
    skew, excess = third / spread**3 / 6.0, fourth / variance**2 / 24.0
    score = np.linspace(max(mu - 9.0 * sigma, 0.0), min(mu + 9.0 * sigma, 1.0), _POINTS)
    z = (score - mean[:, None]) / spread[:, None]
    square = z * z
    # Hermite's polynomials of degree 2, 3 and 5
    bend = skew[:, None] * (square - 1.0)
    bend += z * (excess[:, None] * (square - 3.0))
    bend += z * ((0.5 * skew**2)[:, None] * ((square - 10.0) * square + 15.0))
    density = np.exp(-0.5 * square) / np.sqrt(2.0 * np.pi)
    below = weight @ (special.ndtr(z) - density * bend)
    # the variation over cells widens the distribution: rescale to the exact sd
    widened = float(weight @ (variance + (mean - mu) ** 2))
    score = mu + (score - mu) * (sigma / np.sqrt(widened))
    below = np.maximum.accumulate(np.clip(below, 0.0, 1.0))
    # the reciprocal of a smaller slope is not finite
    below[below < 1e-200] = 0.0
    below[0], below[-1] = 0.0, 1.0
    finer = np.linspace(score[0], score[-1], 8 * (_POINTS - 1) + 1)
    from scipy.interpolate import PchipInterpolator  # takes long to import

    smooth = PchipInterpolator(score, below)(finer)
    return CdfTable(np.clip(smooth, 0.0, 1.0), np.clip(finer, 0.0, 1.0))


def _convolved(
    mixture: BetaMixture, at_node: Cumulants, sensitivity: FloatArray, mu: float, sigma: float
) -> CdfTable:
    """Mix the Fourier transforms of lattice distributions and return from there once."""
    M = mixture.n_questions
    order = np.argsort(mixture.weight)
    likely = order[np.cumsum(mixture.weight[order]) > _LEFT_OUT]
    n_cells = int(np.ceil(max(_STEPS, 96.0 / M) / (sigma * M)))
    lowest, highest = _supports(mixture)
    a, b = mixture.parameters(slice(None))
    scale = (2.0 * np.abs(b - a) / ((a + b) * (a + b + 2.0)))[likely].max(axis=1)
    offset, spread = M * (at_node.mean[likely] - mu), M * np.sqrt(at_node.variance[likely])
    reach = _window(mixture.weight[likely], offset, spread, scale)
    reach += 0.5 * float((M * sensitivity[:, likely]).sum(axis=0).max())
    first = int(np.floor(max(M * mu - reach, 0.0) * n_cells))
    last = int(np.ceil(min(M * mu + reach, M) * n_cells))
    length = fft.next_fast_len(last - first + 1, real=True)
    if length > _LONGEST:
        return beta_with_moments(mu, sigma)
    frequency = np.arange(length // 2 + 1) / length
    transform = np.zeros(frequency.size, dtype=np.complex128)
    steep = _steep(mixture)[likely]
    thinned = _THINNED if M < _MANY else _THINNED_IN_MANY
    for some, sparse in ((likely[steep], True), (likely[~steep], False)):
        for part in blocks(some.size, length, _COMPLEX_BLOCK):
            block = some[part]
            # sinc(x) is sin(πx)/(πx), the transform of an even spread
            factors: ComplexArray = np.tile(mixture.weight[block, None] + 0.0j, frequency.size)
            for movement in sensitivity:
                if np.any(movement[block] > 0.0):
                    factors *= np.sinc(movement[block, None] * (M * n_cells) * frequency)
            for d, times in enumerate(mixture.times):
                end = _end(mixture, d) if sparse else None
                support = (lowest[block, d].min(), highest[block, d].max())
                points = _lattice_points(support, end, n_cells, thinned)
                a, b = mixture.parameters(d)
                masses = lattice_masses(Identity(), a[block], b[block], points, n_cells, length)
                factors *= raised(fft.rfft(masses, axis=1), int(times))
            transform += factors.sum(axis=0)
    total = np.maximum(fft.irfft(transform, n=length), 0.0)
    # the transform is periodic; rotate it to the beginning of the window
    total = np.roll(total, -(first % length))
    score = (first + np.arange(length)) / (n_cells * M)
    return tabulate(total / total.sum(), score, mu, sigma).clipped(0.0, 1.0)


def _window(weight: FloatArray, offset: FloatArray, spread: FloatArray, scale: FloatArray) -> float:
    """Return half a window about the mean, outside which no more than 1e-6 of the mass lies.

    By Bernstein's inequality for sums of Betas (Skorski 2023): `offset` and `spread` are their
    means, from the window's middle, and their standard deviations, `scale` the largest
    2 |b − a| / ((a + b) (a + b + 2)) of a term; each of shape (G,).
    """
    narrow, wide = 0.0, float((np.abs(offset) + 8.0 * spread + 12.0 * scale).max())
    for _ in range(12):
        half = 0.5 * (narrow + wide)
        beyond = np.maximum(half - np.abs(offset), 0.0)
        exponent = beyond**2 / (2.0 * (spread**2 + scale * beyond / 3.0) + 1e-300)
        outside = float(weight @ np.exp(-exponent))
        narrow, wide = (half, wide) if outside > _OUTSIDE else (narrow, half)
    return wide


def beta_with_moments(mu: float, sigma: float) -> CdfTable:
    """Tabulate the Beta distribution with this mean and standard deviation."""
    below, score = _beta_points(mu, sigma, _POINTS)
    below[0], below[-1] = 0.0, 1.0
    return CdfTable(below, score)


def _beta_points(mu: float, sigma: float, n_points: int) -> tuple[FloatArray, FloatArray]:
    """Return masses, even in a normal's quantiles, and a Beta's scores there, each (n_points,)."""
    strength = mu * (1.0 - mu) / sigma**2 - 1.0
    below = special.ndtr(np.linspace(-8.0, 8.0, n_points))
    return below, beta_quantile(mu * strength, (1.0 - mu) * strength, below)


def _supports(mixture: BetaMixture) -> tuple[FloatArray, FloatArray]:
    """Return the scores between which each question has all but e^-16 of its mass, (G, D)."""
    a, b = mixture.parameters(slice(None))
    mean, variance = _moments(a, b)
    # a Beta's tails are no heavier than a gamma's of scale 1 / (a + b)
    reach = 8.0 * np.sqrt(variance) + 16.0 / (a + b)
    return np.maximum(mean - reach, 0.0), np.minimum(mean + reach, 1.0)


def _end(mixture: BetaMixture, d: int) -> int | None:
    """Return the end, 0 or 1, of a question that was never or always solved, else None."""
    if mixture.x[d] == 0.0:
        return 0
    return 1 if mixture.y[d] == 0.0 else None


def _steep(mixture: BetaMixture) -> npt.NDArray[np.bool_]:
    """Return the nodes whose never or always solved questions have their mass at that end, (G,).

    There a question's standard deviation is comparable with its distance from that end.
    """
    never = mixture.s * mixture.m <= _MASS_AT_END if np.any(mixture.x == 0.0) else True
    always = mixture.s * mixture.rest <= _MASS_AT_END if np.any(mixture.y == 0.0) else True
    return np.broadcast_to(never & always, mixture.s.shape)


def _lattice_points(
    support: tuple[float, float], end: int | None, n_cells: int, thinned: float
) -> IntArray:
    """Return the points of the lattice between two scores, thinned out away from an end."""
    first, last = int(np.floor(support[0] * n_cells)), int(np.ceil(support[1] * n_cells))
    if end is None:
        return np.arange(first, last + 1)
    reach = last if end == 0 else n_cells - first
    near = np.arange(min(int(1.0 / thinned), reach) + 1)
    n_far = int(np.ceil(np.log(reach / near[-1]) / np.log1p(thinned))) + 1
    far = np.ceil(np.geomspace(near[-1], reach, n_far)).astype(np.int64)
    points = np.unique(np.append(near, far))
    return points if end == 0 else n_cells - points[::-1]


@dataclass(frozen=True, eq=False)
class PearsonNodes:
    """Pearson's curves of type I, a Beta between two endpoints, with the cumulants of G nodes.

    A mean of one Beta is such a curve, and a mean of Betas that all lie near one end (the
    questions that a model never solves, or always) is one to within a few thousandths of its
    standard deviation.

    Parameters
    ----------
    mean, spread : array, shape (G,)
        Mean and standard deviation.
    skew : array, shape (G,)
        Third standardized cumulant.
    total : array, shape (G,)
        Sum of the two Beta parameters; not above 0, or infinite, where no such curve exists.
    """

    mean: FloatArray
    spread: FloatArray
    skew: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, at_node: Cumulants) -> PearsonNodes:
        """Fit a curve to every node."""
        spread = np.sqrt(at_node.variance)
        skew = at_node.third / spread**3
        square, excess = skew**2, at_node.fourth / at_node.variance**2
        with np.errstate(divide="ignore"):
            total = 6.0 * (excess + 2.0 - square) / (3.0 * square - 2.0 * excess)
        return cls(at_node.mean, spread, skew, np.asarray(total))

    def __getitem__(self, some: npt.NDArray[np.bool_] | IntArray) -> PearsonNodes:
        """Return some of the nodes."""
        return PearsonNodes(self.mean[some], self.spread[some], self.skew[some], self.total[some])

    def exist(self) -> bool:
        """Return whether every node has its curve."""
        return bool(np.all((self.total > 0.0) & np.isfinite(self.total)))

    def below(self, score: FloatArray) -> FloatArray:
        """Return the distribution functions at `score`, shape (G, L)."""
        total, skew = self.total, np.abs(self.skew)
        wide = np.sqrt((skew * (total + 2.0)) ** 2 + 16.0 * (total + 1.0))
        # the parameter of the end nearer to the mean, without cancellation
        near = 0.5 * total * 16.0 * (total + 1.0) / (wide * (wide + (total + 2.0) * skew))
        far = total - near
        width = 0.5 * self.spread * wide
        towards = np.where(self.skew < 0.0, -1.0, 1.0)
        from_mean = towards[:, None] * (score - self.mean[:, None]) / width[:, None]
        inside = np.clip(from_mean + (near / total)[:, None], 0.0, 1.0)
        part = beta_cdf(near, far, inside, 1e-5)
        return np.asarray(np.where(towards[:, None] < 0.0, 1.0 - part, part))


def is_near_pearson(weight: FloatArray, nodes: PearsonNodes, sigma: float, *, equal: bool) -> bool:
    """Return whether the score's distribution at the nodes is one of Pearson's curves.

    Parameters
    ----------
    weight : array, shape (G,)
        Probability of each node.
    nodes : PearsonNodes
        The curves with the score's cumulants.
    sigma : float
        The score's standard deviation over all nodes.
    equal : bool
        Whether all questions have the same trials.
    """
    if not nodes.exist():
        return False
    off = weight @ (1.0 / nodes.total)
    return bool(equal or (off <= _PEARSON[0] and off * sigma <= _PEARSON[1]))


def pearson_table(
    weight: FloatArray, nodes: PearsonNodes, sensitivity: FloatArray, mu: float, sigma: float
) -> CdfTable:
    """Mix the curves of a mixture's nodes into one table.

    Parameters
    ----------
    weight : array, shape (G,)
        Probability of each node.
    nodes : PearsonNodes
        Of which all exist.
    sensitivity : array, shape (2, G)
        How much the mean changes over each node's cell.
    mu, sigma : float
        Mean and standard deviation of the mixture.

    Returns
    -------
    CdfTable
        Scores within [0, 1].
    """
    order = np.argsort(weight)
    likely = order[np.cumsum(weight[order]) > _LEFT_OUT]
    weight = weight[likely] / weight[likely].sum()
    nodes, sensitivity = nodes[likely], sensitivity[:, likely]
    is_moved = sensitivity.max(axis=0) > nodes.spread
    score = _scores(mu, sigma)
    below = np.empty((likely.size, score.size))
    below[~is_moved] = nodes[~is_moved].below(score)
    below[is_moved] = _moved_below(nodes[is_moved], sensitivity[:, is_moved], score)
    variance = nodes.spread**2 + np.where(is_moved, (sensitivity**2).sum(axis=0) / 12.0, 0.0)
    widened = float(weight @ (variance + (nodes.mean - mu) ** 2))
    return _smooth_table(score, weight @ below, mu, sigma / np.sqrt(widened))


def beta_nodes_table(
    weight: FloatArray, at_node: Cumulants, sensitivity: FloatArray, mu: float, sigma: float
) -> CdfTable:
    """Mix Betas with the mean and the variance of a mixture's nodes into one table.

    It suits nodes that are far from normal because their scores are close to one end, at which the
    Beta's tail ends too.

    Parameters
    ----------
    weight : array, shape (G,)
        Probability of each node.
    at_node : Cumulants
        Of the score at every node, each of shape (G,).
    sensitivity : array, shape (K, G)
        How much the mean changes over a node's cell, in K directions.
    mu, sigma : float
        Exact mean and standard deviation over all nodes.

    Returns
    -------
    CdfTable
        Scores within [0, 1].
    """
    mean = np.clip(at_node.mean, 1e-14, 1.0 - 1e-14)
    most = mean * (1.0 - mean)
    variance = np.minimum(at_node.variance + (sensitivity**2).sum(axis=0) / 12.0, 0.98 * most)
    strength = most / variance - 1.0
    a, b = mean * strength, (1.0 - mean) * strength
    score = _scores(mu, sigma)
    below = np.empty((weight.size, score.size))
    near = a <= b
    below[near] = beta_cdf(a[near], b[near], score[None, :], 1e-5)
    below[~near] = 1.0 - beta_cdf(b[~near], a[~near], 1.0 - score[None, :], 1e-5)
    widened = float(weight @ (variance + (at_node.mean - mu) ** 2))
    return _smooth_table(score, weight @ below, mu, sigma / np.sqrt(widened))


def _smooth_table(score: FloatArray, below: FloatArray, mu: float, factor: float) -> CdfTable:
    """Return a table from a distribution function at some scores, stretched to the exact sd."""
    below = np.maximum.accumulate(np.clip(below, 0.0, 1.0))
    # the reciprocal of a smaller slope is not finite
    below[below < 1e-200] = 0.0
    below[-1] = 1.0
    # the variation over cells widens the distribution
    score = _stretched(score, mu, factor)
    # next to 1, neighbouring scores can be the same number
    rises = np.append(np.diff(score) > 0.0, True)
    score, below = score[rises], below[rises]
    if score.size < 2:
        return CdfTable(np.array([0.0, 1.0]), np.array([mu, mu]))
    from scipy.interpolate import PchipInterpolator  # takes long to import

    index = np.arange(score.size)
    finer = np.interp(np.linspace(0.0, index[-1], _FINER * int(index[-1]) + 1), index, score)
    smooth = np.clip(PchipInterpolator(score, below)(finer), 0.0, 1.0)
    # the mass below the first point is put on it
    return CdfTable(np.append(0.0, smooth), np.append(finer[0], finer))


def _scores(mu: float, sigma: float) -> FloatArray:
    """Return scores that are close to each other where the mass is, and near the ends."""
    half = _PEARSON_POINTS // 2
    _, dense = _beta_points(mu, sigma, half)
    even = np.linspace(max(mu - 12.0 * sigma, 0.0), min(mu + 12.0 * sigma, 1.0), half)
    score = np.unique(np.concatenate([dense, even]))
    return np.asarray(score[np.append(np.diff(score) > 1e-9 * sigma, True)])


def _stretched(score: FloatArray, mu: float, factor: float) -> FloatArray:
    """Stretch scores about `mu` by a factor close to 1, and leave 0 and 1 where they are."""
    left = mu * np.minimum(score / mu, 1.0) ** factor
    right = (1.0 - mu) * np.clip((1.0 - score) / (1.0 - mu), 0.0, 1.0) ** factor
    return np.asarray(np.where(score < mu, left, 1.0 - right))


def _moved_below(nodes: PearsonNodes, sensitivity: FloatArray, score: FloatArray) -> FloatArray:
    """Return the distribution functions of nodes whose mean varies more than their sd, (G, L).

    The wider variation is uniform, so that neighbouring cells join continuously; the other one
    and the sd are treated as normal.
    """
    wide = sensitivity.max(axis=0)[:, None]
    spread = np.sqrt(nodes.spread**2 + sensitivity.min(axis=0) ** 2 / 12.0)[:, None]
    above = score - nodes.mean[:, None]
    ramps = _ramp(above + 0.5 * wide, spread) - _ramp(above - 0.5 * wide, spread)
    return np.asarray(ramps / wide)


def _ramp(x: FloatArray, spread: FloatArray) -> FloatArray:
    """Return ∫ Φ(t / spread) dt from −∞ to x."""
    z = np.clip(x / np.maximum(spread, 1e-300), -40.0, 40.0)
    return np.asarray(x * special.ndtr(z) + spread * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
