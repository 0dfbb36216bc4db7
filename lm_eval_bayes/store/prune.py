"""Delete trials on purpose, after counting them."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import asdict, dataclass
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.descriptions import TABLES, find_id
from lm_eval_bayes.store.errors import StoreError
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.outcomes import delete_unused_questions
from lm_eval_bayes.store.trial import check_int64

log = logging.getLogger("lm_eval.bayes.store")


@dataclass(frozen=True)
class PruneReport:
    """What a prune deletes.

    Attributes
    ----------
    trials, outcomes, prompt_signals : int
        Trials, what they were graded as, and signals of prompts that no trial is left for.
    models, samplings, prompts : int
        Descriptions that no trial is left for.
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def prune_trials(
    file: StoreFile,
    *,
    model: str | None = None,
    sampling: str | None = None,
    prompt: str | None = None,
    trials_from: int | None = None,
    dry_run: bool = True,
) -> PruneReport:
    """Delete the trials that meet all the criteria, and what only they needed.

    A dry run does the same in a transaction and takes it back, so its counts are exact.

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
        If there is no criterion, or the store does not know a hash.
    """
    chosen = {"models": model, "samplings": sampling, "prompts": prompt}
    if all(digest is None for digest in chosen.values()) and trials_from is None:
        rule = "be told what to delete: model, sampling, prompt or trials_from"
        raise InvalidInputError.of("prune", rule, None)
    first = 0 if trials_from is None else check_int64("trials_from", trials_from, 0)
    with file.writing(commit=not dry_run) as connection:
        where, values = ["trial >= ?"], [first]
        for table, digest in chosen.items():
            if digest is not None:
                where.append(f"{TABLES[table]} = ?")
                values.append(_known(connection, table, digest, file))
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
    # Only what the deleted trials needed goes with them: a run may have described its prompts
    # already and have no trial of them yet.
    needed = _used(connection, where, values)
    questions = connection.execute(
        f"SELECT DISTINCT question FROM outcomes WHERE {where}", values
    ).fetchall()
    outcomes = connection.execute(f"DELETE FROM outcomes WHERE {where}", values).rowcount
    delete_unused_questions(connection, (number for (number,) in questions))
    trials = connection.execute(f"DELETE FROM trials WHERE {where}", values).rowcount
    used = _used(connection, "1", [])
    signals = connection.executemany(
        "DELETE FROM prompt_signals WHERE model = ? AND prompt = ?",
        needed.pairs - used.pairs,
    ).rowcount
    measured = connection.execute("SELECT model, prompt FROM prompt_signals").fetchall()
    kept = {
        "models": {model for model, _ in measured},
        "prompts": {prompt for _, prompt in measured},
    }
    gone = {}
    for table in TABLES:
        unused = needed.ids[table] - used.ids[table] - kept.get(table, set())
        statement = f"DELETE FROM {table} WHERE id = ?"
        gone[table] = connection.executemany(statement, [(n,) for n in unused]).rowcount
    return PruneReport(
        trials=trials,
        outcomes=outcomes,
        prompt_signals=signals,
        models=gone["models"],
        samplings=gone["samplings"],
        prompts=gone["prompts"],
        dry_run=dry_run,
    )


@dataclass(frozen=True)
class _Used:
    """The descriptions that some trials and outcomes need, by table, and the pairs of model and
    prompt of these trials.
    """

    ids: dict[str, set[int]]
    pairs: set[tuple[int, int]]


def _used(connection: sqlite3.Connection, where: str, values: list[int]) -> _Used:
    rows = connection.execute(
        f"SELECT DISTINCT model, sampling, prompt, versions FROM trials WHERE {where}", values
    ).fetchall()
    columns = dict(zip(("models", "samplings", "prompts", "versions"), range(4), strict=True))
    ids = {table: {row[column] for row in rows} for table, column in columns.items()}
    pairs = {(row[0], row[2]) for row in rows}
    # Outcomes of trials that another rank's store holds need their descriptions here too.
    graded = connection.execute(
        f"SELECT DISTINCT model, sampling, prompt FROM outcomes WHERE {where}", values
    ).fetchall()
    for table in ("models", "samplings", "prompts"):
        ids[table] |= {row[columns[table]] for row in graded}
    return _Used(ids, pairs)


def _known(connection: sqlite3.Connection, table: str, digest: str, file: StoreFile) -> int:
    found = find_id(connection, table, digest)
    if found is None:
        rule = f"be the hash of a {TABLES[table]} in {file.path}"
        raise InvalidInputError.of(TABLES[table], rule, digest)
    return found
