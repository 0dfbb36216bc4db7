"""Trials from OpenAI-compatible servers: vLLM's, SGLang's, llama.cpp's, OpenAI's own.

A mixin before the harness's `local-completions`, `local-chat-completions`, `openai-completions`
or `openai-chat-completions`. Those build the requests; here they are sent, `num_concurrent` of
them concurrently, each with the seed of its trial, and every answer is yielded as it ends.

The fingerprint holds what the server reports of its model; another model under the same name and
address is not noticed if the server reports nothing. Log-probabilities are the server's: vLLM's
are the untempered model's unless it was started with another ``--logprobs-mode``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.models.openai import server as openai_server
from lm_eval_bayes.harness.models.openai.client import Connection, Endpoint, Exchange, concurrently
from lm_eval_bayes.harness.models.openai.request import (
    Payloads,
    backend_of,
    check_batch_size,
    check_room,
    check_settings,
    max_gen_toks,
    prompts_to_send,
    timeout_s,
    token_count,
)
from lm_eval_bayes.harness.models.openai.responses import (
    ExchangeFailed,
    ServerError,
    TrialsFailedError,
    read_prompt_bits,
    read_trial,
)
from lm_eval_bayes.runs.model_arguments import Kind, kind_of
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: The result of a request: a trial, or a failure.
Outcome: TypeAlias = tuple[TrialRequest, Trial | ExchangeFailed]

#: At least so many failures in a row, with no answer between them, end the sampling.
_MIN_CONSECUTIVE_FAILURES = 8

#: Attempts of a request that only measures a prompt.
_ATTEMPTS_TO_MEASURE = 2


class TrialClient:
    """Requests trials over one connection, as long as the server answers.

    Parameters
    ----------
    payloads : Payloads
        Builds the bodies of the requests.
    endpoint : Endpoint
        Their address.
    messages : mapping
        What is sent, by prompt: the context or its tokens.
    measure : frozenset of str
        Prompts whose bits per token are wanted.
    concurrency : int
        Number of concurrent requests.
    think_end_token : str or None
        The token that ends a think block.
    warned : set of str
        The warnings that were logged already; shared by all calls for one server.
    """

    def __init__(
        self,
        payloads: Payloads,
        endpoint: Endpoint,
        messages: Mapping[str, Any],
        measure: frozenset[str],
        concurrency: int,
        think_end_token: str | None,
        warned: set[str],
    ) -> None:
        self._payloads = payloads
        self._endpoint = endpoint
        self._messages = messages
        self._to_measure = set(measure)
        self._concurrency = concurrency
        self._think_end_token = think_end_token
        self._consecutive_failures = 0
        self._given_up = False
        self._warned = warned

    def requests_until_given_up(self, requests: Sequence[TrialRequest]) -> Iterator[TrialRequest]:
        """Yield the requests until the server is given up."""
        for request in requests:
            if self._given_up:
                return
            yield request

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[TrialRequest], Awaitable[Outcome]]]:
        """Open the connection and return the function that requests one trial."""
        async with Connection(self._endpoint, self._concurrency) as connection:

            async def send(request: TrialRequest) -> Outcome:
                return await self._send(connection, request)

            yield send

    async def _send(self, connection: Connection, request: TrialRequest) -> Outcome:
        measured = await self._measured(connection, request)
        sent: dict[str, Any] = {}

        def payload() -> dict[str, Any]:
            sent.clear()
            sent.update(self._payloads.of(request, self._messages[request.prompt]))
            return sent

        try:
            exchange = await connection.ask(
                payload,
                lambda body: read_trial(request, body, self._payloads.chat, sent.get("model")),
                lambda failure: self._payloads.adapt(sent, failure),
            )
        except ExchangeFailed as failure:
            if measured is not None:
                self._to_measure.add(request.prompt)
            self._note(failure)
            return request, failure
        self._consecutive_failures = 0
        return request, self._completed(request, exchange, measured)

    def _note(self, failure: ExchangeFailed) -> None:
        self._consecutive_failures += 1
        limit = max(_MIN_CONSECUTIVE_FAILURES, self._concurrency)
        if failure.fatal or self._consecutive_failures >= limit:
            self._given_up = True

    async def _measured(
        self, connection: Connection, request: TrialRequest
    ) -> dict[str, float] | None:
        """Return the bits of the request's prompt, if it is the first with this prompt."""
        wanted = request.prompt in self._to_measure and not self._given_up
        if not wanted or not self._payloads.measures:
            return None
        self._to_measure.discard(request.prompt)
        try:
            exchange = await connection.ask(
                lambda: self._payloads.of_prompt(request, self._messages[request.prompt]),
                lambda body: read_prompt_bits(body, self._payloads.chat),
                lambda failure: False,
                attempts=_ATTEMPTS_TO_MEASURE,
            )
        except ExchangeFailed as failure:
            self._warn("prompt", "prompt_bpt is not recorded: %s", failure)
            bits = None
        else:
            bits = exchange.value
            if bits is None:
                self._warn("prompt", "prompt_bpt is not recorded: %s", "the server did not send it")
        if bits is None:
            # A server that does not send it for one prompt will not for the next.
            self._to_measure.clear()
            return None
        return {"prompt_bpt": bits}

    def _completed(
        self, request: TrialRequest, exchange: Exchange[Trial], measured: Mapping[str, float] | None
    ) -> Trial:
        answer = exchange.value
        signals = dict(answer.signals or {})
        if self._payloads.measures and "completion_bpt" not in signals and answer.text:
            self._warn("bits", "completion_bpt is not recorded: the server sent %s", "none")
        if "content_missing" in signals:
            self._warn(
                "content",
                "the server sent an answer without content (%s); it is recorded as an empty one. "
                "A reasoning model at its max_gen_toks does that",
                answer.finish_reason,
            )
        if self._think_end_token:
            signals["think_closed"] = self._think_end_token in answer.text
        elif "reasoning_content" in signals:
            signals["think_closed"] = bool(answer.text)
        tokens = token_count(self._messages[request.prompt])
        if tokens is not None and answer.prompt_tokens is not None:
            signals["prompt_truncated"] = answer.prompt_tokens < tokens
            if signals["prompt_truncated"]:
                self._warn(
                    "truncated",
                    "the server truncates prompts: it read fewer tokens than were sent (%s)",
                    f"{answer.prompt_tokens} of {tokens}",
                )
        limit, used = max_gen_toks(request), answer.completion_tokens
        if answer.finish_reason == "length" and used is not None and used < limit:
            self._warn(
                "length",
                "the server ended an answer for its length after %s: its own limit is lower",
                f"{used} tokens of max_gen_toks={limit}",
            )
        return replace(
            answer,
            signals={**signals, **(measured or {})},
            queued_s=exchange.waited_s + (answer.queued_s or 0.0),
            generated_s=exchange.took_s if answer.generated_s is None else answer.generated_s,
            concurrency=exchange.running,
        )

    def _warn(self, topic: str, message: str, what: object) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning(message, what)


#: Attempts per request by default: the harness's 3 end within seconds, while a restarting server
#: needs a minute or two.
ATTEMPTS = 8


class OpenAISampling:
    """A sampling mixin before one of the harness's OpenAI-compatible backends.

    Parameters
    ----------
    endpoint : str, optional
        A name of the server for the fingerprint, in place of its host, port and path, for a
        server whose address changes.
    **kwargs
        The harness's arguments; ``timeout`` and ``max_retries`` have larger defaults here.
    """

    seeded = True
    takes_seed = True

    def __init__(self, *args: Any, endpoint: str | None = None, **kwargs: Any) -> None:
        self._given = {
            name: value for name, value in kwargs.items() if kind_of(name, value) is not Kind.SECRET
        }
        self._endpoint = endpoint
        self._warned: set[str] = set()
        super().__init__(*args, **kwargs)

    # -- the interface of sampling mixins ----------------------------------------------

    @property
    def backend_name(self) -> str:
        """The harness's name of the backend."""
        return backend_of(self)

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that this server cannot provide."""
        return () if self._can_measure_prompts() else ("prompt_bpt",)

    def sample(
        self, requests: Sequence[TrialRequest], measure: frozenset[str] = frozenset()
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Request trials and yield each as it ends.

        Parameters
        ----------
        requests : sequence of TrialRequest
            Sent in this order; as one ends, the next is sent.
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
        requests = list(requests)
        if not requests:
            return iter(())
        payloads = self._payloads
        openai_server.server_address(self._harness.base_url)
        check_batch_size(getattr(self._harness, "_batch_size", 1))
        check_settings(payloads, requests, self._warned)
        messages = prompts_to_send(self, requests, payloads.chat)
        check_room(requests, messages, self._room())
        longest = max(map(max_gen_toks, requests))
        endpoint = Endpoint(
            url=str(self._harness.base_url),
            headers=self._harness.header,
            verify=bool(self._harness.verify_certificate),
            ca_cert_path=getattr(self._harness, "ca_cert_path", None),
            timeout_s=timeout_s(longest, self._given.get("timeout")),
            attempts=max(1, int(self._given.get("max_retries", ATTEMPTS))),
            seed=requests[0].seed,
        )
        concurrency = min(self._concurrency(), len(requests))
        if measure and not self._can_measure_prompts():
            measure = frozenset()
        client = TrialClient(
            payloads, endpoint, messages, measure, concurrency, self._think_end_token, self._warned
        )
        return self._answers(client, requests, concurrency)

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
        served = self._server.served(self._harness.model)
        return {**self._fingerprint(), "served": None if served is None else served.to_dict()}

    def fingerprint_among(self, stored: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the stored fingerprint of this server, for when it is down."""
        return openai_server.fingerprint_among(self._fingerprint(), stored)

    def versions(self) -> dict[str, str]:
        """Return the versions of the client's software and, if it sends it, of the server."""
        versions = {name: importlib.metadata.version(name) for name in ("lm_eval", "aiohttp")}
        version = self._server.version()
        if version is not None:
            versions["server"] = version
        return versions

    # -- internals ---------------------------------------------------------------------

    @property
    def _harness(self) -> Any:
        return self  # typed as the harness's class behind this one

    @cached_property
    def _payloads(self) -> Payloads:
        return Payloads(self)

    @cached_property
    def _server(self) -> openai_server.Server:
        verify = bool(self._harness.verify_certificate)
        return openai_server.Server(
            self._harness.base_url,
            self._harness.header,
            (getattr(self._harness, "ca_cert_path", None) or True) if verify else False,
        )

    @property
    def _think_end_token(self) -> str | None:
        # Before 0.4.13 the harness accepts the argument and ignores it.
        token = getattr(self, "think_end_token", None) or self._given.get("think_end_token")
        return token if isinstance(token, str) and token else None

    def _fingerprint(self) -> dict[str, Any]:
        return openai_server.describe_server(self, self.backend_name, self._given, self._endpoint)

    def _can_measure_prompts(self) -> bool:
        if "chat" not in self.backend_name:
            return not self.backend_name.startswith("openai")
        served = self._served()
        return served is not None and served.owned_by == "vllm"

    def _room(self) -> int | None:
        """Return the context length in tokens, if it is known."""
        harness = self._harness
        if "max_length" in self._given:
            return int(harness.max_length)
        served = self._served()
        if served is not None and served.max_model_len is not None:
            return served.max_model_len
        # The harness truncates tokenized prompts, to a context of 2048 tokens by default.
        tokenized = getattr(harness, "tokenized_requests", False) and not self._payloads.chat
        return int(harness.max_length) if tokenized else None

    def _served(self) -> openai_server.ServedModel | None:
        try:
            return self._server.served(self._harness.model)
        except ServerError:
            return None

    def _concurrency(self) -> int:
        wanted = int(getattr(self._harness, "_concurrent", 1))
        if wanted <= 1 and "concurrency" not in self._warned:
            self._warned.add("concurrency")
            log.warning(
                "num_concurrent is 1, so the server generates one trial at a time; most servers "
                "generate many times as many tokens per second with num_concurrent=64"
            )
        return max(wanted, 1)

    def _answers(
        self, client: TrialClient, requests: Sequence[TrialRequest], concurrency: int
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        failed: list[tuple[TrialRequest, str]] = []
        answered = 0
        outcomes = concurrently(
            client.requests_until_given_up(requests), client.opened, concurrency
        )
        try:
            for request, outcome in outcomes:
                if isinstance(outcome, ExchangeFailed):
                    failed.append((request, str(outcome)))
                else:
                    answered += 1
                    yield request, outcome
        finally:
            outcomes.close()  # type: ignore[attr-defined]
        if failed:
            server = self._endpoint or openai_server.server_address(self._harness.base_url)
            raise TrialsFailedError.of(failed, answered, len(requests), server)
