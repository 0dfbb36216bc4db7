"""Room for the prompt: the harness truncates the prompt if prompt and completion do not fit."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: The backends' default of max_gen_toks.
DEFAULT_MAX_GEN_TOKS = 256

_CONFIG_KEYS = ("n_positions", "max_position_embeddings", "n_ctx")


@dataclass(frozen=True)
class ContextWindow:
    """A model's context length in tokens, and its source."""

    tokens: int
    source: str


def context_window(metadata: Mapping[str, Any]) -> ContextWindow | None:
    """Find the model's context length from its arguments or its local configuration.

    Parameters
    ----------
    metadata : mapping
        A task's metadata; the harness merges the model's arguments into it.

    Returns
    -------
    ContextWindow or None
        None if neither has it.
    """
    for key in ("max_model_len", "max_length"):
        value = metadata.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            # An API backend reserves one token of its max_length.
            spare = 1 if "base_url" in metadata else 0
            return ContextWindow(value - spare, f"{key}={value}")
    config = _local_config(metadata)
    nested = config.get("text_config")
    for source in (nested if isinstance(nested, dict) else {}, config):
        for key in _CONFIG_KEYS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return ContextWindow(value, f"{key}={value} in the model's config.json")
    return None


def _local_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    name = metadata.get("pretrained")
    if not isinstance(name, str) or "base_url" in metadata:
        return {}
    path: object = os.path.join(name, "config.json")
    if not os.path.isfile(str(path)):
        from huggingface_hub import try_to_load_from_cache

        revision = metadata.get("revision")
        try:
            path = try_to_load_from_cache(
                name, "config.json", revision=revision if isinstance(revision, str) else None
            )
        except Exception:  # not a hub id
            return {}
    if not isinstance(path, str):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def longest_prompt(prompts: Sequence[str], metadata: Mapping[str, Any]) -> tuple[int, bool]:
    """Count the tokens of the longest prompt.

    Returns
    -------
    (int, bool)
        The count and whether it is exact. Without the model's tokenizer the count is
        the number of bytes, which no tokenizer exceeds by more than a start token.
    """
    tokenizer = _tokenizer(metadata)
    if tokenizer is not None:
        try:
            return max(len(tokenizer(p).input_ids) for p in prompts) + 1, True
        except Exception:  # an unusual tokenizer: use the bound
            log.debug("the tokenizer could not count a prompt", exc_info=True)
    return max(len(p.encode("utf-8", "surrogatepass")) for p in prompts) + 2, False


def _tokenizer(metadata: Mapping[str, Any]) -> Any:
    # Only if the backend has imported transformers and downloaded the files.
    transformers = sys.modules.get("transformers")
    name = metadata.get("tokenizer") or metadata.get("pretrained")
    if transformers is None or not isinstance(name, str):
        return None
    revision = metadata.get("tokenizer_revision") or metadata.get("revision")
    try:
        return transformers.AutoTokenizer.from_pretrained(
            name,
            revision=revision if isinstance(revision, str) else "main",
            local_files_only=True,
            trust_remote_code=metadata.get("trust_remote_code") is True,
        )
    except Exception:
        return None


def fit_generation(
    kwargs: dict[str, Any], prompts: Sequence[str], metadata: Mapping[str, Any], task: str
) -> dict[str, Any]:
    """Lower `max_gen_toks` so that the longest prompt fits, and log a warning.

    Returns
    -------
    dict
        The generation settings, with `max_gen_toks` lowered if necessary.

    Raises
    ------
    TaskConfigError
        If the longest prompt alone fills the context.
    """
    wanted = kwargs.get("max_gen_toks", DEFAULT_MAX_GEN_TOKS)
    window = context_window(metadata)
    if window is None:
        if any(key in metadata for key in ("pretrained", "base_url", "model")):
            log.warning(
                "%s: the model's context length is unknown to the task. If prompt and "
                "max_gen_toks=%d do not fit, the backend truncates the PROMPT and the answers mean "
                "nothing. Pass it in --model_args: max_model_len=... (vllm) or max_length=... "
                "(hf and API backends).",
                task,
                wanted,
            )
        return kwargs
    longest, exact = longest_prompt(prompts, metadata)
    about = f"{longest} tokens" if exact else f"at most {longest} tokens (counted as bytes)"
    room = window.tokens - longest
    if wanted <= room:
        return kwargs
    if room < 1:
        raise TaskConfigError(
            f"task {task}: the longest prompt has {about}, which leaves no room to generate in a "
            f"context of {window.tokens} ({window.source}); use a larger context"
        )
    log.warning(
        "%s: max_gen_toks lowered from %d to %d, so that the longest prompt (%s) fits in "
        "the context of %d tokens (%s). Answers may be cut short; a larger context avoids it.",
        task,
        wanted,
        room,
        about,
        window.tokens,
        window.source,
    )
    return {**kwargs, "max_gen_toks": room}
