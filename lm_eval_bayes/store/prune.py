"""Maintenance of a store: delete trials that meet criteria, and verify what it holds."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from os import PathLike

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import StoreDamagedError, StoreError
from lm_eval_bayes.store.file import StoreFile, lacks_log, open_file
from lm_eval_bayes.store.schema import TABLES, is_described
from lm_eval_bayes.store.trial import check_int64

log = logging.getLogger("lm_eval.bayes.store")


@dataclass(frozen=True)
class PruneReport(Record):
    """What a prune deletes.

    Attributes
    ----------
    trials, outcomes, prompt_signals : int
        Trials, their outcomes, and signals of prompts that have no trial left.
    models, samplings, prompts : int
        Descriptions that have no trial left.
    dry_run : bool
        Whether it was only counted.
    """

    trials: int
    outcomes: int
    prompt_signals: int
    models: int
    samplings: int
    prompts: int
    dry_run: bool


def prune_trials(
    file: StoreFile, hashes: Mapping[str, str | None], trials_from: int | None, dry_run: bool
) -> PruneReport:
    """Delete trials, see :meth:`lm_eval_bayes.store.trial_store.TrialStore.prune`.

    Parameters
    ----------
    file : StoreFile
        Opened for writing.
    hashes : mapping
        By "model", "sampling" and "prompt", the hash that the trials must have, or None.
    trials_from : int or None
        The smallest number of the trials.
    dry_run : bool
        Only count.
    """
    given = {name: digest for name, digest in hashes.items() if digest is not None}
    if not given and trials_from is None:
        rule = "have a criterion: model, sampling, prompt or trials_from"
        raise InvalidInputError.of("prune", "missing", rule, None)
    if len(file.dictionaries) > 1:
        rule = (
            "be a store without dictionaries, which an earlier release made of parts of texts: "
            "merge it into a new one by `lm-eval-bayes store merge`"
        )
        raise InvalidInputError.of("store", "unsupported", rule, str(file.path))
    first = 0 if trials_from is None else check_int64("trials_from", trials_from, 0)
    where = "trial >= ?" + "".join(
        f" AND {name} = (SELECT id FROM {name}s WHERE hash = ?)" for name in given
    )
    with file.writing(commit=not dry_run) as connection:
        for name, digest in given.items():
            if not is_described(connection, f"{name}s", digest):
                rule = f"be the hash of a {name} in {file.path}"
                raise InvalidInputError.of(name, "choice", rule, digest)
        report = _delete(connection, where, (first, *given.values()), dry_run)
    if (report.trials or report.outcomes) and not dry_run:
        try:
            file.vacuum()
        except StoreError as error:
            log.warning("the trials are deleted, but the file keeps its size: %s", error)
    return report


def _delete(
    connection: sqlite3.Connection, where: str, values: tuple[object, ...], dry_run: bool
) -> PruneReport:
    # Descriptions without any trial stay: a run may have stored its prompts and no trial yet.
    # Outcomes may be of trials in another rank's store.
    used = {table: _used(connection, table) for table in _REFERENCES}
    n_outcomes = connection.execute(f"DELETE FROM outcomes WHERE {where}", values).rowcount
    n_trials = connection.execute(f"DELETE FROM trials WHERE {where}", values).rowcount
    n_deleted = {}
    for table, ids in used.items():
        unused = ids - _used(connection, table)
        condition = "(model, prompt) = (?, ?)" if table == "prompt_signals" else "id = ?"
        cursor = connection.executemany(f"DELETE FROM {table} WHERE {condition}", unused)
        n_deleted[table] = max(0, cursor.rowcount)
    del n_deleted["versions"], n_deleted["questions"]
    return PruneReport(n_trials, n_outcomes, **n_deleted, dry_run=dry_run)


#: What refers to the rows of a table: a column, or two, of other tables. Signals of prompts belong
#: to trials, and come first, as they refer to descriptions.
_REFERENCES = {
    "prompt_signals": ("model, prompt", ("trials",)),
    "questions": ("question", ("outcomes",)),
    "models": ("model", ("trials", "outcomes", "prompt_signals")),
    "samplings": ("sampling", ("trials", "outcomes")),
    "prompts": ("prompt", ("trials", "outcomes", "prompt_signals")),
    "versions": ("versions", ("trials",)),
}


def _used(connection: sqlite3.Connection, table: str) -> set[tuple[int, ...]]:
    columns, others = _REFERENCES[table]
    statement = " UNION ".join(f"SELECT {columns} FROM {other}" for other in others)
    return set(connection.execute(statement))


#: The most problems that a verification lists; all are counted.
MAX_PROBLEMS = 100


@dataclass(frozen=True)
class Verification(Record):
    """What was checked in a store, and its problems.

    Attributes
    ----------
    path : str
        The file.
    records : dict
        Number of records that were checked, by table.
    problems : tuple of str
        One sentence each, at most 100; empty for an intact store.
    n_problems : int
        The number of problems.
    notes : tuple of str
        What may be wrong, though the store is intact: that its latest trials may be missing.
    """

    path: str
    records: dict[str, int]
    problems: tuple[str, ...]
    n_problems: int
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return self.n_problems == 0


def verify(path: str | PathLike[str]) -> Verification:
    """Check a store: its log, SQLite's structure, and every hash.

    The hash of a trial is of all its fields and the hashes of its key, so a single changed bit
    in a text, a signal or a seed is detected.

    Parameters
    ----------
    path : path
        The store. It may be in use: one consistent state of it is checked.

    Returns
    -------
    Verification
        Also for a store that is too damaged to be opened, or whose write-ahead log is.

    Raises
    ------
    StoreError
        If there is no store at the path, or one of another schema.
    """
    records = {table.name: 0 for table in TABLES}
    try:
        file = open_file(path, "read")
    except StoreDamagedError as error:
        return Verification(str(path), records, (str(error),), 1)
    with closing(file):
        problems = list(_problems(file, records))
    return Verification(
        path=str(file.path),
        records=records,
        problems=tuple(problems[:MAX_PROBLEMS]),
        n_problems=len(problems),
        notes=(lacks_log(file.path),) if file.lacks_log else (),
    )


def _problems(file: StoreFile, records: dict[str, int]) -> Iterator[str]:
    """Yield a sentence about each problem, and count the records."""
    try:
        with file.reading() as connection:
            for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
                if line != "ok":
                    yield f"SQLite: {line}"
            for table in TABLES:
                for row in file.rows(connection, table):
                    records[table.name] += 1
                    if not row.is_intact():
                        yield f"{row} does not match its hash"
    except StoreError as error:
        yield str(error)
