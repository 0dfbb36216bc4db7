"""The questions of two models paired: by their ids, or by their places."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes

Align: TypeAlias = Literal["strict", "intersection"]
ALIGNMENTS: tuple[Align, ...] = ("strict", "intersection")
#: Ids that an error message names for each side.
_SHOWN = 3


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
            raise InvalidInputError.of("b", "shape", rule, f"{b.n_questions} questions")
        return Aligned(a, b, 0, 0)
    if a.question_ids is None or b.question_ids is None:
        without, other = ("a", "b") if a.question_ids is None else ("b", "a")
        rule = f"carry question_ids, as `{other}` does, so that questions can be paired"
        raise InvalidInputError.of(without, "missing", rule, "none")
    row_of_id = {name: row for row, name in enumerate(b.question_ids)}
    rows_a = [row for row, name in enumerate(a.question_ids) if name in row_of_id]
    rows_b = [row_of_id[a.question_ids[row]] for row in rows_a]
    left_out_a, left_out_b = a.n_questions - len(rows_a), b.n_questions - len(rows_b)
    if not rows_a or (how == "strict" and (left_out_a or left_out_b)):
        rule = "have at least one question in common with `a`"
        if how == "strict":
            rule = 'have the questions of `a`; align="intersection" compares the common ones'
        got = _difference(a.question_ids, b.question_ids)
        raise InvalidInputError.of("b", "mismatch", rule, got)
    return Aligned(a.take(rows_a), b.take(rows_b), left_out_a, left_out_b)


def common_clusters(
    of_models: Sequence[tuple[Hashable, ...] | None], argument: str = "clusters"
) -> tuple[Hashable, ...] | None:
    """Return the clusters of M questions that several models answered; None if none has any.

    Parameters
    ----------
    of_models : sequence of tuple or None
        The clusters of the same questions in the same order, for every model that has some.
    argument : str
        Their name in an error.

    Raises
    ------
    InvalidInputError
        If two models have different clusters for a question.

    Examples
    --------
    >>> common_clusters([None, ("x", "x", "y")])
    ('x', 'x', 'y')
    """
    given = [labels for labels in of_models if labels is not None]
    for labels in given[1:]:
        for question, (own, first) in enumerate(zip(labels, given[0], strict=True)):
            if own != first:
                rule = f"put a question into the same cluster for all models ({first!r})"
                got = f"{own!r} for question {question}"
                raise InvalidInputError.of(argument, "mismatch", rule, got)
    return given[0] if given else None


def check_same_weights(a: Outcomes, b: Outcomes) -> None:
    """Refuse two models whose trials are scored differently.

    Raises
    ------
    InvalidInputError
        If an argument is no `Outcomes`, or their weights differ.
    """
    for name, value in (("a", a), ("b", b)):
        check_outcomes(name, value, scores=True)
    if a.scored != b.scored:
        kinds = ["scores" if side.scored else "categories" for side in (a, b)]
        raise InvalidInputError.of("b", "mismatch", f"have {kinds[0]}, as `a` has", kinds[1])
    if not np.array_equal(a.weights, b.weights):
        rule = f"have the weights of `a`, {a.weights.tolist()}"
        raise InvalidInputError.of("b", "mismatch", rule, f"weights {b.weights.tolist()}")


def _difference(a: tuple[Hashable, ...], b: tuple[Hashable, ...]) -> str:
    """Name the first ids that only one side has."""
    parts = []
    for side, own, other in (("a", a, set(b)), ("b", b, set(a))):
        if only := [name for name in own if name not in other]:
            shown = ", ".join(repr(name) for name in only[:_SHOWN])
            more = f" and {len(only) - _SHOWN} more" if len(only) > _SHOWN else ""
            parts.append(f"only in {side}: {shown}{more}")
    return "; ".join(parts)
