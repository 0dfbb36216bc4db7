"""The rows of a results table, computed from the trials of one question or of many.

Every value that a task hands to the harness is a :class:`RowValue`: the number for
one question, carrying that question's trials along. The harness gathers these over
ranks and gives them back to :func:`aggregate`, which computes the row for all questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

import lm_eval_bayes as api
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.stats.intervals import IntervalMethod, Scope

log = get_logger(__name__)


@dataclass(frozen=True)
class QuestionTrials:
    """The graded trials of one question.

    Attributes
    ----------
    outcomes : tuple of int
        The category of each trial, 0..C.
    answers : tuple
        The extracted answer of each trial; None if there is none.
    grading_errors : int
        How many trials the grader failed on (they count as category 0).
    settings : Settings
        The run's settings.
    """

    outcomes: tuple[int, ...]
    answers: tuple[str | None, ...]
    grading_errors: int
    settings: Settings


class RowValue(float):
    """One row's number for one question, with the trials it came from."""

    row: str
    trials: QuestionTrials

    def __new__(cls, value: float, row: str, trials: QuestionTrials) -> RowValue:
        """Build the number; `row` is the row's name."""
        self = super().__new__(cls, value)
        self.row = row
        self.trials = trials
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, for the gather over ranks."""
        return RowValue, (float(self), self.row, self.trials)


class _Bank:
    """Trials of one or many questions in the form that the kernels take."""

    def __init__(self, trials: Sequence[QuestionTrials], quick: bool = False) -> None:
        self.trials = trials
        self.quick = quick
        self.settings = trials[0].settings

    @cached_property
    def outcomes(self) -> api.Outcomes:
        width = len(self.settings.weights)
        counts = [np.bincount(t.outcomes, minlength=width) for t in self.trials]
        return api.Outcomes.from_counts(np.stack(counts), weights=self.settings.weights)

    @cached_property
    def posterior(self) -> api.Posterior:
        return api.bayes_at_n(self.outcomes)

    def learned(self, scope: Scope) -> api.Posterior:
        outcomes, seed = self.outcomes, self.settings.seed
        counts = tuple(map(tuple, outcomes.counts.tolist()))
        return _learned(counts, self.settings.weights, scope, seed)

    def interval(self, posterior: api.Posterior) -> api.Interval:
        s = self.settings
        if self.quick:
            method: IntervalMethod = "beta" if posterior.learned is not None else s.interval
            return posterior.interval(s.level, method, seed=s.seed, draws=4000)
        return posterior.interval(s.level, s.interval, seed=s.seed)

    @cached_property
    def average(self) -> Any:
        return api.avg_at_n(self.outcomes)

    def majority(self) -> float:
        # All right answers are one candidate, however they are written.
        answers = [
            [RIGHT if c else a for a, c in zip(t.answers, t.outcomes, strict=True)]
            for t in self.trials
        ]
        correct = [[bool(c) for c in t.outcomes] for t in self.trials]
        s = self.settings
        return float(api.maj_at_k(answers, correct, s.maj_k, seed=s.seed).value)


@lru_cache(maxsize=1024)
def _learned(
    counts: tuple[tuple[int, ...], ...], weights: tuple[float, ...], scope: Scope, seed: int
) -> api.Posterior:
    # Several rows need one posterior, and many questions have the same counts.
    outcomes = api.Outcomes.from_counts(counts, weights=weights)
    return api.hbayes_at_n(outcomes, scope, seed=seed)


#: Stands for every correct answer in a vote; no text equals it.
RIGHT = ("right",)

_Row = Callable[[_Bank], float]


def _estimate(kernel: Callable[..., Any], k: int, **kwargs: Any) -> _Row:
    return lambda bank: float(kernel(bank.outcomes, k, **kwargs).value)


def _posterior_rows(name: str, find: Callable[[_Bank], api.Posterior]) -> dict[str, _Row]:
    """Return the rows of one posterior: mean, sd and the ends of its interval."""
    return {
        name: lambda bank: float(find(bank).mu),
        f"{name}_stderr": lambda bank: float(find(bank).sigma),
        f"{name}_low": lambda bank: float(bank.interval(find(bank)).low),
        f"{name}_high": lambda bank: float(bank.interval(find(bank)).high),
    }


def row_functions(settings: Settings) -> dict[str, _Row]:
    """Return the rows of a run in their order: name -> number from a bank of trials."""
    n = settings.n
    rows: dict[str, _Row] = {
        **_posterior_rows(f"hbayes@{n}", lambda bank: bank.learned("benchmark")),
        **_posterior_rows(f"hbayes@{n}_population", lambda bank: bank.learned("population")),
        **_posterior_rows(f"bayes@{n}", lambda bank: bank.posterior),
        f"avg@{n}": lambda bank: float(bank.average.value),
        f"avg@{n}_stderr": lambda bank: float(bank.average.sigma),
    }
    if settings.binary:
        # At k = 1 every estimator of the family equals avg@N.
        above_one = [k for k in settings.k if k > 1]
        tau = settings.tau
        rows |= {f"pass@{k}": _estimate(api.pass_at_k, k) for k in settings.k}
        rows |= {f"pass^{k}": _estimate(api.pass_hat_k, k) for k in above_one}
        rows |= {f"g-pass@{k}_{tau:g}": _estimate(api.g_pass_at_k, k, tau=tau) for k in above_one}
        rows |= {f"mg-pass@{k}": _estimate(api.mg_pass_at_k, k) for k in above_one}
        rows[f"maj@{settings.maj_k}"] = _Bank.majority
    rows["grading_errors"] = lambda bank: float(sum(t.grading_errors for t in bank.trials))
    return rows


def question_rows(trials: QuestionTrials) -> dict[str, RowValue]:
    """Compute every row for one question."""
    # Ends of single questions are only logged, so rough ones do where fine ones take long.
    bank = _Bank([trials], quick=True)
    return {
        name: RowValue(_guarded(name, row, bank), name, trials)
        for name, row in row_functions(trials.settings).items()
    }


def aggregate(values: Sequence[RowValue]) -> float | str:
    """Compute one row over all questions; this is the `bayes` aggregation.

    Parameters
    ----------
    values : sequence of RowValue
        The row's value of every question, in any order.

    Returns
    -------
    float or str
        The number; ``"N/A"`` for the sd of a single question on harness 0.4.12, which would
        divide by the number of questions less one when it pools the tasks of a group.
    """
    if not values or not all(isinstance(v, RowValue) for v in values):
        raise InvalidInputError.of(
            "values",
            "come from the metric `bayes` or from RepeatedSamplingTask, at least one",
            values[:1] if values else "none",
        )
    row = values[0].row
    if len(values) == 1 and row.endswith("_stderr") and _harness_pools():
        return "N/A"
    bank = _Bank([v.trials for v in values])
    number = _guarded(row, row_functions(bank.settings)[row], bank)
    if row == f"hbayes@{bank.settings.n}":
        note = bank.learned("benchmark").note
        if note is not None:
            log.warning("%s: %s", row, note)
    return number


def _harness_pools() -> bool:
    # From 0.4.13 on the harness can average sds over a group without pooling them.
    from lm_eval.api import metrics

    return not hasattr(metrics, "unweighted_mean_stderr")


def _guarded(name: str, row: _Row, bank: _Bank) -> float:
    # A run with missing trials still has every row that its remaining trials allow.
    try:
        return row(bank)
    except InvalidInputError as error:
        log.warning("row %s cannot be computed: %s", name, error)
        return math.nan


def higher_is_better(settings: Settings) -> dict[str, bool]:
    """Return the direction of every row: True for scores, False for errors."""
    names = [n for n in row_functions(settings) if not n.endswith("_stderr")]
    return {name: name != "grading_errors" for name in names}


class RowName(str):
    """The name of a row in a group's YAML, where N is known only at run time.

    A group lists the metrics to aggregate by name, but the name of `bayes@N` holds the run's N.
    When the evaluation begins, each group gets the names at the N of its tasks.
    """

    def at(self, n: int) -> str:
        """Return the row's name at `n` trials per question."""
        return self.replace("{n}", str(n))


HBAYES_AT_N = RowName("hbayes@{n}")
BAYES_AT_N = RowName("bayes@{n}")
AVG_AT_N = RowName("avg@{n}")


def aggregations(settings: Settings) -> dict[str, Callable[[Sequence[RowValue]], float | str]]:
    """Return the harness's map from row name to aggregation."""
    return dict.fromkeys(row_functions(settings), aggregate)
