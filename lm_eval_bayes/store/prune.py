"""Delete trials that meet criteria, or count them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.compact import compact_store
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.tables import TABLES, find_id
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
        By table of descriptions, the hash that the trials must have, or None.
    trials_from : int or None
        The smallest number of the trials.
    dry_run : bool
        Only count.
    """
    digests = {table: digest for table, digest in hashes.items() if digest is not None}
    if not digests and trials_from is None:
        rule = "have a criterion: model, sampling, prompt or trials_from"
        raise InvalidInputError.of("prune", "missing", rule, None)
    first = 0 if trials_from is None else check_int64("trials_from", trials_from, 0)
    with file.writing(commit=not dry_run) as connection:
        where, values = ["trial >= ?"], [first]
        for table, digest in digests.items():
            row_id = find_id(connection, table, digest)
            if row_id is None:
                rule = f"be the hash of a {TABLES[table]} in {file.path}"
                raise InvalidInputError.of(TABLES[table], "choice", rule, digest)
            where.append(f"{TABLES[table]} = ?")
            values.append(row_id)
        report = _delete(connection, " AND ".join(where), values, dry_run)
    if (report.trials or report.outcomes) and not dry_run:
        try:
            # Anew, as a dictionary of texts may hold parts of those that were deleted.
            compact_store(file)
        except StoreError as error:
            log.warning("the trials are deleted, but the file keeps its size: %s", error)
    return report


#: The tables that refer to each table of descriptions.
_REFERENCES = {
    "models": ("trials", "outcomes", "prompt_signals"),
    "samplings": ("trials", "outcomes"),
    "prompts": ("trials", "outcomes", "prompt_signals"),
    "versions": ("trials",),
}


def _delete(
    connection: sqlite3.Connection, where: str, values: list[int], dry_run: bool
) -> PruneReport:
    def delete(table: str, condition: str, values: Sequence[int] = ()) -> int:
        return connection.execute(f"DELETE FROM {table} WHERE {condition}", values).rowcount

    # Descriptions without any trial stay: a run may have stored its prompts and no trial yet.
    # Outcomes may be of trials in another rank's store.
    connection.execute(
        "CREATE TEMP TABLE pruned AS "
        f"SELECT DISTINCT model, sampling, prompt, versions, NULL AS question FROM trials "
        f"WHERE {where} UNION ALL SELECT DISTINCT model, sampling, prompt, NULL, question "
        f"FROM outcomes WHERE {where}",
        [*values, *values],
    )
    outcomes = delete("outcomes", where, values)
    delete(
        "questions",
        "id IN (SELECT question FROM pruned) AND id NOT IN (SELECT question FROM outcomes)",
    )
    trials = delete("trials", where, values)
    signals = delete(
        "prompt_signals",
        "(model, prompt) IN (SELECT model, prompt FROM pruned WHERE versions IS NOT NULL) "
        "AND (model, prompt) NOT IN (SELECT model, prompt FROM trials)",
    )
    n_deleted = {}
    for table, noun in TABLES.items():
        used = " UNION ".join(f"SELECT {noun} FROM {other}" for other in _REFERENCES[table])
        condition = f"id IN (SELECT {noun} FROM pruned) AND id NOT IN ({used})"
        n_deleted[table] = delete(table, condition)
    connection.execute("DROP TABLE pruned")
    del n_deleted["versions"]
    return PruneReport(trials, outcomes, signals, **n_deleted, dry_run=dry_run)
