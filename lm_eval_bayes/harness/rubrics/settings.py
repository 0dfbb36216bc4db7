"""The `rubric_*` settings of a task, checked before sampling starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness.rubrics.custom_rubric import CustomRubric, custom_rubrics
from lm_eval_bayes.harness.task.settings import check_names
from lm_eval_bayes.rubric.schemata import SCHEMATA, Schema, schema_named
from lm_eval_bayes.rubric.scoring import Prior
from lm_eval_bayes.rubric.thresholds import Thresholds
from lm_eval_bayes.stats import ESTIMATORS

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
