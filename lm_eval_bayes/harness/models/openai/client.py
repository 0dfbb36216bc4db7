"""Trials from a server, one request each: what is sent, and answers read as trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeAlias

from lm_eval_bayes._util.http import Answer, Client, RequestFailed
from lm_eval_bayes._util.text import first_names, join_words, plural
from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.models.interface import TrialRequest, bits_per_token
from lm_eval_bayes.harness.models.openai.request import Payloads, token_count
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.store.trial import Trial

_MAX_REASONS = 5

#: Finish reasons of answers that the server did not complete.
_ABORTED = frozenset({"abort", "aborted", "error", "cancelled"})


class ServerError(LmEvalBayesError, RuntimeError):
    """A server cannot be used as configured."""

    rule: Rule | None = "failed"


class TrialsFailedError(ServerError):
    """The server did not answer the requests for some trials; all others were yielded.

    Attributes
    ----------
    failed : tuple of (TrialRequest, str)
        The trials that failed, and the reasons.
    """

    def __init__(
        self, failed: Sequence[tuple[TrialRequest, str]], answered: int, requested: int, server: str
    ) -> None:
        self.failed = tuple(failed)
        by_reason: dict[str, list[str]] = {}
        for request, reason in failed:
            name = f"trial {request.trial} of {' '.join(request.prompt.split())[-50:]!r}"
            by_reason.setdefault(reason, []).append(name)
        reasons = [f"{first_names(names, 1)}: {reason}" for reason, names in by_reason.items()]
        left = requested - answered - len(failed)
        super().__init__(
            f"{server} did not answer {plural(len(failed), 'request')} of {requested:,} "
            f"({'; '.join(reasons[:_MAX_REASONS])}); {answered:,} were answered and {left:,} not "
            "sent; with a store, the same command goes on from what is stored"
        )


def read_trial(
    request: TrialRequest,
    body: Any,
    chat: bool,
    *,
    sent_tokens: int | None = None,
    think_end_token: str | None = None,
) -> Trial:
    """Read the JSON of one answer.

    Parameters
    ----------
    request : TrialRequest
        The trial that was requested.
    body : object
        The answer of the server.
    chat : bool
        Whether a chat completion was requested.
    sent_tokens : int, optional
        Number of tokens of the prompt, if it was sent as tokens.
    think_end_token : str, optional
        The text that ends a think block.

    Returns
    -------
    Trial
        Its signals are ``completion_bpt``; ``content_missing``, ``reasoning_content`` and
        ``refusal`` of a chat; ``think_closed``; ``prompt_truncated`` (whether the server read fewer
        tokens than were sent).

    Raises
    ------
    RequestFailed
        If the answer does not contain exactly one finished completion.
    """
    choice = _only_choice(body)
    finish_reason = str(choice.get("finish_reason") or "") or None
    if finish_reason in _ABORTED:
        raise RequestFailed(f"the server aborted the answer ({finish_reason})")
    signals: dict[str, Any] = {}
    if chat:
        message = choice.get("message")
        if not isinstance(message, Mapping):
            raise RequestFailed("the answer contains no message")
        content = _joined(message.get("content"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        texts = {"reasoning_content": reasoning, "refusal": message.get("refusal")}
        signals |= {name: text for name, text in texts.items() if isinstance(text, str)}
    else:
        content = _joined(choice.get("text"))
        if content is None and finish_reason != "content_filter":
            raise RequestFailed("the answer contains no text")
    if content is None:
        signals["content_missing"] = True
    text = content or ""
    tokens, logprobs = _sampled_tokens(choice.get("logprobs"))
    bits = bits_per_token(logprobs)
    if bits is not None:
        signals["completion_bpt"] = bits
    usage = mapping(body.get("usage"))
    completion_tokens = _count(usage.get("completion_tokens"))
    prompt_tokens = _count(usage.get("prompt_tokens"))
    if think_end_token:
        signals["think_closed"] = think_end_token in text
    elif "reasoning_content" in signals:
        signals["think_closed"] = bool(text)
    if sent_tokens is not None and prompt_tokens is not None:
        signals["prompt_truncated"] = prompt_tokens < sent_tokens
    stop_reason = choice.get("stop_reason", choice.get("matched_stop"))
    return request.result(
        text,
        finish_reason=finish_reason,
        stop_reason=stop_reason if isinstance(stop_reason, str) else _count(stop_reason),
        prompt_tokens=prompt_tokens,
        completion_tokens=tokens or None if completion_tokens is None else completion_tokens,
        signals=signals,
    )


def read_prompt_bits(body: Any, chat: bool) -> float | None:
    """Return the bits per token of an echoed prompt; None if the server did not send them.

    The first token has no probability.
    """
    choice = _only_choice(body)
    if chat:
        # One entry for each token, by the token's id; none for the first token.
        entries = body.get("prompt_logprobs") or []
        return bits_per_token(
            [part.get("logprob") for entry in entries if entry for part in entry.values()]
        )
    _, values = _sampled_tokens(choice.get("logprobs"))
    # The one generated token follows the prompt. A server that does not know `echo`, as that of
    # llama.cpp, sends this one token alone.
    prompt_tokens = _count(mapping(body.get("usage")).get("prompt_tokens"))
    end = len(values) - 1 if prompt_tokens is None else prompt_tokens
    first = int(values[:1] == [None])
    return bits_per_token(values[first:end]) if len(values) > end - first else None


def _only_choice(body: Any) -> Mapping[str, Any]:
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise RequestFailed("the answer has not one list of one choice")
    return choices[0]


def _joined(content: Any) -> str | None:
    """Return a message's text, which may be a list of parts."""
    if isinstance(content, list):
        parts = [mapping(part).get("text") for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


def _sampled_tokens(logprobs: Any) -> tuple[int, list[Any]]:
    """Return how many tokens there are, and log-probabilities, in either format of servers."""
    logprobs = mapping(logprobs)
    if isinstance(logprobs.get("content"), list):
        values = [mapping(entry).get("logprob") for entry in logprobs["content"]]
        return len(values), values
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    return (
        len(tokens) if isinstance(tokens, list) else 0,
        values if isinstance(values, list) else [],
    )


def _count(value: object) -> int | None:
    """Return a count; None for anything that a store does not take as one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return None


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
        has_bits = self.payloads.measures and not self.payloads.tempers(request)
        if has_bits and "completion_bpt" not in signals and trial.text:
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
