"""Tables with one row per trial: CSV, TSV, JSON lines, Parquet and Arrow, and these compressed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes._util.compressed import open_bytes, plain_name
from lm_eval_bayes._util.text import error_line, one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.attempt_numbers import UNNUMBERED
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.readers.column_names import (
    described,
    find_columns,
    is_trial_table,
    other_columns,
)
from lm_eval_bayes.runs.readers.conversations import written
from lm_eval_bayes.runs.readers.file_access import PermissionDeniedError
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import (
    CsvTable,
    JsonLines,
    csv_header,
    first_line,
    read_csv,
)
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, partial_runs, record_key
from lm_eval_bayes.runs.readers.trial_texts import SpooledRecords, lines_log, one_text
from lm_eval_bayes.runs.readers.written_numbers import measurements, plain_numbers
from lm_eval_bayes.runs.trials import PartialRun

#: The endings of the names of tables.
CSV, JSON_LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")

#: A table that would do, shown where one is refused.
EXAMPLE = "question,trial,score / q1,0,1 / q1,1,0"

#: Columns that name a run, or its seed: if all rows are of one, their trials have no numbers.
_RUNS = ("run", "run_id", "seed")

#: The kinds of columns that hold measurements of a trial.
_MEASURED = ("tokens", "cost", "time")

#: The kinds of columns that are read when a text is asked for.
_ON_DEMAND = ("response", "target")

#: Rows of a Parquet or Arrow file that are converted together.
_BATCH = 1000

#: Columns of the texts of questions, where others identify the questions.
_TEXTS = ("question", "problem", "question_text")


@dataclass(frozen=True)
class TableRows:
    """How the rows of a table are found again.

    Attributes
    ----------
    again : callable
        Returns the rows with all of their fields.
    texts : TextLog or None
        The texts that the models wrote, of which every row is a record.
    """

    again: Callable[[], Iterable[object]]
    texts: TextLog | None = None


def sniff(path: Path) -> Sniffed | None:
    """Return a file with columns of questions and of scores."""
    return Sniffed([path]) if is_trial_table(header(path)) else None


def header(path: Path) -> Sequence[str]:
    """Return the names of the columns of a table; empty for any other file.

    Raises
    ------
    PermissionDeniedError
        If the user may not read the file.
    """
    if not path.is_file():
        return ()
    suffix = plain_name(path).suffix
    if suffix in CSV:
        return [name.strip() for name in csv_header(path)]
    if suffix in JSON_LINES:
        return list(first_line(path) or ())
    if suffix in PARQUET or suffix in ARROW:
        try:
            return _schema_names(path)
        except PermissionError:
            raise PermissionDeniedError.of_path("RUN", path) from None
        except _arrow_errors():
            return ()
    return ()


def read(file: Path, query: Query) -> FileContents:
    """Read a table of trials.

    Raises
    ------
    InvalidInputError
        If the file is no complete table, two columns have one name, a row lacks its question, some
        rows lack their model or task, or a score is none.
    """
    names = header(file)
    columns = table_columns(names, query)
    kind = lacking(columns)
    if kind is not None:
        rule = f"have a column of {kind}s, as in {EXAMPLE}; {file.name} has {', '.join(names)}"
        got = f"no --columns {kind}=NAME"
        raise InvalidInputError.of(query.argument, "missing-column", rule, got)
    repeated = [name for name in columns.values() if list(names).count(name) > 1]
    if repeated:
        rule = f"have one column {repeated[0]} in {file.name}"
        n_columns = list(names).count(repeated[0])
        raise InvalidInputError.of(query.argument, "duplicate", rule, n_columns)
    by_name, rows, warnings = _columns(file, names, columns, query)
    contents = table_contents(by_name, names, columns, file, query, rows)
    return replace(contents, warnings=(*warnings, *contents.warnings))


def table_columns(names: Sequence[str], query: Query) -> dict[str, str]:
    """Return which column of a table is of which kind, that of the texts of questions too."""
    columns = find_columns(names, query.columns, "columns")
    if query.cluster is not None:
        columns |= find_columns(names, {"cluster": query.cluster}, "cluster")
    taken = set(columns.values())
    free = (name for name in names if name.lower() in _TEXTS and name not in taken)
    text = next(free, None)
    return columns if text is None else {**columns, "text": text}


def lacking(columns: Mapping[str, str]) -> str | None:
    """Return which of the columns that a table of trials must have is missing."""
    return next((kind for kind in ("question", "score") if kind not in columns), None)


def table_contents(
    by_name: Mapping[str, list[Any]],
    names: Sequence[str],
    columns: Mapping[str, str],
    file: Path,
    query: Query,
    rows: TableRows,
    *,
    model: str = "",
) -> FileContents:
    """Return the runs of a table, with notes on how its columns were read.

    Parameters
    ----------
    by_name : mapping
        The columns that are read, and those that may be models or questions too.
    names : sequence of str
        The names of all columns.
    columns : mapping
        The columns by kind, from `table_columns`.
    file : Path
        The file, or what the table is called.
    query : Query
        What is read.
    rows : TableRows
        How its rows are found again.
    model : str
        The model where no column names one; by default it is named after the file.

    Raises
    ------
    InvalidInputError
        If a row lacks its question, a score is none, or a trial occurs twice.
    """
    notes: list[str] = []
    if "score" not in query.columns:
        notes += [
            f"{file.name}: {columns['score']} was counted; --columns score={other} counts {other}"
            for other in other_columns("score", names, columns)
        ]
    by_kind = {k: by_name[name] for k, name in columns.items() if k not in _ON_DEMAND}
    notes += _plain_columns(by_kind, columns, file, query)
    if "model" not in query.columns:
        notes += _join_models(by_kind, by_name, columns, file)
    reason = _without_numbers(by_kind, columns, query)
    if reason:
        del by_kind["trial"]
        notes.append(f"{file.name}: {columns['trial']} {reason}")
    for kind in ("model", "task"):
        _check_filled(by_kind.get(kind, ()), kind, file, query.argument)
    trials = _trial_columns(by_kind, model)
    trials.texts = rows.texts
    if trials.trial is None and "response" in columns:  # without texts, equal rows tell nothing
        trials.records = list(map(record_key, rows.again()))
    for answer in (columns.get("answer"), *other_columns("answer", names, columns), None):
        trials.answer = None if answer is None else by_name[answer]
        runs = partial_runs(trials, file, query, metric=columns["score"])
        mixed = next(filter(None, map(_right_and_wrong, runs)), "")
        if not mixed:
            break
        notes.append(f"{file.name}: {answer} does not hold the answers of the trials: {mixed}")
    columns = {kind: name for kind, name in {**columns, "answer": answer}.items() if name}
    if trials.trial is not None:
        runs = [replace(run, first_label=_first_label(run)) for run in runs]
    on_demand = dict.fromkeys(() if rows.texts is None else _ON_DEMAND)
    warnings: tuple[str, ...] = ()
    if "question" not in query.columns:
        others = other_columns("question", names, columns)
        warnings = _numbers_of_rows(by_name, by_kind, columns, others, file)
    if "trial" not in by_kind:
        warnings += _uneven(runs, file)
    return FileContents(
        runs,
        tuple(dict.fromkeys(run.task for run in runs)),
        warnings=warnings,
        notes=tuple(notes),
        columns=(file.name, described({**by_kind, **on_demand}, columns)),
    )


def _columns(
    file: Path, names: Sequence[str], columns: Mapping[str, str], query: Query
) -> tuple[dict[str, list[Any]], TableRows, tuple[str, ...]]:
    """Return the columns by name, those too that may take another's place, rows, and warnings."""
    further = (other_columns(kind, names, columns) for kind in ("question", "model", "answer"))
    at_once = [name for kind, name in columns.items() if kind not in _ON_DEMAND]
    wanted = list(dict.fromkeys([*at_once, *chain.from_iterable(further)]))
    suffix = plain_name(file).suffix
    response, target = (columns.get(kind) for kind in _ON_DEMAND)
    texts_of = partial(_texts, response=response or "", target=target)
    texts: TextLog | None = None
    if suffix in JSON_LINES:
        lines = JsonLines(file, query.argument, query.advance)
        by_name = _columns_of(lines, wanted)
        texts = None if response is None else lines_log(lines, texts_of)
        again = partial(JsonLines, file, query.argument, unique_keys=False)
        return by_name, TableRows(again, texts), lines.warnings
    rows_again = _csv_rows if suffix in CSV else arrow_rows
    if response is not None:
        on_demand = [name for name in (response, target) if name is not None]
        texts = SpooledRecords(
            file, records=lambda: map(texts_of, rows_again(file, on_demand, query.argument))
        )
    distinct = [name for name in names if list(names).count(name) == 1]
    rows = TableRows(partial(rows_again, file, distinct, query.argument), texts)
    if suffix in CSV:
        by_name, warnings = _csv_columns(file, wanted, query)
        return by_name, rows, warnings
    return arrow_columns(file, wanted, query), rows, ()


def _texts(row: Mapping[str, Any], *, response: str, target: str | None) -> Sequence[TrialText]:
    """Return the text of a row, and the right answer where a column holds it."""
    right = None if target is None else row.get(target)
    return one_text(written(row.get(response)), right)


def _join_models(
    by_kind: dict[str, list[Any]],
    by_name: Mapping[str, list[Any]],
    columns: Mapping[str, str],
    file: Path,
) -> list[str]:
    """Keep systems of one model apart, such as agents; return a note if there are some."""
    if "model" not in columns:
        return []
    notes = []
    for other in other_columns("model", list(by_name), columns):
        pairs = list(zip(map(str, by_kind["model"]), map(str, by_name[other]), strict=True))
        if len(set(pairs)) > len({model for model, _ in pairs}):
            by_kind["model"] = [f"{model} ({name})" for model, name in pairs]
            notes.append(f"{file.name}: a model is one of {columns['model']} with its {other}")
    return notes


def _plain_columns(
    by_kind: dict[str, list[Any]],
    columns: Mapping[str, str],
    file: Path,
    query: Query,
) -> list[str]:
    """Read numbers of other ways of writing; return notes that say so, and what is left out."""
    plain = partial(plain_numbers, file=file.name, argument=query.argument)
    is_bounded = query.bounds is not None
    by_kind["score"], how = plain(
        by_kind["score"], columns["score"], is_share=True, is_bounded=is_bounded
    )
    notes = [how]
    for kind in (kind for kind in _MEASURED if kind in by_kind):
        name, values, how = columns[kind], by_kind[kind], ""
        with suppress(InvalidInputError):  # a comma in a number that has two meanings
            values, how = plain(values, name, is_share=False)
        by_kind[kind], wrong = measurements(values)
        if wrong is not None:
            del by_kind[kind]
            value = one_line(repr(values[wrong]), 40)
            how = f"the column {name} ({kind}) is left out: {value} in row {wrong + 1} is no "
            how += "number of at least 0"
        notes.append(how)
    return [f"{file.name}: {how}" for how in notes if how]


def _check_filled(names: Sequence[Any], kind: str, file: Path, argument: str) -> None:
    """Refuse a column of names that is empty in some rows only: whose trials would they be?"""
    empty = [name is None or not str(name).strip() for name in names]
    if any(empty) and not all(empty):
        rule = f"name the {kind} in every row of {file.name}, or in none"
        got = f"an empty cell in row {empty.index(True) + 1}"
        raise InvalidInputError.of(argument, "missing", rule, got)


def _right_and_wrong(run: PartialRun) -> str:
    """Return in words that one text is right and wrong as an answer to a question; "" if none is.

    A column of such texts holds the right answer of every question, which tells no vote.
    """
    trials = run.trials
    if trials is None or trials.answer is None:
        return ""
    grades: dict[tuple[int, str], int] = {}
    rows = zip(
        trials.question.tolist(), trials.answer.tolist(), trials.category.tolist(), strict=True
    )
    for question, text, grade in rows:
        if text is not None and grade >= 0 and grades.setdefault((question, text), grade) != grade:
            id = run.questions[question].id
            return f"{one_line(text, 40)} is right and wrong in question {id}"
    return ""


def _first_label(run: PartialRun) -> int | None:
    """Return 0, as trials are called by their numbers; None where these are seeds or hashes."""
    largest = 0 if run.trials is None else run.trials.number.max(initial=0)
    return 0 if largest < UNNUMBERED else None


def _without_numbers(
    by_kind: Mapping[str, list[Any]], columns: Mapping[str, str], query: Query
) -> str:
    """Return why a column of trials numbers none of them; empty where it does, or there is none."""
    if "trial" not in by_kind:
        return ""
    if "trial" not in query.columns and columns["trial"] in _RUNS and _is_constant(by_kind):
        return "is the same in all rows, which are trials"
    empty = set(map(type, by_kind["trial"])) == {type(None)}
    return "is empty: every row is a trial" if empty else ""


def _is_constant(by_kind: Mapping[str, list[Any]]) -> bool:
    """Return whether a column of runs has one value, and so tells no trials of it apart."""
    if len(set(map(str, by_kind["trial"]))) > 1:
        return False
    kinds = [kind for kind in ("question", "model", "task") if kind in by_kind]
    rows = list(zip(*(map(str, by_kind[kind]) for kind in kinds), strict=True))
    return len(set(rows)) < len(rows)


def _uneven(runs: Sequence[PartialRun], file: Path) -> tuple[str, ...]:
    """Return a warning where rows that name no trial are more of some questions than of others."""
    sizes = {n for run in runs if run.trials is not None for n in np.bincount(run.trials.question)}
    if len(sizes) < 2:
        return ()
    return (
        f"{file.name}: no column numbers the trials, so that every row is one; questions have "
        f"{min(sizes)} to {max(sizes)} (repeated rows?)",
    )


def _numbers_of_rows(
    by_name: Mapping[str, list[Any]],
    by_kind: Mapping[str, list[Any]],
    columns: Mapping[str, str],
    others: Iterable[str],
    file: Path,
) -> tuple[str, ...]:
    """Return warnings if the column of questions may hold the numbers of the rows.

    Every question then has one trial, and would have more by another column, or numbers of trials
    repeat.
    """
    keys = [list(map(str, by_kind[kind])) for kind in ("model", "task") if kind in by_kind]

    def n_distinct(column: Sequence[Any]) -> int:
        return len(set(zip(map(str, column), *keys, strict=True)))

    question, n_rows = columns["question"], len(by_kind["question"])
    if n_distinct(by_kind["question"]) < n_rows:
        return ()
    counts = {name: n_distinct(by_name[name]) for name in others}
    warnings = tuple(
        f"{file.name}: every row is another question by its column {question}, and by {name} "
        f"there are {n:,}: --columns question={name} reads repeated trials"
        for name, n in counts.items()
        if n < n_rows
    )
    labels = by_kind.get("trial", ())
    n_labels = len(set(map(str, labels)))
    if warnings or n_labels < 2 or n_distinct(labels) == n_rows:
        return warnings
    return (
        f"{file.name}: every question has one trial although column {columns['trial']} has "
        f"{n_labels:,} values; is {question} the number of the row? --columns question=NAME names "
        "the question's column",
    )


def _trial_columns(by_kind: Mapping[str, list[Any]], model: str) -> TrialColumns:
    """Return the columns of a table, by what they hold, as trials."""
    return TrialColumns(
        question=by_kind["question"],
        score=by_kind["score"],
        model=by_kind.get("model", model),
        task=by_kind.get("task", ""),
        trial=by_kind.get("trial"),
        cluster=by_kind.get("cluster"),
        category=by_kind.get("category"),
        text=by_kind.get("text"),
        measured={kind: by_kind[kind] for kind in _MEASURED if kind in by_kind},
    )


def _columns_of(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns of rows, None for a missing one; equal texts are held once."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    texts: dict[str, str] = {}
    for row in rows:
        for name, column in columns.items():
            value = row.get(name)
            column.append(texts.setdefault(value, value) if isinstance(value, str) else value)
    return columns


def _csv_columns(
    file: Path, wanted: Sequence[str], query: Query
) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    table = read_csv(file, query.argument)
    query.advance(file.stat().st_size)
    header = table.rows[0].cells
    again = next((row.line for row in table.rows[1:] if row.cells == header), None)
    if again is not None:
        rule = f"have the names of the columns in its first line alone ({file})"
        raise InvalidInputError.of(query.argument, "duplicate", rule, f"line {again}")
    columns = _columns_of(_rows_of_csv(table, wanted), wanted)
    plain = {name: [text.strip() for text in column] for name, column in columns.items()}
    return {name: _numbers(column) for name, column in plain.items()}, table.warnings


def _csv_rows(file: Path, names: Sequence[str], argument: str) -> Iterator[Mapping[str, Any]]:
    """Return the rows of a CSV file, of which only some columns, as they are written."""
    return _rows_of_csv(read_csv(file, argument), names)


def _rows_of_csv(table: CsvTable, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    header = [cell.strip() for cell in table.rows[0].cells]
    indices = {name: header.index(name) for name in names}
    for row in table.rows[1:]:
        yield {name: row.cells[i] for name, i in indices.items()}


def _numbers(texts: list[Any]) -> list[Any]:
    """Return numbers, None for an empty text, where all other texts of a column are numbers.

    Numbers with leading zeros stay texts, as names of questions may be such, and so do numbers that
    are larger than floats.
    """
    if not all(text[0] in "-.0123456789" and text[-1].isdigit() for text in texts if text):
        return texts
    if any(len(text) > 17 or (text[:1] == "0" and text[1:2].isdigit()) for text in texts):
        return texts
    try:
        if all(text.isdigit() for text in texts):
            return [int(text) for text in texts]
        numbers = [float(text) if text else None for text in texts]
    except ValueError:
        return texts
    return texts if any(number and math.isinf(number) for number in numbers) else numbers


# -- Parquet and Arrow -----------------------------------------------------------------------------


def _arrow_errors() -> tuple[type[Exception], ...]:
    import pyarrow

    return (OSError, ValueError, EOFError, pyarrow.ArrowException)


def schema_error(path: Path) -> str | None:
    """Return why a Parquet or Arrow file has no columns, such as that it is cut off; else None."""
    if plain_name(path).suffix not in (*PARQUET, *ARROW):
        return None
    try:
        _schema_names(path)
    except _arrow_errors() as error:
        return _arrow_damage(path, error)
    return None


def _arrow_damage(file: Path, error: Exception) -> str:
    """Return what is wrong with a Parquet or Arrow file that pyarrow cannot read."""
    kind = "Parquet" if plain_name(file).suffix in PARQUET else "Arrow"
    return f"an incomplete or damaged {kind} file ({error_line(error)})"


def _schema_names(path: Path) -> list[str]:
    if plain_name(path).suffix in PARQUET:
        import pyarrow.parquet

        return list(pyarrow.parquet.read_schema(path).names)
    return list(_arrow_reader(path).schema.names)


def _arrow_reader(path: Path) -> Any:
    """Open an Arrow file or stream, memory-mapped where it is not compressed."""
    import pyarrow

    if plain_name(path) != path:
        with open_bytes(path) as file:
            source: Any = pyarrow.BufferReader(file.read())
    else:
        source = pyarrow.memory_map(str(path))
    try:
        return pyarrow.ipc.open_file(source)
    except pyarrow.ArrowInvalid:
        source.seek(0)
        return pyarrow.ipc.open_stream(source)


def arrow_columns(file: Path, wanted: Sequence[str], query: Query) -> dict[str, list[Any]]:
    """Return columns of a Parquet or Arrow file.

    Raises
    ------
    InvalidInputError
        If it is broken, or has no such column.
    """
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    for batch in _arrow_batches(file, wanted, query.argument):
        for name, column in columns.items():
            column += batch.column(name).to_pylist()
    query.advance(file.stat().st_size)
    return columns


def arrow_rows(file: Path, names: Sequence[str], argument: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a Parquet or Arrow file, of which only some columns are read."""
    for batch in _arrow_batches(file, names, argument):
        yield from batch.to_pylist()


def _arrow_batches(file: Path, names: Sequence[str], argument: str) -> Iterator[Any]:
    """Yield columns of a Parquet or Arrow file, some rows at a time.

    Raises
    ------
    InvalidInputError
        If it is broken.
    """
    try:
        if plain_name(file).suffix in PARQUET:
            import pyarrow.parquet

            batches = pyarrow.parquet.ParquetFile(file).iter_batches(_BATCH, columns=list(names))
        else:
            batches = _arrow_reader(file).read_all().select(list(names)).to_batches(_BATCH)
        for batch in batches:
            batch.validate(full=True)  # a broken buffer is an error, not a crash
            yield batch
    except _arrow_errors() as error:
        rule = f"have a complete table in {file}"
        raise InvalidInputError.of(argument, "damaged", rule, _arrow_damage(file, error)) from None
