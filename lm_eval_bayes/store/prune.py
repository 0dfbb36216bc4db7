"""Delete trials that meet criteria, or count them."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.outcomes import delete_unused_questions
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
    file: StoreFile,
    *,
    model: str | None = None,
    sampling: str | None = None,
    prompt: str | None = None,
    trials_from: int | None = None,
    dry_run: bool = True,
) -> PruneReport:
    """Delete the trials that meet all criteria, and what only they refer to.

    A dry run does the same in a transaction that is rolled back, so its counts are exact.

    Parameters
    ----------
    file : StoreFile
        Opened for writing.
    model, sampling, prompt : str, optional
        Hashes; trials of others stay.
    trials_from : int, optional
        Trials with a smaller number stay.
    dry_run : bool
        Only count.

    Raises
    ------
    InvalidInputError
        If there is no criterion, or a hash is not stored.
    """
    digests = {"models": model, "samplings": sampling, "prompts": prompt}
    if all(digest is None for digest in digests.values()) and trials_from is None:
        rule = "have a criterion: model, sampling, prompt or trials_from"
        raise InvalidInputError.of("prune", rule, None)
    first = 0 if trials_from is None else check_int64("trials_from", trials_from, 0)
    with file.writing(commit=not dry_run) as connection:
        where, values = ["trial >= ?"], [first]
        for table, digest in digests.items():
            if digest is None:
                continue
            row_id = find_id(connection, table, digest)
            if row_id is None:
                rule = f"be the hash of a {TABLES[table]} in {file.path}"
                raise InvalidInputError.of(TABLES[table], rule, digest)
            where.append(f"{TABLES[table]} = ?")
            values.append(row_id)
        report = _delete(connection, " AND ".join(where), values, dry_run)
    if (report.trials or report.outcomes) and not dry_run:
        try:
            file.compact()
        except StoreError as error:
            log.warning("the trials are deleted, but the file keeps its size: %s", error)
    return report


def _delete(
    connection: sqlite3.Connection, where: str, values: list[int], dry_run: bool
) -> PruneReport:
    # Descriptions without any trial stay: a run may have stored its prompts and no trial yet.
    before = _references(connection, where, values)
    questions = connection.execute(
        f"SELECT DISTINCT question FROM outcomes WHERE {where}", values
    ).fetchall()
    outcomes = connection.execute(f"DELETE FROM outcomes WHERE {where}", values).rowcount
    delete_unused_questions(connection, (question_id for (question_id,) in questions))
    trials = connection.execute(f"DELETE FROM trials WHERE {where}", values).rowcount
    after = _references(connection, "1", [])
    signals = connection.executemany(
        "DELETE FROM prompt_signals WHERE model = ? AND prompt = ?",
        before.pairs - after.pairs,
    ).rowcount
    with_signals = connection.execute("SELECT model, prompt FROM prompt_signals").fetchall()
    after.ids["models"].update(model for model, _ in with_signals)
    after.ids["prompts"].update(prompt for _, prompt in with_signals)
    n_deleted = {
        table: connection.executemany(
            f"DELETE FROM {table} WHERE id = ?",
            [(row_id,) for row_id in before.ids[table] - after.ids[table]],
        ).rowcount
        for table in TABLES
    }
    return PruneReport(
        trials=trials,
        outcomes=outcomes,
        prompt_signals=signals,
        models=n_deleted["models"],
        samplings=n_deleted["samplings"],
        prompts=n_deleted["prompts"],
        dry_run=dry_run,
    )


@dataclass(frozen=True)
class _References:
    """The ids that trials and outcomes refer to, by table, and the trials' (model, prompt)."""

    ids: dict[str, set[int]]
    pairs: set[tuple[int, int]]


def _references(connection: sqlite3.Connection, where: str, values: list[int]) -> _References:
    trials = connection.execute(
        f"SELECT DISTINCT model, sampling, prompt, versions FROM trials WHERE {where}", values
    ).fetchall()
    # Outcomes may be of trials in another rank's store.
    outcomes = connection.execute(
        f"SELECT DISTINCT model, sampling, prompt FROM outcomes WHERE {where}", values
    ).fetchall()
    ids = {
        table: {row[column] for row in [*trials, *outcomes]}
        for column, table in enumerate(("models", "samplings", "prompts"))
    }
    ids["versions"] = {row[3] for row in trials}
    return _References(ids, {(row[0], row[2]) for row in trials})
