"""Files of tables: CSV, TSV, JSON lines, JSON, Parquet and Arrow, and these compressed.

The beginning of a file, by which the formats recognise their own, is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from lm_eval_bayes._util.files import open_bytes, plain_name
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers.column_names import MODELS, TASKS, TRIALS, is_trial_table
from lm_eval_bayes.runs.readers.json_files import beginning, load_json
from lm_eval_bayes.runs.readers.protocol import unreadable
from lm_eval_bayes.runs.readers.text_files import JsonLines, Row, csv_lines

#: The endings of the names of tables.
CSV, JSON_LINES, JSON = (".csv", ".tsv"), (".jsonl", ".ndjson"), (".json",)
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")

_Row = TypeVar("_Row")

#: Rows of a Parquet or Arrow file that are converted together.
_BATCH = 1000


def first_row(rows: Iterable[_Row]) -> _Row | None:
    """Return the first row of a file; None where there is none, or it is broken.

    Raises
    ------
    PermissionError
        If the user may not read the file.
    """
    try:
        return next(iter(rows), None)
    except InvalidInputError:
        return None


def names_of(path: Path) -> Iterator[Iterable[str]]:
    """Yield rows, or keys of rows, of which the first are the names of the columns of a table."""
    suffix = plain_name(path).suffix
    if suffix in CSV:
        yield from (map(str.strip, cells) for cells in csv_lines(path))
    elif suffix in (*PARQUET, *ARROW):
        with _arrow_reader(path) as reader:
            yield (reader.schema_arrow if suffix in PARQUET else reader.schema).names
    elif suffix in JSON:
        yield from json_rows(load_json(path))


def rows_of(
    file: Path, names: Sequence[str] = (), *, unique_keys: bool = True
) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a table.

    Parameters
    ----------
    file : Path
        The table.
    names : sequence of str
        The columns that are needed; rows of some formats have others too.
    unique_keys : bool
        Whether a JSON line that has a key twice is refused.

    Raises
    ------
    InvalidInputError
        If the table is incomplete or broken, here or while iterating.
    """
    suffix = plain_name(file).suffix
    if suffix in JSON_LINES:
        return JsonLines(file, unique_keys=unique_keys)
    if suffix in JSON:
        rows = json_rows(load_json(file))
        if not rows:
            rule = f"hold one array of objects, or lists of outcomes by question ({file})"
            raise InvalidInputError.of("RUN", "format", rule, "something beside or in it")
        return rows
    return csv_rows(file) if suffix in CSV else arrow_rows(file, names)


#: A table of more rows is refused, as it would fill the memory.
_MOST_ROWS = 5_000_000


def uniform(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield rows; refuse one that names its model, task or trial if the first does not, and many.

    Parameters
    ----------
    rows : iterable of mapping
        The rows.
    names : sequence of str
        The keys of the first.
    """
    telling = (MODELS | TASKS | TRIALS).difference(names)
    for number, row in enumerate(rows, 1):
        if not telling.isdisjoint(row):
            rule = "have the keys of its first row in every row"
            got = f"{', '.join(telling.intersection(row))} in row {number} alone"
            raise InvalidInputError.of("RUN", "mismatch", rule, got)
        if number > _MOST_ROWS:
            raise InvalidInputError.of("RUN", "range", f"have at most {_MOST_ROWS:,} rows", "more")
        yield row


def columns_of(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns of rows, None for a missing value; equal texts are held once."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    texts: dict[str, str] = {}
    for row in rows:
        for name, column in columns.items():
            value = row.get(name)
            column.append(texts.setdefault(value, value) if isinstance(value, str) else value)
    return columns


def csv_rows(file: Path) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV file with a header, without blank ones.

    Raises
    ------
    InvalidInputError
        If the file is no complete table, or its header comes again.
    """
    lines = csv_lines(file)
    names = next(lines)
    for number, cells in enumerate(lines, 2):
        if cells == names:
            rule = f"have the names of the columns in its first row alone ({file})"
            raise InvalidInputError.of("RUN", "duplicate", rule, f"row {number}")
        if any(map(str.strip, cells)):
            yield dict(zip(map(str.strip, names), cells, strict=True))


# -- JSON ------------------------------------------------------------------------------------------


def json_rows(content: Any) -> list[Row]:
    """Return the rows of a JSON value that is a table; none of any other.

    A table is an array of objects, also as ``{"results": [...]}``, or has lists of outcomes by
    question, or by model and question.

    Examples
    --------
    >>> json_rows({"results": [{"id": "a", "correct": True}]})
    [{'id': 'a', 'correct': True}]
    >>> json_rows({"m": {"a": [1, 0], "b": [1]}})[1]
    {'model': 'm', 'question': 'b', 'score': [1]}
    """
    if isinstance(content, dict):
        results = content.get("results")
        lists = [value for value in content.values() if isinstance(value, list) and value]
        if isinstance(results, list) and sum(isinstance(v[0], dict) for v in lists) > 1:
            return []  # which of them holds the trials?
        content = results if isinstance(results, list) else _by_question(content)
    is_table = isinstance(content, list) and all(isinstance(row, dict) for row in content)
    return content if is_table else []


def _by_question(content: Row) -> list[Row]:
    """Return lists of outcomes by question, or by model and question, as rows."""
    nested = all(isinstance(value, dict) for value in content.values())
    rows = [
        {**({"model": model} if nested else {}), "question": question, "score": outcomes}
        for model, questions in (content if nested else {"": content}).items()
        for question, outcomes in questions.items()
    ]
    lists = [row["score"] for row in rows if isinstance(row["score"], list)]
    numbers = all(isinstance(outcome, (bool, int, float)) for row in lists for outcome in row)
    return rows if numbers and len(lists) == len(rows) and not is_trial_table(content) else []


# -- Parquet and Arrow -----------------------------------------------------------------------------


def arrow_rows(file: Path, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a Parquet or Arrow file, of which only some columns are read.

    Raises
    ------
    InvalidInputError
        If it is broken.
    """
    with _arrow_reader(file) as reader:
        if plain_name(file).suffix in PARQUET:
            batches = reader.iter_batches(_BATCH, columns=list(names))
        else:
            batches = reader.read_all().select(list(names)).to_batches(_BATCH)
        for batch in batches:
            batch.validate(full=True)  # a broken buffer is an error, not a crash
            yield from batch.to_pylist()


#: How a stream of Arrow ends.
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def _arrow_reader(path: Path) -> Iterator[Any]:
    """Open a Parquet or Arrow file, or a stream; refuse it if it is broken, also in the block."""
    import pyarrow.parquet

    try:
        with open_bytes(path) as file:
            # memory-mapped where it is not compressed
            plain = plain_name(path) == path
            source = pyarrow.memory_map(str(path)) if plain else pyarrow.BufferReader(file.read())
        if plain_name(path).suffix in PARQUET:
            yield pyarrow.parquet.ParquetFile(source)
            return
        try:
            reader = pyarrow.ipc.open_file(source)
        except pyarrow.ArrowInvalid:
            source.seek(max(source.size() - len(_STREAM_END), 0))
            if source.read() != _STREAM_END:  # pyarrow reads what is there, and zeros as scores
                raise
            source.seek(0)
            reader = pyarrow.ipc.open_stream(source)
        yield reader
    except (OSError, ValueError, EOFError, pyarrow.ArrowException) as error:
        raise unreadable(error, path) from None


class LogFile:
    """A file whose beginning is read once, for all formats that ask for it.

    What cannot be read, or is broken, has an empty beginning; a denied permission is an error.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    name, suffix : str
        Its name, and the ending of that, without the one of a compressed file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.suffix = path, path.name, plain_name(path).suffix

    @cached_property
    def beginning(self) -> bytes:
        """The first bytes, 4096 at most, without a byte order mark."""
        return beginning(self.path)

    @cached_property
    def first_line(self) -> Row:
        """The object in the first line of JSON; empty for other files."""
        if self.suffix not in JSON_LINES:
            return {}
        return first_row(JsonLines(self.path, unique_keys=False)) or {}

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns of a table; empty for any other file."""
        return list(self.first_line) or list(first_row(names_of(self.path)) or ())
