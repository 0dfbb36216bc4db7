"""Responses of transformers, read as trials with their signals.

A response grows token by token in a :class:`Row`, until its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.interface import TrialRequest, bits_per_token
from lm_eval_bayes.store.trial import Trial


def find_stop(
    tokens: Sequence[int], stops: Sequence[str], decode: Callable[[Sequence[int]], str]
) -> str | None:
    """Return the stop string that the last of some tokens completes.

    Parameters
    ----------
    tokens : sequence of int
        Those before the last complete none.
    stops : sequence of str
        Empty ones never match. Of several that match, the one that begins first is returned.
    decode : callable
        Token ids to text, special tokens included, as the harness does for stop strings.
    """
    longest = max((len(stop.encode(errors="replace")) for stop in stops), default=0)
    # A token may be one byte; the margin excludes characters that the cut may damage.
    text = decode(tokens[-longest - 8 :])
    matches = [stop for stop in stops if stop and stop in text]
    return min(matches, key=lambda stop: (text.find(stop), -len(stop)), default=None)


@dataclass(eq=False)
class Row:
    """One trial's tokens, until the end of the sequence, a stop string or the length.

    Attributes
    ----------
    request : TrialRequest
        The trial.
    prompt : list of int
        The prompt's tokens, as the model gets them.
    cut : bool
        Whether the prompt was truncated.
    limit : int
        The maximal number of tokens.
    stops : sequence of str
        The strings that end it.
    prompt_bpt : float or None
        The bits per token of the prompt, if they are measured with it.
    """

    request: TrialRequest
    prompt: list[int]
    cut: bool
    limit: int
    stops: Sequence[str]
    prompt_bpt: float | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    started: float = 0.0
    ended: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the trials of a batch share."""
        kwargs = self.request.kwargs
        return {k: v for k, v in kwargs.items() if k not in ("until", "max_gen_toks")}

    def take(self, token: int, logprob: float, lm: Any) -> bool:
        """Append a token; return whether the trial has ended."""
        if math.isnan(logprob):
            rule = "be numbers (dtype=float16 may overflow to NaN; bfloat16 and float32 do not)"
            raise ModelConfigError.of("logits", "range", rule, logprob)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in lm.ends:
            self.finish_reason, self.stop_reason = "stop", lm.ends[token]
        elif stop := find_stop(self.tokens, self.stops, lm.decode):
            self.finish_reason, self.stop_reason = "stop", stop
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"
        self.ended = time.perf_counter()
        return self.finish_reason is not None


def read_trial(row: Row, lm: Any, requested: float, concurrency: int) -> Trial:
    """Return the trial of a finished row, with its measurements.

    Parameters
    ----------
    row : Row
        A trial that has ended.
    lm : HFSampling
        The backend, for its tokenizer and think token.
    requested : float
        When it was requested, by `time.perf_counter`.
    concurrency : int
        The number of rows at its end, this one included, that had not ended before.
    """
    text, think = str(lm.tok_decode(row.tokens)), lm.think_end_token
    signals: dict[str, Any] = {"prompt_truncated": row.cut}
    if not lm.cannot_record:
        signals["completion_bpt"] = bits_per_token(row.logprobs)
    if isinstance(think, int):
        signals["think_closed"] = think in row.tokens
        if think in row.tokens:
            # the text has the marker, which a tokenizer leaves out where it is a special token
            at = len(row.tokens) - row.tokens[::-1].index(think)
            text = lm.think_end.join(map(lm.tok_decode, (row.tokens[: at - 1], row.tokens[at:])))
    elif think:
        signals["think_closed"] = think in lm.decode(row.tokens)
    if row.prompt_bpt is not None:
        signals["prompt_bpt"] = row.prompt_bpt
    return row.request.result(
        text,
        signals=signals,
        prompt_tokens=len(row.prompt),
        completion_tokens=len(row.tokens),
        finish_reason=row.finish_reason,
        stop_reason=row.stop_reason,
        queued_s=row.started - requested,
        generated_s=row.ended - row.started,
        concurrency=concurrency,
    )
