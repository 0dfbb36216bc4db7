"""The grade that a task's own metric gives to one response."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: What a metric of programs returns for one response.
_ONE_PROGRAM = "pass@1"


def check_metrics(
    task: str, metrics: Mapping[str, Any], chosen: Sequence[str], has_grader: bool
) -> None:
    """Check the metrics that grade the trials; one line of the log names those left out.

    Parameters
    ----------
    task : str
        The task's name.
    metrics : mapping of str to callable or None
        The metrics that the task lists, with the harness's functions.
    chosen : sequence of str
        The metrics that are outcomes of the trials.
    has_grader : bool
        Whether the task has a `process_results` of its own.

    Raises
    ------
    TaskConfigError
        If one of them is no metric of the task, or nothing computes it.
    """
    names = list(metrics)
    if "bayes" in names:
        sentence = (
            f"task {task}: the metric `bayes` is for YAMLs without this class; "
            "with it, list the metric that grades one response (such as exact_match)"
        )
        raise TaskConfigError(sentence, "conflict", "metric_list", "bayes")
    for metric in chosen or ("none",):
        if metric not in names:
            sentence = (
                f"task {task}: `bayes_metric` must be one of the task's metrics "
                f"({', '.join(names) or 'there is none'}); got {metric!r}"
            )
            raise TaskConfigError(sentence, "choice", "bayes_metric", metric)
        if metrics[metric] is None and not has_grader:
            sentence = (
                f"task {task}: the harness has no metric `{metric}`, and there is no "
                "`process_results` function that would give it"
            )
            raise TaskConfigError(sentence, "missing", "process_results", metric)
    others = [name for name in names if name not in chosen]
    if others:
        verb = "is" if len(others) == 1 else "are"
        message = "task %s: trials are graded by %s; %s %s left out (`bayes_metric` chooses)"
        log.info(message, task, join_words(chosen), join_words(others), verb)


def takes_list(options: Mapping[str, Any]) -> bool:
    """Return whether a metric takes the list of a question's responses: it has a ``k``."""
    return "k" in options


def single_result(result: Any, name: str) -> Any:
    """Return a metric's result with the score of one response under the metric's own name.

    Parameters
    ----------
    result : object
        What the task's grading returns; other things than mappings come back as they are.
    name : str
        The metric.

    Examples
    --------
    >>> single_result({"pass@1": 1.0}, "pass_at_k")
    {'pass@1': 1.0, 'pass_at_k': 1.0}
    """
    if isinstance(result, Mapping) and name not in result and _ONE_PROGRAM in result:
        return {**result, name: result[_ONE_PROGRAM]}
    return result


def category_of(value: object, top: int, metric: str) -> int:
    """Return the category 0..top that a metric gave.

    Parameters
    ----------
    value : object
        The metric's value for one response.
    top : int
        The best category, C.
    metric : str
        The task and its metric, for the message.

    Raises
    ------
    TaskConfigError
        If the value is no such category.
    """
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    if not number.is_integer() or not 0 <= number <= top:
        sentence = (
            f"{metric} must grade a response with a category 0..{top}; got {_shown(value)} (choose "
            "another with bayes_metric, give bayes_weights one entry a category, or, for a score, "
            "bayes_bounds as in [0, 1])"
        )
        raise TaskConfigError(sentence, "range", "metric_list", value)
    return int(number)


def _shown(value: object) -> str:
    """Return a metric's value for a message; numbers of numpy as numbers."""
    number = float(value) if isinstance(value, numbers.Real) else None
    return f"{value!r:.80}" if number is None else repr(number)


def is_list_of_grades(value: object) -> bool:
    """Return whether a metric gave one response a list of zeros and ones, one a part of it."""
    parts = value if isinstance(value, (list, tuple)) and value else [math.nan]
    return all(isinstance(part, numbers.Real) and float(part) in (0.0, 1.0) for part in parts)


#: How far a score may lie beyond a bound by rounding, as a share of their distance.
_ROUNDING = 1e-6


def score_of(value: object, bounds: tuple[float, float] | None, metric: str) -> float:
    """Return the score that a metric gave: a number, or the mean of a list of zeros and ones.

    One that lies beyond a bound by rounding is that bound.

    Parameters
    ----------
    value : object
        The metric's value for one response.
    bounds : tuple of float, or None
        The lowest and the highest score; None for 0 and 1, where none are given.
    metric : str
        The task and its metric, for the message.

    Raises
    ------
    TaskConfigError
        If the value is no number within the bounds.
    """
    if isinstance(value, (list, tuple)) and is_list_of_grades(value):
        value = math.fsum(value) / len(value)
    low, high = bounds or (0.0, 1.0)
    score = float(value) if isinstance(value, numbers.Real) else math.nan
    if not max(low - score, score - high) <= _ROUNDING * (high - low):
        range_of = f"a score from {low:g} to {high:g}, its bayes_bounds; got {_shown(value)}"
        if bounds is None:
            range_of = (
                f"0, 1 or a score between; got {_shown(value)} (give bayes_bounds, or bounds "
                "beside a listed metric, the lowest and the highest value, such as [0, 100] of "
                "ROUGE or BLEU in percent and [1, 10] of a judge; or bayes_weights, one entry a "
                "category; or choose another metric with bayes_metric)"
            )
        raise TaskConfigError(
            f"{metric} must give a response {range_of}", "range", "metric_list", value
        )
    return min(max(score, low), high)
