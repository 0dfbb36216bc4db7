"""Questions under a learned prior: independent Betas at every node of its hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lm_eval_bayes.stats.validation import FloatArray, protect

#: Floats per block, nodes times distinct questions.
_BLOCK = 2_000_000


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

    def __post_init__(self) -> None:
        protect(self)

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
        size = max(1, _BLOCK // self.weight.size)
        for start in range(0, self.x.size, size):
            yield slice(start, start + size)


def _moments(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of Beta(a, b)."""
    total = a + b
    mean = a / total
    return mean, mean * (b / total) / (total + 1.0)
