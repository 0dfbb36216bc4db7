"""Results in the format of the Hugging Face hub: `.eval_results/<benchmark>.yaml` of a model.

The format [hub docs, "Evaluation Results"] has one number per result, whose scale is up to the
benchmark. The benchmarks that collect results (such as GSM8K, GPQA and AIME 2026) list
accuracies from 0 to 100, as does the converter of Every Eval Ever, so scores are percentages by
default. The number is by default the mean score of the trials (avg@N), which is comparable with
other results; its interval is in the notes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal, TypeAlias

import yaml

from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import format_date, one_line, scope_label
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.export.run_metadata import (
    KNOWN,
    benchmark_of,
    dataset_of,
    file_warnings,
    generation_settings,
    hub_id,
    hub_model,
    is_filtered,
)
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.stats import Scope

#: Folder of the results in a model's repository.
FOLDER = ".eval_results"
#: The first version of huggingface_hub with EvalResultEntry.
NEEDED = "1.4"
Scale: TypeAlias = Literal["percent", "share"]

#: Factor and number of decimals of a score, by scale.
_FACTORS_AND_DIGITS: dict[Scale, tuple[float, int]] = {"percent": (100.0, 2), "share": (1.0, 4)}
_SHA = re.compile(r"[0-9a-f]{40}")
#: The hub shows the notes beside the score.
_MAX_NOTES = 200
#: Generation settings in the notes.
_IN_NOTES = ("temperature", "top_p")
#: The datasets whose leaderboards on the hub are known to collect results.
REGISTERED = frozenset(known.dataset for known in KNOWN.values() if known.is_registered)


@dataclass(frozen=True)
class HubResult(Record):
    """A result for a model's repository.

    Attributes
    ----------
    path : str
        The file, from the root of the repository.
    text : str
        Its content, YAML.
    dataset_id, task_id, dataset_revision : str
        The benchmark; the revision is None if none was pinned.
    value : float
        The score.
    notes : str
        The metric, its credible interval and the sampling, at most 200 characters.
    date : str or None
        End of the run, ISO 8601.
    source_url, source_name : str or None
        A page about the run.
    warnings : tuple of str
        Warnings for the sender.
    """

    path: str
    text: str
    dataset_id: str
    task_id: str
    value: float
    notes: str
    dataset_revision: str | None = None
    date: str | None = None
    source_url: str | None = None
    source_name: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubSettings:
    """What a result says beside the run's numbers.

    Attributes
    ----------
    value : str
        The number to export: "avg@N", "hbayes@N", "bayes@N", or one of the summary's `rows`, such
        as "pass@4".
    scale : {"percent", "share"}
        From 0 to 100, or from 0 to 1.
    dataset, task_id, revision : str or None
        The benchmark; None for that of the run.
    source_url, source_name : str or None
        A page about the run.
    """

    value: str = "avg@N"
    scale: Scale = "percent"
    dataset: str | None = None
    task_id: str | None = None
    revision: str | None = None
    source_url: str | None = None
    source_name: str | None = None


def hub_result(
    summary: TaskSummary,
    settings: HubSettings | None = None,
    *,
    scope: Scope = "benchmark",
    model_id: str | None = None,
    reading_warnings: Sequence[str] = (),
) -> HubResult:
    """Return a model's result on a task in the format of the hub.

    Parameters
    ----------
    summary : TaskSummary
        The model's numbers.
    settings : HubSettings, optional
        What the result says; by default avg@N as a percentage, on the run's own benchmark.
    scope : {"benchmark", "population"}
        Scope of the interval in the notes.
    model_id : str, optional
        The model that the result is for; a run of another model is a warning.
    reading_warnings : sequence of str
        Warnings of the reader; those about the run's own files, for example that a log is cut
        off, become part of the notes.

    Returns
    -------
    HubResult

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or the dataset is unknown.
    LmEvalBayesError
        If huggingface_hub is missing or too old.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.summary import summarise
    >>> from lm_eval_bayes.runs.task_run import TaskRun
    >>> run = TaskRun.from_trials("A", "aime25_bayes", [[0, 1, 1, 0], [0, 0, 0, 1]], ["p", "q"])
    >>> result = hub_result(summarise(run))
    >>> print(result.path, result.value)
    .eval_results/aime_2025.yaml 37.5
    """
    settings = settings or HubSettings()
    hub, run = library(), summary.run
    low, high = min(run.outcomes.weights), max(run.outcomes.weights)
    if low < 0 or high > 1:
        rule = f"have scores between 0 and 1, which a share is ({run.task} has {low:g} to {high:g})"
        raise InvalidInputError.of("RUN", "range", rule, run.model)
    name, score = _named_number(summary, settings.value)
    factor, digits = _FACTORS_AND_DIGITS[settings.scale]
    benchmark, warnings = benchmark_of(run), list(summary.notes)
    dataset_id = settings.dataset or benchmark.dataset
    if hub_id(dataset_id) is None:
        rule = f"name the hub's dataset of {run.task}, as org/name, which the run does not record"
        raise InvalidInputError.of("--dataset", "missing", rule, dataset_id or "no name")
    if dataset_id not in REGISTERED:
        warnings.append(
            f"{one_line(dataset_id, 100)} is none of the datasets whose leaderboards on the hub "
            f"are known to collect results ({', '.join(sorted(REGISTERED))})"
        )
    own_task_id = benchmark.task_id if settings.dataset in (None, benchmark.dataset) else ""
    task = settings.task_id or own_task_id or "default"
    if not settings.task_id and not own_task_id:
        warnings.append(
            f'the task of {dataset_id} is assumed to be "default": name that of its eval.yaml '
            "with --task-id"
        )
    if settings.revision is not None and _SHA.fullmatch(settings.revision) is None:
        rule = "be the hash of a commit of the dataset, 40 hexadecimal digits"
        raise InvalidInputError.of("--revision", "format", rule, settings.revision)
    recorded, own_dataset = run.provenance.revision, dataset_of(run)[0]
    pinned = settings.revision
    if pinned is None and settings.dataset in (None, own_dataset) and _SHA.fullmatch(recorded):
        pinned = recorded
    if pinned is None:
        warnings.append(
            f"the run pinned {one_line(recorded, 60) or 'no revision'} of "
            f"{own_dataset or 'its dataset'}, so no revision of {dataset_id} is exported; "
            "--revision names one"
        )
    recorded_model = hub_model(run)
    if model_id not in (None, recorded_model) and recorded_model is not None:
        warnings.append(f"the run was of {recorded_model}, and is exported as {model_id}")
    damage = file_warnings(run, reading_warnings)
    entry = hub.EvalResultEntry(
        dataset_id=dataset_id,
        task_id=one_line(task, 200),
        value=round(factor * score, digits),
        dataset_revision=pinned,
        date=format_date(run.provenance.date, "%Y-%m-%dT%H:%M:%SZ"),
        source_url=settings.source_url,
        source_name=settings.source_name if settings.source_url else None,
        notes=one_line(_notes(summary, name, settings.scale, scope, damage), _MAX_NOTES),
    )
    names = {field.name for field in fields(HubResult)}
    return HubResult(
        path=f"{FOLDER}/{benchmark.file}.yaml",
        text=_yaml(hub, entry),
        warnings=tuple(warnings),
        **{k: v for k, v in vars(entry).items() if k in names},
    )


def library() -> Any:
    """Return huggingface_hub.

    Raises
    ------
    LmEvalBayesError
        If it is missing, or older than its EvalResultEntry.
    """
    hub: Any = None
    with suppress(ImportError):
        hub = import_module("huggingface_hub")
    if not hasattr(hub, "EvalResultEntry"):
        version = getattr(hub, "__version__", None)
        sentence = (
            f"`export hub` needs huggingface_hub {NEEDED} or newer; installed is "
            f"{version or 'none'}: {pip_install_extra('hub')}"
        )
        raise LmEvalBayesError(sentence, "not-installed", "huggingface_hub", version)
    return hub


# -- the parts -----------------------------------------------------------------------------------


def _named_number(summary: TaskSummary, value: str) -> tuple[str, float]:
    """Return a number of a summary, and its name with N in it."""
    n = summary.n
    numbers = dict(summary.rows)
    if summary.average is not None:
        numbers[f"avg@{n}"] = summary.average.value
    numbers[f"hbayes@{n}"] = summary.learned["benchmark"].mu
    if summary.paper is not None:
        numbers[f"bayes@{n}"] = summary.paper.mu
    name = f"{value[:-1]}{n}" if value in ("avg@N", "hbayes@N", "bayes@N") else value
    if name not in numbers or not math.isfinite(numbers[name]):
        rule = f"be a number of {summary.run.task} ({', '.join(numbers)})"
        raise InvalidInputError.of("--value", "choice", rule, value)
    return name, numbers[name]


def _notes(
    summary: TaskSummary, name: str, scale: Scale, scope: Scope, damage: tuple[str, ...]
) -> str:
    """Return the metric, its credible interval and the sampling, the most important first."""
    run, n = summary.run, summary.n
    interval = summary.intervals[scope]
    factor, digits = _FACTORS_AND_DIGITS[scale]
    numbers = [summary.learned[scope].mu, interval.low, interval.high]
    if summary.over_settings[0] is not None:
        like = summary.over_settings[0].like[scope]
        numbers += like.low, like.high
    mean, low, high, *ends = (f"{factor * number:.{digits}f}" for number in numbers)
    of_trials = "" if name.endswith(f"@{n}") else f" of {n} trials"
    settings = generation_settings(run)
    total = run.provenance.n_questions or 0
    of_total = f" of its {total}" if total > run.n_questions else ""
    parts = [
        f"{name}{of_trials}, {run.n_questions}{of_total} questions",
        f"hbayes@{n} {mean}, {100 * interval.level:g}% interval {low} to {high} about "
        f"{scope_label(interval.scope)}",
        f"settings like these {len(run.settings)}: {' to '.join(ends)}" if ends else "",
        *damage,
        f"filter {run.filter}" if is_filtered(run) else "",
        f"metric {run.metric}" if run.metric != GRADED else "",
        f"protocol {run.provenance.protocol}" if run.provenance.protocol else "",
        ", ".join(f"{key} {settings[key]}" for key in _IN_NOTES if key in settings),
    ]
    return "; ".join(filter(None, parts))


def _yaml(hub: Any, entry: Any) -> str:
    """Return an entry as YAML, checked by parsing it with the hub's library."""
    entries = hub.eval_result_entries_to_yaml([entry])
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
    if hub.parse_eval_result_entries(yaml.safe_load(text)) != [entry]:
        sentence = (
            "huggingface_hub does not read this result back as it was written; nothing was exported"
        )
        raise LmEvalBayesError(sentence, "failed", "huggingface_hub", text)
    return text
