"""Trials needed to separate models, simulated on benchmarks of known true scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.analysis.simulation.simulated_benchmark import SimulatedBenchmark, check_trials
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.convergence.kendall import kendall_tau_b
from lm_eval_bayes.stats.ranking.rank import check_confidence
from lm_eval_bayes.stats.simulation.mimics import expected_z, trials_until_z
from lm_eval_bayes.stats.validation import FloatArray, check_seed, check_size

#: The largest N considered.
_MAX_TRIALS = 1_000_000
#: Number of simulated benchmarks for each N.
_REPLICATES = 2000


@dataclass(frozen=True)
class PairStudy(Record):
    """Separation of two models that are neighbours in the true ranking.

    Attributes
    ----------
    better, worse : str
        The models.
    gap : float
        Difference of their true scores.
    trials : int or None
        The smallest N at which the expected z reaches the confidence; None beyond a million.
    z : tuple of float
        The expected z at every N.
    surely, wrongly : tuple of float
        Share of simulated benchmarks, at every N, in which z reaches the confidence in favour of
        the better model, and of the worse one.
    """

    better: str
    worse: str
    gap: float
    trials: int | None
    z: tuple[float, ...]
    surely: tuple[float, ...]
    wrongly: tuple[float, ...]


@dataclass(frozen=True)
class OrderStudy(Record):
    """Agreement of the ranking by bayes@N (and avg@N) with the true ranking.

    Attributes
    ----------
    n_trials : int
        N.
    right : float
        Share of simulated benchmarks with the true order of all models; models of equal true
        score may be in any order.
    tau : float or None
        Mean Kendall τ_b with the true order; None if all true scores are equal.
    """

    n_trials: int
    right: float
    tau: float | None


@dataclass(frozen=True)
class Separation(Record):
    """Separation of the models of a benchmark, see `separation_study`."""

    confidence: float
    tossed: int
    seed: int
    pairs: tuple[PairStudy, ...]
    orders: tuple[OrderStudy, ...]


def separation_study(
    benchmark: SimulatedBenchmark,
    trials: Sequence[int],
    *,
    confidence: float = 0.95,
    replicates: int = _REPLICATES,
    seed: int = 0,
) -> Separation:
    """Return the trials that separate neighbours, and how often the ranking is right.

    Uses the posterior of bayes@N, for questions whose p have exactly the models' true scores as
    means. Neighbours are separated if z = |μ − μ'| / sqrt(σ² + σ'²) is at least Φ⁻¹(confidence),
    1.645 at .95 [Hariri 2026, §2.5, Fig. 3]. The expectation of z has a closed form; the shares
    are simulated.

    Parameters
    ----------
    benchmark : SimulatedBenchmark
        At least two models.
    trials : sequence of int
        Values of N.
    confidence : float
        One-sided, in [0.5, 1).
    replicates : int
        Number of simulated benchmarks for each N.
    seed : int
        Seed of the simulated trials.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    The paper's two models, .0133 apart on thirty questions [Hariri 2026, §3.1]:

    >>> paper = SimulatedBenchmark((0.6080, 0.6213), 2.0, 30)
    >>> result = separation_study(paper, [80], replicates=500)
    >>> result.pairs[0].trials, round(result.pairs[0].z[0], 2)
    (164, 1.14)
    """
    ascending = check_trials(trials)
    confidence = check_confidence(confidence)
    replicates, seed = check_size("replicates", replicates, 1), check_seed(seed)
    if len(benchmark.means) < 2:
        raise InvalidInputError.of("models", "be two or more to be separated", 1)
    p = benchmark.probabilities()
    means = np.array(benchmark.means)
    threshold = float(special.ndtri(confidence))
    surely = np.zeros((len(ascending), len(means) - 1))
    wrongly = np.zeros_like(surely)
    orders = []
    for row, n in enumerate(ascending):
        total = np.empty((replicates, len(means)))
        z = np.empty((replicates, len(means) - 1))
        for replicate in range(replicates):
            rng = np.random.default_rng([seed, n, replicate])
            mean = (1.0 + rng.binomial(n, p)) / (n + 2.0)
            variance = (mean * (1.0 - mean)).sum(axis=1) / (n + 3.0) / p.shape[1] ** 2
            total[replicate] = mean.mean(axis=1)
            sd = np.sqrt(variance[:-1] + variance[1:])
            z[replicate] = (total[replicate, :-1] - total[replicate, 1:]) / sd
        surely[row] = (z >= threshold).mean(axis=0)
        wrongly[row] = (z <= -threshold).mean(axis=0)
        orders.append(_order(total, means, n))
    pairs = []
    for i, (better, worse) in enumerate(pairwise(benchmark.names)):
        pairs.append(
            PairStudy(
                better=better,
                worse=worse,
                gap=float(means[i] - means[i + 1]),
                trials=_trials_needed(p[i], p[i + 1], threshold),
                z=tuple(expected_z(p[i], p[i + 1], np.array(ascending)).tolist()),
                surely=tuple(surely[:, i].tolist()),
                wrongly=tuple(wrongly[:, i].tolist()),
            )
        )
    return Separation(confidence, replicates, seed, tuple(pairs), tuple(orders))


def _trials_needed(p: FloatArray, other: FloatArray, threshold: float) -> int | None:
    """Return the trials until the expected z reaches the threshold."""
    if np.array_equal(p, other):
        return None
    for largest in (1000, 100_000, _MAX_TRIALS):
        trials = trials_until_z(p, other, threshold, largest=largest)
        if trials is not None:
            return trials
    return None


def _order(total: FloatArray, means: FloatArray, n: int) -> OrderStudy:
    distinct = np.diff(means) < -1e-12
    right = ((np.diff(total) < -1e-12) | ~distinct).all(axis=1)
    tau = None
    if distinct.any():
        values = kendall_tau_b(total.round(12), means)
        defined = values[~np.isnan(values)]
        tau = float(defined.mean()) if defined.size else None
    return OrderStudy(n, float(right.mean()), tau)
