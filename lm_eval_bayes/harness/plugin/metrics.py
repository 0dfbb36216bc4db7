"""The metrics `bayes`, `credible_interval` and `rubric` of a YAML that keeps its own task class.

A user adds three lines to a `generate_until` YAML with `repeats: N`::

    metric_list:
      - metric: bayes
        aggregation: bayes
        higher_is_better: true

Each returns a dictionary of rows, and the harness carries the aggregation over to each of them.
The N responses to a question are graded when they come, see
:mod:`lm_eval_bayes.harness.plugin.metric_lists`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.grading.grade import grade
from lm_eval_bayes.harness.plugin.aggregations import LoneValue
from lm_eval_bayes.harness.rubrics import result_rows as rubric_rows
from lm_eval_bayes.harness.rubrics.settings import RubricSettings
from lm_eval_bayes.harness.task.answers import EXACT_MATCH_OPTIONS
from lm_eval_bayes.harness.task.result_rows import GradedResponses, Grading, RowValue, question_rows
from lm_eval_bayes.harness.task.settings import Settings

#: How one response is graded against the gold answer.
GRADERS = ("exact_match", "math", "aime")

_OF_TRIALS = ("k", "tau", "maj_k", "interval", "level", "seed", "weights")
_OF_RUBRICS = ("schemata", "thresholds", "prior")

#: The options of each metric: the settings of the same names, without their prefix.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "bayes": (*_OF_TRIALS, "rows", "grader", *EXACT_MATCH_OPTIONS),
    "credible_interval": ("level", "interval", "seed", "grader", *EXACT_MATCH_OPTIONS),
    "rubric": ("level", "interval", "seed", "grader", *_OF_RUBRICS, *EXACT_MATCH_OPTIONS),
}


class GradedTrials(list[Any]):
    """The responses to one question, with the record of their grades.

    Attributes
    ----------
    record : GradedResponses
        The grades.
    task : str
        The task.
    signals : mapping
        The signals of the trials, for rubrics.
    """

    def __init__(
        self,
        responses: Iterable[Any],
        record: GradedResponses,
        task: str = "",
        signals: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(responses)
        self.record, self.task, self.signals = record, task, signals or {}


def settings_of(metric: str, options: Mapping[str, Any], n: int) -> Settings:
    """Read the options beside a metric.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If an option is unknown or breaks its rule.
    """
    for option in options:
        if option not in OPTIONS[metric]:
            listed = ", ".join(sorted(OPTIONS[metric]))
            sentence = f"metric {metric} has no option `{option}`; the options are {listed}"
            raise TaskConfigError(sentence, "unknown-key", metric, option)
    grader = options.get("grader", "exact_match")
    if grader not in GRADERS:
        sentence = (
            f"`grader` of metric {metric} must be one of {', '.join(GRADERS)}; got {grader!r}"
        )
        raise TaskConfigError(sentence, "choice", "grader", grader)
    values = {f"bayes_{k}": options[k] for k in (*_OF_TRIALS, "rows") if k in options}
    return Settings.from_metadata(values, n, categories=2)


def rubrics_of(options: Mapping[str, Any]) -> RubricSettings:
    """Read the options of the metric `rubric`."""
    return RubricSettings.from_metadata(
        {f"rubric_{key}": options[key] for key in _OF_RUBRICS if key in options}
    )


def _trials(
    metric: str, references: Sequence[Any], predictions: Sequence[Any], options: Mapping[str, Any]
) -> GradedTrials:
    """Return the graded responses to a question; graded here if they come from the harness."""
    given, grader = predictions[0], options.get("grader", "exact_match")
    if isinstance(given, GradedTrials):
        return given
    responses, gold = given if isinstance(given, (list, tuple)) else [given], str(references[0])
    settings = settings_of(metric, options, len(responses))
    graded: list[Grading] = []
    for response in map(str, responses):
        if grader == "exact_match":
            graded.append((int(response == gold), response, None))
        else:
            result = grade(response, gold, kind=grader)
            graded.append((int(result.correct), result.answer, result.error))
    return GradedTrials(responses, GradedResponses.of(graded, settings))


def bayes(
    references: Sequence[Any], predictions: Sequence[Any], **options: Any
) -> dict[str, RowValue]:
    """Return every row of a task of this package for one question.

    Parameters
    ----------
    references : sequence
        One entry: the gold answer.
    predictions : sequence
        One entry: the N responses, or one.
    **options
        Those of :data:`OPTIONS`.
    """
    return dict(question_rows(_trials("bayes", references, predictions, options).record))


def credible_interval(
    references: Sequence[Any], predictions: Sequence[Any], **options: Any
) -> dict[str, RowValue]:
    """Return the ends of the intervals of hbayes@N and bayes@N, with the option `level`."""
    trials = _trials("credible_interval", references, predictions, options)
    settings = settings_of("credible_interval", options, len(trials))
    rows = question_rows(replace(trials.record, settings=settings))
    return {
        name: LoneValue(float(value), name, value.question)
        for name, value in rows.items()
        if re.fullmatch(r"h?bayes@\d+_(low|high)", name)
    }


def rubric(
    references: Sequence[Any], predictions: Sequence[Any], **options: Any
) -> dict[str, RowValue]:
    """Return the rows of the rubrics whose signals the trials of a question have."""
    trials, rubrics = _trials("rubric", references, predictions, options), rubrics_of(options)
    settings = settings_of("rubric", options, len(trials))
    signals = rubric_rows.QuestionSignals(
        columns=trials.signals,
        task=trials.task,
        rubrics=tuple(s for s in rubrics.rubrics if trials.signals.keys() >= set(s.needs)),
        thresholds=None if rubrics.thresholds is None else rubrics.thresholds.of(trials.task),
        prior=rubrics.prior,
        settings=settings,
    )
    names = rubric_rows.printed_names(signals.rubrics, settings.n)
    return {name: RowValue(math.nan, name, signals) for name in names}
