"""The metrics `bayes`, `credible_interval` and `rubric` of a YAML that keeps its own task class.

A user adds three lines to a `generate_until` YAML with `repeats: N`::

    metric_list:
      - metric: bayes
        aggregation: bayes
        higher_is_better: true

Each returns a dictionary of rows, and the harness carries the aggregation over to each of them.

A task that lists one of them, or an aggregation of this package, is checked before sampling. Its
own metrics keep their rows. They also grade each of the N responses by itself, as in
:class:`RepeatedSamplingTask`, and that goes into the aggregations and metrics of this package.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lm_eval.api.registry import get_metric, metric_agg_registry
from lm_eval.api.task import ConfigurableTask

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.grading.task_metric import takes_list
from lm_eval_bayes.harness.plugin import aggregations
from lm_eval_bayes.harness.plugin.aggregations import LoneValue
from lm_eval_bayes.harness.rubrics import result_rows as rubric_rows
from lm_eval_bayes.harness.rubrics.result_rows import RubricSettings
from lm_eval_bayes.harness.task import pipelines
from lm_eval_bayes.harness.task.metrics import MetricOutcome, TrialGrader
from lm_eval_bayes.harness.task.pipelines import EXACT_MATCH_OPTIONS
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import LoggedResult
from lm_eval_bayes.harness.task.result_rows import (
    SHARES,
    GradedResponses,
    RowValue,
    question_rows,
    warn_once,
)
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals

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
    settings = replace(settings, prompts=given.record.settings.prompts)
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


#: The metrics by their names.
_METRICS = {"bayes": bayes, "credible_interval": credible_interval, "rubric": rubric}

#: Keys of an entry of `metric_list` that are no options.
_OF_HARNESS = ("metric", "aggregation", "higher_is_better", "hf_evaluate")

#: Aggregations of the harness for metrics that give a number for each question.
_MEANS = ("mean", "nanmean")

#: What a `process_results` returns beside the values of metrics.
_OF_GRADERS = ("answer", "grading_error")

_Options = Mapping[str, Mapping[str, Any]]


def prepare(task: Any) -> bool:
    """Let a task compute the metrics and aggregations of this package that it lists.

    Tasks that list none, and those of this package's classes, are not changed.

    Returns
    -------
    bool
        Whether something of this package is in use.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If an option breaks its rule, or the task cannot have what it lists.
    """
    if isinstance(task, RepeatedSamplingTask) or not isinstance(task, ConfigurableTask):
        return isinstance(task, RepeatedSamplingTask)
    options: dict[str, dict[str, Any]] = {}
    for entry in task.config.metric_list or ():
        metric = str(getattr(entry["metric"], "__name__", entry["metric"]))
        aggregation = task._aggregation_list.get(metric)
        is_ours = getattr(aggregation, "__module__", None) == aggregations.__name__
        if metric in OPTIONS or is_ours:
            options[metric] = {k: v for k, v in entry.items() if k not in _OF_HARNESS}
    if options and task.OUTPUT_TYPE == "generate_until":
        cls = type(task)
        task.__class__ = type(cls.__name__, (ListedMetrics, cls), {})
        task.list_metrics(options)
    else:
        _bind_options(task, options, 1)
    return bool(options)


def _bind_options(task: Any, options: _Options, n: int) -> _Options:
    """Bind the checked options of aggregations; return them by metric.

    The others stay the metrics' own.
    """
    bound = {}
    for metric, given in options.items():
        function = task._aggregation_list[metric]
        if metric in OPTIONS:
            sentence = (
                f"task {task.config.task}: metric {metric} must have `output_type: "
                f"generate_until`; got {task.OUTPUT_TYPE} (`aggregation: bayes` under the "
                "task's own metric has no such limit)"
            )
            raise TaskConfigError(sentence, "unsupported", "output_type", task.OUTPUT_TYPE)
        usual = metric_agg_registry.get(metric, None)
        if usual is not None and usual.__name__ not in _MEANS:
            sentence = (
                f"task {task.config.task}: `aggregation: {function.__name__}` must stand under "
                f"a metric that gives each question a number; got {metric}"
            )
            raise TaskConfigError(sentence, "unsupported", "aggregation", metric)
        bound[metric] = aggregations.options_of(function, given, n)
        # exact_match fails on an option that it lacks when it grades, which is after sampling
        if metric == "exact_match" and (
            others := given.keys() - {*bound[metric], *EXACT_MATCH_OPTIONS}
        ):
            listed = ", ".join(EXACT_MATCH_OPTIONS)
            sentence = (
                f"task {task.config.task}: {metric} with `aggregation: {function.__name__}` has no "
                f"option `{min(others)}`; those of the metric are {listed}"
            )
            raise TaskConfigError(sentence, "unknown-key", "metric_list", min(others))
        for option in bound[metric]:
            task._metric_fn_kwargs[metric].pop(option, None)
        aggregation = functools.partial(function, **bound[metric])
        task._aggregation_list[metric] = functools.update_wrapper(aggregation, function)
    return bound


class ListedMetrics(RepeatedSamplingTask):
    """What :func:`prepare` puts before the class of a `generate_until` task."""

    #: The task's own filters need the texts.
    reads_stored_texts = False

    def list_metrics(self, options: _Options) -> None:
        """Check what the task lists of this package; its own metrics stay the harness's."""
        config, name = self.config, str(self.config.task)
        keys = ("bayes_n", "bayes_prompts", "bayes_setting", "config_source")
        given = {k: v for k, v in (config.metadata or {}).items() if k in keys}
        asked = Settings.from_metadata(given, config.repeats, task=name)
        config.repeats = n = asked.n
        self._own_filters: list[Any] = self._filters
        self._filters: list[Any] = pipelines.built(
            pipelines.keep_all_responses(config.filter_list, name)
        )
        for pipeline in self._filters:
            out = pipelines.probe_output(pipeline, n, self.task_docs[0], ["0"], name)
            pipelines.check_keeps_all(pipeline, out, n, name)
        self._ours = {metric: options[metric] for metric in options if metric in OPTIONS}
        others = {metric: options[metric] for metric in options if metric not in OPTIONS}
        self._aggregated = _bind_options(self, others, n)
        if {"bayes", "credible_interval"} <= self._ours.keys():
            sentence = f"task {name}: `metric: bayes` has the rows of credible_interval; list one"
            raise TaskConfigError(sentence, "conflict", "metric_list", "credible_interval")
        of_ours = {metric: self._settings_of(metric, n) for metric in self._ours}
        self._has_own_rows = bool(self._metric_fn_list)
        if not self._has_own_rows:
            flags = next(iter(self._ours.values()))
            self._metric_fn_list["exact_match"] = get_metric("exact_match")
            self._metric_fn_kwargs["exact_match"] = {
                key: flags[key] for key in EXACT_MATCH_OPTIONS if key in flags
            }
        outcome = next(iter(self._metric_fn_list))
        bounds = {"bayes_bounds": self._aggregated.get(outcome, {}).get("bounds")}
        self.settings = of_ours.get("bayes") or next(
            iter(of_ours.values()), Settings.from_metadata(bounds, n)
        )
        self.settings = replace(self.settings, prompts=asked.prompts, setting=asked.setting)
        if self._ours:
            config.metadata = {**(config.metadata or {}), "bayes": self.settings.to_dict()}
        further = {
            "takes_scores": "weights" not in self._ours.get("bayes", {}),
            "warns": bool(self._ours),
        }
        self.outcomes = [MetricOutcome(outcome, self.settings, name, **further)]
        self._outcome, self._takes_list = outcome, takes_list(self._metric_fn_kwargs[outcome])
        self._yaml_generation_kwargs = dict(config.generation_kwargs or {})
        self.grader = TrialGrader(self)

    def _settings_of(self, metric: str, n: int) -> Settings:
        """Return the checked settings of a metric of this package, which does not grade itself."""
        name, function = str(self.config.task), self._aggregation_list[metric]
        if getattr(self, "UNSAFE_CODE", False):
            sentence = f"task {name}: programs are sampled as {name}_bayes, not by metric {metric}"
            raise TaskConfigError(sentence, "unsupported", "metric_list", metric)
        if function is not aggregations.bayes:
            sentence = f"task {name}: metric {metric} must have `aggregation: bayes`"
            value = getattr(function, "__name__", function)
            raise TaskConfigError(sentence, "choice", "aggregation", value)
        if metric == "rubric":
            rubrics_of(self._ours[metric])
        del self._metric_fn_list[metric]
        return settings_of(metric, self._ours[metric], n)

    # -- after sampling --------------------------------------------------------------

    def apply_filters(self) -> None:
        """Run the filters that keep all responses to a question, and the task's own."""
        super().apply_filters()
        filtered = [dict(instance.filtered_resps) for instance in self._instances]
        for pipeline in self._own_filters:
            pipeline.apply(self._instances)
        for instance, by_filter in zip(self._instances, filtered, strict=True):
            for name, responses in by_filter.items():
                responses.own = instance.filtered_resps[name]
                instance.filtered_resps[name] = responses

    def process_results(self, doc: Any, results: Any) -> Any:
        """Return the rows of the task's own metrics, and those of this package."""
        responses = results[0]
        if not isinstance(responses, list) or len(responses) != self.settings.n:
            return self._own_rows(doc, responses)  # of what a vote leaves of N responses
        logged = super().process_results(doc, results)
        if hasattr(responses, "own"):  # not where somebody grades responses by hand
            rows = self._own_rows(doc, responses.own)
            for metric, options in self._aggregated.items():
                if metric in logged:  # else the task leaves this question out
                    lowest = options.get("bounds", (0, 1))[0]
                    values = [lowest if value is None else value for value in logged[metric]]
                    answers = logged.get("answers", ())
                    rows[metric] = aggregations.TrialValues(values, answers)
            logged.rows = {**rows, **self._rows_of_ours(responses, logged)}
        return logged

    def _own_rows(self, doc: Any, response: Any) -> dict[str, Any]:
        if not self._has_own_rows:
            return {}
        rows = super(RepeatedSamplingTask, self).process_results(doc, [response])
        return {name: value for name, value in rows.items() if name not in _OF_GRADERS}

    def _rows_of_ours(self, responses: Any, logged: LoggedResult) -> dict[str, Any]:
        """Return the rows of this package's metrics for a question."""
        name, signals = str(self.config.task), {}
        rows: dict[str, Any] = {}
        if "rubric" in self._ours and "outcomes" in logged:
            limit = completion_limit(self.config.generation_kwargs)
            texts, recorded = list(map(str, responses.raw)), logged.get("signals", {})
            signals = trial_signals(texts, logged["outcomes"], recorded, max_gen_toks=limit)
        record = next(iter(logged.rows.values())).question
        graded = GradedTrials(record, name, signals)
        for metric, options in self._ours.items():
            of_metric = _METRICS[metric]([None], [graded], **options)
            if not of_metric:
                warn_once(f"task {name}: metric {metric} finds no signals")
            rows |= of_metric
        for row in rows:  # as the harness does for metrics that return several
            self._aggregation_list.setdefault(row, aggregations.bayes)
            if not row.endswith("_stderr"):
                is_score = row not in (*SHARES, "rubric_missing")
                self._higher_is_better.setdefault(row, is_score)
        return rows

    # -- the rows, for the harness ------------------------------------------------------

    def aggregation(self) -> dict[str, Any]:
        """Return the aggregation of every row."""
        return super(RepeatedSamplingTask, self).aggregation()

    def higher_is_better(self) -> dict[str, bool]:
        """Return the direction of every row but sds: True for scores, False for errors."""
        return super(RepeatedSamplingTask, self).higher_is_better()
