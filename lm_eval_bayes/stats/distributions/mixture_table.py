"""The distribution of a benchmark's score under a learned prior: a mixture over its nodes.

Given (m, s) the questions are independent Betas, and their mean is close to normal where
they are many or none of them is far from normal itself: then its distribution function is
Edgeworth's expansion to the fourth cumulant. Where the questions are all alike (one question;
a benchmark that is all right or all wrong), or all close to one end, it is Pearson's curve.
Elsewhere (few questions, or questions that are all but certain one way and the other) it is
convolved on a lattice. A node stands for its cell, over which the mean moves a little: that
movement is added as a uniform one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from lm_eval_bayes.stats.distributions.base import CdfTable
from lm_eval_bayes.stats.distributions.beta import beta_quantile
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture, Cumulants
from lm_eval_bayes.stats.distributions.convolution import lattice_masses, raised, tabulate
from lm_eval_bayes.stats.distributions.pearson import PearsonNodes, pearson_table
from lm_eval_bayes.stats.distributions.success_curves import Identity
from lm_eval_bayes.stats.validation import FloatArray, IntArray

ComplexArray: TypeAlias = npt.NDArray[np.complex128]

#: Edgeworth's expansion serves from so many questions on, up to these sizes of the third and
#: fourth standardized cumulant, and where the latter times σ stays below the last number: its
#: quantiles are wrong by up to 0.18 times that, so by less than 5e-4.
_MANY = 8
_EDGEWORTH = (0.45, 0.2, 2.8e-3)
_POINTS = 160
#: Pearson's curves serve where the mean of 1/r, r the sum of their parameters, is no larger
#: than the first number and, times σ, than the second: they are wrong by up to 0.8 σ / r. For
#: questions that are all alike they are closer still, whatever r.
_PEARSON = (0.06, 5e-4)
#: A lattice longer than this is not convolved: the posterior is given by its first moments.
_LONGEST = 1 << 19
#: Posterior mass in the least likely nodes that the lattice leaves out.
_LEFT_OUT = 5e-5
#: Lattice steps in one standard deviation of the sum, at the least.
_STEPS = 16.0
#: Posterior mass that may lie outside the window of the lattice.
_OUTSIDE = 1e-6
#: A Beta leans on its end while the parameter of that end is no larger. Its lattice points may
#: then lie further apart in proportion to their distance from that end, and more so where
#: many questions average it out.
_LEANING = 8.0
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
    spread = np.sqrt(at_node.variance)
    skew = mixture.weight @ (at_node.third_size / spread**3)
    kurtosis = mixture.weight @ (at_node.fourth_size / spread**4)
    moved = mixture.mean_shifts()
    sway = np.where(moved > spread, moved, 0.0)
    sizes = np.array([skew, kurtosis, kurtosis * sigma])
    if mixture.n_questions >= _MANY and np.all(sizes <= _EDGEWORTH):
        return _edgeworth(mixture.weight, at_node, sway, mu, sigma)
    nodes = PearsonNodes.of(at_node)
    if nodes.exist():
        off = mixture.weight @ (1.0 / nodes.total)
        if mixture.x.size == 1 or (off <= _PEARSON[0] and off * sigma <= _PEARSON[1]):
            return pearson_table(mixture.weight, nodes, moved, mu, sigma)
    return _convolved(mixture, at_node.mean, spread, sway, mu, sigma)


def _edgeworth(
    weight: FloatArray,
    at_node: Cumulants,
    sway: FloatArray,
    mu: float,
    sigma: float,
) -> CdfTable:
    """Mix Edgeworth's expansions on a grid of scores, then refine it."""
    mean, third, fourth = at_node.mean, at_node.third, at_node.fourth
    # a uniform movement of width h adds h²/12 to the variance
    variance = at_node.variance + (sway**2).sum(axis=0) / 12.0
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
    # the movement over cells widens the whole a little: take that back
    widened = float(weight @ (variance + (mean - mu) ** 2))
    score = mu + (score - mu) * (sigma / np.sqrt(widened))
    below = np.maximum.accumulate(np.clip(below, 0.0, 1.0))
    below[0], below[-1] = 0.0, 1.0
    finer = np.linspace(score[0], score[-1], 8 * (_POINTS - 1) + 1)
    from scipy.interpolate import PchipInterpolator  # takes long to import

    smooth = PchipInterpolator(score, below)(finer)
    return CdfTable(np.clip(smooth, 0.0, 1.0), np.clip(finer, 0.0, 1.0))


def _convolved(
    mixture: BetaMixture,
    mean: FloatArray,
    spread: FloatArray,
    sway: FloatArray,
    mu: float,
    sigma: float,
) -> CdfTable:
    """Mix the Fourier transforms of lattice distributions and return from there once."""
    M = mixture.n_questions
    order = np.argsort(mixture.weight)
    kept = order[np.cumsum(mixture.weight[order]) > _LEFT_OUT]
    n_cells = int(np.ceil(max(_STEPS, 96.0 / M) / (sigma * M)))
    lowest, highest = _supports(mixture)
    a, b = mixture.parameters(slice(None))
    scale = (2.0 * np.abs(b - a) / ((a + b) * (a + b + 2.0)))[kept].max(axis=1)
    reach = _window(mixture.weight[kept], M * (mean[kept] - mu), M * spread[kept], scale)
    reach += 0.5 * float((M * sway[:, kept]).sum(axis=0).max())
    first = int(np.floor(max(M * mu - reach, 0.0) * n_cells))
    last = int(np.ceil(min(M * mu + reach, M) * n_cells))
    length = fft.next_fast_len(last - first + 1, real=True)
    if length > _LONGEST:
        return _beta_with_moments(mu, sigma)
    frequency = np.arange(length // 2 + 1) / length
    transform = np.zeros(frequency.size, dtype=np.complex128)
    steep = _steep(mixture)[kept]
    thinned = _THINNED if M < _MANY else _THINNED_IN_MANY
    for some, sparse in ((kept[steep], True), (kept[~steep], False)):
        for block in _blocks(some, length):
            # sinc(x) is sin(πx)/(πx), the transform of an even spread
            part: ComplexArray = np.tile(mixture.weight[block, None] + 0.0j, frequency.size)
            for movement in sway:
                if np.any(movement[block] > 0.0):
                    part *= np.sinc(movement[block, None] * (M * n_cells) * frequency)
            for d, times in enumerate(mixture.times):
                end = _end(mixture, d) if sparse else None
                support = (lowest[block, d].min(), highest[block, d].max())
                points = _lattice_points(support, end, n_cells, thinned)
                a, b = mixture.parameters(d)
                masses = lattice_masses(Identity(), a[block], b[block], points, n_cells, length)
                part *= raised(fft.rfft(masses, axis=1), int(times))
            transform += part.sum(axis=0)
    total = np.maximum(fft.irfft(transform, n=length), 0.0)
    # The transform lives on a circle; cut it open where the window begins.
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


def _beta_with_moments(mu: float, sigma: float) -> CdfTable:
    """Tabulate the Beta distribution with this mean and standard deviation."""
    strength = mu * (1.0 - mu) / sigma**2 - 1.0
    below = special.ndtr(np.linspace(-8.0, 8.0, _POINTS))
    score = beta_quantile(mu * strength, (1.0 - mu) * strength, below)
    below[0], below[-1] = 0.0, 1.0
    return CdfTable(below, score)


def _supports(mixture: BetaMixture) -> tuple[FloatArray, FloatArray]:
    """Return the scores between which each question has all but e^-16 of its mass, (G, D)."""
    a, b = mixture.parameters(slice(None))
    total = a + b
    mean = a / total
    # a Beta's tails are no heavier than a gamma's of scale 1 / (a + b)
    reach = 8.0 * np.sqrt(mean * (b / total) / (total + 1.0)) + 16.0 / total
    return np.maximum(mean - reach, 0.0), np.minimum(mean + reach, 1.0)


def _end(mixture: BetaMixture, d: int) -> int | None:
    """Return the end, 0 or 1, towards which a question that was never or always solved leans."""
    if mixture.x[d] == 0.0:
        return 0
    return 1 if mixture.y[d] == 0.0 else None


def _steep(mixture: BetaMixture) -> npt.NDArray[np.bool_]:
    """Return the nodes whose never or always solved questions all lean on their end, (G,).

    There a question's standard deviation is no small part of its distance from that end.
    """
    never = mixture.s * mixture.m <= _LEANING if np.any(mixture.x == 0.0) else True
    always = mixture.s * mixture.rest <= _LEANING if np.any(mixture.y == 0.0) else True
    return np.broadcast_to(never & always, mixture.s.shape)


def _blocks(nodes: IntArray, length: int) -> Iterator[IntArray]:
    size = max(1, _COMPLEX_BLOCK // length)
    for start in range(0, nodes.size, size):
        yield nodes[start : start + size]


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
