"""One trial at a time through transformers' own `generate`, for what the token loop cannot do.

That is encoder-decoder models, models with a past of their own kind, and generation settings
beyond temperature, top_k, top_p and min_p.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.hf.generation_config import without_sampling_defaults
from lm_eval_bayes.harness.models.hf.rows import Row, bits_per_token


def generate_one(
    lm: Any, row: Row, kwargs: Mapping[str, Any], length: int, stops: list[str]
) -> list[float]:
    """Generate a trial with a seeded global generator, which is put back afterwards.

    Parameters
    ----------
    lm : HFLM
        The backend.
    row : Row
        The trial, without tokens; it has them and has ended afterwards.
    kwargs : mapping
        The settings that `generate` gets.
    length : int
        How many new tokens.
    stops : list of str
        The stop strings.

    Returns
    -------
    list of float
        The log-probabilities of the prompt's tokens after the first; empty where the model is
        no plain causal one, which leaves `row.logprobs` None too.

    Raises
    ------
    TaskConfigError
        If transformers does not take a setting.
    """
    import torch

    said = {k: v for k, v in kwargs.items() if k not in ("until", "max_gen_toks", "seed")}
    causal = lm.backend == "causal"
    ids = torch.tensor([row.prompt], device=lm.device)
    row.started = time.perf_counter()
    devices = [lm.device] if lm.device.type == "cuda" else []
    with (
        torch.no_grad(),
        torch.random.fork_rng(devices=devices),
        without_sampling_defaults(lm.model),
    ):
        torch.manual_seed(row.order.seed)
        try:
            made = lm._model_generate(
                context=ids,
                attention_mask=torch.ones_like(ids),
                stop=list(stops),
                max_length=said.pop("max_length", length + (ids.shape[1] if causal else 1)),
                **said,
            )
        except (TypeError, ValueError) as error:
            raise TaskConfigError(
                f"transformers refuses the generation settings {said}: {error}"
            ) from error
    tokens = made[0].tolist()
    if causal:
        tokens = tokens[ids.shape[1] :]
    elif tokens[:1] == [getattr(lm.config, "decoder_start_token_id", None)]:
        tokens = tokens[1:]
    row.tokens, row.logprobs, row.concurrency = tokens, None, 1
    row.settle(over=True)
    return _score(lm, row) if causal else []


def _score(lm: Any, row: Row) -> list[float]:
    """Fill in the row's log-probabilities by one forward pass; return the prompt's."""
    import torch

    ids = torch.tensor([row.prompt + row.tokens], device=lm.device)
    logits = lm._model_call(ids[:, :-1])[0]
    logprobs: list[float] = []
    for first in range(0, len(logits), 1024):
        part = logits[first : first + 1024].float().log_softmax(-1)
        wanted = ids[0, first + 1 : first + 1 + len(part)].to(part.device)
        logprobs += part.gather(-1, wanted[:, None])[:, 0].tolist()
    prompt = len(row.prompt) - 1
    row.logprobs = logprobs[prompt:]
    return logprobs[:prompt]


def prompt_bits(logprobs: list[float]) -> float | None:
    """Return the prompt's mean bits, where there are any."""
    return bits_per_token(logprobs) if logprobs else None
