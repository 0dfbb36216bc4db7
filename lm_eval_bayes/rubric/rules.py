"""Conditions of a rubric, such as `wrong and boxed` or `completion_tokens >= 512`.

A condition is parsed by Python's parser and evaluated by the code below, never by Python.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.variables import (
    EXCLUSIVE,
    IMPLIES,
    UNKNOWN,
    VARIABLES,
    YES,
    Truth,
    compared,
    conjunction,
    disjunction,
    negation,
)
from lm_eval_bayes.stats import FloatArray, IntArray

#: One case of the input: the truth of each variable and a value of each signal.
Assignment: TypeAlias = dict[str, bool | float]

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[FloatArray, float], FloatArray]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
_LONGEST = 2000
#: How deep brackets and `not` may nest.
_DEEPEST = 100
#: Above this number of cases a rubric is refused.
_MOST_CASES = 200_000
_CASES_AT_ONCE = 4096


@dataclass(frozen=True)
class Condition:
    """A condition on rubric variables and signals.

    Attributes
    ----------
    text : str
        The source text.
    variables : tuple of str
        The rubric variables it names.
    bounds : tuple of (str, tuple of float)
        The signals it names, each with the numbers it is compared with.

    Examples
    --------
    >>> rule = Condition.read("wrong and (boxed or completion_tokens >= 512)")
    >>> rule.variables, rule.bounds
    (('wrong', 'boxed'), (('completion_tokens', (512.0,)),))
    >>> rule.hold([{"wrong": True, "boxed": False, "completion_tokens": 600.0}])
    array([ True])
    """

    text: str
    variables: tuple[str, ...]
    bounds: tuple[tuple[str, tuple[float, ...]], ...]
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
        bounds: dict[str, list[float]] = {}
        _collect(tree, variables, bounds, argument, _DEEPEST)
        signals = tuple((name, tuple(sorted(set(values)))) for name, values in bounds.items())
        return cls(text.strip(), tuple(variables), signals, tree)

    def evaluate(
        self,
        variable: Callable[[str], Truth],
        signal: Callable[[str], FloatArray],
    ) -> Truth:
        """Evaluate for every trial, with unknowns, shape (T,)."""
        return _evaluate(self._tree, variable, signal)

    def hold(self, cases: Sequence[Assignment]) -> npt.NDArray[np.bool_]:
        """Evaluate cases without unknowns, shape (cases,)."""
        truth = self.evaluate(
            lambda name: np.array([case[name] for case in cases], dtype=np.int8),
            lambda name: np.array([case[name] for case in cases], dtype=np.float64),
        )
        return np.asarray(truth == YES)


def uncovered_and_unreached(
    conditions: tuple[Condition, ...],
) -> tuple[Assignment | None, tuple[int, ...]]:
    """Return what is wrong with conditions of which the first that holds counts.

    Returns
    -------
    uncovered : dict or None
        A case in which no condition holds, None where every case has one.
    unreached : tuple of int
        If every case has one: the conditions that are in no case the first to hold.

    Raises
    ------
    InvalidInputError
        If there are too many cases to try them all, see `distinguishable_cases`.

    Examples
    --------
    >>> texts = ("wrong", "correct", "wrong and boxed")
    >>> uncovered_and_unreached(tuple(map(Condition.read, texts)))
    (None, (2,))
    """
    unreached = set(range(len(conditions)))
    left = distinguishable_cases(conditions)
    while cases := list(itertools.islice(left, _CASES_AT_ONCE)):
        held = np.array([condition.hold(cases) for condition in conditions])
        covered = held.any(axis=0)
        if not covered.all():
            return cases[int(covered.argmin())], ()
        unreached -= set(held.argmax(axis=0).tolist())
    return None, tuple(sorted(unreached))


def distinguishable_cases(conditions: tuple[Condition, ...]) -> Iterator[Assignment]:
    """Yield every case that the conditions distinguish.

    Of exclusive variables (economical, moderate, verbose) exactly one holds; a signal takes every
    number it is compared with and one between, below and above them.

    Raises
    ------
    InvalidInputError
        If there are more than 200,000.
    """
    named = {name for condition in conditions for name in condition.variables}
    groups = [group for group in EXCLUSIVE if named & set(group)]
    named |= {implied for name, implied in IMPLIES if name in named}
    groups += [g for g in EXCLUSIVE if named & set(g) and g not in groups]
    grouped = {name for group in groups for name in group}
    choices: list[list[Assignment]] = [
        [{name: name == true for name in group} for true in group] for group in groups
    ]
    choices += [[{name: False}, {name: True}] for name in sorted(named - grouped)]
    bounds: dict[str, set[float]] = {}
    for condition in conditions:
        for name, values in condition.bounds:
            bounds.setdefault(name, set()).update(values)
    choices += [[{name: v} for v in _representatives(values)] for name, values in bounds.items()]
    if math.prod(map(len, choices)) > _MOST_CASES:
        rule = f"distinguish at most {_MOST_CASES:,} cases"
        raise InvalidInputError.of("rules", "range", rule, math.prod(map(len, choices)))
    for parts in itertools.product(*choices):
        case = {name: value for part in parts for name, value in part.items()}
        if all(case[implied] or not case[name] for name, implied in IMPLIES if name in case):
            yield case


def _representatives(bounds: set[float]) -> list[float]:
    ordered = sorted(bounds)
    between = [0.5 * a + 0.5 * b for a, b in itertools.pairwise(ordered)]
    # a step of 1.0 vanishes beside 1e17
    below = min(ordered[0] - 1.0, math.nextafter(ordered[0], -math.inf))
    above = max(ordered[-1] + 1.0, math.nextafter(ordered[-1], math.inf))
    return sorted([below, *ordered, *between, above])


def _collect(
    node: ast.expr,
    variables: dict[str, None],
    bounds: dict[str, list[float]],
    argument: str,
    depth: int,
) -> None:
    if depth < 0:
        rule = f"nest brackets and `not` no deeper than {_DEEPEST}"
        raise InvalidInputError.of(argument, "range", rule, _source(node))
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _collect(part, variables, bounds, argument, depth - 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _collect(node.operand, variables, bounds, argument, depth - 1)
    elif isinstance(node, ast.Name):
        if node.id not in VARIABLES:
            rule = (
                f"name rubric variables ({', '.join(VARIABLES)}) or compare a signal with a number"
            )
            raise InvalidInputError.of(argument, "choice", rule, node.id)
        variables[node.id] = None
    elif isinstance(node, ast.Compare):
        name, _, bound = _comparison(node, argument)
        bounds.setdefault(name, []).append(bound)
    else:
        rule = "hold names, `and`, `or`, `not`, brackets and comparisons with numbers only"
        raise InvalidInputError.of(argument, "format", rule, _source(node))


def _comparison(node: ast.Compare, argument: str = "when") -> tuple[str, type[ast.cmpop], float]:
    left, right = node.left, node.comparators[0]
    kind = type(node.ops[0])
    if isinstance(right, ast.Name):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    number = _number(right)
    if len(node.ops) > 1 or kind not in _COMPARISONS or number is None or not _is_signal(left):
        rule = "compare one signal with one finite number, as in `completion_tokens >= 512`"
        raise InvalidInputError.of(argument, "format", rule, _source(node))
    return left.id, kind, number  # type: ignore[attr-defined]


def _is_signal(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id not in VARIABLES


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
        join = conjunction if isinstance(node.op, ast.And) else disjunction
        truth = _evaluate(node.values[0], variable, signal)
        for part in node.values[1:]:
            truth = join(truth, _evaluate(part, variable, signal))
        return truth
    if isinstance(node, ast.UnaryOp):
        return negation(_evaluate(node.operand, variable, signal))
    if isinstance(node, ast.Compare):
        name, kind, bound = _comparison(node)
        values = signal(name)
        return compared(values, np.asarray(_COMPARISONS[kind](values, bound), dtype=np.bool_))
    return variable(node.id)  # type: ignore[attr-defined]  # `read` lets nothing else through


def first_match(truths: list[Truth], n_trials: int) -> IntArray:
    """Return the index of the first condition that holds, −1 where that is unknown.

    Examples
    --------
    >>> yes, no, unknown = (np.array([v], dtype=np.int8) for v in (1, 0, -1))
    >>> [int(first_match(list(t), 1)[0]) for t in ((no, yes), (unknown, yes), (yes, unknown))]
    [1, -1, 0]
    """
    category = np.full(n_trials, UNKNOWN, dtype=np.int64)
    unmatched = np.ones(n_trials, dtype=np.bool_)
    for index, truth in enumerate(truths):
        category[unmatched & (truth == 1)] = index
        unmatched &= truth == 0
    return category
