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
    """Finds the token that first completes a stop string.

    Text is decoded with special tokens, as the harness does for stop strings.

    Parameters
    ----------
    stops : sequence of str
        The stop strings; empty ones never match.
    decode : callable
        Token ids to text, special tokens included.
    every : int
        Number of new tokens between two searches; tokens after the stop are dropped.
    """

    def __init__(
        self, stops: Sequence[str], decode: Callable[[Sequence[int]], str], every: int = 4
    ) -> None:
        self.stops = tuple(dict.fromkeys(s for s in stops if s))
        self.every = every
        self._decode = decode
        longest = max((len(s.encode("utf-8", "surrogatepass")) for s in self.stops), default=0)
        # A token may be one byte; the margin excludes characters that the cut may damage.
        self._look_back = longest + 8

    def find(self, tokens: Sequence[int], checked: int = 0) -> tuple[int, str] | None:
        """Find the first stop.

        Parameters
        ----------
        tokens : sequence of int
            A completion's tokens.
        checked : int
            The number of first tokens that contain no stop string.

        Returns
        -------
        (int, str) or None
            The number of tokens up to and including the one that completes a stop string, and
            that string; if one token completes several, the one that begins first.
        """
        if not self.stops or len(tokens) <= checked:
            return None
        recent = self._decode(tokens[max(0, checked - self._look_back) :])
        if not self._among(recent) or not self._among(self._decode(tokens)):
            return None
        without, having = checked, len(tokens)
        while having - without > 1:
            middle = (without + having) // 2
            if self._among(self._decode(tokens[:middle])):
                having = middle
            else:
                without = middle
        text = self._decode(tokens[:having])
        matches = self._among(text) or self.stops
        return having, min(matches, key=lambda s: (text.find(s), -len(s)))

    def _among(self, text: str) -> list[str]:
        return [s for s in self.stops if s in text]


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

    def start(self) -> None:
        """Begin without tokens; the same seed draws the same ones again."""
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.started = self.ended = time.perf_counter()
        self._checked = 0

    def take(self, token: int, logprob: float) -> bool:
        """Append a token; search for a stop string when it is due; return whether it has ended."""
        if math.isnan(logprob):
            sentence = (
                "the model's logits are not numbers (NaN); with dtype=float16 an overflow does "
                "that, and dtype=bfloat16 or dtype=float32 helps"
            )
            raise ModelConfigError(sentence, "range", "logits", logprob)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        size = len(self.tokens)
        full, at_end_token = size >= self.limit, token in self.ends
        if not (at_end_token or full or size - self._checked >= self.finder.every):
            return False
        # The end token's text is not a stop string of the task.
        match = self.finder.find(self.tokens[: size - at_end_token], self._checked)
        self._checked = size
        if match is not None:
            count, self.stop_reason = match
            del self.tokens[count:], self.logprobs[count:]
        elif at_end_token:
            self.stop_reason = self.ends[token]
        elif not full:
            return False
        self.finish_reason = "stop" if match is not None or at_end_token else "length"
        self.ended = time.perf_counter()
        return True


def read_trial(
    row: Row, lm: Any, requested: float, concurrency: int, prompt_bpt: float | None
) -> Trial:
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
    prompt_bpt : float or None
        The bits of the prompt, if they were measured with this trial.
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
    if prompt_bpt is not None:
        signals["prompt_bpt"] = prompt_bpt
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
