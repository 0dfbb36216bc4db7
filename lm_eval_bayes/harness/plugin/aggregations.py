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
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import lm_eval_bayes as api
from lm_eval_bayes._util.validation import check_pair
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task import result_rows as rows
from lm_eval_bayes.stats import Scope, ScoreOutcomes, vote_candidates

log = get_logger(__name__)

Items = Sequence[Any]


class TrialValues(list[Any]):
    """What a metric gave the N responses to one question, one value a trial.

    Attributes
    ----------
    answers : sequence of str or None
        The answers of the responses, for a vote.
    """

    def __init__(self, values: Iterable[Any], answers: Sequence[str | None] = ()) -> None:
        super().__init__(values)
        self.answers = answers


class Mean(float):
    """A number of an aggregation; its `sigma` is put beside it when the evaluation has ended."""

    sigma: float | None = None


class LoneValue(rows.RowValue):
    """A row that is reported by itself, without the others of its posterior."""


def options_of(
    aggregation: Callable[..., float], given: Mapping[str, Any], n: int
) -> dict[str, Any]:
    """Return the options of an aggregation among those beside a metric, checked for N trials.

    Raises
    ------
    TaskConfigError
        If one is missing.
    InvalidInputError
        If one breaks its rule.
    """
    _, *parameters = inspect.signature(aggregation).parameters.values()
    for option in parameters:
        if option.default is option.empty and option.name not in given:
            sentence = f"`aggregation: {aggregation.__name__}` needs `{option.name}` beside it"
            raise TaskConfigError(sentence, "missing", option.name)
    options = {option.name: given[option.name] for option in parameters if option.name in given}
    bounds, rule = options.get("bounds", [0, 1]), "be the lowest and the highest value"
    lowest, _ = check_pair("bounds", bounds, rule, lambda low, high: low < high)
    inspect.unwrap(aggregation)([TrialValues([lowest] * n, [""] * n)], **options)
    return options


def _aggregation(compute: Callable[..., Any]) -> Callable[..., float]:
    """Return the aggregation that a function computes."""

    @functools.wraps(compute)
    def aggregate(items: Items, **options: Any) -> float:
        try:
            result = compute(items, **options)
        except (InvalidInputError, TypeError) as error:
            log.warning("aggregation %s has no number: %s", compute.__name__, error)
            return math.nan
        if isinstance(result, float):
            return result
        if (note := getattr(result, "note", None)) is not None:
            log.warning("aggregation %s: %s", compute.__name__, note)
        number = Mean(result.mu if isinstance(result, api.Posterior) else result.value)
        number.sigma = result.sigma
        return number

    return aggregate


def _values(items: Items) -> list[Sequence[Any]]:
    return [item if isinstance(item, (list, tuple)) else [item] for item in items]


def _outcomes(items: Items, bounds: Any = None) -> Any:
    """Return the trials of all questions: right or wrong, or scores between two bounds."""
    values = _values(items)
    if bounds is None and all(value in (0, 1) for row in values for value in row):
        return api.Outcomes.from_counts([[len(row) - sum(row), sum(row)] for row in values])
    return ScoreOutcomes.from_scores(values, (0.0, 1.0) if bounds is None else bounds)


@_aggregation
def bayes(items: Items, scope: Scope = "population", bounds: Any = None) -> Any:
    """Return the posterior mean of the score, and its sd as Stderr; of rows, the row.

    The prior is learned across the questions, see :func:`lm_eval_bayes.hbayes_at_n`. The option
    `scope` is "population" as for the harness's Stderr, or "benchmark"; `bounds` are [0, 1].
    """
    if isinstance(items[0], rows.RowValue):
        number = rows.aggregate(items)
        return float(number) if isinstance(items[0], LoneValue) else number
    return api.hbayes_at_n(_outcomes(items, bounds), scope)


@_aggregation
def avg_at_n(items: Items, bounds: Any = None) -> Any:
    """Return avg@N, and σ_avg as Stderr [Hariri 2026, eq. 20]."""
    return api.avg_at_n(_outcomes(items, bounds))


@_aggregation
def pass_at_k(items: Items, k: int) -> Any:
    """Return Pass@k [Chen 2021]; the option `k` is at most N."""
    return api.pass_at_k(_outcomes(items), k)


@_aggregation
def pass_hat_k(items: Items, k: int) -> Any:
    """Return Pass^k [Yao 2024]; the option `k` is at most N."""
    return api.pass_hat_k(_outcomes(items), k)


@_aggregation
def g_pass_at_k(items: Items, k: int, tau: float = 0.5) -> Any:
    """Return G-Pass@k_τ [Liu 2025]; the option `tau` is 0.5 unless given."""
    return api.g_pass_at_k(_outcomes(items), k, tau)


@_aggregation
def mg_pass_at_k(items: Items, k: int) -> Any:
    """Return mG-Pass@k [Liu 2025]; the option `k` is at most N."""
    return api.mg_pass_at_k(_outcomes(items), k)


@_aggregation
def maj_at_k(items: Items, k: int) -> Any:
    """Return maj@k: the expected credit of a vote of k trials; the option `k` is at most N."""
    answers, values = [getattr(item, "answers", [""]) for item in items], _values(items)
    if any(len(a) != len(v) for a, v in zip(answers, values, strict=True)):
        rule = "come from a filter of a generate_until task, or from `process_results` as `answer`"
        raise InvalidInputError.of("answers", "missing", rule, None)
    return api.maj_at_k(*vote_candidates(answers, values), k)
