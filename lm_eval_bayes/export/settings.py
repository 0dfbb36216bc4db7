"""How a run was made, as far as strangers may know: settings, and neither paths nor secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.runs.model_arguments import NAMES, PUBLISHED
from lm_eval_bayes.runs.task_run import TaskRun

#: Names by which backends know the longest completion.
LONGEST = ("max_gen_toks", "max_tokens", "max_new_tokens", "max_completion_tokens")
_LONGEST_VALUE = 200


def as_text(value: Any) -> str:
    """Return a setting as a short text on one line: words as they are, the rest as JSON.

    Examples
    --------
    >>> as_text(0.6), as_text("bfloat16"), as_text(["Q:"]), as_text(True)
    ('0.6', 'bfloat16', '["Q:"]', 'true')
    """
    if isinstance(value, str):
        return one_line(value, _LONGEST_VALUE)
    try:
        return one_line(json.dumps(value, ensure_ascii=False, allow_nan=False), _LONGEST_VALUE)
    except (TypeError, ValueError, RecursionError):
        return one_line(value, _LONGEST_VALUE)


def generation_settings(run: TaskRun) -> dict[str, str]:
    """Return what the trials were sampled with, by name."""
    return {one_line(k, 60): as_text(v) for k, v in run.made.generation_kwargs.items()}


def model_settings(run: TaskRun) -> dict[str, str]:
    """Return the arguments of the model that may be published, by name.

    Examples
    --------
    >>> from lm_eval_bayes.runs.task_run import Made
    >>> made = Made(model_args={"dtype": "bfloat16", "api_key": "sk-1", "pretrained": "/home/me"})
    >>> model_settings(TaskRun.from_trials("A", "t", [[1]], ["q"], made=made))
    {'dtype': 'bfloat16'}
    """
    found = {name: run.made.model_args[name] for name in PUBLISHED if name in run.made.model_args}
    return {name: as_text(value) for name, value in found.items() if not _is_path(value)}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value or value.startswith("~"))


def versions(run: TaskRun) -> dict[str, str]:
    """Return the versions of what took part, this package's own included."""
    from lm_eval_bayes import __version__

    found = {one_line(k, 60): as_text(v) for k, v in run.made.versions.items() if v != "N/A"}
    return {**found, "lm_eval_bayes": __version__}


def hub_id(name: object) -> str | None:
    """Return a model's name if it can be its id on the hub, ``org/name``; None otherwise.

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
    """Return the id on the hub of the model that was run, where its arguments tell one."""
    args: Mapping[str, Any] = run.made.model_args
    for name in (*NAMES, "served_model_name"):
        found = hub_id(args.get(name))
        if found is not None:
            return found
    return hub_id(run.model)
