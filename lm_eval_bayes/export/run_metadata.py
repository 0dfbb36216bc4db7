"""What submissions say of a run: settings, versions, the model's id, and the benchmark on the hub.

A benchmark is a dataset whose `eval.yaml` names one or more tasks, and a result names both. The
task ids of GSM8K and GPQA are those under which results are listed. MathArena's task ids equal
the dataset's id, as in the `eval.yaml` of its AIME 2026, which is assumed for the older contests
too. A dataset without an `eval.yaml` has the task id "default".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.export.files import slug
from lm_eval_bayes.runs.model_arguments import NAMES, PUBLISHED
from lm_eval_bayes.runs.task_run import TaskRun

#: Names of the maximal number of completion tokens.
MAX_TOKENS_NAMES = ("max_gen_toks", "max_tokens", "max_new_tokens", "max_completion_tokens")
_MAX_VALUE = 200
#: A part of a hub id: letters or digits with single dots and dashes inside, at most 96 characters.
_HUB_NAME = r"(?=[^/]*[A-Za-z0-9])(?![-.])(?![^/]*(?:\.\.|--))[\w.-]{1,96}(?<![-.])"
_HUB_ID = re.compile(f"{_HUB_NAME}/{_HUB_NAME}", re.ASCII)


def as_text(value: Any) -> str:
    """Return a setting as a short text on one line: strings unchanged, other values as JSON.

    Examples
    --------
    >>> as_text(0.6), as_text("bfloat16"), as_text(["Q:"]), as_text(True)
    ('0.6', 'bfloat16', '["Q:"]', 'true')
    """
    if isinstance(value, str):
        return one_line(value, _MAX_VALUE)
    try:
        return one_line(json.dumps(value, ensure_ascii=False, allow_nan=False), _MAX_VALUE)
    except (TypeError, ValueError, RecursionError):
        return one_line(value, _MAX_VALUE)


def generation_settings(run: TaskRun) -> dict[str, str]:
    """Return the generation settings of the trials, by name."""
    return _as_texts(run.provenance.generation_kwargs)


def _as_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {one_line(name, 60): as_text(value) for name, value in settings.items()}


def model_settings(run: TaskRun) -> dict[str, str]:
    """Return the arguments of the model that may be published, by name.

    Examples
    --------
    >>> from lm_eval_bayes.runs.task_run import Provenance
    >>> model_args = {"dtype": "bfloat16", "api_key": "sk-1", "pretrained": "/home/me"}
    >>> provenance = Provenance(model_args=model_args)
    >>> model_settings(TaskRun.from_trials("A", "t", [[1]], ["q"], provenance=provenance))
    {'dtype': 'bfloat16'}
    """
    args = run.provenance.model_args
    published = {name: args[name] for name in PUBLISHED if name in args}
    return {name: as_text(value) for name, value in published.items() if not _is_path(value)}


def published_label(labels: Sequence[str], number: int) -> str:
    """Return the label of a setting, short and on one line; of one that may be a path its number.

    Examples
    --------
    >>> labels = ["monday", "/home/me/runs"]
    >>> published_label(labels, 0), published_label(labels, 1)
    ('monday', 'setting 2')
    """
    label = labels[number]
    return f"setting {number + 1}" if _is_path(label) else one_line(label, 100)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value or value.startswith("~"))


def versions(run: TaskRun) -> dict[str, str]:
    """Return the versions of the harness, of libraries and of this package."""
    from lm_eval_bayes import __version__

    recorded = {
        name: version for name, version in run.provenance.versions.items() if version != "N/A"
    }
    return {**_as_texts(recorded), "lm_eval_bayes": __version__}


def file_warnings(run: TaskRun, warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the reader's warnings about a run's own files, without the files' folders.

    Warnings about a file, such as those of a log that is cut off, begin with its path. Warnings
    that name another path are left out.

    Examples
    --------
    >>> run = TaskRun.from_trials("A", "t", [[1]], ["q"], sources=("/home/me/a.jsonl",))
    >>> file_warnings(run, ["/home/me/a.jsonl ends in the middle of line 8", "other"])
    ('a.jsonl ends in the middle of line 8',)
    """
    own_warnings = []
    for warning in warnings:
        for source in run.sources:
            rest = warning.removeprefix(source)
            if rest != warning and "/" not in rest and "\\" not in rest:
                own_warnings.append(one_line(f"{PurePath(source).name}{rest}"))
    return tuple(own_warnings)


def is_filtered(run: TaskRun) -> bool:
    """Return whether the graded output is that of a named filter pipeline."""
    return run.filter not in ("", "none")


def hub_id(name: object) -> str | None:
    """Return a name if it is a valid id on the hub, ``org/name``, else None.

    Examples
    --------
    >>> hub_id("Qwen/Qwen3-8B"), hub_id("/models/qwen"), hub_id("qwen"), hub_id("./a/b")
    ('Qwen/Qwen3-8B', None, None, None)
    """
    return name if isinstance(name, str) and _HUB_ID.fullmatch(name) else None


def check_model_id(name: str) -> None:
    """Raise unless a name can be that of a model on the hub.

    Raises
    ------
    InvalidInputError
        If it is not ``org/name``.
    """
    if hub_id(name) is None:
        rule = "be a model of the hub, as org/name"
        raise InvalidInputError.of("--model-id", "format", rule, name)


def hub_model(run: TaskRun) -> str | None:
    """Return the run's model id on the hub, from its arguments or its name; None if unknown."""
    args: Mapping[str, Any] = run.provenance.model_args
    for name in (*NAMES, "served_model_name"):
        model_id = hub_id(args.get(name))
        if model_id is not None:
            return model_id
    return hub_id(run.model)


# -- benchmarks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on the hub.

    Attributes
    ----------
    file : str
        Name of its results file, without the suffix.
    dataset : str
        The dataset's id; "" if unknown.
    task_id : str
        The task's id in the dataset's `eval.yaml`; "" if unknown.
    aliases : tuple of str
        Other ids of the same dataset.
    is_registered : bool
        Whether a leaderboard of the hub collects results of the dataset.
    """

    file: str
    dataset: str
    task_id: str
    aliases: tuple[str, ...] = ()
    is_registered: bool = True


def _matharena(contest: str, is_registered: bool = False) -> Benchmark:
    dataset = f"MathArena/{contest}"
    return Benchmark(contest.replace("-", "_"), dataset, dataset, is_registered=is_registered)


_GSM8K = Benchmark("gsm8k", "openai/gsm8k", "gsm8k", ("gsm8k",))
_GPQA = Benchmark("gpqa_diamond", "Idavidrein/gpqa", "diamond")

#: Benchmarks by task name.
KNOWN: Mapping[str, Benchmark] = MappingProxyType(
    {
        "aime24_bayes": Benchmark(
            "aime_2024", "HuggingFaceH4/aime_2024", "default", is_registered=False
        ),
        "aime25_bayes": _matharena("aime_2025"),
        "aime26_bayes": _matharena("aime_2026", is_registered=True),
        "apex25_bayes": _matharena("apex_2025"),
        "apex_shortlist_bayes": _matharena("apex-shortlist"),
        "brumo25_bayes": _matharena("brumo_2025"),
        "cmimc25_bayes": _matharena("cmimc_2025"),
        "hmmt_feb25_bayes": _matharena("hmmt_feb_2025"),
        "hmmt_feb26_bayes": _matharena("hmmt_feb_2026", is_registered=True),
        "hmmt_nov25_bayes": _matharena("hmmt_nov_2025"),
        "smt25_bayes": _matharena("smt_2025"),
        **dict.fromkeys(("gsm8k", "gsm8k_cot", "gsm8k_cot_llama", "gsm8k_cot_zeroshot"), _GSM8K),
        **{
            f"gpqa_diamond_{kind}": _GPQA
            for kind in ("cot_n_shot", "cot_zeroshot", "generative_n_shot", "n_shot", "zeroshot")
        },
    }
)


def dataset_of(run: TaskRun) -> tuple[str, str]:
    """Return the dataset's id and configuration, "" if they were not recorded.

    Examples
    --------
    >>> from lm_eval_bayes.runs.task_run import Provenance
    >>> provenance = Provenance(dataset="openai/gsm8k", config={"dataset_path": "openai/gsm8k"})
    >>> run = TaskRun.from_trials("A", "gsm8k", [[1]], ["q"], provenance=provenance)
    >>> dataset_of(run)
    ('openai/gsm8k', '')
    >>> provenance = Provenance(dataset="openai/gsm8k/main")
    >>> dataset_of(TaskRun.from_trials("A", "gsm8k", [[1]], ["q"], provenance=provenance))
    ('openai/gsm8k', 'main')
    """
    path, name = map(run.provenance.config.get, ("dataset_path", "dataset_name"))
    if not isinstance(path, str) or not path:
        # org/dataset/configuration
        parts = run.provenance.dataset.split("/", 2)
        path, name = "/".join(parts[:2]), parts[2] if len(parts) > 2 else ""
    return path, name if isinstance(name, str) else ""


def benchmark_of(run: TaskRun) -> Benchmark:
    """Return the benchmark of a run; of unknown tasks, one made from the run.

    A task with the name of a known one but another dataset is not that benchmark.

    Examples
    --------
    >>> benchmark_of(TaskRun.from_trials("A", "aime25_bayes", [[1]], ["q"])).file
    'aime_2025'
    >>> benchmark_of(TaskRun.from_trials("A", "My Task", [[1]], ["q"]))
    Benchmark(file='my_task-95852872', dataset='', task_id='', aliases=(), is_registered=True)
    """
    listed, (dataset, _) = KNOWN.get(run.task), dataset_of(run)
    if listed is not None and dataset in ("", listed.dataset, *listed.aliases):
        return listed
    own = Benchmark(slug(run.task), dataset, "")
    taken = listed is not None or own.file in {benchmark.file for benchmark in KNOWN.values()}
    return replace(own, file=f"{own.file}-own") if taken else own
