"""The twelve schemata of [Hariri 2026, Table 5]: categories, their rules and weights.

A trial falls into the first category whose rule holds. Except for
invalid trials the rules of a schema exclude each other, so their order does not matter.

Where the paper's table leaves a gap:

- wrong∧low_conf, in the schemata that have wrong_high_conf, is every other wrong trial: the two
  thresholds (40th percentile of all, 60th of the wrong) would leave some in neither and some in
  both.
- A correct trial of `concision_high_conf` is 4 if economical without high confidence, and 5 with.
- `verifier_only`: an answer that is not A_high goes to B or C, whichever is more likely; C of
  one half or more is invalid already.
- Weights: the paper gives those of `format_aware`; `why` states the reason for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.rules import SIGNALS_OF, Condition, first_match, variable
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import PERCENTILES, TaskThresholds
from lm_eval_bayes.stats import IntArray


@dataclass(frozen=True)
class Category(Record):
    """One category of a schema.

    Attributes
    ----------
    name : str
        Its name in tables.
    when : str
        Its rule; see :class:`lm_eval_bayes.rubric.rules.Condition`.
    weight : float
        Its score.
    """

    name: str
    when: str
    weight: float


@dataclass(frozen=True)
class Schema:
    """A rubric: categories 0..C in their order.

    Attributes
    ----------
    name : str
        Its name.
    categories : tuple of Category
        At least two.
    why : str
        Where the weights come from.

    Raises
    ------
    InvalidInputError
        If a rule cannot be read, or two categories have one name.

    Examples
    --------
    >>> schema = SCHEMATA["strict_compliance"]
    >>> trials = {"is_correct": [1, 1, 0, 1], "has_box": [1, 0, 1, 1]}
    >>> table = SignalTable.from_questions([{**trials, "repeated_pattern": [0, 0, 0, None]}])
    >>> schema.classify(table, TaskThresholds())
    array([ 2,  1,  1, -1])
    >>> schema.needs
    ('repeated_pattern', 'is_correct', 'has_box')
    """

    name: str
    categories: tuple[Category, ...]
    why: str = ""

    def __post_init__(self) -> None:
        if len(self.categories) < 2:
            rule = f"have at least two categories in rubric {self.name}"
            raise InvalidInputError.of("categories", "empty", rule, len(self.categories))
        names = [category.name for category in self.categories]
        if len({*names, "missing"}) <= len(names):
            # counts are reported by name, those of trials without a category as "missing"
            rule = f"have different names in rubric {self.name}, and none `missing`"
            raise InvalidInputError.of("categories", "duplicate", rule, names)
        for category in self.categories:
            _check_weight(category.weight, self.name)
        _ = self.rules  # refuses those that cannot be read

    @cached_property
    def rules(self) -> tuple[Condition, ...]:
        """The categories' conditions."""
        return tuple(
            Condition.read(c.when, f"the rule of {self.name}: {c.name}") for c in self.categories
        )

    @property
    def weights(self) -> tuple[float, ...]:
        """The score of each category."""
        return tuple(category.weight for category in self.categories)

    @property
    def variables(self) -> tuple[str, ...]:
        """The rubric variables that the rules name."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.variables))

    @property
    def needs(self) -> tuple[str, ...]:
        """The signals without which no trial can be classified."""
        of_variables = [signal for name in self.variables for signal in SIGNALS_OF[name]]
        compared = [name for rule in self.rules for name in rule.signals]
        return tuple(dict.fromkeys([*of_variables, *compared]))

    @property
    def uses_thresholds(self) -> bool:
        """Whether a rule depends on a percentile of the task's trials.

        Examples
        --------
        >>> SCHEMATA["exact_match"].uses_thresholds, SCHEMATA["conf_calibrated"].uses_thresholds
        (False, True)
        """
        divided = {signal for signal, _, _ in PERCENTILES.values()}
        return any(divided.intersection(SIGNALS_OF[name]) for name in self.variables)

    def with_weights(self, weights: Sequence[float]) -> Schema:
        """Return the schema with other weights.

        Raises
        ------
        InvalidInputError
            If there is not one finite number per category.
        """
        if len(weights) != len(self.categories):
            names = "; ".join(category.name for category in self.categories)
            rule = (
                f"have {len(self.categories)} entries for {self.name}, one per category ({names})"
            )
            raise InvalidInputError.of("weights", "shape", rule, list(weights))
        categories = tuple(
            replace(category, weight=_check_weight(weight, self.name))
            for category, weight in zip(self.categories, weights, strict=True)
        )
        return replace(self, categories=categories)

    def classify(self, table: SignalTable, thresholds: TaskThresholds) -> IntArray:
        """Return the category of every trial, −1 where a signal it needs is missing.

        Parameters
        ----------
        table : SignalTable
            The trials.
        thresholds : TaskThresholds
            The percentiles of the task.

        Returns
        -------
        array, shape (T,), ints in −1..C
        """
        variables = {name: variable(name, table, thresholds) for name in self.variables}
        truths = [rule.evaluate(variables.__getitem__, table.column) for rule in self.rules]
        return first_match(truths, table.n_trials)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.name,
            "categories": [category.to_dict() for category in self.categories],
            "needs": list(self.needs),
            "why": self.why,
        }


def _check_weight(weight: object, schema: str) -> float:
    number = isinstance(weight, (int, float, np.number)) and not isinstance(weight, bool)
    if not number or not abs(weight) <= 1e100:  # type: ignore[arg-type]
        rule = f"be finite numbers in rubric {schema}"
        raise InvalidInputError.of("weights", "type", rule, weight)
    return float(weight)  # type: ignore[arg-type]


def _schema(name: str, why: str, *categories: tuple[str, str, float]) -> Schema:
    invalid = Category("invalid", "invalid", 0.0)
    others = (
        Category(label, f"not invalid and {rule}", weight) for label, rule, weight in categories
    )
    return Schema(name, (invalid, *others), why)


#: By name, in the order of the paper's table: why the weights are so, and the categories after
#: `invalid`.
_TABLE: Mapping[str, tuple[Any, ...]] = {
    "exact_match": (
        "a right answer is the score",
        ("wrong", "wrong", 0.0),
        ("correct", "correct", 1.0),
    ),
    "format_aware": (
        "the paper's 0, 0, 1, 2, 3, divided by 3",
        ("wrong, unboxed", "wrong and unboxed", 0.0),
        ("wrong, boxed", "wrong and boxed", 1 / 3),
        ("correct, unboxed", "correct and unboxed", 2 / 3),
        ("correct, boxed", "correct and boxed", 1.0),
    ),
    "conf_calibrated": (
        "confidence raises the score of right answers and lowers that of wrong ones",
        ("wrong, low confidence", "wrong and not wrong_high_conf", 0.2),
        ("wrong, high confidence", "wrong_high_conf", 0.0),
        ("correct, low confidence", "correct and corr_low", 0.6),
        ("correct, middling confidence", "correct and corr_mid", 0.8),
        ("correct, high confidence", "correct and corr_high", 1.0),
    ),
    "ood_robustness": (
        "a right answer to an unfamiliar prompt scores most, an error there more than elsewhere",
        ("wrong, unfamiliar prompt", "wrong and ood", 0.1),
        ("wrong, familiar prompt", "wrong and ind", 0.0),
        ("correct, unfamiliar prompt", "correct and ood", 1.0),
        ("correct, familiar prompt", "correct and ind", 0.8),
    ),
    "strict_compliance": (
        "an answer outside the box counts as none",
        ("wrong or unboxed", "(wrong or unboxed)", 0.0),
        ("correct, boxed", "correct and boxed", 1.0),
    ),
    "conf_wrong_penalty": (
        "a wrong answer with low confidence scores a quarter, a confident one nothing",
        ("wrong, high confidence", "wrong_high_conf", 0.0),
        ("wrong, low confidence", "wrong and not wrong_high_conf", 0.25),
        ("correct", "correct", 1.0),
    ),
    "verifier_only": (
        "correct if A >= .6, else incorrect or invalid, whichever of B and C is larger",
        ("judged invalid", "not A_high and not B_leads", 0.0),
        ("judged incorrect", "not A_high and B_leads", 0.1),
        ("judged correct", "A_high", 1.0),
    ),
    "format_confidence": (
        "right first, then boxed, then confidence that fits: each step is worth less",
        ("wrong, unboxed", "wrong and unboxed", 0.0),
        ("wrong, boxed, low confidence", "wrong and boxed and low_conf", 0.2),
        ("wrong, boxed, high confidence", "wrong and boxed and high_conf", 0.1),
        ("correct, unboxed, low confidence", "correct and unboxed and low_conf", 0.6),
        ("correct, unboxed, high confidence", "correct and unboxed and high_conf", 0.7),
        ("correct, boxed, low confidence", "correct and boxed and low_conf", 0.9),
        ("correct, boxed, high confidence", "correct and boxed and high_conf", 1.0),
    ),
    "length_robust": (
        "a right answer is the score, at any length that ended with a stop",
        ("wrong", "wrong", 0.0),
        ("correct", "correct", 1.0),
    ),
    "verifier_probe": (
        "grader and verifier together: where they differ the score lies between",
        ("wrong, verifier agrees not", "wrong and A_high", 0.3),
        ("wrong, verifier agrees", "wrong and not A_high", 0.0),
        ("correct, verifier agrees not", "correct and not A_high", 0.7),
        ("correct, verifier agrees", "correct and A_high", 1.0),
    ),
    "efficiency_adjusted": (
        "a right answer loses a tenth and a quarter with length; short errors cost least",
        ("wrong, economical", "wrong and economical", 0.1),
        ("wrong, moderate", "wrong and moderate", 0.05),
        ("wrong, verbose", "wrong and verbose", 0.0),
        ("correct, economical", "correct and economical", 1.0),
        ("correct, moderate", "correct and moderate", 0.9),
        ("correct, verbose", "correct and verbose", 0.75),
    ),
    "concision_high_conf": (
        "the shorter a right answer the better, most of all with high confidence",
        ("wrong", "wrong", 0.0),
        ("correct, verbose", "correct and verbose", 0.6),
        ("correct, moderate", "correct and moderate", 0.75),
        ("correct, economical", "correct and economical and low_conf", 0.9),
        ("correct, economical, high confidence", "correct and economical and high_conf", 1.0),
    ),
}

#: The twelve, by name.
SCHEMATA: Mapping[str, Schema] = MappingProxyType(
    {name: _schema(name, *row) for name, row in _TABLE.items()}
)


def schema_from(content: Mapping[str, Any]) -> Schema:
    """Return the schema of which `to_dict` gave the content.

    Raises
    ------
    InvalidInputError
        If the content is not that of a schema.

    Examples
    --------
    >>> schema_from(SCHEMATA["exact_match"].to_dict()) == SCHEMATA["exact_match"]
    True
    """
    try:
        categories = tuple(
            Category(str(category["name"]), str(category["when"]), category["weight"])
            for category in content["categories"]
        )
        return Schema(str(content["name"]), categories, str(content.get("why", "")))
    except (KeyError, TypeError, AttributeError):
        rule = "have a name and categories, each with name, when and weight"
        raise InvalidInputError.of("rubric", "format", rule, content) from None


def schema_named(name: str) -> Schema:
    """Return one of the twelve.

    Raises
    ------
    InvalidInputError
        If there is none of this name.
    """
    return SCHEMATA[check_option("schema", name, tuple(SCHEMATA))]
