"""How a saved run was made, as far as it says, and what of that makes its model another one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lm_eval_bayes.runs.model_arguments import Kind, as_mapping, identity, kind_of
from lm_eval_bayes.runs.task_run import Made

if TYPE_CHECKING:
    from lm_eval_bayes.runs.saved_tasks import SavedTask

#: Names of one setting, the first of which stands for all.
_LENGTH = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_STOPS = ("until", "stops", "stop")

#: Values of settings that change nothing, so that it is the same to leave them out.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "n": (1,),
    "until": ([],),
}

#: What the results say of how prompts were made of questions.
_PROMPTING = (
    ("system_instruction_sha", "system_instruction"),
    ("chat_template_sha", "chat_template"),
    ("fewshot_as_multiturn", "fewshot_as_multiturn"),
)


def origin(saved: SavedTask, sent: Mapping[str, Any] | None) -> Made:
    """Return how the trials of a saved task were made.

    Parameters
    ----------
    saved : SavedTask
        The task, with what the results file says.
    sent : mapping or None
        The generation settings that the samples log beside a prompt, which are those that the
        model got.
    """
    results, config = saved.results, saved.config
    asked = mapping(results.get("config"))
    versions = {
        name: results[key]
        for name, key in (("lm_eval", "lm_eval_version"), ("transformers", "transformers_version"))
        if isinstance(results.get(key), str) and results[key] != "N/A"
    }
    version = version_of(saved)
    if version:
        versions["task"] = version
    dataset, part = config.get("dataset_path"), config.get("dataset_name")
    path = "/".join(text for text in (dataset, part) if isinstance(text, str) and text)
    return Made(
        backend=str(asked.get("model") or ""),
        model_args=as_mapping(asked.get("model_args")),
        generation_kwargs=dict(sent or mapping(config.get("generation_kwargs"))),
        metadata=mapping(config.get("metadata")),
        date=number(results.get("date")),
        versions=versions,
        seconds=number(results.get("total_evaluation_time_seconds")),
        dataset=path,
        revision=str(mapping(config.get("dataset_kwargs")).get("revision") or ""),
        n_questions=saved.n_there,
        config=config,
    )


def version_of(saved: SavedTask) -> str:
    """Return the version of the task, as text; "" where nobody wrote it down."""
    version = mapping(saved.results.get("versions")).get(saved.task)
    if version is None:
        version = mapping(saved.config.get("metadata")).get("version")
    return "" if version is None else str(version)


def arguments_of(saved: SavedTask) -> dict[str, Any]:
    """Return what makes a model another one besides its name and how it generates."""
    given = as_mapping(mapping(saved.results.get("config")).get("model_args"))
    found = identity({k: v for k, v in given.items() if kind_of(k) is not Kind.PLACE})
    for key, name in _PROMPTING:
        if saved.results.get(key) not in (None, False):
            found[name] = saved.results[key]
    shots = mapping(saved.results.get("n-shot")).get(saved.task, saved.config.get("num_fewshot"))
    if shots:
        found["num_fewshot"] = shots
    return found


def generation(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under one name each, without those that change nothing.

    Examples
    --------
    >>> generation({"temperature": 0.6, "do_sample": True, "max_new_tokens": 9, "stops": []})
    {'temperature': 0.6, 'max_gen_toks': 9}
    >>> generation({"do_sample": False, "temperature": 0.0, "until": ["Q:"]})
    {'temperature': 0, 'until': ['Q:']}
    """
    found: dict[str, Any] = {}
    for key, value in kwargs.items():
        name = "max_gen_toks" if key in _LENGTH else "until" if key in _STOPS else key
        if name == "until" and isinstance(value, str):
            value = [value]
        if value is not None and name not in ("seed", "do_sample"):
            found.setdefault(name, value)
    if kwargs.get("do_sample") is False or found.get("temperature") == 0:
        found["temperature"] = 0
    return {k: v for k, v in found.items() if v not in _NEUTRAL.get(k, ())}


def greedy(kwargs: Mapping[str, Any]) -> bool:
    """Return whether generation settings leave nothing to chance.

    The harness generates greedily where nobody says anything else.

    Examples
    --------
    >>> greedy({}), greedy({"do_sample": True, "temperature": 0.6}), greedy({"temperature": 0.0})
    (True, False, True)
    """
    return not kwargs.get("do_sample", bool(kwargs.get("temperature")))


def groups_of(results: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the tasks of every group, those of groups in groups too.

    Examples
    --------
    >>> groups_of({"group_subtasks": {"all": ["sums", "c"], "sums": ["a", "b"], "c": []}})
    {'all': ('a', 'b', 'c'), 'sums': ('a', 'b')}
    """
    listed = {
        str(group): [str(task) for task in tasks]
        for group, tasks in mapping(results.get("group_subtasks")).items()
        if isinstance(tasks, list) and tasks
    }
    return {group: _leaves(group, listed) for group in listed}


def _leaves(group: str, listed: Mapping[str, list[str]]) -> tuple[str, ...]:
    found, seen, left = [], {group}, listed[group][::-1]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in listed:
            left += listed[name][::-1]
        else:
            found.append(name)
    return tuple(found)


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def number(value: object) -> float | None:
    """Return a finite number that may be written as text, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
