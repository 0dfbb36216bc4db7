"""Reading runs of every kind: output of the harness, trial stores, matrices, counts."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.consistency import check_together
from lm_eval_bayes.runs.merging import Merging, merged_runs
from lm_eval_bayes.runs.partial_runs import Part
from lm_eval_bayes.runs.readers.harness_log import Wanted
from lm_eval_bayes.runs.readers.logged_trials import NothingToCountError, Regrade
from lm_eval_bayes.runs.sources import SamplesSource, Source, chosen, sources_at
from lm_eval_bayes.runs.task_run import SavedRuns

#: Told of bytes that are read, and of how many there are in all.
Progress = Callable[[int, int], None]


def read_runs(
    paths: str | Path | Iterable[str | Path],
    *,
    task: str | None = None,
    metric: str | None = None,
    filter: str | None = None,
    dedupe: bool = False,
    regrade: Regrade | None = None,
    merge: bool = True,
    signals: Literal["all", "recorded"] | None = None,
    verdicts: bool = True,
    argument: str = "RUN",
    progress: Progress | None = None,
) -> SavedRuns:
    """Read runs.

    Parameters
    ----------
    paths : str, Path, or iterable of them
        Folders that the harness wrote into, its `results_*.json` or `samples_*.jsonl` files,
        trial stores, outcome matrices (CSV, NPZ), files of counts (JSON lines, CSV).
    task : str, optional
        Only this task, or the tasks of this group. Matrices and counts in files that name no
        task are taken for it.
    metric : str, optional
        The 0/1 metric that counts in tasks that were not sampled repeatedly by this package.
    filter : str, optional
        The filter pipeline whose output counts; by default the first that was logged.
    dedupe : bool
        Whether a trial that was saved twice counts once; otherwise it is refused.
    regrade : callable, optional
        Grades the saved texts again, see :func:`lm_eval_bayes.harness.grading.regrade.regraded`.
    merge : bool
        Whether what is found at several paths of one model and task is brought together;
        otherwise each path's run stays one of its own.
    signals : {"all", "recorded"}, optional
        Whether the signals of all trials are read too, or only of runs whose model recorded some.
    verdicts : bool
        Whether the verdicts of a verifier, beside the samples, are among the signals.
    argument : str
        What to call a path in an error.
    progress : callable, optional
        Called with the bytes that have been read and the bytes there are.

    Raises
    ------
    InvalidInputError
        If a path holds no run, a file is broken, or runs contradict each other.
    """
    told: list[str] = []
    wanted = Wanted(task, metric, filter, dedupe, regrade, argument, signals, verdicts)
    sources = _sources([paths] if isinstance(paths, (str, Path)) else paths, wanted)
    parts = _parts(sources, wanted, told, progress)
    _check_names(parts, wanted)
    runs = merged_runs(parts, Merging(dedupe, not merge, argument, told))
    told += check_together(runs)
    tasks = {run.task for run in runs}
    groups = _groups([one for _, one in sources], tasks, wanted, told)
    return SavedRuns(tuple(runs), groups, tuple(dict.fromkeys(told)))


def _sources(paths: Iterable[str | Path], wanted: Wanted) -> list[tuple[int, Source]]:
    """Find what is at the paths, each file once, with the number of its path."""
    found: list[tuple[int, Source]] = []
    known: set[Path] = set()
    for number, path in enumerate(paths):
        here = sources_at(path, wanted.argument)
        if wanted.task is not None:
            there = here
            here = list(chosen(there, wanted.task))
            if not here:
                names = sorted({one.saved.task for one in there if isinstance(one, SamplesSource)})
                rule = f"hold task {wanted.task}; there is {', '.join(names)}"
                raise InvalidInputError.of(wanted.argument, rule, str(path))
        for one in here:
            file = one.file.resolve()
            if file not in known:
                known.add(file)
                found.append((number, one))
    if not found:
        raise InvalidInputError.of(wanted.argument, "name at least one run", "none")
    return found


def _parts(
    sources: Sequence[tuple[int, Source]],
    wanted: Wanted,
    told: list[str],
    progress: Progress | None,
) -> list[Part]:
    total, done = sum(_size(one.file) for _, one in sources), 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        if progress is not None:
            progress(min(done, total), total)

    found: list[Part] = []
    nothing: list[NothingToCountError] = []
    for number, one in sources:
        try:
            here = one.read(wanted, told, advance)
        except NothingToCountError as error:
            nothing.append(error)
            continue
        if wanted.task is not None and not isinstance(one, SamplesSource):
            there, here = here, [part for part in here if part.task == wanted.task]
            if not here:
                rule = f"hold task {wanted.task}; there is {_listed(part.task for part in there)}"
                raise InvalidInputError.of(wanted.argument, rule, str(one.file))
        found += [replace(part, path=number) for part in here]
    if nothing and not found:
        raise nothing[0]
    told += [f"left out: {error.what}" for error in nothing]
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


def _check_names(parts: Sequence[Part], wanted: Wanted) -> None:
    """Refuse a metric or a filter that nothing could be asked for."""
    if wanted.metric is not None and all(part.metric != wanted.metric for part in parts):
        rule = f"be left out: what was read holds {_listed(part.metric for part in parts)}"
        raise InvalidInputError.of("metric", rule, wanted.metric)
    if wanted.filter is not None and all(part.filter != wanted.filter for part in parts):
        rule = "be left out: what was read holds nothing that was filtered"
        raise InvalidInputError.of("filter", rule, wanted.filter)


def _groups(
    sources: Sequence[Source], tasks: Container[str], wanted: Wanted, told: list[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the groups whose tasks were read, and tell what is missing of one."""
    found: dict[str, tuple[str, ...]] = {}
    for one in sources:
        for group, members in one.groups.items():
            missing = [member for member in members if member not in tasks]
            there = [member for member in members if member in tasks]
            if not there or (missing and wanted.task is not None):
                continue
            found[group] = tuple(dict.fromkeys([*found.get(group, ()), *there]))
            if missing:
                more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
                told.append(f"nothing was read of {', '.join(missing[:3])}{more} in group {group}")
    return found


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
