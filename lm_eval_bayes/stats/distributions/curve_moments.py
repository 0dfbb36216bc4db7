"""Moments of means of success curves, from the raw moments of single questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import FromTable
from lm_eval_bayes.stats.distributions.beta_mixture import Cumulants
from lm_eval_bayes.stats.distributions.success_curves import Curve

#: Curves worked on at a time.
_CURVES = 64


class CurveMoments(NamedTuple):
    """A curve's exact moments.

    `mu` and `sigma` are those of the score; `question_mean` and `question_sd`, shape (D,), of the
    distinct questions; `at_node` has the score's cumulants, each (L, Y).
    """

    mu: float
    sigma: float
    question_mean: FloatArray
    question_sd: FloatArray
    at_node: Cumulants


class FromCurveMoments(FromTable):
    """A distribution of a score whose mean and sd are known before its table.

    Attributes
    ----------
    of_curve : CurveMoments
        The score's moments.
    """

    of_curve: CurveMoments

    @property
    def mean(self) -> float:  # type: ignore[override]  # computed with the moments
        """The exact mean."""
        return self.of_curve.mu

    @property
    def sd(self) -> float:  # type: ignore[override]  # computed with the moments
        """The exact standard deviation."""
        return self.of_curve.sigma


class QuestionsOfCurves:
    """Distinct questions, from which means of curves are averaged some curves at a time.

    Attributes
    ----------
    times : array, shape (D,)
        How often each distinct question occurs; they sum to M.
    """

    times: FloatArray

    @property
    def n_questions(self) -> float:
        """M."""
        return float(self.times.sum())

    def moments(self, curves: Sequence[Curve]) -> list[CurveMoments]:
        """Return the moments of the mean of each curve over the questions."""
        return [
            moments
            for first in range(0, len(curves), _CURVES)
            for moments in self._some_moments(curves[first : first + _CURVES])
        ]

    def _some_moments(self, curves: Sequence[Curve]) -> list[CurveMoments]:
        """Return the moments of a few curves, computed together."""
        raise NotImplementedError


class CurveEnds(NamedTuple):
    """The largest values of K curves, and which are nearer to it than to 0, both of shape (K,).

    Near a curve's top its distance from there has more digits.
    """

    tops: FloatArray
    from_top: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, x: FloatArray, y: FloatArray, times: FloatArray, curves: Sequence[Curve]
    ) -> CurveEnds:
        """Compare the curves with their tops at the average of questions with x of x + y right."""
        average = (times @ x + 0.5) / (times @ (x + y) + 1.0)
        middle = np.array([average]), np.array([1.0 - average])
        tops = np.array([curve.top for curve in curves])
        return cls(tops, np.array([curve.value(*middle)[0] for curve in curves]) > 0.5 * tops)


def question_cumulants(raw: FloatArray) -> tuple[FloatArray, ...]:
    """Return a question's cumulants from its first four raw moments.

    Parameters
    ----------
    raw : array, shape (G, D, 4, K)

    Returns
    -------
    tuple of array
        The mean, the variance, the third and its size, the fourth and its size, each (G, D, K).
    """
    mean, second, third, fourth = np.moveaxis(raw, 2, 0)
    square = mean * mean
    variance = np.maximum(second - square, 0.0)
    fourth = fourth - mean * (4.0 * third - mean * (6.0 * second - 3.0 * square))
    fourth -= 3.0 * variance**2
    third = third - mean * (3.0 * second - 2.0 * square)
    return mean, variance, third, np.abs(third), fourth, np.abs(fourth)


def moments_of_sums(
    sums: FloatArray, question: FloatArray, M: float, weight: FloatArray, ends: CurveEnds
) -> list[CurveMoments]:
    """Return the moments of K curves from sums over the questions.

    Parameters
    ----------
    sums : array, shape (6, ..., K)
        Of `question_cumulants` at every node, over the M questions.
    question : array, shape (2, D, K)
        The first two raw moments of the distinct questions over all nodes.
    M : float
        Questions.
    weight : array, shape (...)
        Probability of each node, sum 1.
    ends : CurveEnds
        Says which curves the moments are about, and of which their distances from the top.
    """
    tops, from_top = ends
    scale = M ** np.array([1.0, 2.0, 3.0, 3.0, 4.0, 4.0])
    sums = sums / scale.reshape(6, *(1,) * (sums.ndim - 1))
    question_sd = np.sqrt(np.maximum(question[1] - question[0] ** 2, 0.0))
    question_mean = np.where(from_top, tops - question[0], question[0])
    sums[0] = np.where(from_top, tops - sums[0], sums[0])
    sums[2] = np.where(from_top, -sums[2], sums[2])
    result = []
    for i in range(tops.size):
        parts = sums[..., i], question_mean[:, i], question_sd[:, i]
        at_node = Cumulants(*parts[0])
        mu = float((weight * at_node.mean).sum())
        variance = float((weight * (at_node.variance + (at_node.mean - mu) ** 2)).sum())
        result.append(CurveMoments(mu, float(np.sqrt(variance)), *parts[1:], at_node))
    return result
