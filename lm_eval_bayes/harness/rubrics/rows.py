"""Rows of rubrics, computed at the end: categories need the thresholds of all questions.

For one question a row has no number. What it hands to the harness carries the question's
signals; :func:`aggregate` gets those of all questions back, from all ranks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.rubric.schemata import Schema
from lm_eval_bayes.rubric.scoring import Prior, RubricScore, score
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, task_thresholds
from lm_eval_bayes.stats.results import Posterior

log = get_logger(__name__)

MISSING_ROW, THRESHOLDS_ROW = "rubric_missing", "rubric_thresholds"
_CACHED_RUNS = 4


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
        A hash of all of it.
    """

    columns: Mapping[str, Sequence[float | None]]
    task: str
    rubrics: tuple[Schema, ...]
    thresholds: TaskThresholds | None
    prior: Prior
    settings: Settings
    digest: str = field(default="")

    def __post_init__(self) -> None:
        frozen = self.thresholds and self.thresholds.values
        inputs = [self.task, [schema.to_dict() for schema in self.rubrics], frozen, self.prior]
        text = json.dumps([*inputs, self.settings.to_dict(), dict(self.columns)])
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        object.__setattr__(self, "digest", digest)


class RubricValue(float):
    """One rubric row of one question: no number, but the signals it will come from."""

    row: str
    signals: QuestionSignals

    def __new__(cls, row: str, signals: QuestionSignals) -> RubricValue:
        """Build it; `row` is the row's name."""
        self = super().__new__(cls, math.nan)
        self.row, self.signals = row, signals
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, for the gather over ranks."""
        return RubricValue, (self.row, self.signals)


class _Run:
    """All questions of one task, with what is computed once for all rows."""

    def __init__(self, questions: Sequence[QuestionSignals]) -> None:
        first = questions[0]
        self.settings, self.prior, self.rubrics = first.settings, first.prior, first.rubrics
        self.table = SignalTable.from_questions([question.columns for question in questions])
        self.thresholds = first.thresholds or task_thresholds([self.table])
        self._scores: dict[str, RubricScore] = {}
        self._posteriors: dict[str, Posterior] = {}

    def score(self, schema: Schema) -> RubricScore:
        if schema.name not in self._scores:
            result = score(schema, self.table, self.thresholds)
            self._scores[schema.name] = result
            if result.missing:
                log.warning(
                    "rubric %s: %d of %d trials lack a signal it needs and are in no category",
                    *(schema.name, result.missing, self.table.n_trials),
                )
        return self._scores[schema.name]

    def posterior(self, schema: Schema) -> Posterior:
        if schema.name not in self._posteriors:
            result = self.score(schema).posterior(self.prior, self.settings.seed)
            self._posteriors[schema.name] = result
        return self._posteriors[schema.name]

    @cached_property
    def missing(self) -> int:
        return max(map(self._missing_of, self.rubrics), default=0)

    def _missing_of(self, schema: Schema) -> int:
        try:
            return self.score(schema).missing
        except InvalidInputError:  # no trial has what it needs
            return self.table.n_trials


_runs: OrderedDict[tuple[str, ...], _Run] = OrderedDict()


def _run(questions: Sequence[QuestionSignals]) -> _Run:
    # every row brings the same questions; behind a gather they are other objects each time
    key = tuple(question.digest for question in questions)
    if key not in _runs:
        _runs[key] = _Run(questions)
        while len(_runs) > _CACHED_RUNS:
            _runs.popitem(last=False)
    return _runs[key]


_Row = Callable[[_Run], float | str]


def row_functions(rubrics: Sequence[Schema], settings: Settings) -> dict[str, _Row]:
    """Return the rows of some rubrics: name -> number from all questions."""
    rows: dict[str, _Row] = {}
    for schema in rubrics:
        rows |= _schema_rows(schema, f"rubric_{schema.name}@{settings.n}")
    if rubrics:
        rows[MISSING_ROW] = lambda run: float(run.missing)
        rows[THRESHOLDS_ROW] = lambda run: run.thresholds.hash
    return rows


def _schema_rows(schema: Schema, name: str) -> dict[str, _Row]:
    def end(run: _Run, which: str) -> float:
        s = run.settings
        result = run.posterior(schema).interval(s.level, s.interval, seed=s.seed)
        return float(getattr(result, which))

    return {
        name: lambda run: float(run.posterior(schema).mu),
        f"{name}_stderr": lambda run: float(run.posterior(schema).sigma),
        f"{name}_low": lambda run: end(run, "low"),
        f"{name}_high": lambda run: end(run, "high"),
    }


def aggregate(values: Sequence[RubricValue]) -> float | str:
    """Compute one rubric row over all questions.

    Returns
    -------
    float or str
        The number; NaN where no trial has the signals. For the row of the thresholds their hash.
    """
    if not values or not all(isinstance(value, RubricValue) for value in values):
        raise InvalidInputError.of("values", "come from a rubric task, at least one", "none")
    run = _run([value.signals for value in values])
    row = values[0].row
    try:
        return row_functions(run.rubrics, run.settings)[row](run)
    except InvalidInputError as error:
        log.warning("row %s cannot be computed: %s", row, error)
        return math.nan
