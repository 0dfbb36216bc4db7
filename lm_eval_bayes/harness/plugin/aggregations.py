"""The aggregations of this package for any metric of a task that gives one value a response.

They stand under a metric in the place of `mean`, with their options beside it::

    metric_list:
      - metric: exact_match
        aggregation: pass_at_k
        k: 4
        higher_is_better: true

Of one trial a question an item is a number; of N trials it is their :class:`TrialValues`. What
cannot be computed is NaN, with a warning: the harness saves the responses after the aggregation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import lm_eval_bayes as api
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task import result_rows as rows
from lm_eval_bayes.stats import ScoreOutcomes, vote_candidates

log = get_logger(__name__)

#: The options of each aggregation, True for those that must be given.
OPTIONS: Mapping[str, Mapping[str, bool]] = {
    "bayes": {"scope": False, "bounds": False},
    "avg_at_n": {"bounds": False},
    "pass_at_k": {"k": True},
    "pass_hat_k": {"k": True},
    "g_pass_at_k": {"k": True, "tau": False},
    "mg_pass_at_k": {"k": True},
    "maj_at_k": {"k": True},
}


class TrialValues(list[Any]):
    """What a metric gave the N responses to one question, one value a trial.

    Attributes
    ----------
    options : mapping
        The options of the aggregation.
    answers : sequence of str or None
        The answers of the responses, for a vote.
    """

    def __init__(
        self,
        values: Iterable[Any],
        options: Mapping[str, Any],
        answers: Sequence[str | None] = (),
    ) -> None:
        super().__init__(values)
        self.options, self.answers = options, answers


class Mean(float):
    """A number of an aggregation, with its sd."""

    sigma: float

    def __new__(cls, value: float, sigma: float) -> Mean:
        """Build the number."""
        self = super().__new__(cls, value)
        self.sigma = sigma
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, for what is sent between processes."""
        return Mean, (float(self), self.sigma)


class LoneValue(rows.RowValue):
    """A row that is reported by itself, without the others of its posterior."""


Items = Sequence[Any]


def _nan_where_invalid(aggregation: Callable[[Items], float]) -> Callable[[Items], float]:
    @functools.wraps(aggregation)
    def aggregate(items: Items) -> float:
        try:
            return aggregation(items)
        except InvalidInputError as error:
            log.warning("aggregation %s has no number: %s", aggregation.__name__, error)
            return math.nan

    return aggregate


def _options(items: Items) -> Mapping[str, Any]:
    return items[0].options if items and isinstance(items[0], TrialValues) else {}


def _outcomes(items: Items) -> api.Outcomes:
    """Return the trials of all questions: right or wrong, or scores between two bounds."""
    values = [item if isinstance(item, (list, tuple)) else [item] for item in items]
    bounds = _options(items).get("bounds")
    if bounds is None and all(value in (0, 1) for row in values for value in row):
        return api.Outcomes.from_counts([[len(row) - sum(row), sum(row)] for row in values])
    return ScoreOutcomes.from_scores(values, tuple(bounds or (0.0, 1.0)))


def _k(items: Items) -> int:
    if "k" not in _options(items):
        raise InvalidInputError.of("k", "missing", "stand beside the aggregation", None)
    return int(_options(items)["k"])


@_nan_where_invalid
def bayes(items: Items) -> float:
    """Return the posterior mean of the score, and its sd as Stderr; of rows, the row.

    The prior is learned across the questions, see :func:`lm_eval_bayes.hbayes_at_n`. The option
    `scope` is "population" as for the harness's Stderr, or "benchmark"; `bounds` are [0, 1].
    """
    if items and isinstance(items[0], rows.RowValue):
        number: Any = rows.aggregate(items)
        return float(number) if isinstance(items[0], LoneValue) else number
    scope = _options(items).get("scope", "population")
    posterior = api.hbayes_at_n(_outcomes(items), scope)
    if posterior.note is not None:
        log.warning("aggregation bayes: %s", posterior.note)
    return Mean(posterior.mu, posterior.sigma)


@_nan_where_invalid
def avg_at_n(items: Items) -> float:
    """Return avg@N, and σ_avg as Stderr [Hariri 2026, eq. 20]."""
    average = api.avg_at_n(_outcomes(items))
    return Mean(average.value, float(average.sigma or 0.0))


@_nan_where_invalid
def pass_at_k(items: Items) -> float:
    """Return Pass@k [Chen 2021]; the option `k` is at most N."""
    return api.pass_at_k(_outcomes(items), _k(items)).value


@_nan_where_invalid
def pass_hat_k(items: Items) -> float:
    """Return Pass^k [Yao 2024]; the option `k` is at most N."""
    return api.pass_hat_k(_outcomes(items), _k(items)).value


@_nan_where_invalid
def g_pass_at_k(items: Items) -> float:
    """Return G-Pass@k_τ [Liu 2025]; the option `tau` is 0.5 unless given."""
    return api.g_pass_at_k(_outcomes(items), _k(items), _options(items).get("tau", 0.5)).value


@_nan_where_invalid
def mg_pass_at_k(items: Items) -> float:
    """Return mG-Pass@k [Liu 2025]; the option `k` is at most N."""
    return api.mg_pass_at_k(_outcomes(items), _k(items)).value


@_nan_where_invalid
def maj_at_k(items: Items) -> float:
    """Return maj@k: the expected credit of a vote of k trials; the option `k` is at most N."""
    answers = [getattr(item, "answers", ()) for item in items]
    values = [item if isinstance(item, (list, tuple)) else [item] for item in items]
    if any(len(a) != len(v) for a, v in zip(answers, values, strict=True)):
        rule = "come from responses with answers, of a generate_until task"
        raise InvalidInputError.of("answers", "missing", rule, None)
    return api.maj_at_k(*vote_candidates(answers, values), _k(items)).value
