"""Merge the stores of several ranks, jobs or computers into one."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from typing import Any

from lm_eval_bayes._util.files import resolve_path
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import StoreFileError, TrialConflictError
from lm_eval_bayes.store.file import StoreFile, create_file, open_file
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.outcomes import same_subject
from lm_eval_bayes.store.schema import (
    CLUSTERS,
    OUTCOMES,
    TABLES,
    TRIALS,
    Row,
    insert,
    put_question,
    rows,
)
from lm_eval_bayes.store.trial import read_dictionaries
from lm_eval_bayes.store.trial_store import put_trial

#: The most conflicts that a report lists; all are counted.
MAX_CONFLICTS = 1_000


@dataclass(frozen=True)
class MergeReport(Record):
    """What a merge did.

    Attributes
    ----------
    target : str
        The merged store.
    added : int
        Trials that were new to the target.
    known : int
        Trials that the target had already, with the same text and seed.
    conflicts : tuple of str
        A sentence about each trial that the target had with another text or seed, and kept; at
        most 1,000.
    n_conflicts : int
        The number of these trials.
    outcomes : int
        Graded outcomes that were new to the target.
    notes : tuple of str
        Trials that stores graded differently, and questions that they put into different clusters.
    """

    target: str
    added: int
    known: int
    conflicts: tuple[str, ...]
    n_conflicts: int
    outcomes: int
    notes: tuple[str, ...]


def merge(
    sources: Sequence[str | PathLike[str]],
    target: str | PathLike[str],
    *,
    keep_first: bool = False,
) -> MergeReport:
    """Copy all trials of the sources into the target, all of them or none.

    A trial that several stores have, with the same text and seed, is stored once, with the
    measurements and outcomes of the first store that has it, and so is the cluster of a question.
    Every record is checked against its hash.

    Parameters
    ----------
    sources : sequence of paths
        Stores, read in this order. The target may be among them, as in the result of a wildcard.
    target : path
        A store, or a new file, which is created atomically.
    keep_first : bool
        Whether the first of the trials that have different texts or seeds is kept; otherwise
        nothing is merged then.

    Raises
    ------
    TrialConflictError
        If stores have different trials of one number, without `keep_first`. Its ``conflicts``
        list them, up to 1,000.
    InvalidInputError
        If there is no source but the target.
    StoreError
        If one of the files is not a store, damaged, of another schema, or cannot be written.
    """
    target_path = resolve_path(target)
    paths = [path for path in dict.fromkeys(map(resolve_path, sources)) if path != target_path]
    if not paths:
        rule = "be another file than the only store that is merged"
        raise InvalidInputError.of("target", "duplicate", rule, str(target_path))
    with ExitStack() as stack:
        files = [stack.enter_context(closing(open_file(path, "read"))) for path in paths]
        merger = _Merger(files, keep_first)
        if is_store(target_path):
            file = stack.enter_context(closing(open_file(target_path, "write")))
            with file.writing() as connection:
                merger.run(connection)
        elif not create_file(target_path, merger.run):
            sentence = f"{target_path} was created by another process meanwhile; nothing was merged"
            raise StoreFileError(sentence, "path", "target", target_path)
    return MergeReport(
        target=str(target_path),
        added=merger.added,
        known=merger.known,
        conflicts=tuple(merger.conflicts),
        n_conflicts=merger.n_conflicts,
        outcomes=merger.outcomes,
        notes=tuple(merger.notes),
    )


class _Merger:
    """One merge: its sources, and the counts of its report."""

    def __init__(self, sources: Sequence[StoreFile], keep_first: bool) -> None:
        self.sources = sources
        self.keep_first = keep_first
        self.added = self.known = self.outcomes = self.n_conflicts = 0
        self.conflicts: list[str] = []
        self.notes: list[str] = []

    def run(self, target: sqlite3.Connection) -> None:
        """Copy everything, in the caller's transaction."""
        dictionaries = read_dictionaries(target)
        for source in self.sources:
            differing: set[tuple[Any, ...]] = set()
            refused = Counter[tuple[str, str, str]]()
            with source.reading(checked=True) as connection:
                records = (r for table in TABLES for r in source.rows(connection, table))
                for row in source.intact(records):
                    if row.table is TRIALS:
                        if self._put_trial(target, row, dictionaries, source):
                            differing.add(row.values[:4])
                    elif row.table in (OUTCOMES, CLUSTERS):
                        reason = self._put_graded(target, row, differing)
                        if reason:
                            refused[row.table.name[:-1], row.values[0], reason] += 1
                    else:
                        insert(target, row)
            self.notes += [
                f"{source.path}: {plural(n, noun)} of task {task} not merged, because {reason}"
                for (noun, task, reason), n in sorted(refused.items())
            ]
        if self.n_conflicts and not self.keep_first:
            stores = ", ".join(str(source.path) for source in self.sources)
            trials = plural(self.n_conflicts, "trial differs", "trials differ")
            sentence = f"{trials} between {stores}, so nothing was merged: {self.conflicts[0]}"
            raise TrialConflictError(sentence, tuple(self.conflicts), self.n_conflicts)

    def _put_trial(
        self,
        target: sqlite3.Connection,
        row: Row,
        dictionaries: Mapping[int, bytes],
        source: StoreFile,
    ) -> bool:
        """Insert a trial, and count it; return whether the target has a different one."""
        difference = put_trial(target, row, dictionaries)
        self.added += difference is None
        self.known += difference == ""
        self.n_conflicts += bool(difference)
        if difference and len(self.conflicts) < MAX_CONFLICTS:
            self.conflicts.append(f"{row} has another {difference} in {source.path}")
        return bool(difference)

    def _put_graded(
        self, target: sqlite3.Connection, row: Row, differing: set[tuple[Any, ...]]
    ) -> str:
        """Insert an outcome or a cluster unless there is one; return why another was refused."""
        if row.values[6:10] in differing:
            return "the trials differ"
        conditions, values = same_subject(row)
        for stored in rows(target, row.table, {}, f"WHERE {conditions}", values):
            return "" if _grading(stored) == _grading(row) else "an earlier store has another"
        put_question(target, row.values[:6])
        insert(target, row)
        self.outcomes += row.table is OUTCOMES
        return ""


def _grading(row: Row) -> tuple[Any, ...]:
    """Return question, outcome and texts: what gradings of a trial, or clusters, may differ in."""
    return row.values[:6], row.values[11:], row.texts
