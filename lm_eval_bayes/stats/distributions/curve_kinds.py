"""The distribution of a mean of success curves where questions are of two kinds.

At each of G weighted points of the hyperparameters a question is, given its trials, of the first
kind with a known probability, and of either kind a Beta. The score (1/M) Σ curve(p_α) of
independent questions has there the sums of the questions' cumulants; its distribution function is
a mixture over the points of Edgeworth's expansions or Pearson's curves with these cumulants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.distributions.base import CdfTable
from lm_eval_bayes.stats.distributions.beta_mixture import (
    Cumulants,
    PearsonNodes,
    beta_nodes_table,
    edgeworth_table,
    is_near_pearson,
    mean_shape,
    pearson_table,
)
from lm_eval_bayes.stats.distributions.curve_mixture import (
    ROUNDING,
    CurveMixture,
    repaired,
    spike_table,
)
from lm_eval_bayes.stats.distributions.curve_moments import (
    CurveEnds,
    CurveMoments,
    FromCurveMoments,
    QuestionsOfCurves,
    moments_of_sums,
    question_cumulants,
)
from lm_eval_bayes.stats.distributions.curve_waves import CurveWaves, Window
from lm_eval_bayes.stats.distributions.independent import raised
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.outcomes import Pairs

#: Numbers worked on at a time.
_BLOCK = 4_000_000
#: Edgeworth's expansion is used where the sizes of the nodes' third and fourth standardized
#: cumulants are at most these on average.
_EDGEWORTH = np.array([0.8, 0.4])
#: A point whose sd is below this share of the score's is taken as normal.
_LEAST_SPREAD = 0.02
#: The most points of a table of expansions or of Pearson's curves.
_TABULATED = 400
#: A score of a smaller sd is a mixture of Betas, since a transform loses so narrow a spike.
_TINY = 3e-4
#: Of a transform: points, standard deviations that the window covers, and the sd of the normal
#: kernel that smooths the result, relative to the score's.
_TRANSFORMED, _REACH, _KERNEL = 150, 10.0, 0.05
#: A larger log s is replaced by this one, at which the sd of a question is below .0005.
_MOST_LOG_STRENGTH = float(np.log(1e6))


@dataclass(frozen=True, eq=False)
class CurveKinds(QuestionsOfCurves):
    """Questions of two kinds at weighted points, from which curves of any degree are averaged.

    Parameters
    ----------
    x, y : array, shape (D,)
        Successes and failures of the distinct questions.
    times : array, shape (D,)
        How often each occurs; they sum to M.
    logit_mean, log_strength : array, shape (2, G)
        log(m / (1 − m)) and log s of either kind.
    share : array, shape (2, G)
        The probability of either kind in the population of questions.
    first_kind : array, shape (G, D)
        The probability of a question to be of the first kind, given its trials.
    weight : array, shape (G,)
        Posterior probability of each point, sum 1.
    """

    x: FloatArray
    y: FloatArray
    times: FloatArray
    logit_mean: FloatArray
    log_strength: FloatArray
    share: FloatArray
    first_kind: FloatArray
    weight: FloatArray

    def _some_moments(self, curves: Sequence[Curve]) -> list[CurveMoments]:
        ends = CurveEnds.of(self.x, self.y, self.times, curves)
        sums = np.empty((6, self.weight.size, len(curves)))
        question = np.zeros((2, self.x.size, len(curves)))
        for some, kinds in self._raw_moments(self._pairs(), curves, ends, 4):
            first = self.first_kind[some, :, None, None]
            raw = first * kinds[0] + (1.0 - first) * kinds[1]
            for total, values in zip(sums, question_cumulants(raw), strict=True):
                total[some] = np.einsum("gdk,d->gk", values, self.times)
            question += np.einsum("gdik,g->idk", raw[:, :, :2], self.weight[some])
        return moments_of_sums(sums, question, self.n_questions, self.weight, ends)

    def population_means(self, curves: Sequence[Curve]) -> FloatArray:
        """Return the mean of each curve over the population of questions at a point, (K, G)."""
        zero = np.zeros(1)
        further = Pairs(zero, zero, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
        ends = CurveEnds.of(self.x, self.y, self.times, curves)
        means = np.empty((len(curves), self.weight.size))
        for some, kinds in self._raw_moments(further, curves, ends, 1):
            mean = np.einsum("jgk,jg->kg", kinds[:, :, 0, 0], self.share[:, some])
            means[:, some] = np.where(ends.from_top[:, None], ends.tops[:, None] - mean, mean)
        return means

    def thinned(self, n_points: int) -> CurveKinds:
        """Return at most so many points, by systematic resampling.

        They are in blocks of similar chances that all of N further trials are right, and within a
        block in the order of the chances that all are wrong (N the trials per question), so that
        neighbours are alike in both.
        """
        if n_points >= self.weight.size:
            return self
        all_right, all_wrong = self._extremes()
        order = np.argsort(all_right, kind="stable")
        block = np.empty(order.size, dtype=np.int64)
        n_blocks = int(np.sqrt(n_points))
        block[order] = np.minimum(np.cumsum(self.weight[order]) * n_blocks, n_blocks - 1)
        # every other block backwards, so that the ends of neighbouring blocks meet
        order = np.lexsort((np.where(block % 2 == 1, -all_wrong, all_wrong), block))
        key = np.empty(order.size)
        key[order] = np.arange(order.size)
        return self._some(*systematic_points(key, self.weight, n_points))

    def _extremes(self) -> tuple[FloatArray, FloatArray]:
        """Return about E Σ p_α^N and E Σ (1 − p_α)^N at every point, N the trials per question."""
        n = float(self.times @ (self.x + self.y)) / self.n_questions
        sums = np.zeros((2, self.weight.size))
        s = np.exp(np.minimum(self.log_strength, _MOST_LOG_STRENGTH))
        for kind, probability in enumerate((self.first_kind, 1.0 - self.first_kind)):
            m, rest = special.expit(self.logit_mean[kind]), special.expit(-self.logit_mean[kind])
            a = self.x + (s[kind] * m)[:, None]
            b = self.y + (s[kind] * rest)[:, None]
            for total, right in zip(sums, (a, b), strict=True):
                # of the N factors (a + i) / (a + b + i), the middle one
                factor = (right + 0.5 * n) / (a + b + 0.5 * n)
                total += (probability * factor**n) @ self.times
        return sums[0], sums[1]

    def _some(self, some: IntArray, weight: FloatArray) -> CurveKinds:
        return replace(
            self,
            logit_mean=self.logit_mean[:, some],
            log_strength=self.log_strength[:, some],
            share=self.share[:, some],
            first_kind=self.first_kind[some],
            weight=weight,
        )

    def _raw_moments(
        self, pairs: Pairs, curves: Sequence[Curve], ends: CurveEnds, n_powers: int
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Return blocks of points and E v, E v², … of both kinds, (2, points, D, powers, K)."""
        shape = (pairs.first.size, n_powers, len(curves))
        for some in blocks(self.weight.size, 2 * int(np.prod(shape)), _BLOCK):
            mixture = self._nodes(some, pairs, curves)
            raw = np.empty((mixture.weight.size, *shape))
            for part, values in mixture.raw_moments(curves, ends, n_powers):
                raw[mixture.order[part.nodes], part.some] = values
            yield some, raw.reshape(2, -1, *shape)

    def _nodes(self, some: slice, pairs: Pairs, curves: Sequence[Curve]) -> CurveMixture:
        """Return both kinds at some points, the first before the second, as single nodes."""
        logit_mean = self.logit_mean[:, some].reshape(-1, 1)
        weight = np.full(logit_mean.shape, 1.0 / logit_mean.size)
        log_strength = self.log_strength[:, some].ravel()
        return CurveMixture.of(pairs, logit_mean, log_strength, weight, curves)

    def _pairs(self) -> Pairs:
        return Pairs(self.x, self.y, np.empty(0, dtype=np.int64), self.times.astype(np.int64))

    def table(self, curve: Curve, moments: CurveMoments) -> CdfTable:
        """Tabulate the distribution function of the score (1/M) Σ curve(p_α)."""
        mu, sigma = moments.mu, moments.sigma
        if sigma <= ROUNDING:
            return spike_table(mu, sigma).clipped(0.0, curve.top)
        some, weight = systematic_points(moments.at_node.mean, self.weight, _TABULATED)
        at_node = Cumulants(*(values[some] for values in moments.at_node))
        at_node = repaired(at_node, _LEAST_SPREAD * sigma)
        # a point is not a cell: the mean does not vary
        still = np.zeros((2, weight.size))
        nodes = PearsonNodes.of(at_node)
        if np.all(np.array(mean_shape(weight, at_node)) <= _EDGEWORTH):
            table = edgeworth_table(weight, at_node, still, mu, sigma)
        elif is_near_pearson(weight, nodes, sigma, equal=self.x.size == 1):
            table = pearson_table(weight, nodes, still, mu, sigma)
        elif sigma <= _TINY:
            table = beta_nodes_table(weight, at_node, still, mu, sigma)
        else:
            some, weight = systematic_points(moments.at_node.mean, self.weight, _TRANSFORMED)
            table = self._some(some, weight).transformed(curve, mu, sigma)
        return table.clipped(0.0, curve.top)

    def transformed(self, curve: Curve, mu: float, sigma: float) -> CdfTable:
        """Tabulate the distribution function by the characteristic functions of the points."""
        window = Window.of(mu, sigma, curve.top, _REACH, _KERNEL)
        frequency = window.base / self.n_questions
        transform = np.zeros(window.n, dtype=np.complex128)
        for some in blocks(self.weight.size, 2 * self.x.size * window.n, _BLOCK):
            mixture = self._nodes(some, self._pairs(), [curve])
            of_node = np.empty((mixture.weight.size, self.x.size, window.n), dtype=np.complex64)
            waves: dict[int, CurveWaves] = {}
            for part, mass, above in mixture.weights():
                if part.level not in waves:
                    waves = {part.level: mixture.waves(part.level, curve, frequency, window.n)}
                values = waves[part.level].transforms(part.first, mass, above)
                of_node[mixture.order[part.nodes], part.some] = values
            first, second = of_node.reshape(2, -1, *of_node.shape[1:])
            is_first = self.first_kind[some, :, None].astype(np.float32)
            of_question = is_first * first + (1.0 - is_first) * second
            product: Any = np.ones(1, dtype=np.complex64)
            for index, times in enumerate(self.times):
                product = product * raised(of_question[:, index], int(times))
            transform += self.weight[some] @ product
        return window.table(transform, mu, sigma, curve.top)


def systematic_points(
    key: FloatArray, weight: FloatArray, n_points: int
) -> tuple[IntArray, FloatArray]:
    """Return which of some weighted points represent all, and their weights.

    Systematic resampling of the points in the order of a key: the distribution of the key, and of
    what it determines, is kept to 1 / n_points.

    Parameters
    ----------
    key, weight : array, shape (G,)
        What the points are sorted by, and their weights, sum 1.
    n_points : int
        The most points that remain.

    Examples
    --------
    >>> some, weight = systematic_points(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.4, 0.1]), 2)
    >>> some.tolist(), weight.tolist()
    ([1, 0], [0.5, 0.5])
    """
    order = np.argsort(key, kind="stable")
    if n_points >= key.size:
        return order, weight[order]
    below = np.cumsum(weight[order])
    chosen = np.searchsorted(below / below[-1], (np.arange(n_points) + 0.5) / n_points)
    chosen, times = np.unique(chosen, return_counts=True)
    return order[chosen], times / n_points


@dataclass(frozen=True, eq=False)
class CurveKindsDistribution(FromCurveMoments):
    """The score (1/M) Σ curve(p_α) of questions of two kinds.

    Parameters
    ----------
    kinds : CurveKinds
        The distinct questions.
    curve : Curve
        The score as a function of p_α.
    of_curve : CurveMoments
        Its moments.
    """

    kinds: CurveKinds
    curve: Curve
    of_curve: CurveMoments

    @cached_property
    def table(self) -> CdfTable:  # type: ignore[override]  # an attribute, computed once
        """The distribution function of the score."""
        return self.kinds.table(self.curve, self.of_curve)
