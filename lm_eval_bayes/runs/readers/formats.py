"""The table of formats, and which of them a path has.

A format is a module of this folder and an entry of :data:`FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from lm_eval_bayes._util.files import check_pointer, plain_name
from lm_eval_bayes._util.text import first_names, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers import (
    counts,
    evalscope_outputs,
    harbor_jobs,
    harness_log,
    helm_stats,
    inspect_log,
    lighteval_details,
    matharena_outputs,
    nemo_skills_outputs,
    swe_bench_report,
    tables,
    tau_bench,
    trial_store,
    trial_table,
    verifiers_traces,
    zero_one_matrix,
)
from lm_eval_bayes.runs.readers.json_files import broken, load_json
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    Found,
    Query,
    check_permission,
    errors_of,
    files_below,
    unreadable,
)
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.text_files import JsonLines
from lm_eval_bayes.store.locations import store_of


class Reader(Protocol):
    """A format of saved runs: a module of this folder, listed in :data:`FORMATS`."""

    # A module may also have ``units(files, path)``, which returns as `Found` what is read of its
    # files at a path, a folder or the file itself; by default every file is read by itself.

    def is_mine(self, file: LogFile) -> bool:
        """Return whether a file is of this format, by its name and its beginning.

        A file that cannot be read is of none, unless its name is one of the format's.
        """

    def read(self, file: Path, query: Query) -> FileContents:
        """Read a file.

        Raises
        ------
        NothingToCountError
            If it holds no trial that can be counted.
        InvalidInputError
            If it is broken, or contradicts the query.
        """


@dataclass(frozen=True)
class Format:
    """A format of saved runs.

    Attributes
    ----------
    name : str
        The tool that writes it, or its kind.
    files : str
        What is named on the command line.
    reader : Reader
        Reads it.
    names : tuple of str
        Patterns of names that only its files have: a damaged one in its folder is an error.
    beside : str
        A pattern of names that files of others have too: a damaged one is an error beside a file
        that is read, or where it has the name of one.
    is_table : bool
        Whether it is read where a file is named, and not of a folder.
    """

    name: str
    files: str
    reader: Reader
    names: tuple[str, ...] = ()
    beside: str = ""
    is_table: bool = False


#: All formats; the first that recognises a path reads it.
FORMATS: tuple[Format, ...] = (
    Format(
        "lm-evaluation-harness",
        "output folder, results_*.json, samples_*.jsonl, a dump of simple_evaluate",
        harness_log,
        ("samples_*.jsonl", "*__*.jsonl"),  # the second up to 0.4.2
    ),
    Format("inspect_ai", "log folder, .eval, .json", inspect_log, ("*.eval",), "*.json"),
    Format("verifiers, traces", "traces.jsonl, or its folder", verifiers_traces, ("traces.jsonl",)),
    Format("SWE-bench", "MODEL.RUN.json, or a folder of them", swe_bench_report, beside="*.json"),
    Format(
        "tau2-bench, tau-bench", "results .json, folders", tau_bench, ("results.json",), "*.json"
    ),
    Format(
        "Harbor, terminal-bench",
        "job or run folder, result.json, results.json",
        harbor_jobs,
        ("result.json", "results.json"),
        "*results.json",
    ),
    Format("HELM", "run folder, per_instance_stats.json", helm_stats, ("per_instance_stats.json",)),
    Format(
        "evalscope",
        "output folder, reviews/*/*.jsonl",
        evalscope_outputs,
        ("reviews/*.jsonl", "reviews/*/*.jsonl", "reviews/*/*/*.jsonl"),
    ),
    Format(
        "lighteval", "output folder, details_*.parquet", lighteval_details, ("details_*.parquet",)
    ),
    Format(
        "NeMo-Skills",
        "folder of output-rs*.jsonl, one of them",
        nemo_skills_outputs,
        ("output.jsonl", "output-rs*.jsonl"),
    ),
    Format(
        "MathArena",
        "outputs folder, .json, .json.zst; its published table",
        matharena_outputs,
        ("[0-9]*.json", "[0-9]*.json.*"),
    ),
    Format("counts", "tables, as below, with columns id, c and n", counts, is_table=True),
    Format(
        "table of trials",
        ".csv, .tsv, .jsonl, .json, .parquet, .arrow with columns question and score",
        trial_table,
        is_table=True,
    ),
    Format("matrix of outcomes", ".csv, .tsv, .npz, .npy", zero_one_matrix, is_table=True),
    Format("trial store", ".sqlite, or its folder", trial_store),
)

_RULE = (
    "be a run: an output folder of the harness with logged samples (--log_samples), a "
    "results_*.json or samples_*.jsonl file of it, a trial store, a table (.csv, .jsonl, .parquet, "
    ".npz) or a complete log of another tool (lm-eval-bayes doctor --formats lists them)"
)


@dataclass(frozen=True)
class RunFile:
    """A file with its reader.

    Attributes
    ----------
    file : Path
        The file.
    reader : Reader
        Reads it.
    path : str
        The path that it was found at, a file or a folder.
    number : int
        The index of that path.
    """

    file: Path
    reader: Reader
    path: str
    number: int


def files_at(
    paths: Sequence[str | Path], query: Query, *, merge: bool
) -> tuple[list[RunFile], list[str]]:
    """Return the files at the paths with their readers, and warnings.

    The companions of a store that lies beside are left out, as a shell names them for ``runs/*``.

    Parameters
    ----------
    paths : sequence of str or Path
        Files and folders.
    query : Query
        What is read.
    merge : bool
        Whether a file at several paths is read once, not once for each.

    Raises
    ------
    InvalidInputError
        If a path holds no run.
    """
    files, warnings = dict[tuple[int, Path], RunFile](), list[str]()
    for number, path in enumerate(paths):
        if merge and len(paths) > 1 and store_of(Path(path)) is not None:
            continue
        with errors_of(query.argument, path):
            format, units = recognise(path, query.columns, skip_unreadable=query.skip_unreadable)
        warnings += units.warnings
        for file in units.files:
            key = (0 if merge else number, file.resolve())
            files.setdefault(key, RunFile(file, format.reader, str(path), number))
    if not files:
        raise InvalidInputError.of("RUN", "empty", "name at least one run", "none")
    return list(files.values()), warnings


def recognise(
    path: str | Path, columns: Mapping[str, str] | None = None, *, skip_unreadable: bool = False
) -> tuple[Format, Found]:
    """Return the format of a path with what is read of it.

    Parameters
    ----------
    path : str or Path
        A file or a folder.
    columns : mapping, optional
        Columns of tables by what they hold; a table then has one row per trial.
    skip_unreadable : bool
        Whether files of a folder that are damaged are named in a warning instead.

    Raises
    ------
    InvalidInputError
        If it is of none, or the user may not read it; or if a file of a folder that a format would
        read is damaged, or may not be read.
    """
    with errors_of("RUN", path):
        expanded = _existing(path)
        if expanded.is_dir():
            return _folder(expanded, skip_unreadable)
        try:
            check_pointer(expanded)
        except OSError as error:
            raise unreadable(error, expanded) from None
        file, beside = LogFile(expanded), harness_log.samples_of(expanded)
        format = FORMATS[0] if beside else _format_of(file)
        if columns and file.columns:
            format = next(format for format in FORMATS if format.reader is trial_table)
        if format is None:
            raise _unrecognised(file)
        return format, Found(beside) if beside else _found(format, [expanded], expanded)


def _existing(path: str | Path) -> Path:
    """Return a path that exists and may be read."""
    expanded = Path(os.path.expanduser(path))
    try:
        exists = expanded.is_file() or expanded.is_dir()
    except PermissionError:
        raise
    except (OSError, ValueError):
        exists = False
    if not exists:
        rule = _RULE if os.path.lexists(expanded) else "be a run, and this path does not exist"
        raise InvalidInputError.of("RUN", "path", rule, str(path))
    check_permission(expanded)
    return expanded


def _format_of(file: LogFile, in_folder: bool = False) -> Format | None:
    """Return the format of a file; of those in a folder tables are no runs."""
    formats = (format for format in FORMATS if not (in_folder and format.is_table))
    return next((format for format in formats if format.reader.is_mine(file)), None)


def _found(format: Format, files: Sequence[Path], path: Path) -> Found:
    """Return what a format reads of its files at a path."""
    units = getattr(format.reader, "units", None)
    return Found(files) if units is None else units(files, path)


def _folder(folder: Path, skip_unreadable: bool) -> tuple[Format, Found]:
    """Return the first format that files of a folder have, with what is read of them.

    Every file of that format is read, or is named in a warning or an error; so are the files of
    other formats, and those that may not be read.
    """
    of_format: dict[Format | None, list[Path]] = {None: []}
    denied: list[Path] = []
    for path in sorted(files_below(folder)):
        try:
            check_permission(path)
            of_format.setdefault(_format_of(LogFile(path), in_folder=True), []).append(path)
        except PermissionError:
            denied.append(path)
    format = next((format for format in FORMATS if format in of_format), None)
    own, others = of_format.pop(format, []) if format else [], of_format.pop(None)
    errors = _damaged([*denied, *others], own, [format] if format else FORMATS)
    for error in errors.values():
        if not (skip_unreadable and format):
            raise error
    if format is None:
        if denied:
            check_permission(denied[0])
        paths = (path for path in sorted(folder.iterdir()) if path.is_file())
        readable = [path.name for path in paths if _format_of(LogFile(path))]
        holds = f"; it holds {first_names(readable)}, and tables are named one by one"
        raise InvalidInputError.of("RUN", "path", _RULE + (holds if readable else ""), str(folder))
    units = _found(format, own, folder)
    warnings = [f"{path} was not read: {error}" for path, error in errors.items()]
    warnings += [f"{path} was not read: permission denied" for path in denied if path not in errors]
    unread = [(path, other.name) for other, paths in of_format.items() if other for path in paths]
    if unread:
        listed = first_names([f"{path.relative_to(folder)} ({tool})" for path, tool in unread])
        warnings.append(
            f"{plural(len(unread), 'file')} not read in {folder}: {listed}; of a folder only the "
            f"files of one tool are read, here {format.name} (name the others by their own paths)"
        )
    return format, replace(units, warnings=(*units.warnings, *warnings))


def _damaged(
    paths: Sequence[Path], own: Sequence[Path], formats: Sequence[Format]
) -> dict[Path, InvalidInputError]:
    """Return the errors of files that have the name of a format and are none of it.

    Where the names say little, only a file beside one of the format, or of the name of one, that
    is no complete JSON.
    """
    folders, names = {path.parent for path in own}, {path.name for path in own}
    errors: dict[Path, InvalidInputError] = {}
    for path in paths:
        for format in formats:
            is_own = any(path.absolute().match(pattern) for pattern in format.names)
            near = path.parent in folders or path.name in names
            if not (is_own or (near and format.beside and path.match(format.beside))):
                continue
            try:
                _check_complete(path)
                if is_own and own:
                    rule = f"hold logs of {format.name} in files of its names alone ({path})"
                    raise InvalidInputError.of("RUN", "format", rule, "another beginning")
            except InvalidInputError as error:
                errors.setdefault(path, error)
    return errors


def _check_complete(path: Path) -> None:
    """Raise unless a file is what the ending of its name says, as far as its beginning tells."""
    suffix = plain_name(path).suffix
    with errors_of("RUN", path):
        check_permission(path)
    if suffix in tables.JSON:
        load_json(path)
    elif suffix in tables.JSON_LINES:
        if not next(iter(JsonLines(path, unique_keys=False)), None):
            rule = f"hold samples of the harness, or trials, in {path}"
            raise InvalidInputError.of("RUN", "empty", rule, "nothing")
    elif suffix == ".eval":
        raise broken(path, "no log of inspect_ai")
    elif suffix in (*tables.PARQUET, *tables.ARROW):
        next(tables.names_of(path))


def _unrecognised(file: LogFile) -> InvalidInputError:
    """Return the error of a file that no format recognises."""
    path = file.path
    if (store := store_of(path)) is not None:
        rule = f"name the store itself, {store}; what was named is a part of it"
        return InvalidInputError.of("RUN", "path", rule, str(path))
    if path.stat().st_size == 0:
        return InvalidInputError.of("RUN", "empty", "hold a run", f"{path}, which is empty")
    try:
        _check_complete(path)
    except InvalidInputError as error:
        return error
    if file.suffix not in tables.JSON and file.columns:
        rule = f"have columns of questions and scores in {path.name}, as in {trial_table.EXAMPLE}"
        rule += " (--columns question=NAME,score=NAME chooses others)"
        return InvalidInputError.of("RUN", "missing-column", rule, ", ".join(file.columns))
    return InvalidInputError.of("RUN", "path", _RULE, str(path))
