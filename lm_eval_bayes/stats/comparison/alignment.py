"""Putting the questions of two models side by side, so that what is compared is paired."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import check_option

Align: TypeAlias = Literal["strict", "intersection"]
ALIGNMENTS: tuple[Align, ...] = ("strict", "intersection")
#: Ids that an error message names for each side.
_SHOWN = 3

_Option = TypeVar("_Option", bound=str)


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two models on the same questions in the same order.

    Attributes
    ----------
    a, b : Outcomes
        Row for row the same questions.
    left_out_a, left_out_b : int
        Questions of each model that the other lacks and that were dropped.
    """

    a: Outcomes
    b: Outcomes
    left_out_a: int
    left_out_b: int


def align_questions(a: Outcomes, b: Outcomes, how: Align = "strict") -> Aligned:
    """Pair the questions of two models, in the order of `a`.

    With ids on both sides the ids are the pairing, whatever their order; without ids on
    either, the positions are, and there have to be equally many.

    Parameters
    ----------
    a, b : Outcomes
        With the same weights.
    how : {"strict", "intersection"}
        "strict": a question that only one side has is an error. "intersection": it is left
        out and counted.

    Returns
    -------
    Aligned

    Raises
    ------
    InvalidInputError
        If the weights differ, only one side has ids, M differs without ids, an id is on
        one side only ("strict"), or no id is on both ("intersection").

    Examples
    --------
    >>> a = Outcomes.from_matrix([[0], [1], [1]], question_ids=["p", "q", "r"])
    >>> b = Outcomes.from_matrix([[1], [0]], question_ids=["r", "p"])
    >>> pair = align_questions(a, b, "intersection")
    >>> pair.a.question_ids, pair.b.question_ids, pair.left_out_a, pair.left_out_b
    (('p', 'r'), ('p', 'r'), 1, 0)
    """
    how = check_option("align", how, ALIGNMENTS)
    check_same_weights(a, b)
    if a.question_ids is None and b.question_ids is None:
        if a.n_questions != b.n_questions:
            rule = f"have as many questions as `a` (M={a.n_questions}) where no ids pair them"
            raise InvalidInputError.of("b", rule, f"{b.n_questions} questions")
        return Aligned(a, b, 0, 0)
    if a.question_ids is None or b.question_ids is None:
        without, other = ("a", "b") if a.question_ids is None else ("b", "a")
        rule = f"carry question_ids, as `{other}` does, so that questions can be paired"
        raise InvalidInputError.of(without, rule, "none")
    row_of_id = {name: row for row, name in enumerate(b.question_ids)}
    rows_a = [row for row, name in enumerate(a.question_ids) if name in row_of_id]
    rows_b = [row_of_id[a.question_ids[row]] for row in rows_a]
    left_out_a, left_out_b = a.n_questions - len(rows_a), b.n_questions - len(rows_b)
    if how == "strict" and (left_out_a or left_out_b):
        rule = 'have the questions of `a`; align="intersection" compares the common ones'
        raise InvalidInputError.of("b", rule, _difference(a.question_ids, b.question_ids))
    if not rows_a:
        rule = "have at least one question in common with `a`"
        raise InvalidInputError.of("b", rule, _difference(a.question_ids, b.question_ids))
    return Aligned(_rows(a, rows_a), _rows(b, rows_b), left_out_a, left_out_b)


def check_same_weights(a: Outcomes, b: Outcomes) -> None:
    """Refuse two models whose trials are scored differently.

    Raises
    ------
    InvalidInputError
        If an argument is no `Outcomes`, or their weights differ.
    """
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, Outcomes):
            raise InvalidInputError.of(name, "be an Outcomes", type(value).__name__)
    if not np.array_equal(a.weights, b.weights):
        rule = f"have the weights of `a`, {a.weights.tolist()}"
        raise InvalidInputError.of("b", rule, f"weights {b.weights.tolist()}")


def _rows(outcomes: Outcomes, rows: Sequence[int]) -> Outcomes:
    """Return some questions of a model, in the order asked for."""
    if list(rows) == list(range(outcomes.n_questions)):
        return outcomes
    ids = outcomes.question_ids
    return Outcomes(
        outcomes.counts[rows],
        outcomes.weights,
        outcomes.prior_counts[rows],
        outcomes.prior_strength,
        None if ids is None else tuple(ids[row] for row in rows),
    )


def _difference(a: tuple[Hashable, ...], b: tuple[Hashable, ...]) -> str:
    """Name the first ids that only one side has."""
    in_a, in_b = set(a), set(b)
    parts = []
    for side, only in (
        ("a", [name for name in a if name not in in_b]),
        ("b", [name for name in b if name not in in_a]),
    ):
        if only:
            shown = ", ".join(repr(name) for name in only[:_SHOWN])
            more = f" and {len(only) - _SHOWN} more" if len(only) > _SHOWN else ""
            parts.append(f"only in {side}: {shown}{more}")
    return "; ".join(parts)
