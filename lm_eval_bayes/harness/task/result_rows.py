"""The rows of a task's results, computed from the trials of its questions.

A task gives the harness a :class:`RowValue` for each printed row of a question; it carries the
record of the question's trials. The harness gathers them over ranks and hands them to
:func:`aggregate`, whose number carries the :class:`Table` of all questions. When the evaluation has
ended, :mod:`lm_eval_bayes.harness.task.final_results` takes all rows from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

import lm_eval_bayes as api
from lm_eval_bayes.analysis.settings import settings_to_dict
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import cached_in_evaluation
from lm_eval_bayes.harness.task.pipelines import AnswerSource, zero_score
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.stats import (
    Estimate,
    PassQuantity,
    ScoreOutcomes,
    SettingsPosterior,
    estimate,
    family_notes,
    pass_posteriors,
    posterior_row,
    quantities_by_row,
    score_over_settings,
    serial_note,
    vote_candidates,
)

log = get_logger(__name__)

#: Outcome, answer and error of one response.
Grading = tuple[float, "str | None", "str | None"]
#: What has rows: a posterior four, one over settings two and an object, the mean with its sd two,
#: another number or text one.
Result: TypeAlias = "api.Posterior | SettingsPosterior | Estimate | float | str"

#: Rows that are printed where they are not 0: shares of the trials, by what counts a question's.
SHARES: Mapping[str, Callable[[GradedResponses], int]] = {
    "cut_off_share": lambda question: question.n_cut_off,
    "empty_share": lambda question: question.n_empty,
    "grading_error_share": lambda question: sum(e is not None for e in question.errors),
}

#: Names of rows in the YAML of a group, where N is known only at run time.
HBAYES_AT_N, BAYES_AT_N, AVG_AT_N = "hbayes@{n}", "bayes@{n}", "avg@{n}"


@dataclass(frozen=True)
class GradedResponses:
    """The graded responses to one question, on their way from the grader to the rows.

    The trials of a saved run are :class:`lm_eval_bayes.runs.trials.Trials`; this
    record is gathered over ranks, so it carries the settings and is compared by value.

    Attributes
    ----------
    outcomes : tuple of int or float
        The category of each trial, 0..C, or its score. Without `bayes_bounds` a number between 0
        and 1 makes the outcomes of all questions scores from 0 to 1.
    answers : tuple
        The extracted answer of each trial; None if there is none.
    errors : tuple
        Why the grader failed on a trial, which then counts as the lowest outcome; None if it did
        not.
    settings : Settings
        The run's settings.
    cluster : str or None
        The cluster of the question; None without clusters.
    answer_source : {"grader", "filter", "response", "none"}
        Where the answers come from; with "none" there is no vote.
    origin : str
        The task and its filter, for warnings.
    metric : str
        The metric; "" for the first one, whose rows have no addition to their names.
    problem : str or None
        Why the metric has no outcomes.
    n_cut_off, n_empty : int
        How many responses ended at the limit of tokens, and how many are empty.
    labels : tuple of str
        The label of every trial's setting; empty without settings.
    """

    outcomes: tuple[float, ...]
    answers: tuple[str | None, ...]
    errors: tuple[str | None, ...]
    settings: Settings
    cluster: str | None = None
    answer_source: AnswerSource = "grader"
    origin: str = "the run"
    metric: str = ""
    problem: str | None = None
    n_cut_off: int = 0
    n_empty: int = 0
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, graded: Sequence[Grading], settings: Settings, **further: Any) -> GradedResponses:
        """Return the record of a question's graded responses, with further attributes."""
        outcomes, answers, errors = zip(*graded, strict=True) if graded else ((), (), ())
        # one string for equal answers, of which most trials of a question have one of a few
        shared: dict[str | None, str | None] = {}
        answers = tuple(shared.setdefault(answer, answer) for answer in answers)
        return cls(outcomes, answers, errors, settings, **further)

    @property
    def are_scores(self) -> bool:
        """Whether the outcomes are known to be scores."""
        return self.settings.bounds is not None or any(type(o) is float for o in self.outcomes)

    @property
    def average(self) -> float:
        """The mean score of the trials; NaN without any."""
        scores = self.outcomes
        if not self.are_scores:
            scores = tuple(self.settings.weights[int(outcome)] for outcome in scores)
        return math.fsum(scores) / len(scores) if scores else math.nan

    def table(self, questions: Sequence[GradedResponses]) -> Table:
        """Return the rows over some questions."""
        return TrialTable(questions)


class RowValue(float):
    """A question's mean score, with the name of a row and the record of the question's trials.

    The record's `table` returns the rows over some questions, whose records are of its class.
    """

    row: str
    question: Any

    def __new__(cls, value: float, row: str, question: Any) -> RowValue:
        """Build the number; `row` is the row's name."""
        self = super().__new__(cls, value)
        self.row, self.question = row, question
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.row, self.question


class RowNumber(float):
    """The number of a row over all questions; `table` holds all rows."""

    table: Table


def four_rows(name: str) -> tuple[str, str, str, str]:
    """Return the names of a posterior's rows: mean, sd and the ends of its interval."""
    return name, f"{name}_stderr", f"{name}_low", f"{name}_high"


def printed_names(settings: Settings, metric: str = "") -> list[str]:
    """Return the names of the rows that the harness prints, in their order.

    Parameters
    ----------
    settings : Settings
        Those of the task.
    metric : str
        The metric, "" for the first one.

    Examples
    --------
    >>> printed_names(Settings.from_metadata({}, 8), "f1")[2:]
    ['hbayes@8(f1)_low', 'hbayes@8(f1)_high', 'avg@8(f1)', 'avg@8(f1)_stderr']
    """
    n = settings.n
    learned, average = four_rows(f"hbayes@{n}"), (f"avg@{n}", f"avg@{n}_stderr")
    if metric:
        return [labelled(name, metric) for name in (*learned, *average)]
    others = four_rows(f"hbayes@{n}_settings")[2:] if settings.prompts else ()
    paper = four_rows(f"bayes@{n}")
    return [*learned, *others, *paper, *average, f"pass@{n}", f"maj@{n}", *SHARES]


def labelled(name: str, metric: str) -> str:
    """Return the name of a row of a metric, "" for the first one.

    Examples
    --------
    >>> labelled("pass@4_low", "math_verify")
    'pass@4(math_verify)_low'
    """
    if not metric:
        return name
    end = next((end for end in ("_stderr", "_low", "_high") if name.endswith(end)), "")
    return f"{name.removesuffix(end)}({metric}){end}"


class Table:
    """The rows over some questions; what several rows need is computed once.

    Attributes
    ----------
    settings : Settings
        The run's settings.
    metric : str
        The metric, "" for the first one.
    problem : str or None
        Why there are no rows.
    """

    settings: Settings
    metric: str = ""
    problem: str | None = None

    def quantities(self) -> Mapping[str, Callable[[], Result]]:
        """Return what has rows, in their order, and how it is computed."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Yield warnings about the numbers."""
        yield from ()

    @property
    def printed(self) -> list[str]:
        """The names of the rows that the harness prints."""
        return printed_names(self.settings, self.metric)

    @cached_property
    def results(self) -> dict[str, Result]:
        """What has rows: NaN, with a warning, where the trials do not allow it."""
        results: dict[str, Result] = {}
        for name, compute in self.quantities().items():
            try:
                results[name] = compute()
            except InvalidInputError as error:
                log.warning("row %s cannot be computed: %s", name, error)
                results[name] = math.nan
        return results

    @cached_property
    def rows(self) -> dict[str, Any]:
        """All rows in their order, without shares of 0; none where there is a problem."""
        rows: dict[str, Any] = {}
        for name, result in {} if self.problem else self.results.items():
            if name in SHARES and not getattr(result, "value", result):
                continue  # also where the model records no finish reason
            if isinstance(result, api.Posterior):
                interval = result.interval(self.settings.level, self.settings.interval)
                ends = (result.mu, result.sigma, interval.low, interval.high)
                rows |= zip(four_rows(name), map(float, ends), strict=True)
            elif isinstance(result, SettingsPosterior):
                like = result.like["benchmark"]
                rows |= {f"{name}_low": like.low, f"{name}_high": like.high}
                rows["settings"] = settings_to_dict(result)
            elif isinstance(result, Estimate):
                rows[name] = float(result.value)
                if result.sigma is not None:
                    rows[f"{name}_stderr"] = float(result.sigma)
            else:
                rows[name] = result
        for note in () if self.problem else self.notes():
            warn_once(note)
        return {labelled(name, self.metric): number for name, number in rows.items()}

    def printed_rows(self) -> dict[str, float | str]:
        """Return the rows that the harness prints, in their order."""
        return {name: self.rows[name] for name in self.printed if name in self.rows}


class TrialTable(Table):
    """The rows of graded or scored trials."""

    def __init__(self, questions: Sequence[GradedResponses]) -> None:
        first = questions[0]
        self.questions, self.settings, self.metric = questions, first.settings, first.metric
        self.n_questions = len(questions)
        self.problem = next((q.problem for q in questions if q.problem is not None), None)
        self.bounds = self.settings.bounds
        if self.bounds is None and any(question.are_scores for question in questions):
            self.bounds = (0.0, 1.0)

    @cached_property
    def outcomes(self) -> api.Outcomes | ScoreOutcomes:
        """The outcomes of all questions."""
        if self.bounds is not None:
            return ScoreOutcomes.from_scores([q.outcomes for q in self.questions], self.bounds)
        labels = [question.cluster for question in self.questions]
        # with --limit all questions may be of one cluster, which says nothing about others
        clusters = labels if None not in labels and len(set(labels)) > 1 else None
        return self._counted([q.outcomes for q in self.questions], self.settings.weights, clusters)

    @staticmethod
    def _counted(rows: Sequence[Sequence[Any]], weights: Any, clusters: Any = None) -> api.Outcomes:
        counts = [
            np.bincount(np.array(row, dtype=np.int64), minlength=len(weights)) for row in rows
        ]
        return api.Outcomes.from_counts(np.stack(counts), weights=weights, clusters=clusters)

    @cached_property
    def right_or_wrong(self) -> api.Outcomes | None:
        """What the pass family counts: scores from the threshold on are right; None without."""
        if not isinstance(self.outcomes, ScoreOutcomes):
            return self.outcomes if self.settings.binary else None
        threshold = self.settings.threshold
        if threshold is None:
            return None
        rows = [[score >= threshold for score in q.outcomes] for q in self.questions]
        return self._counted(rows, (0.0, 1.0))

    @cached_property
    def learned(self) -> api.Posterior:
        """The posterior under the learned prior, of scope population."""
        return api.hbayes_at_n(self.outcomes, "population", seed=self.settings.seed)

    def _over_settings(self, labels: Sequence[str]) -> SettingsPosterior:
        """Return the posterior over the settings with these labels, of independent questions."""
        s, codes = self.settings, {label: code for code, label in enumerate(labels)}
        counts = np.zeros((len(labels), self.n_questions, len(s.weights)), dtype=np.int64)
        for row, question in enumerate(self.questions):
            setting = [codes[label] for label in question.labels]
            np.add.at(counts[:, row], (setting, list(map(int, question.outcomes))), 1)
        return score_over_settings(counts, s.weights, labels=labels, level=s.level, seed=s.seed)

    @cached_property
    def family(self) -> dict[str, api.Posterior]:
        """The posteriors of the pass family under the learned prior, by the names of their rows."""
        quantities = quantities_by_row(self.settings.k, self.settings.tau)
        outcomes: Any = self.right_or_wrong
        posteriors = pass_posteriors(outcomes, list(quantities.values()), seed=self.settings.seed)
        return dict(zip(map(posterior_row, quantities), posteriors, strict=True))

    @cached_property
    def candidates(self) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[tuple[bool, ...], ...]]:
        """The candidate of each trial in a vote, and whether it is right.

        All right answers are one candidate, however they are written.
        """
        questions = self.questions
        return vote_candidates([q.answers for q in questions], [q.outcomes for q in questions])

    def quantities(self) -> Mapping[str, Callable[[], Result]]:
        """Return what has rows, in their order, and how it is computed."""
        s = self.settings
        quantities: dict[str, Callable[[], Result]] = {
            f"hbayes@{s.n}": lambda: self.learned.benchmark or self.learned,
            f"hbayes@{s.n}_population": lambda: self.learned,
        }
        labels = sorted({label for question in self.questions for label in question.labels})
        if len(labels) > 1 and self.bounds is None and self.outcomes.clusters is None:
            quantities[f"hbayes@{s.n}_settings"] = partial(self._over_settings, labels)
        if self.bounds is None:
            quantities[f"bayes@{s.n}"] = lambda: api.bayes_at_n(self.outcomes)
        quantities[f"avg@{s.n}"] = lambda: api.avg_at_n(self.outcomes)
        if self.right_or_wrong is not None:
            members = quantities_by_row(s.k, s.tau)
            for name, member in members.items():
                quantities[name] = partial(estimate, self.right_or_wrong, member)
                quantities[posterior_row(name)] = partial(
                    lambda row: self.family[row], posterior_row(name)
                )
            quantities[f"pass@{s.n}"] = partial(
                estimate, self.right_or_wrong, PassQuantity("pass@k", s.n)
            )
        if self.bounds is None and s.binary and self.questions[0].answer_source != "none":
            for k in dict.fromkeys((s.maj_k, s.n)):
                quantities[f"maj@{k}"] = partial(lambda k: api.maj_at_k(*self.candidates, k), k)
            quantities[f"hmaj@{s.maj_k}"] = lambda: api.maj_at_k_posterior(
                *self.candidates, s.maj_k, seed=s.seed
            )
        if not self.metric:
            quantities |= {name: partial(self._share, name) for name in SHARES}
        return quantities

    def _share(self, name: str) -> float:
        n_trials = sum(len(question.outcomes) for question in self.questions)
        return sum(map(SHARES[name], self.questions)) / n_trials if n_trials else 0.0

    def notes(self) -> Iterator[str]:
        """Yield warnings about the numbers."""
        first = self.questions[0]
        outcomes: list[Any] = [q.outcomes for q in self.questions]
        if self.bounds is None:
            answers = [q.answers for q in self.questions]
            yield from filter(
                None,
                (
                    zero_score(outcomes, answers, first.answer_source, first.origin),
                    serial_note(outcomes),
                ),
            )
        elif all(score == self.bounds[0] for row in outcomes for score in row):
            yield (
                f"{first.origin}: every trial has the lowest score, {self.bounds[0]:g}; does a "
                "filter take its answer?"
            )
        if self.bounds is not None and first.cluster is not None:
            yield f"{first.origin}: the posteriors of scores do not use the clusters"
        name, labels = f"hbayes@{self.settings.n}", {s for q in self.questions for s in q.labels}
        if len(labels) > 1 and f"{name}_settings" not in self.results:
            yield f"{first.origin}: scores and clusters have no interval about settings like these"
        note = getattr(self.results[name], "note", None)
        if note is not None:
            yield f"{name}: {note}"
        if self.right_or_wrong is not None:
            yield from family_notes(self.family)


@cached_in_evaluation(maxsize=256)
def warn_once(message: str) -> None:
    """Log a warning, once in an evaluation: tasks, filters and metrics may have the same."""
    log.warning("%s", message)


@cached_in_evaluation(maxsize=4)
def _table(questions: tuple[Any, ...]) -> Table:
    # Every row brings the same records; behind a gather they are other objects each time.
    table: Table = questions[0].table(questions)
    return table


def question_rows(question: GradedResponses) -> dict[str, RowValue]:
    """Return the value of every printed row for one question."""
    names = printed_names(question.settings, question.metric)
    return {name: RowValue(question.average, name, question) for name in names}


def aggregate(values: Sequence[RowValue]) -> RowNumber:
    """Compute one row over all questions; this is the `bayes` aggregation.

    Parameters
    ----------
    values : sequence of RowValue
        The row's value of every question, in any order.

    Returns
    -------
    RowNumber
        NaN where the table has no such row.
    """
    if not values or not all(isinstance(v, RowValue) for v in values):
        rule = "come from the metric `bayes` or from RepeatedSamplingTask, at least one"
        raise InvalidInputError.of("values", "type", rule, values[:1] if values else "none")
    table = _table(tuple(value.question for value in values))
    value: Any = table.rows.get(values[0].row, math.nan)
    number = RowNumber(value if isinstance(value, float) else math.nan)
    number.table = table
    return number
