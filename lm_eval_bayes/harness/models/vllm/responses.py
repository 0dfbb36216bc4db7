"""Responses of vLLM's engine, read as trials with their signals."""

from __future__ import annotations

from typing import Any

from lm_eval_bayes.harness.models.interface import bits_per_token
from lm_eval_bayes.harness.models.vllm.engine import EngineOutput
from lm_eval_bayes.store.trial import Trial


def read_trial(finished: EngineOutput, think_end: str | None) -> Trial:
    """Return the trial of a finished request, with its signals.

    Parameters
    ----------
    finished : EngineOutput
        The request and its output.
    think_end : str or None
        The text that closes a think block, if the model has one.
    """
    request, output = finished.request, finished.output
    completion, tokens = output.outputs[0], list(output.prompt_token_ids)
    signals: dict[str, Any] = {
        "completion_bpt": bits_per_token(
            [completion.cumulative_logprob], len(completion.token_ids)
        ),
        "prompt_truncated": request.truncated,
    }
    if think_end:
        signals["think_closed"] = think_end in completion.text
    if request.measures_prompt:
        signals["prompt_bpt"] = prompt_bits(output.prompt_logprobs)
    queued, generated = times(finished)
    return request.trial_request.result(
        completion.text,
        signals=signals,
        prompt_tokens=len(tokens),
        completion_tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        queued_s=queued,
        generated_s=generated,
        concurrency=finished.concurrency,
    )


def prompt_bits(logprobs: Any) -> float | None:
    """Return the negative mean log-probability of a prompt's tokens after the first, in bits.

    Parameters
    ----------
    logprobs : FlatLogprobs
        vLLM's, one entry per token of the prompt; the first entry is empty.

    Returns
    -------
    float or None
        None if the prompt has one token.
    """
    # The prompt's own token is the first of each entry.
    return bits_per_token([logprobs.logprobs[start] for start in logprobs.start_indices[1:]])


def times(finished: EngineOutput) -> tuple[float | None, float]:
    """Return how long a request waited and how long it ran, in seconds.

    vLLM records these times with its statistics, by the same monotonic clock. Without them the
    waiting time is None, and all the time since submission counts as running.
    """
    metrics = getattr(finished.output, "metrics", None)
    start = float(getattr(metrics, "scheduled_ts", 0.0) or 0.0)
    stop = float(getattr(metrics, "last_token_ts", 0.0) or 0.0)
    if finished.submitted - 1.0 <= start <= stop <= finished.ended + 1.0:
        return max(0.0, start - finished.submitted), stop - start
    return None, finished.ended - finished.submitted
