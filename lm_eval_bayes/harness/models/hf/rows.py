"""One trial while its tokens are drawn, and what is told of it when it has ended."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.hf.gumbel_max import Keys
from lm_eval_bayes.harness.models.hf.stops import StopFinder
from lm_eval_bayes.harness.models.trial_request import Order, Sampled


class Row:
    """One trial's tokens, until the end of the sequence, a stop string or the length.

    Parameters
    ----------
    order : Order
        What is asked.
    prompt : list of int
        The prompt's tokens, as the model gets them.
    cut : bool
        Whether the prompt had to be cut for that.
    limit : int
        How many tokens it may have.
    ends : mapping
        Tokens that end a sequence, each with the stop_reason that it is.
    finder : StopFinder
        Finds stop strings.
    """

    def __init__(
        self,
        order: Order,
        prompt: list[int],
        cut: bool,
        limit: int,
        ends: Mapping[int, int | None],
        finder: StopFinder,
    ) -> None:
        self.order, self.prompt, self.cut = order, prompt, cut
        self._limit, self._ends, self._finder = limit, ends, finder
        self.start_over()

    def start_over(self) -> None:
        """Forget all tokens; the same seed will draw the same ones."""
        self.tokens: list[int] = []
        self.logprobs: list[float] | None = []
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.started = self.ended = 0.0
        self.concurrency: int | None = None
        self._keys = Keys(self.order.seed)
        self._checked = 0

    def next_key(self) -> int:
        """Return the random number that draws the next token."""
        return next(self._keys)

    def take(self, token: int, logprob: float) -> bool:
        """Append a token; tell whether the trial has ended."""
        if math.isnan(logprob):
            raise ModelConfigError(
                "the model's logits are not numbers (NaN); with dtype=float16 an overflow does "
                "that, and dtype=bfloat16 or dtype=float32 helps"
            )
        self.tokens.append(token)
        if self.logprobs is not None:
            self.logprobs.append(logprob)
        return self.settle()

    def settle(self, over: bool = False) -> bool:
        """Look for a stop string where it is time to, and tell whether the trial has ended.

        With `over` there will be no more tokens.
        """
        size = len(self.tokens)
        full = over or size >= self._limit
        at_end_token = size > 0 and self.tokens[-1] in self._ends
        if at_end_token or full or size - self._checked >= self._finder.every:
            # the end token's own text is no stop string of the task
            found = self._finder.find(self.tokens[: size - at_end_token], self._checked)
            self._checked = size
            if found is not None:
                self._end("stop", found[1])
                self._keep(found[0])
                return True
        if at_end_token:
            self._end("stop", self._ends[self.tokens[-1]])
        elif full:
            self._end("length", None)
        return self.finish_reason is not None

    def _end(self, finish_reason: str, stop_reason: str | int | None) -> None:
        self.finish_reason, self.stop_reason = finish_reason, stop_reason
        self.ended = time.perf_counter()

    def _keep(self, count: int) -> None:
        del self.tokens[count:]
        if self.logprobs is not None:
            del self.logprobs[count:]


def sampled(row: Row, lm: Any, asked: float, prompt_bpt: float | None) -> Sampled:
    """Return what a finished row is kept as.

    Parameters
    ----------
    row : Row
        A trial that has ended.
    lm : HFLM
        For its tokenizer and its think token.
    asked : float
        When it was asked for, by `time.perf_counter`.
    prompt_bpt : float or None
        The bits of the prompt, where this trial brings them.
    """
    text = str(lm.tok_decode(row.tokens))
    signals: dict[str, Any] = {"prompt_truncated": row.cut}
    if row.logprobs:
        signals["completion_bpt"] = bits_per_token(row.logprobs)
    think = lm.think_end_token
    if isinstance(think, int):
        text, at = answer_at(row.tokens, think, text, lm.tok_decode)
        signals["think_closed"] = at is not None
        if at is not None:
            signals["answer_at"] = at
    elif think:
        signals["think_closed"] = think in lm.tok_decode(row.tokens, skip_special_tokens=False)
    return Sampled(
        text,
        signals,
        prompt_tokens=len(row.prompt),
        completion_tokens=len(row.tokens),
        finish_reason=row.finish_reason,
        stop_reason=row.stop_reason,
        queued_s=row.started - asked,
        generated_s=row.ended - row.started,
        concurrency=row.concurrency,
        prompt_signals=None if prompt_bpt is None else {"prompt_bpt": prompt_bpt},
    )


def bits_per_token(logprobs: list[float]) -> float:
    """Return the negative mean of natural log-probabilities, in bits.

    Examples
    --------
    >>> bits_per_token([math.log(0.5), math.log(0.125)])
    2.0
    """
    return -math.fsum(logprobs) / (len(logprobs) * math.log(2)) + 0.0


def answer_at(tokens: list[int], think: int, text: str, decode: Any) -> tuple[str, int | None]:
    """Find where, in characters, the text after the last think token begins.

    Returns
    -------
    (str, int or None)
        The raw text, and the place; None without a think token. The harness decodes what
        follows the token alone, and takes off leading white space; in the rare case that this
        is not how the whole text ends, the raw text becomes the two parts decoded apart.
    """
    if think not in tokens:
        return text, None
    after = len(tokens) - tokens[::-1].index(think)
    answer = str(decode(tokens[after:])).lstrip()
    if text.endswith(answer):
        return text, len(text) - len(answer)
    before = str(decode(tokens[:after]))
    return before + answer, len(before)
