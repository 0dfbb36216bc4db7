"""Rows of rubrics, computed at the end: categories need the thresholds of all questions.

For one question a row has no number: its value, a NaN, carries the question's signals to
:func:`lm_eval_bayes.harness.task.result_rows.aggregate`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task.result_rows import Result, Table, four_rows
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
        self.signals = SignalTable.from_questions([question.columns for question in questions])
        self.thresholds = first.thresholds or task_thresholds([self.signals])
        self._scores: dict[str, RubricScore] = {}

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

    def _posterior(self, schema: Schema) -> Posterior:
        return self.score(schema).posterior(self.prior, self.settings.seed)

    @cached_property
    def missing(self) -> int:
        """The most trials that lack a signal of one of the rubrics."""
        return max(map(self._missing_of, self.rubrics), default=0)

    def _missing_of(self, schema: Schema) -> int:
        try:
            return self.score(schema).missing
        except InvalidInputError:  # no trial has what it needs
            return self.signals.n_trials

    @property
    def printed(self) -> list[str]:
        """The names of the rows that the harness prints."""
        names = printed_names(self.rubrics, self.settings.n)
        return [name for name in names if name != MISSING_ROW or self.missing]

    def quantities(self) -> Mapping[str, Callable[[], Result]]:
        """Return what has rows, in their order, and how it is computed."""
        quantities: dict[str, Callable[[], Result]] = {
            f"rubric_{schema.name}@{self.settings.n}": partial(self._posterior, schema)
            for schema in self.rubrics
        }
        if self.rubrics:
            quantities[MISSING_ROW] = lambda: float(self.missing)
            quantities[THRESHOLDS_ROW] = lambda: self.thresholds.hash
        return quantities


def printed_names(rubrics: Sequence[Schema], n: int) -> list[str]:
    """Return the names of the rows that the harness prints of some rubrics, in their order."""
    names = [name for s in rubrics for name in four_rows(f"rubric_{s.name}@{n}")[:2]]
    return [*names, MISSING_ROW] if rubrics else []
