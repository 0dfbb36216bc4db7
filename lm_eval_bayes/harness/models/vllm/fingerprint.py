"""The fingerprint of a vLLM model: what its distribution depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.hashing import hash_json, hash_text
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.weights import settings_of, tokenizer_of, weights_of
from lm_eval_bayes.runs.model_arguments import identity

log = get_logger(__name__)

#: Arguments of the engine that other entries cover, or that do not change the distribution.
_COVERED = frozenset(
    (
        "model",
        "revision",
        "dtype",
        "tokenizer",
        "tokenizer_mode",
        "tokenizer_revision",
        "max_model_len",
        "quantization",
        "seed",
        "enable_lora",
        "max_lora_rank",
    )
)

#: Settings of generation_config.json that change the distribution if they are applied, with
#: their neutral values. Temperature and the token filters are always set by the request.
_NOT_APPLIED: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, None),
    "no_repeat_ngram_size": (0, None),
    "encoder_repetition_penalty": (1, None),
    "typical_p": (1, None),
    "epsilon_cutoff": (0, None),
    "eta_cutoff": (0, None),
    "bad_words_ids": (None,),
    "suppress_tokens": (None,),
    "begin_suppress_tokens": (None,),
    "min_new_tokens": (0, None),
}


def vllm_fingerprint(
    model_args: Mapping[str, Any],
    model_config: Any,
    *,
    max_length: int,
    chat_template: str | None,
    lora: str | None,
    tokenization: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a model's distribution under vLLM depends on.

    Of the engine's arguments that no other entry covers, `model_arguments.identity` is included.

    Parameters
    ----------
    model_args : mapping
        The arguments that the harness passes to `LLM`.
    model_config : object
        vLLM's configuration of the model, with its defaults resolved.
    max_length : int
        The context length in tokens.
    chat_template : str or None
        The template, which is included as a hash.
    lora : str or None
        The path of an adapter.
    tokenization : mapping
        The harness's settings for tokenizing prompts.
    """
    pretrained, revision = str(model_args["model"]), model_args.get("revision")
    tokenizer = model_args.get("tokenizer") or pretrained
    commit = getattr(getattr(model_config, "hf_config", None), "_commit_hash", None) or revision
    weights = weights_of(pretrained, commit)
    tokenizer_revision = model_args.get("tokenizer_revision")
    if tokenizer == pretrained:
        tokenizer_revision = tokenizer_revision or commit
    return {
        "backend": "vllm",
        "pretrained": pretrained,
        "revision": revision,
        "peft": lora,
        "weights": weights if lora is None else hash_json([weights, weights_of(lora)]),
        "settings": settings_of(pretrained, commit),
        "dtype": str(getattr(model_config, "dtype", model_args.get("dtype"))).split(".")[-1],
        "quantization": getattr(model_config, "quantization", model_args.get("quantization")),
        "tokenizer": None if tokenizer == pretrained else tokenizer,
        "tokenizer_revision": model_args.get("tokenizer_revision"),
        "tokenizer_mode": model_args.get("tokenizer_mode"),
        "tokenizer_files": tokenizer_of(tokenizer, tokenizer_revision),
        "tokenization": dict(tokenization),
        "chat_template": None if chat_template is None else hash_text(chat_template),
        "max_length": int(max_length),
        "end_tokens": _end_tokens(model_config),
        "engine": identity(
            {
                name: value
                for name, value in sorted(model_args.items())
                if value is not None and name not in _COVERED
            }
        ),
    }


def generation_config(model_config: Any) -> dict[str, Any]:
    """Return a model's generation_config.json; empty if it cannot be read."""
    read = getattr(model_config, "try_get_generation_config", None)
    try:
        return dict(read() or {}) if callable(read) else {}
    except Exception:
        return {}


def warn_of_generation_config(model_config: Any, given: Mapping[str, Any]) -> None:
    """Log a warning of the settings of generation_config.json that are not applied.

    Parameters
    ----------
    model_config : object
        vLLM's configuration of the model.
    given : mapping
        The generation settings of the task, which take precedence.
    """
    defaults = generation_config(model_config)
    ignored = {
        name: defaults[name]
        for name, neutral in _NOT_APPLIED.items()
        if name in defaults and defaults[name] not in neutral and name not in given
    }
    if ignored:
        log.warning(
            "the model's generation_config.json has %s, which this backend of the harness does not "
            "apply; add it to --gen_kwargs to apply it",
            ", ".join(f"{name}={value}" for name, value in ignored.items()),
        )


def _end_tokens(model_config: Any) -> list[int]:
    # The only entry of generation_config.json that vLLM uses if every setting is given.
    eos = generation_config(model_config).get("eos_token_id")
    return sorted({int(t) for t in (eos if isinstance(eos, (list, tuple)) else [eos]) if t})
