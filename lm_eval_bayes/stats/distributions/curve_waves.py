"""Characteristic functions of success curves, from masses on an even grid of logits.

They are computed in single precision: the numbers that come from them need four digits.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import fft

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import CdfTable
from lm_eval_bayes.stats.distributions.beta_mixture import Cumulants
from lm_eval_bayes.stats.distributions.independent import tabulate

ComplexArray: TypeAlias = npt.NDArray[np.complex128]
SingleArray: TypeAlias = npt.NDArray[np.float32]
SingleComplexArray: TypeAlias = npt.NDArray[np.complex64]

#: Next to 0 and to the top a curve's wave is taken as linear where the largest phase from there is
#: at most this; its error is an eighth of the square.
_FLAT = 3e-2
#: A wave that turns by at most this from one logit to the next is that of the interpolated density
#: to 1e-4.
_SLOW = 0.5
#: A node is taken as normal, with a third and a fourth cumulant, where its sd is at most the first
#: number times the score's and the standardized cumulants are at most the others.
_NEARLY_NORMAL = (0.1, 0.1, 0.05)
#: Where a normal's characteristic function is cut off, in units of 1 / sd.
_CUT = 4.5


class Window(NamedTuple):
    """Scores from `low` to `high`, and `n` frequencies of a distance `base` that resolve them.

    `kernel` is the sd of the normal distribution that smooths the result.
    """

    low: float
    high: float
    kernel: float
    n: int

    @classmethod
    def of(cls, mu: float, sigma: float, top: float, reach: float, kernel: float) -> Window:
        """Return the window about a score of mean mu and sd sigma.

        Parameters
        ----------
        mu, sigma : float
            The moments; sigma > 0.
        top : float
            The largest possible score; the smallest is 0.
        reach, kernel : float
            Half of the window, and the sd of the kernel, in units of sigma.
        """
        width = kernel * sigma
        low = max(mu - reach * sigma, 0.0) - 6.0 * width
        high = min(mu + reach * sigma, top) + 6.0 * width
        return cls(low, high, width, int(np.ceil(_CUT * (high - low) / (2.0 * np.pi * width))) + 1)

    @property
    def base(self) -> float:
        """The distance of two frequencies."""
        return 2.0 * np.pi / (self.high - self.low)

    def table(self, transform: ComplexArray, mu: float, sigma: float, top: float) -> CdfTable:
        """Return the distribution function from the characteristic function exp(−i j base s̄)."""
        n, j = self.n, np.arange(self.n)
        length = fft.next_fast_len(4 * n, real=True)
        smooth = np.exp(1j * self.base * self.low * j - 0.5 * (self.kernel * self.base * j) ** 2)
        total = fft.irfft(transform / transform[0].real * smooth * np.sinc(j / length), n=length)
        score = self.low + np.arange(length) * ((self.high - self.low) / length)
        table = tabulate(total / total.sum(), score, mu, sigma)
        # next to a spike the density swings about 0, which its sum does not
        below = np.maximum.accumulate(np.clip(table.probability, 0.0, 1.0))
        return CdfTable(below / below[-1], table.score).clipped(0.0, top)


def _waves(phase: FloatArray, n: int) -> SingleComplexArray:
    """Return exp(−i j phase) for j = 0..n−1, shape (Q, n)."""
    angle = np.multiply.outer(phase, np.arange(n)).astype(np.float32)
    waves = np.empty(angle.shape, dtype=np.complex64)
    np.cos(angle, out=waves.real)
    np.negative(np.sin(angle, out=angle), out=waves.imag)
    return waves


def sincs(x: FloatArray, n: int) -> SingleArray:
    """Return sin(j x) / (j x) for j = 0..n−1, shape (G, n); x is at least 0."""
    angle = np.multiply.outer(x, np.arange(n)).astype(np.float32)
    np.maximum(angle, 1e-6, out=angle)
    return np.asarray(np.sin(angle) / angle)


class CurveWaves(NamedTuple):
    """exp(−i j phase) for j = 0..n−1 at the logits of a grid, from the index `first` on.

    `phase`, shape (Q,), of the logits and `top`, beyond the last one; `waves`, shape (S, n), at the
    logits from the index `start` on, those where the phase is near neither 0 nor `top`.
    """

    first: int
    phase: FloatArray
    top: float
    start: int
    waves: SingleComplexArray
    at_top: SingleComplexArray

    @classmethod
    def of(cls, first: int, phases: FloatArray, n: int) -> CurveWaves:
        """Return the waves of some phases, of which the last is the top.

        Between two logits a density is interpolated by a cubic spline and the phase is linear, so
        that a wave which turns faster than the grid resolves vanishes.
        """
        phase, top = phases[:-1], float(phases[-1])
        start = max(int(np.searchsorted(n * phase, _FLAT)) - 1, 0)
        stop = int(np.searchsorted(n * (phase - top), -_FLAT, side="right")) + 1
        middle = slice(start, max(stop, start + 1))
        waves = _waves(phase[middle], n)
        step = np.gradient(phase)[middle] if phase.size > 1 else np.zeros(1)
        fast = np.flatnonzero(n * step > _SLOW)
        turn = np.multiply.outer(step[fast], np.arange(n)).astype(np.float32)
        waves[fast] *= 3.0 * sincs(0.5 * step[fast], n) ** 4 / (2.0 + np.cos(turn))
        return cls(first, phase, top, start, waves, _waves(phases[-1:], n))

    def transforms(self, first: int, mass: FloatArray, above: FloatArray) -> SingleComplexArray:
        """Return the characteristic functions of questions, shape (nodes, questions, n).

        The mass where a wave is linear in the phase is put on 0 and the first of the other logits,
        or on the last one and the top.

        Parameters
        ----------
        first : int
            The index of the first logit.
        mass : array, shape (nodes, questions, logits)
        above : array, shape (nodes, questions)
            The mass at the top; what is left is at 0.
        """
        n_nodes, n_questions, q = mass.shape
        n_middle, n = self.waves.shape
        offset = first - self.first
        first_wave = self.start - offset
        low = min(max(first_wave, 0), q)
        high = min(max(first_wave + n_middle, low), q)
        flat = mass.reshape(-1, q)
        phase = self.phase[offset : offset + q]
        lowest, highest = self.phase[[self.start, self.start + n_middle - 1]]
        on_first = flat[:, :low] @ (phase[:low] / max(lowest, 1e-300))
        on_last = flat[:, high:] @ ((self.top - phase[high:]) / max(self.top - highest, 1e-300))
        on_top = above.ravel() + flat[:, high:].sum(axis=1) - on_last
        on_zero = 1.0 - flat[:, low:high].sum(axis=1) - on_first - on_last - on_top
        masses = np.empty((flat.shape[0], high - low + 4), dtype=np.float32)
        masses[:, :4] = np.stack([on_first, on_last, on_top, on_zero], axis=1)
        masses[:, 4:] = flat[:, low:high]
        rows = [
            self.waves[[0, -1]],
            self.at_top,
            np.ones((1, n), dtype=np.complex64),
            self.waves[low - first_wave : high - first_wave],
        ]
        transforms = (masses @ np.concatenate(rows).view(np.float32)).view(np.complex64)
        return np.asarray(transforms.reshape(n_nodes, n_questions, n))


def is_nearly_normal(at_node: Cumulants, sigma: float) -> npt.NDArray[np.bool_]:
    """Return the nodes whose scores vary much less than `sigma` and are close to normal."""
    narrow, third, fourth = _NEARLY_NORMAL
    spread = np.sqrt(at_node.variance)
    is_narrow = spread <= narrow * sigma
    is_even = at_node.third_size <= third * spread**3
    return np.asarray(is_narrow & is_even & (at_node.fourth_size <= fourth * spread**4))


def normal_transform(
    at_node: Cumulants, sensitivity: FloatArray, base: float, n: int
) -> ComplexArray:
    """Return the characteristic functions of nodes from their four cumulants, (G, n).

    Parameters
    ----------
    at_node : Cumulants
        Of the score at every node, each of shape (G,).
    sensitivity : array, shape (K, G)
        How much the mean changes over a node's cell, in K directions.
    base : float
        The distance of two frequencies.
    n : int
        Frequencies.
    """
    t = base * np.arange(n)
    variance = at_node.variance[:, None]
    log_size = at_node.fourth[:, None] / 24.0 * t**4 - 0.5 * variance * t**2
    # far out, where both are large, the fourth cumulant must not win
    size = np.exp(np.minimum(log_size, -0.4 * variance * t**2))
    for width in sensitivity:
        size *= sincs(0.5 * base * width, n)
    turn = at_node.third[:, None] / 6.0 * t**3
    return np.asarray(_waves(base * at_node.mean, n) * size * np.exp(1j * turn))
