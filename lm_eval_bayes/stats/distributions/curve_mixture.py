"""The distribution of a mean of success curves under a learned prior.

Given the hyperparameters (m, s) the questions are independent, p_α ~ Beta(x_α + s m,
y_α + s (1 − m)), and the score is (1/M) Σ curve(p_α). Each question's distribution at a node of the
grid of (m, s) is put onto an even grid of the logit of p, where its density and the curves are
smooth, so that plain sums are nearly exact. From these weights come the moments of all curves at
once, and the distribution function of one of them: of many questions by Edgeworth's expansion,
Pearson's curves or Betas with the moments of the nodes, of few by the inverse Fourier transform of
the nodes' characteristic functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.distributions.base import (
    CdfTable,
)
from lm_eval_bayes.stats.distributions.beta_mixture import (
    Cumulants,
    PearsonNodes,
    beta_nodes_table,
    edgeworth_table,
    is_near_pearson,
    mean_shape,
    pearson_table,
    wide_cells,
)
from lm_eval_bayes.stats.distributions.curve_moments import (
    CurveEnds,
    CurveMoments,
    FromCurveMoments,
    QuestionsOfCurves,
    moments_of_sums,
    question_cumulants,
)
from lm_eval_bayes.stats.distributions.curve_waves import (
    CurveWaves,
    Window,
    is_nearly_normal,
    normal_transform,
    sincs,
)
from lm_eval_bayes.stats.distributions.independent import raised
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.outcomes import Pairs

#: Posterior mass in the least likely nodes, which are left out.
_LEFT_OUT = 1e-5
#: A larger strength is replaced by this one, at which a question's sd is below .0005.
_MOST_STRENGTH = 1e6
#: The largest step of the grid of the logit; finer where a density or a curve is sharper.
_WIDEST_STEP = 0.125
#: A sharper curve is resolved no better than this one; its mean is then off by up to .002.
_SHARPEST = float(1 << 14)
#: Numbers worked on at a time, few enough for the processor's cache, and weights that are stored.
_BLOCK = 200_000
_STORED = 6_000_000
#: Nodes of one level that are worked on at a time.
_NODES = 192
#: Standard deviations of the score about its mean that the window of a transform covers.
_REACH = 16.0
#: The sd of the normal kernel that smooths a transformed distribution, relative to the score's.
_KERNEL = 0.04
#: A node whose sd is below this share of the score's is taken as normal.
_LEAST_SPREAD = 0.02
#: Minimum number of questions for a node's distribution from its cumulants: Edgeworth's expansion
#: where the sizes of the third and fourth standardized cumulant are at most these (the ends of
#: intervals are off by less than .05 sd). Of any number, Betas where the sd is at most the last
#: number, so that their error, up to .4 sd, does not matter.
_MANY = 8
_EDGEWORTH = np.array([0.8, 0.4])
_TINY = 2e-3
#: A score of a smaller sd, next to 0 or 1, is taken as normal.
ROUNDING = 1e-7
_NORMAL = np.linspace(-9.0, 9.0, 181)
#: Posterior mass in the least likely nodes, which are left out of a table.
_LEFT_OUT_OF_TABLES = 5e-5
#: Points at which the distribution function of a single question is computed.
_QUESTION_POINTS = 300


class _Part(NamedTuple):
    """Nodes and distinct questions whose logits share an even grid.

    `level` says how fine that is; `nodes` are numbered in the `order` of the mixture; `first` and
    `last` are the indices of the grid's outer logits.
    """

    level: int
    nodes: slice
    some: slice
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many probabilities it has."""
        n_nodes = self.nodes.stop - self.nodes.start
        return int((self.last + 1 - self.first) * (self.some.stop - self.some.start) * n_nodes)


class _Weights(NamedTuple):
    """Probabilities of the logits of a part, shape (nodes, questions, logits).

    `above`, shape (nodes, questions), is the probability beyond the last logit, where a curve has
    reached its top.
    """

    part: _Part
    mass: FloatArray
    above: FloatArray


@dataclass(frozen=True, eq=False)
class CurveMixture(QuestionsOfCurves):
    """Questions at the nodes of a grid of (m, s), from which curves of any degree are averaged.

    Parameters
    ----------
    x, y : array, shape (D,)
        Successes and failures of the distinct questions.
    times : array, shape (D,)
        How often each occurs; they sum to M.
    logit_mean : array, shape (L, Y)
        log(m / (1 − m)) of every node.
    log_strength : array, shape (L,)
        log s of every row.
    weight : array, shape (L, Y)
        Posterior probability of each node, sum 1.
    reach : float
        Absolute logits beyond this are at the ends of all curves.
    sharpness : float
        The largest of a curve.
    """

    x: FloatArray
    y: FloatArray
    times: FloatArray
    logit_mean: FloatArray
    log_strength: FloatArray
    weight: FloatArray
    reach: float
    sharpness: float

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        logit_mean: FloatArray,
        log_strength: FloatArray,
        weight: FloatArray,
        curves: Sequence[Curve],
    ) -> CurveMixture:
        """Leave out the rows and columns of a grid that have next to no mass.

        Parameters
        ----------
        pairs : Pairs
            Successes and failures of the distinct questions.
        logit_mean, log_strength, weight : array
            As in the class.
        curves : sequence of Curve
            Those that are averaged.
        """
        rows, columns = np.nonzero(likely_nodes(weight, _LEFT_OUT))
        part = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
        return cls(
            pairs.first,
            pairs.second,
            pairs.times.astype(np.float64),
            logit_mean[part],
            log_strength[part[0]],
            weight[part] / weight[part].sum(),
            36.0 + float(np.log(max(curve.degree for curve in curves))),
            min(max(curve.sharpness for curve in curves), _SHARPEST),
        )

    @cached_property
    def prior(self) -> tuple[FloatArray, ...]:
        """The Beta parameters s m and s (1 − m) of every node, each (L, Y)."""
        s = np.minimum(np.exp(self.log_strength), _MOST_STRENGTH)[:, None]
        return s * special.expit(self.logit_mean), s * special.expit(-self.logit_mean)

    def _some_moments(self, curves: Sequence[Curve]) -> list[CurveMoments]:
        ends = CurveEnds.of(self.x, self.y, self.times, curves)
        sums = np.zeros((6, self.weight.size, len(curves)))
        weights = self.weight.ravel()[self.order]
        question = np.zeros((2, self.x.size, len(curves)))
        for part, raw in self.raw_moments(curves, ends):
            times = self.times[part.some]
            for total, values in zip(sums, question_cumulants(raw), strict=True):
                total[part.nodes] += np.einsum("ydk,d->yk", values, times)
            question[:, part.some] += np.einsum("ydik,y->idk", raw[:, :, :2], weights[part.nodes])
        unordered = np.empty_like(sums)
        unordered[:, self.order] = sums
        shape = (6, *self.weight.shape, len(curves))
        return moments_of_sums(
            unordered.reshape(shape), question, self.n_questions, self.weight, ends
        )

    def raw_moments(
        self, curves: Sequence[Curve], ends: CurveEnds, n_powers: int = 4
    ) -> Iterator[tuple[_Part, FloatArray]]:
        """Return every part and E v, E v², … there, shape (nodes, questions, powers, K).

        Parameters
        ----------
        curves : sequence of Curve, length K
            The scores as functions of p.
        ends : CurveEnds
            Says for each curve whether v is the curve or its distance from the top.
        n_powers : int
            The highest power of v.
        """
        exponents = range(1, n_powers + 1)
        limits = ends.tops ** np.array(exponents)[:, None]
        powers: dict[int, tuple[int, FloatArray]] = {}
        for part, mass, above in self.weights():
            if part.level not in powers:
                first, values = self._values(part.level, curves)
                values = np.where(ends.from_top, ends.tops - values, values)
                powers = {part.level: (first, np.concatenate([values**i for i in exponents], 1))}
            first, table = powers[part.level]
            n_nodes, d, q = mass.shape
            rows = table[part.first - first : part.last + 1 - first]
            raw = (mass.reshape(-1, q) @ rows).reshape(n_nodes, d, n_powers, len(curves))
            below = 1.0 - mass.sum(axis=2) - above
            at_end = np.where(ends.from_top, below[..., None], above[..., None])
            raw += at_end[:, :, None, :] * limits
            yield part, raw

    def weights(self) -> Iterator[_Weights]:
        """Return the probabilities of the logits, in ascending order of their levels."""
        is_small = sum(part.size for part in self._plan) <= _STORED
        return iter(self._stored) if is_small else self._computed()

    @cached_property
    def _stored(self) -> list[_Weights]:
        return list(self._computed())

    def _step(self, level: int) -> float:
        """Return the step of the logits of a level, half a density's or a curve's finest sd."""
        return float(min(_WIDEST_STEP, 2.0 / np.sqrt(2.0**level)))

    @cached_property
    def _levels(self) -> IntArray:
        """How fine the logits of each node are, shape (G,)."""
        prior_a, prior_b = (values.ravel() for values in self.prior)
        curvature = np.zeros(self.weight.size)
        for x, y in zip(self.x, self.y, strict=True):
            a, b = x + prior_a, y + prior_b
            # of a log density at its mode
            curvature = np.maximum(curvature, a * b / (a + b))
        # the fourth power of a curve is twice as steep as the curve
        levels = 2 * np.ceil(0.5 * np.log2(4.0 * (curvature + self.sharpness))).astype(np.int64)
        return np.asarray(levels)

    @cached_property
    def order(self) -> IntArray:
        """The nodes, shape (G,), by their levels and their means."""
        return np.lexsort((self.logit_mean.ravel(), self._levels))

    @cached_property
    def _ordered_prior(self) -> tuple[FloatArray, ...]:
        """The prior of the nodes in their order, each (G, 1)."""
        return tuple(values.ravel()[self.order, None] for values in self.prior)

    @cached_property
    def _plan(self) -> list[_Part]:
        """All parts, those of one level together."""
        levels = self._levels[self.order]
        plan: list[_Part] = []
        for level in np.unique(levels).tolist():
            first, last = np.searchsorted(levels, [level, level + 1]).tolist()
            for start in range(first, last, _NODES):
                plan += self._parts(level, slice(start, min(start + _NODES, last)))
        return plan

    def _parts(self, level: int, nodes: slice) -> Iterator[_Part]:
        """Group the questions at some nodes by where their logits lie."""
        step = self._step(level)
        a, b = self._parameters(nodes, slice(None))
        low, high = _supports(a, b, self.reach)
        start, end = np.floor(low / step).astype(int), np.ceil(high / step).astype(int)
        d = 0
        while d < start.size:
            first, last, stop = start[d], end[d], d + 1
            while stop < start.size:
                wider = (min(first, start[stop]), max(last, end[stop]))
                size = (wider[1] - wider[0]) * (stop + 1 - d)
                own = int((end[d : stop + 1] - start[d : stop + 1]).sum())
                if size > 1.6 * own or size * a.shape[0] > _BLOCK:
                    break
                (first, last), stop = wider, stop + 1
            yield _Part(level, nodes, slice(d, stop), int(first), int(last))
            d = stop

    def _parameters(self, nodes: slice, some: slice) -> tuple[FloatArray, FloatArray]:
        """Return the Beta parameters of some questions at some nodes, each (nodes, questions)."""
        prior_a, prior_b = self._ordered_prior
        return self.x[some] + prior_a[nodes], self.y[some] + prior_b[nodes]

    def _computed(self) -> Iterator[_Weights]:
        for part in self._plan:
            a, b = self._parameters(part.nodes, part.some)
            x = np.arange(part.first, part.last + 1) * self._step(part.level)
            log_p, log_q = -np.logaddexp(0.0, -x), -np.logaddexp(0.0, x)
            log_density = a[..., None] * log_p + b[..., None] * log_q
            log_density -= log_density.max(axis=2, keepdims=True)
            mass = np.exp(log_density, out=log_density)
            mass[..., 0] *= 0.5
            mass[..., -1] *= 0.5
            below = special.betainc(a, b, special.expit(x[0]))
            above = special.betainc(b, a, special.expit(-x[-1]))
            mass *= ((1.0 - below - above) / mass.sum(axis=2))[..., None]
            yield _Weights(part, mass, above)

    def _values(self, level: int, curves: Sequence[Curve]) -> tuple[int, FloatArray]:
        """Return the first logit of a level and the curves from there on, (Q, K)."""
        parts = [part for part in self._plan if part.level == level]
        first, last = min(part.first for part in parts), max(part.last for part in parts)
        x = np.arange(first, last + 1) * self._step(level)
        p, q = special.expit(x), special.expit(-x)
        return first, np.stack([curve.value(p, q) for curve in curves], axis=1)

    def table(self, curve: Curve, moments: CurveMoments) -> CdfTable:
        """Tabulate the distribution function of the score (1/M) Σ curve(p_α)."""
        mu, sigma, at_node = moments.mu, moments.sigma, moments.at_node
        if sigma <= ROUNDING:
            return spike_table(mu, sigma).clipped(0.0, curve.top)
        if self.n_questions == 1.0:
            probability, p, q = self._question_table
            return CdfTable(probability, np.maximum.accumulate(curve.value(p, q)))
        sensitivity = np.stack([np.abs(np.gradient(at_node.mean, axis=axis)) for axis in (1, 0)])
        weight, flat, wide = self._flat(at_node, sensitivity)
        flat = repaired(flat, _LEAST_SPREAD * sigma)
        if self.n_questions >= _MANY:
            shape = np.array(mean_shape(weight, flat))
            if np.all(shape <= _EDGEWORTH):
                wide = wide_cells(wide, flat)
                return edgeworth_table(weight, flat, wide, mu, sigma).clipped(0.0, curve.top)
            if sigma <= _TINY:
                wide = wide_cells(wide, flat)
                return beta_nodes_table(weight, flat, wide, mu, sigma).clipped(0.0, curve.top)
        nodes = PearsonNodes.of(flat)
        if is_near_pearson(weight, nodes, sigma, equal=self.x.size == 1):
            return pearson_table(weight, nodes, wide, mu, sigma).clipped(0.0, curve.top)
        if sigma <= _TINY:
            # the transform of so narrow a spike is lost in rounding
            wide = wide_cells(wide, flat)
            return beta_nodes_table(weight, flat, wide, mu, sigma).clipped(0.0, curve.top)
        return self._transformed(curve, moments, wide_cells(sensitivity, at_node))

    def _flat(
        self, at_node: Cumulants, sensitivity: FloatArray
    ) -> tuple[FloatArray, Cumulants, FloatArray]:
        """Return the weights, cumulants and cells of the nodes that a table needs.

        Those next to no mass are left out, and three of four where the mean varies over the cells
        of the others by less than its sd, so that their sum is smooth.
        """
        spread = np.sqrt(at_node.variance)
        is_wide = (2.0 * sensitivity > spread).any(axis=0)
        thin = 1 if (self.weight * is_wide).sum() > _LEFT_OUT_OF_TABLES else 2
        weight = self.weight[::thin, ::thin].ravel()
        order = np.argsort(weight)
        likely = order[np.cumsum(weight[order]) > _LEFT_OUT_OF_TABLES * weight.sum()]
        weight = weight[likely] / weight[likely].sum()
        flat = Cumulants(*(values[::thin, ::thin].ravel()[likely] for values in at_node))
        wide = thin * sensitivity[:, ::thin, ::thin].reshape(2, -1)[:, likely]
        return weight, flat, wide

    @cached_property
    def _question_table(self) -> tuple[FloatArray, ...]:
        """The distribution function of one question's p, with p and 1 − p, of one question."""
        a, b = (prior + own for prior, own in zip(self.prior, (self.x[0], self.y[0]), strict=True))
        low, high = _supports(a, b, self.reach)
        x = np.linspace(low.min(), high.max(), _QUESTION_POINTS)
        p = special.expit(x)
        below = np.zeros_like(x)
        for row, weight in enumerate(self.weight):
            below += weight @ special.betainc(a[row, :, None], b[row, :, None], p)
        from scipy.interpolate import PchipInterpolator  # takes long to import

        finer = np.linspace(x[0], x[-1], 10 * _QUESTION_POINTS)
        below = np.clip(PchipInterpolator(x, np.maximum.accumulate(below))(finer), 0.0, 1.0)
        # the mass beyond the ends lies on them
        finer = np.concatenate([finer[:1], finer, finer[-1:]])
        below = np.concatenate([[0.0], below, [1.0]])
        return below, special.expit(finer), special.expit(-finer)

    def _transformed(
        self, curve: Curve, moments: CurveMoments, sensitivity: FloatArray
    ) -> CdfTable:
        """Return from the characteristic function of the mixture of the nodes."""
        mu, sigma, at_node = moments.mu, moments.sigma, moments.at_node
        window = Window.of(mu, sigma, curve.top, _REACH, _KERNEL)
        base, n = window.base, window.n
        likely = likely_nodes(self.weight, _LEFT_OUT_OF_TABLES)
        normal = is_nearly_normal(at_node, sigma)
        alone = likely & normal
        transform = self.weight[alone] @ normal_transform(
            Cumulants(*(values[alone] for values in at_node)), sensitivity[:, alone], base, n
        )
        wanted = (likely & ~normal).ravel()[self.order]
        weight = self.weight.ravel()[self.order].astype(np.float32)
        cells = sensitivity.reshape(2, -1)[:, self.order]
        waves: dict[int, CurveWaves] = {}
        for (level, first_node, stop), group in groupby(self.weights(), _nodes_of):
            some = np.flatnonzero(wanted[first_node:stop])
            if not some.size:
                continue
            if level not in waves:
                waves = {level: self.waves(level, curve, base / self.n_questions, n)}
            product: Any = np.ones(1, dtype=np.complex64)
            for part, mass, above in group:
                factors = waves[level].transforms(part.first, mass[some], above[some])
                for index, times in enumerate(self.times[part.some]):
                    product = product * raised(factors[:, index], int(times))
            # a node represents its cell, over which the mean can vary more than about it
            for width in cells[:, first_node + some]:
                wide = np.flatnonzero(width)
                if wide.size:
                    product[wide] *= sincs(0.5 * base * width[wide], n)
            transform += weight[first_node + some] @ product
        return window.table(transform, mu, sigma, curve.top)

    def waves(self, level: int, curve: Curve, frequency: float, n: int) -> CurveWaves:
        """Return exp(−i j frequency curve) for j = 0..n−1 at the logits of a level."""
        first, values = self._values(level, [curve])
        return CurveWaves.of(first, frequency * np.append(values[:, 0], curve.top), n)


def spike_table(mu: float, sigma: float) -> CdfTable:
    """Return a normal distribution whose sd is next to rounding, or 0."""
    if sigma == 0.0:
        return CdfTable(np.array([0.0, 1.0]), np.array([mu, mu]))
    below = special.ndtr(_NORMAL)
    return CdfTable(below / below[-1], mu + sigma * _NORMAL)


def likely_nodes(weight: FloatArray, left_out: float) -> npt.NDArray[np.bool_]:
    """Return which nodes remain if the least likely ones, of this mass at most, are left out."""
    order = np.argsort(weight, axis=None)
    likely = np.empty(weight.size, dtype=np.bool_)
    likely[order] = np.cumsum(weight.ravel()[order]) > left_out
    return likely.reshape(weight.shape)


def repaired(at_node: Cumulants, least: float) -> Cumulants:
    """Return cumulants that Pearson's curves of type I reach, where those nearly do.

    A node whose sd is below `least`, and its higher cumulants rounding, becomes normal; the excess
    kurtosis of a gamma distribution, 1.5 times its squared skewness, is the largest of type I.
    """
    narrow = at_node.variance < least**2
    variance = np.where(narrow, least**2, at_node.variance)
    third = np.where(narrow, 0.0, at_node.third)
    fourth = np.where(narrow, 0.0, at_node.fourth)
    square = third**2 / variance**3
    excess = fourth / variance**2
    most = 1.498 * square - 1e-4
    is_close = (excess > most) & (excess < 1.55 * square + 2e-3)
    return at_node._replace(
        variance=variance, third=third, fourth=np.where(is_close, most * variance**2, fourth)
    )


def _nodes_of(weights: _Weights) -> tuple[int, int, int]:
    """Return the level and the nodes that some probabilities belong to."""
    nodes = weights.part.nodes
    return weights.part.level, nodes.start, nodes.stop


def _supports(a: FloatArray, b: FloatArray, reach: float) -> tuple[FloatArray, FloatArray]:
    """Return the logits between which each question has its mass at all nodes, (D,).

    Beyond ± `reach` every curve has reached its end value.
    """
    mean = special.digamma(a) - special.digamma(b)
    sd = np.sqrt(special.polygamma(1, a) + special.polygamma(1, b))
    # the tails of a logit are exponential at the rates a and b
    low = np.clip(mean - np.maximum(9.0 * sd, 40.0 / a), -reach, reach - 1.0)
    high = np.clip(mean + np.maximum(9.0 * sd, 40.0 / b), 1.0 - reach, reach)
    return low.min(axis=0), high.max(axis=0)


@dataclass(frozen=True, eq=False)
class CurveMixtureDistribution(FromCurveMoments):
    """The score (1/M) Σ curve(p_α) of the questions of a mixture.

    Parameters
    ----------
    mixture : CurveMixture
        The distinct questions.
    curve : Curve
        The score as a function of p_α.
    of_curve : CurveMoments
        Its moments.
    """

    mixture: CurveMixture
    curve: Curve
    of_curve: CurveMoments

    @cached_property
    def table(self) -> CdfTable:  # type: ignore[override]  # an attribute, computed once
        """The distribution function of the score."""
        return self.mixture.table(self.curve, self.of_curve)
