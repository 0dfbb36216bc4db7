"""Simulated coverage, width and bias of intervals on benchmarks of known true scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.analysis.simulation.simulated_benchmark import SimulatedBenchmark, check_trials
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.frequentist.clt import clt_interval, within_question_clt
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import DEFAULT_INTERVAL, IntervalSpec
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import FloatArray, check_size

#: The interval methods compared, in the order of the results.
HBAYES, BAYES, JEFFREYS, CLT = "hbayes@N", "bayes@N", "bayes@N, Jeffreys", "avg@N, CLT"


@dataclass(frozen=True)
class IntervalStudy(Record):
    """Simulated properties of an interval method at one N.

    Attributes
    ----------
    method : str
        The interval method.
    n_trials : int
        N.
    coverage : float
        Share of intervals that contain the true score.
    error : float
        Monte-Carlo standard error of the coverage, with half a replicate added to either outcome.
    width : float
        Mean width.
    bias, rmse : float
        Mean and root mean square of the estimate minus the true score.
    replicates : int
        Number of intervals.
    """

    method: str
    n_trials: int
    coverage: float
    error: float
    width: float
    bias: float
    rmse: float
    replicates: int


def interval_study(
    benchmark: SimulatedBenchmark,
    trials: Sequence[int],
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    replicates: int = 200,
    progress: Callable[[int], None] | None = None,
) -> tuple[IntervalStudy, ...]:
    """Simulate the coverage of interval methods.

    In every replicate M questions are drawn from a model's Beta distribution (the models take
    turns) and answered N times each. The true score is the mean of their p in scope "benchmark",
    and the mean of the Beta distribution in scope "population".

    Parameters
    ----------
    benchmark : SimulatedBenchmark
        The models and the distribution of their questions.
    trials : sequence of int
        Values of N.
    spec : IntervalSpec
        Settings of the intervals; its seed is that of the simulated trials.
    replicates : int
        Number of benchmarks drawn for each N.
    progress : callable, optional
        Called with 1 after every replicate.

    Returns
    -------
    tuple of IntervalStudy
        For every N: hbayes@N; in scope "benchmark" bayes@N with the uniform and the Jeffreys
        prior; and the CLT interval of avg@N (from N = 2 on in scope "benchmark").

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    On a hard benchmark, intervals under the uniform prior of bayes@N have no coverage:

    >>> hard = SimulatedBenchmark.even(1, 0.09, 0.0, 2.2, 30)
    >>> studies = interval_study(hard, [4], IntervalSpec(method="beta"), replicates=40)
    >>> [(study.method, study.coverage > 0.8, study.coverage < 0.1) for study in studies[:2]]
    [('hbayes@N', True, False), ('bayes@N', False, True)]
    """
    ascending = check_trials(trials)
    replicates = check_size("replicates", replicates, 1)
    s = benchmark.strength
    studies = []
    for n in ascending:
        by_method: dict[str, list[tuple[float, float, float, float]]] = {}
        for replicate in range(replicates):
            rng = np.random.default_rng([spec.seed, n, replicate])
            m = benchmark.means[replicate % len(benchmark.means)]
            p = rng.beta(s * m, s * (1.0 - m), benchmark.n_questions)
            right = rng.binomial(n, p)
            outcomes = Outcomes.from_counts(np.stack([n - right, right], axis=1))
            true_score = float(p.mean()) if spec.scope == "benchmark" else m
            for method, estimate_and_ends in _intervals(outcomes, n, spec).items():
                by_method.setdefault(method, []).append((*estimate_and_ends, true_score))
            if progress is not None:
                progress(1)
        studies += [_study(method, n, np.array(rows)) for method, rows in by_method.items()]
    return tuple(studies)


def _intervals(
    outcomes: Outcomes, n: int, spec: IntervalSpec
) -> dict[str, tuple[float, float, float]]:
    """Return estimate, low and high of every interval method."""
    posteriors = {HBAYES: hbayes_at_n(outcomes, spec.scope)}
    if spec.scope == "benchmark":
        posteriors[BAYES] = bayes_at_n(outcomes)
        posteriors[JEFFREYS] = bayes_at_n(outcomes, prior="jeffreys")
    intervals = {}
    for method, posterior in posteriors.items():
        interval = posterior.interval(spec.level, spec.method)
        intervals[method] = (posterior.mu, interval.low, interval.high)
    clt = None
    if spec.scope == "population" and outcomes.n_questions > 1:
        clt = clt_interval(outcomes, spec.level)
    elif spec.scope == "benchmark" and n > 1:
        clt = within_question_clt(outcomes, spec.level)
    if clt is not None:
        intervals[CLT] = (clt.estimate, clt.low, clt.high)
    return intervals


def _study(method: str, n: int, rows: FloatArray) -> IntervalStudy:
    estimate, low, high, true_score = rows.T
    covers = (low - 1e-12 <= true_score) & (true_score <= high + 1e-12)
    replicates = true_score.size
    share = (covers.sum() + 0.5) / (replicates + 1.0)
    return IntervalStudy(
        method=method,
        n_trials=n,
        coverage=float(covers.mean()),
        error=float(np.sqrt(share * (1.0 - share) / replicates)),
        width=float((high - low).mean()),
        bias=float((estimate - true_score).mean()),
        rmse=float(np.sqrt(np.square(estimate - true_score).mean())),
        replicates=replicates,
    )
