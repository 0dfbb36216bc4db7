"""Traces of verifiers 0.4: `traces.jsonl`, one line per episode.

The traces of the agents of an episode are trials of its task, each of the model of its agent; where
some agents are trained, only theirs. One that ended in an error has no score, and does not count,
as in the mean reward that verifiers shows first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes.runs.log_fields import lookup, mapping, mappings, number
from lm_eval_bayes.runs.readers.json_files import name_of, score_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial, begins_with, call_settings
from lm_eval_bayes.runs.readers.trial_texts import last_message
from lm_eval_bayes.runs.task_run import Provenance

#: Whether a file is one of episodes.
is_mine = begins_with("env", "task", "traces")


def read(file: Path, query: Query) -> FileContents:
    """Read the traces of a file."""
    return ToolLog(file, query, _trials).contents("verifiers")


def _trials(episode: Mapping[str, Any]) -> Iterator[Trial]:
    """Yield the traces of an episode, those of trained agents only where there are any."""
    traces = mappings(episode.get("traces"))
    trained = [trace for trace in traces if lookup(trace, "agent", "trainable") is True]
    for trace in trained or traces or [{}]:
        task = mapping(trace, "task") or mapping(episode, "task")
        data, config = mapping(task, "data"), mapping(trace, "agent", "config")
        version = name_of(lookup(trace, "verifiers", "version"))
        is_complete = trace.get("ok") is True
        yield Trial(
            model=name_of(config.get("model")),
            task=name_of(lookup(episode, "env", "id")),
            run=name_of(lookup(episode, "run", "name")) or name_of(lookup(episode, "run", "id")),
            question=_question(task, data),
            key=name_of(trace.get("id")),
            scores=_scores(trace) if is_complete else {},
            error="" if is_complete else "an error",
            text=last_message(data.get("prompt")),
            document=data,
            tokens=trace.get("num_output_tokens"),
            time=number(lookup(trace, "timing", "agent", "model", "duration")),
            reply=_replies(trace),
            right=data.get("answer"),
            provenance=Provenance(
                generation_kwargs=call_settings(config.get("sampling")),
                date=number(lookup(trace, "timing", "scoring", "end")),
                versions={"verifiers": version} if version else {},
            ),
        )


def _question(task: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the id of a task's source, its key, or its place in the taskset."""
    key = name_of(task.get("key"))
    if key == name_of(task.get("hash")):  # of the content
        key = key[:16]
    return name_of(data.get("id")) or key or name_of(data.get("idx"))


def _scores(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reward of a trace, its parts without their weights, and its metrics."""
    rewards = {name_of(k): mapping(v) for k, v in mapping(trace, "rewards").items()}
    parts = {name: score_of(reward.get("score")) for name, reward in rewards.items()}
    metrics = {name_of(k): score_of(v) for k, v in mapping(trace, "metrics").items()}
    weights = {name: number(part.get("weight", 1.0)) or 0.0 for name, part in rewards.items()}
    terms = [(parts[name], weight) for name, weight in weights.items() if weight]
    unknown = any(part is None for part, _ in terms)
    reward = None if unknown else sum((part or 0.0) * weight for part, weight in terms)
    further = {k: v for k, v in {**metrics, **parts}.items() if k not in ("", "reward")}
    return {"reward": reward} | {k: v for k, v in further.items() if v is not None}


def _replies(trace: Mapping[str, Any]) -> list[Any]:
    """Return the messages from the first that was sampled on."""
    nodes = mappings(trace.get("nodes"))
    first = next((n for n, node in enumerate(nodes) if node.get("sampled") is True), len(nodes))
    return [node.get("message") for node in nodes[first:]]
