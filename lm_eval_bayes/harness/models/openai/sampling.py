"""Trials from OpenAI-compatible servers: vLLM's, SGLang's, llama.cpp's, OpenAI's own.

A mixin before the harness's `local-completions`, `local-chat-completions`, `openai-completions`
or `openai-chat-completions`. Those build the requests; here they are sent, `num_concurrent` of
them concurrently, each with the seed of its trial, and every answer is yielded as it ends.

The fingerprint holds what the server reports of its model; another model under the same name and
address is not noticed if the server reports nothing. Log-probabilities are the server's: vLLM's
are the untempered model's unless it was started with another ``--logprobs-mode``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.retry import Backoff, is_retried
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    SamplingMixin,
    TrialRequest,
    installed_versions,
)
from lm_eval_bayes.harness.models.openai.client import Endpoint, TrialClient
from lm_eval_bayes.harness.models.openai.request import (
    Payloads,
    check_batch_size,
    check_room,
    check_settings,
    max_gen_toks,
    prompts_to_send,
    timeout_s,
)
from lm_eval_bayes.harness.models.openai.responses import (
    ExchangeFailed,
    ServerError,
    TrialsFailedError,
)
from lm_eval_bayes.runs.model_arguments import Kind, kind_of, secret_texts, without_secrets
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Attempts per request by default: the harness's 3 end within seconds, while a restarting server
#: needs a minute or two.
ATTEMPTS = 8


class OpenAISampling(SamplingMixin):
    """A sampling mixin before one of the harness's OpenAI-compatible backends.

    Parameters
    ----------
    endpoint : str, optional
        A name of the server for the fingerprint, in place of its host, port and path, for a
        server whose address changes.
    **kwargs
        The harness's arguments; ``timeout`` and ``max_retries`` have larger defaults here.
    """

    takes_seed = True
    streams = True

    def __init__(self, *args: Any, endpoint: str | None = None, **kwargs: Any) -> None:
        self._given = {
            name: value for name, value in kwargs.items() if kind_of(name, value) is not Kind.SECRET
        }
        self._endpoint = endpoint
        super().__init__(*args, **kwargs)

    # -- the interface of sampling mixins ----------------------------------------------

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that this server cannot provide."""
        return () if self._can_measure_prompts() else ("prompt_bpt",)

    def sample(
        self,
        requests: Sequence[TrialRequest] | RequestStream,
        measure: frozenset[str] = frozenset(),
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Request trials and yield each as it ends.

        Parameters
        ----------
        requests : sequence of TrialRequest, or RequestStream
            Sent in this order; as one ends, the next is sent. After a trial of a stream failed,
            no trial with a higher number is started.
        measure : frozenset of str
            Prompts whose ``prompt_bpt`` is measured, with one trial of each.

        Yields
        ------
        tuple of (TrialRequest, Trial)
            In the order of their ends. Closing the generator cancels the running requests.

        Raises
        ------
        TaskConfigError, ModelConfigError
            Before sampling, if the settings cannot be sent unchanged.
        TrialsFailedError
            After all answers were yielded, if trials failed in spite of all attempts.
        """
        if not requests:
            return iter(())
        questions = requests.questions if isinstance(requests, RequestStream) else requests
        payloads = self._payloads
        server_address(self.base_url)
        check_batch_size(getattr(self, "_batch_size", 1))
        check_settings(payloads, questions, self.warn_once)
        messages = prompts_to_send(self, questions, payloads.chat)
        check_room(questions, messages, self._room())
        longest = max(map(max_gen_toks, questions))
        endpoint = Endpoint(
            url=str(self.base_url),
            headers=self.header,
            verify=bool(self.verify_certificate),
            ca_cert_path=getattr(self, "ca_cert_path", None),
            timeout_s=timeout_s(longest, self._given.get("timeout")),
            attempts=max(1, int(self._given.get("max_retries", ATTEMPTS))),
            seed=questions[0].seed,
        )
        client = TrialClient(
            payloads,
            endpoint,
            messages,
            set(measure) if measure and self._can_measure_prompts() else set(),
            min(self._concurrency(), len(requests)),
            self._think_end_token,
            self.warn_once,
        )
        return self._answers(client, requests)

    def finished_text(
        self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any] | None = None
    ) -> str:
        """Return the response that the harness's own backend would return for a raw text.

        Completions are unchanged. Of a chat's, the think block is removed, and stop strings
        that the harness does not send (more than four) cut the text.
        """
        payloads = self._payloads
        if not payloads.chat:
            return raw
        if signals and signals.get("content_missing"):
            from lm_eval.models import api_models

            return str(getattr(api_models, "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER", ""))
        text = raw
        if self._think_end_token:
            text = text.split(self._think_end_token)[-1].lstrip()
        for stop in payloads.stops_not_sent(kwargs):
            text = text.split(stop)[0]
        return text

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the server gets."""
        return self._payloads.stops_sent(kwargs)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution is known to depend on.

        Raises
        ------
        ServerError
            If the server cannot be reached, so that its model is unknown;
            :meth:`fingerprint_among` finds it in a store.
        """
        return {**self._fingerprint(), "served": self._server.served(self.model)}

    def fingerprint_among(self, stored: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the only stored fingerprint that equals this server's up to `served`.

        With it the stored trials of a server that is down can be read.
        """
        own = {**self._fingerprint(), "served": None}
        equal = [dict(other) for other in stored if {**other, "served": None} == own]
        return equal[0] if len(equal) == 1 else None

    def versions(self) -> dict[str, str]:
        """Return the versions of the client's software and, if it sends it, of the server."""
        versions = installed_versions("lm_eval", "aiohttp")
        with suppress(ServerError):
            if self._server.version is not None:
                versions["server"] = self._server.version
        return versions

    # -- internals ---------------------------------------------------------------------

    @cached_property
    def _payloads(self) -> Payloads:
        return Payloads(self)

    @cached_property
    def _server(self) -> Server:
        verify = bool(self.verify_certificate)
        return Server(
            self.base_url,
            self.header,
            (getattr(self, "ca_cert_path", None) or True) if verify else False,
        )

    @property
    def _think_end_token(self) -> str | None:
        # Before 0.4.13 the harness accepts the argument and ignores it.
        token = getattr(self, "think_end_token", None) or self._given.get("think_end_token")
        return token if isinstance(token, str) and token else None

    def _fingerprint(self) -> dict[str, Any]:
        """Return the known properties that the distribution depends on, without secrets."""
        tokenized = bool(getattr(self, "tokenized_requests", False))
        fingerprint: dict[str, Any] = {
            "backend": self._payloads.backend,
            "pretrained": self.model,
            "endpoint": self._endpoint or server_address(self.base_url),
            "chat": self._payloads.chat,
            "tokenized_requests": tokenized,
        }
        if tokenized:  # otherwise the server's own tokenizer reads the text
            fingerprint["tokenizer"] = str(self._given.get("tokenizer") or self.model)
            fingerprint["tokenizer_backend"] = self.tokenizer_backend
            fingerprint["tokenizer_revision"] = str(self._given.get("revision") or "main")
            fingerprint["add_bos_token"] = bool(self.add_bos_token)
        return fingerprint

    def _can_measure_prompts(self) -> bool:
        if not self._payloads.chat:
            return not self._payloads.official
        served = self._served()
        return served is not None and served.get("owned_by") == "vllm"

    def _room(self) -> int | None:
        """Return the context length in tokens, if it is known."""
        if "max_length" in self._given:
            return int(self.max_length)
        served = self._served()
        if served is not None and "max_model_len" in served:
            return int(served["max_model_len"])
        # The harness truncates tokenized prompts, to a context of 2048 tokens by default.
        tokenized = getattr(self, "tokenized_requests", False) and not self._payloads.chat
        return int(self.max_length) if tokenized else None

    def _served(self) -> dict[str, Any] | None:
        try:
            return self._server.served(self.model)
        except ServerError:
            return None

    def _concurrency(self) -> int:
        wanted = int(getattr(self, "_concurrent", 1))
        if wanted <= 1:
            self.warn_once(
                "concurrency",
                "num_concurrent is 1, so the server generates one trial at a time; most servers "
                "generate many times as many tokens per second with num_concurrent=64",
            )
        return max(wanted, 1)

    def _answers(
        self, client: TrialClient, requests: Sequence[TrialRequest] | RequestStream
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        failed: list[tuple[TrialRequest, str]] = []
        answered = 0
        outcomes = client.outcomes(requests)
        try:
            for request, outcome in outcomes:
                if isinstance(outcome, ExchangeFailed):
                    failed.append((request, str(outcome)))
                    if isinstance(requests, RequestStream):
                        requests.end_after(request.trial)
                else:
                    answered += 1
                    yield request, outcome
        finally:
            outcomes.close()  # type: ignore[attr-defined]
        if failed:
            server = self._endpoint or server_address(self.base_url)
            raise TrialsFailedError(failed, answered, len(requests), server)


# -- the identity of a server --------------------------------------------------------------------

_ENDINGS = ("/chat/completions", "/completions")
_TIMEOUT_S = 10.0
_ATTEMPTS = 3


#: What is read of an entry of a server's list of models, which is not what changes at every start:
#: the model's name in requests, the origin of its weights and the base of an adapter (vLLM sends
#: both), the context length in tokens, and the kind of server ("vllm", "openai", …).
_MODEL_FIELDS = {"id": str, "root": str, "parent": str, "max_model_len": int, "owned_by": str}


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

    @cached_property
    def models(self) -> list[dict[str, Any]]:
        """The server's list of models; empty if it has none.

        Raises
        ------
        ServerError
            If the server cannot be reached or is not ready.
        """
        body = self._get(f"{self._api}/models")
        entries = body.get("data") if isinstance(body, Mapping) else None
        return [
            {
                key: entry[key]
                for key, kind in _MODEL_FIELDS.items()
                if isinstance(entry.get(key), kind)
            }
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
        ]

    def served(self, name: str | None) -> dict[str, Any] | None:
        """Return the model of a name, else the only model; None if there are several."""
        only = self.models[0] if len(self.models) == 1 else None
        return next((model for model in self.models if model["id"] == name), only)

    @cached_property
    def version(self) -> str | None:
        """The server's version, if it has one (vLLM does).

        Raises
        ------
        ServerError
            If the server cannot be reached or is not ready.
        """
        body = self._get(f"{self._root}/version")
        version = body.get("version") if isinstance(body, Mapping) else None
        return version if isinstance(version, str) and version else None

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
