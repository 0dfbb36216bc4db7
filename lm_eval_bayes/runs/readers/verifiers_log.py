"""Results of verifiers: `results.jsonl`, one line per rollout, with `metadata.json` beside it.

The rollouts of an example are the trials of a question. Releases 0.1 and 0.2 write these files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.provenance import generation, mapping, number
from lm_eval_bayes.runs.readers.conversations import last_message, written
from lm_eval_bayes.runs.readers.file_access import sniff_files
from lm_eval_bayes.runs.readers.json_files import (
    chosen_metric,
    clusters_of,
    given_score,
    json_text,
    load_json,
    name_of,
    timestamp,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.tool_settings import call_settings
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, partial_runs, record_key
from lm_eval_bayes.runs.readers.trial_texts import lines_log, one_text
from lm_eval_bayes.runs.task_run import Provenance

#: The score of a rollout, of which metrics are parts or companions.
_REWARD = "reward"

#: Keys of a rollout that are no metrics, in files of releases that write metrics as keys only.
_NO_METRICS = {_REWARD, "example_id", "advantage", "generation_ms", "scoring_ms", "total_ms"}
_NO_METRICS |= {"is_completed", "is_truncated"}


def sniff(path: Path) -> Sniffed | None:
    """Return a file of rollouts, or the files `results.jsonl` in a folder."""
    return sniff_files(path, _has_rollouts, "results.jsonl")


def _has_rollouts(file: Path) -> bool:
    first = (first_line(file) if plain_name(file).suffix == ".jsonl" else None) or {}
    return {"example_id", _REWARD, "prompt", "completion"} <= first.keys()


def read(file: Path, query: Query) -> FileContents:
    """Read the rollouts of a file.

    One that ended in an error counts by its reward, which is 0 then, as in the `avg_reward` of
    verifiers.

    Raises
    ------
    InvalidInputError
        If a line or the metadata cannot be read, or the query names a metric that there is not.
    """
    metadata = _metadata(file, query)
    environment, model = _names(file, metadata)
    task = environment or query.task or ""
    if task and query.task not in (None, task):
        return FileContents((), (task,))
    lines = JsonLines(file, query.argument, query.advance)
    rollouts = [_kept(row) for row in lines]
    names = [_REWARD, *_metrics(rollouts)]
    metric, notes = chosen_metric(names, query, file, "metric")
    columns = _columns(rollouts, metric, file, query)
    columns.model, columns.task = model, environment
    columns.texts = lines_log(lines, _texts)
    n_errors = sum(bool(row["error"]) for row in rollouts)
    if n_errors:
        ended = plural(n_errors, "trial") + " ended in an error"
        notes += (f"{ended}, and counted by the {metric}, as in verifiers' own means",)
    settings = generation(_sent(metadata))
    arguments = metadata.get("env_args")
    if isinstance(arguments, Mapping) and arguments:
        settings["env_args"] = hash_text(json_text(arguments))
    threshold = number(metadata.get("pass_threshold"))
    started = number(mapping(rollouts[0]["timing"]).get("start_time")) if rollouts else None
    runs = partial_runs(
        columns,
        file,
        query,
        metric=metric,
        source="" if started is None else f"{environment} {model} {started!r}",
        notes=notes,
        provenance=_provenance(metadata),
        settings=settings,
        threshold=threshold if metric == _REWARD else None,
    )
    tasks = tuple(dict.fromkeys(run.task for run in runs))
    return FileContents(runs, tasks, warnings=lines.warnings)


def _metadata(file: Path, query: Query) -> Mapping[str, Any]:
    beside = file.with_name("metadata.json")
    if file.name.startswith("results.jsonl") and beside.is_file():
        content = load_json(beside, query)
        if not isinstance(content, dict):
            rule = f"have an object in {beside.name}"
            raise InvalidInputError.of(query.argument, "type", rule, f"something else ({beside})")
        return content
    return {}


def _names(file: Path, metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the environment and the model, by the folder ENVIRONMENT--MODEL/RUN if need be."""
    environment, model = name_of(metadata.get("env_id")), name_of(metadata.get("model"))
    parts = file.absolute().parent.parent.name.split("--")
    if file.name.startswith("results.jsonl") and len(parts) > 1:
        return environment or parts[0], model or "/".join(parts[1:])
    return environment, model


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed of a rollout, without its texts."""
    metrics = row.get("metrics")
    if not isinstance(metrics, Mapping):
        metrics = {key: value for key, value in row.items() if key not in _NO_METRICS}
    numeric = {
        name_of(key): value for key, value in metrics.items() if isinstance(value, (int, float))
    }
    return {
        **{key: row.get(key) for key in ("example_id", "timing", "error", "info")},
        "metrics": {**numeric, _REWARD: row.get(_REWARD, 0.0)},
        "record": record_key(row),
        "prompt": last_message(row.get("prompt")),
        "tokens": mapping(row.get("token_usage")).get("output_tokens"),
    }


def _texts(row: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return the completion of a rollout, and the right answer."""
    return one_text(written(row.get("completion")), row.get("answer"))


def _metrics(rollouts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the metrics, in the order in which they occur."""
    names = dict.fromkeys(name for row in rollouts for name in row["metrics"])
    return [name for name in names if name not in ("", _REWARD)]


def _columns(
    rollouts: Sequence[Mapping[str, Any]], metric: str, file: Path, query: Query
) -> TrialColumns:
    questions = [name_of(row["example_id"]) for row in rollouts]
    return TrialColumns(
        question=questions,
        score=[
            given_score(row["metrics"].get(metric), f"{metric} of example {id}", file, query)
            for id, row in zip(questions, rollouts, strict=True)
        ],
        records=[row["record"] for row in rollouts],
        text=[row["prompt"] for row in rollouts],
        measured={
            "tokens": [row["tokens"] for row in rollouts],
            "time": [_seconds(row["timing"]) for row in rollouts],
        },
        cluster=clusters_of(
            (_info(row["info"]) for row in rollouts), query, "`info` of the examples"
        ),
    )


def _info(info: object) -> Mapping[str, Any]:
    """Return the fields of an example; datasets may hold them as JSON."""
    if isinstance(info, str):
        try:
            return mapping(json.loads(info))
        except (ValueError, RecursionError):
            return {}
    return mapping(info)


def _seconds(timing: object) -> float | None:
    """Return the time of the model, else that of the whole generation."""
    for part in ("model", "generation"):
        seconds = number(mapping(mapping(timing).get(part)).get("duration"))
        if seconds is not None:
            return seconds
    milliseconds = number(mapping(timing).get("generation_ms"))
    return None if milliseconds is None else milliseconds / 1000


def _sent(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generation settings, those of the body of the request too."""
    given = mapping(metadata.get("sampling_args"))
    return call_settings({**mapping(given.get("extra_body")), **given})


def _provenance(metadata: Mapping[str, Any]) -> Provenance:
    version = name_of(mapping(metadata.get("version_info")).get("vf_version"))
    return Provenance(
        generation_kwargs=_sent(metadata),
        date=timestamp(metadata.get("date")),
        versions={"verifiers": version} if version else {},
        seconds=number(metadata.get("time")),
    )
