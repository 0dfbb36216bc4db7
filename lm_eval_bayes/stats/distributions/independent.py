"""Questions with independent posteriors: Betas where two weights are distinct, else Dirichlets.

The distribution of a mean of functions of Betas is computed by numeric convolution. Each
question's distribution is put onto a lattice of step h: the mass between two lattice points goes
to these two in the proportion that keeps its mean. The sum's distribution is the product of the
Fourier transforms, each distinct question's raised to the number of times it occurs. The result is
stretched about the mean so that its mean and standard deviation are the true ones, which removes
the spread that the lattice adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.distributions.base import (
    CategoryDraws,
    CdfTable,
    Distribution,
    beta_cdf,
    beta_quantile,
    draw_beta,
    draw_dirichlet,
)
from lm_eval_bayes.stats.distributions.success_curves import Curve, Identity
from lm_eval_bayes.stats.outcomes import distinct_pairs


@dataclass(frozen=True, eq=False)
class IndependentBetas(Distribution):
    """s_α = low + (high − low)·curve(p_α) with p_α ~ Beta(a_α, b_α), low <= high.

    Parameters
    ----------
    a, b : array, shape (M,)
        Beta parameters of the M questions.
    curve : Curve
        The score as a function of p_α.
    low, high : float
        The scores at curve values 0 and 1.
    mean, sd : float
        Exact mean and standard deviation of the benchmark's score.
    """

    computed: ClassVar[bool] = True

    a: FloatArray
    b: FloatArray
    curve: Curve
    low: float
    high: float
    mean: float
    sd: float
    seed: int = 0

    @cached_property
    def table(self) -> CdfTable:
        """The distribution function of the score for M >= 2 questions, by convolution."""
        span = self.high - self.low
        unit = mean_table(self.a, self.b, self.curve, (self.mean - self.low) / span, self.sd / span)
        return unit.scaled(self.low, self.high)

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie."""
        if self.sd == 0.0:
            return np.full(np.shape(masses), self.mean)
        if self.a.size > 1:
            return self.table.quantile(masses)
        a, b = self.a[0], self.b[0]
        score = self.curve.value(beta_quantile(a, b, masses), beta_quantile(b, a, 1.0 - masses))
        return np.asarray(self.low + (self.high - self.low) * score)

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores."""
        if self.sd == 0.0:
            return np.where(np.asarray(scores) >= self.mean, 1.0, 0.0)
        if self.a.size > 1:
            return self.table.cdf(scores)
        unit = (np.asarray(scores, dtype=np.float64) - self.low) / (self.high - self.low)
        p, _ = self.curve.inverse(np.clip(unit, 0.0, self.curve.top))
        return np.asarray(special.betainc(self.a[0], self.b[0], p))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return self.quantiles(rng.random(n_draws))

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions, shape (n_draws, M)."""
        p, q = draw_beta(self.a, self.b, (n_draws, self.a.size), rng)
        return np.asarray(self.low + (self.high - self.low) * self.curve.value(p, q))

    def draw_categories(self, n_draws: int, rng: np.random.Generator) -> CategoryDraws | None:
        """Draw the Betas of Bayes@N; None for the pass family."""
        if not isinstance(self.curve, Identity):
            return None
        p, q = draw_beta(self.a, self.b, (n_draws, self.a.size), rng)
        return CategoryDraws(np.stack([q, p], axis=2), np.array([self.low, self.high]))


@dataclass(frozen=True, eq=False)
class IndependentDirichlets(Distribution):
    """s_α = Σ_k w_k θ_αk with θ_α ~ Dirichlet(ν_α).

    Parameters
    ----------
    nu : array, shape (M, C+1)
        Dirichlet parameters above 0.
    weights : array, shape (C+1,)
        The score of each category.
    mean, sd : float
        Exact mean and standard deviation of the benchmark's score.
    """

    nu: FloatArray
    weights: FloatArray
    mean: float
    sd: float
    seed: int = 0

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        means = np.empty(n_draws)
        for part in blocks(n_draws, self.nu.size):
            means[part] = self.draw_questions(part.stop - part.start, rng).mean(axis=1)
        return means

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions, shape (n_draws, M)."""
        return np.asarray(self.draw_categories(n_draws, rng).theta @ self.weights)

    def draw_categories(self, n_draws: int, rng: np.random.Generator) -> CategoryDraws:
        """Draw the Dirichlet posteriors."""
        nu = np.broadcast_to(self.nu, (n_draws, *self.nu.shape))
        return CategoryDraws(draw_dirichlet(nu, rng), self.weights)


#: Minimum number of lattice steps per standard deviation of the sum.
_STEPS = 128
#: Maximum number of lattice points of one question.
_MAX_CELLS = 1 << 15
_TAIL = 1e-18
#: Tolerance of a question's distribution function.
_ERROR = 1e-8


def mean_table(a: FloatArray, b: FloatArray, curve: Curve, mu: float, sigma: float) -> CdfTable:
    """Tabulate the quantiles of (1/M) Σ curve(p_α) for M >= 2 questions.

    Parameters
    ----------
    a, b : array, shape (M,)
        Beta parameters of the M questions.
    curve : Curve
        The score as a function of p_α.
    mu, sigma : float
        Exact mean and standard deviation of that average, on the curve's scale; sigma > 0.

    Returns
    -------
    CdfTable
        In units of the curve, within [0, curve.top].
    """
    n_questions = a.size
    spread = sigma * n_questions  # standard deviation of the sum
    top = curve.top
    a, b, _, times = distinct_pairs(a, b)
    lowest, highest = _supports(curve, a, b)
    # a sum of few skewed questions needs a finer lattice
    per_sd = max(_STEPS, _STEPS * 32.0 / n_questions, 10.0 * np.sqrt(n_questions))
    widest = float((highest - lowest).max())
    n_cells = int(np.ceil(top * min(per_sd / spread, _MAX_CELLS / widest)))
    step = top / n_cells
    low = np.maximum(np.floor(lowest / step).astype(np.int64) - 1, 0)
    high = np.minimum(np.ceil(highest / step).astype(np.int64) + 1, n_cells)
    first, length = int(times @ low), int(times @ (high - low)) + 1
    # By Bernstein's inequality less than 1e-14 of the sum lies outside this window.
    half = 12.0 * spread / step + 24.0 * float((high - low).max())
    if 2.0 * half < length:
        length = int(np.ceil(2.0 * half))
        first = int(np.floor(mu * n_questions / step)) - length // 2
    length = fft.next_fast_len(length, real=True)
    order = np.argsort(low)  # neighbours share most of their support
    block = 1 if n_cells > 4096 else 4
    transform = np.ones(length // 2 + 1, dtype=np.complex128)
    for start in range(0, order.size, block):
        some = order[start : start + block]
        points = np.arange(low[some].min(), high[some].max() + 1)
        factors = fft.rfft(
            lattice_masses(curve, a[some, None], b[some, None], points, n_cells, length), axis=1
        )
        for factor, power in zip(factors, times[some], strict=True):
            transform *= factor if power == 1 else raised(factor, int(power))
    total = np.maximum(fft.irfft(transform, n=length), 0.0)
    # the transform is periodic; rotate it to the beginning of the window
    total = np.roll(total, -(first % length))
    points = (first + np.arange(length)) * step / n_questions
    return tabulate(total / total.sum(), points, mu, sigma).clipped(0.0, top)


def tabulate(total: FloatArray, points: FloatArray, mu: float, sigma: float) -> CdfTable:
    """Spread each lattice mass over its cell and match mean and standard deviation.

    Parameters
    ----------
    total, points : array, shape (L,)
        Masses that sum to 1 and the evenly spaced scores they lie on.
    mu, sigma : float
        The true mean and standard deviation.
    """
    cell = points[1] - points[0]
    # sums, not dot products, for which BLAS would start threads
    mean = float((total * points).sum())
    # a mass spread evenly over its cell adds cell²/12
    deviation = np.sqrt(float((total * (points - mean) ** 2).sum()) + cell**2 / 12.0)
    edges = np.append(points - 0.5 * cell, points[-1] + 0.5 * cell)
    score = mu + (edges - mean) * (sigma / deviation)
    probability = np.concatenate([[0.0], np.cumsum(total)])
    return CdfTable(probability / probability[-1], score)


def raised(base: npt.NDArray[Any], exponent: int) -> npt.NDArray[Any]:
    """Return base**exponent, exponent >= 1, by squaring; the base may contain 0."""
    result: npt.NDArray[Any] | None = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent and result is not None:
            return result
        base = base * base


def lattice_masses(
    curve: Curve, a: FloatArray, b: FloatArray, points: IntArray, n_cells: int, length: int
) -> FloatArray:
    """Return the masses of D questions on the lattice, wrapped, shape (D, length).

    `a` and `b` are columns, `points` the lattice points that receive mass, in ascending order,
    of the `n_cells` + 1 from 0 to the curve's top; the questions live between the outer two.
    """
    first, last = int(points[0]), int(points[-1])
    p, q = curve.inverse(np.asarray(points * (curve.top / n_cells), dtype=np.float64))
    p[0], q[0] = (0.0, 1.0) if first == 0 else (p[0], q[0])
    p[-1], q[-1] = (1.0, 0.0) if last == n_cells else (p[-1], q[-1])
    below = _below(a, b, p, q)
    mass = np.diff(below, axis=1)
    # ∫ p f(p) dp up to x is (a F(x) − x^a (1−x)^b / B(a, b)) / (a + b)
    log_edge = special.xlogy(a, p) + special.xlogy(b, q) - special.betaln(a, b)
    first_moment = np.diff((a * below - np.exp(log_edge)) / (a + b), axis=1)
    middle = np.broadcast_to(0.5 * (p[:-1] + p[1:]), mass.shape)
    centre = np.divide(first_moment, mass, out=middle.copy(), where=mass > 1e-300)
    centre = np.asarray(np.clip(centre, p[:-1], p[1:]), dtype=np.float64)
    score = curve.value(centre, 1.0 - centre) * (n_cells / curve.top)
    upper = mass * np.clip((score - points[:-1]) / np.diff(points), 0.0, 1.0)
    offset, size = first % length, last - first + 1
    wrapped = np.zeros((a.size, -(-(offset + size) // length) * length))
    wrapped[:, offset + points[:-1] - first] += mass - upper
    wrapped[:, offset + points[1:] - first] += upper
    return np.asarray(wrapped.reshape(a.size, -1, length).sum(axis=1))


def _below(a: FloatArray, b: FloatArray, p: FloatArray, q: FloatArray) -> FloatArray:
    """Return Beta distribution functions at p = 1 − q, from the end that is nearer."""
    near = a[:, 0] <= b[:, 0]
    below = np.empty((a.shape[0], p.size))
    below[near] = beta_cdf(a[near, 0], b[near, 0], p[None, :], _ERROR)
    below[~near] = 1.0 - beta_cdf(b[~near, 0], a[~near, 0], q[None, :], _ERROR)
    return below


def _supports(curve: Curve, a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the scores between which each question has all but 1e-18 of its mass."""
    p, q = beta_quantile(a, b, _TAIL), beta_quantile(b, a, _TAIL)
    return curve.value(p, 1.0 - p), curve.value(1.0 - q, q)
