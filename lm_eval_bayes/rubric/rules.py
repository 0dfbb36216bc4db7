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

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import PERCENTILES, TaskThresholds
from lm_eval_bayes.stats import FloatArray, IntArray

#: One number per trial: 1 yes, 0 no, ½ unknown. In Kleene's logic `and` is then the minimum, `or`
#: the maximum, and `not` what is missing to 1.
Truth: TypeAlias = FloatArray

#: The verifier's probability from which an answer counts as invalid, whatever else is known.
C_INVALID = 0.5

#: The rubric variables [Hariri 2026, App. D]: conditions that may also compare with a threshold or
#: another signal.
_DEFINITIONS: Mapping[str, str] = {
    "invalid": "repeated_pattern == 1",  # or judged so, see `variable`
    "correct": "is_correct >= 0.5",
    "wrong": "not correct",
    "boxed": "has_box >= 0.5",
    "unboxed": "not boxed",
    "high_conf": "completion_bpt <= tau_high",
    "low_conf": "not high_conf",
    "wrong_high_conf": "wrong and completion_bpt <= tau_low_wrong",
    "ood": "prompt_bpt >= tau_prompt",
    "ind": "not ood",
    "economical": "token_ratio <= ratio_p33",
    "moderate": "not economical and not verbose",
    "verbose": "not token_ratio <= ratio_p66",
    "corr_high": "completion_bpt <= corr_p33",
    "corr_mid": "not corr_high and not corr_low",
    "corr_low": "not completion_bpt <= corr_p66",
    "A_high": "verifier_a >= 0.6",
    "B_leads": "verifier_b >= verifier_c",
}
VARIABLES = tuple(_DEFINITIONS)
_TREES = {name: ast.parse(text, mode="eval").body for name, text in _DEFINITIONS.items()}


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

    def bound(node: ast.expr) -> float | FloatArray | None:
        if not isinstance(node, ast.Name):
            return _number(node)
        by_name = thresholds.value if node.id in PERCENTILES else table.column
        return by_name(node.id)

    truth = _evaluate(
        _TREES[name], lambda other: variable(other, table, thresholds), table.column, bound
    )
    if name == "invalid":
        # without a verdict only the end of generation counts; a comparison with NaN is false
        return np.maximum(truth, table.column("verifier_c") >= C_INVALID)
    return truth


def _signals_of(name: str) -> tuple[str, ...]:
    nodes = (node.id for node in ast.walk(_TREES[name]) if isinstance(node, ast.Name))
    parts = (_signals_of(part) if part in VARIABLES else (part,) for part in nodes)
    signals = dict.fromkeys(signal for part in parts for signal in part)
    return tuple(signal for signal in signals if signal not in PERCENTILES)


#: The signals that each variable is computed from.
SIGNALS_OF = {name: _signals_of(name) for name in VARIABLES}

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], FloatArray]] = {
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

        def named(name: str) -> Truth:
            if name not in VARIABLES:
                names = ", ".join(VARIABLES)
                rule = f"name rubric variables ({names}) or compare a signal with a number"
                raise InvalidInputError.of(argument, "choice", rule, name)
            variables[name] = None
            return np.zeros(0)

        def compared(name: str) -> FloatArray:
            signals[name] = None
            return np.zeros(0)

        _evaluate(tree, named, compared, argument=argument)
        return cls(text.strip(), tuple(variables), tuple(signals), tree)

    def evaluate(
        self,
        variable: Callable[[str], Truth],
        signal: Callable[[str], FloatArray],
    ) -> Truth:
        """Evaluate for every trial, with unknowns, shape (T,)."""
        return _evaluate(self._tree, variable, signal)


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
    node: ast.expr,
    variable: Callable[[str], Truth],
    signal: Callable[[str], FloatArray],
    bound: Callable[[ast.expr], float | FloatArray | None] = _number,
    argument: str = "when",
    depth: int = _DEEPEST,
) -> Truth:
    """Evaluate a condition; `bound` gives what a signal is compared with, None for no number.

    Raises
    ------
    InvalidInputError
        If the expression holds anything that a condition may not.
    """
    if depth < 0:
        rule = f"nest brackets and `not` no deeper than {_DEEPEST}"
        raise InvalidInputError.of(argument, "range", rule, _source(node))
    deeper = (variable, signal, bound, argument, depth - 1)
    if isinstance(node, ast.BoolOp):
        join = np.min if isinstance(node.op, ast.And) else np.max
        truth: Truth = join([_evaluate(part, *deeper) for part in node.values], axis=0)
        return truth
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return 1.0 - _evaluate(node.operand, *deeper)
    if isinstance(node, ast.Name):
        return variable(node.id)
    if not isinstance(node, ast.Compare):
        rule = "hold names, `and`, `or`, `not`, brackets and comparisons with numbers only"
        raise InvalidInputError.of(argument, "format", rule, _source(node))
    left, limit = node.left, bound(node.comparators[0])
    compare = _COMPARISONS.get(type(node.ops[0]))
    is_signal = isinstance(left, ast.Name) and left.id not in VARIABLES
    if len(node.ops) > 1 or compare is None or limit is None or not is_signal:
        rule = "compare one signal with one finite number, as in `completion_tokens >= 512`"
        raise InvalidInputError.of(argument, "format", rule, _source(node))
    values = signal(left.id)  # type: ignore[attr-defined]
    return np.where(np.isnan(values + 0.0 * limit), 0.5, compare(values, limit))


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
