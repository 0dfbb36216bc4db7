"""Job folders of Harbor and run folders of terminal-bench, and the results files in them.

A task is a question, a trial of it a trial. A trial without a result of its tests, as after an
error, counts 0, as in the metrics of both tools. Where no model is named, the agent is the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.runs.log_fields import lookup, mapping, mappings, number
from lm_eval_bayes.runs.readers.json_files import (
    beginning,
    load_json,
    name_of,
    seconds_between,
    text_of,
    timestamp,
    total,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Found, Query, files_below
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial
from lm_eval_bayes.runs.task_run import Provenance

_ID = rb'\s*\{\s*("(?:id|uuid)"\s*:\s*"[^"]{1,64}"\s*,\s*)?'
_Object = Mapping[str, Any]
#: The content of a trial, and what is known of its job or run.
_Record = tuple[_Object, _Object]

#: How the results of a trial and of a job of Harbor begin.
_TRIAL = re.compile(_ID + rb'"task_name"\s*:\s*"[^"]*"\s*,\s*"trial_name"\s*:')
_JOB = re.compile(_ID + rb'"started_at"\s*:[^{}]{0,300}"n_total_trials"\s*:')
#: How the results of a trial and of a run of terminal-bench begin.
_TB_TRIAL = re.compile(_ID + rb'"trial_name"\s*:\s*"[^"]*"\s*,\s*"task_id"\s*:')
_TRIALS = (_TRIAL, _TB_TRIAL)
_TB_RUN = re.compile(_ID + rb'"results"\s*:\s*\[\s*(\]|\{\s*("id"[^{}]{1,90})?"trial_name"\s*:)')

#: The number of a trial in its name, as terminal-bench writes it.
_NUMBERED = re.compile(r"\.(\d{1,6})-of-\d+")

#: The metric of most tasks of Harbor.
_REWARD = "reward"


def is_mine(file: LogFile) -> bool:
    """Return whether a file holds the results of a job, a run or a trial."""
    is_named = file.name.endswith(("result.json", "results.json"))
    return is_named and any(form.match(file.beginning) for form in (*_TRIALS, _JOB, _TB_RUN))


def units(files: Sequence[Path], path: Path) -> Found:
    """Return the runs of terminal-bench in a folder, and the folders of jobs and of trials."""
    if not path.is_dir():
        return Found([path.parent] if _JOB.match(beginning(path)) else files)
    runs = [file for file in files if _TB_RUN.match(beginning(file))]
    trials = (file for file in files if _is_trial(beginning(file)))
    folders = dict.fromkeys(_folder_of(file, path) for file in trials)
    alone = [folder for folder in folders if folder not in {run.parent for run in runs}]
    return Found([*runs, *alone])


def _is_trial(start: bytes) -> bool:
    return any(form.match(start) for form in _TRIALS)


def _trial_files(folder: Path) -> list[Path]:
    names = ("result.json", "results.json")
    files = sorted(file for file in files_below(folder) if file.name in names)
    return [file for file in files if _is_trial(beginning(file))]


def _folder_of(trial: Path, within: Path) -> Path:
    """Return the folder of the job or run of a trial, the outer one if it is not in that."""
    n = 2 if _TB_TRIAL.match(beginning(trial)) else 1
    above = trial.absolute().parents[: n + 1][-1]
    return above if within.absolute() in above.parents else within


# -- reading -----------------------------------------------------------------------------------


def read(file: Path, query: Query) -> FileContents:
    """Read a job, a run or a trial."""
    job_file = file / "result.json"
    job = mapping(load_json(job_file)) if _JOB.match(beginning(job_file)) else {}
    paths = _trial_files(file) if file.is_dir() else [file]
    records = [record for path in paths for record in _records(path, job)]
    if any("task_name" in content for content, _ in records):  # of Harbor, which numbers no trials
        records.sort(key=lambda record: timestamp(record[0].get("started_at")) or 0.0)
    of_tool = {True: _of_harbor, False: _of_terminal_bench}
    trials = [of_tool["task_name" in content](content, about) for content, about in records]
    log = ToolLog(file, query, records=lambda query: trials)
    log.texts = None
    first, about = records[0] if records else (job, job)
    ids = (about.get("id"), lookup(first, "config", "job_id"), first.get("id"))
    run = next(filter(None, map(name_of, (*ids, first.get("uuid")))), file.name)
    rewards = {name for trial in log.trials for name in trial.scores} or {_REWARD}
    names = sorted(rewards, key=lambda name: (name != _REWARD, name))
    scores = [{name: trial.scores.get(name, 0.0) for name in names} for trial in log.trials]
    both = zip(log.trials, scores, strict=True)
    log.trials = [replace(trial, run=run, scores=of_trial) for trial, of_trial in both]
    n_total, n = job.get("n_total_trials"), len(log.trials)
    if type(n_total) is int and n_total > n:
        log.warnings.append(f"{file}: {n_total - n:,} of {n_total:,} trials have no result")
    contents = log.contents("Harbor" if "task_name" in first else "terminal-bench")
    names_of = (_model_and_agent(*record) for record in records)
    agents = list(dict.fromkeys(agent for model, agent in names_of if agent and not model))
    note = f"{join_words(agents)}: named after the agent, as no model is named"
    return replace(contents, notes=(note,) if agents else ())


def _records(path: Path, job: _Object) -> Iterator[_Record]:
    """Yield the trials of a file, each with what is known of its job or run."""
    content = mapping(load_json(path))
    results = content.get("results")
    if "task_name" in content:
        yield content, job
        return
    # a trial in a file of its own lies in the folder of its task, in that of the run
    folder = path.absolute().parents[: 1 if isinstance(results, list) else 3][-1]
    metadata = folder / "run_metadata.json"
    about = mapping(load_json(metadata)) if metadata.is_file() else {}
    name = _name_of_run(path) if isinstance(results, list) else folder.name
    for result in mappings(results) if isinstance(results, list) else [content]:
        yield result, {**about, "id": content.get("id") or about.get("uuid"), "folder": name}


def _name_of_run(path: Path) -> str:
    """Return the name of the folder of results, with that of the file if it is no time alone."""
    folder, name = path.absolute().parent.name, path.name.removesuffix("results.json").strip("_-. ")
    return f"{folder}/{name}" if re.search("[A-Za-z]{2}", name) else folder


def _model_and_agent(content: _Object, about: _Object) -> tuple[str, str]:
    if "task_name" in content:
        agent = mapping(content, "agent_info")
        return name_of(lookup(agent, "model_info", "name")), name_of(agent.get("name"))
    return name_of(about.get("model_name")), name_of(about.get("agent_name"))


def _of_harbor(content: _Object, job: _Object) -> Trial:
    model, agent = _model_and_agent(content, job)
    version = name_of(lookup(content, "agent_info", "version"))
    parts = [content, *mappings(content.get("step_results"))]
    errors = [mapping(part, "exception_info") for part in parts if part.get("exception_info")]
    error = (name_of(errors[0].get("exception_type")) or "an error") if errors else ""
    results = [mapping(part, "agent_result") for part in parts]
    results = results[:1] if results[0] else results[1:]
    rewards = mapping(content, "verifier_result", "rewards")
    span = mapping(content, "agent_execution") or content
    return Trial(
        model=model or agent or "agent",
        task=name_of(content.get("source")) or "adhoc",
        question=name_of(content.get("task_name")),
        key=name_of(content.get("trial_name")),
        scores=rewards,
        error=error if rewards else _without_result(error),
        tokens=total(result.get("n_output_tokens") for result in results),
        cost=total(result.get("cost_usd") for result in results),
        time=seconds_between(span, "started_at", "finished_at"),
        provenance=_provenance(agent, job.get("finished_at"), version),
    )


def _of_terminal_bench(content: _Object, about: _Object) -> Trial:
    resolved, mode = content.get("is_resolved"), name_of(content.get("failure_mode"))
    error = "" if mode in ("unset", "none") else mode
    label, (model, agent) = name_of(content.get("trial_name")), _model_and_agent(content, about)
    numbered = _NUMBERED.search(label)
    dataset = name_of(about.get("dataset_name")) or "terminal-bench"
    return Trial(
        model=model or agent or about["folder"],
        task=f"{dataset} {name_of(about.get('dataset_version'))}".strip(),
        question=name_of(content.get("task_id")),
        label=int(numbered[1]) if numbered else None,
        key=label,
        scores={"is_resolved": resolved if isinstance(resolved, bool) else 0.0},
        error=error if isinstance(resolved, bool) else _without_result(error),
        text=text_of(content.get("instruction")),
        # agents that do not count their tokens report 0
        tokens=number(content.get("total_output_tokens")) or None,
        time=seconds_between(content, "agent_started_at", "agent_ended_at"),
        provenance=_provenance(agent, about.get("end_time")),
    )


def _without_result(error: str) -> str:
    return f"{error}, no result" if error else "no result"


def _provenance(agent: str, ended: object, version: str = "") -> Provenance:
    versions = {agent: version} if version else {}
    return Provenance(date=timestamp(ended), versions=versions, setup={"agent": agent})
