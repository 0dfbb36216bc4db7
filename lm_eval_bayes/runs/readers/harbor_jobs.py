"""Job folders of Harbor and run folders of terminal-bench, and the results files in them.

A task is a question, a trial of it a trial. A trial without a result of its tests, as after an
error, counts 0, as in the metrics of both tools.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import first_names, one_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.provenance import mapping, number
from lm_eval_bayes.runs.readers.file_access import files_below
from lm_eval_bayes.runs.readers.json_files import (
    beginning,
    broken,
    chosen_metric,
    load_json,
    name_of,
    score_of,
    seconds_between,
    text_of,
    timestamp,
    total,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Found, Query
from lm_eval_bayes.runs.readers.trial_columns import (
    TrialColumns,
    TrialRow,
    columns_of,
    first_number,
    partial_runs,
)
from lm_eval_bayes.runs.task_run import Provenance

_ID = rb'\s*\{\s*("(?:id|uuid)"\s*:\s*"[^"]{1,64}"\s*,\s*)?'
#: How the results of a trial and of a job of Harbor begin.
_TRIAL = re.compile(_ID + rb'"task_name"\s*:\s*"[^"]*"\s*,\s*"trial_name"\s*:')
_JOB = re.compile(_ID + rb'"started_at"\s*:[^{}]{0,300}"n_total_trials"\s*:')
#: How the results of a trial and of a run of terminal-bench begin.
_TB_TRIAL = re.compile(_ID + rb'"trial_name"\s*:\s*"[^"]*"\s*,\s*"task_id"\s*:')
_TB_RUN = re.compile(_ID + rb'"results"\s*:\s*\[\s*(\]|\{\s*("id"[^{}]{1,90})?"trial_name"\s*:)')

#: The number of a trial in its name, as terminal-bench writes it.
_NUMBERED = re.compile(r"\.(\d{1,6})-of-\d+")

#: The metric of terminal-bench, and that of most tasks of Harbor.
_RESOLVED, _REWARD = "is_resolved", "reward"


def is_mine(file: Path) -> bool:
    """Return whether a file holds the results of a job, a run or a trial."""
    if not file.name.endswith(("result.json", "results.json")):
        return False
    start = beginning(file)
    return _is_trial(start) or any(form.match(start) for form in (_JOB, _TB_RUN))


def units(files: Sequence[Path], path: Path) -> Found:
    """Return the runs of terminal-bench in a folder, and the folders of jobs and of trials."""
    if not path.is_dir():
        return Found([path.parent] if _JOB.match(beginning(path)) else files)
    runs, folders = [], dict[Path, None]()
    for file in files:
        start = beginning(file)
        if _TB_RUN.match(start):
            runs.append(file)
        elif _is_trial(start):
            folder = _above(file, 2 if _TB_TRIAL.match(start) else 1)
            folders[folder if folder == path or path in folder.parents else path] = None
    whole = {run.parent for run in runs}
    return Found([*runs, *(folder for folder in folders if folder not in whole)])


def _above(file: Path, n: int) -> Path:
    """Return the folder so many folders above that of a file, or the last one in its path."""
    parents = file.parents if len(file.parents) > n else file.absolute().parents
    return parents[min(n, len(parents) - 1)]


def _is_trial(start: bytes) -> bool:
    return _TRIAL.match(start) is not None or _TB_TRIAL.match(start) is not None


def _trial_files(folder: Path) -> Iterator[Path]:
    for file in sorted(files_below(folder)):
        if file.name in ("result.json", "results.json") and _is_trial(beginning(file)):
            yield file


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """What was evaluated: an agent with a model."""

    tool: str
    agent: str
    model: str
    version: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial(TrialRow):
    """A trial of either tool.

    Attributes
    ----------
    system : _System
        What was evaluated.
    rewards : mapping or None
        By metric; None where the tests gave no result.
    error : str
        What ended it, or kept its tests from ending; "" for nothing.
    order : tuple
        By what the trials of a question are put in order.
    number : int or None
        The number of the trial in its question, where the tool gives one.
    """

    system: _System
    rewards: Mapping[str, Any] | None
    error: str
    order: tuple[float, str]
    number: int | None = None


def read(file: Path, query: Query) -> FileContents:
    """Read a job, a run or a trial.

    Raises
    ------
    InvalidInputError
        If it is broken, or the query names a metric that it does not have.
    """
    if query.cluster is not None:
        rule = "be left out: results of Harbor and terminal-bench have no fields of questions"
        raise InvalidInputError.of("cluster", "conflict", rule, query.cluster)
    warnings: list[str] = []
    trials, run, date = _trials(file, query, warnings)
    if not trials:
        raise broken(file, query, "; ".join(warnings) or "no results of trials")
    for trial in trials:
        if not trial.question:
            rule = f"name the task of every trial ({file})"
            got = f"none of trial {trial.order[1]!r}"
            raise InvalidInputError.of(query.argument, "missing", rule, got)
    tasks = tuple(dict.fromkeys(trial.task for trial in trials))
    metrics = sorted({key for trial in trials for key in trial.rewards or ()}) or [_REWARD]
    metrics.sort(key=lambda name: name != _REWARD)
    metric, notes = chosen_metric(metrics, query, file, "reward")
    by_system: dict[_System, list[_Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.order):
        if query.task in (None, trial.task):
            by_system.setdefault(trial.system, []).append(trial)
    runs = [
        partial
        for system, of_system in by_system.items()
        for partial in partial_runs(
            _columns(of_system, metric, run, len(metrics), query),
            file,
            query,
            metric=metric,
            notes=(*notes, *_notes(of_system, metric)),
            provenance=_provenance(system, date),
            settings={"agent": system.agent},
        )
    ]
    return FileContents(runs, tasks, warnings=tuple(warnings))


def _columns(
    trials: Sequence[_Trial], metric: str, run: str, n_metrics: int, query: Query
) -> TrialColumns:
    first, times = first_number(run), Counter[tuple[str, str]]()
    numbers = []
    for trial in trials:
        times[trial.task, trial.question] += 1
        n = times[trial.task, trial.question]
        numbers.append(first + (trial.number or n))
    columns = columns_of(
        trials, [_score(trial.rewards, metric, n_metrics) for trial in trials], query, trial=numbers
    )
    columns.model = trials[0].system.model
    columns.records = [trial.order[1] or n for n, trial in enumerate(trials)]
    return columns


def _score(rewards: Mapping[str, Any] | None, metric: str, n_metrics: int) -> float:
    """Return a reward as Harbor's mean counts it: 0 for a missing one; NaN for no number."""
    if not rewards:
        return 0.0
    value = next(iter(rewards.values())) if n_metrics == 1 else rewards.get(metric, 0)
    reward = score_of(value)
    return math.nan if reward is None else reward


def _notes(trials: Sequence[_Trial], metric: str) -> Iterator[str]:
    tool = trials[0].system.tool
    errors = Counter(trial.error for trial in trials if trial.error and trial.rewards)
    failed = Counter(trial.error or "no error" for trial in trials if not trial.rewards)
    if failed:
        without = f"{plural(failed.total(), 'trial')} without a result of the tests"
        yield f"{without} counted 0, as in {tool}'s own metrics ({_listed(failed)})"
    if errors:
        ended = f"{plural(errors.total(), 'trial')} with an error counted by {metric}"
        yield f"{ended}, as in {tool}'s own metrics ({_listed(errors)})"


def _listed(counts: Counter[str]) -> str:
    listed = [f"{one_line(name, 40)} {n:,}" for name, n in sorted(counts.items())]
    return first_names(listed, 5)


def _provenance(system: _System, date: float | None) -> Provenance:
    versions = {system.agent: system.version} if system.version else {}
    return Provenance(date=date, versions=versions)


# -- files -------------------------------------------------------------------------------------


def _trials(
    file: Path, query: Query, warnings: list[str]
) -> tuple[list[_Trial], str, float | None]:
    """Return the trials of a job, a run or a trial, what identifies it, and when it ended."""
    if not file.is_dir():
        content = mapping(load_json(file, query))
        if isinstance(content.get("results"), list):
            return _run_trials(content, file, query)
        return [_trial(content, file, _above(file, 1), query)], _identity([content], file), None
    contents = [(mapping(load_json(path, query)), path) for path in _trial_files(file)]
    about = file / "result.json"
    job = mapping(load_json(about, query)) if _JOB.match(beginning(about)) else {}
    trials = [_trial(content, path, file, query) for content, path in contents]
    n_total = job.get("n_total_trials")
    if type(n_total) is int and n_total > len(trials):
        warnings.append(f"{file}: {n_total - len(trials):,} of {n_total:,} trials have no result")
    run = name_of(job.get("id")) or _identity([content for content, _ in contents], file)
    return trials, run, timestamp(job.get("finished_at"))


def _identity(contents: Sequence[Mapping[str, Any]], file: Path) -> str:
    """Return the id of the job, else that of the first trial."""
    for content in contents:
        job = name_of(mapping(content.get("config")).get("job_id"))
        if own := job or name_of(content.get("id")) or name_of(content.get("uuid")):
            return own
    return file.name


def _trial(content: Mapping[str, Any], path: Path, folder: Path, query: Query) -> _Trial:
    """Return the trial of a file."""
    if "task_name" in content:
        return _harbor_trial(content)
    return _terminal_trial(content, _metadata(_above(path, 2), query), folder)


def _harbor_trial(content: Mapping[str, Any]) -> _Trial:
    agent = mapping(content.get("agent_info"))
    name = name_of(agent.get("name"))
    rewards = mapping(content.get("verifier_result")).get("rewards")
    steps = content.get("step_results")
    parts = [content, *(steps if isinstance(steps, list) else [])]
    errors = (mapping(mapping(part).get("exception_info")) for part in parts)
    error = next((error for error in errors if error), {})
    contexts = [mapping(mapping(part).get("agent_result")) for part in parts]
    contexts = contexts[:1] if contexts[0] else contexts[1:]
    span = mapping(content.get("agent_execution"))
    started = timestamp(content.get("started_at"))
    return _Trial(
        question=name_of(content.get("task_name")),
        task=name_of(content.get("source")) or "adhoc",
        system=_System(
            "Harbor",
            name,
            name_of(mapping(agent.get("model_info")).get("name")) or name or "agent",
            name_of(agent.get("version")),
        ),
        rewards=rewards if isinstance(rewards, Mapping) else None,
        error=(name_of(error.get("exception_type")) or "error") if error else "",
        order=(started or 0.0, name_of(content.get("trial_name"))),
        tokens=total(context.get("n_output_tokens") for context in contexts),
        cost=total(context.get("cost_usd") for context in contexts),
        time=seconds_between(span if span else content, "started_at", "finished_at"),
    )


def _metadata(folder: Path, query: Query) -> Mapping[str, Any]:
    """Return what terminal-bench says of a run; empty where there is no such file."""
    file = folder / "run_metadata.json"
    return mapping(load_json(file, query)) if file.is_file() else {}


def _run_trials(
    content: Mapping[str, Any], file: Path, query: Query
) -> tuple[list[_Trial], str, float | None]:
    about = _metadata(file.parent, query)
    if not about:
        folder = file.absolute().parent.name
        named = file.name.removesuffix("results.json").strip("_-. ")
        of_folder = not re.search("[A-Za-z]{2}", named)  # only the time is in the name of the file
        about = {"model_name": folder if of_folder else f"{folder}/{named}"}
    listed = (mapping(result) for result in content["results"])
    trials = [_terminal_trial(result, about, file.parent) for result in listed]
    run = name_of(content.get("id")) or name_of(about.get("uuid")) or file.absolute().parent.name
    return trials, run, timestamp(about.get("end_time"))


def _terminal_trial(content: Mapping[str, Any], about: Mapping[str, Any], folder: Path) -> _Trial:
    resolved, mode = content.get("is_resolved"), name_of(content.get("failure_mode"))
    label = name_of(content.get("trial_name"))
    numbered = _NUMBERED.search(label)
    agent = name_of(about.get("agent_name"))
    dataset = name_of(about.get("dataset_name")) or "terminal-bench"
    version = name_of(about.get("dataset_version"))
    started = timestamp(content.get("trial_started_at"))
    model = name_of(about.get("model_name")) or folder.absolute().name
    return _Trial(
        question=name_of(content.get("task_id")),
        task=f"{dataset} {version}".strip(),
        system=_System("terminal-bench", agent, model),
        rewards={_RESOLVED: resolved} if isinstance(resolved, bool) else None,
        error="" if mode in ("", "unset", "none") else mode,
        order=(started or 0.0, label),
        number=int(numbered[1]) if numbered else None,
        text=text_of(content.get("instruction")),
        # agents that do not count their tokens report 0
        tokens=number(content.get("total_output_tokens")) or None,
        time=seconds_between(content, "agent_started_at", "agent_ended_at"),
    )
