"""Delete trials that meet criteria, or count them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.schema import is_described
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
