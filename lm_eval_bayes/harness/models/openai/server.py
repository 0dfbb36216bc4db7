"""What a server says of itself, and where it is: without credentials."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.retry import Backoff, is_retried
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.openai.answers import ServerError
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets

log = get_logger(__name__)

_ENDINGS = ("/chat/completions", "/completions")
_TIMEOUT_S = 10.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class ServedModel:
    """One entry of a server's list of models, less what changes from start to start.

    Attributes
    ----------
    id : str
        The name under which it is asked for.
    root, parent : str or None
        Where its weights come from, and for an adapter its base; vLLM says this.
    max_model_len : int or None
        Prompt and completion together, in tokens.
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
        """Read an entry."""
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
        """Return what is known."""
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
    """Asks a server for its models and its version, each once.

    Parameters
    ----------
    base_url : str
        Where the completions are.
    headers : mapping
        With the key.
    verify : bool or str
        As the library `requests` takes it.
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
        """Return the server's list of models; empty where it keeps none.

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
        """Return the model that answers to a name, or the only one there is."""
        models = self.models()
        for model in models:
            if model.id == name:
                return model
        return models[0] if len(models) == 1 else None

    def version(self) -> str | None:
        """Return the server's version, where it tells one (vLLM does)."""
        if self._version is None:
            try:
                body = self._get(f"{self._root}/version")
            except ServerError:
                return None
            found = body.get("version") if isinstance(body, Mapping) else None
            self._version = found if isinstance(found, str) else ""
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
        where = without_secrets(self.address, secret_texts(self._headers))
        raise ServerError(f"the server at {where} does not answer ({problem}); is it up?")


def _json(answer: Any) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def described(
    model: Any, backend: str, given: Mapping[str, Any], endpoint: str | None
) -> dict[str, Any]:
    """Return what is known here that changes the distribution; nothing that is secret.

    Parameters
    ----------
    model : object
        The harness's backend.
    backend : str
        Its name.
    given : mapping
        The arguments that it was made with.
    endpoint : str or None
        A name for the server in place of its address.
    """
    tokenized = bool(getattr(model, "tokenized_requests", False))
    found: dict[str, Any] = {
        "backend": backend,
        "pretrained": model.model,
        "endpoint": endpoint or server_address(model.base_url),
        "chat": "chat" in backend,
        "tokenized_requests": tokenized,
    }
    if tokenized:  # otherwise the server's own tokenizer reads the text
        found["tokenizer"] = str(given.get("tokenizer") or model.model)
        found["tokenizer_backend"] = model.tokenizer_backend
        found["tokenizer_revision"] = str(given.get("revision") or "main")
        found["add_bos_token"] = bool(model.add_bos_token)
    return found


def fingerprint_among(
    mine: Mapping[str, Any], known: Iterable[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the one known fingerprint that differs from `mine` in nothing but `served`.

    For a server that cannot be asked: what a store holds of it can be read all the same.

    Examples
    --------
    >>> stored = {"pretrained": "m", "served": {"id": "m"}}
    >>> fingerprint_among({"pretrained": "m", "served": None}, [stored, {"pretrained": "k"}])
    {'pretrained': 'm', 'served': {'id': 'm'}}
    """
    without = {key: value for key, value in mine.items() if key != "served"}
    same = [
        dict(other)
        for other in known
        if {key: value for key, value in other.items() if key != "served"} == without
    ]
    return same[0] if len(same) == 1 else None
