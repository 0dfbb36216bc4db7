"""The metrics of a task as outcomes of its trials: what each gives a response, and its rows.

The first metric has the rows without an addition. Those of another one have its name behind the
row's, as in ``hbayes@8(math_verify)``. All are read from one grading of each response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading import worker_pool
from lm_eval_bayes.harness.grading.task_metric import category_of, score_of
from lm_eval_bayes.harness.task import pipelines
from lm_eval_bayes.harness.task.result_rows import GradedResponses, printed_names
from lm_eval_bayes.harness.task.settings import OF_CATEGORIES, Settings

log = get_logger(__name__)


class GradedTrial(NamedTuple):
    """One graded response.

    Attributes
    ----------
    values : mapping or None
        What the task's own grading gave, by metric; None where it failed.
    answer : str or None
        The answer, where responses have one.
    error : str or None
        Why grading failed.
    """

    values: Mapping[str, Any] | None
    answer: str | None
    error: str | None

    @property
    def failed(self) -> bool:
        """Whether grading raised an error; the response counts as wrong then."""
        return self.values is None and self.error is not None


class TrialGrader:
    """Grades the filtered responses to the questions of a task.

    Parameters
    ----------
    task : RepeatedSamplingTask
        The task, which is graded by its first metric.
    """

    def __init__(self, task: Any) -> None:
        self._task, metric = task, task.outcomes[0].name
        # the options of the harness's `exact_match` where it compares what the filter leaves
        self._exact_match: Mapping[str, Any] | None = None
        if metric == "exact_match" and not callable(task.config.process_results):
            self._exact_match = task._metric_fn_kwargs[metric]
        self.runs_code = bool(getattr(task, "UNSAFE_CODE", False))
        # of trials that were graded early: hash of the response and grade, by filter and question
        self._early: dict[tuple[str, int | None], dict[int, tuple[int, GradedTrial]]] = {}
        self._shared: dict[str, GradedTrial] = {}
        self._sources: dict[str, pipelines.AnswerSource] = {}
        self._logged: set[str] = set()

    def grades(
        self, doc: Any, responses: Mapping[int, Any], pipeline: str, doc_id: int | None
    ) -> list[GradedTrial]:
        """Grade filtered responses to a question, by trial, that were not graded early."""
        early = self._early.get((pipeline, doc_id), {})
        grades = {
            number: early[number][1]
            for number, response in responses.items()
            if number in early and early[number][0] == _hash_of(response)
        }
        new = {number: r for number, r in responses.items() if number not in grades}
        values_of = partial(self._task.values_of, doc)
        replies: Iterable[worker_pool.Reply] = map(
            partial(worker_pool.reply, values_of), new.values()
        )
        if self.runs_code and new:
            replies = worker_pool.replies(values_of, list(new.values()))
        for reply, (number, response) in zip(replies, new.items(), strict=True):
            grades[number] = self._grade(reply, response, pipeline, doc_id, number)
        return [grades[number] for number in responses]

    def grade_early(
        self, doc: Any, responses: Mapping[int, Any], pipeline: str, doc_id: int
    ) -> list[GradedTrial]:
        """Grade responses, and hold the grades until the question is graded."""
        grades = self.grades(doc, responses, pipeline, doc_id)
        held = self._early.setdefault((pipeline, doc_id), {})
        for (number, response), grade in zip(responses.items(), grades, strict=True):
            # most trials have one of a few grades; 1, 1.0 and True are different ones
            held[number] = _hash_of(response), self._shared.setdefault(repr(grade), grade)
        return grades

    def forget(self, pipeline: str, doc_id: int | None) -> None:
        """Drop the early grades of a question."""
        self._early.pop((pipeline, doc_id), None)

    def _grade(
        self, reply: worker_pool.Reply, response: Any, pipeline: str, doc_id: object, trial: int
    ) -> GradedTrial:
        """Return the grade of one response; one that failed counts as wrong."""
        kind, values = reply
        answer: str | None = None
        error: str | None = None
        if kind == "error":
            values, error = None, one_line(values)
        else:
            answer = self._answer(values, response, pipeline)
        if isinstance(values, Mapping):
            error = values.get("grading_error")
        if error is not None:
            message = "%s: grading failed on question %s, trial %d; counted as wrong: %s"
            self.log_failure(message, self._task.config.task, doc_id, trial, error)
        return GradedTrial(values, answer, error)

    def answer_source(self, pipeline: str, values: Any = None) -> pipelines.AnswerSource:
        """Return where the answers of a pipeline's responses come from.

        It is decided once, by what the grader first gives, so that all questions have the same
        rows; without a row of maj@k one line says why.
        """
        if pipeline not in self._sources:
            source: pipelines.AnswerSource = "grader"
            if not isinstance(values, Mapping) or "answer" not in values:
                source = pipelines.answer_source(
                    next(
                        candidate for candidate in self._task._filters if candidate.name == pipeline
                    ),
                    self._task.task_docs[0],
                    runs_code=self.runs_code,
                    matches_exactly=self._exact_match is not None,
                )
            self._sources[pipeline] = source
            settings, row = self._task.settings, f"maj@{self._task.settings.n}"
            is_counted = settings.binary and settings.bounds is None
            if source == "none" and is_counted and row in self._task.aggregation():
                log.warning(
                    "task %s, filter %s: no row %s: no filter extracts the final answer of a "
                    "response, and `process_results` does not return it as `answer`",
                    *(self._task.config.task, pipeline, row),
                )
        return self._sources[pipeline]

    def _answer(self, values: Any, response: Any, pipeline: str) -> str | None:
        """Return the answer of a response, None where it has none."""
        source = self.answer_source(pipeline, values)
        if source == "grader":
            answer = values.get("answer")
            return None if answer is None else str(answer)
        if source == "none":
            return None
        no_match = pipelines.fallbacks(self._task.config.filter_list, pipeline)
        return pipelines.answer_of(response, no_match, self._exact_match)

    def log_failure(self, message: str, *arguments: object) -> None:
        """Log the first failure of a kind; the logged samples hold all."""
        if message not in self._logged:
            self._logged.add(message)
            log.warning(f"{message} (further ones are in the logged samples)", *arguments)


def _hash_of(response: object) -> int:
    return hash(response if isinstance(response, str) else repr(response))


#: Metrics of the harness with two values, right and wrong.
_BINARY = frozenset({"exact_match", "acc"})

#: Settings that may be mappings from metrics to values.
BY_METRIC = ("bayes_bounds", "bayes_threshold")


@dataclass
class MetricOutcome:
    """One metric of a task as the outcome of its trials.

    Attributes
    ----------
    name : str
        The metric.
    settings : Settings
        The task's settings for it.
    task : str
        The task, for messages.
    first : bool
        Whether its rows have no addition to their names.
    takes_scores : bool
        Whether a value between 0 and 1 is a score; else a value is a category.
    warns : bool
        Whether the first value that is none of these is warned of.
    """

    name: str
    settings: Settings
    task: str
    first: bool = True
    takes_scores: bool = True
    warns: bool = True

    def outcome(self, values: object) -> float:
        """Return the category of a response, an integer, or its score.

        Parameters
        ----------
        values : object
            What grading the response gave.

        Raises
        ------
        TaskConfigError
            If it has no value of this metric, or the value is neither.
        """
        if not isinstance(values, Mapping):
            sentence = (
                f"task {self.task}: `process_results` must return a dictionary of metrics; "
                f"got {values!r:.80}"
            )
            raise TaskConfigError(sentence, "type", "process_results", values)
        if self.name not in values:
            sentence = (
                f"task {self.task}: grading a response must give the metric "
                f"`{self.name}`; got {', '.join(map(str, values)) or 'nothing'} "
                "(choose one with bayes_metric)"
            )
            raise TaskConfigError(sentence, "missing-key", "process_results", self.name)
        value, label = values[self.name], f"task {self.task}: the metric `{self.name}`"
        if not self.takes_scores:
            return category_of(value, len(self.settings.weights) - 1, label)
        score = score_of(value, self.settings.bounds, label)
        return int(score) if self.settings.bounds is None and score.is_integer() else score

    def record(self, trials: Sequence[GradedTrial], **context: Any) -> GradedResponses:
        """Return the record of the graded responses to one question.

        Parameters
        ----------
        trials : sequence of GradedTrial
            The graded responses.
        **context
            `cluster`, `answer_source`, `origin` and what else the record has.
        """
        metric, bounds = "" if self.first else self.name, self.settings.bounds
        if metric:
            context["origin"] += f", metric {metric}"
        lowest = 0 if bounds is None else bounds[0]
        graded, problem = [], None
        try:
            for trial in trials:
                outcome = lowest if trial.failed else self.outcome(trial.values)
                graded.append((outcome, trial.answer, trial.error))
        except TaskConfigError as error:
            graded, problem = [], str(error)
            if self.warns:
                log.warning("%s; the metric has no rows", error)
            self.warns = False
        return GradedResponses.of(graded, self.settings, metric=metric, problem=problem, **context)

    @property
    def rows(self) -> list[str]:
        """The names of the rows that the harness prints."""
        return printed_names(self.settings, "" if self.first else self.name)


def outcomes_of(config: Mapping[str, Any]) -> list[MetricOutcome]:
    """Return the metrics that a task's configuration chooses, each with its checked settings.

    Parameters
    ----------
    config : mapping
        The configuration, with `metadata`.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If a setting is unknown or breaks its rule.
    """
    metadata, task = config["metadata"], str(config.get("task", ""))
    outcomes: list[MetricOutcome] = []
    for metric in _chosen(metadata, _listed(config)) or ("none",):
        first = not outcomes
        settings = Settings.from_metadata(
            _metadata_of(metric, metadata, first=first),
            config.get("repeats", 1),
            None if first and metric not in _BINARY else 2,
            task=task,
        )
        of_categories = any(metadata.get(key) is not None for key in OF_CATEGORIES)
        takes_scores = settings.bounds is not None or not (first and of_categories)
        outcomes.append(MetricOutcome(metric, settings, task, first, takes_scores))
    return outcomes


def _listed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the metrics in a task's `metric_list`."""
    entries = config.get("metric_list")
    if entries is None:
        return ("exact_match",)
    given = [entry.get("metric") for entry in entries if isinstance(entry, Mapping)]
    return tuple(getattr(metric, "__name__", str(metric)) for metric in given)


def _chosen(metadata: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics that `bayes_metric` names, the first one where it is absent.

    Parameters
    ----------
    metadata : mapping
        The task's metadata.
    names : sequence of str
        The metrics of its `metric_list`.

    Raises
    ------
    InvalidInputError
        If it is not the name of a metric, a list of different ones, or "all".

    Examples
    --------
    >>> _chosen({"bayes_metric": "all"}, ["em", "f1"]), _chosen({}, ["em", "f1"])
    (('em', 'f1'), ('em',))
    """
    given = metadata.get("bayes_metric")
    if given is None:
        return tuple(names[:1])
    if given == "all":
        return tuple(names)
    several = given if isinstance(given, list) else [given]
    if (
        not several
        or not all(isinstance(name, str) for name in several)
        or len({*several}) < len(several)
    ):
        rule = "be the name of a metric, a list of different ones, or all"
        raise InvalidInputError.of("bayes_metric", "format", rule, given)
    return tuple(several)


def _metadata_of(metric: str, metadata: Mapping[str, Any], *, first: bool) -> dict[str, Any]:
    """Return a task's metadata as it is for one of several metrics.

    Parameters
    ----------
    metric : str
        The metric.
    metadata : mapping
        The metadata, in which `bayes_bounds` and `bayes_threshold` may be mappings from metrics.
    first : bool
        Whether it is the first metric, which alone can have other categories.
    """
    own = {**metadata}
    if metadata.get("bayes_metric") is not None:
        own["bayes_metric"] = metric
    for key in BY_METRIC:
        if isinstance(metadata.get(key), Mapping):
            own[key] = metadata[key].get(metric)
    if not first:
        own["bayes_weights"] = None
        if own.get("bayes_bounds") is not None:
            own["cluster"] = None
    return own
