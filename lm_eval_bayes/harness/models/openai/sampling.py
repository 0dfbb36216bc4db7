"""Trials from OpenAI-compatible servers: vLLM's, SGLang's, llama.cpp's, OpenAI's own.

A mixin before the harness's `local-completions`, `local-chat-completions`, `openai-completions`
or `openai-chat-completions`. Those build the requests; here they are sent, `num_concurrent` of
them concurrently, each with the seed of its trial, and every answer is yielded as it ends.

`base_url` names one server, which may be a proxy before several. The fingerprint holds what it
reports of its model; another model under the same name and address is not noticed if it reports
nothing. Log-probabilities are the server's: vLLM's are the untempered model's unless it was started
with another ``--logprobs-mode``, and SGLang's only at temperature 1, where they are recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    SamplingMixin,
    TrialRequest,
    installed_versions,
)
from lm_eval_bayes.harness.models.openai.client import TrialClient
from lm_eval_bayes.harness.models.openai.connection import Endpoint
from lm_eval_bayes.harness.models.openai.request import (
    Payloads,
    check_room,
    check_settings,
    prompts_to_send,
    timeout_s,
)
from lm_eval_bayes.harness.models.openai.responses import (
    ExchangeFailed,
    ServerError,
    TrialsFailedError,
)
from lm_eval_bayes.harness.models.openai.seed_check import TOKENS, Verdict, check_seeds
from lm_eval_bayes.harness.models.openai.served_models import Server, server_address
from lm_eval_bayes.runs.model_arguments import Kind, keyed, kind_of
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Attempts per request by default: the harness's 3 end within seconds, while a restarting server
#: needs a minute or two. A server that does not answer is paused ten times in two minutes.
ATTEMPTS = 10

#: Attempts of a request that checks whether seeds are honoured, and its time-out in seconds.
_ATTEMPTS_TO_CHECK, _CHECK_TIMEOUT_S = 2, 120.0


#: The settings of the texts that show whether seeds are honoured.
_CHECK_KWARGS = {"temperature": 1.0, "do_sample": True, "until": []}

_IGNORED = (
    "give seeds=ignored to sample without seeds, which the results then say (no trial can be "
    "reproduced from its seed)"
)


class OpenAISampling(SamplingMixin):
    """A sampling mixin before one of the harness's OpenAI-compatible backends.

    Parameters
    ----------
    endpoint : str, optional
        A name of the server for the fingerprint. It tells apart what servers report as one
        model, or names one model where they report nothing and their addresses change.
    seeds : str, optional
        ``ignored`` for a server that ignores the seeds of requests: none are sent, and the trials
        have none.
    **kwargs
        The harness's arguments; ``timeout`` and ``max_retries`` have larger defaults here.
    """

    takes_seed = True
    streams = True

    def __init__(
        self, *args: Any, endpoint: str | None = None, seeds: str | None = None, **kwargs: Any
    ) -> None:
        if seeds not in (None, "ignored"):
            rule = "be ignored, for a server that ignores them, or left out"
            raise ModelConfigError.of("seeds", "choice", rule, seeds)
        self.seeded = seeds is None
        self._given = {
            name: value for name, value in kwargs.items() if kind_of(name, value) is not Kind.SECRET
        }
        self._endpoint = endpoint
        if kwargs.get("base_url"):  # before the harness's class asks it for a tokenizer
            server_address(kwargs["base_url"])
        self._seeds_checked = False
        self._expected: Mapping[str, Any] | None = None
        super().__init__(*args, **kwargs)

    # -- the interface of sampling mixins ----------------------------------------------

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that this server cannot provide."""
        unseeded = () if self.seeded else ("seed",)
        return unseeded if self._can_measure_prompts() else (*unseeded, "prompt_bpt")

    def prepare(self, requests: Sequence[TrialRequest]) -> None:
        """Check that the server honours seeds, before trials are sampled.

        Parameters
        ----------
        requests : sequence of TrialRequest
            A request of every question.

        Raises
        ------
        ModelConfigError
            If the server ignores seeds or gives one text for all of them, unless
            ``seeds=ignored`` is given.
        """
        self._served()
        sampled = any(request.kwargs.get("temperature") for request in requests)
        if self._seeds_checked or not sampled or self._payloads.official:
            return
        self._check_seeds(requests[0])
        self._seeds_checked = True

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
        batch_size = getattr(self, "_batch_size", 1)
        if batch_size > 1:
            rule = "be 1 for trials over an API, where one seed serves a batch (see num_concurrent)"
            raise ModelConfigError.of("batch_size", "conflict", rule, batch_size)
        check_settings(payloads, questions, self.warn_once)
        messages = prompts_to_send(self, questions, payloads.chat)
        check_room(questions, messages, self._room())
        longest = max(int(request.kwargs["max_gen_toks"]) for request in questions)
        endpoint = self._requests(
            timeout_s(longest, self._given.get("timeout")),
            max(1, int(self._given.get("max_retries", ATTEMPTS))),
            questions[0].seed,
        )
        client = TrialClient(
            payloads,
            endpoint,
            messages,
            set(measure) if measure and self._can_measure_prompts() else set(),
            min(self._concurrency(), len(requests)),
            self._think_end_token,
            self.warn_once,
            served=self._served() or self._expected,
            unchecked=self._server.is_down,
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
        self._expected = self._server.served(self.model)
        return {**self._fingerprint(), "served": self._expected}

    def fingerprint_among(self, stored: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the only stored fingerprint that equals this server's up to `served`.

        With it the stored trials of a server that is down can be read.
        """
        own = self._fingerprint()
        equal = []
        for recorded in stored:
            fingerprint = {**own, "served": recorded.get("served")}
            if keyed(fingerprint)[0] == keyed(recorded)[0]:
                equal.append(fingerprint)
        if len(equal) != 1:
            return None
        self._expected = equal[0]["served"]
        return equal[0]

    def versions(self) -> dict[str, str]:
        """Return the versions of the client's software and, if it sends it, of the server."""
        versions = installed_versions("lm_eval", "aiohttp")
        with suppress(ServerError):
            version = self._server.version
            if version is not None:
                versions["server"] = version
        return versions

    # -- internals ---------------------------------------------------------------------

    @cached_property
    def _payloads(self) -> Payloads:
        return Payloads(self, self.seeded)

    @cached_property
    def _server(self) -> Server:
        verify = bool(self.verify_certificate)
        return Server(
            self.base_url,
            self.header,
            (getattr(self, "ca_cert_path", None) or True) if verify else False,
        )

    def _requests(self, timeout_s: float, attempts: int, seed: int) -> Endpoint:
        return Endpoint(
            url=self.base_url,
            headers=self.header,
            verify=bool(self.verify_certificate),
            ca_cert_path=getattr(self, "ca_cert_path", None),
            timeout_s=timeout_s,
            attempts=attempts,
            seed=seed,
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
        served = self._served()
        if not self._payloads.chat:
            return not (self._payloads.official or self._payloads.llamacpp)
        return served is not None and served.get("owned_by") == "vllm"

    @property
    def checks_context(self) -> bool:
        """Whether the context length is known, and requests that do not fit are refused."""
        return self._room() is not None

    def _room(self) -> int | None:
        """Return the context length in tokens, if it is known."""
        if "max_length" in self._given:
            return int(self.max_length)
        with suppress(ServerError):
            length = self._server.context_length(self.model)
            if length is not None:
                return length
        # The harness truncates tokenized prompts, to a context of 2048 tokens by default.
        tokenized = getattr(self, "tokenized_requests", False) and not self._payloads.chat
        return int(self.max_length) if tokenized else None

    def _served(self) -> dict[str, Any] | None:
        try:
            served = self._server.served(self.model)
        except ServerError:
            return None
        owner = served.get("owned_by") if served is not None else None
        self._payloads.llamacpp, self._payloads.sglang = owner == "llamacpp", owner == "sglang"
        return served

    def _check_seeds(self, request: TrialRequest) -> None:
        """Check whether the server honours seeds.

        Raises
        ------
        ModelConfigError
            See :meth:`prepare`.
        """
        host = server_address(self.base_url)
        if self._server.is_down:
            log.warning("whether %s honours seeds is not known: it does not answer yet", host)
            return
        endpoint = self._requests(_CHECK_TIMEOUT_S, _ATTEMPTS_TO_CHECK, request.seed)
        try:
            verdict = check_seeds(
                lambda prompt, seed: self._short_text(endpoint, request, prompt, seed),
                request.seed,
            )
        except ExchangeFailed as failure:
            if "seed" in failure.complaint and self.seeded:
                raise ModelConfigError(
                    f"{host} refuses the seeds of requests; {_IGNORED}",
                    "unsupported",
                    "seeds",
                    failure.complaint,
                ) from failure
            log.warning("whether %s honours seeds is not known: %s", host, failure)
            return
        if verdict is Verdict.UNKNOWN:
            log.warning("whether %s honours seeds is not known: it sent empty texts", host)
        elif verdict is Verdict.ONE_TEXT:
            requests = "different seeds" if self.seeded else "requests without seeds"
            raise ModelConfigError(
                f"{host} gave the same text for {requests} at temperature 1, so all trials of a "
                "question would be one text"
                + (
                    "; does it cache answers, or use a fixed seed?"
                    if self.seeded
                    else " (SGLang with --enable-deterministic-inference does so); leave out "
                    "seeds=ignored, if the server reads seeds"
                ),
                "unsupported",
                "seeds",
                verdict,
            )
        elif verdict is Verdict.IGNORED and self.seeded:
            sentence = (
                f"{host} ignores the seeds of requests: it gave different texts for one seed; "
                f"{_IGNORED}"
            )
            raise ModelConfigError(sentence, "unsupported", "seeds", verdict)

    def _short_text(self, endpoint: Endpoint, request: TrialRequest, prompt: str, seed: int) -> str:
        """Return the server's short text for a prompt and a seed, at temperature 1.

        Raises
        ------
        ExchangeFailed
            If the server does not answer.
        """
        kwargs = {**_CHECK_KWARGS, "max_gen_toks": TOKENS}
        context: Any = prompt
        if self._payloads.chat:
            context = self.apply_chat_template([{"role": "user", "content": prompt}])
        asked = replace(request, context=context, prompt=prompt, seed=seed, kwargs=kwargs)
        messages = prompts_to_send(self, [asked], self._payloads.chat)
        client = TrialClient(self._payloads, endpoint, messages, set(), 1, None, _no_warning)
        ((_, answer),) = client.outcomes([asked])
        if isinstance(answer, ExchangeFailed):
            raise answer
        # all that the server wrote, reasoning and answer
        return str((answer.signals or {}).get("reasoning_content", "")) + answer.text

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
        without_content: Counter[str] = Counter()
        try:
            for request, outcome in outcomes:
                if isinstance(outcome, ExchangeFailed):
                    failed.append((request, str(outcome)))
                    if isinstance(requests, RequestStream):
                        requests.end_after(request.trial)
                else:
                    answered += 1
                    if (outcome.signals or {}).get("content_missing"):
                        without_content[outcome.finish_reason or "no finish reason"] += 1
                    yield request, outcome
        finally:
            outcomes.close()  # type: ignore[attr-defined]
            if without_content:
                log.warning(
                    "%d of %d answers came without content and count as empty responses (%s)",
                    *(without_content.total(), answered),
                    ", ".join(f"{reason}: {n}" for reason, n in without_content.most_common()),
                )
        if failed:
            server = self._endpoint or server_address(self.base_url)
            raise TrialsFailedError(failed, answered, len(requests), server)


def _no_warning(topic: str, message: str, *values: object) -> None:
    """Say nothing of the texts that only show whether seeds are honoured."""
