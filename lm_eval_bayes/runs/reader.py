"""Reading of saved runs of every format: the one way from files to runs.

A format is a module of :mod:`~lm_eval_bayes.runs.readers` and an entry of :data:`READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.merging import merge_runs
from lm_eval_bayes.runs.model_names import consistency_warnings
from lm_eval_bayes.runs.partial_run import PartialRun
from lm_eval_bayes.runs.readers import counts, harness_log, trial_store, zero_one_matrix
from lm_eval_bayes.runs.readers.log_lines import JsonLines
from lm_eval_bayes.runs.readers.protocol import (
    NothingToCountError,
    Query,
    Reader,
    Regrade,
)
from lm_eval_bayes.runs.task_run import SavedRuns

#: The readers of all formats; the first that recognises a file reads it.
READERS: tuple[Reader, ...] = (harness_log, counts, zero_one_matrix, trial_store)

#: Called with the bytes that were read, and with those of all files.
Progress = Callable[[int, int], None]

_RULE = (
    "be a run: a folder that the harness wrote into, a results_*.json or samples_*.jsonl file of "
    "it, a trial store, an outcome matrix (.csv, .npz) or a file of counts (.csv, .jsonl)"
)


def read_runs(
    paths: str | Path | Iterable[str | Path],
    *,
    task: str | None = None,
    metric: str | None = None,
    filter: str | None = None,
    dedupe: bool | None = False,
    regrade: Regrade | None = None,
    merge: bool = True,
    signals: Literal["all", "recorded"] | None = None,
    verdicts: bool = True,
    argument: str = "RUN",
    progress: Progress | None = None,
) -> SavedRuns:
    """Read runs.

    Every file is read once, a line at a time. Texts are not held in memory.

    Parameters
    ----------
    paths : str, Path, or iterable of them
        Folders that the harness wrote into, its `results_*.json` or `samples_*.jsonl` files,
        trial stores, outcome matrices (CSV, NPZ), files of counts (JSON lines, CSV).
    task : str, optional
        Only this task, or the tasks of this group. Outcomes in files that name no task are taken
        for it.
    metric : str, optional
        The 0/1 metric that counts in tasks that were not sampled repeatedly by this package.
    filter : str, optional
        The filter pipeline whose output counts; by default the first that was logged.
    dedupe : bool or None
        Whether a trial that was saved twice counts once; otherwise it is refused. None refuses it
        too, with a message for a command that has no such option.
    regrade : callable, optional
        Grades the saved texts again, see :func:`lm_eval_bayes.harness.grading.grade.regraded`.
    merge : bool
        Whether runs of one model and task at several paths are merged; otherwise the runs of each
        path stay apart.
    signals : {"all", "recorded"}, optional
        Whether the signals of all trials are read too, or only of runs whose model recorded some.
    verdicts : bool
        Whether the verdicts of a verifier, beside the samples, are among the signals.
    argument : str
        The name of a path in an error.
    progress : callable, optional
        Called with the bytes that have been read and the bytes of all files.

    Returns
    -------
    SavedRuns
        The runs in the order of the paths, with the warnings of reading and merging.

    Raises
    ------
    InvalidInputError
        If a path holds no run, a file is broken, or runs contradict each other.
    """
    query = Query(task, metric, filter, dedupe, regrade, signals, verdicts, argument)
    files = _files([paths] if isinstance(paths, (str, Path)) else list(paths), query)
    if progress is not None:
        query = replace(query, advance=_advance(files, progress))
    partials, file_groups, read_warnings = _read_files(files, query)
    _check_names(partials, query)
    runs, merge_warnings = merge_runs(partials, dedupe=dedupe, by_path=not merge, argument=argument)
    tasks = {run.task for run in runs}
    groups, group_warnings = _tasks_of_groups(file_groups, tasks, query)
    warnings = [*read_warnings, *merge_warnings, *consistency_warnings(runs), *group_warnings]
    return SavedRuns(tuple(runs), groups, tuple(dict.fromkeys(warnings)))


# -- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file with its reader, and the path among the arguments that it belongs to."""

    file: Path
    reader: Reader
    path: str
    number: int


def _files(paths: Sequence[str | Path], query: Query) -> list[_File]:
    """Return the files at the paths, each once.

    Raises
    ------
    InvalidInputError
        If a path holds no run.
    """
    files: dict[Path, _File] = {}
    for number, path in enumerate(paths):
        for file in _files_at(path, query.argument):
            reader = next((reader for reader in READERS if reader.sniff(file)), None)
            if reader is None:
                raise _unreadable(file, path, query.argument)
            files.setdefault(file.resolve(), _File(file, reader, str(path), number))
    if not files:
        raise InvalidInputError.of(query.argument, "name at least one run", "none")
    return list(files.values())


def _files_at(path: str | Path, argument: str) -> list[Path]:
    try:
        expanded = Path(path).expanduser()
        exists = expanded.is_file() or expanded.is_dir()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if not exists:
        raise InvalidInputError.of(argument, _RULE, str(path))
    files = harness_log.samples_files(expanded)
    if files is None:
        return [expanded]
    if not files:
        rule = (
            "be a run's output folder, or one of its results_*.json or samples_*.jsonl files, "
            "with logged samples (--log_samples)"
        )
        raise InvalidInputError.of(argument, rule, str(path))
    return files


def _unreadable(file: Path, path: str | Path, argument: str) -> InvalidInputError:
    if file.suffix != ".jsonl":
        return InvalidInputError.of(argument, _RULE, str(path))
    first = next(iter(JsonLines(file, argument)), None)
    if first is None:
        return InvalidInputError.of(argument, f"hold samples or counts in {file.name}", "nothing")
    rule = f"hold samples of the harness, or counts with id, c and n, in {file.name}"
    return InvalidInputError.of(argument, rule, f"a line with {', '.join(first) or 'nothing'}")


def _advance(files: Sequence[_File], progress: Progress) -> Callable[[int], None]:
    total, done = sum(_size(file.file) for file in files), 0

    def advance(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        progress(min(done, total), total)

    return advance


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


# -- contents ------------------------------------------------------------------------------------


def _read_files(
    files: Sequence[_File], query: Query
) -> tuple[list[PartialRun], list[Mapping[str, tuple[str, ...]]], list[str]]:
    """Return the partial runs, the groups of every file, and warnings.

    Raises
    ------
    InvalidInputError
        If a file is broken, nothing can be counted, or a path does not hold the task.
    """
    partials: list[PartialRun] = []
    groups: list[Mapping[str, tuple[str, ...]]] = []
    warnings: list[str] = []
    skipped: list[NothingToCountError] = []
    matched: set[str] = set()
    tasks: dict[str, set[str]] = {}
    for file in files:
        try:
            contents = file.reader.read(file.file, query)
        except NothingToCountError as error:
            skipped.append(error)
            matched.add(file.path)
            continue
        wanted = {query.task, *contents.groups.get(query.task or "", ())}
        runs = [run for run in contents.runs if query.task is None or run.task in wanted]
        tasks.setdefault(file.path, set()).update(contents.tasks)
        if runs:
            matched.add(file.path)
            partials += [replace(run, path=file.number) for run in runs]
            groups.append(contents.groups)
            warnings += contents.warnings
    for path, names in tasks.items():
        if path not in matched:
            rule = f"hold task {query.task}; there is {_listed(names)}"
            raise InvalidInputError.of(query.argument, rule, path)
    if skipped and not partials:
        raise skipped[0]
    warnings += [f"left out: {error.lacking}" for error in skipped]
    return partials, groups, warnings


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def _check_names(partials: Sequence[PartialRun], query: Query) -> None:
    """Refuse a metric or a filter that nothing could be asked for."""
    if query.metric is not None and all(run.metric != query.metric for run in partials):
        rule = f"be left out: what was read holds {_listed(run.metric for run in partials)}"
        raise InvalidInputError.of("metric", rule, query.metric)
    if query.filter is not None and all(run.filter != query.filter for run in partials):
        rule = "be left out: what was read holds nothing that was filtered"
        raise InvalidInputError.of("filter", rule, query.filter)


def _tasks_of_groups(
    groups: Sequence[Mapping[str, tuple[str, ...]]], tasks: Container[str], query: Query
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the groups whose tasks were read, and warnings of tasks that are missing of one."""
    members: dict[str, tuple[str, ...]] = {}
    warnings: list[str] = []
    for of_file in groups:
        for group, names in of_file.items():
            missing = [name for name in names if name not in tasks]
            present = [name for name in names if name in tasks]
            if not present or (missing and query.task is not None):
                continue
            members[group] = tuple(dict.fromkeys([*members.get(group, ()), *present]))
            if missing:
                more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
                listed = ", ".join(missing[:3])
                warnings.append(f"nothing was read of {listed}{more} in group {group}")
    return members, warnings
