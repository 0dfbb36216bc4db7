"""Responses of transformers, read as trials with their signals.

A response grows token by token in a :class:`Row`, until a :class:`StopFinder` finds its end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.interface import TrialRequest, bits_per_token
from lm_eval_bayes.store.trial import Trial


class StopFinder:
    """Finds the stop string that the last of some tokens completes.

    Text is decoded with special tokens, as the harness does for stop strings.

    Parameters
    ----------
    stops : sequence of str
        The stop strings; empty ones never match.
    decode : callable
        Token ids to text, special tokens included.
    """

    def __init__(self, stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        self.stops = tuple(dict.fromkeys(s for s in stops if s))
        self._decode = decode
        longest = max((len(s.encode("utf-8", "surrogatepass")) for s in self.stops), default=0)
        # A token may be one byte; the margin excludes characters that the cut may damage.
        self._look_back = longest + 8

    def find(self, tokens: Sequence[int]) -> str | None:
        """Return the stop string that occurs in the text, of several the one that begins first."""
        recent = self._decode(tokens[-self._look_back :])
        if not any(stop in recent for stop in self.stops):
            return None
        text = self._decode(tokens)
        found = [stop for stop in self.stops if stop in text]
        return min(found, key=lambda stop: (text.find(stop), -len(stop)), default=None)


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
    ends : mapping
        Tokens that end a sequence, each with its stop_reason.
    finder : StopFinder
        Finds stop strings.
    measures : bool
        Whether the bits of the prompt are measured with it.
    """

    request: TrialRequest
    prompt: list[int]
    cut: bool
    limit: int
    ends: Mapping[int, int | None]
    finder: StopFinder
    measures: bool = False

    def __post_init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.prompt_bpt: float | None = None
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.started = self.ended = 0.0

    def take(self, token: int, logprob: float) -> bool:
        """Append a token; return whether the trial has ended."""
        if math.isnan(logprob):
            sentence = (
                "the model's logits are not numbers (NaN); with dtype=float16 an overflow does "
                "that, and dtype=bfloat16 or dtype=float32 helps"
            )
            raise ModelConfigError(sentence, "range", "logits", logprob)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        # The end token's text is not a stop string of the task.
        at_end_token = token in self.ends
        stop = None if at_end_token else self.finder.find(self.tokens)
        if stop is None and not at_end_token and len(self.tokens) < self.limit:
            return False
        self.stop_reason = self.ends[token] if at_end_token else stop
        self.finish_reason = "stop" if at_end_token or stop is not None else "length"
        self.ended = time.perf_counter()
        return True


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
    if row.logprobs and lm.backend == "causal":
        signals["completion_bpt"] = bits_per_token(row.logprobs)
    if isinstance(think, int):
        signals["think_closed"] = think in row.tokens
        if think in row.tokens:
            # the text has the marker, which a tokenizer leaves out where it is a special token
            at = len(row.tokens) - 1 - row.tokens[::-1].index(think)
            before, after = row.tokens[:at], row.tokens[at + 1 :]
            text = f"{lm.tok_decode(before)}{lm.think_end}{lm.tok_decode(after)}"
    elif think:
        signals["think_closed"] = think in lm.tok_decode(row.tokens, skip_special_tokens=False)
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
