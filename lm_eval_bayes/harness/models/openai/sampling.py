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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from lm_eval_bayes._util.http import Client, RequestFailed, api_of
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import (
    RequestStream,
    SamplingMixin,
    TrialRequest,
    installed_versions,
)
from lm_eval_bayes.harness.models.openai.client import ServerError, TrialClient, TrialsFailedError
from lm_eval_bayes.harness.models.openai.request import (
    Payloads,
    check_batch_size,
    check_room,
    prompts_to_send,
    timeout_s,
    token_count,
)
from lm_eval_bayes.harness.models.openai.server_checks import (
    TOKENS,
    Verdict,
    check_seeds,
    context_length,
    other_model,
    served_model,
    server_address,
)
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.runs.model_arguments import keyed, secret_texts
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: The harness's arguments that are read here too.
_READ_AGAIN = ("timeout", "max_retries", "max_length", "tokenizer", "revision", "think_end_token")

#: Attempts per request by default: the harness's 3 end within seconds, while a restarting server
#: needs a minute or two, as long as ten attempts take.
ATTEMPTS = 10

#: Attempts of a request that checks whether seeds are honoured, and its time-out in seconds.
_ATTEMPTS_TO_CHECK, _CHECK_TIMEOUT_S = 2, 120.0

#: The settings of the texts that show whether seeds are honoured.
_CHECK_KWARGS = {"temperature": 1.0, "do_sample": True, "until": [], "max_gen_toks": TOKENS}


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

    def __init__(
        self, *args: Any, endpoint: str | None = None, seeds: str | None = None, **kwargs: Any
    ) -> None:
        if seeds not in (None, "ignored"):
            rule = "be ignored, for a server that ignores them, or left out"
            raise ModelConfigError.of("seeds", "choice", rule, seeds)
        self.seeded = seeds is None
        self._given = {name: kwargs[name] for name in _READ_AGAIN if name in kwargs}
        self._endpoint = endpoint
        if kwargs.get("base_url"):  # before the harness's class asks it for a tokenizer
            server_address(kwargs["base_url"])
        self._seeds_checked = self._is_up = False
        #: The server's list of models; None if it has none, or is not up.
        self._models: Any = None
        #: The model that the server must have, as it is stored.
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
        ServerError
            If it refuses all requests.
        """
        sampled = any(request.kwargs.get("temperature") for request in requests)
        if self._seeds_checked or not sampled or self._payloads.official:
            return
        self._ask_server()
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
        server_address(self.base_url)
        check_batch_size(self)
        self._ask_server()
        self._payloads.check(questions, self.warn_once)
        messages = prompts_to_send(self, questions, self._payloads.chat)
        lengths = [request.kwargs["max_gen_toks"] for request in questions]
        prompts = [token_count(messages[request.prompt]) or 0 for request in questions]
        check_room(zip(prompts, lengths, strict=True), self._room())
        longest_s = timeout_s(max(lengths), self._given.get("timeout"))
        client = TrialClient(
            self._client(longest_s, max(1, int(self._given.get("max_retries", ATTEMPTS)))),
            self._payloads,
            messages,
            set(measure) if self._can_measure_prompts() else set(),
            min(self._concurrency(), len(requests)),
            self._think_end_token,
            self.warn_once,
        )
        return self._trials(client, requests)

    def _trials(
        self, client: TrialClient, requests: Sequence[TrialRequest] | RequestStream
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        failed: list[tuple[TrialRequest, str]] = []
        answered = 0
        outcomes: Any = client.outcomes(requests)
        with closing(outcomes):
            for request, outcome in outcomes:
                if isinstance(outcome, Trial):
                    answered += 1
                    yield request, outcome
                    continue
                failed.append((request, str(outcome)))
                if isinstance(requests, RequestStream):
                    requests.end_after(request.trial)
        if failed:
            raise TrialsFailedError(failed, answered, len(requests), self._server_name)

    def finished_text(
        self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any] | None = None
    ) -> str:
        """Return the response that the harness's own backend would return for a raw text.

        Completions are unchanged. Of a chat's, the think block is removed, and stop strings
        that the harness does not send (more than four) cut the text.
        """
        if not self._payloads.chat:
            return raw
        if signals and signals.get("content_missing"):
            from lm_eval.models import api_models

            return str(getattr(api_models, "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER", ""))
        text = raw
        if self._think_end_token:
            text = text.split(self._think_end_token)[-1].lstrip()
        for stop in self._payloads.stops_not_sent(kwargs):
            text = text.split(stop)[0]
        return text

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the server gets."""
        return self._payloads.stops_sent(kwargs)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution is known to depend on, without secrets.

        Raises
        ------
        ServerError
            If the server cannot be reached, so that its model is unknown;
            :meth:`fingerprint_among` finds it in a store.
        """
        problem = self._ask_server()
        if problem is not None:
            address = server_address(self.base_url)
            raise ServerError(f"the server at {address} does not answer ({problem}); is it up?")
        self._expected = self._served()
        return {**self._own_fingerprint(), "served": self._expected}

    def fingerprint_among(self, stored: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the only stored fingerprint that equals this server's up to `served`.

        With it the stored trials of a server that is down can be read.
        """
        own = self._own_fingerprint()
        pairs = [({**own, "served": recorded.get("served")}, recorded) for recorded in stored]
        equal = [ours for ours, recorded in pairs if keyed(ours)[0] == keyed(recorded)[0]]
        if len(equal) != 1:
            return None
        self._expected = equal[0]["served"]
        return equal[0]

    def versions(self) -> dict[str, str]:
        """Return the versions of the client's software and, if it sends it, of the server."""
        versions = installed_versions("lm_eval", "aiohttp")
        root = api_of(self.base_url).removesuffix("/v1")
        with suppress(RequestFailed):
            self._ask_server()
            page = "server_info" if self._payloads.owner == "sglang" else "version"
            version = mapping(self._get(f"{root}/{page}")).get("version")
            if isinstance(version, str):
                versions["server"] = version
        return versions

    @property
    def checks_context(self) -> bool:
        """Whether the context length is known, and requests that do not fit are refused."""
        return self._room() is not None

    # -- internals ---------------------------------------------------------------------

    @cached_property
    def _payloads(self) -> Payloads:
        return Payloads(self, self.seeded)

    @property
    def _server_name(self) -> str:
        return self._endpoint or server_address(self.base_url)

    def _client(self, timeout_s: float = _CHECK_TIMEOUT_S, attempts: int = 1) -> Client:
        def changed(models: Any) -> str | None:
            served = served_model(models, self.model)
            if served is None or self._expected is None or served == self._expected:
                return None
            return other_model(self._expected, served)

        return Client(
            self.base_url,
            self.header,
            secret_texts(self.header, self.base_url),
            bool(self.verify_certificate),
            getattr(self, "ca_cert_path", None),
            timeout_s,
            attempts,
            changed,
            unchecked=not self._is_up or self._served() != self._expected,
        )

    def _get(self, url: str) -> Any:
        client = self._client()
        (body,) = client.results([url], client.get, 1)
        return body

    def _ask_server(self) -> RequestFailed | None:
        """Ask the server for its models, until it was up once; return why it does not answer."""
        if not self._is_up:
            try:
                self._models = self._get(f"{api_of(self.base_url)}/models")
            except RequestFailed as failure:
                return failure
            self._is_up = True
            self._payloads.owner = (self._served() or {}).get("owned_by")
        return None

    def _served(self) -> dict[str, Any] | None:
        return served_model(self._models, self.model)

    @property
    def _think_end_token(self) -> str | None:
        # Before 0.4.13 the harness accepts the argument and ignores it.
        token = getattr(self, "think_end_token", None) or self._given.get("think_end_token")
        return token if isinstance(token, str) and token else None

    def _own_fingerprint(self) -> dict[str, Any]:
        tokenized = bool(getattr(self, "tokenized_requests", False))
        fingerprint: dict[str, Any] = {
            "backend": self._payloads.backend,
            "pretrained": self.model,
            "endpoint": self._server_name,
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
        if self._payloads.chat:
            return self._payloads.owner == "vllm"
        return not self._payloads.official and self._payloads.owner != "llamacpp"

    def _room(self) -> int | None:
        """Return the context length in tokens, if it is known."""
        reported = context_length(self._models, self.model)
        # The harness truncates tokenized prompts, to a context of 2048 tokens by default.
        tokenized = getattr(self, "tokenized_requests", False) and not self._payloads.chat
        if "max_length" in self._given or (reported is None and tokenized):
            return int(self.max_length)
        return reported

    def _check_seeds(self, request: TrialRequest) -> None:
        """Check whether the server honours seeds.

        Raises
        ------
        ModelConfigError, ServerError
            See :meth:`prepare`.
        """
        host, why = server_address(self.base_url), "it does not answer yet"
        verdict = Verdict.UNKNOWN
        if self._is_up:
            why = "it sent empty texts"
            try:
                verdict = check_seeds(
                    lambda prompt, seed: self._short_text(request, prompt, seed), request.seed
                )
            except RequestFailed as failure:
                if failure.fatal:
                    raise ServerError(f"{host} refuses all requests: {failure}") from failure
                why = str(failure)
                if "seed" in failure.reason and not failure.retry:
                    verdict = Verdict.IGNORED
        if verdict is Verdict.UNKNOWN:
            log.warning("whether %s honours seeds is not known: %s", host, why)
        elif verdict is Verdict.ONE_TEXT:
            rule = f"give different texts at {host}, which caches answers or has one fixed seed"
            raise ModelConfigError.of("seeds", "unsupported", rule, "one text for all of them")
        elif verdict is Verdict.IGNORED and self.seeded:
            rule = f"be given as seeds=ignored for {host}, which ignores or refuses seeds"
            raise ModelConfigError.of("seeds", "unsupported", rule, None)

    def _short_text(self, request: TrialRequest, prompt: str, seed: int) -> str:
        """Return the server's short text for a prompt and a seed, at temperature 1.

        Raises
        ------
        RequestFailed
            If the server does not answer.
        """
        context: Any = prompt
        if self._payloads.chat:
            context = self.apply_chat_template([{"role": "user", "content": prompt}])
        question = replace(request, context=context, prompt=prompt, seed=seed, kwargs=_CHECK_KWARGS)
        messages = prompts_to_send(self, [question], self._payloads.chat)
        server, quiet = self._client(attempts=_ATTEMPTS_TO_CHECK), lambda *warning: None
        client = TrialClient(server, self._payloads, messages, set(), 1, None, quiet)
        ((_, answer),) = client.outcomes([question])
        if isinstance(answer, RequestFailed):
            raise answer
        # all that the server wrote, reasoning and answer
        return str((answer.signals or {}).get("reasoning_content", "")) + answer.text

    def _concurrency(self) -> int:
        wanted = max(int(getattr(self, "_concurrent", 1)), 1)
        if wanted == 1:
            message = "num_concurrent is 1: most servers are many times as fast with 64"
            self.warn_once("concurrency", message)
        return wanted
