"""The rows of scores between two bounds: F1, ROUGE, judges, shares of tests passed.

The posterior is that of the mean score. A score is no right or wrong answer, so the rows of
Pass@k and its family exist only where `bayes_threshold` says from which score on a response passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import lm_eval_bayes as api
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task.result_rows import (
    GradedResponses,
    RowValue,
    Table,
    TrialTable,
    posterior_rows,
    row_functions,
    warn_once,
)
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.stats import Scope, ScoreOutcomes

log = get_logger(__name__)


@dataclass(frozen=True)
class ScoredResponses:
    """The scored responses to one question.

    Attributes
    ----------
    scores : tuple of float
        The score of each trial.
    passed : GradedResponses
        Which of them reach the threshold (none without one), with the errors and the settings.
    """

    scores: tuple[float, ...]
    passed: GradedResponses

    @classmethod
    def of(
        cls, scores: Sequence[float], errors: Sequence[str | None], settings: Settings, origin: str
    ) -> ScoredResponses:
        """Return the record of a question's scored responses."""
        threshold = settings.threshold
        graded = [
            (int(threshold is not None and score >= threshold), None, error)
            for score, error in zip(scores, errors, strict=True)
        ]
        passed = GradedResponses.of(graded, settings, answer_source="none", origin=origin)
        return cls(tuple(scores), passed)

    def table(self, questions: Sequence[ScoredResponses]) -> ScoreTable:
        """Return the rows over some questions."""
        return ScoreTable(questions)


class ScoreTable(Table):
    """The rows of the scores of some questions."""

    def __init__(self, questions: Sequence[ScoredResponses], quick: bool = False) -> None:
        self.questions = questions
        self.quick = quick
        self.settings = questions[0].passed.settings
        self.rows = score_row_functions(self.settings)
        self._posteriors: dict[Scope, api.Posterior] = {}

    @cached_property
    def outcomes(self) -> ScoreOutcomes:
        """The scores of all questions."""
        bounds = self.settings.bounds or (0.0, 1.0)
        return ScoreOutcomes.from_scores([question.scores for question in self.questions], bounds)

    @cached_property
    def passed(self) -> TrialTable:
        """The table of which trials reach the threshold."""
        return TrialTable([question.passed for question in self.questions], self.quick)

    def learned(self, scope: Scope) -> api.Posterior:
        """Return the posterior of the mean score."""
        if scope not in self._posteriors:
            self._posteriors[scope] = api.hbayes_at_n(self.outcomes, scope)
        return self._posteriors[scope]

    def learned_mean(self) -> float:
        """Return the mean of hbayes@N; notes are logged for all questions together."""
        posterior = self.learned("benchmark")
        if not self.quick:
            first = self.questions[0].passed
            if posterior.note is not None:
                warn_once(f"hbayes@{self.settings.n}: {posterior.note}")
            if all(score == self.outcomes.bounds[0] for q in self.questions for score in q.scores):
                message = "%s: every trial has the lowest score, %g; does a filter take its answer?"
                log.warning(message, first.origin, self.outcomes.bounds[0])
        return float(posterior.mu)


def score_row_functions(settings: Settings) -> dict[str, Callable[[ScoreTable], float]]:
    """Return the rows of scores in their order: name -> number from a table."""
    n = settings.n
    rows: dict[str, Callable[[ScoreTable], float]] = {
        **posterior_rows(f"hbayes@{n}", lambda table: table.learned("benchmark")),
        **posterior_rows(f"hbayes@{n}_population", lambda table: table.learned("population")),
        f"avg@{n}": lambda table: api.avg_at_n(table.outcomes).value,
        f"avg@{n}_stderr": lambda table: table.outcomes.standard_error,
    }
    rows[f"hbayes@{n}"] = ScoreTable.learned_mean
    of_trials = row_functions(settings, votes=False)
    for name, function in of_trials.items():
        if name == "grading_errors" or (settings.threshold is not None and "pass" in name):
            rows[name] = lambda table, function=function: function(table.passed)  # type: ignore[misc]
    return rows


def scored_question_rows(
    question: ScoredResponses,
) -> tuple[dict[str, RowValue], dict[str, RowValue]]:
    """Compute the rows that need no learned prior for one question.

    Returns
    -------
    rows : dict
        These rows.
    rows_of_all_questions : dict
        The other rows, which have a number for all questions only: here NaN, with the record.
    """
    table = ScoreTable([question], quick=True)
    learned = [name for name in table.rows if name.startswith("hbayes@")]
    others = [name for name in table.rows if not name.startswith("hbayes@")]
    return (
        {name: RowValue(float(table.row(name)), name, question) for name in others},
        {name: RowValue(math.nan, name, question) for name in learned},
    )
