"""Rows of rubrics, computed at the end: categories need the thresholds of all questions.

For one question a row has no number: its value, a NaN, carries the question's signals to
:func:`lm_eval_bayes.harness.task.result_rows.aggregate`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task.result_rows import Table, posterior_rows
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.rubric.schemata import Schema
from lm_eval_bayes.rubric.scoring import Prior, RubricScore, score
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, task_thresholds
from lm_eval_bayes.stats import Posterior

log = get_logger(__name__)

MISSING_ROW, THRESHOLDS_ROW = "rubric_missing", "rubric_thresholds"


@dataclass(frozen=True)
class QuestionSignals:
    """The signals of one question's trials.

    Attributes
    ----------
    columns : mapping of str to list
        Column by signal, one value a trial, None where it is missing.
    task : str
        The task's name.
    rubrics : tuple of Schema
        The rubrics that have rows.
    thresholds : TaskThresholds or None
        Frozen ones.
    prior : {"hbayes", "bayes"}
        The prior of the posteriors.
    settings : Settings
        The task's other settings.
    digest : str
        A hash of all of it, by which records are compared.
    """

    columns: Mapping[str, Sequence[float | None]] = field(compare=False)
    task: str = field(compare=False)
    rubrics: tuple[Schema, ...] = field(compare=False)
    thresholds: TaskThresholds | None = field(compare=False)
    prior: Prior = field(compare=False)
    settings: Settings = field(compare=False)
    digest: str = field(default="")

    def __post_init__(self) -> None:
        frozen = self.thresholds and self.thresholds.values
        inputs = [self.task, [schema.to_dict() for schema in self.rubrics], frozen, self.prior]
        text = json.dumps([*inputs, self.settings.to_dict(), dict(self.columns)])
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        object.__setattr__(self, "digest", digest)

    def table(self, questions: Sequence[QuestionSignals]) -> RubricTable:
        """Return the rows over some questions."""
        return RubricTable(questions)


class RubricTable(Table):
    """The rows of rubrics over all questions of one task."""

    def __init__(self, questions: Sequence[QuestionSignals]) -> None:
        first = questions[0]
        self.settings, self.prior, self.rubrics = first.settings, first.prior, first.rubrics
        self.rows = row_functions(self.rubrics, self.settings)
        self.signals = SignalTable.from_questions([question.columns for question in questions])
        self.thresholds = first.thresholds or task_thresholds([self.signals])
        self._scores: dict[str, RubricScore] = {}
        self._posteriors: dict[str, Posterior] = {}

    def score(self, schema: Schema) -> RubricScore:
        """Return the score of a rubric, with a warning where trials lack a signal."""
        if schema.name not in self._scores:
            result = score(schema, self.signals, self.thresholds)
            self._scores[schema.name] = result
            if result.missing:
                log.warning(
                    "rubric %s: %d of %d trials lack a signal it needs and are in no category",
                    *(schema.name, result.missing, self.signals.n_trials),
                )
        return self._scores[schema.name]

    def posterior(self, schema: Schema) -> Posterior:
        """Return the posterior of a rubric's score."""
        if schema.name not in self._posteriors:
            result = self.score(schema).posterior(self.prior, self.settings.seed)
            self._posteriors[schema.name] = result
        return self._posteriors[schema.name]

    @cached_property
    def missing(self) -> int:
        """The most trials that lack a signal of one of the rubrics."""
        return max(map(self._missing_of, self.rubrics), default=0)

    def _missing_of(self, schema: Schema) -> int:
        try:
            return self.score(schema).missing
        except InvalidInputError:  # no trial has what it needs
            return self.signals.n_trials


def row_functions(
    rubrics: Sequence[Schema], settings: Settings
) -> dict[str, Callable[[RubricTable], float | str]]:
    """Return the rows of some rubrics: name -> number from all questions."""
    rows: dict[str, Callable[[RubricTable], float | str]] = {}
    for schema in rubrics:
        rows |= posterior_rows(
            f"rubric_{schema.name}@{settings.n}",
            lambda table, schema=schema: table.posterior(schema),  # type: ignore[misc]
        )
    if rubrics:
        rows[MISSING_ROW] = lambda table: float(table.missing)
        rows[THRESHOLDS_ROW] = lambda table: table.thresholds.hash
    return rows
