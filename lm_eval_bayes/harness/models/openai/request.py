"""Requests for trials: what is sent, and what is checked before anything is."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.http import RequestFailed
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes._util.validation import check_positive
from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest, check_harness

log = get_logger(__name__)

#: The names under which the harness registers the backends, by the names of their classes.
BACKENDS = {
    "OpenAIChatCompletion": "openai-chat-completions",
    "OpenAICompletionsAPI": "openai-completions",
    "LocalChatCompletion": "local-chat-completions",
    "LocalCompletionsAPI": "local-completions",
}

_NEEDED = ("_create_payload", "create_message", "tok_encode", "header", "base_url", "model")

# Settings with several answers for a request, or a stream.
_FIXED = ("n", "best_of", "stream", "stream_options", "echo", "logprobs")

#: Token filters, each with the values that mean "off", the first of which is sent unless a server
#: refuses it: most that know top_k take -1, some of them not 0, and llama-cpp-python 0 only.
_OFF = {"top_p": (1.0,), "top_k": (-1, 0), "min_p": (0.0,), "repetition_penalty": (1.0,)}

#: The time-out of a request, and further seconds for each token of the completion: a busy
#: server generates a few tokens per second for one request.
_BASE_TIMEOUT_S, _TIMEOUT_S_A_TOKEN = 300.0, 0.2


def backend_of(model: object) -> str:
    """Return the harness's name of a backend.

    Raises
    ------
    ModelConfigError
        If it is not one of the harness's OpenAI-compatible backends.
    """
    for cls in type(model).__mro__:
        if cls.__module__.startswith("lm_eval.") and cls.__name__ in BACKENDS:
            return BACKENDS[cls.__name__]
    rule = f"be one of {', '.join(sorted(BACKENDS.values()))}"
    raise ModelConfigError.of("backend", "choice", rule, type(model).__name__)


class Payloads:
    """Builds the requests of one backend.

    The body with model, prompt, length, stops and seed comes from the harness's
    ``_create_payload``. All token filters are added, so that no default of the server (such as
    a model's generation_config.json) changes the distribution; and log-probabilities are
    requested. A setting that the server refuses by name is left out of further requests if it
    is off for the task.

    Parameters
    ----------
    model : object
        The harness's backend.
    seeded : bool
        Whether a seed is sent.

    Attributes
    ----------
    owner : str or None
        The kind of server, as it reports itself.
    """

    def __init__(self, model: Any, seeded: bool) -> None:
        check_harness(type(model).__name__, (model, _NEEDED))
        self._model, self.seeded = model, seeded
        self.backend = backend_of(model)
        self.chat = "chat" in self.backend
        self.official = self.backend.startswith("openai")
        self.owner: str | None = None
        #: What is still sent for filters that are off, and for log-probabilities.
        self._sent: dict[str, list[Any]] = {
            name: [] if self.official else list(values) for name, values in _OFF.items()
        }
        self._sent["logprobs"] = [True] if self.chat else [1, 0]

    def body(self, messages: Any, kwargs: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the body that the harness would send.

        Parameters
        ----------
        messages : object
            The prompt, from its `create_message`.
        kwargs : mapping
            Generation settings.
        seed : int
            The trial's seed.
        """
        settings = copy.deepcopy(dict(kwargs))  # the harness changes them
        # A chat template has an end, and the string would be one of at most four stops.
        eos = None if self.chat else self._eos()
        payload = self._model._create_payload(
            messages, generate=True, gen_kwargs=settings, seed=seed, eos=eos
        )
        if not payload.get("stop"):
            payload.pop("stop", None)  # OpenAI refuses an empty list
        if not self.seeded:
            payload.pop("seed", None)
        return dict(payload)

    def of(self, request: TrialRequest, message: Any) -> dict[str, Any]:
        """Return the body of a trial's request, of its prompt as the harness sends it."""
        kwargs = dict(request.kwargs)
        filters = {name: kwargs.pop(name, None) for name in _OFF}
        messages = self._model.create_message([message], generate=True)
        payload = self.body(messages, kwargs, request.seed)
        for name, value in filters.items():
            if not _is_off(name, value):
                payload[name] = value
            elif self._sent[name]:
                payload[name] = self._sent[name][0]
        if self.owner == "llamacpp" and "repetition_penalty" in payload:
            # its name for it; a server that was started with a penalty would apply its default
            payload["repeat_penalty"] = payload["repetition_penalty"]
        if self.measures and not self.tempers(request):
            payload["logprobs"] = self._sent["logprobs"][0]
        return payload

    def of_prompt(self, request: TrialRequest, message: Any) -> dict[str, Any]:
        """Return the body that measures a prompt: the harness's own for log-likelihoods."""
        if not self.chat:
            messages = self._model.create_message([message])
            return dict(self._model._create_payload(messages, generate=False, seed=request.seed))
        messages = self._model.create_message([message], generate=True)
        body = self.body(messages, {"max_gen_toks": 1, "temperature": 0.0}, request.seed)
        return {**body, "prompt_logprobs": 0}  # a field of vLLM only

    def tempers(self, request: TrialRequest) -> bool:
        """Return whether the log-probabilities of an answer would be those of its temperature.

        SGLang's are, unless its environment has ``SGLANG_RETURN_ORIGINAL_LOGPROB``, which it does
        not report. ``completion_bpt`` is of temperature 1.
        """
        return self.owner == "sglang" and request.kwargs.get("temperature") != 1.0

    def adapt(self, sent: Mapping[str, Any], failure: RequestFailed) -> bool:
        """Leave out a setting that the server refused by name; return whether the body changes.

        Of a setting that is off the other value for "off" is tried first, if there is one.

        Parameters
        ----------
        sent : mapping
            The request that failed.
        failure : RequestFailed
            Its failure.
        """
        for name, values in self._sent.items():
            is_off = name in sent and (name == "logprobs" or sent[name] in _OFF[name])
            # llama-cpp-python refuses log-probabilities with HTTP 500
            refused = failure.status in ((400, 422, 500) if name == "logprobs" else (400, 422))
            words = name.replace("logprobs", "log_?probs?")
            if is_off and refused and re.search(rf"\b{words}\b", failure.reason, re.IGNORECASE):
                if sent[name] in values:
                    values.remove(sent[name])
                    if not values:
                        bits = "completion_bpt is not recorded"
                        lost = bits if name == "logprobs" else "a default of its own may apply"
                        log.warning("the server refuses `%s`, so %s (%s)", name, lost, failure)
                return True
        return False

    @property
    def measures(self) -> bool:
        """Whether log-probabilities are requested."""
        return bool(self._sent["logprobs"])

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the harness sends for these settings."""
        stops = self._example(kwargs).get("stop", [])
        return [stops] if isinstance(stops, str) else list(stops)

    def stops_not_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that are not sent, and applied afterwards."""
        sent = self.stops_sent(kwargs)
        return [stop for stop in kwargs["until"] if stop and stop not in sent]

    def _example(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        message: Any = [{"role": "user", "content": "?"}] if self.chat else "?"
        return self.body(message, kwargs, 0)

    def _eos(self) -> str | None:
        given = getattr(self._model, "_eos_string", None)
        if given or getattr(self._model, "tokenizer", None) is None:
            return given or None
        eos = self._model.eos_string
        return eos if isinstance(eos, str) and eos else None

    def check(self, requests: Sequence[TrialRequest], warn_once: Callable[..., None]) -> None:
        """Check that prompts and settings can be sent unchanged.

        Raises
        ------
        TaskConfigError
            If the backend cannot send a setting or a prompt.
        """
        seen: set[str] = set()
        for request in requests:
            self._check_prompt(request)
            settings = repr(sorted(request.kwargs.items(), key=str))
            if settings in seen:
                continue
            seen.add(settings)
            self._check_kwargs(request.kwargs)
            not_sent = self.stops_not_sent(request.kwargs)
            if not_sent:
                message = "a chat has at most four stop strings in a request; %s cut it afterwards"
                warn_once("stops", message, join_words(list(map(repr, not_sent))))
            if self.measures and self.tempers(request):
                message = "completion_bpt is not recorded: SGLang's bits depend on the temperature"
                warn_once("tempered", message)

    def _check_prompt(self, request: TrialRequest) -> None:
        if len(getattr(request.instance, "args", ())) > 2:
            rule = "be text for trials over an API"
            raise TaskConfigError.of("prompt", "unsupported", rule, "images or sound")
        if not request.prompt:
            raise TaskConfigError.of("prompt", "empty", "hold text to be sent to a server", "")
        chat = not isinstance(request.context, str)
        if self.chat and not chat:
            rule = f"be a chat for {self.backend} (--apply_chat_template)"
            raise TaskConfigError.of("prompt", "type", rule, request.context)
        if chat and not self.chat:
            rule = f"be text for {self.backend}: local-chat-completions, or tokenizer=, would do"
            raise TaskConfigError.of("prompt", "type", rule, request.context)

    def _check_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        for name in _FIXED:
            if name in kwargs and not (name == "n" and kwargs[name] == 1):
                rule = "be left out of the generation settings: every request asks for one trial"
                raise TaskConfigError.of(name, "conflict", rule, kwargs[name])
        for name in ("top_k", "min_p", "repetition_penalty") if self.official else ():
            if not _is_off(name, kwargs.get(name)):
                rule = f"be off for {self.backend}, whose server does not know it"
                raise TaskConfigError.of(name, "unsupported", rule, kwargs[name])
        temperature = kwargs["temperature"]
        sent = self._example(kwargs).get("temperature")
        if sent != temperature:
            rule = f"be {sent}, which the harness sends (local-chat-completions sends others)"
            raise TaskConfigError.of("temperature", "unsupported", rule, temperature)


def _is_off(name: str, value: Any) -> bool:
    """Return whether a filter is off, by any convention."""
    return value is None or value in _OFF[name]


def check_batch_size(model: Any) -> None:
    """Check that every trial is requested by itself.

    Raises
    ------
    ModelConfigError
        If several are sent with one seed.
    """
    batch_size = getattr(model, "_batch_size", 1)
    if batch_size > 1:
        rule = "be 1 for trials over an API, where one seed serves a batch (see num_concurrent)"
        raise ModelConfigError.of("batch_size", "conflict", rule, batch_size)


def prompts_to_send(model: Any, requests: Sequence[TrialRequest], chat: bool) -> dict[str, Any]:
    """Return what is sent for each prompt: its tokens if the harness sends tokens."""
    contexts = {request.prompt: request.context for request in requests}
    if chat or not getattr(model, "tokenized_requests", False):
        return contexts
    encoded = model.tok_encode(list(contexts.values()), add_special_tokens=model.add_bos_token)
    return dict(zip(contexts, encoded, strict=True))


def check_room(lengths: Iterable[tuple[int, int]], room: int | None) -> None:
    """Check that prompts and completions fit the model's context.

    Parameters
    ----------
    lengths : iterable of (int, int)
        Tokens of the prompt, 0 where only the server can count them, and of the completion.
    room : int or None
        Context length in tokens; None if it is unknown.

    Raises
    ------
    TaskConfigError
        If they do not fit.
    """
    prompt, completion = max(lengths, key=sum)
    if room is not None and prompt + completion > room:
        rule = f"leave room for a prompt of {prompt} tokens in the model's {room} (max_length)"
        raise TaskConfigError.of("max_gen_toks", "range", rule, completion)


def token_count(message: Any) -> int | None:
    """Return the length of a prompt that is sent as tokens, else None.

    Examples
    --------
    >>> token_count([7, 8, 9]), token_count("seven")
    (3, None)
    """
    return len(message) if isinstance(message, list) else None


def timeout_s(max_gen_toks: int, given: object) -> float:
    """Return the time-out of a request in seconds.

    Parameters
    ----------
    max_gen_toks : int
        The maximal number of tokens of a completion.
    given : object
        The user's `timeout`, or None.

    Examples
    --------
    >>> timeout_s(256, None), timeout_s(32768, None), timeout_s(256, "60")
    (351.2, 6853.6, 60.0)
    """
    if given is None:
        return _BASE_TIMEOUT_S + _TIMEOUT_S_A_TOKEN * max_gen_toks
    return check_positive("timeout", float(str(given)))
