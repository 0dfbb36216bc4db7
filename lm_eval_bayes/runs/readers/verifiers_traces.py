"""Traces of verifiers 0.4: `traces.jsonl`, one line per episode.

The traces of the agents of an episode are trials of its task, each of the model of its agent; where
some agents are trained, only theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.provenance import generation, mapping, number
from lm_eval_bayes.runs.readers.conversations import written
from lm_eval_bayes.runs.readers.file_access import sniff_files
from lm_eval_bayes.runs.readers.json_files import (
    chosen_metric,
    json_text,
    last_message,
    name_of,
    score_of,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.tool_settings import call_settings
from lm_eval_bayes.runs.readers.trial_columns import (
    TrialRow,
    columns_of,
    partial_runs,
    record_key,
)
from lm_eval_bayes.runs.readers.trial_texts import lines_log, one_text, place
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun

#: The weighted sum of the rewards of a trace.
_REWARD = "reward"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trace(TrialRow):
    """A trace, with its run, its scores by name, how it was sampled, by what, and its end."""

    run: str
    scores: Mapping[str, float]
    sampling: Mapping[str, Any]
    version: str
    ended: float | None
    place: int


def sniff(path: Path) -> Sniffed | None:
    """Return a file of episodes, or the files `traces.jsonl` in a folder."""
    return sniff_files(path, _has_episodes, "traces.jsonl")


def _has_episodes(file: Path) -> bool:
    first = (first_line(file) if plain_name(file).suffix == ".jsonl" else None) or {}
    return {"env", "task", "traces"} <= first.keys() and isinstance(first["traces"], list)


def read(file: Path, query: Query) -> FileContents:
    """Read the traces of a file.

    One that ended in an error does not count, as in the mean reward that verifiers shows first.

    Raises
    ------
    InvalidInputError
        If a line cannot be read, or the query names a metric that there is not.
    """
    lines = JsonLines(file, query.argument, query.advance)
    traces = [
        trace for record, episode in enumerate(lines) for trace in _traces(episode, record, query)
    ]
    texts = lines_log(lines, _texts)
    tasks = tuple(dict.fromkeys(trace.task for trace in traces))
    wanted = [trace for trace in traces if query.task in (None, trace.task or query.task)]
    if traces and not wanted:
        return FileContents((), tasks, warnings=lines.warnings)
    names = dict.fromkeys(name for trace in wanted for name in trace.scores)
    listed = [_REWARD, *(name for name in names if name not in ("", _REWARD))]
    metric, notes = chosen_metric(listed, query, file, "metric")
    groups: dict[tuple[str, ...], list[_Trace]] = {}
    for trace in wanted:
        sampled = json_text(generation(trace.sampling))
        groups.setdefault((trace.run, sampled), []).append(trace)
    runs: list[PartialRun] = []
    for group in groups.values() or [[]]:
        runs += _runs(group, metric, notes, texts, file, query)
    tasks = tuple(dict.fromkeys(run.task for run in runs))
    return FileContents(runs, tasks, warnings=lines.warnings)


def _counted(episode: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the traces of an episode, those of trained agents only where there are any."""
    listed = episode.get("traces")
    traces = [mapping(trace) for trace in (listed if isinstance(listed, list) else ())]
    trained = [trace for trace in traces if mapping(trace.get("agent")).get("trainable") is True]
    return trained or traces or [{}]


def _task(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(trace.get("task")) or mapping(episode.get("task"))


def _texts(episode: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return what was written in every trace, and the right answers."""
    return [
        text
        for trace in _counted(episode)
        for text in one_text(
            written(_replies(trace.get("nodes"))),
            mapping(_task(trace, episode).get("data")).get("answer"),
        )
    ]


def _replies(nodes: object) -> list[Any]:
    """Return the messages from the first that was sampled to the last one.

    Messages are the nodes of trees; a node names the one before it.
    """
    listed = [mapping(node) for node in nodes] if isinstance(nodes, list) else []
    path: list[int] = [len(listed) - 1] if listed else []
    while path and type(before := listed[path[-1]].get("parent")) is int:
        if not 0 <= before < path[-1]:
            break
        path.append(before)
    branch = [listed[number] for number in reversed(path)]
    first = next((i for i, node in enumerate(branch) if node.get("sampled") is True), len(branch))
    return [node.get("message") for node in branch[first:]]


def _traces(episode: Mapping[str, Any], record: int, query: Query) -> Iterator[_Trace]:
    """Yield the traces of an episode that count."""
    run = mapping(episode.get("run"))
    for number_of, trace in enumerate(_counted(episode)):
        task = _task(trace, episode)
        data, config = mapping(task.get("data")), mapping(mapping(trace.get("agent")).get("config"))
        timing = mapping(trace.get("timing"))
        failed = trace.get("ok") is not True
        yield _Trace(
            model=name_of(config.get("model")),
            task=name_of(mapping(episode.get("env")).get("id")),
            run=name_of(run.get("name")) or name_of(run.get("id")),
            question=next((name for name in _question(task, data) if name), ""),
            scores={} if failed else _scores(trace),
            failed=failed,
            text=last_message(data.get("prompt")),
            document=data if query.cluster else {},
            tokens=trace.get("num_output_tokens"),
            time=number(mapping(mapping(timing.get("agent")).get("model")).get("duration")),
            sampling=call_settings(config.get("sampling")),
            version=name_of(mapping(trace.get("verifiers")).get("version")),
            ended=number(mapping(timing.get("scoring")).get("end")),
            place=place(record, number_of),
            key=name_of(trace.get("id")) or record_key((number_of, episode)),
        )


def _question(task: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what may identify a task: the id of its source, its key, its place in the taskset."""
    yield name_of(data.get("id"))
    key = name_of(task.get("key"))
    yield key[:16] if key == name_of(task.get("hash")) else key  # a hash of the content
    yield name_of(data.get("idx"))


def _scores(trace: Mapping[str, Any]) -> dict[str, float]:
    """Return the reward of a trace, its parts without their weights, and its metrics."""
    rewards = {name_of(k): mapping(v) for k, v in mapping(trace.get("rewards")).items()}
    parts = {name: score_of(reward.get("score")) for name, reward in rewards.items()}
    weights = {name: number(reward.get("weight", 1.0)) for name, reward in rewards.items()}
    metrics = {name_of(k): score_of(v) for k, v in mapping(trace.get("metrics")).items()}
    scores = {k: v for k, v in {**metrics, **parts}.items() if v is not None}
    total = sum((scores[k] * (w or 0.0) for k, w in weights.items() if k in scores), 0.0)
    return {**scores, _REWARD: total if math.isfinite(total) else math.nan}


def _runs(
    traces: Sequence[_Trace],
    metric: str,
    notes: tuple[str, ...],
    texts: TextLog,
    file: Path,
    query: Query,
) -> list[PartialRun]:
    """Return the runs of the traces of one run and one setting."""
    n_failed = sum(trace.failed for trace in traces)
    if n_failed and query.unscored == "left-out":
        ended = plural(n_failed, "trial") + " ended in an error"
        notes += (f"{ended}, and did not count, as in the mean reward of verifiers",)
    columns = columns_of(
        traces,
        [trace.scores.get(metric, math.nan) for trace in traces],
        query,
        f"the tasks in {file.name}",
        texts=texts,
        places=[trace.place for trace in traces],
    )
    sampling = traces[0].sampling if traces else {}
    ends = [trace.ended for trace in traces if trace.ended is not None]
    versions = {"verifiers": traces[0].version} if traces and traces[0].version else {}
    provenance = Provenance(
        generation_kwargs=sampling, date=max(ends, default=None), versions=versions
    )
    return partial_runs(
        columns,
        file,
        query,
        metric=metric,
        source=traces[0].run if traces else "",
        notes=notes,
        provenance=provenance,
        settings=generation(sampling),
    )
