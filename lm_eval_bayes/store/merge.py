"""Merge the stores of several ranks, jobs or computers into one."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from lm_eval_bayes._util.files import resolve_path
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import (
    OtherWeightsError,
    StoreDamagedError,
    StoreFileError,
    TrialConflictError,
)
from lm_eval_bayes.store.file import StoreFile, check_structure, create_file, open_file
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.outcomes import OutcomeRow, insert_outcome, outcome_rows
from lm_eval_bayes.store.questions import ClusterRow, cluster_rows, insert_cluster
from lm_eval_bayes.store.sources import (
    AliasRow,
    SourceRow,
    alias_rows,
    put_alias,
    put_source,
    source_rows,
)
from lm_eval_bayes.store.tables import (
    TABLES,
    DescriptionRow,
    KeyIds,
    PromptSignalsRow,
    broken_references,
    check_weights,
    description_rows,
    find_rows,
    insert_prompt_signals,
    insert_trials,
    prompt_signals_rows,
    put_description,
    trial_rows,
)
from lm_eval_bayes.store.texts import TextCodec
from lm_eval_bayes.store.trial import Conflict, TrialKey, TrialRow

_Row = TypeVar(
    "_Row",
    DescriptionRow,
    SourceRow,
    AliasRow,
    TrialRow,
    PromptSignalsRow,
    OutcomeRow,
    ClusterRow,
)

#: The most conflicts that a report lists; all are counted.
MAX_CONFLICTS = 1_000


@dataclass(frozen=True)
class MergeReport(Record):
    """What a merge did.

    Attributes
    ----------
    target : str
        The merged store.
    sources : tuple of str
        The stores that were read.
    added : int
        Trials that were new to the target.
    known : int
        Trials that the target had already, with the same text and seed.
    conflicts : tuple of Conflict
        Trials that the target had with another text or seed, and kept; at most 1,000.
    n_conflicts : int
        The number of these trials.
    outcomes : int
        Graded outcomes that were new to the target.
    notes : tuple of str
        Models of one name with different weights, trials that stores graded differently, and
        questions that they put into different clusters.
    """

    target: str
    sources: tuple[str, ...]
    added: int
    known: int
    conflicts: tuple[Conflict, ...]
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
    Every row is checked against its hash.

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
        merger = _Merger(target_path, files, keep_first)
        if is_store(target_path):
            file = stack.enter_context(closing(open_file(target_path, "write")))
            with file.writing() as connection:
                merger.run(connection)
        elif not create_file(target_path, merger.run):
            sentence = f"{target_path} was created by another process meanwhile; nothing was merged"
            raise StoreFileError(sentence, "path", "target", target_path)
    return merger.report()


class _Merger:
    """One merge: its sources, and the counts of its report."""

    def __init__(self, target: Path, sources: Sequence[StoreFile], keep_first: bool) -> None:
        self.target = target
        self.sources = sources
        self.keep_first = keep_first
        self.counts = {"added": 0, "known": 0, "outcomes": 0}
        self.differing = Counter[tuple[str, TrialKey]]()
        self.conflicts: list[Conflict] = []
        self.notes: list[str] = []

    def run(self, target: sqlite3.Connection) -> None:
        """Copy everything, in the caller's transaction."""
        self.texts = TextCodec(target, self.target)
        for index, source in enumerate(self.sources):
            with source.reading() as connection:
                check_structure(connection, source.path)
                for problem in broken_references(connection):
                    raise _damaged(source.path, problem)
                for table in TABLES:
                    for row in _intact(description_rows(connection, table), source.path):
                        put_description(target, table, row.digest, row.description)
                for source_of in _intact(source_rows(connection), source.path):
                    put_source(target, source_of)
                for alias in _intact(alias_rows(connection), source.path):
                    put_alias(target, alias, replace=False)
                differing = self._copy_trials(connection, target, index)
                signals = prompt_signals_rows(connection)
                for signals_row in _intact(signals, source.path):
                    insert_prompt_signals(target, signals_row, self.target)
                self._copy_outcomes(connection, target, source, differing)
                self._copy_clusters(connection, target, source)
        n_conflicts = sum(self.differing.values())
        if n_conflicts and not self.keep_first:
            sentence = (
                f"{plural(n_conflicts, 'trial differs', 'trials differ')}, so nothing was "
                f"merged: {_describe(self.differing, self.conflicts)}"
            )
            raise TrialConflictError(sentence, tuple(self.conflicts), n_conflicts)
        self.notes = [*_weights_notes(target, self.target), *self.notes]

    def report(self) -> MergeReport:
        """Return what was done."""
        return MergeReport(
            target=str(self.target),
            sources=tuple(str(source.path) for source in self.sources),
            **self.counts,
            conflicts=tuple(self.conflicts),
            n_conflicts=sum(self.differing.values()),
            notes=tuple(self.notes),
        )

    def _copy_trials(
        self, source: sqlite3.Connection, target: sqlite3.Connection, index: int
    ) -> set[tuple[TrialKey, int]]:
        """Copy the trials of a source; return those that the target has with another text."""
        differing: set[tuple[TrialKey, int]] = set()
        file = self.sources[index]
        rows = _intact(trial_rows(source, file.texts), file.path)
        for row, difference in insert_trials(target, rows, self.target, self.texts):
            if difference is None:
                self.counts["added"] += 1
            elif not difference:
                self.counts["known"] += 1
            else:
                differing.add((row.key, row.trial))
                self.differing[difference, row.key] += 1
                if len(self.conflicts) < MAX_CONFLICTS:
                    earlier = (
                        other.path for other in self.sources[:index] if _has_trial(other, row)
                    )
                    stores = (str(next(earlier, self.target)), str(file.path))
                    self.conflicts.append(Conflict(row.key, row.trial, difference, *stores))
        return differing

    def _copy_outcomes(
        self,
        connection: sqlite3.Connection,
        target: sqlite3.Connection,
        source: StoreFile,
        differing: set[tuple[TrialKey, int]],
    ) -> None:
        """Copy the outcomes that the target has no grading of, and note the others."""
        n_refused, n_different = 0, Counter[str]()
        ids = KeyIds(target, self.target)
        for row in _intact(outcome_rows(connection), source.path):
            if (row.key, row.trial) in differing:
                n_refused += 1
                continue
            stored = insert_outcome(target, row, ids[row.key])
            if stored is None:
                self.counts["outcomes"] += 1
            elif stored != row.grading:
                n_different[row.question[0]] += 1
        self.notes += [
            f"{source.path} grades {plural(n, 'trial')} of task {task} differently; the first "
            "outcome is kept"
            for task, n in sorted(n_different.items())
        ]
        if n_refused:
            self.notes.append(
                f"{plural(n_refused, 'outcome')} of {source.path} not merged, because the "
                "trials differ"
            )

    def _copy_clusters(
        self, connection: sqlite3.Connection, target: sqlite3.Connection, source: StoreFile
    ) -> None:
        """Copy the clusters of questions that have none in the target, and note the others."""
        n_different = Counter[str]()
        for row in _intact(cluster_rows(connection), source.path):
            stored = insert_cluster(target, row)
            if stored is not None and stored != row.cluster():
                n_different[row.question[0]] += 1
        self.notes += [
            f"{source.path} puts {plural(n, 'question')} of task {task} into another cluster; the "
            "first cluster is kept"
            for task, n in sorted(n_different.items())
        ]


def _describe(differing: Counter[tuple[str, TrialKey]], listed: Sequence[Conflict]) -> str:
    """Return a summary of the trials that stores have with different texts or seeds."""
    counts = Counter(what for what, _ in differing.elements())
    differences = ", ".join(f"{n:,} in {what}" for what, n in sorted(counts.items()))
    prompts = plural(len({key.prompt for _, key in differing}), "prompt")
    models = plural(len({key.model for _, key in differing}), "model")
    stores = list(dict.fromkeys(store for c in listed for store in (c.first, c.second)))
    names = " and ".join(stores[:2])
    if len(stores) > 2:
        names += f" and {plural(len(stores) - 2, 'other store')}"
    return f"{differences}, of {prompts} and {models}, between {names}"


def _has_trial(file: StoreFile, row: TrialRow) -> bool:
    with file.reading() as connection:
        rows = find_rows(connection, [row.key], "trial", row.trial, row.trial + 1)
        return next(rows, None) is not None


def _weights_notes(target: sqlite3.Connection, path: Path) -> list[str]:
    """Return a sentence about each model that has several sets of weights."""
    notes: list[str] = []
    models: list[dict[str, Any]] = []
    for (text,) in target.execute("SELECT description FROM models ORDER BY id"):
        model = json.loads(text)
        try:
            check_weights(model, models, path)
        except OtherWeightsError:
            notes.append(
                f"the model {model['pretrained']} has more than one set of weights in {path}; "
                "their trials are stored separately"
            )
        models.append(model)
    return list(dict.fromkeys(notes))


def _intact(rows: Iterable[_Row], path: Path) -> Iterator[_Row]:
    """Yield rows of a source, each of which must match its hash."""
    for row in rows:
        if not row.is_intact():
            raise _damaged(path, f"{row} does not match its hash")
        yield row


def _damaged(path: Path, problem: str) -> StoreDamagedError:
    return StoreDamagedError(f"{path} is damaged, so nothing was merged: {problem}")
