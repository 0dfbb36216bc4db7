"""How many trials tell models apart: a simulation on benchmarks whose true scores are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

from lm_eval_bayes.analysis.simulation.simulated_benchmark import CoinBenchmark, check_trials
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.convergence.kendall import kendall_tau_b
from lm_eval_bayes.stats.ranking.rank import check_confidence
from lm_eval_bayes.stats.simulation.mimics import expected_z, trials_until_z
from lm_eval_bayes.stats.validation import FloatArray, check_seed, check_size

#: Trials that are tried until two models are told apart.
_LARGEST = 1_000_000
#: Tossed benchmarks behind the shares of right orders.
_TOSSED = 2000


@dataclass(frozen=True)
class PairStudy:
    """What it takes to tell two neighbours apart.

    Attributes
    ----------
    better, worse : str
        The models.
    gap : float
        Distance of their true scores.
    trials : int or None
        The smallest N at which z is expected to reach the confidence; None beyond a million.
    z : tuple of float
        The expected z at every N asked for.
    surely, wrongly : tuple of float
        Share of tossed benchmarks in which the better one comes out as surely better, and in
        which the worse one does, at every N.
    """

    better: str
    worse: str
    gap: float
    trials: int | None
    z: tuple[float, ...]
    surely: tuple[float, ...]
    wrongly: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        plain = dict(vars(self))
        return {**plain, **{name: list(plain[name]) for name in ("z", "surely", "wrongly")}}


@dataclass(frozen=True)
class OrderStudy:
    """How well bayes@N (and avg@N) orders all models.

    Attributes
    ----------
    n_trials : int
        N.
    right : float
        Share of tossed benchmarks in which the whole order is right; models of equal true
        score may come either way.
    tau : float or None
        Mean Kendall τ_b with the true order; None where all true scores are equal.
    """

    n_trials: int
    right: float
    tau: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return dict(vars(self))


@dataclass(frozen=True)
class Separation:
    """What it takes to tell the models of a benchmark apart, see `separation_study`."""

    confidence: float
    tossed: int
    seed: int
    pairs: tuple[PairStudy, ...]
    orders: tuple[OrderStudy, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "confidence": self.confidence,
            "tossed": self.tossed,
            "seed": self.seed,
            "pairs": [one.to_dict() for one in self.pairs],
            "orders": [one.to_dict() for one in self.orders],
        }


def separation_study(
    benchmark: CoinBenchmark,
    trials: Sequence[int],
    *,
    confidence: float = 0.95,
    tossed: int = _TOSSED,
    seed: int = 0,
) -> Separation:
    """Say how many trials tell neighbours apart, and how often a ranking is right.

    Of the posterior of bayes@N, with questions whose p have exactly the models' true scores as
    their means. z = |μ − μ'| / sqrt(σ² + σ'²) is held against Φ⁻¹(confidence), 1.645 at .95
    [Hariri 2026, §2.5, Fig. 3]; its expectation is a closed form, the shares are tossed.

    Parameters
    ----------
    benchmark : CoinBenchmark
        At least two models.
    trials : sequence of int
        Values of N.
    confidence : float
        One-sided, in [0.5, 1).
    tossed : int
        How many benchmarks are tossed for each N.
    seed : int
        Seed of the tosses.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    The paper's two models, .0133 apart on thirty questions [Hariri 2026, §3.1]:

    >>> paper = CoinBenchmark((0.6080, 0.6213), 2.0, 30)
    >>> found = separation_study(paper, [80], tossed=500)
    >>> found.pairs[0].trials, round(found.pairs[0].z[0], 2)
    (164, 1.14)
    """
    lengths = check_trials(trials)
    confidence = check_confidence(confidence)
    tossed, seed = check_size("tossed", tossed, 1), check_seed(seed)
    if len(benchmark.means) < 2:
        raise InvalidInputError.of("models", "be two or more, to be told apart", 1)
    p = benchmark.probabilities()
    means = np.array(benchmark.means)
    threshold = float(special.ndtri(confidence))
    surely = np.zeros((len(lengths), len(means) - 1))
    wrongly = np.zeros_like(surely)
    orders = []
    for row, n in enumerate(lengths):
        total = np.empty((tossed, len(means)))
        difference = np.empty((tossed, len(means) - 1))
        for replicate in range(tossed):
            rng = np.random.default_rng([seed, n, replicate])
            mean = (1.0 + rng.binomial(n, p)) / (n + 2.0)
            variance = (mean * (1.0 - mean)).sum(axis=1) / (n + 3.0) / p.shape[1] ** 2
            total[replicate] = mean.mean(axis=1)
            spread = np.sqrt(variance[:-1] + variance[1:])
            difference[replicate] = (total[replicate, :-1] - total[replicate, 1:]) / spread
        surely[row] = (difference >= threshold).mean(axis=0)
        wrongly[row] = (difference <= -threshold).mean(axis=0)
        orders.append(_order(total, means, n))
    pairs = []
    for i, (better, worse) in enumerate(pairwise(benchmark.names)):
        pairs.append(
            PairStudy(
                better=better,
                worse=worse,
                gap=float(means[i] - means[i + 1]),
                trials=_needed(p[i], p[i + 1], threshold),
                z=tuple(expected_z(p[i], p[i + 1], np.array(lengths)).tolist()),
                surely=tuple(surely[:, i].tolist()),
                wrongly=tuple(wrongly[:, i].tolist()),
            )
        )
    return Separation(confidence, tossed, seed, tuple(pairs), tuple(orders))


def _needed(p: FloatArray, other: FloatArray, threshold: float) -> int | None:
    """Return the trials until z is expected to be there, in ever longer tries."""
    if np.array_equal(p, other):
        return None
    for largest in (1000, 100_000, _LARGEST):
        found = trials_until_z(p, other, threshold, largest=largest)
        if found is not None:
            return found
    return None


def _order(total: FloatArray, means: FloatArray, n: int) -> OrderStudy:
    apart = np.diff(means) < -1e-12
    right = ((np.diff(total) < -1e-12) | ~apart).all(axis=1)
    tau = None
    if apart.any():
        values = kendall_tau_b(total.round(12), means)
        known = values[~np.isnan(values)]
        tau = float(known.mean()) if known.size else None
    return OrderStudy(n, float(right.mean()), tau)
