"""Merge the stores of several ranks, jobs or computers into one."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from lm_eval_bayes._util.files import resolve_path
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import check_option
from lm_eval_bayes.store.errors import (
    OtherWeightsError,
    StoreDamagedError,
    StoreFileError,
    TrialConflictError,
)
from lm_eval_bayes.store.file import WAIT_S, StoreFile, create_file, open_file
from lm_eval_bayes.store.locations import store_at
from lm_eval_bayes.store.migrations import OUTCOMES_SCHEMA, PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.outcomes import (
    INSERT_IF_NEW,
    OutcomeRow,
    outcome_rows,
    put_question,
    stored_grading,
)
from lm_eval_bayes.store.tables import (
    INSERT_PROMPT_SIGNALS,
    TABLES,
    RowId,
    check_weights,
    description_intact,
    insert_row,
    prompt_signals_intact,
    put_description,
    stored_seed_and_text,
)
from lm_eval_bayes.store.trial import COLUMNS, Conflict, TrialKey, difference, is_intact
from lm_eval_bayes.store.trial_store import ON_CONFLICT, OnConflict

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
        Models of one name with different weights, and trials that stores graded differently.
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
    conflicts: OnConflict = "refuse",
    wait_s: float = WAIT_S,
) -> MergeReport:
    """Copy all trials of the sources into the target, all of them or none.

    A trial that several stores have, with the same text and seed, is stored once, with the
    measurements and outcomes of the first store that has it. Every row is checked against its
    hash.

    Parameters
    ----------
    sources : sequence of paths
        Stores, read in this order. The target may be among them, as in the result of a wildcard.
    target : path
        A store, or a new file, which is created atomically.
    conflicts : str
        What to do about trials with another text or seed: "refuse" to merge anything, or
        "keep-first".
    wait_s : float
        Seconds to wait while another process is writing the target.

    Raises
    ------
    TrialConflictError
        If stores have different trials of one number and `conflicts` is "refuse". Its
        ``conflicts`` list them, up to 1,000.
    StoreError
        If one of the files is not a store, damaged, of a later release, or cannot be written.
    """
    conflicts = check_option("conflicts", conflicts, ON_CONFLICT)
    if isinstance(sources, (str, bytes, PathLike)):
        raise InvalidInputError.of("sources", "be a list of paths", sources)
    target_path = resolve_path(target)
    paths = [path for path in dict.fromkeys(map(resolve_path, sources)) if path != target_path]
    if not paths:
        raise InvalidInputError.of("sources", "name a store other than the target", sources)
    with ExitStack() as stack:
        files = []
        for path in paths:
            file = open_file(path, "read")
            stack.callback(file.close)
            files.append(file)
        merger = _Merger(target_path, files, conflicts)
        if store_at(target_path):
            with (
                closing(open_file(target_path, "write", wait_s=wait_s)) as file,
                file.writing() as connection,
            ):
                merger.run(connection)
        elif not create_file(target_path, merger.run):
            raise StoreFileError(
                f"{target_path} was created by another process meanwhile; nothing was merged"
            )
    return merger.report()


class _Description(NamedTuple):
    """A description in the target; the text is needed of versions only."""

    id: int
    digest: str
    text: str | None


#: For each table of descriptions: those of a source, by their ids in the source.
_Descriptions = dict[str, dict[int, _Description]]


class _Merger:
    """One merge: its sources, and the counts of its report."""

    def __init__(self, target: Path, sources: Sequence[StoreFile], conflicts: OnConflict) -> None:
        self.target = target
        self.sources = sources
        self.refuses = conflicts == "refuse"
        self.added = 0
        self.known = 0
        self.conflicts = _Conflicts()
        self.outcomes = 0
        self.notes: list[str] = []

    def run(self, target: sqlite3.Connection) -> None:
        """Copy everything, in the caller's transaction."""
        outcome_notes: list[str] = []
        for index, source in enumerate(self.sources):
            with source.reading() as connection:
                descriptions = {
                    table: _copy_descriptions(connection, target, table, source.path)
                    for table in TABLES
                }
                refused = self._copy_trials(connection, target, descriptions, index)
                if source.schema >= PROMPT_SIGNALS_SCHEMA:
                    _copy_prompt_signals(connection, target, descriptions, source.path)
                if source.schema >= OUTCOMES_SCHEMA:
                    copied = _OutcomeCopy(source.path, target, descriptions, refused)
                    copied.run(connection)
                    self.outcomes += copied.n_added
                    outcome_notes += copied.notes()
        if self.conflicts.count and self.refuses:
            raise TrialConflictError(
                f"{plural(self.conflicts.count, 'trial differs', 'trials differ')}, so nothing was "
                f"merged: {self.conflicts}",
                tuple(self.conflicts.listed),
                self.conflicts.count,
            )
        self.notes = [*_weights_notes(target, self.target), *outcome_notes]

    def report(self) -> MergeReport:
        """Return what was done."""
        return MergeReport(
            target=str(self.target),
            sources=tuple(str(source.path) for source in self.sources),
            added=self.added,
            known=self.known,
            conflicts=tuple(self.conflicts.listed),
            n_conflicts=self.conflicts.count,
            outcomes=self.outcomes,
            notes=tuple(self.notes),
        )

    def _copy_trials(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        descriptions: _Descriptions,
        index: int,
    ) -> set[RowId]:
        """Copy the trials of a source; return those that the target has with another text."""
        path = self.sources[index].path
        refused: set[RowId] = set()
        for model_id, sampling_id, prompt_id, trial, versions_id, *values in source.execute(
            f"SELECT {COLUMNS} FROM trials ORDER BY model, sampling, prompt, trial"
        ):
            try:
                model = descriptions["models"][model_id]
                sampling = descriptions["samplings"][sampling_id]
                prompt = descriptions["prompts"][prompt_id]
                versions = descriptions["versions"][versions_id]
            except KeyError:
                raise _damaged(path, f"a trial {trial} refers to a missing description") from None
            key = TrialKey(model=model.digest, prompt=prompt.digest, sampling=sampling.digest)
            if not is_intact(key, trial, str(versions.text), tuple(values)):
                raise _damaged(path, f"trial {trial} of {key} does not match its hash")
            row_id = (model.id, sampling.id, prompt.id, trial)
            if insert_row(target, row_id, versions.id, values):
                self.added += 1
                continue
            what = difference(stored_seed_and_text(target, row_id), (values[0], values[-1]))
            if what is None:
                self.known += 1
            else:
                refused.add(row_id)
                self._add_conflict(key, trial, what, index)
        return refused

    def _add_conflict(self, key: TrialKey, trial: int, what: str, index: int) -> None:
        first: str | None = None
        if self.conflicts.count < MAX_CONFLICTS:
            earlier = (file.path for file in self.sources[:index] if _has_trial(file, key, trial))
            first = str(next(earlier, self.target))
        self.conflicts.add(key, trial, what, first, str(self.sources[index].path))


class _Conflicts:
    """The trials that stores have with different texts or seeds."""

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Conflict] = []
        self.differences: Counter[str] = Counter()
        self.prompts: set[str] = set()
        self.models: set[str] = set()

    def add(self, key: TrialKey, trial: int, what: str, first: str | None, second: str) -> None:
        """Count a conflict, and list it if the store that has the `first` trial is given."""
        self.count += 1
        self.differences[what] += 1
        self.prompts.add(key.prompt)
        self.models.add(key.model)
        if first is not None:
            self.listed.append(Conflict(key, trial, what, first, second))

    def __str__(self) -> str:
        differences = ", ".join(f"{n:,} in {what}" for what, n in sorted(self.differences.items()))
        prompts = plural(len(self.prompts), "prompt")
        models = plural(len(self.models), "model")
        stores = list(dict.fromkeys(store for c in self.listed for store in (c.first, c.second)))
        names = " and ".join(stores[:2])
        if len(stores) > 2:
            names += f" and {plural(len(stores) - 2, 'other store')}"
        return f"{differences}, of {prompts} and {models}, between {names}"


def _copy_descriptions(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, path: Path
) -> dict[int, _Description]:
    copied = {}
    rows = source.execute(f"SELECT id, hash, description FROM {table} ORDER BY id")
    for source_id, digest, description in rows:
        if not description_intact(table, digest, description):
            raise _damaged(path, f"the {TABLES[table]} {digest} does not match its hash")
        target_id = put_description(target, table, digest, description)
        # Prompts can be long and only their hashes are needed from here on.
        text = description if table == "versions" else None
        copied[source_id] = _Description(target_id, digest, text)
    return copied


def _copy_prompt_signals(
    source: sqlite3.Connection, target: sqlite3.Connection, descriptions: _Descriptions, path: Path
) -> None:
    rows = source.execute("SELECT model, prompt, created, signals, hash FROM prompt_signals")
    for model_id, prompt_id, *values, digest in rows:
        try:
            model = descriptions["models"][model_id]
            prompt = descriptions["prompts"][prompt_id]
        except KeyError:
            raise _damaged(path, "prompt signals refer to a missing description") from None
        if not prompt_signals_intact(digest, model.digest, prompt.digest, values):
            raise _damaged(path, f"the signals of prompt {prompt.digest} do not match their hash")
        target.execute(INSERT_PROMPT_SIGNALS, (model.id, prompt.id, *values, digest))


class _OutcomeCopy:
    """Copies the outcomes of one source that the target has no grading of.

    Parameters
    ----------
    path : Path
        The source, for messages.
    target : sqlite3.Connection
        In a transaction that writes.
    descriptions : dict
        The descriptions of the source.
    refused : set
        Trials that the target has with another text than the source.
    """

    def __init__(
        self,
        path: Path,
        target: sqlite3.Connection,
        descriptions: _Descriptions,
        refused: set[RowId],
    ) -> None:
        self.path = path
        self.target = target
        self.ids = {
            table: {row.digest: row.id for row in descriptions[table].values()}
            for table in ("models", "samplings", "prompts")
        }
        self.refused = refused
        self.n_added = 0
        self.n_refused = 0
        self.n_different: Counter[str] = Counter()

    def run(self, source: sqlite3.Connection) -> None:
        """Copy the outcomes.

        Raises
        ------
        StoreDamagedError
            If a row does not match its hash.
        """
        n_read = 0
        for row in outcome_rows(source):
            n_read += 1
            if not row.is_intact():
                raise _damaged(self.path, f"{row} does not match its hash")
            self._copy(row)
        if n_read != source.execute("SELECT count(*) FROM outcomes").fetchone()[0]:
            raise _damaged(self.path, "outcomes refer to missing questions or descriptions")

    def _copy(self, row: OutcomeRow) -> None:
        row_id = (
            self.ids["models"][row.key.model],
            self.ids["samplings"][row.key.sampling],
            self.ids["prompts"][row.key.prompt],
            row.trial,
        )
        if row_id in self.refused:
            self.n_refused += 1
            return
        grading = stored_grading(self.target, row.question, row_id)
        if grading is None:
            question_id = put_question(self.target, row.question)
            values = (question_id, *row_id, *row.values, row.digest)
            self.target.execute(INSERT_IF_NEW, values)
            self.n_added += 1
        elif grading != row.grading:
            self.n_different[row.question[0]] += 1

    def notes(self) -> list[str]:
        """Return a sentence about the outcomes that were not copied, for each task."""
        notes = [
            f"{self.path} grades {plural(n, 'trial')} of task {task} differently; the first "
            "outcome is kept"
            for task, n in sorted(self.n_different.items())
        ]
        if self.n_refused:
            notes.append(
                f"{plural(self.n_refused, 'outcome')} of {self.path} not merged, because the "
                "trials differ"
            )
        return notes


def _has_trial(file: StoreFile, key: TrialKey, trial: int) -> bool:
    with file.reading() as connection:
        row = connection.execute(
            "SELECT 1 FROM trials JOIN models AS m ON m.id = model "
            "JOIN samplings AS s ON s.id = sampling JOIN prompts AS p ON p.id = prompt "
            "WHERE m.hash = ? AND s.hash = ? AND p.hash = ? AND trial = ?",
            (key.model, key.sampling, key.prompt, trial),
        ).fetchone()
    return row is not None


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


def _damaged(path: Path, problem: str) -> StoreDamagedError:
    return StoreDamagedError(f"{path} is damaged, so nothing was merged: {problem}")
