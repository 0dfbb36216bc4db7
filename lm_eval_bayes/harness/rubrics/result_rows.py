"""Rubrics of a task: their settings, and their rows, computed at the end.

For one question a row has no number: its value, a NaN, carries the question's signals to
:func:`lm_eval_bayes.harness.task.result_rows.aggregate`.

Categories need the thresholds of all questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.rubrics.custom_rubric import CustomRubric, custom_rubrics
from lm_eval_bayes.harness.task.result_rows import Result, Table, four_rows
from lm_eval_bayes.harness.task.settings import Settings, check_names
from lm_eval_bayes.rubric.schemata import SCHEMATA, Schema, schema_named
from lm_eval_bayes.rubric.scoring import Prior, RubricScore, score
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, Thresholds, task_thresholds
from lm_eval_bayes.stats import ESTIMATORS, Posterior

log = get_logger(__name__)


#: Every key that a rubric task's metadata may carry for it, with what it means.
KEYS = {
    "rubric_schemata": "names of schemata, which must find their signals (default: all that do)",
    "rubric_thresholds": "a file of frozen thresholds (default: those of the task's own trials)",
    "rubric_prior": "hbayes, learned across questions, or bayes, the paper's (default hbayes)",
    "rubric_own": "a custom rubric, or a list of them: a YAML file, or its content",
}


@dataclass(frozen=True)
class RubricSettings:
    """The checked settings of one rubric task.

    Attributes
    ----------
    schemata : tuple of Schema
        The named ones of the twelve; all twelve if none is named.
    named : bool
        Whether they are named, so that a missing signal is an error.
    own : tuple of CustomRubric
        Rubrics of the user's own.
    thresholds : Thresholds or None
        Frozen ones.
    prior : {"hbayes", "bayes"}
        The prior of the rows.
    """

    schemata: tuple[Schema, ...]
    named: bool
    own: tuple[CustomRubric, ...]
    thresholds: Thresholds | None
    prior: Prior

    @property
    def rubrics(self) -> tuple[Schema, ...]:
        """Every rubric, the user's own last."""
        return (*self.schemata, *(own.schema for own in self.own))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        frozen = self.thresholds
        return {
            "schemata": [schema.name for schema in self.schemata],
            "own": [own.to_dict() for own in self.own],
            "thresholds": "own percentiles" if frozen is None else frozen.hash,
            "prior": self.prior,
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> RubricSettings:
        """Read and check the `rubric_*` keys of a task's metadata.

        Raises
        ------
        TaskConfigError
            If a key is unknown.
        InvalidInputError
            If a value breaks its rule.
        """
        check_names(metadata, "rubric", KEYS)
        names = metadata.get("rubric_schemata")
        source = metadata.get("config_source")
        folder = Path(source).parent if isinstance(source, str) else Path()
        return cls(
            schemata=tuple(SCHEMATA.values()) if names is None else _schemata(names),
            named=names is not None,
            own=custom_rubrics(metadata.get("rubric_own"), folder),
            thresholds=_thresholds(metadata.get("rubric_thresholds")),
            prior=check_option("rubric_prior", metadata.get("rubric_prior", "hbayes"), ESTIMATORS),
        )


def _schemata(names: object) -> tuple[Schema, ...]:
    listed: Sequence[object] = names if isinstance(names, (list, tuple)) else [names]
    if not all(isinstance(name, str) for name in listed):
        raise InvalidInputError.of("rubric_schemata", "type", "be names of schemata", names)
    return tuple(schema_named(str(name)) for name in dict.fromkeys(listed))


def _thresholds(path: object) -> Thresholds | None:
    if path is None:
        return None
    try:
        text = Path(str(path)).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        rule = f"be a readable file that `lm-eval-bayes study rubric --freeze` wrote ({error})"
        raise InvalidInputError.of("rubric_thresholds", "path", rule, path) from None
    return Thresholds.from_json(text, "rubric_thresholds")


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
