"""Names of models among all that were read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from lm_eval_bayes.runs.model_arguments import is_hashed
from lm_eval_bayes.runs.trials import PartialRun

#: The settings in a name have at most this many characters.
_LONGEST = 60


def distinct_names(partials: Sequence[PartialRun]) -> tuple[list[str], list[str]]:
    """Give runs of one model name different names: by the settings that differ, else by a number.

    A model has the same name in all tasks where its settings are the same. Models that are named
    after files get the parts of their paths that differ.

    Parameters
    ----------
    partials : sequence of PartialRun
        One per run.

    Returns
    -------
    names : list of str
        One per run.
    warnings : list of str
        A sentence for every name with a number.
    """
    by_task: dict[tuple[str, str], list[PartialRun]] = {}
    for partial in partials:
        by_task.setdefault((partial.model, partial.task), []).append(partial)
    differing: dict[str, dict[str, None]] = {}
    for (model, _), group in by_task.items():
        keys = differing_keys([_settings(partial) for partial in group])
        differing.setdefault(model, {}).update(dict.fromkeys(keys))
    names, warnings = dict[tuple[str, str], None](), list[str]()
    for partial in partials:
        keys = list(differing[partial.model])
        base, number = _name(partial, keys, partials), 1
        name = base
        while (name, partial.task) in names:
            number += 1
            name = f"{base} ({number})"
        if number > 1:
            reason = f"it differs in {', '.join(keys)}" if keys else "it has a path of its own"
            warnings.append(f"{name} is the run in {partial.source}: {reason}")
        names[name, partial.task] = None
    return [name for name, _ in names], warnings


def _name(partial: PartialRun, keys: Sequence[str], partials: Sequence[PartialRun]) -> str:
    """Return the name of a run with the settings that differ from those of runs of its name."""
    model, settings = partial.model, _settings(partial)
    if "file" in keys and "file" in settings:
        files = [_settings(other).get("file", "") for other in partials if other.model == model]
        file = PurePath(str(settings.pop("file")))
        part = distinct_parts(map(str, files))[str(file)]
        model = part if model == file.name.partition(".")[0] else f"{model} ({part})"
    return with_settings(model, settings, keys)


def distinct_parts(paths: Iterable[str]) -> dict[str, str]:
    """Return of every path what is left without the folders and the name that all have in common.

    Examples
    --------
    >>> distinct_parts(["runs/a/trials.csv", "runs/b/trials.csv"])
    {'runs/a/trials.csv': 'a', 'runs/b/trials.csv': 'b'}
    """
    parts = {str(path): path.parts for path in map(PurePath, paths)}
    for at, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        while min(map(len, parts.values())) > 1 and len({p[at] for p in parts.values()}) == 1:
            parts = {path: names[rest] for path, names in parts.items()}
    return {path: "/".join(names) for path, names in parts.items()}


def _settings(partial: PartialRun) -> dict[str, Any]:
    return {**partial.arguments, **partial.settings}


def with_settings(model: str, settings: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the name of a model with some of its settings, if they are not too long.

    Examples
    --------
    >>> with_settings("phi", {"temperature": 0.2, "top_p": 1}, ["temperature"])
    'phi (temperature=0.2)'
    """
    printed = [key for key in keys if key in settings and not is_hashed(settings[key])]
    text = ", ".join(f"{key}={_short(settings[key])}" for key in printed)
    return f"{model} ({text})" if text and len(text) <= _LONGEST else model


def _short(value: object) -> str:
    """Return a value as text, of a long path the end, of other long values the beginning."""
    text = str(value)
    if len(text) <= _LONGEST // 2:
        return text
    return "…" + text[-24:] if "/" in text else text[:8] + "…"


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that are not the same everywhere, in order.

    Examples
    --------
    >>> differing_keys([{"temperature": 0.6, "top_p": 1}, {"temperature": 0.2, "top_p": 1}])
    ['temperature']
    """
    names = dict.fromkeys(name for mapping in settings for name in mapping)
    first, missing = settings[0] if settings else {}, object()
    return [k for k in names if any(m.get(k, missing) != first.get(k, missing) for m in settings)]
