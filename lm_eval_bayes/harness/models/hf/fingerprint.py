"""The fingerprint of a transformers model: what its distribution depends on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.hashing import ALGORITHM, hash_json, hash_text
from lm_eval_bayes.harness.models.weights import settings_of, tokenizer_of, weights_of
from lm_eval_bayes.runs.model_arguments import as_json, identity

#: Arguments of the backend that other entries cover, or that do not change the distribution.
_COVERED = frozenset(
    (
        "pretrained",
        "backend",
        "revision",
        "subfolder",
        "tokenizer",
        "max_length",
        "dtype",
        "peft",
        "delta",
        "gguf_file",
        "add_bos_token",
        "truncation",
        "mixed_precision_dtype",
        "chat_template_args",
        "enable_thinking",
        "think_end_token",
        "prefix_token_id",
        "logits_cache",
        "softmax_dtype",
    )
)


def hf_fingerprint(lm: Any, given: Mapping[str, Any], ends: Mapping[int, Any]) -> dict[str, Any]:
    """Return what a model's distribution under transformers depends on.

    Of arguments that no other entry covers, `model_arguments.identity` is included.

    Parameters
    ----------
    lm : HFLM
        The backend; its weights are not loaded.
    given : mapping
        Its arguments.
    ends : mapping
        The tokens that end a sequence.
    """
    pretrained, tokenizer = given["pretrained"], given.get("tokenizer")
    revision, subfolder = given.get("revision"), given.get("subfolder") or None
    template = getattr(lm.tokenizer, "chat_template", None)
    return {
        "backend": "hf",
        "kind": lm.backend,
        "pretrained": pretrained if isinstance(pretrained, str) else _object_name(pretrained),
        "revision": revision,
        "subfolder": subfolder,
        "gguf_file": given.get("gguf_file"),
        "peft": given.get("peft"),
        "delta": given.get("delta"),
        "weights": _weights(lm, given),
        "settings": _settings(lm, given),
        "dtype": _dtype(given.get("dtype"), lm.config),
        "mixed_precision": _name(given.get("mixed_precision_dtype")),
        "quantization": _quantization(lm.config),
        "tokenizer": tokenizer if isinstance(tokenizer, str) else None,
        "tokenizer_files": _tokenizer(lm, given),
        "add_bos_token": given.get("add_bos_token"),
        "chat_template": None if template is None else hash_text(_text(template)),
        "max_length": int(lm.max_length),
        "truncation": bool(given.get("truncation")),
        "end_tokens": sorted(ends),
        "arguments": identity(
            {
                name: value
                for name, value in sorted(given.items())
                if not _left_out(name, value) and name not in _COVERED
            }
        ),
    }


def _left_out(name: str, value: Any) -> bool:
    return value is None or (value is False and name in ("autogptq", "gptqmodel"))


def _weights(lm: Any, given: Mapping[str, Any]) -> str | None:
    pretrained = given["pretrained"]
    if not isinstance(pretrained, str):
        return hash_of_parameters(pretrained)
    revision = given.get("revision")
    commit = getattr(lm.config, "_commit_hash", None)
    base = weights_of(
        pretrained, commit or revision, given.get("subfolder") or None, given.get("gguf_file")
    )
    added = [given[name] for name in ("peft", "delta") if given.get(name)]
    if not added:
        return base
    return hash_json([base, *[weights_of(str(name), revision) for name in added]])


def _settings(lm: Any, given: Mapping[str, Any]) -> str | None:
    pretrained = given["pretrained"]
    if not isinstance(pretrained, str):
        config = {k: v for k, v in lm.config.to_dict().items() if k != "transformers_version"}
        return hash_text(json.dumps(config, sort_keys=True, default=str))
    commit = getattr(lm.config, "_commit_hash", None)
    return settings_of(pretrained, commit or given.get("revision"), given.get("subfolder") or None)


def _tokenizer(lm: Any, given: Mapping[str, Any]) -> str | None:
    tokenizer, pretrained = given.get("tokenizer"), given["pretrained"]
    if tokenizer is not None and not isinstance(tokenizer, str):
        return hash_text(repr(sorted(tokenizer.get_vocab().items())))
    if tokenizer is None and not isinstance(pretrained, str):
        return hash_text(repr(sorted(lm.tokenizer.get_vocab().items())))
    commit = getattr(lm.config, "_commit_hash", None) if tokenizer is None else None
    return tokenizer_of(
        tokenizer or pretrained, commit or given.get("revision"), given.get("subfolder") or None
    )


def hash_of_parameters(model: Any) -> str:
    """Return a hash of a model's parameters: their names, types, shapes and values."""
    import torch

    hashed = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().reshape(-1).contiguous()
        for part in flat.split(1 << 24):
            hashed.update(part.cpu().view(torch.uint8).numpy().tobytes())
    return f"{ALGORITHM}:{hashed.hexdigest()}"


def _object_name(model: Any) -> str:
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or ""
    return f"{type(model).__name__}({name})"


def _dtype(dtype: Any, config: Any) -> str:
    if dtype in (None, "auto"):
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or dtype
    return _name(dtype) or "default"


def _name(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _quantization(config: Any) -> Any:
    quantization = getattr(config, "quantization_config", None)
    if quantization is None:
        return None
    return as_json(quantization if isinstance(quantization, Mapping) else quantization.to_dict())


def _text(template: Any) -> str:
    return template if isinstance(template, str) else json.dumps(template, sort_keys=True)


def hf_versions() -> dict[str, str]:
    """Return the versions of the software that generates."""
    versions = {}
    for name in ("torch", "transformers", "tokenizers", "accelerate", "lm_eval"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
