"""Results in the format of the Hugging Face hub: `.eval_results/<benchmark>.yaml` of a model.

The format [hub docs, "Evaluation Results"] has one number per result, whose scale is up to the
benchmark. The benchmarks that collect results (such as GSM8K, GPQA and AIME 2026) list
accuracies from 0 to 100, as does the converter of Every Eval Ever, so scores are percentages by
default. The number is by default the mean score of the trials (avg@N), which is comparable with
other results; the posterior and its interval are in the notes. Results are files, or one pull
request with all files in the model's repository.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, Literal, TypeAlias

import yaml

from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import format_date, one_line, scope_label
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.export.run_metadata import (
    benchmark_of,
    dataset_of,
    file_warnings,
    generation_settings,
    hub_id,
    hub_model,
    is_filtered,
    versions,
)
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.stats.intervals import Interval, Scope
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import check_option

#: The hub, unless HF_ENDPOINT is set.
ENDPOINT = "https://huggingface.co"
_MAX_MESSAGE = 160
#: Folder of the results in a model's repository.
FOLDER = ".eval_results"
#: The first version of huggingface_hub with EvalResultEntry.
NEEDED = "1.4"
Scale: TypeAlias = Literal["percent", "share"]
SCALES: tuple[Scale, ...] = ("percent", "share")

#: Factor and number of decimals of a score, by scale.
_FACTORS_AND_DIGITS: dict[Scale, tuple[float, int]] = {"percent": (100.0, 2), "share": (1.0, 4)}
_SHA = re.compile(r"[0-9a-f]{40}")
_MAX_NOTES = 700
#: Generation settings left out of the notes.
_NOT_IN_NOTES = frozenset({"until"})


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
        The metric, its credible interval, and the settings of the run.
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


def check_model_id(name: str, argument: str = "--model-id") -> str:
    """Return a model's id on the hub, checked.

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
    reading_warnings: Sequence[str] = (),
) -> HubResult:
    """Return a model's result on a task in the format of the hub.

    Parameters
    ----------
    summary : TaskSummary
        The model's numbers.
    value : str
        The number to export: "avg@N", "hbayes@N", "bayes@N", or one of the summary's `rows`, such
        as "pass@4".
    scale : {"percent", "share"}
        From 0 to 100, or from 0 to 1.
    scope : {"benchmark", "population"}
        Scope of the interval in the notes.
    dataset, task_id, revision : str, optional
        The benchmark; by default that of the run.
    source_url, source_name : str, optional
        A page about the run.
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
    check_option("scale", scale, SCALES)
    hub, run = library(), summary.run
    low, high = min(run.outcomes.weights), max(run.outcomes.weights)
    if low < 0 or high > 1:
        rule = f"have scores between 0 and 1, which a share is ({run.task} has {low:g} to {high:g})"
        raise InvalidInputError.of("RUN", rule, run.model)
    name, score = _named_number(summary, value)
    factor, digits = _FACTORS_AND_DIGITS[scale]
    benchmark, warnings = benchmark_of(run), list(summary.notes)
    dataset_id = dataset or benchmark.dataset
    if hub_id(dataset_id) is None:
        rule = f"name the hub's dataset of {run.task}, as org/name, which the run does not record"
        raise InvalidInputError.of("--dataset", rule, dataset_id or "no name")
    if not benchmark.is_registered and dataset in (None, benchmark.dataset):
        warnings.append(f"no leaderboard of the hub collects results of {benchmark.dataset}")
    own_task_id = benchmark.task_id if dataset in (None, benchmark.dataset) else ""
    task = task_id or own_task_id or "default"
    if not task_id and not own_task_id:
        warnings.append(
            f'the task of {dataset_id} is assumed to be "default": name that of its eval.yaml '
            "with --task-id"
        )
    if revision is not None and _SHA.fullmatch(revision) is None:
        rule = "be the hash of a commit of the dataset, 40 hexadecimal digits"
        raise InvalidInputError.of("--revision", rule, revision)
    pinned = revision or _pinned_revision(summary, dataset)
    if pinned is None:
        warnings.append(_unpinned_warning(summary, dataset_id))
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
        source_url=source_url,
        source_name=source_name if source_url else None,
        notes=one_line(_notes(summary, name, scale, scope, damage), _MAX_NOTES),
    )
    names = {field.name for field in fields(HubResult)}
    return HubResult(
        path=f"{FOLDER}/{benchmark.file}.yaml",
        text=_yaml(hub, entry),
        warnings=tuple(warnings),
        **{k: v for k, v in vars(entry).items() if k in names},
    )


def library() -> ModuleType:
    """Return huggingface_hub.

    Raises
    ------
    LmEvalBayesError
        If it is missing, or older than its EvalResultEntry.
    """
    requirement = f"`export hub` needs huggingface_hub {NEEDED} or newer, for its EvalResultEntry"
    try:
        import huggingface_hub
    except ImportError:
        raise LmEvalBayesError(
            f"{requirement}; none is installed: {pip_install_extra('hub')}"
        ) from None
    if not hasattr(huggingface_hub, "EvalResultEntry"):
        version = getattr(huggingface_hub, "__version__", "of an unknown version")
        raise LmEvalBayesError(f"{requirement}; installed is {version}: {pip_install_extra('hub')}")
    return huggingface_hub


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
        raise InvalidInputError.of("--value", rule, value)
    return name, numbers[name]


def _pinned_revision(summary: TaskSummary, dataset: str | None) -> str | None:
    """Return the pinned commit of the dataset, or None."""
    pinned = summary.run.provenance.revision
    same = dataset in (None, dataset_of(summary.run)[0])
    return pinned if same and _SHA.fullmatch(pinned) else None


def _unpinned_warning(summary: TaskSummary, dataset_id: str) -> str:
    pinned, run_dataset = summary.run.provenance.revision, dataset_of(summary.run)[0]
    if pinned and run_dataset != dataset_id:
        return (
            f"the run's data were {run_dataset} at revision {one_line(pinned, 60)}, and --dataset "
            f"names {dataset_id}, so no revision is exported; --revision names one"
        )
    reason = f"pinned {one_line(pinned, 60)}, not a commit," if pinned else "pinned no revision"
    return f"the run {reason} of its dataset, so none is exported"


def _notes(
    summary: TaskSummary, name: str, scale: Scale, scope: Scope, damage: tuple[str, ...]
) -> str:
    """Return the metric, its credible interval and the settings, the most important first."""
    run, n = summary.run, summary.n
    trials = "1 trial" if n == "1" else f"{n} trials"
    total = run.provenance.n_questions or 0
    questions = f"{run.n_questions} of its {total}" if total > run.n_questions else run.n_questions
    settings = {k: v for k, v in generation_settings(run).items() if k not in _NOT_IN_NOTES}
    parts = [
        f"{name} of {trials} per question on {questions} questions",
        *damage,
        _interval_note(summary.learned[scope], summary.intervals[scope], n, scale),
        _settings_note(settings),
        f"filter {run.filter}" if is_filtered(run) else "",
        f"metric {run.metric}" if run.metric != GRADED else "",
        f"{run.task}, {_settings_note(versions(run))}",
    ]
    return "; ".join(filter(None, parts))


def _interval_note(posterior: Posterior, interval: Interval, n: str, scale: Scale) -> str:
    factor, digits = _FACTORS_AND_DIGITS[scale]
    low, high, mu, sigma = (
        f"{factor * x:.{digits}f}"
        for x in (interval.low, interval.high, posterior.mu, posterior.sigma)
    )
    return (
        f"{100 * interval.level:g}% credible interval of the mean score {low} to {high}, "
        f"about {scope_label(interval.scope)} (hbayes@{n}, {interval.method}; posterior mean "
        f"{mu}, sd {sigma})"
    )


def _settings_note(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _yaml(hub: ModuleType, entry: Any) -> str:
    """Return an entry as YAML, checked by parsing it with the hub's library."""
    entries = hub.eval_result_entries_to_yaml([entry])
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
    if hub.parse_eval_result_entries(yaml.safe_load(text)) != [entry]:
        raise LmEvalBayesError(
            "huggingface_hub does not read this result back as it was written; nothing was exported"
        )
    return text


# -- pull requests ------------------------------------------------------------------------------


def open_pull_request(
    results: Sequence[HubResult],
    model_id: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    overwrite: bool = False,
) -> str:
    """Open one pull request with all results in a model's repository.

    Parameters
    ----------
    results : sequence of HubResult
        The files.
    model_id : str
        The repository.
    token : str, optional
        The hub's token; by default that of HF_TOKEN or of `hf auth login`.
    endpoint : str, optional
        The hub; by default HF_ENDPOINT or huggingface.co.
    overwrite : bool
        Whether the pull request may change existing files.

    Returns
    -------
    str
        The address of the pull request.

    Raises
    ------
    LmEvalBayesError
        If there is no token, the hub cannot be reached or refuses, a file exists, or a pull
        request of the same title is open. No pull request was opened then, unless the connection
        failed while it was.
    """
    hub = library()
    token = token or hub.get_token()
    if not token:
        raise LmEvalBayesError(
            "there is no token for the hub, so nothing was sent: set HF_TOKEN, or log in with "
            "`hf auth login`"
        )
    url = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    api = hub.HfApi(endpoint=url, token=token, library_name="lm-eval-bayes")
    title = f"Evaluation results: {', '.join(result.path.split('/')[-1] for result in results)}"
    with _hub_errors(url, "the token was not checked"):
        api.whoami()
    with _hub_errors(url, f"{model_id} was not checked"):
        _check_not_there(api, results, model_id, title, overwrite)
    with _hub_errors(url, f"the pull request to {model_id} was not opened"):
        files = [hub.CommitOperationAdd(result.path, result.text.encode()) for result in results]
        commit = api.create_commit(
            model_id,
            files,
            commit_message=title,
            commit_description=_description(results),
            create_pr=True,
        )
        address = commit.pr_url
    if not address:
        raise LmEvalBayesError(
            f"{model_id} has identical results already, so no pull request was opened"
        )
    return str(address)


def _check_not_there(
    api: Any, results: Sequence[HubResult], model_id: str, title: str, overwrite: bool
) -> None:
    """Raise if a file exists, or a pull request of the same title is open."""
    opened = api.get_repo_discussions(
        model_id, discussion_type="pull_request", discussion_status="open"
    )
    for pull_request in opened:
        if pull_request.title == title:
            raise LmEvalBayesError(
                f"pull request {pull_request.num} of {model_id} is open and has the title "
                f'"{title}": nothing was sent'
            )
    if overwrite:
        return
    for result in results:
        if api.file_exists(model_id, result.path):
            raise LmEvalBayesError(
                f"{model_id} has {result.path} already: nothing was sent; --overwrite changes it"
            )


def _description(results: Sequence[HubResult]) -> str:
    lines = [
        f"- `{result.path}`: {result.value:g}. {one_line(result.notes).replace('`', chr(39))}"
        for result in results
    ]
    return "\n".join([*lines, "", "Written by lm-eval-bayes from a run's logged trials."])


@contextmanager
def _hub_errors(endpoint: str, consequence: str) -> Iterator[None]:
    """Convert errors of the hub and of the network into this package's error."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # its bases are the network errors of the HTTP library that huggingface_hub uses
    network: tuple[type[Exception], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except LmEvalBayesError:
        raise
    except OfflineModeIsEnabled:
        raise LmEvalBayesError(
            f"{consequence}: HF_HUB_OFFLINE is set, so {endpoint} is not used; unset it for --push"
        ) from None
    except HfHubHTTPError as error:
        raise LmEvalBayesError(f"{consequence}: {endpoint} {_response_text(error)}") from None
    except network as error:
        message = one_line(str(error).split("\n")[0], _MAX_MESSAGE) or type(error).__name__
        raise LmEvalBayesError(f"{consequence}: {endpoint} cannot be reached ({message})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LmEvalBayesError(
            f"{endpoint} gave an unexpected response; probably {consequence}"
        ) from None


def _response_text(error: Any) -> str:
    """Return the status code of the hub's response and its meaning, if known."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    message = str(getattr(error, "server_message", None) or "")
    meaning = {
        401: "the token is not valid",
        403: "the token may not do this; it needs the right to write",
        404: "there is no such model, or the token may not see it",
        429: "too many requests; try again later",
    }.get(status or 0, one_line(" ".join(message.split()), _MAX_MESSAGE))
    return f"answered {status}" + (f": {meaning}" if meaning else "")
