"""Conditions of a rubric, such as `wrong and boxed` or `completion_tokens >= 512`.

A condition is parsed by Python's parser and evaluated by the code below, never by Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds
from lm_eval_bayes.stats import FloatArray, IntArray

#: One number per trial: 1 yes, 0 no, ½ unknown. In Kleene's logic `and` is then the minimum, `or`
#: the maximum, and `not` what is missing to 1.
Truth: TypeAlias = FloatArray

#: The verifier's probability from which an answer counts as invalid (C) or as right (A).
C_INVALID, A_HIGH = 0.5, 0.6


def compared(values: FloatArray, holds: npt.ArrayLike) -> Truth:
    """Return whether a comparison holds; unknown where the value is missing."""
    return np.where(np.isnan(values), 0.5, holds)


def variable(name: str, table: SignalTable, thresholds: TaskThresholds) -> Truth:
    """Compute one rubric variable.

    Parameters
    ----------
    name : str
        One of `VARIABLES`.
    table : SignalTable
        The trials.
    thresholds : TaskThresholds
        The percentiles of the task.

    Returns
    -------
    array, shape (T,)
        1 yes, 0 no, ½ unknown: a signal or a threshold is missing.

    Examples
    --------
    >>> table = SignalTable.from_questions([{"prompt_bpt": [2.0, None, 4.0]}])
    >>> variable("ood", table, TaskThresholds(tau_prompt=3.0))
    array([0. , 0.5, 1. ])
    """
    return _RULES[name].compute(table, thresholds)


@dataclass(frozen=True)
class _Rule:
    """Where a variable holds, and the signals that it is computed from."""

    signals: tuple[str, ...]
    compute: Callable[[SignalTable, TaskThresholds], Truth]


def _signal(name: str, compare: Callable[[Any, Any], Any], bound: float | str) -> _Rule:
    """Return the comparison of a signal with a number, or with the threshold of this name."""

    def compute(table: SignalTable, thresholds: TaskThresholds) -> Truth:
        values = table.column(name)
        limit = thresholds.value(bound) if isinstance(bound, str) else bound
        return compared(values + 0.0 * limit, compare(values, limit))

    return _Rule((name,), compute)


def _not(rule: _Rule) -> _Rule:
    return _Rule(rule.signals, lambda *case: 1.0 - rule.compute(*case))


def _both(first: _Rule, second: _Rule) -> _Rule:
    return _Rule(
        tuple(dict.fromkeys((*first.signals, *second.signals))),
        lambda *case: np.minimum(first.compute(*case), second.compute(*case)),
    )


def _invalid(table: SignalTable, _: TaskThresholds) -> Truth:
    repeated, c = table.column("repeated_pattern"), table.column("verifier_c")
    # without a verdict only the end of generation counts; a comparison with NaN is false
    return np.maximum(compared(repeated, repeated == 1), c >= C_INVALID)


def _b_leads(table: SignalTable, _: TaskThresholds) -> Truth:
    b, c = table.column("verifier_b"), table.column("verifier_c")
    return compared(b + c, b >= c)


_CORRECT = _signal("is_correct", operator.ge, 0.5)
_BOXED = _signal("has_box", operator.ge, 0.5)
_HIGH_CONF = _signal("completion_bpt", operator.le, "tau_high")
_OOD = _signal("prompt_bpt", operator.ge, "tau_prompt")
_ECONOMICAL = _signal("token_ratio", operator.le, "ratio_p33")
_NOT_VERBOSE = _signal("token_ratio", operator.le, "ratio_p66")
_CORR_HIGH = _signal("completion_bpt", operator.le, "corr_p33")
_NOT_CORR_LOW = _signal("completion_bpt", operator.le, "corr_p66")

_RULES: Mapping[str, _Rule] = {
    "invalid": _Rule(("repeated_pattern",), _invalid),
    "correct": _CORRECT,
    "wrong": _not(_CORRECT),
    "boxed": _BOXED,
    "unboxed": _not(_BOXED),
    "high_conf": _HIGH_CONF,
    "low_conf": _not(_HIGH_CONF),
    "wrong_high_conf": _both(
        _not(_CORRECT), _signal("completion_bpt", operator.le, "tau_low_wrong")
    ),
    "ood": _OOD,
    "ind": _not(_OOD),
    "economical": _ECONOMICAL,
    "moderate": _both(_not(_ECONOMICAL), _NOT_VERBOSE),
    "verbose": _not(_NOT_VERBOSE),
    "corr_high": _CORR_HIGH,
    "corr_mid": _both(_not(_CORR_HIGH), _NOT_CORR_LOW),
    "corr_low": _not(_NOT_CORR_LOW),
    "A_high": _signal("verifier_a", operator.ge, A_HIGH),
    "B_leads": _Rule(("verifier_b", "verifier_c"), _b_leads),
}

VARIABLES = tuple(_RULES)

#: The signals that each variable is computed from.
SIGNALS_OF = {name: rule.signals for name, rule in _RULES.items()}

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[FloatArray, float], FloatArray]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_LONGEST = 2000
#: How deep brackets and `not` may nest.
_DEEPEST = 100


@dataclass(frozen=True)
class Condition:
    """A condition on rubric variables and signals.

    Attributes
    ----------
    text : str
        The source text.
    variables : tuple of str
        The rubric variables it names.
    signals : tuple of str
        The signals it names.

    Examples
    --------
    >>> rule = Condition.read("wrong and (boxed or completion_tokens >= 512)")
    >>> rule.variables, rule.signals
    (('wrong', 'boxed'), ('completion_tokens',))
    """

    text: str
    variables: tuple[str, ...]
    signals: tuple[str, ...]
    _tree: ast.expr = field(compare=False, repr=False)

    @classmethod
    def read(cls, text: str, argument: str = "when") -> Condition:
        """Read a condition.

        Parameters
        ----------
        text : str
            Names joined by `and`, `or`, `not` and brackets; a signal is compared with a number.
        argument : str
            What to call it in an error.

        Raises
        ------
        InvalidInputError
            If it is anything else.
        """
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            rule = f"be a condition of 1..{_LONGEST} characters, such as `wrong and boxed`"
            raise InvalidInputError.of(argument, "format", rule, text)
        if "#" in text:
            # a comment would hide the bracket that is put around a condition
            raise InvalidInputError.of(argument, "format", "be a condition without a comment", text)
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            rule = "join names by `and`, `or`, `not` and brackets, as in `wrong and not boxed`"
            raise InvalidInputError.of(argument, "format", rule, text) from None
        variables: dict[str, None] = {}
        signals: dict[str, None] = {}
        _collect(tree, variables, signals, argument, _DEEPEST)
        return cls(text.strip(), tuple(variables), tuple(signals), tree)

    def evaluate(
        self,
        variable: Callable[[str], Truth],
        signal: Callable[[str], FloatArray],
    ) -> Truth:
        """Evaluate for every trial, with unknowns, shape (T,)."""
        return _evaluate(self._tree, variable, signal)


def _collect(
    node: ast.expr,
    variables: dict[str, None],
    signals: dict[str, None],
    argument: str,
    depth: int,
) -> None:
    if depth < 0:
        rule = f"nest brackets and `not` no deeper than {_DEEPEST}"
        raise InvalidInputError.of(argument, "range", rule, _source(node))
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _collect(part, variables, signals, argument, depth - 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _collect(node.operand, variables, signals, argument, depth - 1)
    elif isinstance(node, ast.Name):
        if node.id not in VARIABLES:
            rule = (
                f"name rubric variables ({', '.join(VARIABLES)}) or compare a signal with a number"
            )
            raise InvalidInputError.of(argument, "choice", rule, node.id)
        variables[node.id] = None
    elif isinstance(node, ast.Compare):
        signals[_comparison(node, argument)[0]] = None
    else:
        rule = "hold names, `and`, `or`, `not`, brackets and comparisons with numbers only"
        raise InvalidInputError.of(argument, "format", rule, _source(node))


def _comparison(node: ast.Compare, argument: str = "when") -> tuple[str, type[ast.cmpop], float]:
    left, kind, number = node.left, type(node.ops[0]), _number(node.comparators[0])
    is_signal = isinstance(left, ast.Name) and left.id not in VARIABLES
    if len(node.ops) > 1 or kind not in _COMPARISONS or number is None or not is_signal:
        rule = "compare one signal with one finite number, as in `completion_tokens >= 512`"
        raise InvalidInputError.of(argument, "format", rule, _source(node))
    return left.id, kind, number  # type: ignore[attr-defined]


def _number(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
        number = float(value) if type(value) in (int, float) else math.nan
    except (ValueError, TypeError, OverflowError):  # no literal, or of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        return "an expression too deep to be shown"


def _evaluate(
    node: ast.expr, variable: Callable[[str], Truth], signal: Callable[[str], FloatArray]
) -> Truth:
    if isinstance(node, ast.BoolOp):
        join = np.min if isinstance(node.op, ast.And) else np.max
        truth: Truth = join([_evaluate(part, variable, signal) for part in node.values], axis=0)
        return truth
    if isinstance(node, ast.UnaryOp):
        return 1.0 - _evaluate(node.operand, variable, signal)
    if isinstance(node, ast.Compare):
        name, kind, bound = _comparison(node)
        values = signal(name)
        return compared(values, _COMPARISONS[kind](values, bound))
    return variable(node.id)  # type: ignore[attr-defined]  # `read` lets nothing else through


def first_match(truths: list[Truth], n_trials: int) -> IntArray:
    """Return the index of the first condition that holds, −1 where that is unknown.

    Examples
    --------
    >>> yes, no, unknown = (np.array([v]) for v in (1.0, 0.0, 0.5))
    >>> [int(first_match(list(t), 1)[0]) for t in ((no, yes), (unknown, yes), (yes, unknown))]
    [1, -1, 0]
    """
    category = np.full(n_trials, -1, dtype=np.int64)
    unmatched = np.ones(n_trials, dtype=np.bool_)
    for index, truth in enumerate(truths):
        category[unmatched & (truth == 1)] = index
        unmatched &= truth == 0
    return category
