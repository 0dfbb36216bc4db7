"""What vLLM tells of a finished request, in the words of a trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.harness.models.trial_request import Order, Sampled
from lm_eval_bayes.harness.models.vllm.engine import Finished

_BITS = 1.0 / math.log(2.0)


@dataclass(frozen=True, eq=False)
class Asked:
    """What a request of the engine was for.

    Attributes
    ----------
    order : Order
        The trial.
    truncated : bool
        Whether its prompt had to be cut.
    measures : bool
        Whether it brings the prompt's own bits.
    """

    order: Order
    truncated: bool
    measures: bool


def measured(finished: Finished, think_end: str | None) -> Sampled:
    """Return what was measured of a trial.

    Parameters
    ----------
    finished : Finished
        With an `Asked` as its label.
    think_end : str or None
        The text that closes a think block, if the model has one.
    """
    asked, output = finished.label, finished.output
    completion, tokens = output.outputs[0], list(output.prompt_token_ids)
    signals: dict[str, Any] = {
        "completion_bpt": completion_bits(completion),
        "prompt_truncated": asked.truncated,
    }
    if think_end:
        signals["think_closed"] = think_end in completion.text
    queued, generated = times(finished)
    return Sampled(
        text=completion.text,
        signals=signals,
        prompt_tokens=len(tokens),
        completion_tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        queued_s=queued,
        generated_s=generated,
        concurrency=finished.concurrency,
        prompt_signals=(
            {"prompt_bpt": prompt_bits(output.prompt_logprobs, tokens)} if asked.measures else None
        ),
    )


def completion_bits(output: Any) -> float | None:
    """Return the mean bits a sampled token cost the untempered model.

    Parameters
    ----------
    output : CompletionOutput
        vLLM's, sampled with `logprobs`.

    Returns
    -------
    float or None
        None without tokens.
    """
    total, count = output.cumulative_logprob, len(output.token_ids)
    return _bits(-float(total), count) if total is not None else None


def prompt_bits(logprobs: Any, tokens: Sequence[int]) -> float | None:
    """Return the mean bits a prompt's token cost the model, without the first, which has none.

    Parameters
    ----------
    logprobs : FlatLogprobs or list of dict
        vLLM's, one entry a token of the prompt; the first holds nothing.
    tokens : sequence of int
        The prompt.

    Returns
    -------
    float or None
        None if there is no second token.
    """
    flat = getattr(logprobs, "logprobs", None)
    if flat is not None:
        # the prompt's own token comes first in each entry
        values = [flat[start] for start in logprobs.start_indices[1:]]
    else:
        pairs = zip(list(logprobs)[1:], tokens[1:], strict=True)
        values = [getattr(entry[token], "logprob", entry[token]) for entry, token in pairs]
    return _bits(-math.fsum(values), len(values))


def _bits(nats: float, count: int) -> float | None:
    bits = nats * _BITS / count if count else math.nan
    return bits if math.isfinite(bits) else None


def times(finished: Finished) -> tuple[float | None, float | None]:
    """Return how long a request waited and how long it ran, in seconds.

    vLLM keeps such times if its statistics are on, by the same monotonic clock. Otherwise
    nothing is known of the wait, and all the time since submission counts as running.

    Parameters
    ----------
    finished : Finished
        Without times of its own for a call that answers all at once: nothing is known then.
    """
    metrics = getattr(finished.output, "metrics", None)
    start = float(getattr(metrics, "scheduled_ts", 0.0) or 0.0)
    stop = float(getattr(metrics, "last_token_ts", 0.0) or 0.0)
    if finished.submitted is None or finished.ended is None:
        return None, None
    if finished.submitted - 1.0 <= start <= stop <= finished.ended + 1.0:
        return max(0.0, start - finished.submitted), stop - start
    return None, finished.ended - finished.submitted
