"""What a server says of itself: the models that it serves, and its version."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.retry import Backoff, is_retried
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness.models.openai.connection import MAX_BODY
from lm_eval_bayes.harness.models.openai.responses import ServerError
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets
from lm_eval_bayes.runs.provenance import mapping

_ENDINGS = ("/chat/completions", "/completions")
_TIMEOUT_S = 10.0
_ATTEMPTS = 3

#: Seconds for which a server that did not answer is not asked again.
_ASKED_AGAIN_S = 30.0

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


def models_url(base_url: str) -> str:
    """Return the address of a server's list of models.

    Examples
    --------
    >>> models_url("http://127.0.0.1:8000/v1/chat/completions")
    'http://127.0.0.1:8000/v1/models'
    """
    return f"{_api(base_url)}/models"


def _api(base_url: str) -> str:
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    for ending in _ENDINGS:
        path = path.removesuffix(ending)
    return f"{parts.scheme}://{parts.netloc}{path}"


def served_model(body: Any, name: str | None) -> dict[str, Any] | None:
    """Return the model that a server answers requests with, from its list of models.

    Parameters
    ----------
    body : object
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
    entry = _entry(body, name)
    if entry is None:
        return None
    model = {
        key: entry[key] for key, kind in _MODEL_FIELDS.items() if isinstance(entry.get(key), kind)
    }
    meta = entry.get("meta")
    if isinstance(meta, Mapping):
        sizes = {key: meta[key] for key in _META_FIELDS if isinstance(meta.get(key), int)}
        model |= {"meta": sizes} if sizes else {}
    return model


def _entry(body: Any, name: str | None) -> Mapping[str, Any] | None:
    entries = body.get("data") if isinstance(body, Mapping) else None
    models = [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    ]
    only = models[0] if len(models) == 1 else None
    return next((model for model in models if model["id"] == name), only)


class Server:
    """The models and the version of a server, each requested once.

    Parameters
    ----------
    base_url : str
        The address of the completions.
    headers : mapping
        The headers, with the key.
    verify : bool or str
        See the library `requests`.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], verify: bool | str) -> None:
        self.url, self.address = base_url, server_address(base_url)
        self._headers = headers
        self._verify = verify
        self._failure: ServerError | None = None
        self._failed_at = 0.0

    @property
    def models(self) -> Any:
        """The JSON of the server's list of models; None if it has none.

        Raises
        ------
        ServerError
            If the server cannot be reached or is not ready; within half a minute without
            another request.
        """
        if self._failure is not None and time.monotonic() - self._failed_at < _ASKED_AGAIN_S:
            raise self._failure
        try:
            models = self._models
        except ServerError as error:
            self._failure, self._failed_at = error, time.monotonic()
            raise
        self._failure = None
        return models

    @property
    def is_down(self) -> bool:
        """Whether the server did not answer when it was asked last."""
        return self._failure is not None

    def served(self, name: str | None) -> dict[str, Any] | None:
        """Return the model that the server answers requests for a name with; None if unknown.

        Raises
        ------
        ServerError
            As :attr:`models`.
        """
        return served_model(self.models, name)

    def context_length(self, name: str | None) -> int | None:
        """Return the context in tokens, if the server reports it.

        vLLM and SGLang report it as ``max_model_len``, llama.cpp as that of a slot, Ray Serve LLM
        as ``max_request_context_length`` where the deployment sets ``max_model_len``.

        Raises
        ------
        ServerError
            As :attr:`models`.
        """
        entry = mapping(_entry(self.models, name))
        slot = mapping(entry.get("meta")).get("n_ctx")
        of_ray = mapping(entry.get("metadata")).get("max_request_context_length")
        lengths = (entry.get("max_model_len"), slot, of_ray)
        return next((n for n in lengths if isinstance(n, int) and n > 0), None)

    @cached_property
    def _models(self) -> Any:
        return self._get(models_url(self.url))

    @cached_property
    def version(self) -> str | None:
        """The server's version, if it reports it, as vLLM and SGLang do.

        Raises
        ------
        ServerError
            If the server cannot be reached or is not ready.
        """
        pages = ["version"]
        if mapping(_entry(self.models, None)).get("owned_by") == "sglang":
            pages = ["server_info", "get_server_info"]  # the second up to 0.5.4
        for page in pages:
            body = self._get(f"{_api(self.url).removesuffix('/v1')}/{page}")
            version = mapping(body).get("version")
            if isinstance(version, str) and version:
                return version
        return None

    def _get(self, url: str) -> Any:
        import requests

        backoff = Backoff(seed=0)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                headers = dict(self._headers)
                with requests.get(
                    url, headers=headers, verify=self._verify, timeout=_TIMEOUT_S, stream=True
                ) as answer:
                    body = _json(answer)
            except requests.RequestException as error:
                problem = type(error).__name__
            else:
                if not is_retried(answer.status_code):
                    return body if answer.status_code == 200 else None
                problem = f"HTTP {answer.status_code}"
            if attempt < _ATTEMPTS:
                time.sleep(backoff.pause_s(attempt))
        address = without_secrets(self.address, secret_texts(self._headers))
        raise ServerError(f"the server at {address} does not answer ({problem}); is it up?")


def other_model(model: Mapping[str, Any], other: Mapping[str, Any], base_url: str) -> str:
    """Return the sentence that a server serves another model than it did before."""
    differing = [
        f"{name} {model.get(name)!r} and {other.get(name)!r}"
        for name in dict.fromkeys([*model, *other])
        if model.get(name) != other.get(name)
    ]
    return (
        f"{server_address(base_url)} serves another model than before ({', '.join(differing)}); "
        "its trials are not those of this run"
    )


def _json(answer: Any) -> Any:
    """Return the JSON of an answer; None where there is none, or too many bytes."""
    raw = bytearray()
    for part in answer.iter_content(1 << 16):
        raw += part
        if len(raw) > MAX_BODY:
            return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
