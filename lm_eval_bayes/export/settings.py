"""Published settings of a run: model and generation settings, versions, the model's hub id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.runs.model_arguments import NAMES, PUBLISHED
from lm_eval_bayes.runs.task_run import TaskRun

#: Names of the maximal number of completion tokens.
MAX_TOKENS_NAMES = ("max_gen_toks", "max_tokens", "max_new_tokens", "max_completion_tokens")
_MAX_VALUE = 200


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
    return {one_line(k, 60): as_text(v) for k, v in run.provenance.generation_kwargs.items()}


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


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value or value.startswith("~"))


def versions(run: TaskRun) -> dict[str, str]:
    """Return the versions of the harness, of libraries and of this package."""
    from lm_eval_bayes import __version__

    recorded = {
        one_line(k, 60): as_text(v) for k, v in run.provenance.versions.items() if v != "N/A"
    }
    return {**recorded, "lm_eval_bayes": __version__}


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


def hub_id(name: object) -> str | None:
    """Return a name if it is a valid id on the hub, ``org/name``, else None.

    Examples
    --------
    >>> hub_id("Qwen/Qwen3-8B"), hub_id("/models/qwen"), hub_id("qwen"), hub_id("./a/b")
    ('Qwen/Qwen3-8B', None, None, None)
    """
    if not isinstance(name, str) or name.count("/") != 1:
        return None
    org, _, model = name.partition("/")
    return name if _is_name(org) and _is_name(model) else None


def _is_name(part: str) -> bool:
    plain = part.replace("-", "").replace("_", "").replace(".", "")
    return (
        0 < len(part) <= 96
        and part.isascii()
        and plain.isalnum()
        and part[0] not in "-."
        and part[-1] not in "-."
        and ".." not in part
        and "--" not in part
    )


def hub_model(run: TaskRun) -> str | None:
    """Return the run's model id on the hub, from its arguments or its name; None if unknown."""
    args: Mapping[str, Any] = run.provenance.model_args
    for name in (*NAMES, "served_model_name"):
        model_id = hub_id(args.get(name))
        if model_id is not None:
            return model_id
    return hub_id(run.model)
