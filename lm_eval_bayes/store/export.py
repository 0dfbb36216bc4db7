"""Write a store as JSON lines, for whoever has no SQLite at hand."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from lm_eval_bayes._util.files import publish, sync_folder, temporary_name
from lm_eval_bayes._util.plain import to_plain
from lm_eval_bayes.store.checked import CheckedTrials
from lm_eval_bayes.store.descriptions import description_intact
from lm_eval_bayes.store.errors import (
    NotAStoreError,
    StoreDamagedError,
    StoreFileError,
    readable,
)
from lm_eval_bayes.store.file import StoreFile, open_file, store_at
from lm_eval_bayes.store.locations import locate
from lm_eval_bayes.store.migrations import OUTCOMES_SCHEMA, PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.outcomes import QUESTION, rows_of
from lm_eval_bayes.store.prompt_signals import prompt_signals_intact
from lm_eval_bayes.store.trial import TrialKey
from lm_eval_bayes.store.trial_store import TrialStore


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote.

    Attributes
    ----------
    path : str
        The file; "-" where it was written to an open one.
    trials, lines, size : int
        Trials, lines of any kind, and bytes in it.
    damaged : int
        Lines of any kind that are not what was written to the store, see
        :func:`~lm_eval_bayes.store.verify.verify`; they were exported as they are now.
    """

    path: str
    trials: int
    lines: int
    size: int
    damaged: int

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
    with closing(_opened(store)) as file:
        if target == file.path:
            raise StoreFileError(f"{target} is the store itself; export to another file")
        refuse_special(path)
        if target.exists():
            if not overwrite:
                raise StoreFileError(f"{target} exists already; nothing was exported")
            _refuse_store(target)
        return _write(file, target, overwrite)


def export_lines(store: TrialStore | str | PathLike[str], output: TextIO) -> ExportReport:
    """Write the lines of :func:`export_jsonl` to an open text file, such as standard output.

    Parameters
    ----------
    store : TrialStore or path
        Where from.
    output : text file
        Where to. All of it is ASCII.

    Raises
    ------
    StoreError
        If the store cannot be read; then the lines before that were written.
    OSError
        Whatever `output` raises.
    """
    with closing(_opened(store)) as file:
        return _copy(file, output, "-")


def refuse_special(path: str | PathLike[str]) -> None:
    """Refuse to put a file in the place of a folder, a device, a pipe or a socket.

    Raises
    ------
    StoreFileError
        If one of these is at `path`.
    """
    # By the path as it was given: what /dev/fd/3 leads to has no other name, if it is a pipe.
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise StoreFileError(
            f"{os.fsdecode(path)} is {kind}, so it is not replaced; nothing was exported"
        )


def _opened(store: TrialStore | str | PathLike[str]) -> StoreFile:
    return open_file(store.path if isinstance(store, TrialStore) else store, "read")


def _refuse_store(target: Path) -> None:
    try:
        there = store_at(target)
    except NotAStoreError:
        return
    except StoreDamagedError as error:
        raise StoreFileError(f"{error}; export to another file") from error
    if there:
        raise StoreFileError(f"{target} is a trial store; export to another file")


def _write(file: StoreFile, target: Path, overwrite: bool) -> ExportReport:
    temporary = temporary_name(target)
    try:
        with open(temporary, "x", encoding="ascii", newline="\n") as output:
            report = _copy(file, output, str(target))
            output.flush()
            os.fsync(output.fileno())
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
    return report


def _copy(file: StoreFile, output: TextIO, path: str) -> ExportReport:
    trials = lines = size = 0
    with file.reading() as connection:
        exported = _Lines(connection, file)
        for line in exported.all():
            lines += 1
            trials += line["kind"] == "trial"
            size += output.write(dumps(line) + "\n")
    return ExportReport(path, trials, lines, size, exported.damaged)


def dumps(line: dict[str, Any]) -> str:
    """Write one line of strict JSON, in ASCII; NaN and infinities become null."""
    # Escaped to ASCII: lone surrogates, which no UTF-8 file can hold, survive that way.
    try:
        return json.dumps(line, allow_nan=False)
    except ValueError:
        return json.dumps(to_plain(line), allow_nan=False)


class _Lines:
    """The lines of a store; `damaged` counts those that are not what was written."""

    def __init__(self, connection: sqlite3.Connection, file: StoreFile) -> None:
        self.connection, self.file = connection, file
        self.damaged = 0

    def all(self) -> Iterator[dict[str, Any]]:
        """Read them in the order of an export."""
        with readable(self.file.path, "a line to be exported"):
            yield from self._descriptions()
            if self.file.schema >= PROMPT_SIGNALS_SCHEMA:
                yield from self._prompt_signals()
            yield from self._trials()
            if self.file.schema >= OUTCOMES_SCHEMA:
                yield from self._outcomes()

    def _descriptions(self) -> Iterator[dict[str, Any]]:
        for table, kind in (("models", "model"), ("samplings", "sampling"), ("prompts", "prompt")):
            rows = self.connection.execute(f"SELECT hash, description FROM {table} ORDER BY hash")
            for digest, found in rows:
                self.damaged += not description_intact(table, digest, found)
                line = {"kind": kind, "hash": digest}
                if kind == "prompt":
                    yield {**line, "text": str(found, "utf-8", "surrogatepass")}
                else:
                    yield {**line, "description": json.loads(found)}

    def _prompt_signals(self) -> Iterator[dict[str, Any]]:
        rows = self.connection.execute(
            "SELECT m.hash, p.hash, created, signals, s.hash FROM prompt_signals AS s "
            "JOIN models AS m ON m.id = model JOIN prompts AS p ON p.id = prompt ORDER BY 1, 2"
        )
        for model, prompt, created, text, digest in rows:
            self.damaged += not prompt_signals_intact(digest, model, prompt, (created, text))
            yield {
                "kind": "prompt_signals",
                "model": model,
                "prompt": prompt,
                "created": created,
                "signals": json.loads(text),
            }

    def _trials(self) -> Iterator[dict[str, Any]]:
        trials = CheckedTrials(self.connection)
        series = self.connection.execute(
            "SELECT m.hash, s.hash, p.hash, model, sampling, prompt FROM "
            "(SELECT DISTINCT model, sampling, prompt FROM trials) "
            "JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling "
            "JOIN prompts AS p ON p.id = prompt ORDER BY 1, 2, 3"
        ).fetchall()
        # One question at a time: SQLite sorts the hashes here and never the texts.
        for model, sampling, prompt, *ids in series:
            key = TrialKey(model=model, prompt=prompt, sampling=sampling)
            for trial, intact in trials.of(key, ids):
                self.damaged += not intact
                yield {"kind": "trial", **trial.to_dict()}

    def _outcomes(self) -> Iterator[dict[str, Any]]:
        for row in rows_of(self.connection):
            self.damaged += not row.is_intact()
            question = dict(zip(QUESTION.split(", "), row.question, strict=True))
            graded = row.values[0]
            yield {"kind": "outcome", **question, **row.graded_trial().to_dict(), "graded": graded}
