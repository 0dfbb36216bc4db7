"""Tasks of another class whose `metric_list` names metrics or aggregations of this package.

Such a task is checked before sampling. Its own metrics keep their rows. They also grade each of the
N responses by itself, and that goes into the aggregations and metrics of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.registry import get_metric, metric_agg_registry
from lm_eval.api.task import ConfigurableTask

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.grading.task_metric import single_result
from lm_eval_bayes.harness.plugin import aggregations, metrics
from lm_eval_bayes.harness.task import pipelines
from lm_eval_bayes.harness.task.answers import EXACT_MATCH_OPTIONS
from lm_eval_bayes.harness.task.logged_fields import (
    LoggedResult,
    Responses,
    endings,
    loggable_values,
    measured_columns,
)
from lm_eval_bayes.harness.task.metrics import MetricOutcome
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import build_requests, receive_responses
from lm_eval_bayes.harness.task.result_rows import SHARES, warn_once
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.harness.task.trial_grades import GradedTrial, TrialGrader
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals

#: Keys of an entry of `metric_list` that are no options.
_OF_HARNESS = ("metric", "aggregation", "higher_is_better", "hf_evaluate")

#: Aggregations of the harness for metrics that give a number for each question.
_MEANS = ("mean", "nanmean")

#: What a `process_results` returns beside the values of metrics.
_OF_GRADERS = ("answer", "grading_error")


def prepare(task: Any) -> None:
    """Let a task compute the metrics and aggregations of this package that it lists.

    Tasks that list none, and those of this package's classes, are not changed.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If an option breaks its rule, or the task cannot have what it lists.
    """
    sampled = (RepeatedSamplingTask, ListedMetrics)
    if not isinstance(task, ConfigurableTask) or isinstance(task, sampled):
        return
    options: dict[str, dict[str, Any]] = {}
    for entry in task.config.metric_list or ():
        metric = str(getattr(entry["metric"], "__name__", entry["metric"]))
        aggregation = task._aggregation_list.get(metric)
        is_ours = getattr(aggregation, "__module__", None) == aggregations.__name__
        if metric in metrics.OPTIONS or is_ours:
            options[metric] = {k: v for k, v in entry.items() if k not in _OF_HARNESS}
    if options:
        cls = type(task)
        task.__class__ = type(cls.__name__, (ListedMetrics, cls), {})
        task.list_metrics(options)


class AllResponses(Responses):
    """All responses to a question, with what the task's own filter makes of them."""

    def __init__(self, filtered: Any, instance: Any, pipeline: str, own: Any) -> None:
        super().__init__(filtered, instance, pipeline)
        self.own = own


class ListedMetrics(ConfigurableTask):
    """What :func:`prepare` puts before the class of a task."""

    def list_metrics(self, options: Mapping[str, Mapping[str, Any]]) -> None:
        """Check what the task lists of this package; its own metrics stay the harness's.

        Parameters
        ----------
        options : mapping of str to mapping
            What stands beside each metric that is of this package, or has an aggregation of it.
        """
        name, config = str(self.config.task), self.config
        self._ours = {metric: options[metric] for metric in options if metric in metrics.OPTIONS}
        self._all_kept: list[Any] = []
        self.settings = Settings.from_metadata({}, 1)
        if self.OUTPUT_TYPE == "generate_until":
            given = {k: v for k, v in (config.metadata or {}).items() if k == "bayes_n"}
            self.settings = Settings.from_metadata(given, config.repeats, task=name)
            kept = pipelines.keep_all_responses(config.filter_list, name)
            self._all_kept = pipelines.built(kept)
        config.repeats = n = self.settings.n
        self._aggregated = {
            metric: self._aggregation_options(metric, options[metric])
            for metric in options
            if metric not in self._ours
        }
        for pipeline in self._all_kept:
            out = pipelines.probe_output(pipeline, n, self.task_docs[0], ["0"], name)
            pipelines.check_keeps_all(pipeline, out, n, name)
        self._own_rows = True
        if self._ours:
            self._prepare_own_metrics()
        takes_scores = "weights" not in self._ours.get("bayes", {})
        first = next(iter(self._metric_fn_list))
        self.outcomes = [MetricOutcome(first, self.settings, name, takes_scores=takes_scores)]
        self.grader = TrialGrader(self)
        self._yaml_generation_kwargs = dict(config.generation_kwargs or {})

    def _prepare_own_metrics(self) -> None:
        """Check the metrics of this package, which grade by the first of the task's own."""
        name, first = str(self.config.task), next(iter(self._ours))
        if self.OUTPUT_TYPE != "generate_until":
            sentence = (
                f"task {name}: metric {first} must have `output_type: generate_until`; got "
                f"{self.OUTPUT_TYPE} (`aggregation: bayes` under the task's own metric has no such "
                "limit)"
            )
            raise TaskConfigError(sentence, "unsupported", "output_type", self.OUTPUT_TYPE)
        if getattr(self, "UNSAFE_CODE", False):
            sentence = f"task {name}: programs are sampled as {name}_bayes, not by metric {first}"
            raise TaskConfigError(sentence, "unsupported", "metric_list", first)
        settings = {}
        for metric, options in self._ours.items():
            function = self._aggregation_list[metric]
            if function is not aggregations.bayes:
                sentence = f"task {name}: metric {metric} must have `aggregation: bayes`"
                value = getattr(function, "__name__", function)
                raise TaskConfigError(sentence, "choice", "aggregation", value)
            settings[metric] = metrics.settings_of(metric, options, self.settings.n)
            del self._metric_fn_list[metric]
        metrics.rubrics_of(self._ours.get("rubric", {}))
        self.settings = settings.get("bayes", settings[first])
        metadata = self.config.metadata or {}
        self.config.metadata = {**metadata, "bayes": self.settings.to_dict()}
        self._own_rows = bool(self._metric_fn_list)
        if not self._own_rows:
            given = self._ours[first]
            self._metric_fn_list["exact_match"] = get_metric("exact_match")
            self._metric_fn_kwargs["exact_match"] = {
                key: given[key] for key in EXACT_MATCH_OPTIONS if key in given
            }

    def _aggregation_options(self, metric: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the checked options of an aggregation; the others stay the metric's own."""
        function = self._aggregation_list[metric]
        usual = metric_agg_registry.get(metric, None)
        if usual is not None and usual.__name__ not in _MEANS:
            sentence = (
                f"task {self.config.task}: `aggregation: {function.__name__}` must stand under a "
                f"metric that gives each question a number; got {metric}"
            )
            raise TaskConfigError(sentence, "unsupported", "aggregation", metric)
        options = aggregations.options_of(function, given, self.settings.n)
        for option in options:
            self._metric_fn_kwargs[metric].pop(option, None)
        return options

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build one N-fold request per question."""
        build = super().build_all_requests
        if self._all_kept:
            build_requests(build, self, self.settings, self._yaml_generation_kwargs, kwargs)
        else:
            build(**kwargs)

    # -- after sampling --------------------------------------------------------------

    def apply_filters(self) -> None:
        """Run the task's own filters, and those that keep all responses to a question."""
        name = str(self.config.task)
        if self._all_kept:
            receive_responses(self._instances, self.settings, name)
        super().apply_filters()
        for pipeline in self._all_kept:
            own = [instance.filtered_resps[pipeline.name] for instance in self._instances]
            pipelines.apply(pipeline, self._instances, name)
            for instance, filtered in zip(self._instances, own, strict=True):
                kept = instance.filtered_resps[pipeline.name]
                responses = AllResponses(kept, instance, pipeline.name, filtered)
                instance.filtered_resps[pipeline.name] = responses

    def values_of(self, doc: Any, response: Any) -> Any:
        """Return what the task's own grading gives one response."""
        values = super().process_results(doc, [response])
        for metric in (self.outcomes[0].name, *self._aggregated):
            values = single_result(values, metric)
        return values

    def process_results(self, doc: Any, results: Any) -> Mapping[str, Any]:
        """Return the rows of the task's own metrics, and those of this package."""
        responses, rows = results[0], {}
        is_graded = not isinstance(responses, AllResponses)  # choices, or what a vote leaves of N
        if self._own_rows:
            rows = super().process_results(doc, results if is_graded else [responses.own])
            rows = {name: value for name, value in rows.items() if name not in _OF_GRADERS}
        if is_graded:
            return {**rows, **self._aggregations([rows], [str(responses)])}
        pipeline, doc_id = responses.pipeline, responses.instance.doc_id
        trials = self.grader.grades(doc, dict(enumerate(responses)), pipeline, doc_id)
        logged, answers = measured_columns(responses.raw, responses.raw), []
        if self.grader.answer_source(pipeline) != "none":
            logged["answers"] = answers = [trial.answer for trial in trials]
        rows |= self._aggregations([trial.values or {} for trial in trials], answers)
        if self._ours:
            rows |= self._rows_of_ours(responses, trials, logged)
        values = loggable_values([trial.values for trial in trials], self._metric_fn_list)
        return LoggedResult(rows, logged, values)

    def _aggregations(
        self, trials: Sequence[Mapping[str, Any]], answers: Sequence[str | None]
    ) -> dict[str, Any]:
        """Return what the aggregations of this package get; none of what the task leaves out."""
        rows = {}
        for metric, options in self._aggregated.items():
            if any(metric in values for values in trials):
                lowest = options.get("bounds", (0, 1))[0]
                of_metric = [values.get(metric, lowest) for values in trials]
                rows[metric] = aggregations.TrialValues(of_metric, options, answers)
        return rows

    def _rows_of_ours(
        self, responses: AllResponses, trials: Sequence[GradedTrial], logged: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the rows of this package's metrics, and put the outcomes into the log."""
        name = str(self.config.task)
        record = self.outcomes[0].record(
            trials,
            answer_source=self.grader.answer_source(responses.pipeline),
            origin=f"task {name}, filter {responses.pipeline}",
            **endings(responses.raw),
        )
        if record.problem is None:
            logged["scores" if record.are_scores else "outcomes"] = list(record.outcomes)
        signals: dict[str, Any] = {}
        if "rubric" in self._ours and "outcomes" in logged:
            limit = completion_limit(self.config.generation_kwargs)
            texts, columns = list(map(str, responses.raw)), logged.get("signals", {})
            signals = trial_signals(texts, logged["outcomes"], columns, max_gen_toks=limit)
        graded = metrics.GradedTrials(record, name, signals)
        rows: dict[str, Any] = {}
        for metric, options in self._ours.items():
            of_metric = getattr(metrics, metric)([None], [graded], **options)
            if not of_metric:
                warn_once(f"task {name}: metric {metric} finds no signals")
            rows |= of_metric
        for row in rows:  # as the harness does for metrics that return several
            self._aggregation_list.setdefault(row, aggregations.bayes)
            if not row.endswith("_stderr"):
                is_score = row not in (*SHARES, "rubric_missing")
                self._higher_is_better.setdefault(row, is_score)
        return rows
