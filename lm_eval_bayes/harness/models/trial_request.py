"""What is asked of a sampling backend, and what it gives back: one trial at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Order:
    """One trial that is to be generated.

    Attributes
    ----------
    place : int
        Where its text goes in what the harness gets back.
    context : object
        The prompt as the harness hands it to the backend: a string, or a named tuple around
        the JSON of a chat's messages.
    request : Instance
        The harness's request.
    prompt : str
        The prompt's text.
    trial : int
        The trial's number among those of its prompt, from 0.
    seed : int
        The seed of this trial.
    kwargs : mapping
        Generation settings, all explicit: temperature, top_p, top_k (0: all), min_p, until,
        max_gen_toks, do_sample; and whatever else the task gave.
    """

    place: int
    context: Any
    request: Any
    prompt: str
    trial: int
    seed: int
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Sampled:
    """What a backend gave for one order, before anything is cut off.

    Attributes
    ----------
    text : str
        The raw text.
    signals : mapping
        What was measured: ``completion_bpt`` (negative mean log-probability of the sampled
        tokens under the untempered model, in bits per token), ``think_closed`` (whether the
        think block was closed; only with a think token), ``prompt_truncated``.
    prompt_tokens, completion_tokens : int or None
        Token counts, the completion's with its end-of-sequence token.
    finish_reason : str or None
        "stop", "length", or the backend's own word.
    stop_reason : str, int or None
        The stop string or token that ended it; None for the end of the sequence.
    queued_s, generated_s : float or None
        Seconds from submission to start, and from start to end.
    concurrency : int or None
        Requests under way when it ended, itself included.
    prompt_signals : mapping or None
        ``prompt_bpt``, where this trial was chosen to measure its prompt.
    """

    text: str
    signals: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    queued_s: float | None = None
    generated_s: float | None = None
    concurrency: int | None = None
    prompt_signals: Mapping[str, Any] | None = None
