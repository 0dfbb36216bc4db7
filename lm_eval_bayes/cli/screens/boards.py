"""The screens of several models: their scores (`summary`), and their ranks (`rank`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import NO_VALUE, format_score
from lm_eval_bayes.cli.screens.bars import rank_strip
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    names,
    say_bars,
    say_columns,
    say_sentence,
)
from lm_eval_bayes.cli.ui.output import say

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.board import Board

#: Columns of a task beside the mean of tasks, and of a strip of ranks.
_TASK, _STRIP = 6, 20


def show_scores(board: Board, form: Form, extra: Sequence[Column] = ()) -> None:
    """Print the scores of models as a chart of intervals, best first, with further columns."""
    say_sentence(board.score_sentence(), form)
    say()
    rows = board.leaderboard.rows
    level = f"{100 * board.leaderboard.spec.level:g}%"
    columns = [
        names("model", [row.model for row in rows]),
        Column("mean" if board.tasks else "score", [format_score(row.mu) for row in rows]),
        Column(f"{level} interval", [form.interval(row.interval) for row in rows], left=True),
    ]
    if not form.drawn:
        head, at = "other questions", 1
        if board.scope == "population":
            head, at = "these questions", 0
        others = [ends[at] for ends in board.intervals]
        cells = [NO_VALUE if interval is None else form.interval(interval) for interval in others]
        columns.append(Column(head, cells, left=True))
    columns += [*_tasks(board), *extra]
    _say_bars(board, columns, form)
    if form.drawn:
        say("━ these questions   ─ other questions of the kind   ● score (hbayes@N)")


def show_ranks(board: Board, form: Form, extra: Sequence[Column] = ()) -> None:
    """Print the sets of ranks that models may have, with their scores and further columns."""
    say_sentence(board.rank_sentence(), form)
    say()
    rows = board.leaderboard.rows
    sets = [(int(row.rank_low), int(row.rank_high)) for row in rows]
    dash = "–" if form.drawn else "-"
    columns = [
        Column("ranks", [str(a) if a == b else f"{a}{dash}{b}" for a, b in sets]),
        names("model", [row.model for row in rows]),
        Column("mean" if board.tasks else "score", [format_score(row.mu) for row in rows]),
    ]
    if not board.tasks and 1 < len(rows) <= _STRIP:
        head = f"1{len(rows):>{len(rows) - 1}}"
        strips = [rank_strip(*ends, len(rows), form.drawn) for ends in sets]
        columns.append(Column(head, strips, left=True))
    columns += [*_tasks(board), *extra]
    _say_bars(board, columns, form)


def _tasks(board: Board) -> list[Column]:
    """Return the scores on every task."""
    columns = []
    for task in board.tasks:
        scores = {row.model: row.mu for row in task.leaderboard.rows}
        cells = [format_score(scores[model]) for model in board.leaderboard.models]
        name = task.leaderboard.task
        columns.append(Column(name if len(name) <= _TASK else f"{name[: _TASK - 1]}…", cells))
    return columns


def _say_bars(board: Board, columns: Sequence[Column], form: Form) -> None:
    bars = [
        (row.mu, (here.low, here.high), None if other is None else (other.low, other.high))
        for row, (here, other) in zip(board.leaderboard.rows, board.intervals, strict=True)
    ]
    say_bars(columns, bars, form, board.leaderboard.rows[0].posterior.bounds)


def show_pairs(board: Board, form: Form) -> None:
    """Print which pairs of models are distinguishable, as a staircase, best models first."""
    differs = board.leaderboard.ranking.distinguishable
    n = len(board.models)
    filled, empty = ("■", "·") if form.drawn else ("#", ".")
    stairs = [
        " " * i + "\\" + "".join(filled if differs[i, j] else empty for j in range(i + 1, n))
        for i in range(n)
    ]
    columns = [
        Column("", [str(i + 1) for i in range(n)]),
        names("model", board.models),
        Column("".join(str((j + 1) % 10) for j in range(n)), stairs, left=True),
    ]
    say_columns(columns, form)
    say(f"{filled} distinguishable: the model of the row is better   {empty} not distinguishable")
