"""Export a store as JSON lines: everything it contains, one record per line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from lm_eval_bayes._util.files import (
    irregular_kind,
    resolve_path,
    write_all_or_none,
    write_errors,
)
from lm_eval_bayes._util.plain import Record, to_plain
from lm_eval_bayes._util.sqlite import check_not_store
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.file import StoreFile, open_file
from lm_eval_bayes.store.schema import TABLES, Row


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
        Records that do not match their hash and were left out, see
        :func:`~lm_eval_bayes.store.prune.verify`.
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

    Every line has a ``kind``: first each ``model``, ``sampling``, ``version`` and ``prompt`` with
    its hash, the ``source`` of models, each ``prompt_signal``, each ``trial`` with the three hashes
    of its key, each ``outcome`` with its question and the hashes and number of its trial, then the
    ``cluster`` of questions, with field and label. NaN and infinities become null.

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
        If the store cannot be read; nothing is left behind.
    InvalidInputError
        If the file cannot be written, or exists; nothing is left behind.
    """
    target = resolve_path(path)
    reports: list[ExportReport] = []
    with closing(open_file(store, "read")) as file:
        check_target(target, overwrite)

        def write(output: BinaryIO) -> None:
            text = io.TextIOWrapper(output, encoding="ascii", newline="\n")
            reports.append(_write_lines(file, text.write, str(target)))
            text.detach()

        with write_errors("path"):
            write_all_or_none([(target, write)], overwrite)
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


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse to replace a folder, a device, a trial store, or without `overwrite` any file.

    Raises
    ------
    InvalidInputError
        If `path` is one.
    """
    kind = irregular_kind(path)
    if kind is not None:
        raise InvalidInputError.of("path", "path", "be a file", f"{path}, {kind}")
    if path.exists():
        if not overwrite:
            rule = "be a new file, unless files are overwritten"
            raise InvalidInputError.of("path", "path", rule, str(path))
        check_not_store(path, "path")


def _write_lines(file: StoreFile, write: Callable[[str], object], path: str) -> ExportReport:
    trials = lines = size = damaged = 0
    with file.reading(checked=True) as connection:
        for table in TABLES:
            for row in file.rows(connection, table):
                if not row.is_intact():
                    damaged += 1
                    continue
                text = json_line({"kind": table.name.removesuffix("s"), **_line(row)})
                write(text)
                lines += 1
                trials += table.name == "trials"
                size += len(text)
    return ExportReport(path, trials, lines, size, damaged)


def json_line(record: dict[str, Any]) -> str:
    """Return one line of strict JSON, in ASCII; NaN and infinities become null."""
    # ASCII escapes preserve lone surrogates, which UTF-8 cannot encode.
    try:
        return json.dumps(record, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(to_plain(record), allow_nan=False) + "\n"


#: The columns that hold JSON; prompts are described by text.
_JSON = ("description", "versions", "signals", "stop_reason")


def _line(row: Row) -> dict[str, Any]:
    """Return a record that is intact, with values that are JSON parsed."""
    texts = (text and str(text, "utf-8", "surrogatepass") for text in row.texts)
    line = row.named() | dict(zip(row.table.texts, texts, strict=True))
    for name in _JSON:
        if isinstance(line.get(name), str) and row.table.name != "prompts":
            line[name] = json.loads(line[name])
    if "description" in row.table.texts:
        line = {"hash": row.digest, **line}
    return line
