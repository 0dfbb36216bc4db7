"""What servers say of themselves: the models that they serve, and their version."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import addresses_in, check_address, host_of
from lm_eval_bayes._util.retry import Backoff, is_retried
from lm_eval_bayes._util.threads import map_in_threads
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.openai.connection import MAX_BODY
from lm_eval_bayes.harness.models.openai.responses import ServerError
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets
from lm_eval_bayes.runs.provenance import mapping

log = get_logger(__name__)

_ENDINGS = ("/chat/completions", "/completions")
_TIMEOUT_S = 10.0
_ATTEMPTS = 3

#: Seconds in which a server takes a connection.
_REACHED_S = 5.0

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
        If it is not an address, or contains a password.
    """
    try:
        return check_address(base_url, "http://127.0.0.1:8000/v1/completions")
    except InvalidInputError as error:
        raise ModelConfigError(str(error)) from None


def server_urls(base_url: object) -> list[str]:
    """Return the addresses of the model argument `base_url`, one or several.

    Raises
    ------
    ModelConfigError
        If one of them is empty, is not an address or contains a password, or two are the same.

    Examples
    --------
    >>> server_urls("http://a:8000/v1/completions;http://b:8000/v1/completions")
    ['http://a:8000/v1/completions', 'http://b:8000/v1/completions']
    """
    # A text may end with the separator.
    parts = base_url.strip().removesuffix(";").split(";") if isinstance(base_url, str) else base_url
    if isinstance(parts, (list, tuple)):
        for number, part in enumerate(parts, 1):
            if not isinstance(part, str) or not part.strip():
                problem = "empty" if isinstance(part, str) else "no address"
                raise ModelConfigError(
                    "`base_url` must be the address of a server, or several with ; between them; "
                    f"part {number} of {len(parts)} is {problem}"
                )
    urls = addresses_in(base_url)
    shown = [server_address(url) for url in urls]
    for address in shown:
        if shown.count(address) > 1:
            raise ModelConfigError(
                f"`base_url` must name every server once; got {address} {shown.count(address)} "
                "times (num_concurrent= sets how many requests run)"
            )
    return urls


def reachable_first(urls: Sequence[str]) -> list[str]:
    """Return addresses of servers with those first that take connections now.

    The harness's classes ask the first one for its tokenizer, and choose another tokenizer if it
    does not answer.
    """
    if len(urls) < 2:
        return list(urls)
    reachable = list(map_in_threads(_is_reachable, urls, len(urls)))
    return [url for _, url in sorted(zip(reachable, urls, strict=True), key=lambda pair: -pair[0])]


def _is_reachable(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((str(parts.hostname), port), timeout=_REACHED_S):
            return True
    except OSError:
        return False


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


def _context(entry: Mapping[str, Any]) -> int | None:
    slot = mapping(entry.get("meta")).get("n_ctx")
    of_ray = mapping(entry.get("metadata")).get("max_request_context_length")
    lengths = (entry.get("max_model_len"), slot, of_ray)
    return next((n for n in lengths if isinstance(n, int) and n > 0), None)


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
            return self._models
        except ServerError as error:
            self._failure, self._failed_at = error, time.monotonic()
            raise

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


class Servers:
    """The servers of one model.

    Parameters
    ----------
    urls : sequence of str
        The addresses of their completions, at least one.
    headers : mapping
        The headers, with the key.
    verify : bool or str
        See the library `requests`.
    """

    def __init__(self, urls: Sequence[str], headers: Mapping[str, str], verify: bool | str) -> None:
        self._servers = [Server(url, headers, verify) for url in urls]
        self._not_answering: list[str] = []

    @property
    def not_answering(self) -> list[str]:
        """The addresses of the servers that did not answer when they were asked last."""
        return list(self._not_answering)

    def context_length(self, name: str | None) -> int | None:
        """Return the shortest context in tokens of those that the servers report.

        vLLM and SGLang report it as ``max_model_len``, llama.cpp as that of a slot, Ray Serve LLM
        as ``max_request_context_length`` where the deployment sets ``max_model_len``.

        Raises
        ------
        ServerError, ModelConfigError
            As :meth:`served`.
        """
        self.served(name)
        answering = [s for s in self._servers if s.url not in self._not_answering]
        lengths = [_context(entry) for s in answering if (entry := _entry(s.models, name))]
        return min((length for length in lengths if length is not None), default=None)

    def served(self, name: str | None) -> dict[str, Any] | None:
        """Return the model that all servers serve; None if they do not say.

        Servers that do not answer now are left out.

        Raises
        ------
        ServerError
            If no server can be reached or is ready.
        ModelConfigError
            If two servers serve different models.
        """
        import requests  # noqa: F401  # before the threads that need it

        reports = list(map_in_threads(_models_or_error, self._servers, len(self._servers)))
        self._not_answering = [
            server.url
            for server, report in zip(self._servers, reports, strict=True)
            if isinstance(report, ServerError)
        ]
        errors = [report for report in reports if isinstance(report, ServerError)]
        if len(errors) == len(reports):
            raise ServerError("; ".join(map(str, errors))) from errors[0]
        first: tuple[str, dict[str, Any]] | None = None
        for server, report in zip(self._servers, reports, strict=True):
            model = None if isinstance(report, ServerError) else served_model(report, name)
            if model is None:
                continue
            if first is None:
                first = server.address, model
            elif model != first[1]:
                raise ModelConfigError(other_model(first[1], first[0], model, server.address))
        return None if first is None else first[1]

    @property
    def version(self) -> str | None:
        """The version of the first server that answers.

        Raises
        ------
        ServerError
            If no server can be reached or is ready.
        """
        for server in self._servers[:-1]:
            try:
                return server.version
            except ServerError as error:
                log.debug("%s", error)
        return self._servers[-1].version


def other_model(
    model: Mapping[str, Any], address: str, other: Mapping[str, Any], other_address: str
) -> str:
    """Return the sentence that two servers serve different models."""
    differing = [
        f"{name} {model.get(name)!r} and {other.get(name)!r}"
        for name in dict.fromkeys([*model, *other])
        if model.get(name) != other.get(name)
    ]
    return (
        f"the servers of `base_url` must serve one model; {host_of(address)} and "
        f"{host_of(other_address)} report different ones ({', '.join(differing)})"
    )


def _models_or_error(server: Server) -> Any:
    try:
        return server.models
    except ServerError as error:
        return error


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
