"""What models are called where several runs of one name are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval_bayes.runs.model_arguments import is_hashed
from lm_eval_bayes.runs.partial_runs import Part

#: A name with its settings is no longer than this many characters more.
_LONGEST = 60


def distinct_names(parts: Sequence[Part], told: list[str]) -> list[str]:
    """Tell models of one name apart by the settings that differ, else by a number.

    A model has the same name in all tasks where its settings are the same.

    Parameters
    ----------
    parts : sequence of Part
        One for every run.
    told : list of str
        Gets a sentence for every name with a number.
    """
    by_task: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        by_task.setdefault((part.model, part.task), []).append(part)
    differing: dict[str, dict[str, None]] = {}
    for (model, _), here in by_task.items():
        keys = differing_keys([_settings(part) for part in here])
        differing.setdefault(model, {}).update(dict.fromkeys(keys))
    names: list[str] = []
    taken: set[tuple[str, str]] = set()
    for part in parts:
        plain, number = with_settings(part.model, _settings(part), differing[part.model]), 1
        name = plain
        while (name, part.task) in taken:
            number += 1
            name = f"{plain} ({number})"
        if number > 1:
            listed = ", ".join(differing[part.model])
            why = f"it differs in {listed}" if listed else "it stands at a path of its own"
            told.append(f"{name} is the run in {part.source}: {why}")
        taken.add((name, part.task))
        names.append(name)
    return names


def _settings(part: Part) -> dict[str, Any]:
    return {**part.arguments, **part.settings}


def with_settings(model: str, settings: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return a model's name with some of its settings, if they are not too long.

    Examples
    --------
    >>> with_settings("phi", {"temperature": 0.2, "top_p": 1}, ["temperature"])
    'phi (temperature=0.2)'
    """
    known = (key for key in keys if key in settings and not is_hashed(settings[key]))
    told = ", ".join(f"{key}={_short(settings[key])}" for key in known)
    return f"{model} ({told})" if told and len(told) <= _LONGEST else model


def _short(value: object) -> str:
    """Return a value as text, of a long path the end, of a hash or the like the beginning."""
    text = str(value)
    if len(text) <= _LONGEST // 2:
        return text
    return "…" + text[-24:] if "/" in text else text[:8] + "…"


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of what is not the same everywhere, in order.

    Examples
    --------
    >>> differing_keys([{"temperature": 0.6, "top_p": 1}, {"temperature": 0.2, "top_p": 1}])
    ['temperature']
    """
    names = dict.fromkeys(name for one in settings for name in one)
    missing = object()
    return [
        name
        for name in names
        if any(one.get(name, missing) != settings[0].get(name, missing) for one in settings)
    ]
