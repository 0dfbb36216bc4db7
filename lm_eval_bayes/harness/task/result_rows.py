"""The rows of a results table, computed from the trials of one question or of many.

Every value that a task hands to the harness is a :class:`RowValue`: the number for one question,
with the record of that question's trials. The harness gathers these over ranks and gives them
back to :func:`aggregate`, which computes the row for all questions from a :class:`Table`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

import lm_eval_bayes as api
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import cached_in_evaluation, current_evaluation
from lm_eval_bayes.harness.task.answers import AnswerSource, zero_score
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.stats import (
    Interval,
    PassQuantity,
    Prior,
    Scope,
    estimate,
    family_notes,
    pass_posteriors,
    posterior_row,
    quantities_by_row,
    serial_note,
    vote_candidates,
)

log = get_logger(__name__)

#: The sum of the parameters of a single question's prior.
_QUESTION_PRIOR = 1.4
#: Category, answer and error of one response.
Grading = tuple[int, "str | None", "str | None"]


@dataclass(frozen=True)
class GradedResponses:
    """The graded responses to one question, on their way from the grader to the rows.

    The trials of a saved run are :class:`lm_eval_bayes.runs.trials.Trials`; this
    record is gathered over ranks, so it carries the settings and is compared by value.

    Attributes
    ----------
    outcomes : tuple of int
        The category of each trial, 0..C.
    answers : tuple
        The extracted answer of each trial; None if there is none.
    errors : tuple
        Why the grader failed on a trial, which then counts as category 0; None if it did not.
    settings : Settings
        The run's settings.
    cluster : str or None
        The cluster of the question; None without clusters.
    answer_source : {"grader", "filter", "response", "none"}
        Where the answers come from; with "none" there is no vote.
    origin : str
        The task and its filter, for warnings.
    """

    outcomes: tuple[int, ...]
    answers: tuple[str | None, ...]
    errors: tuple[str | None, ...]
    settings: Settings
    cluster: str | None = None
    answer_source: AnswerSource = "grader"
    origin: str = "the run"

    @classmethod
    def of(cls, graded: Sequence[Grading], settings: Settings, **further: Any) -> GradedResponses:
        """Return the record of a question's graded responses, with further attributes."""
        outcomes, answers, errors = zip(*graded, strict=True) if graded else ((), (), ())
        # one string for equal answers, of which most trials of a question have one of a few
        shared: dict[str | None, str | None] = {}
        answers = tuple(shared.setdefault(answer, answer) for answer in answers)
        return cls(outcomes, answers, errors, settings, **further)

    def table(self, questions: Sequence[GradedResponses]) -> Table:
        """Return the rows over some questions."""
        return TrialTable(questions)


class RowValue(float):
    """One row's number for one question, with the record of its trials.

    The record's `table` returns the rows over some questions, whose records are of its class.
    """

    __slots__ = ("question", "row")  # a run has dozens for every question

    row: str
    question: Any

    def __new__(cls, value: float, row: str, question: Any) -> RowValue:
        """Build the number; `row` is the row's name."""
        self = super().__new__(cls, value)
        self.row, self.question = row, question
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, for the gather over ranks."""
        return RowValue, (float(self), self.row, self.question)


class Table:
    """The rows over some questions; what several rows need is computed once.

    Attributes
    ----------
    settings : Settings
        The run's settings.
    rows : mapping of str to callable
        The rows in their order: name -> number from this table.
    quick : bool
        Whether the ends of intervals may be rough: those of single questions are only logged.
    """

    settings: Settings
    rows: Mapping[str, Callable[[Any], float | str]]
    quick = False

    def row(self, name: str) -> float | str:
        """Compute a row: NaN, with a warning, where the trials do not allow it."""
        try:
            return self.rows[name](self)
        except InvalidInputError as error:
            log.warning("row %s cannot be computed: %s", name, error)
            return math.nan

    def interval(self, posterior: api.Posterior) -> Interval:
        """Return the interval of a posterior by the run's settings."""
        s = self.settings
        method = "beta" if self.quick and s.interval == "exact" else s.interval
        return posterior.interval(s.level, method)


class TrialTable(Table):
    """The rows of graded trials, in the form that the kernels take."""

    def __init__(self, questions: Sequence[GradedResponses], quick: bool = False) -> None:
        self.questions = questions
        self.quick = quick
        self.settings = questions[0].settings
        self.rows = row_functions(self.settings, votes=questions[0].answer_source != "none")

    @cached_property
    def outcomes(self) -> api.Outcomes:
        """Counts and weights of all questions."""
        width = len(self.settings.weights)
        counts = [np.bincount(q.outcomes, minlength=width) for q in self.questions]
        labels = [q.cluster for q in self.questions]
        # with --limit all questions may be of one cluster, which says nothing about others
        clusters = labels if None not in labels and len(set(labels)) > 1 else None
        return api.Outcomes.from_counts(
            np.stack(counts), weights=self.settings.weights, clusters=clusters
        )

    @cached_property
    def posterior(self) -> api.Posterior:
        """The posterior under the uniform prior."""
        return api.bayes_at_n(self.outcomes)

    @cached_property
    def average(self) -> Any:
        """avg@N."""
        return api.avg_at_n(self.outcomes)

    def learned(self, scope: Scope) -> api.Posterior:
        """Return the posterior under the learned prior.

        A single question has nothing to learn a prior from: its own is Dirichlet(1.4/K, …).
        """
        if self.quick:
            return api.bayes_at_n(self.outcomes, _QUESTION_PRIOR / self.outcomes.n_categories)
        counts = tuple(map(tuple, self.outcomes.counts.tolist()))
        clusters = self.outcomes.clusters if scope == "population" else None
        return _learned(counts, self.settings.weights, scope, self.settings.seed, clusters)

    def learned_mean(self) -> float:
        """Return the mean of hbayes@N; its note is logged for all questions together.

        So is a warning where every trial is graded 0.
        """
        posterior = self.learned("benchmark")
        if not self.quick:
            outcomes, answers = zip(*((q.outcomes, q.answers) for q in self.questions), strict=True)
            first = self.questions[0]
            warning = zero_score(outcomes, answers, first.answer_source, first.origin)
            for line in filter(None, (warning, serial_note(outcomes))):
                log.warning("%s", line)
            if posterior.note is not None:
                warn_once(f"hbayes@{self.settings.n}: {posterior.note}")
        return float(posterior.mu)

    @cached_property
    def family(self) -> Mapping[str, api.Posterior]:
        """The posteriors of the pass family under the learned prior, by the names of their rows.

        Their notes are logged for all questions together.
        """
        quantities = quantities_by_row(self.settings.k, self.settings.tau)
        prior: Prior = 0.5 * _QUESTION_PRIOR if self.quick else "learned"
        seed = self.settings.seed
        found = pass_posteriors(self.outcomes, list(quantities.values()), prior, seed=seed)
        posteriors = dict(zip(map(posterior_row, quantities), found, strict=True))
        for note in () if self.quick else family_notes(posteriors):
            warn_once(note)
        return posteriors

    @cached_property
    def candidates(self) -> tuple[tuple[tuple[Hashable, ...], ...], tuple[tuple[bool, ...], ...]]:
        """The candidate of each trial in a vote, and whether it is right.

        All right answers are one candidate, however they are written.
        """
        questions = self.questions
        return vote_candidates([q.answers for q in questions], [q.outcomes for q in questions])

    @cached_property
    def vote(self) -> api.Posterior:
        """The posterior of maj@k; its note is logged where `bayes_rows` may show its interval."""
        s = self.settings
        if self.quick:  # the vote as that share of the question's trials
            won = round(s.n * api.maj_at_k(*self.candidates, s.maj_k).value)
            return api.bayes_at_n(
                api.Outcomes.from_counts([[s.n - won, won]]), 0.5 * _QUESTION_PRIOR
            )
        posterior = api.maj_at_k_posterior(*self.candidates, s.maj_k, seed=s.seed)
        shown = s.rows != "short" and posterior.k != 1
        if posterior.note is not None and shown:
            warn_once(f"{posterior_row(f'maj@{s.maj_k}')}: {posterior.note}")
        return posterior


@cached_in_evaluation(maxsize=1024)
def _learned(
    counts: tuple[tuple[int, ...], ...],
    weights: tuple[float, ...],
    scope: Scope,
    seed: int,
    clusters: tuple[Hashable, ...] | None,
) -> api.Posterior:
    # Several rows need one posterior, and many questions have the same counts.
    outcomes = api.Outcomes.from_counts(counts, weights=weights, clusters=clusters)
    return api.hbayes_at_n(outcomes, scope, seed=seed)


def posterior_rows(
    name: str, find: Callable[[Any], api.Posterior]
) -> dict[str, Callable[[Any], float]]:
    """Return the rows of one posterior of a table: mean, sd and the ends of its interval."""
    return {
        name: lambda table: float(find(table).mu),
        f"{name}_stderr": lambda table: float(find(table).sigma),
        f"{name}_low": lambda table: float(table.interval(find(table)).low),
        f"{name}_high": lambda table: float(table.interval(find(table)).high),
    }


def _family_rows(name: str, quantity: PassQuantity) -> dict[str, Callable[[TrialTable], float]]:
    """Return the rows of a member of the pass family: the estimate, and the posterior's rows."""
    return {
        name: lambda table: float(estimate(table.outcomes, quantity).value),
        **posterior_rows(posterior_row(name), lambda table: table.family[posterior_row(name)]),
    }


def row_functions(
    settings: Settings, *, votes: bool = True
) -> dict[str, Callable[[TrialTable], float]]:
    """Return the rows of a run in their order: name -> number from a table.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    votes : bool
        Whether the responses have answers, so that there is maj@k.
    """
    n = settings.n
    rows: dict[str, Callable[[TrialTable], float]] = {
        **posterior_rows(f"hbayes@{n}", lambda table: table.learned("benchmark")),
        **posterior_rows(f"hbayes@{n}_population", lambda table: table.learned("population")),
        **posterior_rows(f"bayes@{n}", lambda table: table.posterior),
        f"avg@{n}": lambda table: float(table.average.value),
        f"avg@{n}_stderr": lambda table: float(table.average.sigma),
    }
    rows[f"hbayes@{n}"] = TrialTable.learned_mean
    if settings.binary:
        for name, quantity in quantities_by_row(settings.k, settings.tau).items():
            rows |= _family_rows(name, quantity)
    if settings.binary and votes:
        name = f"maj@{settings.maj_k}"
        rows[name] = lambda table: float(api.maj_at_k(*table.candidates, settings.maj_k).value)
        rows |= posterior_rows(posterior_row(name), lambda table: table.vote)
    rows["grading_errors"] = lambda table: float(
        sum(error is not None for question in table.questions for error in question.errors)
    )
    return rows


def question_rows(question: GradedResponses) -> dict[str, RowValue]:
    """Compute every row for one question."""
    numbers = _numbers(replace(question, cluster=None, origin=""))
    return {name: RowValue(number, name, question) for name, number in numbers.items()}


# In one process tasks, filters and looks have the same questions.
@lru_cache(maxsize=1024)
def _numbers(question: GradedResponses) -> dict[str, float]:
    table = TrialTable([question], quick=True)
    return {name: float(table.row(name)) for name in table.rows}


@cached_in_evaluation(maxsize=256)
def warn_once(message: str) -> None:
    """Log a warning, once in an evaluation: tasks, filters and metrics may have the same."""
    log.warning("%s", message)


@cached_in_evaluation(maxsize=4)
def _table(questions: tuple[Any, ...]) -> Table:
    # Every row brings the same records; behind a gather they are other objects each time.
    table: Table = questions[0].table(questions)
    return table


def aggregate(values: Sequence[RowValue]) -> float | str:
    """Compute one row over all questions; this is the `bayes` aggregation.

    Parameters
    ----------
    values : sequence of RowValue
        The row's value of every question, in any order.

    Returns
    -------
    float or str
        The number, NaN where it cannot be computed; ``"N/A"`` for the sd of a single question on
        harness 0.4.12, which would divide by the number of questions less one when it pools the
        tasks of a group.
    """
    if not values or not all(isinstance(v, RowValue) for v in values):
        rule = "come from the metric `bayes` or from RepeatedSamplingTask, at least one"
        raise InvalidInputError.of("values", "type", rule, values[:1] if values else "none")
    row = values[0].row
    if len(values) == 1 and row.endswith("_stderr") and _harness_pools():
        return "N/A"
    table = _table(tuple(value.question for value in values))
    number, evaluation = table.row(row), current_evaluation()
    learned = f"hbayes@{table.settings.n}"
    if row in (learned, f"{learned}_population") and evaluation is not None:
        evaluation.learned_tables[row, id(number)] = (number, table)
    return number


def _harness_pools() -> bool:
    # From 0.4.13 on the harness can average sds over a group without pooling them.
    from lm_eval.api import metrics

    return not hasattr(metrics, "unweighted_mean_stderr")


class RowName(str):
    """The name of a row in a group's YAML, where N is known only at run time.

    A group lists the metrics to aggregate by name, but the name of `bayes@N` holds the run's N.
    When the evaluation begins, each group gets the names at the N of its tasks, and again if N
    changes after sampling.
    """

    form: str

    def at(self, n: int) -> RowName:
        """Return the row's name at `n` trials per question."""
        form = getattr(self, "form", str(self))
        named = RowName(form.replace("{n}", str(n)))
        named.form = form
        return named


HBAYES_AT_N = RowName("hbayes@{n}")
BAYES_AT_N = RowName("bayes@{n}")
AVG_AT_N = RowName("avg@{n}")
