"""The metrics of a task as outcomes of its trials: what each gives a response, and its rows.

The first metric has the rows without an addition. Those of another one have its name behind the
row's, as in ``hbayes@8(math_verify)``. All are read from one grading of each response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.grading.task_metric import category_of, score_of
from lm_eval_bayes.harness.task.result_rows import GradedResponses, printed_names
from lm_eval_bayes.harness.task.settings import OF_CATEGORIES, Settings
from lm_eval_bayes.harness.task.trial_grades import GradedTrial

log = get_logger(__name__)

#: Metrics of the harness with two values, right and wrong.
_BINARY = frozenset({"exact_match", "acc"})

#: Settings of the first metric alone.
_OF_THE_FIRST = ("bayes_weights", "bayes_categories")

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
    has_problem : bool
        Whether a value was found that is none of these.
    """

    name: str
    settings: Settings
    task: str
    first: bool = True
    takes_scores: bool = True
    has_problem: bool = False

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
            if not self.has_problem:
                log.warning("%s; the metric has no rows", error)
            self.has_problem = True
        return GradedResponses.of(graded, self.settings, metric=metric, problem=problem, **context)

    @property
    def rows(self) -> list[str]:
        """The names of the rows that the harness prints."""
        return printed_names(self.settings.n, "" if self.first else self.name)


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
        own.update(dict.fromkeys(_OF_THE_FIRST))
        if own.get("bayes_bounds") is not None:
            own["cluster"] = None
    return own
