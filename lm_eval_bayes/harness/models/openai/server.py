"""The identity of a server: its address, its models and its version, without credentials."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.retry import Backoff, is_retried
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.openai.responses import ServerError
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets

log = get_logger(__name__)

_ENDINGS = ("/chat/completions", "/completions")
_TIMEOUT_S = 10.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class ServedModel:
    """An entry of a server's list of models, without what changes at every start.

    Attributes
    ----------
    id : str
        The model's name in requests.
    root, parent : str or None
        The origin of its weights, and the base of an adapter; sent by vLLM.
    max_model_len : int or None
        The context length in tokens.
    owned_by : str or None
        "vllm", "openai", …
    """

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None
    owned_by: str | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> ServedModel:
        """Return the model of an entry."""
        length = entry.get("max_model_len")
        words = {
            key: entry[key]
            for key in ("root", "parent", "owned_by")
            if isinstance(entry.get(key), str)
        }
        return cls(
            id=str(entry["id"]),
            max_model_len=length if isinstance(length, int) else None,
            **words,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the known fields."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def server_address(base_url: object) -> str:
    """Return a server's host, port and path, and nothing that may be secret.

    Raises
    ------
    ModelConfigError
        If it is not an address, or contains a password.
    """
    try:
        return check_address(base_url, "http://127.0.0.1:8000/v1/completions")
    except InvalidInputError as error:
        raise ModelConfigError(str(error)) from None


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
        self.address = server_address(base_url)
        parts = urlsplit(base_url)
        path = parts.path.rstrip("/")
        for ending in _ENDINGS:
            path = path.removesuffix(ending)
        self._api = f"{parts.scheme}://{parts.netloc}{path}"
        self._root = f"{parts.scheme}://{parts.netloc}{path.removesuffix('/v1')}"
        self._headers = headers
        self._verify = verify
        self._models: list[ServedModel] | None = None
        self._version: str | None = None

    def models(self) -> list[ServedModel]:
        """Return the server's list of models; empty if it has none.

        Raises
        ------
        ServerError
            If the server cannot be reached or is not ready.
        """
        if self._models is None:
            body = self._get(f"{self._api}/models")
            entries = body.get("data") if isinstance(body, Mapping) else None
            self._models = [
                ServedModel.of(entry)
                for entry in (entries if isinstance(entries, list) else [])
                if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
            ]
        return self._models

    def served(self, name: str | None) -> ServedModel | None:
        """Return the model of a name, else the only model; None if there are several."""
        models = self.models()
        for model in models:
            if model.id == name:
                return model
        return models[0] if len(models) == 1 else None

    def version(self) -> str | None:
        """Return the server's version, if it has one (vLLM does)."""
        if self._version is None:
            try:
                body = self._get(f"{self._root}/version")
            except ServerError:
                return None
            version = body.get("version") if isinstance(body, Mapping) else None
            self._version = version if isinstance(version, str) else ""
        return self._version or None

    def _get(self, url: str) -> Any:
        import requests

        backoff = Backoff(seed=0)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = requests.get(
                    url, headers=dict(self._headers), verify=self._verify, timeout=_TIMEOUT_S
                )
            except requests.RequestException as error:
                problem = type(error).__name__
            else:
                if not is_retried(answer.status_code):
                    return _json(answer) if answer.status_code == 200 else None
                problem = f"HTTP {answer.status_code}"
            if attempt < _ATTEMPTS:
                time.sleep(backoff.pause_s(attempt))
        address = without_secrets(self.address, secret_texts(self._headers))
        raise ServerError(f"the server at {address} does not answer ({problem}); is it up?")


def _json(answer: Any) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def describe_server(
    model: Any, backend: str, given: Mapping[str, Any], endpoint: str | None
) -> dict[str, Any]:
    """Return the known properties that the distribution depends on, without secrets.

    Parameters
    ----------
    model : object
        The harness's backend.
    backend : str
        Its name.
    given : mapping
        Its arguments.
    endpoint : str or None
        A name of the server in place of its address.
    """
    tokenized = bool(getattr(model, "tokenized_requests", False))
    fingerprint: dict[str, Any] = {
        "backend": backend,
        "pretrained": model.model,
        "endpoint": endpoint or server_address(model.base_url),
        "chat": "chat" in backend,
        "tokenized_requests": tokenized,
    }
    if tokenized:  # otherwise the server's own tokenizer reads the text
        fingerprint["tokenizer"] = str(given.get("tokenizer") or model.model)
        fingerprint["tokenizer_backend"] = model.tokenizer_backend
        fingerprint["tokenizer_revision"] = str(given.get("revision") or "main")
        fingerprint["add_bos_token"] = bool(model.add_bos_token)
    return fingerprint


def fingerprint_among(
    fingerprint: Mapping[str, Any], stored: Iterable[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the only stored fingerprint that equals another one up to `served`.

    With it the stored trials of a server that is down can be read.

    Examples
    --------
    >>> stored = {"pretrained": "m", "served": {"id": "m"}}
    >>> fingerprint_among({"pretrained": "m", "served": None}, [stored, {"pretrained": "k"}])
    {'pretrained': 'm', 'served': {'id': 'm'}}
    """
    without = {key: value for key, value in fingerprint.items() if key != "served"}
    equal = [
        dict(other)
        for other in stored
        if {key: value for key, value in other.items() if key != "served"} == without
    ]
    return equal[0] if len(equal) == 1 else None
