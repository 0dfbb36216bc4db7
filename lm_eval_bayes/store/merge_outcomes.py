"""Graded outcomes of one store on their way into another."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from lm_eval_bayes.store.errors import StoreDamagedError
from lm_eval_bayes.store.outcomes import INSERT_IF_NEW, OutcomeRow, put_question, rows_of

#: Model, sampling and prompt by their rows in the target, and the number of a trial.
Place = tuple[int, int, int, int]

_THERE = (
    "SELECT q.categories, q.doc_hash, o.outcome, o.answer, o.error "
    "FROM questions AS q JOIN outcomes AS o ON o.question = q.id "
    "WHERE q.task = ? AND q.version = ? AND q.filter = ? AND q.doc_id = ? "
    "AND o.model = ? AND o.sampling = ? AND o.prompt = ? AND o.trial = ?"
)


@dataclass
class CopiedOutcomes:
    """What became of the outcomes of one source.

    Attributes
    ----------
    path : Path
        The source.
    added : int
        Outcomes that were new to the target.
    otherwise : Counter
        Outcomes that the target has otherwise, and kept, by task.
    of_others : int
        Outcomes of trials that collided, which are those of texts that were not merged.
    """

    path: Path
    added: int = 0
    otherwise: Counter[str] = field(default_factory=Counter)
    of_others: int = 0

    def notes(self) -> list[str]:
        """Say what a reader should know."""
        notes = [
            f"graded otherwise in {self.path}: {n:,} of the trials of task {task}; what was graded "
            "first is kept"
            for task, n in sorted(self.otherwise.items())
        ]
        if self.of_others:
            notes.append(
                f"outcomes that stayed in {self.path}, since their trials differ and were not "
                f"merged: {self.of_others:,}"
            )
        return notes


def copy_outcomes(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    ids: Mapping[str, Mapping[str, int]],
    not_merged: Set[Place],
    path: Path,
) -> CopiedOutcomes:
    """Copy outcomes, unless the target has one for the same trial of the same question.

    Parameters
    ----------
    source, target : sqlite3.Connection
        Inside their transactions.
    ids : mapping
        For models, samplings and prompts: the rows in the target, by hash.
    not_merged : set
        Trials that the target has with another text than the source.
    path : Path
        The source, for messages.

    Raises
    ------
    StoreDamagedError
        If a row is not what was written.
    """
    copied, read = CopiedOutcomes(path), 0
    for row in rows_of(source):
        read += 1
        if not row.is_intact():
            raise StoreDamagedError(
                f"{path} is damaged, so nothing was merged: {row} is not what was written"
            )
        _copy(target, row, _place(ids, row), not_merged, copied)
    if read != source.execute("SELECT count(*) FROM outcomes").fetchone()[0]:
        raise StoreDamagedError(
            f"{path} is damaged, so nothing was merged: outcomes lack what their hashes stand for"
        )
    return copied


def _place(ids: Mapping[str, Mapping[str, int]], row: OutcomeRow) -> Place:
    key = row.key
    return (
        ids["models"][key.model],
        ids["samplings"][key.sampling],
        ids["prompts"][key.prompt],
        row.trial,
    )


def _copy(
    target: sqlite3.Connection,
    row: OutcomeRow,
    place: Place,
    not_merged: Set[Place],
    copied: CopiedOutcomes,
) -> None:
    if place in not_merged:
        copied.of_others += 1
        return
    there = target.execute(_THERE, (*row.question[:4], *place)).fetchone()
    if there is None:
        number = put_question(target, row.question)
        target.execute(INSERT_IF_NEW, (number, *place, *row.values, row.hash))
        copied.added += 1
    elif tuple(there) != row.grading:
        copied.otherwise[row.question[0]] += 1
