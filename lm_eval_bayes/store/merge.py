"""Bring the stores of several ranks, jobs or computers together."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import resolve_path
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import check_option
from lm_eval_bayes.store import prompt_signals
from lm_eval_bayes.store.descriptions import (
    TABLES,
    check_weights,
    description_intact,
    put_description,
)
from lm_eval_bayes.store.errors import (
    OtherWeightsError,
    StoreDamagedError,
    StoreFileError,
    TrialConflictError,
)
from lm_eval_bayes.store.file import WAIT_S, StoreFile, create_file, open_file
from lm_eval_bayes.store.locations import store_at
from lm_eval_bayes.store.merge_outcomes import CopiedOutcomes, Place, copy_outcomes
from lm_eval_bayes.store.migrations import OUTCOMES_SCHEMA, PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.trial import COLUMNS, INSERT, Conflict, TrialKey, difference, is_intact
from lm_eval_bayes.store.trial_store import ON_CONFLICT, OnConflict

#: Conflicts are counted all, and named up to this many.
MAX_CONFLICTS = 1_000

#: A row's id in a source -> its id in the target, its hash, and what the hash stands for.
_Map = dict[int, tuple[int, str, Any]]


@dataclass(frozen=True)
class MergeReport:
    """What a merge did.

    Attributes
    ----------
    target : str
        The store that holds everything now.
    sources : tuple of str
        The stores that were read.
    added : int
        Trials that were new to the target.
    known : int
        Trials that were there already, the same.
    conflicts : tuple of Conflict
        Trials that were there with another text or seed, and were kept; at most 1,000.
    n_conflicts : int
        How many there were.
    outcomes : int
        Graded outcomes that were new to the target.
    notes : tuple of str
        What a reader should know, such as two weights under one name, or trials that stores
        graded differently.
    """

    target: str
    sources: tuple[str, ...]
    added: int
    known: int
    conflicts: tuple[Conflict, ...]
    n_conflicts: int
    outcomes: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["conflicts"] = [conflict.to_dict() for conflict in self.conflicts]
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        }


def merge(
    sources: Sequence[str | PathLike[str]],
    target: str | PathLike[str],
    conflicts: OnConflict = "refuse",
    wait_s: float = WAIT_S,
) -> MergeReport:
    """Copy all trials of the sources into the target, all of them or none.

    A trial that several stores hold, with the same text and seed, is kept once, as the first
    store measured it, and so is what it was graded as. Every row is checked against its hash
    on the way.

    Parameters
    ----------
    sources : sequence of paths
        Stores, read in this order. The target itself may be among them, as a wildcard puts it.
    target : path
        A store, or a new file, which then appears under its name once it is complete.
    conflicts : str
        What to do about trials with another text or seed: "refuse" to merge anything, or
        "keep-first".
    wait_s : float
        Seconds to wait while another process is writing the target.

    Raises
    ------
    TrialConflictError
        If stores disagree; the message sums up, and its ``conflicts`` name every trial, up to
        1,000.
    StoreError
        If one of the files is no store, damaged, of a later release, or cannot be written.
    """
    conflicts = check_option("conflicts", conflicts, ON_CONFLICT)
    if isinstance(sources, (str, bytes, PathLike)):
        raise InvalidInputError.of("sources", "be a list of paths", sources)
    place = resolve_path(target)
    paths = [path for path in dict.fromkeys(map(resolve_path, sources)) if path != place]
    if not paths:
        raise InvalidInputError.of("sources", "name a store other than the target", sources)
    with ExitStack() as stack:
        files = []
        for path in paths:
            file = open_file(path, "read")
            stack.callback(file.close)
            files.append(file)
        merger = _Merger(place, files, conflicts)
        if store_at(place):
            with (
                closing(open_file(place, "write", wait_s=wait_s)) as file,
                file.writing() as connection,
            ):
                merger.run(connection)
        elif not create_file(place, merger.run):
            raise StoreFileError(
                f"{place} was created by another process meanwhile; nothing was merged"
            )
    return merger.report()


class _Merger:
    """One merge: the sources, and what happened on the way into the target."""

    def __init__(self, target: Path, sources: Sequence[StoreFile], conflicts: OnConflict) -> None:
        self.target = target
        self.sources = sources
        self.refuses = conflicts == "refuse"
        self.added = 0
        self.known = 0
        self.n_conflicts = 0
        self.conflicts: list[Conflict] = []
        self.differing = _Differing()
        self.not_merged: set[Place] = set()
        self.outcomes: list[CopiedOutcomes] = []
        self.notes: tuple[str, ...] = ()

    def run(self, target: sqlite3.Connection) -> None:
        """Copy everything, inside the caller's transaction."""
        for number, source in enumerate(self.sources):
            with source.reading() as connection:
                maps = {
                    table: _copy_descriptions(connection, target, table, source.path)
                    for table in TABLES
                }
                self.not_merged = set()
                self._copy_trials(connection, target, maps, number)
                if source.schema >= PROMPT_SIGNALS_SCHEMA:
                    _copy_prompt_signals(connection, target, maps, source.path)
                if source.schema >= OUTCOMES_SCHEMA:
                    ids = {
                        table: {digest: there for there, digest, _ in maps[table].values()}
                        for table in ("models", "samplings", "prompts")
                    }
                    self.outcomes.append(
                        copy_outcomes(connection, target, ids, self.not_merged, source.path)
                    )
        if self.conflicts and self.refuses:
            raise TrialConflictError(
                f"{_count(self.n_conflicts, 'trial differs', 'trials differ')}, so nothing was "
                f"merged: {self.differing}",
                tuple(self.conflicts),
                self.n_conflicts,
            )
        graded = [note for copied in self.outcomes for note in copied.notes()]
        self.notes = (*_notes(target, self.target), *graded)

    def report(self) -> MergeReport:
        """Say what was done."""
        return MergeReport(
            target=str(self.target),
            sources=tuple(str(source.path) for source in self.sources),
            added=self.added,
            known=self.known,
            conflicts=tuple(self.conflicts),
            n_conflicts=self.n_conflicts,
            outcomes=sum(copied.added for copied in self.outcomes),
            notes=self.notes,
        )

    def _copy_trials(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        maps: dict[str, _Map],
        number: int,
    ) -> None:
        path = self.sources[number].path
        for model, sampling, prompt, trial, versions, *values in source.execute(
            f"SELECT {COLUMNS} FROM trials ORDER BY model, sampling, prompt, trial"
        ):
            try:
                model_id, model_hash, _ = maps["models"][model]
                sampling_id, sampling_hash, _ = maps["samplings"][sampling]
                prompt_id, prompt_hash, _ = maps["prompts"][prompt]
                versions_id, _, versions_text = maps["versions"][versions]
            except KeyError:
                raise _damage(path, f"a trial {trial} lacks what its hashes stand for") from None
            key = TrialKey(model=model_hash, prompt=prompt_hash, sampling=sampling_hash)
            if not is_intact(key, trial, versions_text, tuple(values)):
                raise _damage(path, f"trial {trial} of {key} is not what was written")
            place = (model_id, sampling_id, prompt_id, trial)
            if target.execute(INSERT, (*place, versions_id, *values)).rowcount == 1:
                self.added += 1
                continue
            there = target.execute(
                "SELECT seed, text FROM trials "
                "WHERE model = ? AND sampling = ? AND prompt = ? AND trial = ?",
                place,
            ).fetchone()
            what = difference(there, (values[0], values[-1]))
            if what is None:
                self.known += 1
            else:
                self.not_merged.add(place)
                self._collided(key, trial, what, number)

    def _collided(self, key: TrialKey, trial: int, what: str, number: int) -> None:
        self.n_conflicts += 1
        self.differing.add(key, what)
        if len(self.conflicts) < MAX_CONFLICTS:
            holders = (file.path for file in self.sources[:number] if _holds(file, key, trial))
            first = next(holders, self.target)
            second = self.sources[number].path
            self.conflicts.append(Conflict(key, trial, what, str(first), str(second)))
            self.differing.stores |= dict.fromkeys((str(first), str(second)))


class _Differing:
    """What trials that differ have in common."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.prompts: set[str] = set()
        self.models: set[str] = set()
        self.stores: dict[str, None] = {}

    def add(self, key: TrialKey, what: str) -> None:
        self.kinds[what] += 1
        self.prompts.add(key.prompt)
        self.models.add(key.model)

    def __str__(self) -> str:
        kinds = ", ".join(f"{n:,} in {what}" for what, n in sorted(self.kinds.items()))
        prompts = _count(len(self.prompts), "prompt", "prompts")
        models = _count(len(self.models), "model", "models")
        stores = [*self.stores]
        named = " and ".join(stores[:2])
        if len(stores) > 2:
            named += f" and {_count(len(stores) - 2, 'other store', 'other stores')}"
        return f"{kinds}, of {prompts} and {models}, between {named}"


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _copy_descriptions(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, path: Path
) -> _Map:
    found: _Map = {}
    rows = source.execute(f"SELECT id, hash, description FROM {table} ORDER BY id")
    for number, digest, description in rows:
        if not description_intact(table, digest, description):
            raise _damage(path, f"the {TABLES[table]} {digest} is not what was written")
        there = put_description(target, table, digest, description)
        # Prompts are long and only their hashes are needed from here on.
        found[number] = (there, digest, description if table == "versions" else None)
    return found


def _copy_prompt_signals(
    source: sqlite3.Connection, target: sqlite3.Connection, maps: dict[str, _Map], path: Path
) -> None:
    rows = source.execute("SELECT model, prompt, created, signals, hash FROM prompt_signals")
    for model, prompt, *values, digest in rows:
        try:
            model_id, model_hash, _ = maps["models"][model]
            prompt_id, prompt_hash, _ = maps["prompts"][prompt]
        except KeyError:
            raise _damage(path, "signals of a prompt lack what their hashes stand for") from None
        if not prompt_signals.prompt_signals_intact(digest, model_hash, prompt_hash, values):
            raise _damage(path, f"the signals of prompt {prompt_hash} are not what was written")
        target.execute(prompt_signals.INSERT, (model_id, prompt_id, *values, digest))


def _holds(file: StoreFile, key: TrialKey, trial: int) -> bool:
    with file.reading() as connection:
        found = connection.execute(
            "SELECT 1 FROM trials JOIN models AS m ON m.id = model "
            "JOIN samplings AS s ON s.id = sampling JOIN prompts AS p ON p.id = prompt "
            "WHERE m.hash = ? AND s.hash = ? AND p.hash = ? AND trial = ?",
            (key.model, key.sampling, key.prompt, trial),
        ).fetchone()
    return found is not None


def _notes(target: sqlite3.Connection, path: Path) -> tuple[str, ...]:
    """Tell of models that bear one name and have other weights."""
    notes: list[str] = []
    models: list[dict[str, Any]] = []
    for (text,) in target.execute("SELECT description FROM models ORDER BY id"):
        model = json.loads(text)
        try:
            check_weights(model, models, path)
        except OtherWeightsError:
            notes.append(
                f"the model {model['pretrained']} stands for more than one set of weights in "
                f"{path}; their trials are kept apart"
            )
        models.append(model)
    return tuple(dict.fromkeys(notes))


def _damage(path: Path, what: str) -> StoreDamagedError:
    return StoreDamagedError(f"{path} is damaged, so nothing was merged: {what}")
