"""Tasks of another class whose `metric_list` names metrics or aggregations of this package.

Such a task is checked before sampling. Its own metrics keep their rows. They also grade each of the
N responses by itself, and that goes into the aggregations and metrics of this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.api.registry import get_metric, metric_agg_registry
from lm_eval.api.task import ConfigurableTask

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes._util.validation import check_integer, check_option, check_pair, check_real
from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading.grade import grade
from lm_eval_bayes.harness.grading.task_metric import single_result
from lm_eval_bayes.harness.plugin import aggregations, metrics
from lm_eval_bayes.harness.task import answers, pipelines
from lm_eval_bayes.harness.task.logged_fields import (
    LoggedResult,
    Responses,
    endings,
    measured_columns,
)
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import (
    build_requests,
    receive_responses,
)
from lm_eval_bayes.harness.task.result_rows import SHARES, GradedResponses
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals
from lm_eval_bayes.stats import SCOPES

log = get_logger(__name__)

#: Keys of an entry of `metric_list` that are no options.
_OF_HARNESS = ("metric", "aggregation", "higher_is_better", "hf_evaluate")

#: Aggregations of the harness for metrics that give a number for each question.
_MEANS = ("mean", "nanmean")


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
    functions = {**task._aggregation_list, **task._metric_fn_list}
    ours = (metrics.__name__, aggregations.__name__)
    options: dict[str, dict[str, Any]] = {}
    for entry in task.config.metric_list or ():
        metric = str(getattr(entry["metric"], "__name__", entry["metric"]))
        both = (functions.get(metric), task._aggregation_list.get(metric))
        if any(getattr(function, "__module__", None) in ours for function in both):
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
        self._ours = {name: options[name] for name in options if name in metrics.OPTIONS}
        n, name, first = self._n_trials(), str(self.config.task), next(iter(self._ours), None)
        self._aggregated = {
            metric: self._aggregation_options(metric, dict(options[metric]), n)
            for metric in options
            if metric not in self._ours
        }
        self.settings = Settings.from_metadata({}, n)
        if self._ours:
            self._check_own_grading()
            found = {m: metrics.settings_of(m, self._ours[m], n) for m in self._ours}
            self.settings = found.get("bayes") or found[str(first)]
            metrics.rubrics_of(self._ours.get("rubric", {}))
            metadata = self.config.metadata or {}
            self.config.metadata = {**metadata, "bayes": self.settings.to_dict()}
        for metric in self._ours:
            self._metric_fn_list.pop(metric)
        flags = self._ours[first] if first else {}
        self._grader = str(flags.get("grader", "exact_match"))
        self._only_grades = bool(self._ours) and not self._metric_fn_list
        if self._only_grades:
            self._metric_fn_list["exact_match"] = get_metric("exact_match")
            self._metric_fn_kwargs["exact_match"] = {
                key: flags[key] for key in answers.EXACT_MATCH_OPTIONS if key in flags
            }
        self._yaml_generation_kwargs = dict(self.config.generation_kwargs or {})
        self._all_kept = []
        if n > 1:
            kept = pipelines.keep_all_responses(self.config.filter_list, name)
            self._all_kept = pipelines.built(kept)
        for pipeline in self._all_kept:
            out = pipelines.probe_output(pipeline, n, self.task_docs[0], ["0"], name)
            pipelines.check_keeps_all(pipeline, out, n, name)
        self._sources = {
            pipeline.name: self._answer_source(pipeline)
            for pipeline in self._all_kept or self._filters
        }
        self._warned: set[str] = set()
        self._row_names: dict[str, None] = {}

    # -- before sampling -------------------------------------------------------------

    def _n_trials(self) -> int:
        """Return N, `bayes_n` or `repeats`; it is 1 where responses are not sampled."""
        if self.OUTPUT_TYPE != "generate_until":
            return 1
        given = {k: v for k, v in (self.config.metadata or {}).items() if k == "bayes_n"}
        settings = Settings.from_metadata(given, self.config.repeats, task=str(self.config.task))
        self.config.repeats = settings.n
        return int(settings.n)

    def _check_own_grading(self) -> None:
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
        if {"bayes", "credible_interval"} <= self._ours.keys():
            sentence = f"task {name}: `metric: bayes` has the rows of credible_interval; list one"
            raise TaskConfigError(sentence, "conflict", "metric_list", "credible_interval")
        for metric in self._ours:
            function = self._aggregation_list[metric]
            if function is not aggregations.bayes:
                sentence = f"task {name}: metric {metric} must have `aggregation: bayes`"
                value = getattr(function, "__name__", function)
                raise TaskConfigError(sentence, "choice", "aggregation", value)

    def _aggregation_options(self, metric: str, given: dict[str, Any], n: int) -> Any:
        """Return the checked options of an aggregation; the others stay the metric's own."""
        name, function = str(self.config.task), self._aggregation_list[metric].__name__
        usual = metric_agg_registry.get(metric, None)
        if usual is not None and usual.__name__ not in _MEANS:
            sentence = (
                f"task {name}: `aggregation: {function}` must stand under a metric that gives each "
                f"question a number; got {metric}"
            )
            raise TaskConfigError(sentence, "unsupported", "aggregation", metric)
        known = aggregations.OPTIONS[function]
        # exact_match fails on an unknown option when it grades, which is after sampling
        own = answers.EXACT_MATCH_OPTIONS if metric == "exact_match" else given
        for option in given:
            if option not in known and option not in own:
                listed = ", ".join((*known, *own))
                sentence = (
                    f"task {name}: {metric} with `aggregation: {function}` has no option "
                    f"`{option}`; the options are {listed}"
                )
                raise TaskConfigError(sentence, "unknown-key", "metric_list", option)
        for option, is_needed in known.items():
            if is_needed and option not in given:
                sentence = f"task {name}: `aggregation: {function}` needs `{option}` beside it"
                raise TaskConfigError(sentence, "missing", option)
            self._metric_fn_kwargs[metric].pop(option, None)
        checks: dict[str, Callable[[Any], Any]] = {
            "k": lambda k: check_integer("k", k, 1, n),
            "tau": lambda tau: check_real(
                "tau", tau, "be a number in [0, 1]", lambda x: 0.0 <= x <= 1.0
            ),
            "scope": lambda scope: check_option("scope", scope, SCOPES),
            "bounds": lambda pair: check_pair(
                "bounds",
                pair,
                "be the lowest and the highest value",
                lambda low, high: -math.inf < low < high < math.inf,
            ),
        }
        return {option: checks[option](given[option]) for option in known if option in given}

    def _answer_source(self, pipeline: Any) -> answers.AnswerSource:
        if self._grader != "exact_match":
            return "grader"
        exact = next(iter(self._metric_fn_list), None) == "exact_match"
        doc = self.task_docs[0]
        return answers.answer_source(pipeline, doc, runs_code=False, matches_exactly=exact)

    def build_all_requests(self, **kwargs: Any) -> None:
        """Build one request per question, N-fold where N is above 1."""
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

    def process_results(self, doc: Any, results: Any) -> Mapping[str, Any]:
        """Return the rows of the task's own metrics, and those of this package."""
        responses = results[0]
        if isinstance(responses, AllResponses):
            rows = super().process_results(doc, [responses.own])
            trials = [self._trial(doc, response) for response in responses]
            pipeline, raw = responses.pipeline, responses.raw
        else:  # one trial, or what a vote leaves of N
            rows = super().process_results(doc, results)
            trials, responses, raw = [(rows, None)], results[:1], results[:1]
            pipeline = next(iter(self._sources), "none")
        rows = {k: v for k, v in rows.items() if not self._only_grades}
        graded = [self._graded(doc, r, t, pipeline) for r, t in zip(responses, trials, strict=True)]
        for metric, options in self._aggregated.items():
            given = [single_result(values, metric) for values, _ in trials]
            if not any(metric in values for values in given):
                continue  # the task's own grading leaves this question out
            lowest = options.get("bounds", (0, 1))[0]
            values = [values.get(metric, lowest) for values in given]
            found = [answer for _, answer, _ in graded]
            rows[metric] = aggregations.TrialValues(values, options, found)
        if not self._ours or len(trials) < self.settings.n:
            return rows
        if any(category not in (0, 1) for category, _, _ in graded):
            message = "task %s: %s has no rows: they count right and wrong, and %s gives scores"
            self._warn(message, self.config.task, ", ".join(self._ours), next(iter(rows)))
            return rows
        return self._with_metrics(rows, raw, responses, graded, pipeline)

    def _with_metrics(
        self,
        rows: dict[str, Any],
        raw: Sequence[Any],
        responses: Any,
        graded: Any,
        pipeline: str,
    ) -> LoggedResult:
        record = GradedResponses.of(
            [(int(category), answer, error) for category, answer, error in graded],
            self.settings,
            answer_source=self._sources[pipeline],
            origin=f"task {self.config.task}, filter {pipeline}",
            **endings(raw),
        )
        logged = {
            **measured_columns(raw, raw),
            "outcomes": list(record.outcomes),
            "answers": list(record.answers),
        }
        limit = completion_limit(self.config.generation_kwargs)
        columns = logged.get("signals", {})
        signals = (
            trial_signals(list(map(str, raw)), logged["outcomes"], columns, max_gen_toks=limit)
            if "rubric" in self._ours
            else {}
        )
        trials = metrics.GradedTrials(responses, record, str(self.config.task), signals)
        for metric, options in self._ours.items():
            found = getattr(metrics, metric)([None], [trials], **options)
            if not found:
                self._warn("task %s: metric %s finds no signals", self.config.task, metric)
            self._row_names.update(dict.fromkeys(found))
            rows |= found
        return LoggedResult(rows, {}, logged)

    def _trial(self, doc: Any, response: Any) -> tuple[Mapping[str, Any], str | None]:
        """Return what the task's own metrics give a response, and why they fail on it."""
        try:
            return super().process_results(doc, [response]), None
        except LmEvalBayesError:
            raise
        except Exception as error:
            return {}, one_line(f"{type(error).__name__}: {error}")

    def _graded(
        self,
        doc: Any,
        response: Any,
        trial: tuple[Mapping[str, Any], str | None],
        pipeline: str,
    ) -> tuple[Any, str | None, str | None]:
        """Return category, answer and error of a response; one that fails counts as wrong."""
        values, error = trial
        if self._grader != "exact_match":
            result = grade(str(response), str(self.doc_to_target(doc)), kind=self._grader)  # type: ignore[arg-type]
            graded = int(result.correct), result.answer, result.error
        else:
            metric = next(iter(self._metric_fn_list), "")
            category = single_result(values, metric).get(metric, 0)
            no_match = answers.fallbacks(self.config.filter_list, pipeline)
            flags = self._metric_fn_kwargs.get(metric) if metric == "exact_match" else None
            graded = category, answers.answer_of(response, no_match, flags), error
        if graded[2] is not None:
            message = "task %s: grading failed; counted as wrong: %s (further ones are not printed)"
            self._warn(message, self.config.task, graded[2])
        return graded

    def _warn(self, message: str, *arguments: object) -> None:
        """Log a warning once in a run."""
        if message not in self._warned:
            self._warned.add(message)
            log.warning(message, *arguments)

    # -- the rows, for the harness ------------------------------------------------------

    def aggregation(self) -> dict[str, Any]:
        """Return the aggregation of every row."""
        ours = dict.fromkeys(self._row_names, aggregations.bayes)
        return {**super().aggregation(), **ours}

    def higher_is_better(self) -> dict[str, bool]:
        """Return the direction of every row but sds: True for scores, False for errors."""
        names = [name for name in self._row_names if not name.endswith("_stderr")]
        ours = {name: name not in (*SHARES, "rubric_missing") for name in names}
        return {**super().higher_is_better(), **ours}
