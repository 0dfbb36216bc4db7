"""Provenance of runs: settings that all runs of a panel share, and those that differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from lm_eval_bayes._util.text import (
    format_date,
    format_duration,
    format_integer,
    format_large,
    format_range,
    plural,
)
from lm_eval_bayes.analysis.report_data import TaskPanel
from lm_eval_bayes.report.page.text import TruncatedText, name, setting, shortened, truncate
from lm_eval_bayes.runs.task_run import TaskRun

#: Characters of a task's configuration.
_MAX_CONFIG = 6000
#: Up to so many distinct seeds are listed.
_MAX_SEEDS = 8


@dataclass(frozen=True)
class PanelProvenance:
    """Provenance of the runs of a panel.

    Attributes
    ----------
    shared : dict of str to TruncatedText
        Settings with the same value in all runs, by name.
    own : tuple of (str, dict of str to TruncatedText)
        By model, the other settings.
    config : TruncatedText or None
        The task's configuration, if all runs have the same.
    """

    shared: dict[str, TruncatedText]
    own: tuple[tuple[str, dict[str, TruncatedText]], ...]
    config: TruncatedText | None


def panel_provenance(panel: TaskPanel) -> PanelProvenance:
    """Return the provenance of the runs of a panel."""
    of_runs = [_settings(run) for run in panel.runs]
    first, *others = of_runs
    shared = {k: value for k, value in first.items() if all(o.get(k) == value for o in others)}
    own = (
        (name(run.model), {k: value for k, value in settings.items() if k not in shared})
        for run, settings in zip(panel.runs, of_runs, strict=True)
    )
    return PanelProvenance(shared, tuple(own), _config(panel.runs))


def _settings(run: TaskRun) -> dict[str, TruncatedText]:
    """Return the recorded settings of a run, in the order of the page."""
    record, weights = run.provenance, run.outcomes.weights.tolist()
    rows: list[tuple[str, object]] = [
        ("questions (M)", format_integer(run.n_questions)),
        ("trials per question (N)", format_range(run.outcomes.trials_range)),
        ("metric", run.counted),
        ("filter", run.filter),
        ("protocol", record.protocol),
        (
            "bounds of the scores" if run.scored else "category weights",
            None
            if not run.scored and weights == [0.0, 1.0]
            else ", ".join(f"{weight:g}" for weight in weights),
        ),
        ("dataset", record.dataset),
        ("revision", record.revision),
        ("backend", record.backend),
        *_prefixed("model", record.model_args),
        *_prefixed("generation", record.generation_kwargs),
        ("settings", dict(record.metadata)),
        *_prefixed("version", record.versions),
        ("seeds", _seeds(run)),
        ("prompts", _fingerprint(run.prompt_hashes, "prompt")),
        ("question ids", _fingerprint(sorted(run.question_ids), "id")),
        ("tokens", None if run.tokens is None else format_integer(run.tokens)),
        ("model time", None if run.busy_seconds is None else format_duration(run.busy_seconds)),
        ("cost, as logged", None if run.cost is None else format_large(run.cost)),
        ("evaluation time", None if record.seconds is None else format_duration(record.seconds)),
        ("date", format_date(record.date)),
        ("files", ", ".join(short_path(source) for source in run.sources)),
    ]
    return {key: setting(value) for key, value in rows if value not in (None, "", (), {})}


def _prefixed(prefix: str, settings: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [(f"{prefix}: {name(key)}", settings[key]) for key in sorted(settings, key=str)]


def _config(runs: Sequence[TaskRun]) -> TruncatedText | None:
    """Return the task's configuration; None if there is none, or runs differ."""
    config = runs[0].provenance.config
    if not config or any(dict(run.provenance.config) != dict(config) for run in runs[1:]):
        return None
    text = json.dumps(shortened(config), ensure_ascii=False, indent=2, default=str)
    return truncate(text, _MAX_CONFIG)


def _seeds(run: TaskRun) -> str | None:
    """Return the number of distinct seeds, and the seeds if they are few."""
    if run.seeds is None:
        return None
    logged = [seed for of_question in run.seeds for seed in of_question if seed is not None]
    n_missing = sum(seed is None for of_question in run.seeds for seed in of_question)
    if not logged:
        return "none logged"
    distinct = sorted(set(logged))
    text = f"{len(distinct):,} distinct seeds of {plural(len(logged), 'trial')}"
    if len(distinct) <= _MAX_SEEDS:
        text += f" ({', '.join(map(str, distinct))})"
    return text + (f"; {plural(n_missing, 'trial')} without a seed" if n_missing else "")


def _fingerprint(hashes: Sequence[str] | None, noun: str) -> str | None:
    """Return a hash of several hashes."""
    if not hashes:
        return None
    joined = "\n".join(hashes).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(joined, digest_size=8).hexdigest()
    return f"{plural(len(hashes), noun)}, fingerprint {digest}"


def short_path(path: str) -> str:
    """Return a file with the name of its folder, without the folders above.

    Examples
    --------
    >>> short_path("/home/me/runs/phi/samples_aime.jsonl")
    'phi/samples_aime.jsonl'
    """
    parts = PurePath(path).parts
    return "/".join(parts[-2:]) if parts and not parts[-1].startswith("/") else path
