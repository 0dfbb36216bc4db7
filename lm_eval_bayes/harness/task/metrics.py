"""The metrics of a task as outcomes of its trials: what each gives a response, and its rows.

The first metric has the rows without an addition. Those of another one have its name behind the
row's, as in ``hbayes@8(math_verify)``. All are read from one grading of each response.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import digest_of, text_bytes
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading.task_metric import category_of, is_list_of_grades, score_of
from lm_eval_bayes.harness.task import result_rows, score_rows
from lm_eval_bayes.harness.task.settings import Settings

log = get_logger(__name__)

#: Metrics of the harness with two values, right and wrong.
_BINARY = frozenset({"exact_match", "acc"})

#: Scores whose bounds need not be given.
_BOUNDS = {"f1": (0.0, 1.0)}

#: Responses with more characters are compared by their hashes.
_LONG = 64

#: Settings of the first metric alone.
_OF_THE_FIRST = ("bayes_weights", "bayes_categories")

#: Settings that may be mappings from metrics to values.
_BY_METRIC = ("bayes_bounds", "bayes_threshold")


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


class GradesOfQuestion:
    """The grades of trials of a question that were graded early, under one filter.

    Equal grades and short responses are one object; of a long response there is a hash.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Any, GradedTrial] | None] = []
        self._shared: dict[Any, tuple[Any, GradedTrial]] = {}

    def add(self, trial: int, response: object, grade: GradedTrial) -> None:
        """Add the grade of a trial's filtered response."""
        self._entries.extend([None] * (trial + 1 - len(self._entries)))
        self._entries[trial] = self._entry(_key_of(response), grade)

    def _entry(self, key: Any, grade: GradedTrial) -> tuple[Any, GradedTrial]:
        """Return response and grade, in objects of earlier trials where they are equal."""
        values = grade.values
        if values is not None and type(values) is not dict:
            return key, grade
        # 1, 1.0 and True are equal, and a metric may tell them apart
        typed = () if values is None else tuple((n, type(v), v) for n, v in values.items())
        content = values is None, typed, grade.answer, grade.error
        try:
            _, grade = self._shared.setdefault(content, (None, grade))
            if isinstance(key, str):
                return self._shared.setdefault((key, content), (key, grade))
        except TypeError:  # a value that cannot be hashed
            pass
        return key, grade

    def get(self, trial: int, response: object) -> GradedTrial | None:
        """Return the grade of a trial, None if it was not graded or had another response."""
        entry = self._entries[trial] if trial < len(self._entries) else None
        return entry[1] if entry is not None and entry[0] == _key_of(response) else None


def _key_of(response: Any) -> Any:
    """Return a response, of a long one its hash."""
    if not isinstance(response, str):
        return response
    if len(response) <= _LONG:
        return str(response)
    return digest_of(text_bytes(response))


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
    error : TaskConfigError or None
        A value that was found after sampling and that the settings do not allow. The metric has no
        numbers then. Of the first metric it ends the run, when the responses have been saved.
    has_records : bool
        Whether a question has a record, after which a metric after the first remains what it is.
    """

    name: str
    settings: Settings
    task: str
    first: bool = True
    error: TaskConfigError | None = None
    has_records: bool = False

    def labelled(self, name: str) -> str:
        """Return the name of a row or of a logged field of this metric.

        Examples
        --------
        >>> settings = Settings.from_metadata({}, 8)
        >>> second = MetricOutcome("math_verify", settings, "minerva_math", first=False)
        >>> second.labelled("pass@4_low"), second.labelled("outcomes")
        ('pass@4(math_verify)_low', 'outcomes(math_verify)')
        """
        if self.first:
            return name
        base, end = re.fullmatch(r"(.*?)(_stderr|_low|_high)?", name).groups()  # type: ignore[union-attr]
        return f"{base}({self.name}){end or ''}"

    def value(self, values: object) -> object:
        """Return this metric's value in what grading one response gave.

        Raises
        ------
        TaskConfigError
            If there is none.
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
        return values[self.name]

    def category(self, values: object) -> int:
        """Return the category of a response."""
        top = len(self.settings.weights) - 1
        return category_of(self.value(values), top, self._label)

    def score(self, values: object) -> float:
        """Return the score of a response."""
        bounds = self.settings.bounds or (0.0, 1.0)
        return score_of(self.value(values), bounds, self._label)

    @property
    def _label(self) -> str:
        return f"task {self.task}: the metric `{self.name}`"

    def check(self, values: object) -> None:
        """Read the value of a response, to find what is wrong with the settings before sampling.

        A metric other than the first whose values are lists of grades counts as a score from 0
        to 1, the mean of the list.
        """
        self._take_lists(values)
        if self.settings.bounds is None:
            self.category(values)
        else:
            self.score(values)

    def _take_lists(self, values: object) -> None:
        undecided = not self.first and self.settings.bounds is None and not self.has_records
        if undecided and is_list_of_grades(self.value(values)):
            self.settings = replace(self.settings, bounds=(0.0, 1.0))

    def record_or_leave_out(
        self, trials: Sequence[GradedTrial], **context: Any
    ) -> result_rows.GradedResponses | score_rows.ScoredResponses | None:
        """Return the record of a question; None of a metric that is left out, with a warning."""
        if self.error is not None:
            return None
        try:
            for trial in trials:
                if not trial.failed:
                    self._take_lists(trial.values)
            record = self.record(trials, **context)
            self.has_records = True
            return record
        except TaskConfigError as error:
            self.error = error
            log.warning("%s; the rows of this metric have no number", error)
            return None

    def record(
        self, trials: Sequence[GradedTrial], **context: Any
    ) -> result_rows.GradedResponses | score_rows.ScoredResponses:
        """Return the record of the graded responses to one question.

        Parameters
        ----------
        trials : sequence of GradedTrial
            The graded responses.
        **context
            `cluster`, `answer_source` and `origin` of the record.
        """
        if not self.first:
            context["origin"] += f", metric {self.name}"
        if self.settings.bounds is not None:
            lowest = self.settings.bounds[0]
            scores = [lowest if t.failed else self.score(t.values) for t in trials]
            errors = [trial.error for trial in trials]
            return score_rows.ScoredResponses.of(scores, errors, self.settings, context["origin"])
        graded = [(0 if t.failed else self.category(t.values), t.answer, t.error) for t in trials]
        return result_rows.GradedResponses.of(graded, self.settings, **context)

    def rows_of_question(self, record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the rows of one question, and those that have a number for all questions only."""
        if self.settings.bounds is None:
            return self._labelled(result_rows.question_rows(record)), {}
        of_question, of_all_questions = score_rows.scored_question_rows(record)
        return self._labelled(of_question), self._labelled(of_all_questions)

    def logged(self, record: Any) -> dict[str, Any]:
        """Return the grades or scores of the trials of a question, for the log."""
        if self.settings.bounds is not None:
            return {self.labelled("scores"): list(record.scores)}
        return {self.labelled("outcomes"): list(record.outcomes)}

    def raw_values(self, trials: Sequence[GradedTrial]) -> list[Any]:
        """Return what the metric gave the trials of a question; None where it gave nothing."""
        values = [trial.values for trial in trials]
        return [v.get(self.name) if isinstance(v, Mapping) else None for v in values]

    def _row_names(self, *, votes: bool) -> list[str]:
        if self.settings.bounds is not None:
            return [*score_rows.score_row_functions(self.settings)]
        return [*result_rows.row_functions(self.settings, votes=votes)]

    def directions(self, *, votes: bool) -> dict[str, bool]:
        """Return the direction of every row but sds: True for scores, False for errors."""
        return self._labelled(
            {
                name: name != "grading_errors"
                for name in self._row_names(votes=votes)
                if not name.endswith("_stderr")
            }
        )

    def aggregation(self, *, votes: bool) -> dict[str, Callable[[Sequence[Any]], Any]]:
        """Return the aggregation of every row."""
        return self._labelled(dict.fromkeys(self._row_names(votes=votes), _number_of_all))

    def _labelled(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows under their labels; errors of grading are those of the first metric."""
        return {
            self.labelled(name): value
            for name, value in rows.items()
            if self.first or name != "grading_errors"
        }


def _number_of_all(values: Sequence[Any]) -> float | str:
    """Return the number of a row; NaN if some question has none, on whatever rank."""
    if all(isinstance(value, result_rows.RowValue) for value in values):
        return result_rows.aggregate(values)
    return math.nan


def outcomes_of(config: Mapping[str, Any], *, certain: bool) -> list[MetricOutcome]:
    """Return the metrics that a task's configuration chooses, each with its checked settings.

    Parameters
    ----------
    config : mapping
        The configuration, with `metadata`.
    certain : bool
        Whether the metric alone grades, so that its number of categories is known.

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
            certain=certain,
            task=task,
        )
        outcomes.append(MetricOutcome(metric, settings, task, first))
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
        If it is not the name of a metric, a list of different ones, or "all"; or a setting by
        metric names another one.

    Examples
    --------
    >>> _chosen({"bayes_metric": "all"}, ["em", "f1"]), _chosen({}, ["em", "f1"])
    (('em', 'f1'), ('em',))
    """
    for key in _BY_METRIC:
        by_metric = metadata.get(key)
        for name in by_metric if isinstance(by_metric, Mapping) else ():
            if name not in names:
                rule = f"name metrics of the task ({', '.join(names)})"
                raise InvalidInputError.of(key, "choice", rule, name)
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
        Whether it is the first metric, which alone can have other categories and a prior run.
    """
    own = {**metadata}
    if metadata.get("bayes_metric") is not None:
        own["bayes_metric"] = metric
    for key in _BY_METRIC:
        if isinstance(metadata.get(key), Mapping):
            own[key] = metadata[key].get(metric)
    if not first:
        own.update(dict.fromkeys(_OF_THE_FIRST))
        if own.get("bayes_bounds") is None and metric in _BOUNDS:
            own["bayes_bounds"] = list(_BOUNDS[metric])
        if own.get("bayes_bounds") is not None:
            own["cluster"] = None
    return own
