"""Export a store in the format of the harness's ``samples_*.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval_bayes._util.files import Content, resolve_path, write_all_or_none, write_errors
from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import format_date
from lm_eval_bayes.store.export import check_target, json_line
from lm_eval_bayes.store.info import SeriesInfo
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import MEASUREMENTS, Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

#: The fields of a trial among its signals in a log of samples, before the trial's own signals.
MEASURED = ("trial", *(name for name in MEASUREMENTS if name not in ("created", "signals")))

#: A line to be written: its doc_id, its prompt, its filter, the question and what was graded of it.
_Prompt = tuple[int, str, str, GradedQuestion | None, Sequence[GradedTrial]]


@dataclass(frozen=True)
class SamplesFile(Record):
    """One file of samples.

    Attributes
    ----------
    path : str
        The file.
    task, version : str or None
        The task that graded them; None if none did.
    lines, trials : int
        Number of lines, and of trials in all of them.
    """

    path: str
    task: str | None
    version: str | None
    lines: int
    trials: int


@dataclass(frozen=True)
class SamplesReport(Record):
    """What an export of samples wrote.

    Attributes
    ----------
    folder : str
        The folder of the files.
    files : tuple of SamplesFile
        The files.
    """

    folder: str
    files: tuple[SamplesFile, ...]


def export_samples(
    store: str | PathLike[str],
    folder: str | PathLike[str],
    overwrite: bool = False,
    name_model: Callable[[Mapping[str, Any]], str] | None = None,
) -> SamplesReport:
    """Write the trials as the harness logs samples, for each model, sampling and task a file.

    A line has the trials of one prompt, with their outcomes if a task graded them; prompts that no
    task graded have a file of their own.

    Parameters
    ----------
    store : path or TrialStore
        The store.
    folder : path
        The folder of the files, created if it is missing. The names of the files consist of hashes
        and the date of the last trial. They appear when all are complete.
    overwrite : bool
        Whether existing files are replaced.
    name_model : callable, optional
        Returns the name of a model with some fingerprint; without it lines have no ``model_name``.

    Raises
    ------
    StoreError
        If the store cannot be read or a record is damaged; nothing is left behind.
    InvalidInputError
        If a file cannot be written, or exists; nothing is left behind.
    """
    target = resolve_path(folder)
    files: list[SamplesFile] = []
    with TrialStore.open(store, mode="read") as opened:
        tasks = opened.outcomes_of()

        def contents() -> Iterator[tuple[Path, Content]]:
            for series in opened.info().series:
                for task, prompts in _prompts_by_task(opened, series, tasks).items():
                    path = target / _file_name(series, task)
                    check_target(path, overwrite)
                    names = {} if task is None else {"task_name": task[0]}
                    if name_model is not None:
                        names["model_name"] = name_model(opened.model(series.model))
                    lines = (_line(opened, series, prompt) | names for prompt in prompts)
                    yield path, partial(_write, lines, files, str(path), task)

        with write_errors("folder"):
            write_all_or_none(contents(), overwrite)
    return SamplesReport(str(target), tuple(files))


def _write(
    lines: Iterator[dict[str, Any]],
    files: list[SamplesFile],
    path: str,
    task: tuple[str, str] | None,
    output: BinaryIO,
) -> None:
    """Write the lines of a file, and append what it contains to `files`."""
    n_lines = n_trials = 0
    for line in lines:
        n_lines += 1
        n_trials += len(line["resps"][0])
        output.write(json_line(line).encode("ascii"))
    name, version = task or (None, None)
    files.append(SamplesFile(path, name, version, n_lines, n_trials))


def _file_name(series: SeriesInfo, task: tuple[str, str] | None) -> str:
    """Return a name in the harness's form, ``samples_<task>_<date>.jsonl``."""
    parts = [digest.rpartition(":")[2][:16] for digest in (series.model, series.sampling)]
    if task is not None:
        parts.append(sha256_text("\0".join(task))[:16])
    form = "%Y-%m-%dT%H-%M-%S.%f"
    # A date that no calendar has is that of the epoch.
    date = format_date(series.last, form) or format_date(0.0, form)
    return f"samples_{'-'.join(parts)}_{date}.jsonl"


def _prompts_by_task(
    store: TrialStore, series: SeriesInfo, tasks: Sequence[GradedTask]
) -> dict[tuple[str, str] | None, list[_Prompt]]:
    """Return the prompts of a model and sampling, by task and version; None if not graded."""
    ungraded = store.prompts_of(series.model, series.sampling)
    stored = set(ungraded)
    by_task: dict[tuple[str, str] | None, list[_Prompt]] = {}
    for task in tasks:
        for question in task.of(series.model, series.sampling).questions:
            for prompt in dict.fromkeys(trial.key.prompt for trial in question.trials):
                if prompt in stored:
                    trials = [trial for trial in question.trials if trial.key.prompt == prompt]
                    line = (question.doc_id, prompt, task.filter, question, trials)
                    by_task.setdefault((task.task, task.version), []).append(line)
                    if prompt in ungraded:
                        ungraded.remove(prompt)
    if ungraded:
        by_task[None] = [(i, prompt, "none", None, ()) for i, prompt in enumerate(ungraded)]
    return by_task


def _line(store: TrialStore, series: SeriesInfo, prompt: _Prompt) -> dict[str, Any]:
    """Return the line of one prompt, with the outcomes of one question if it was graded."""
    doc_id, digest, filter_name, question, graded = prompt
    key = TrialKey(model=series.model, prompt=digest, sampling=series.sampling)
    trials = list(store.trials(key).values())
    texts, text = [trial.text for trial in trials], store.prompt(digest)
    doc = {"prompt": text}
    document = json.dumps(doc, indent=2, ensure_ascii=False)
    sampling = store.sampling(series.sampling)
    kwargs = generation_kwargs(sampling)
    line = {
        "doc_id": doc_id,
        "doc": doc,
        "target": "",
        "arguments": {"gen_args_0": {"arg_0": text, "arg_1": kwargs}},
        "resps": [texts],
        "filtered_resps": [texts],
        "filter": filter_name,
        "metrics": [],
        "doc_hash": sha256_text(document) if question is None else question.doc_hash,
        "prompt_hash": sha256_text(text),
        "target_hash": sha256_text(""),
    }
    if question is not None:
        line |= _outcome_fields(graded, trials)
        if question.cluster is not None:
            line["cluster"] = question.cluster.label
    if setting := setting_of(sampling):
        # a question of several settings may have a prompt in each, so that none identifies it
        line |= {"setting": [setting[-1]] * len(trials), "prompt_hash": ""}
    own = store.prompt_signals(series.model, [digest])
    line["lengths"] = [len(text) for text in texts]
    line["signals"] = logged_signals(trials, own)
    return line


def logged_signals(
    trials: Sequence[Trial | None], of_prompts: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Return what was measured of trials, and of their prompts, as a log of samples has it.

    Parameters
    ----------
    trials : sequence of Trial or None
        The trials; None for one that is missing, of which nothing is known.
    of_prompts : mapping
        The signals of their prompts, by the prompts' hashes.

    Returns
    -------
    dict
        By name, the value of every trial, or None.
    """
    measured = [
        {name: getattr(trial, name) for name in MEASURED}
        | dict(trial.signals or {})
        | dict(of_prompts.get(trial.key.prompt, {}))
        if trial is not None
        else {}
        for trial in trials
    ]
    names = dict.fromkeys(name for signals in measured for name in signals)
    return {name: [signals.get(name) for signals in measured] for name in names}


def _outcome_fields(outcomes: Sequence[GradedTrial], trials: Sequence[Trial]) -> dict[str, Any]:
    by_number = {outcome.trial: outcome for outcome in outcomes}
    graded = [by_number.get(trial.trial) for trial in trials]
    notes = {
        str(i): trial.error for i, trial in enumerate(graded) if trial and trial.error is not None
    }
    fields: dict[str, Any] = {
        "outcomes": [trial and trial.outcome for trial in graded],
        "answers": [trial and trial.answer for trial in graded],
    }
    return {**fields, "grading_error_notes": notes} if notes else fields


def setting_of(sampling: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the setting of a sampling, of which the last name is the label; empty without one."""
    return tuple(map(str, sampling.get("setting", ())))


def generation_kwargs(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under the names that the harness gives them.

    The stop strings of a store are those that the engine received.

    Examples
    --------
    >>> generation_kwargs({"temperature": 0.6, "max_gen_toks": 9, "stops": ["Q:"]})
    {'temperature': 0.6, 'max_gen_toks': 9, 'until': ['Q:'], 'do_sample': True}
    """
    kwargs = {name: value for name, value in sampling.items() if name not in ("stops", "setting")}
    if "stops" in sampling:
        kwargs["until"] = sampling["stops"]
    if "temperature" in sampling:
        kwargs["do_sample"] = sampling["temperature"] != 0
    return kwargs
