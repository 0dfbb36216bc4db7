"""Write a store as JSON lines, for whoever has no SQLite at hand."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes.store.errors import NotAStoreError, StoreFileError, readable
from lm_eval_bayes.store.file import StoreFile, open_file
from lm_eval_bayes.store.locations import is_store, locate, publish, sync_folder, temporary_name
from lm_eval_bayes.store.migrations import OUTCOMES_SCHEMA, PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.outcomes import QUESTION, rows_of
from lm_eval_bayes.store.records import TrialKey, strict_json
from lm_eval_bayes.store.rows import READ, decode
from lm_eval_bayes.store.trials import TrialStore


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote.

    Attributes
    ----------
    path : str
        The file.
    trials, lines, size : int
        Trials, lines of any kind, and bytes in it.
    """

    path: str
    trials: int
    lines: int
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def export_jsonl(
    store: TrialStore | str | PathLike[str], path: str | PathLike[str], overwrite: bool = False
) -> ExportReport:
    """Write everything a store holds as JSON lines, as it is at this moment.

    Every line has a ``kind``: first each ``model``, ``sampling`` and ``prompt`` with its hash,
    then ``prompt_signals``, then each ``trial`` with the three hashes of its key, then each
    ``outcome`` with its question and the hashes and number of its trial. The order
    depends on nothing but the content, so two stores of the same trials give the same trials
    in the same order. NaN and infinities become null, which strict JSON has in their place.

    Parameters
    ----------
    store : TrialStore or path
        Where from.
    path : path
        Where to; the file appears under its name once it is complete.
    overwrite : bool
        Whether a file that is there may be replaced; a trial store never is.

    Raises
    ------
    StoreError
        If the store cannot be read or the file not be written; nothing is left behind.
    """
    target = locate(path)
    source = store.path if isinstance(store, TrialStore) else store
    with closing(open_file(source, "read")) as file:
        if target == file.path:
            raise StoreFileError(f"{target} is the store itself; export to another file")
        if target.exists():
            if not overwrite:
                raise StoreFileError(f"{target} exists already; nothing was exported")
            _refuse_store(target)
        return _write(file, target, overwrite)


def _refuse_store(target: Path) -> None:
    try:
        there = is_store(target)
    except NotAStoreError:
        return
    if there:
        raise StoreFileError(f"{target} is a trial store; export to another file")


def _write(file: StoreFile, target: Path, overwrite: bool) -> ExportReport:
    temporary = temporary_name(target)
    trials = lines = 0
    try:
        with (
            file.reading() as connection,
            open(temporary, "x", encoding="ascii", newline="\n") as output,
        ):
            for line in _lines(connection, file):
                lines += 1
                trials += line["kind"] == "trial"
                output.write(dumps(line) + "\n")
            output.flush()
            os.fsync(output.fileno())
        size = temporary.stat().st_size
        if overwrite:
            os.replace(temporary, target)
            sync_folder(target.parent)
        elif not publish(temporary, target):
            raise StoreFileError(f"{target} exists already; nothing was exported")
    except StoreFileError:
        raise
    except OSError as error:
        raise StoreFileError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return ExportReport(path=str(target), trials=trials, lines=lines, size=size)


def dumps(line: dict[str, Any]) -> str:
    """Write one line of strict JSON, in ASCII; NaN and infinities become null."""
    # Escaped to ASCII: lone surrogates, which no UTF-8 file can hold, survive that way.
    try:
        return json.dumps(line, allow_nan=False)
    except ValueError:
        return json.dumps(strict_json(line), allow_nan=False)


def _lines(connection: sqlite3.Connection, file: StoreFile) -> Iterator[dict[str, Any]]:
    with readable(file.path, "a line to be exported"):
        yield from _descriptions(connection)
        if file.schema >= PROMPT_SIGNALS_SCHEMA:
            yield from _prompt_signals(connection)
        yield from _trials(connection)
        if file.schema >= OUTCOMES_SCHEMA:
            yield from _outcomes(connection)


def _descriptions(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for table, kind in (("models", "model"), ("samplings", "sampling")):
        rows = connection.execute(f"SELECT hash, description FROM {table} ORDER BY hash")
        for digest, text in rows:
            yield {"kind": kind, "hash": digest, "description": json.loads(text)}
    for digest, text in connection.execute("SELECT hash, description FROM prompts ORDER BY hash"):
        yield {"kind": "prompt", "hash": digest, "text": str(text, "utf-8", "surrogatepass")}


def _prompt_signals(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    rows = connection.execute(
        "SELECT m.hash, p.hash, created, signals FROM prompt_signals "
        "JOIN models AS m ON m.id = model JOIN prompts AS p ON p.id = prompt ORDER BY 1, 2"
    )
    for model, prompt, created, text in rows:
        yield {
            "kind": "prompt_signals",
            "model": model,
            "prompt": prompt,
            "created": created,
            "signals": json.loads(text),
        }


def _trials(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    versions = {
        number: json.loads(text)
        for number, text in connection.execute("SELECT id, description FROM versions")
    }
    series = connection.execute(
        "SELECT m.hash, s.hash, p.hash, model, sampling, prompt FROM "
        "(SELECT DISTINCT model, sampling, prompt FROM trials) "
        "JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling "
        "JOIN prompts AS p ON p.id = prompt ORDER BY 1, 2, 3"
    ).fetchall()
    # One question at a time: SQLite sorts the hashes here and never the texts.
    for model, sampling, prompt, *ids in series:
        key = TrialKey(model=model, prompt=prompt, sampling=sampling)
        rows = connection.execute(
            f"SELECT prompt, {READ} FROM trials "
            "WHERE model = ? AND sampling = ? AND prompt = ? ORDER BY trial",
            ids,
        )
        for row in rows:
            yield {"kind": "trial", **decode(key, versions, row).to_dict()}


def _outcomes(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for row in rows_of(connection):
        question = dict(zip(QUESTION.split(", "), row.question, strict=True))
        graded = row.values[0]
        yield {"kind": "outcome", **question, **row.graded_trial().to_dict(), "graded": graded}
