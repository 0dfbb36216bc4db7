"""What a server says of the model that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.runs.log_fields import mapping

#: What is read of an entry of a server's list of models, which is not what changes at every start:
#: the model's name in requests, the origin of its weights and the base of an adapter (vLLM sends
#: both), the context length in tokens, and the kind of server ("vllm", "llamacpp", "openai", …).
_MODEL_FIELDS = {"id": str, "root": str, "parent": str, "max_model_len": int, "owned_by": str}

#: What llama.cpp's server reports of its file beside them: the sizes of the model.
_META_FIELDS = ("n_vocab", "n_embd", "n_params", "size")


def server_address(base_url: object) -> str:
    """Return a server's host, port and path, and nothing that may be secret.

    Raises
    ------
    ModelConfigError
        If it is not one address, or contains a password.
    """
    try:
        return check_address(base_url, "http://127.0.0.1:8000/v1/completions")
    except InvalidInputError as error:
        raise ModelConfigError(str(error), error.rule, "base_url", error.value) from None


def served_model(models: Any, name: str | None) -> dict[str, Any] | None:
    """Return the model that a server answers requests with, from its list of models.

    Parameters
    ----------
    models : object
        The JSON of the list; anything else is no list.
    name : str or None
        The model's name in the requests.

    Returns
    -------
    dict or None
        The entry of this name, else the only one; None if there are several, or none.

    Examples
    --------
    >>> served_model({"data": [{"id": "m", "created": 7, "owned_by": "vllm"}]}, "other")
    {'id': 'm', 'owned_by': 'vllm'}
    """
    entry = _entry(models, name)
    if entry is None:
        return None
    model = {
        key: entry[key] for key, kind in _MODEL_FIELDS.items() if isinstance(entry.get(key), kind)
    }
    meta = mapping(entry.get("meta"))
    sizes = {key: meta[key] for key in _META_FIELDS if isinstance(meta.get(key), int)}
    return {**model, "meta": sizes} if sizes else model


def context_length(models: Any, name: str | None) -> int | None:
    """Return the context in tokens, if the server reports it.

    vLLM and SGLang report it as ``max_model_len``, llama.cpp as that of a slot, Ray Serve LLM as
    ``max_request_context_length`` where the deployment sets ``max_model_len``.
    """
    entry = mapping(_entry(models, name))
    slot = mapping(entry.get("meta")).get("n_ctx")
    of_ray = mapping(entry.get("metadata")).get("max_request_context_length")
    lengths = (entry.get("max_model_len"), slot, of_ray)
    return next((n for n in lengths if isinstance(n, int) and n > 0), None)


def _entry(models: Any, name: str | None) -> Mapping[str, Any] | None:
    listed = mapping(models).get("data")
    entries = [
        entry
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    ]
    only = entries[0] if len(entries) == 1 else None
    return next((entry for entry in entries if entry["id"] == name), only)


def other_model(model: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the sentence that a server serves another model than it did before."""
    differing = [
        f"{name} {model.get(name)!r} and {other.get(name)!r}"
        for name in dict.fromkeys([*model, *other])
        if model.get(name) != other.get(name)
    ]
    return (
        f"the server has another model than before ({', '.join(differing)}), whose trials are not "
        "those of this run"
    )
