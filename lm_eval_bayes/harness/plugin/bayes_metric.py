"""The metric `bayes` and its aggregation, for YAMLs that keep their own task class.

Importing this module registers both.

A user adds three lines to a `generate_until` YAML with `repeats: N`::

    metric_list:
      - metric: bayes
        aggregation: bayes
        higher_is_better: true

The task's filters stay, but for steps that throw responses away. Another metric in the list grades
each response in the place of `exact_match`. The metric returns a dictionary of rows, and the
harness carries the aggregation of `bayes` over to each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lm_eval.api.metrics  # noqa: F401  first: the harness fills a registry only while it is empty
from lm_eval.api.registry import aggregation_registry, register_metric

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading.grade import grade
from lm_eval_bayes.harness.grading.task_metric import grade_by_metric
from lm_eval_bayes.harness.task import result_rows as rows
from lm_eval_bayes.harness.task.answers import (
    EXACT_MATCH_OPTIONS,
    AnswerSource,
    answer_of,
)
from lm_eval_bayes.harness.task.logged_fields import endings
from lm_eval_bayes.harness.task.settings import KEYS, Settings

log = get_logger(__name__)

#: How one response is graded against the gold answer.
GRADERS = ("exact_match", "math", "aime")

#: Where the task class does what the metric cannot.
USE_THE_CLASS = (
    "use the task class instead, which grades response by response: in a YAML of its own, "
    "`include:` this one and add "
    "`class: !function lm_eval_bayes.tasks.RepeatedSamplingTask`"
)


@dataclass(frozen=True)
class TaskGrading:
    """What the metric has to know of a task, found when the task is built.

    Attributes
    ----------
    task : str
        Its name.
    settings : Settings
        Its settings. Several ranks pad the last question; what is beyond its N is dropped.
    metric : str
        The metric that grades a response.
    function : callable
        It, as the harness calls it.
    options : mapping
        Its options in the YAML.
    sources : mapping of str to AnswerSource
        Where the answers come from, by filter pipeline.
    fallbacks : mapping of str to frozenset of str
        What a pipeline returns where it finds nothing.
    """

    task: str
    settings: Settings
    metric: str
    function: Callable[..., Any]
    options: Mapping[str, Any]
    sources: Mapping[str, AnswerSource]
    fallbacks: Mapping[str, frozenset[str]]


def settings_of(options: Mapping[str, Any], n: int) -> Settings:
    """Read the options beside `- metric: bayes`; they are the `bayes_*` settings, unprefixed.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If an option is unknown or breaks its rule.
    """
    setting_names = {key.removeprefix("bayes_") for key in KEYS} - {
        "n",
        "metric",
        "cluster",
        "bounds",
        "threshold",
        "protocol",
        "chat_template",
    }
    option_names = sorted({*setting_names, "grader", *EXACT_MATCH_OPTIONS})
    for option in options:
        if option not in option_names:
            sentence = (
                f"metric bayes has no option `{option}`; the options are {', '.join(option_names)}"
            )
            raise TaskConfigError(sentence, "unknown-key", "bayes", option)
    grader = options.get("grader", "exact_match")
    if grader not in GRADERS:
        sentence = f"`grader` of metric bayes must be one of {', '.join(GRADERS)}; got {grader!r}"
        raise TaskConfigError(sentence, "choice", "grader", grader)
    values = {f"bayes_{k}": v for k, v in options.items() if k in setting_names}
    return Settings.from_metadata(values, n, categories=2)


def aggregate_bayes(items: Sequence[rows.RowValue]) -> float:
    """Compute the row that the items belong to, over all questions."""
    return rows.aggregate(items)


def bayes(
    references: Sequence[Any],
    predictions: Sequence[Any],
    task_grading: TaskGrading,
    **options: Any,
) -> dict[str, rows.RowValue]:
    """Grade the N responses to one question and return every row for it.

    Parameters
    ----------
    references : sequence
        One entry: the gold answer.
    predictions : sequence
        One entry: the list of N responses, which a `keep_all` filter leaves.
    task_grading : TaskGrading
        What is known of the task, see :func:`lm_eval_bayes.harness.plugin.wrappers.install`.
    **options
        The `bayes_*` settings without the prefix; `grader` (`exact_match`, `math` or
        `aime`); and the options of the harness's `exact_match`.

    Raises
    ------
    TaskConfigError
        If one response came where N were expected.
    """
    responses = predictions[0]
    if not isinstance(responses, (list, tuple)):
        sentence = (
            "metric bayes must get all responses to a question; got one response, because the "
            "filter pipeline does not end in `- function: keep_all` (the harness's default, "
            "take_first, throws the others away)"
        )
        raise TaskConfigError(sentence, "type", "predictions", responses)
    settings = task_grading.settings
    pipeline = str(getattr(responses, "pipeline", "none"))
    source = task_grading.sources[pipeline]
    if options.get("grader", "exact_match") != "exact_match":
        source = "grader"
    graded = [
        _grade(response, references[0], options, pipeline, task_grading)
        for response in responses[: settings.n]
    ]
    for trial, (_, _, error) in enumerate(graded):
        if error is not None:
            log.warning(
                "metric bayes: grading failed on trial %d of the question whose answer is %.80s; "
                "counted as wrong: %s",
                trial,
                references[0],
                error,
            )
    origin = f"task {task_grading.task}, filter {pipeline}"
    ends = endings(getattr(responses, "raw", responses)[: settings.n])
    record = rows.GradedResponses.of(graded, settings, answer_source=source, origin=origin, **ends)
    return dict(rows.question_rows(record))


def _grade(
    response: Any,
    gold: Any,
    options: Mapping[str, Any],
    pipeline: str,
    task_grading: TaskGrading,
) -> rows.Grading:
    grader = options.get("grader", "exact_match")
    try:
        if grader != "exact_match":
            result = grade(str(response), gold, kind=grader)
            return int(result.correct), result.answer, result.error
        name, flags = task_grading.metric, task_grading.options
        category = grade_by_metric(name, task_grading.function, flags, str(gold), str(response))
        compared = flags if name == "exact_match" else None
        return category, answer_of(response, task_grading.fallbacks[pipeline], compared), None
    except LmEvalBayesError:
        raise
    except Exception as error:
        return 0, None, f"{type(error).__name__}: {error}"


aggregation_registry.register("bayes")(aggregate_bayes)
register_metric(
    metric="bayes",
    higher_is_better=True,
    output_type="generate_until",
    aggregation="bayes",
)(bayes)
