"""Which intervals hold the truth: a simulation on benchmarks whose true scores are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.analysis.simulation.simulated_benchmark import CoinBenchmark, check_trials
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.frequentist.clt import clt_interval, within_question_clt
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import METHODS, SCOPES, IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import (
    FloatArray,
    check_level,
    check_option,
    check_seed,
    check_size,
)

#: What intervals are made by, in the order in which they are told.
HBAYES, BAYES, JEFFREYS, CLT = "hbayes@N", "bayes@N", "bayes@N, Jeffreys", "avg@N, CLT"


@dataclass(frozen=True)
class IntervalStudy:
    """How intervals of one kind did at one N.

    Attributes
    ----------
    method : str
        What made them.
    n_trials : int
        N.
    coverage : float
        Share that held the truth.
    error : float
        Monte-Carlo standard error of it, from half a run more of either outcome.
    width : float
        Mean width.
    bias, rmse : float
        Mean, and root mean square, of the estimate minus the truth.
    replicates : int
        Intervals.
    """

    method: str
    n_trials: int
    coverage: float
    error: float
    width: float
    bias: float
    rmse: float
    replicates: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return dict(vars(self))


def interval_study(
    benchmark: CoinBenchmark,
    trials: Sequence[int],
    *,
    replicates: int = 200,
    level: float = 0.95,
    scope: Scope = "benchmark",
    method: IntervalMethod = "exact",
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> tuple[IntervalStudy, ...]:
    """Draw benchmarks again and again, and see which intervals hold the truth.

    In every replicate M questions are drawn from one model's Beta distribution (the models
    take turns) and answered N times each. The truth is the mean of their p in scope
    "benchmark", the Beta's mean in scope "population".

    Parameters
    ----------
    benchmark : CoinBenchmark
        The models and the shape of their questions.
    trials : sequence of int
        Values of N.
    replicates : int
        Benchmarks drawn for each N.
    level, scope, method
        Of the intervals.
    seed : int
        Seed of the draws.
    advance : callable, optional
        Told of every benchmark that is done.

    Returns
    -------
    tuple of IntervalStudy
        For every N: hbayes@N; in scope "benchmark" bayes@N with the uniform and the Jeffreys
        prior; and the CLT interval around avg@N (from N = 2 on in scope "benchmark").

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    A hard benchmark: intervals under the uniform prior of bayes@N never hold the truth.

    >>> hard = CoinBenchmark.even(1, 0.09, 0.0, 2.2, 30)
    >>> found = interval_study(hard, [4], replicates=40, method="beta")
    >>> [(one.method, one.coverage > 0.8, one.coverage < 0.1) for one in found[:2]]
    [('hbayes@N', True, False), ('bayes@N', False, True)]
    """
    lengths = check_trials(trials)
    replicates = check_size("replicates", replicates, 1)
    level, seed = check_level(level), check_seed(seed)
    scope = check_option("scope", scope, SCOPES)
    method = check_option("interval", method, METHODS)
    s = benchmark.strength
    studies = []
    for n in lengths:
        rows: dict[str, list[tuple[float, float, float, float]]] = {}
        for replicate in range(replicates):
            rng = np.random.default_rng([seed, n, replicate])
            m = benchmark.means[replicate % len(benchmark.means)]
            p = rng.beta(s * m, s * (1.0 - m), benchmark.n_questions)
            right = rng.binomial(n, p)
            outcomes = Outcomes.from_counts(np.stack([n - right, right], axis=1))
            truth = float(p.mean()) if scope == "benchmark" else m
            for name, found in _intervals(outcomes, n, level, scope, method).items():
                rows.setdefault(name, []).append((*found, truth))
            if advance is not None:
                advance(1)
        studies += [_study(name, n, np.array(found)) for name, found in rows.items()]
    return tuple(studies)


def _intervals(
    outcomes: Outcomes, n: int, level: float, scope: Scope, method: IntervalMethod
) -> dict[str, tuple[float, float, float]]:
    """Return estimate, low and high of every kind of interval."""
    posteriors = {HBAYES: hbayes_at_n(outcomes, scope)}
    if scope == "benchmark":
        posteriors[BAYES] = bayes_at_n(outcomes)
        posteriors[JEFFREYS] = bayes_at_n(outcomes, prior="jeffreys")
    found = {}
    for name, posterior in posteriors.items():
        interval = posterior.interval(level, method)
        found[name] = (posterior.mu, interval.low, interval.high)
    clt = None
    if scope == "population" and outcomes.n_questions > 1:
        clt = clt_interval(outcomes, level)
    elif scope == "benchmark" and n > 1:
        clt = within_question_clt(outcomes, level)
    if clt is not None:
        found[CLT] = (clt.estimate, clt.low, clt.high)
    return found


def _study(name: str, n: int, rows: FloatArray) -> IntervalStudy:
    estimate, low, high, truth = rows.T
    held = (low - 1e-12 <= truth) & (truth <= high + 1e-12)
    size = truth.size
    share = (held.sum() + 0.5) / (size + 1.0)
    return IntervalStudy(
        method=name,
        n_trials=n,
        coverage=float(held.mean()),
        error=float(np.sqrt(share * (1.0 - share) / size)),
        width=float((high - low).mean()),
        bias=float((estimate - truth).mean()),
        rmse=float(np.sqrt(np.square(estimate - truth).mean())),
        replicates=size,
    )
