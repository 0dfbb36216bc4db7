"""Conditions of a rubric, such as `wrong and boxed` or `completion_tokens >= 512`.

A condition is parsed by Python's parser and evaluated by the code below, never by Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.variables import VARIABLES, Truth, compared
from lm_eval_bayes.stats import FloatArray, IntArray

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
