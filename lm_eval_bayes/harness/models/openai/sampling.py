"""Trials from OpenAI-compatible servers: vLLM's, SGLang's, llama.cpp's, OpenAI's own.

A mixin before the harness's `local-completions`, `local-chat-completions`, `openai-completions`
or `openai-chat-completions`. Those build the requests; here they are sent, `num_concurrent` of
them at a time, each with the seed of its trial, and every answer is handed on as it ends.

What the weights are behind an address cannot be known from here. The fingerprint holds what the
server says of itself; another model under the same name and address goes unnoticed where it says
nothing. Log-probabilities are the server's: vLLM's are the untempered model's unless it was
started with another ``--logprobs-mode``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.openai import server as openai_server
from lm_eval_bayes.harness.models.openai.answers import (
    ExchangeFailed,
    ServerError,
    TrialsFailedError,
    read_prompt_bits,
    read_trial,
)
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
from lm_eval_bayes.harness.models.trial_request import TrialRequest
from lm_eval_bayes.runs.model_arguments import Kind, kind_of
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: What becomes of an request: a trial, or why there is none.
Outcome: TypeAlias = tuple[TrialRequest, Trial | ExchangeFailed]

#: So many failures in a row, with no answer between them, and nothing more is asked.
_FEWEST_IN_A_ROW = 8

#: A trial does not wait longer for what is only a signal.
_ATTEMPTS_TO_MEASURE = 2


class Asking:
    """Asks for trials over one connection, for as long as the server answers.

    Parameters
    ----------
    payloads : Payloads
        Builds the requests.
    endpoint : Endpoint
        Where they go.
    messages : mapping
        By prompt: what is sent of it, the context or its tokens.
    measure : frozenset of str
        Prompts whose bits per token are wanted.
    at_once : int
        Requests under way at a time.
    think_end_token : str or None
        Ends the think block.
    said : set of str
        What the user was told already; shared by all that is asked of one server.
    """

    def __init__(
        self,
        payloads: Payloads,
        endpoint: Endpoint,
        messages: Mapping[str, Any],
        measure: frozenset[str],
        at_once: int,
        think_end_token: str | None,
        said: set[str],
    ) -> None:
        self._payloads = payloads
        self._endpoint = endpoint
        self._messages = messages
        self._to_measure = set(measure)
        self._at_once = at_once
        self._think_end_token = think_end_token
        self._in_a_row = 0
        self._given_up = False
        self._said = said

    def until_given_up(self, requests: Sequence[TrialRequest]) -> Iterator[TrialRequest]:
        """Yield the requests while there is a point in asking."""
        for request in requests:
            if self._given_up:
                return
            yield request

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[TrialRequest], Awaitable[Outcome]]]:
        """Open the connection and give the function that asks for one trial."""
        async with Connection(self._endpoint, self._at_once) as connection:

            async def ask(request: TrialRequest) -> Outcome:
                return await self._ask(connection, request)

            yield ask

    async def _ask(self, connection: Connection, request: TrialRequest) -> Outcome:
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
                lambda failure: self._payloads.relent(sent, failure),
            )
        except ExchangeFailed as failure:
            if measured is not None:
                self._to_measure.add(request.prompt)
            self._note(failure)
            return request, failure
        self._in_a_row = 0
        return request, self._completed(request, exchange, measured)

    def _note(self, failure: ExchangeFailed) -> None:
        self._in_a_row += 1
        if failure.hopeless or self._in_a_row >= max(_FEWEST_IN_A_ROW, self._at_once):
            self._given_up = True

    async def _measured(
        self, connection: Connection, request: TrialRequest
    ) -> dict[str, float] | None:
        """Return the bits of the order's prompt, if this is the first to ask for them."""
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
            self._say("prompt", "prompt_bpt is not recorded: %s", failure)
            bits = None
        else:
            bits = exchange.value
            if bits is None:
                self._say("prompt", "prompt_bpt is not recorded: %s", "the server did not tell it")
        if bits is None:
            # A server that cannot tell it for one prompt will not for the next.
            self._to_measure.clear()
            return None
        return {"prompt_bpt": bits}

    def _completed(
        self, request: TrialRequest, exchange: Exchange[Trial], measured: Mapping[str, float] | None
    ) -> Trial:
        answer = exchange.value
        signals = dict(answer.signals or {})
        if self._payloads.measures and "completion_bpt" not in signals and answer.text:
            self._say("bits", "completion_bpt is not recorded: the server sent %s", "none")
        if "content_missing" in signals:
            self._say(
                "content",
                "the server sent an answer without content (%s); it is recorded as an empty one. "
                "A reasoning model that used up max_gen_toks does that",
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
                self._say(
                    "truncated",
                    "the server read fewer tokens of a prompt than were sent (%s): it cuts prompts",
                    f"{answer.prompt_tokens} of {tokens}",
                )
        wanted, used = max_gen_toks(request), answer.completion_tokens
        if answer.finish_reason == "length" and used is not None and used < wanted:
            self._say(
                "length",
                "the server ended an answer for its length after %s: its own limit is shorter",
                f"{used} tokens of max_gen_toks={wanted}",
            )
        return replace(
            answer,
            signals={**signals, **(measured or {})},
            queued_s=exchange.waited_s + (answer.queued_s or 0.0),
            generated_s=exchange.took_s if answer.generated_s is None else answer.generated_s,
            concurrency=exchange.under_way,
        )

    def _say(self, topic: str, message: str, what: object) -> None:
        if topic not in self._said:
            self._said.add(topic)
            log.warning(message, what)


#: Attempts a request where the user names no number: the harness's 3 end within seconds, while
#: a server that starts again is away for a minute or two.
ATTEMPTS = 8


class OpenAISampling:
    """Samples trials from a server; placed before a harness's API backend in a class's bases.

    Parameters
    ----------
    endpoint : str, optional
        A name of the server for the fingerprint, in place of its host, port and path: for one
        that comes back at another address.
    **kwargs
        The harness's own; ``timeout`` and ``max_retries`` have larger defaults here.
    """

    seeded = True
    takes_seed = True

    def __init__(self, *args: Any, endpoint: str | None = None, **kwargs: Any) -> None:
        self._given = {
            name: value for name, value in kwargs.items() if kind_of(name, value) is not Kind.SECRET
        }
        self._endpoint = endpoint
        self._said: set[str] = set()
        super().__init__(*args, **kwargs)

    # -- what the recording around it asks for -----------------------------------------

    @property
    def backend_name(self) -> str:
        """The name under which the harness knows the backend."""
        return backend_of(self)

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that this server cannot give."""
        return () if self._can_measure_prompts() else ("prompt_bpt",)

    def sample(
        self, requests: Sequence[TrialRequest], measure: frozenset[str] = frozenset()
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Ask for trials and yield each as it comes.

        Parameters
        ----------
        requests : sequence of TrialRequest
            Begun in this order; as one ends, the next begins.
        measure : frozenset of str
            Prompts whose ``prompt_bpt`` is wanted, with one trial of each.

        Yields
        ------
        tuple of (TrialRequest, Trial)
            In the order of ending. Closing the generator cancels what is under way.

        Raises
        ------
        TaskConfigError, ModelConfigError
            At once, if the settings cannot be passed on as they are.
        TrialsFailedError
            After all that came was yielded, if trials failed in spite of all attempts.
        """
        requests = list(requests)
        if not requests:
            return iter(())
        payloads = self._payloads
        openai_server.server_address(self._harness.base_url)
        check_batch_size(getattr(self._harness, "_batch_size", 1))
        check_settings(payloads, requests, self._said)
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
        at_once = min(self._concurrency(), len(requests))
        if measure and not self._can_measure_prompts():
            measure = frozenset()
        asking = Asking(
            payloads, endpoint, messages, measure, at_once, self._think_end_token, self._said
        )
        return self._answers(asking, requests, at_once)

    def finished_text(
        self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any] | None = None
    ) -> str:
        """Return what the harness's backend would have returned for a text.

        Completions come back as they are. Of a chat's, the think block goes; and stop strings
        that the harness does not send (more than four) cut the text here, which gives what the
        server would have given had it known them.
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
        for stop in payloads.stops_kept(kwargs):
            text = text.split(stop)[0]
        return text

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the server gets."""
        return self._payloads.stops_sent(kwargs)

    def fingerprint(self) -> dict[str, Any]:
        """Return what is known to change the distribution.

        Raises
        ------
        ServerError
            If the server cannot be reached, so that it cannot be told which model it serves;
            :meth:`fingerprint_among` finds it in a store.
        """
        served = self._server.served(self._harness.model)
        return {**self._fingerprint(), "served": None if served is None else served.to_dict()}

    def fingerprint_among(self, known: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the one of a store's fingerprints that can be this server's, if it is down."""
        return openai_server.fingerprint_among(self._fingerprint(), known)

    def versions(self) -> dict[str, str]:
        """Return the versions of what sends and, where it tells, of what generates."""
        found = {name: importlib.metadata.version(name) for name in ("lm_eval", "aiohttp")}
        version = self._server.version()
        if version is not None:
            found["server"] = version
        return found

    # -- how ---------------------------------------------------------------------------

    @property
    def _harness(self) -> Any:
        return self  # as the harness's class that stands behind this one

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
        # Before 0.4.13 the harness takes the argument and forgets it.
        token = getattr(self, "think_end_token", None) or self._given.get("think_end_token")
        return token if isinstance(token, str) and token else None

    def _fingerprint(self) -> dict[str, Any]:
        return openai_server.described(self, self.backend_name, self._given, self._endpoint)

    def _can_measure_prompts(self) -> bool:
        if "chat" not in self.backend_name:
            return not self.backend_name.startswith("openai")
        served = self._served()
        return served is not None and served.owned_by == "vllm"

    def _room(self) -> int | None:
        """Return how many tokens prompt and completion may have together, if that is known."""
        harness = self._harness
        if "max_length" in self._given:
            return int(harness.max_length)
        served = self._served()
        if served is not None and served.max_model_len is not None:
            return served.max_model_len
        # The harness cuts what it has tokenized, for a model of 2048 tokens unless told better.
        tokenized = getattr(harness, "tokenized_requests", False) and not self._payloads.chat
        return int(harness.max_length) if tokenized else None

    def _served(self) -> openai_server.ServedModel | None:
        try:
            return self._server.served(self._harness.model)
        except ServerError:
            return None

    def _concurrency(self) -> int:
        wanted = int(getattr(self._harness, "_concurrent", 1))
        if wanted <= 1 and "concurrency" not in self._said:
            self._said.add("concurrency")
            log.warning(
                "num_concurrent is 1, so the server works on one trial at a time; most servers "
                "give many times as many tokens a second with num_concurrent=64"
            )
        return max(wanted, 1)

    def _answers(
        self, asking: Asking, requests: Sequence[TrialRequest], at_once: int
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        failed: list[tuple[TrialRequest, str]] = []
        answered = 0
        outcomes = concurrently(asking.until_given_up(requests), asking.opened, at_once)
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
            where = self._endpoint or openai_server.server_address(self._harness.base_url)
            raise TrialsFailedError.of(failed, answered, len(requests), where)
