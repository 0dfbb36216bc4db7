"""The demo questions: every answer computed again from the problem's expression."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from lm_eval_bayes.harness.task.questions import demo_questions

OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def compute(node: ast.expr) -> Fraction:
    """Work out an expression of whole numbers, + - * / and brackets, exactly."""
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](compute(node.left), compute(node.right))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    raise ValueError(f"not arithmetic: {ast.dump(node)}")


ROWS = list(demo_questions()["test"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_answer_is_right(row: dict[str, str]) -> None:
    value = compute(ast.parse(row["check"], mode="eval").body)
    assert value.denominator == 1
    assert row["answer"] == str(value)


def test_forty_questions_at_five_levels() -> None:
    assert Counter(row["level"] for row in ROWS) == dict.fromkeys(range(1, 6), 8)
    assert len({row["id"] for row in ROWS}) == len({row["problem"] for row in ROWS}) == 40
    assert [row["level"] for row in ROWS] == sorted(row["level"] for row in ROWS)
