"""Simulated benchmarks of known true scores: their files, and the coverage of intervals."""

from __future__ import annotations

import csv
import io
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import Record, json_name
from lm_eval_bayes._util.validation import (
    as_real,
    check_integer,
    check_real,
    check_sequence,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats import (
    DEFAULT_INTERVAL,
    FloatArray,
    IntervalSpec,
    Outcomes,
    bayes_at_n,
    clt_interval,
    hbayes_at_n,
    mimics_with_means,
    simulate_outcomes,
    within_question_clt,
)

#: The interval methods compared, in the order of the results.
HBAYES, BAYES, JEFFREYS, CLT = "hbayes@N", "bayes@N", "bayes@N, Jeffreys", "avg@N, CLT"
#: Task name of simulated outcomes.
TASK = "simulated"
_MOST_MODELS = 100


@dataclass(frozen=True)
class SimulatedBenchmark(Record):
    """Models of known true scores, whose questions have a common Beta distribution.

    Attributes
    ----------
    means : tuple of float
        The true scores of L models, best first, strictly between 0 and 1.
    strength : float
        s: the questions of a model have p ~ Beta(s·m, s(1−m)); for small s, p is near 0 or 1.
    n_questions : int
        M.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.
    """

    means: tuple[float, ...]
    strength: float
    n_questions: int = field(metadata=json_name("questions"))

    def __post_init__(self) -> None:
        means = check_sequence("means", self.means, "be true scores", _MOST_MODELS)
        numbers = [number for number in map(as_real, means) if number is not None]
        if not means or len(numbers) < len(means) or not all(0.0 < p < 1.0 for p in numbers):
            rule = "be true scores strictly between 0 and 1"
            raise InvalidInputError.of("means", "range", rule, list(means))
        rule = "be a number from 0.001 to 1e6"
        check_real("strength", self.strength, rule, lambda s: 1e-3 <= s <= 1e6)
        check_integer("questions", self.n_questions, 1, 100_000)
        object.__setattr__(self, "means", tuple(sorted(numbers, reverse=True)))

    @classmethod
    def even(
        cls, n_models: int, mean: float, gap: float, strength: float, n_questions: int
    ) -> SimulatedBenchmark:
        """Return models of evenly spaced true scores around a mean.

        Raises
        ------
        InvalidInputError
            If they do not all lie between 0 and 1.

        Examples
        --------
        >>> [round(mean, 3) for mean in SimulatedBenchmark.even(3, 0.4, 0.05, 2.0, 30).means]
        [0.45, 0.4, 0.35]
        """
        n_models = check_integer("models", n_models, 1, _MOST_MODELS)
        middle = (n_models - 1) / 2
        spacing = check_real("gap", gap, "be a number from 0 to 1", lambda x: 0.0 <= x < 1.0)
        if not middle * spacing < min(mean, 1.0 - mean):
            rule = f"leave {n_models} models around {mean:g} strictly between 0 and 1"
            raise InvalidInputError.of("gap", "range", rule, gap)
        means = [mean + spacing * (middle - i) for i in range(n_models)]
        return cls(tuple(means), strength, n_questions)

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names: a letter or number, and the true score."""
        letters = [*string.ascii_uppercase, *map(str, range(27, _MOST_MODELS + 1))]
        return tuple(f"{name} {mean:.3f}" for name, mean in zip(letters, self.means, strict=False))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**super().to_dict(), "models": list(self.names)}


def matrix_file(benchmark: SimulatedBenchmark, n_trials: int, seed: int) -> bytes:
    """Return a CSV file of simulated outcomes that `read_runs` reads.

    It has a row for every model and question, and a column for every trial.

    Raises
    ------
    InvalidInputError
        If there would be more than 200 million trials.

    Examples
    --------
    >>> benchmark = SimulatedBenchmark((0.7, 0.3), 2.0, 2)
    >>> print(matrix_file(benchmark, 3, 5).decode().strip())
    task,model,question,trial 1,trial 2,trial 3
    simulated,A 0.700,q1,0,0,0
    simulated,A 0.700,q2,1,1,1
    simulated,B 0.300,q1,0,1,1
    simulated,B 0.300,q2,0,0,1
    """
    # row means are exactly the true scores
    p = mimics_with_means(benchmark.means, benchmark.n_questions, strength=benchmark.strength)
    R = simulate_outcomes(p, n_trials, seed=seed)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["task", "model", "question", *(f"trial {i + 1}" for i in range(n_trials))])
    for name, questions in zip(benchmark.names, R.tolist(), strict=True):
        for number, outcomes in enumerate(questions, 1):
            writer.writerow([TASK, name, f"q{number}", *outcomes])
    return text.getvalue().encode()


# -- coverage of intervals ----------------------------------------------------------------------


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
        Values of N, rising.
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

    Examples
    --------
    On a hard benchmark, intervals under the uniform prior of bayes@N have no coverage:

    >>> hard = SimulatedBenchmark.even(1, 0.09, 0.0, 2.2, 30)
    >>> studies = interval_study(hard, [4], IntervalSpec(method="beta"), replicates=40)
    >>> [(study.method, study.coverage > 0.8, study.coverage < 0.1) for study in studies[:2]]
    [('hbayes@N', True, False), ('bayes@N', False, True)]
    """
    s = benchmark.strength
    studies = []
    for n in trials:
        by_method: dict[str, list[tuple[float, ...]]] = {}
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
        interval = posterior.interval_by(spec)
        intervals[method] = (posterior.mu, interval.low, interval.high)
    clt_method = clt_interval if spec.scope == "population" else within_question_clt
    if (outcomes.n_questions if spec.scope == "population" else n) > 1:
        clt = clt_method(outcomes, spec.level)
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
