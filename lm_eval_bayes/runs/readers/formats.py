"""The table of formats, and which of them a path has.

A format is a module of this folder and an entry of :data:`FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lm_eval_bayes._util.compressed import check_pointer, plain_name
from lm_eval_bayes._util.text import first_names
from lm_eval_bayes.errors import InvalidInputError, Rule
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
from lm_eval_bayes.runs.readers.file_access import (
    PermissionDeniedError,
    check_permission,
    files_below,
    permissions_checked,
    unreadable,
)
from lm_eval_bayes.runs.readers.json_files import beginning, broken, load_json
from lm_eval_bayes.runs.readers.protocol import Query, Reader, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines
from lm_eval_bayes.store.locations import store_of


@dataclass(frozen=True)
class Format:
    """A format of saved runs.

    Attributes
    ----------
    name : str
        The tool that writes it, or its kind.
    files : str
        What is named on the command line.
    checked_on : str
        What its tests read: files of the real tool, or files made by its documented schema.
    reader : Reader
        Reads it.
    names : tuple of str
        Patterns of names that only its files have: a damaged one in its folder is an error.
    beside : str
        A pattern of names that files of others have too: a damaged one is an error beside a file
        that is read, or where it has the name of one.
    """

    name: str
    files: str
    checked_on: str
    reader: Reader
    names: tuple[str, ...] = ()
    beside: str = ""


_OWN = "this package's own files"
_REAL = "files that the tool wrote"
_SCHEMA = "files made by its documented schema"

#: All formats; the first that recognises a path reads it.
FORMATS: tuple[Format, ...] = (
    Format(
        "lm-evaluation-harness",
        "output folder, results_*.json, samples_*.jsonl",
        _REAL,
        harness_log,
        ("*__*.jsonl",),  # of releases up to 0.4.2
    ),
    Format(
        "inspect_ai",
        "log folder, .eval, .json",
        f"{_REAL} (inspect_ai 0.3.285)",
        inspect_log,
        ("*.eval",),
        "*.json",
    ),
    Format(
        "verifiers, traces",
        "traces.jsonl, or its folder",
        f"{_REAL} (verifiers 0.4.0)",
        verifiers_traces,
        ("traces.jsonl",),
    ),
    Format(
        "SWE-bench",
        "MODEL.RUN.json, report.json of an instance, or a folder of them",
        f"{_REAL} (swebench 5.0.2; the tests of instances did not run)",
        swe_bench_report,
        ("report.json",),
        "*.json",
    ),
    Format(
        "tau2-bench, tau-bench",
        "results .json, folders of them",
        f"{_REAL} (tau2 1.0.1, tau-bench's published trajectories)",
        tau_bench,
        ("results.json",),
        "*.json",
    ),
    Format(
        "Harbor, terminal-bench",
        "job or run folder, result.json, results.json",
        f"{_REAL} (terminal-bench's published runs), {_SCHEMA} (Harbor 0.25.0)",
        harbor_jobs,
        ("result.json", "results.json"),
        "*results.json",
    ),
    Format(
        "HELM",
        "run folder, per_instance_stats.json",
        _SCHEMA,
        helm_stats,
        ("per_instance_stats.json",),
    ),
    Format(
        "evalscope",
        "output folder, reviews/*/*.jsonl",
        f"{_REAL} (evalscope 1.14.1)",
        evalscope_outputs,
        ("reviews/*.jsonl", "reviews/*/*.jsonl", "reviews/*/*/*.jsonl"),
    ),
    Format(
        "lighteval",
        "output folder, details_*.parquet",
        f"{_REAL} (lighteval 0.13.0)",
        lighteval_details,
        ("details_*.parquet",),
    ),
    Format(
        "NeMo-Skills",
        "folder of output-rs*.jsonl, one of them",
        f"{_REAL} (those of NeMo-Skills' own tests, without texts)",
        nemo_skills_outputs,
        ("output.jsonl", "output-rs*.jsonl"),
    ),
    Format(
        "MathArena",
        "outputs folder, .json, .json.zst; its published table",
        f"{_REAL} (its code of May 2026), {_SCHEMA} (the table)",
        matharena_outputs,
        ("[0-9]*.json", "[0-9]*.json.*"),
    ),
    Format("counts", "tables, as below, with columns id, c and n", _OWN, counts),
    Format(
        "table of trials",
        ".csv, .tsv, .jsonl, .json, .parquet, .arrow with columns question and score",
        _OWN,
        trial_table,
    ),
    Format("matrix of outcomes", ".csv, .tsv, .npz, .npy", _OWN, zero_one_matrix),
    Format("trial store", ".sqlite, or its folder", _OWN, trial_store),
)

_RULE = (
    "be a run: a folder that the harness wrote into, a results_*.json or samples_*.jsonl file of "
    "it, a trial store, a table (.csv, .jsonl, .parquet, .npz) or a log of another tool "
    "(lm-eval-bayes formats lists them)"
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
    files: dict[tuple[int, Path], RunFile] = {}
    warnings: list[str] = []
    companions: list[Path] = []
    for number, path in enumerate(paths):
        store = _store_of(path)
        if store is not None and merge:
            companions.append(store)
            continue
        format, sniffed = recognise(path, query.argument, query.columns)
        warnings += sniffed.warnings
        for file in sniffed.files:
            key = (0 if merge else number, file.resolve())
            files.setdefault(key, RunFile(file, format.reader, str(path), number))
    if companions and not files:
        rule = _rule_of_companion(companions[0])
        raise InvalidInputError.of(query.argument, "path", rule, str(paths[0]))
    if not files:
        raise InvalidInputError.of(query.argument, "empty", "name at least one run", "none")
    return list(files.values()), warnings


def _store_of(path: str | Path) -> Path | None:
    """Return the store beside a path that is no run itself but one of the store's companions."""
    try:
        return store_of(Path(path).expanduser())
    except (OSError, ValueError, RuntimeError):
        return None  # reading it says what is wrong


def recognise(
    path: str | Path, argument: str = "RUN", columns: Mapping[str, str] | None = None
) -> tuple[Format, Sniffed]:
    """Return the format of a path with its files.

    Parameters
    ----------
    path : str or Path
        A file or a folder.
    argument : str
        The name of the path in an error.
    columns : mapping, optional
        Columns of tables by what they hold; a table then has one row per trial.

    Raises
    ------
    PermissionDeniedError
        If the user may not read it, or a file or a folder in it that a format would read.
    InvalidInputError
        If it is of none.
    """
    with permissions_checked(argument, path):
        try:
            expanded = Path(path).expanduser()
            exists = expanded.is_file() or expanded.is_dir()
        except PermissionError:
            raise
        except (OSError, ValueError, RuntimeError):
            exists = False
        if not exists:
            exists = os.path.lexists(os.path.expanduser(path))
            rule = _RULE if exists else "be a run, and this path does not exist"
            raise InvalidInputError.of(argument, "path", rule, str(path))
        check_permission(expanded)
        try:
            if expanded.is_file():
                check_pointer(expanded)
        except OSError as error:
            raise unreadable(error, expanded, argument) from None
        return _recognised(expanded, argument, columns)


def _recognised(
    path: Path, argument: str, columns: Mapping[str, str] | None
) -> tuple[Format, Sniffed]:
    """Return the format of a path that exists, with its files.

    A file that may not be read is refused where the format that reads the others of a folder would
    read it too. Where another format reads them, a warning names it.
    """
    denied: PermissionDeniedError | PermissionError | None = None
    for format in FORMATS:
        try:
            if columns and tables.header(path):
                sniffed = Sniffed([path]) if format.reader is trial_table else None
            else:
                sniffed = format.reader.sniff(path)
        except (PermissionDeniedError, PermissionError) as error:
            denied = denied or error
            continue
        if sniffed is not None:
            _check_damage(path, format, sniffed.files, argument)
            warnings = (*sniffed.warnings, *_unread(path, format, sniffed))
            return format, replace(sniffed, warnings=warnings)
    raise denied or _unrecognised(path, argument)


def _unrecognised(expanded: Path, argument: str) -> InvalidInputError:
    """Return the error of a file or a folder that no format recognises."""
    rule, got = _RULE, str(expanded)
    rule_id: Rule = "path"
    compressed = expanded.suffix in (".gz", ".zst")
    store = store_of(expanded)
    if store is not None:
        rule = _rule_of_companion(store)
    elif expanded.is_file() and expanded.stat().st_size == 0:
        rule_id, rule = "empty", "hold a run, and this file is empty"
    elif expanded.is_file() and compressed and plain_name(expanded).suffix in (".eval", ".json"):
        rule_id = "format"
        rule = "be decompressed first: of logs of this kind plain files are read"
    elif expanded.is_file() and beginning(expanded, 4) == b"PK\x03\x04":
        rule_id = "format"
        rule = "be unpacked first, or be named .eval if it is a log of inspect_ai (a zip file)"
    elif expanded.suffix == ".json" and not expanded.is_dir():
        rule = (
            "be a .json file of a run: results_*.json of the harness with logged samples "
            "(--log_samples) beside it, or a complete log of another tool (lm-eval-bayes formats "
            "lists them)"
        )
    elif expanded.is_dir():
        for file in files_below(expanded):
            check_permission(file)
        for format in FORMATS:
            _check_damage(expanded, format, (), argument)
        rule = _rule_of_folder(expanded)
    elif reason := tables.schema_error(expanded):
        rule_id, rule, got = "damaged", f"have a complete table in {expanded.name}", reason
    elif names := tables.header(expanded):
        rule_id = "missing-column"
        rule = (
            f"have columns of questions and scores in {expanded.name}, as in "
            f"{trial_table.EXAMPLE}, or counts id, c and n (--columns question=NAME,score=NAME "
            "chooses others)"
        )
        got = ", ".join(names)
    elif plain_name(expanded).suffix == ".jsonl":
        next(iter(JsonLines(expanded, argument, unique_keys=False)), None)
        rule_id, got = "empty", "nothing"
        rule = f"hold samples of the harness, or trials, in {expanded.name}"
    return InvalidInputError.of(argument, rule_id, rule, got)


def _rule_of_companion(store: Path) -> str:
    """Return what is wrong with a path that is a part of a store."""
    return f"name the store itself, {store}; what was named is a part of it"


def _rule_of_folder(folder: Path) -> str:
    """Return what is wrong with a folder that no format recognises."""
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return "hold a run, and this folder is empty"
    tables = [name for name in names if _is_table(folder / name)]
    if tables:
        return (
            f"be tables named one by one, as in {folder / tables[0]}, not their folder (it holds "
            f"{first_names(tables)})"
        )
    return (
        "be a folder of a run: the output folder of the harness with logged samples "
        "(--log_samples), the logs of another tool (lm-eval-bayes formats lists them), or the "
        "folder of a trial store; tables are named one by one"
    )


def _is_table(file: Path) -> bool:
    """Return whether a file is read as a table, or as an outcome matrix, when it is named."""
    tables = (counts, trial_table, zero_one_matrix)
    return file.is_file() and any(reader.sniff(file) is not None for reader in tables)


def _check_damage(folder: Path, format: Format, files: Sequence[Path], argument: str) -> None:
    """Raise if a file of a folder is damaged that has a name of its format, or stands for one."""
    read = {file.resolve() for file in files}
    folders = {file if file.is_dir() else file.parent for file in read}
    names = {file.name for file in read}
    for file in sorted(files_below(folder)):
        path = file.resolve()
        own = any(file.absolute().match(pattern) for pattern in format.names)
        near = path.parent in folders or file.name in names
        if path in read or not (own or (near and format.beside and file.match(format.beside))):
            continue
        if format.reader.sniff(file) is None:
            _check_complete(file, argument)
            if own and files and not any(f.reader.sniff(file) for f in FORMATS):
                rule = f"hold logs of {format.name} in files of its names alone"
                got = "another beginning"
                raise InvalidInputError.of(argument, "format", f"{rule} ({file})", got)


def _check_complete(file: Path, argument: str) -> None:
    """Raise unless a file is what the ending of its name says, as far as its beginning tells."""
    query, suffix = Query(argument=argument), plain_name(file).suffix
    if suffix == ".json":
        load_json(file, query)
    elif suffix == ".jsonl":
        if next(iter(JsonLines(file, argument, unique_keys=False)), None) is None:
            raise broken(file, query, "no line")
    elif suffix == ".eval":
        raise broken(file, query, "no log of inspect_ai")
    elif reason := tables.schema_error(file):
        raise broken(file, query, reason)


def _unread(folder: Path, found: Format, sniffed: Sniffed) -> tuple[str, ...]:
    """Return warnings that name files of other tools in a folder that is read as of one."""
    if not folder.is_dir():
        return ()
    read = {file.resolve() for file in sniffed.files}
    unread: dict[Path, str] = {}
    denied: dict[str, None] = {}
    for format in FORMATS:
        try:
            with permissions_checked("RUN", folder):
                other = format.reader.sniff(folder) if format.checked_on != _OWN else None
        except PermissionDeniedError as error:
            denied[error.path] = None
            continue
        if format is found or other is None:
            continue
        for file in other.files:
            if read.isdisjoint((file.resolve(), *file.resolve().parents)):
                unread.setdefault(file, format.name)
    warnings = tuple(
        f"{path} was not read: permission denied (it is no file of {found.name})" for path in denied
    )
    if not unread:
        return warnings
    named = [f"{file.relative_to(folder)} ({name})" for file, name in unread.items()]
    were = "1 file was" if len(unread) == 1 else f"{len(unread):,} files were"
    return (
        *warnings,
        f"{were} not read in {folder}: {first_names(named)}; of a folder only the files of one "
        f"tool are read, here {found.name} (name the others by their own paths)",
    )
