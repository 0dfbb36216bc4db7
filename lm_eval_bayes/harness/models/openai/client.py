"""Trials from a server, one request each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeAlias

from lm_eval_bayes._util.http import Answer, Client, RequestFailed
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.models.openai.request import Payloads, token_count
from lm_eval_bayes.harness.models.openai.responses import read_prompt_bits, read_trial
from lm_eval_bayes.store.trial import Trial

#: The result of a request: a trial, or a failure.
Outcome: TypeAlias = tuple[TrialRequest, Trial | RequestFailed]

#: Fields of a trial that a server may not send.
_COUNTED = ("prompt_tokens", "completion_tokens", "finish_reason")

#: At least so many failures in a row, with no answer between them, end the sampling.
_MIN_FAILURES = 8

#: Attempts of a request that only measures a prompt.
_ATTEMPTS_TO_MEASURE = 2


@dataclass(eq=False)
class TrialClient:
    """Requests trials from a server, as long as it answers.

    Parameters
    ----------
    client : Client
        The server.
    payloads : Payloads
        Builds the bodies of the requests.
    messages : mapping
        What is sent, by prompt: the context or its tokens.
    to_measure : set of str
        Prompts whose bits per token are wanted.
    concurrency : int
        Number of concurrent requests.
    think_end_token : str or None
        The token that ends a think block.
    warn_once : callable
        Logs a warning, the first time for its topic.
    """

    client: Client
    payloads: Payloads
    messages: Mapping[str, Any]
    to_measure: set[str]
    concurrency: int
    think_end_token: str | None
    warn_once: Callable[..., None]
    _failures = 0

    def outcomes(self, requests: Iterable[TrialRequest]) -> Iterator[Outcome]:
        """Yield the result of each request as it comes, until the server is given up."""
        return self.client.results(
            takewhile(lambda _: self.client.given_up is None, requests),
            self._send,
            self.concurrency,
            lambda: getattr(requests, "deadline", None),
        )

    async def _send(self, request: TrialRequest) -> Outcome:
        measured = await self._measured(request)
        message = self.messages[request.prompt]
        sent: dict[str, Any] = {}

        def payload() -> dict[str, Any]:
            sent.clear()
            sent.update(self.payloads.of(request, message))
            return sent

        def read(body: Any) -> Trial:
            return read_trial(
                request,
                body,
                self.payloads.chat,
                sent_tokens=token_count(message),
                think_end_token=self.think_end_token,
            )

        try:
            answer = await self.client.ask(
                payload, read, lambda failure: self.payloads.adapt(sent, failure)
            )
        except RequestFailed as failure:
            if measured:
                self.to_measure.add(request.prompt)
            self._failures += 1
            if self._failures >= max(_MIN_FAILURES, self.concurrency):
                self.client.given_up = self.client.given_up or failure
            return request, failure
        self._failures = 0
        return request, self._completed(request, answer, measured)

    async def _measured(self, request: TrialRequest) -> dict[str, float]:
        """Return the signals of the request's prompt, if it is the first with this prompt."""
        if request.prompt not in self.to_measure or not self.payloads.measures:
            return {}
        self.to_measure.discard(request.prompt)
        problem: object = "the server did not send it"
        try:
            answer = await self.client.ask(
                lambda: self.payloads.of_prompt(request, self.messages[request.prompt]),
                lambda body: read_prompt_bits(body, self.payloads.chat),
                attempts=_ATTEMPTS_TO_MEASURE,
            )
            if answer.value is not None:
                return {"prompt_bpt": answer.value}
        except RequestFailed as failure:
            problem = failure
        self.warn_once("prompt", "prompt_bpt is not recorded: %s", problem)
        self.to_measure.clear()  # a server that does not send it for one prompt will not for others
        return {}

    def _completed(
        self, request: TrialRequest, answer: Answer[Trial], measured: Mapping[str, float]
    ) -> Trial:
        trial = answer.value
        signals = {**(trial.signals or {}), **measured}
        missing = [name for name in _COUNTED if getattr(trial, name) is None]
        asked = self.payloads.measures and not self.payloads.tempers(request)
        if asked and "completion_bpt" not in signals and trial.text:
            missing.append("completion_bpt")
        if missing:
            self.warn_once("missing", "the server sends no %s", join_words(missing, "or"))
        if "content_missing" in signals:
            message = "an answer without content counts as empty (cut off while reasoning?)"
            self.warn_once("content", message)
        if signals.get("prompt_truncated"):
            tokens = trial.prompt_tokens, token_count(self.messages[request.prompt])
            self.warn_once("truncated", "the server truncates prompts: it read %s of %s", *tokens)
        limit, used = request.kwargs["max_gen_toks"], trial.completion_tokens
        if trial.finish_reason == "length" and used is not None and used < limit:
            message = "the server ended an answer at a length of its own: %d of max_gen_toks=%d"
            self.warn_once("length", message, used, limit)
        return replace(
            trial,
            seed=trial.seed if self.payloads.seeded else None,
            signals=signals,
            queued_s=answer.waited_s,
            generated_s=answer.took_s,
            concurrency=answer.running,
        )
