"""Export a store as JSON lines: everything it contains, one record per line."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from lm_eval_bayes._util.files import irregular_kind, resolve_path, write_atomic
from lm_eval_bayes._util.plain import Record, to_plain
from lm_eval_bayes.store.errors import (
    NotAStoreError,
    StoreDamagedError,
    StoreFileError,
    readable,
)
from lm_eval_bayes.store.file import StoreFile, check_structure, open_file
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.outcomes import outcome_rows
from lm_eval_bayes.store.questions import QUESTION, cluster_rows
from lm_eval_bayes.store.sources import alias_rows, source_rows
from lm_eval_bayes.store.tables import (
    TABLES,
    description_rows,
    key_trials,
    prompt_signals_rows,
)
from lm_eval_bayes.store.trial import TrialKey


@dataclass(frozen=True)
class ExportReport(Record):
    """What an export wrote.

    Attributes
    ----------
    path : str
        The file; "-" for an open one.
    trials, lines, size : int
        Number of trials, of lines of any kind, and of bytes.
    damaged : int
        Lines whose record does not match its stored hash, see
        :func:`~lm_eval_bayes.store.verify.verify`; they were exported as they are.
    """

    path: str
    trials: int
    lines: int
    size: int
    damaged: int


def export_jsonl(
    store: str | PathLike[str],
    path: str | PathLike[str],
    overwrite: bool = False,
) -> ExportReport:
    """Write everything in a store as JSON lines.

    Every line has a ``kind``: first each ``model``, ``sampling`` and ``prompt`` with its hash,
    the ``source`` and ``alias`` of models, ``prompt_signals``, each ``trial`` with the three hashes
    of its key, then each
    ``outcome`` with its question and the hashes and number of its trial, then the ``cluster`` of
    each question that has one, with its field and label. The order depends
    on the content only, so two stores of the same trials give the same trials in the same order.
    NaN and infinities become null.

    Parameters
    ----------
    store : path or TrialStore
        The store. It may be in use: one consistent state of it is exported.
    path : path
        The file to be written, atomically.
    overwrite : bool
        Whether an existing file is replaced; a trial store never is.

    Raises
    ------
    StoreError
        If the store cannot be read or the file cannot be written; nothing is left behind.
    """
    target = resolve_path(path)
    with closing(open_file(store, "read")) as file:
        check_regular(path)
        if target.exists():
            if not overwrite:
                raise file_exists(target)
            _check_not_store(target)
        reports: list[ExportReport] = []

        def write(output: BinaryIO) -> None:
            text = io.TextIOWrapper(output, encoding="ascii", newline="\n")
            reports.append(_write_lines(file, text.write, str(target)))
            text.detach()

        with export_errors(target):
            if not write_atomic(target, write, overwrite, parents=False):
                raise file_exists(target)
    return reports[0]


def export_lines(store: str | PathLike[str], output: TextIO) -> ExportReport:
    """Write the lines of :func:`export_jsonl` to an open text file, such as standard output.

    Parameters
    ----------
    store : path or TrialStore
        The store.
    output : text file
        The open file. Only ASCII is written.

    Raises
    ------
    StoreError
        If the store cannot be read; then the lines before that were written.
    OSError
        If `output` raises it.
    """
    with closing(open_file(store, "read")) as file:
        return _write_lines(file, output.write, "-")


def check_regular(path: str | PathLike[str]) -> None:
    """Refuse to replace a folder, a device, a pipe or a socket.

    Raises
    ------
    StoreFileError
        If `path` is one.
    """
    kind = irregular_kind(path)
    if kind is not None:
        raise StoreFileError(
            f"{path} is {kind}, so it is not replaced; nothing was exported", "path", "path", path
        )


def file_exists(target: object) -> StoreFileError:
    """Return the error of a file that exists and may not be replaced."""
    return StoreFileError(f"{target} exists already; nothing was exported", "path", "path", target)


@contextmanager
def export_errors(target: Path) -> Iterator[None]:
    """Raise errors of the file or folder that is written as a :class:`StoreFileError`."""
    try:
        yield
    except StoreFileError:
        raise
    except FileExistsError as error:
        raise file_exists(error.filename) from None
    except OSError as error:
        raise StoreFileError(
            f"{target} cannot be written: {error.strerror}", "failed", "path", target
        ) from error


def _check_not_store(target: Path) -> None:
    try:
        is_store(target)
    except NotAStoreError:
        return
    except StoreDamagedError:
        pass
    raise StoreFileError(
        f"{target} is a trial store; export to another file", "path", "path", target
    )


def _write_lines(file: StoreFile, write: Callable[[str], object], path: str) -> ExportReport:
    trials = lines = size = damaged = 0
    with file.reading() as connection:
        check_structure(connection, file.path)
        for line, intact in _lines(connection, file):
            text = json_line(line)
            write(text)
            lines += 1
            trials += line["kind"] == "trial"
            size += len(text)
            damaged += not intact
    return ExportReport(path, trials, lines, size, damaged)


def json_line(record: dict[str, Any]) -> str:
    """Return one line of strict JSON, in ASCII; NaN and infinities become null."""
    # ASCII escapes preserve lone surrogates, which UTF-8 cannot encode.
    try:
        return json.dumps(record, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(to_plain(record), allow_nan=False) + "\n"


def _lines(
    connection: sqlite3.Connection, file: StoreFile
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Read the lines in the order of the export, and whether each record matches its hash."""
    with readable(file.path, "a line to be exported"):
        for table in ("models", "samplings", "prompts"):
            for row in description_rows(connection, table, "hash"):
                line = {"kind": TABLES[table], "hash": row.digest}
                if table == "prompts":
                    line["text"] = str(row.description, "utf-8", "surrogatepass")
                else:
                    line["description"] = json.loads(row.description)
                yield line, row.is_intact()
        for source in source_rows(connection):
            described = json.loads(source.description)
            line = {"kind": "source", **source._asdict(), "description": described}
            del line["digest"]
            yield line, source.is_intact()
        for alias in alias_rows(connection):
            yield {"kind": "alias", "name": alias.name, "model": alias.model}, alias.is_intact()
        for signals in prompt_signals_rows(connection):
            line = {"kind": "prompt_signals", **signals._asdict()}
            line["signals"] = json.loads(line["signals"])
            del line["digest"]
            yield line, signals.is_intact()
        series = connection.execute(
            "SELECT m.hash, s.hash, p.hash, model, sampling, prompt FROM "
            "(SELECT DISTINCT model, sampling, prompt FROM trials) "
            "JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling "
            "JOIN prompts AS p ON p.id = prompt ORDER BY 1, 2, 3"
        ).fetchall()
        # One question at a time: SQLite sorts the hashes here and never the texts.
        for model, sampling, prompt, *ids in series:
            key = TrialKey(model=model, prompt=prompt, sampling=sampling)
            for trial, intact in key_trials(connection, file.texts, key, ids):
                yield {"kind": "trial", **trial.to_dict()}, intact
        for outcome in outcome_rows(connection):
            question = dict(zip(QUESTION, outcome.question, strict=True))
            graded = {**outcome.graded_trial().to_dict(), "graded": outcome.values[0]}
            yield {"kind": "outcome", **question, **graded}, outcome.is_intact()
        for stored in cluster_rows(connection):
            question = dict(zip(QUESTION, stored.question, strict=True))
            yield {"kind": "cluster", **question, **stored.cluster()._asdict()}, stored.is_intact()
