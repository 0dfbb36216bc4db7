"""A rubric of the user's own: categories, weights, and rules or a function that chooses.

In a file of its own, or in a task's YAML under `metadata`, as `rubric_own`::

    name: summary_quality
    categories: [off topic, poor, fair, good]
    weights: [0, 0.3, 0.7, 1]
    category: !function judge.category     # (document, completion, signals) -> name or number

    name: terse
    categories: [invalid, long, terse]
    weights: [0, 0.5, 1]
    rules:
      - {category: invalid, when: repeated_pattern >= 0.5 or text_loop >= 0.5}
      - {category: terse, when: completion_tokens < 256}
      - {category: long, otherwise: true}
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import YAMLError

from lm_eval_bayes._util.text import error_line
from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.rubric.rules import Condition
from lm_eval_bayes.rubric.schemata import SCHEMATA, Category, Schema
from lm_eval_bayes.rubric.signals import RECORDED, SIGNALS

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_KEYS = ("name", "categories", "weights", "rules", "category", "why")
_MOST_CATEGORIES = 100


@dataclass(frozen=True)
class CustomRubric:
    """A rubric of the user.

    Attributes
    ----------
    schema : Schema
        Its categories. With a function, the rule of category k is ``<column> == k``.
    choose : callable or None
        The function, if the rubric has one.
    """

    schema: Schema
    choose: Callable[[Any, str, Mapping[str, Any]], Any] | None = None

    @property
    def column(self) -> str:
        """The signal that holds the function's choice."""
        return _column(self.schema.name)

    def category(self, document: Any, completion: str, signals: Mapping[str, Any]) -> int | None:
        """Return the category that the function chooses, None for its None.

        Raises
        ------
        TaskConfigError
            If it returns something other than a category.
        """
        choose: Any = self.choose
        chosen = choose(document, completion, signals)
        if chosen is None:
            return None
        names = [category.name for category in self.schema.categories]
        if isinstance(chosen, str) and chosen in names:
            return names.index(chosen)
        if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < len(names):
            return chosen
        sentence = (
            f"rubric {self.schema.name}: its function must return one of {', '.join(names)}, a "
            f"number 0..{len(names) - 1}, or None if it cannot decide; got {chosen!r:.80}"
        )
        raise TaskConfigError(sentence, "choice", "category", chosen)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        function = None
        if self.choose is not None:
            function = f"{self.choose.__module__}.{getattr(self.choose, '__qualname__', '?')}"
        return {**self.schema.to_dict(), "function": function}


def custom_rubrics(value: object, folder: Path) -> tuple[CustomRubric, ...]:
    """Read a task's `rubric_own`.

    Parameters
    ----------
    value : str, mapping, list of them, or None
        Paths of YAML files, or their content.
    folder : Path
        Where relative paths are looked for after the current folder.

    Raises
    ------
    InvalidInputError, TaskConfigError
        If a rubric cannot be read.
    """
    if value is None:
        return ()
    listed = value if isinstance(value, (list, tuple)) else [value]
    rubrics = tuple(_rubric(_content(item, folder)) for item in listed)
    names = [rubric.schema.name for rubric in rubrics]
    if len(set(names)) < len(names):
        rule = "give every rubric a name of its own"
        raise InvalidInputError.of("rubric_own", "duplicate", rule, names)
    return rubrics


def _content(value: object, folder: Path) -> Mapping[str, Any]:
    if isinstance(value, str):
        places = [Path(value).expanduser(), folder / value]
        file = next((path for path in places if path.is_file()), None)
        if file is None:
            raise InvalidInputError.of("rubric_own", "path", "be a YAML file that exists", value)
        value = _read(file)
    if not isinstance(value, Mapping):
        rule = "be a mapping with name, categories, weights, and rules or category"
        raise InvalidInputError.of("rubric_own", "type", rule, value)
    return value


def _rubric(content: Mapping[str, Any]) -> CustomRubric:
    unknown = [str(key) for key in content if key not in _KEYS]
    if unknown:
        raise InvalidInputError.of(
            "rubric_own", "unknown-key", f"have no keys but {', '.join(_KEYS)}", unknown[0]
        )
    name = content.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in SCHEMATA:
        rule = "start with a letter, then letters, digits, _ and -, and be none of the twelve"
        raise InvalidInputError.of("name", "format", rule, name)
    categories = _categories(content.get("categories"), name)
    weights = _weights(content.get("weights"), categories, name)
    rules, choose = content.get("rules"), content.get("category")
    if (rules is None) == (choose is None):
        rule = f"have either `rules` or `category` (a !function) in rubric {name}"
        raise InvalidInputError.of("rubric_own", "conflict", rule, "both" if rules else "neither")
    if choose is not None and not callable(choose):
        rule = f"be a function, as in `category: !function judge.category`, in rubric {name}"
        raise InvalidInputError.of("category", "type", rule, choose)
    conditions = (
        _by_function(name, categories) if rules is None else _by_rules(rules, categories, name)
    )
    why = str(content.get("why") or "the user's own")
    listed = tuple(
        Category(category, conditions[category], weight)
        for category, weight in zip(categories, weights, strict=True)
    )
    schema = Schema(name, listed, why)
    allowed = {*SIGNALS, *RECORDED, "outcome", _column(name)}
    unknown_signals = [signal for signal in schema.needs if signal not in allowed]
    if unknown_signals:
        rule = f"compare signals that exist ({', '.join([*SIGNALS, *RECORDED, 'outcome'])})"
        raise InvalidInputError.of("rules", "choice", rule, unknown_signals[0])
    return CustomRubric(schema, choose)


def _categories(value: object, name: str) -> list[str]:
    listed = [str(item) for item in value] if isinstance(value, (list, tuple)) else []
    if not 2 <= len(listed) <= _MOST_CATEGORIES or len(set(listed)) < len(listed):
        rule = f"be a list of 2..{_MOST_CATEGORIES} different names in rubric {name}"
        raise InvalidInputError.of("categories", "format", rule, value)
    return listed


def _weights(value: object, categories: Sequence[str], name: str) -> list[float]:
    top = len(categories) - 1
    if value is None:
        return [k / top for k in range(top + 1)]
    listed = value if isinstance(value, (list, tuple)) else []
    weights = [w for w in map(as_real, listed) if w is not None and math.isfinite(w)]
    if not len(weights) == len(listed) == len(categories):
        rule = f"have {len(categories)} finite numbers in rubric {name}, one a category"
        raise InvalidInputError.of("weights", "shape", rule, value)
    if min(weights) == max(weights):
        raise InvalidInputError.of(
            "weights", "duplicate", f"differ between the categories of rubric {name}", value
        )
    return weights


def _column(name: str) -> str:
    return "rubric_" + name.replace("-", "_")


def _by_function(name: str, categories: Sequence[str]) -> dict[str, str]:
    # the first and the last are open to their sides, so that every number is in one of them
    column = _column(name)
    last = len(categories) - 1
    rules = {category: f"{column} <= {index}" for index, category in enumerate(categories)}
    rules[categories[last]] = f"{column} > {last - 1}"
    return rules


def _by_rules(rules: object, categories: Sequence[str], name: str) -> dict[str, str]:
    """Return one condition a category: that of its rules, where no earlier rule holds."""
    if not isinstance(rules, (list, tuple)) or not rules:
        raise InvalidInputError.of("rules", "type", f"be a list of rules in rubric {name}", rules)
    pairs = [
        _rule(rule, f"rules[{index}]", categories, name, is_last=index == len(rules) - 1)
        for index, rule in enumerate(rules)
    ]
    conditions: dict[str, list[str]] = {category: [] for category in categories}
    for index, (category, when) in enumerate(pairs):
        # earlier rules of the same category need no exception
        others = [f"({other})" for of, other in pairs[:index] if of != category]
        before = f"not ({' or '.join(others)})" if others else ""
        parts = " and ".join(part for part in (when and f"({when})", before) if part)
        conditions[category].append(f"({parts})")
    unused = [category for category in categories if not conditions[category]]
    if unused:
        rule = f"give every category of rubric {name} a rule"
        raise InvalidInputError.of("rules", "missing", rule, f"none for {unused[0]}")
    return {category: " or ".join(listed) for category, listed in conditions.items()}


def _rule(
    rule: object, argument: str, categories: Sequence[str], name: str, *, is_last: bool
) -> tuple[str, str]:
    """Return a rule's category and its condition, which is empty for `otherwise`."""
    keys, form = {"category", "when"}, "be {category: NAME, when: CONDITION}"
    if is_last:  # so that every trial is in a category
        keys, form = {"category", "otherwise"}, "be {category: NAME, otherwise: true} at the end"
    if not isinstance(rule, Mapping) or set(rule) != keys or (is_last and not rule["otherwise"]):
        raise InvalidInputError.of(argument, "format", form, rule)
    category = rule["category"]
    if category not in categories:
        allowed = f"name one of the categories of rubric {name} ({', '.join(categories)})"
        raise InvalidInputError.of(argument, "choice", allowed, category)
    if is_last:
        return category, ""
    return category, Condition.read(rule["when"], f"{argument} of rubric {name}").text


def _read(path: Path) -> Any:
    """Return the content of a file, with the functions that it names by `!function`.

    Raises
    ------
    TaskConfigError
        If the file cannot be read, or a function does not exist.
    """
    from lm_eval.tasks._yaml_loader import load_yaml  # it imports the tasks

    try:
        return load_yaml(path)
    except (OSError, ValueError, ImportError, AttributeError, SyntaxError, YAMLError) as error:
        reason = f"the rubric {path.name} cannot be read: {error_line(error)}"
        raise TaskConfigError(reason, "damaged", "rubric_own", path.name) from None
