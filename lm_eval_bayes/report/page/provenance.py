"""How runs were made: what all of them share, and what is each one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import PurePath
from typing import Any

from lm_eval_bayes._util.text import format_duration, format_integer, format_range, plural
from lm_eval_bayes.analysis.report_data import TaskPanel
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.text import Text
from lm_eval_bayes.runs.task_run import TaskRun

#: Characters of a task's configuration that are shown.
_CONFIG = 6000


@dataclass(frozen=True)
class Setting:
    """One setting: its name, and what it was."""

    name: str
    value: Text


@dataclass(frozen=True)
class Making:
    """How the runs of a panel were made.

    Attributes
    ----------
    shared : tuple of Setting
        What all runs have in common.
    own : tuple of (str, tuple of Setting)
        By model, what is not.
    config : Text or None
        The task's configuration, where all runs have the same.
    """

    shared: tuple[Setting, ...]
    own: tuple[tuple[str, tuple[Setting, ...]], ...]
    config: Text | None


def making_of(panel: TaskPanel) -> Making:
    """Return how the runs of a panel were made."""
    tables = [_settings(run) for run in panel.runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    shared, differing = [], []
    for name in names:
        values = [table.get(name) for table in tables]
        if values[0] is not None and all(value == values[0] for value in values):
            shared.append(Setting(name, values[0]))
        else:
            differing.append(name)
    own = tuple(
        (
            words.name(run.model),
            tuple(Setting(name, table[name]) for name in differing if name in table),
        )
        for run, table in zip(panel.runs, tables, strict=True)
    )
    return Making(tuple(shared), own, _config(panel.runs))


def _settings(run: TaskRun) -> dict[str, Text]:
    """Return what is known of a run, in the order in which it is shown."""
    made = run.made
    found: dict[str, Text] = {}

    def say(name: str, value: object) -> None:
        if value not in (None, "", (), {}):
            found[name] = words.setting(value)

    say("questions (M)", format_integer(run.n_questions))
    say("trials of each (N)", format_range(run.outcomes.trials_range))
    say("counted", run.counted)
    say("filter", run.filter)
    weights = run.outcomes.weights.tolist()
    if weights != [0.0, 1.0]:
        say("scores of the categories", ", ".join(f"{weight:g}" for weight in weights))
    say("dataset", made.dataset)
    say("revision", made.revision)
    say("backend", made.backend)
    for name, value in _sorted(made.model_args):
        say(f"model: {words.name(name)}", value)
    for name, value in _sorted(made.generation_kwargs):
        say(f"generation: {words.name(name)}", value)
    say("settings", dict(made.metadata))
    for name, value in _sorted(made.versions):
        say(f"version: {words.name(name)}", value)
    say("seeds", _seeds(run))
    say("prompts", _fingerprint(run.prompt_hashes, "prompt"))
    say("question ids", _fingerprint(sorted(run.question_ids), "id"))
    say("tokens", None if run.tokens is None else format_integer(run.tokens))
    say("model time", None if run.busy_seconds is None else format_duration(run.busy_seconds))
    say("evaluation took", None if made.seconds is None else format_duration(made.seconds))
    say("ended", _date(made.date))
    say("files", ", ".join(short_path(one) for one in run.sources))
    return found


def _sorted(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(((str(name), value) for name, value in settings.items()), key=lambda one: one[0])


def _config(runs: Sequence[TaskRun]) -> Text | None:
    """Return the task's configuration, where there is one and runs agree about it."""
    import json

    first = runs[0].made.config
    if not first or any(dict(run.made.config) != dict(first) for run in runs[1:]):
        return None
    told = json.dumps(words.shortened(first), ensure_ascii=False, indent=2, default=str)
    return words.text(told, _CONFIG)


def _seeds(run: TaskRun) -> str | None:
    """Return how many different seeds there were."""
    if run.seeds is None:
        return None
    found = [seed for one in run.seeds for seed in one if seed is not None]
    missing = sum(seed is None for one in run.seeds for seed in one)
    if not found:
        return "none logged"
    distinct = len(set(found))
    told = f"{distinct:,} different seeds of {plural(len(found), 'trial')}"
    if distinct <= 8:
        told += f" ({', '.join(str(seed) for seed in sorted(set(found)))})"
    return told + (f"; {plural(missing, 'trial')} without one" if missing else "")


def _fingerprint(hashes: Sequence[str] | None, noun: str) -> str | None:
    """Return a hash of many hashes: equal where all of them are."""
    if not hashes:
        return None
    joined = "\n".join(hashes).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(joined, digest_size=8).hexdigest()
    return f"{plural(len(hashes), noun)}, fingerprint {digest}"


def _date(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def short_path(path: str) -> str:
    """Return a file with its folder: where that lies is nobody's business.

    Examples
    --------
    >>> short_path("/home/me/runs/phi/samples_aime.jsonl")
    'phi/samples_aime.jsonl'
    """
    parts = PurePath(path).parts
    return "/".join(parts[-2:]) if parts and not parts[-1].startswith("/") else path
