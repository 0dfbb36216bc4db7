"""Results in the form of the Hugging Face hub: `.eval_results/<benchmark>.yaml` of a model.

The format [hub docs, "Evaluation Results"] holds one number a result and leaves its scale to the
benchmark. The benchmarks that collect results so far (Humanity's Last Exam, GSM8K, GPQA) list
accuracies from 0 to 100, and the converter of Every Eval Ever writes that scale too, so the
score goes out as a percentage unless a share is asked for. The number itself is the benchmark's
own metric, the mean score of the trials (avg@N), so that it can stand beside everybody else's;
the posterior and its interval are told in the notes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from types import ModuleType
from typing import Any, Literal, TypeAlias

import yaml

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.export.benchmarks import benchmark_of, dataset_of
from lm_eval_bayes.export.settings import (
    generation_settings,
    hub_id,
    said_model,
    versions,
)
from lm_eval_bayes.stats.intervals import Interval, Scope
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import check_option

#: The folder of a model's repository that holds its results.
FOLDER = ".eval_results"
#: The first huggingface_hub that has EvalResultEntry.
NEEDED = "1.4"
Scale: TypeAlias = Literal["percent", "share"]
SCALES: tuple[Scale, ...] = ("percent", "share")

_DIGITS = {"percent": 2, "share": 4}
_SHA = re.compile(r"[0-9a-f]{40}")
_LONGEST_NOTES = 700
#: Settings that say little and take much room.
_UNTOLD = frozenset({"until"})


@dataclass(frozen=True)
class HubResult:
    """A result for a model's repository.

    Attributes
    ----------
    path : str
        The file, from the root of the repository.
    text : str
        What is in it, YAML.
    dataset_id, task_id, dataset_revision : str
        The benchmark; the revision is None where none was pinned.
    value : float
        The score.
    notes : str
        What it is, how sure it is, and how it was made.
    date : str or None
        When the run ended, ISO 8601.
    source_url, source_name : str or None
        Where the reader finds more.
    warnings : tuple of str
        What the sender should look at before others do.
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "warnings": list(self.warnings)}


def check_model_id(name: str, argument: str = "--model-id") -> str:
    """Return a model's id on the hub.

    Raises
    ------
    InvalidInputError
        If it is not ``org/name``.
    """
    if hub_id(name) is None:
        raise InvalidInputError.of(argument, "be a model of the hub, as org/name", name)
    return name


def hub_result(
    summary: TaskSummary,
    *,
    value: str = "avg@N",
    scale: Scale = "percent",
    scope: Scope = "benchmark",
    dataset: str | None = None,
    task_id: str | None = None,
    revision: str | None = None,
    source_url: str | None = None,
    source_name: str | None = None,
    model_id: str | None = None,
) -> HubResult:
    """Write one model's result on one task in the form of the hub.

    Parameters
    ----------
    summary : TaskSummary
        The model's numbers.
    value : str
        Which of them the benchmark's metric is: "avg@N", "hbayes@N", "bayes@N", or one of its
        `rows`, such as "pass@4".
    scale : {"percent", "share"}
        From 0 to 100, or from 0 to 1.
    scope : {"benchmark", "population"}
        Of the interval in the notes.
    dataset, task_id, revision : str, optional
        The benchmark, where it is not the one that the run tells.
    source_url, source_name : str, optional
        A page about the run.
    model_id : str, optional
        The model that the result is for; a run of another one is told.

    Returns
    -------
    HubResult

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or the dataset is not known.
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
    check_option("scale", scale, SCALES)
    hub, run = library(), summary.run
    low, high = min(run.outcomes.weights), max(run.outcomes.weights)
    if low < 0 or high > 1:
        rule = f"have scores between 0 and 1, which a share is ({run.task} has {low:g} to {high:g})"
        raise InvalidInputError.of("RUN", rule, run.model)
    name, score = _chosen(summary, value)
    factor, digits = (100.0 if scale == "percent" else 1.0), _DIGITS[scale]
    benchmark, warnings = benchmark_of(run), list(summary.notes)
    dataset_id = dataset or benchmark.dataset
    if hub_id(dataset_id) is None:
        rule = f"name the hub's dataset of {run.task}, as org/name, which the run does not tell"
        raise InvalidInputError.of("--dataset", rule, dataset_id or "no name")
    known = benchmark.task_id if dataset in (None, benchmark.dataset) else ""
    task = task_id or known or "default"
    if not task_id and not known:
        warnings.append(
            f'the task of {dataset_id} is taken to be "default": name the one in its eval.yaml '
            "with --task-id"
        )
    pinned = _revision(summary, dataset, revision, warnings)
    said = said_model(run)
    if model_id is not None and said is not None and said != model_id:
        warnings.append(f"the run was of {said}, and goes out as {model_id}")
    date = run.made.date
    entry = hub.EvalResultEntry(
        dataset_id=dataset_id,
        task_id=one_line(task, 200),
        value=round(factor * score, digits),
        dataset_revision=pinned,
        date=None if date is None else _iso(date),
        source_url=source_url,
        source_name=source_name if source_url else None,
        notes=one_line(_notes(summary, name, factor, digits, scope), _LONGEST_NOTES),
    )
    kept = {field.name for field in fields(HubResult)}
    return HubResult(
        path=f"{FOLDER}/{benchmark.file}.yaml",
        text=_yaml(hub, entry),
        warnings=tuple(warnings),
        **{k: v for k, v in vars(entry).items() if k in kept},
    )


def library() -> ModuleType:
    """Return huggingface_hub.

    Raises
    ------
    LmEvalBayesError
        If it is missing, or older than its EvalResultEntry.
    """
    wanted = f"`export hub` needs huggingface_hub {NEEDED} or newer, for its EvalResultEntry"
    try:
        import huggingface_hub
    except ImportError:
        raise LmEvalBayesError(
            f"{wanted}; none is installed: pip install 'huggingface_hub>={NEEDED}'"
        ) from None
    try:
        huggingface_hub.EvalResultEntry  # noqa: B018
    except AttributeError:
        found = getattr(huggingface_hub, "__version__", "of an unknown version")
        raise LmEvalBayesError(
            f"{wanted}; installed is {found}: pip install -U 'huggingface_hub>={NEEDED}'"
        ) from None
    return huggingface_hub


# -- the parts -----------------------------------------------------------------------------------


def _chosen(summary: TaskSummary, value: str) -> tuple[str, float]:
    """Return a number of a summary, and its name with N in it."""
    n = summary.n
    names = {"avg@N": f"avg@{n}", "hbayes@N": f"hbayes@{n}", "bayes@N": f"bayes@{n}"}
    numbers: dict[str, float] = dict(summary.rows)
    if summary.average is not None:
        numbers[names["avg@N"]] = summary.average.value
    numbers[names["hbayes@N"]] = summary.learned["benchmark"].mu
    numbers[names["bayes@N"]] = summary.paper.mu
    name = names.get(value, value)
    if name not in numbers or not math.isfinite(numbers[name]):
        rule = f"be a number of {summary.run.task} ({', '.join(numbers)})"
        raise InvalidInputError.of("--value", rule, value)
    return name, numbers[name]


def _revision(
    summary: TaskSummary, dataset: str | None, revision: str | None, warnings: list[str]
) -> str | None:
    """Return the commit of the dataset that was pinned."""
    if revision is not None:
        if _SHA.fullmatch(revision) is None:
            rule = "be the hash of a commit of the dataset, 40 hexadecimal digits"
            raise InvalidInputError.of("--revision", rule, revision)
        return revision
    found = summary.run.made.revision
    ran_on = dataset_of(summary.run)[0]
    if found and _SHA.fullmatch(found) and dataset in (None, ran_on):
        return found
    told = f"pinned {one_line(found, 60)}, which is no commit" if found else "pinned no revision"
    warnings.append(f"the run {told} of its dataset, so none is given")
    return None


def _iso(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return None


def _notes(summary: TaskSummary, name: str, factor: float, digits: int, scope: Scope) -> str:
    """Tell what the number is, how sure it is and how it was made, the important first."""
    run, n = summary.run, summary.n
    posterior, interval = summary.learned[scope], summary.intervals[scope]
    trials = "1 trial" if n == "1" else f"{n} trials"
    whole = run.made.n_questions or 0
    part = f"{run.n_questions} of its {whole}" if whole > run.n_questions else run.n_questions
    what = f"{name} of {trials} a question on {part} questions"
    parts = [what, _interval(posterior, interval, n, factor, digits)]
    settings = {k: v for k, v in generation_settings(run).items() if k not in _UNTOLD}
    if settings:
        parts.append(_list(settings))
    if run.filter not in ("", "none"):
        parts.append(f"filter {run.filter}")
    if run.metric != "graded trials":
        parts.append(f"metric {run.metric}")
    parts.append(f"{run.task}, {_list(versions(run))}")
    return "; ".join(parts)


def _interval(posterior: Posterior, interval: Interval, n: str, factor: float, digits: int) -> str:
    about = "these questions" if interval.scope == "benchmark" else "questions like these"
    low, high, mu, sigma = (
        f"{factor * x:.{digits}f}"
        for x in (interval.low, interval.high, posterior.mu, posterior.sigma)
    )
    return (
        f"{100 * interval.level:g}% credible interval of the mean score {low} to {high}, "
        f"about {about} (hbayes@{n}, {interval.method}; posterior mean {mu}, sd {sigma})"
    )


def _list(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _yaml(hub: ModuleType, entry: Any) -> str:
    """Write an entry as YAML, and read it back as the hub's own library does."""
    plain = hub.eval_result_entries_to_yaml([entry])
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
    if hub.parse_eval_result_entries(yaml.safe_load(text)) != [entry]:
        raise LmEvalBayesError(
            "huggingface_hub reads this result otherwise than it was written; nothing was exported"
        )
    return text
