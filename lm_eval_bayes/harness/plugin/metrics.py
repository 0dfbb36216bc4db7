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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.plugin.aggregations import LoneValue
from lm_eval_bayes.harness.rubrics import result_rows as rubric_rows
from lm_eval_bayes.harness.rubrics.result_rows import RubricSettings
from lm_eval_bayes.harness.task.pipelines import EXACT_MATCH_OPTIONS
from lm_eval_bayes.harness.task.result_rows import GradedResponses, RowValue, question_rows
from lm_eval_bayes.harness.task.settings import Settings

_OF_INTERVALS = ("level", "interval", "seed")
_OF_OUTCOMES = ("weights", "bounds", "threshold")
_OF_RUBRICS = ("schemata", "thresholds", "prior")

#: The options of each metric: the settings of the same names, without their prefix.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "bayes": ("k", "tau", "maj_k", *_OF_INTERVALS, *_OF_OUTCOMES, *EXACT_MATCH_OPTIONS),
    "credible_interval": (*_OF_INTERVALS, "bounds", *EXACT_MATCH_OPTIONS),
    "rubric": (*_OF_INTERVALS, *_OF_RUBRICS, *EXACT_MATCH_OPTIONS),
}


@dataclass(frozen=True)
class GradedTrials:
    """The graded responses to one question.

    Attributes
    ----------
    record : GradedResponses
        The grades.
    task : str
        The task.
    signals : mapping
        The signals of the trials, for rubrics.
    """

    record: GradedResponses
    task: str = ""
    signals: Mapping[str, Any] = field(default_factory=dict)


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
    others = (*_OF_RUBRICS, *EXACT_MATCH_OPTIONS)
    values = {f"bayes_{key}": value for key, value in options.items() if key not in others}
    return Settings.from_metadata(values, n, categories=2)


def rubrics_of(options: Mapping[str, Any]) -> RubricSettings:
    """Read the options of the metric `rubric`."""
    return RubricSettings.from_metadata(
        {f"rubric_{key}": options[key] for key in _OF_RUBRICS if key in options}
    )


def _trials(
    metric: str, references: Sequence[Any], predictions: Sequence[Any], options: Mapping[str, Any]
) -> GradedTrials:
    """Return the graded responses to a question; compared here if they come from the harness."""
    given = predictions[0]
    if not isinstance(given, GradedTrials):
        texts = list(map(str, given)) if isinstance(given, (list, tuple)) else [str(given)]
        graded = [(int(text == str(references[0])), text, None) for text in texts]
        given = GradedTrials(GradedResponses.of(graded, Settings.from_metadata({}, len(texts))))
    settings = settings_of(metric, options, given.record.settings.n)
    return replace(given, record=replace(given.record, settings=settings))


def bayes(
    references: Sequence[Any], predictions: Sequence[Any], **options: Any
) -> dict[str, RowValue]:
    """Return every row of a task of this package for one question.

    Parameters
    ----------
    references : sequence
        One entry: the gold answer.
    predictions : sequence
        One entry: the N responses, or one, or graded ones.
    **options
        Those of :data:`OPTIONS`.
    """
    return question_rows(_trials("bayes", references, predictions, options).record)


def credible_interval(
    references: Sequence[Any], predictions: Sequence[Any], **options: Any
) -> dict[str, RowValue]:
    """Return the ends of the intervals of hbayes@N and bayes@N, with the option `level`."""
    rows = question_rows(_trials("credible_interval", references, predictions, options).record)
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
    signals = rubric_rows.QuestionSignals(
        columns=trials.signals,
        task=trials.task,
        rubrics=tuple(s for s in rubrics.rubrics if trials.signals.keys() >= set(s.needs)),
        thresholds=None if rubrics.thresholds is None else rubrics.thresholds.of(trials.task),
        prior=rubrics.prior,
        settings=trials.record.settings,
    )
    names = rubric_rows.printed_names(signals.rubrics, signals.settings.n)
    return {name: RowValue(math.nan, name, signals) for name in names}
