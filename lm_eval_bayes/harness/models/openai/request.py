"""Requests for trials: what is sent, and what is checked before anything is."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest, check_harness
from lm_eval_bayes.harness.models.openai.responses import ExchangeFailed

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

#: Token filters, each with the value that is sent for "off". Servers disagree on top_k: most that
#: know it take -1 for "off", some of them not 0, and llama-cpp-python 0 only.
_OFF = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_OTHER_OFF = {"top_k": 0}

#: llama.cpp's name of a filter, sent beside the others' name: a server that does not know a name
#: leaves it alone, and one that was started with ``--repeat-penalty`` would apply its default.
_LLAMACPP = {"repetition_penalty": "repeat_penalty"}


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
    sentence = (
        f"`backend` must be one of {', '.join(sorted(BACKENDS.values()))}; got "
        f"{type(model).__name__}"
    )
    raise ModelConfigError(sentence, "choice", "backend", type(model).__name__)


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
    """

    def __init__(self, model: Any, seeded: bool) -> None:
        check_harness(type(model).__name__, (model, _NEEDED))
        self._model, self.seeded = model, seeded
        self.backend = backend_of(model)
        self.chat = "chat" in self.backend
        self.official = self.backend.startswith("openai")
        self.left_out: set[str] = set()
        self.llamacpp = self.sglang = False
        self._off = dict(_OFF)
        self._logprobs: list[Any] = [True] if self.chat else [1, 0]

    @property
    def model_name(self) -> str | None:
        """The model's name in the requests."""
        return self._model.model

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
        """Return the body of a trial's request.

        Parameters
        ----------
        request : TrialRequest
            The trial.
        message : object
            Its prompt as the harness sends it: the context, or its tokens.
        """
        kwargs = dict(request.kwargs)
        filters = {name: _value(kwargs.pop(name, None), off) for name, off in _OFF.items()}
        messages = self._model.create_message([message], generate=True)
        payload = self.body(messages, kwargs, request.seed)
        for name, value in filters.items():
            if value != _OFF[name] or not (self.official or name in self.left_out):
                payload[name] = self._off[name] if value == _OFF[name] else value
                if self.llamacpp and name in _LLAMACPP:
                    payload[_LLAMACPP[name]] = payload[name]
        if self.measures and not self.tempers(request):
            payload["logprobs"] = self._logprobs[0]
        return payload

    def of_prompt(self, request: TrialRequest, message: Any) -> dict[str, Any]:
        """Return the body that measures a prompt: the harness's own for log-likelihoods."""
        if not self.chat:
            messages = self._model.create_message([message])
            return dict(self._model._create_payload(messages, generate=False, seed=request.seed))
        kwargs = {"max_gen_toks": 1, "temperature": 0.0}
        messages = self._model.create_message([message], generate=True)
        # A field of vLLM only.
        return {**self.body(messages, kwargs, request.seed), "prompt_logprobs": 0}

    def tempers(self, request: TrialRequest) -> bool:
        """Return whether the log-probabilities of an answer would be those of its temperature.

        SGLang's are, unless its environment has ``SGLANG_RETURN_ORIGINAL_LOGPROB``, which it does
        not report. ``completion_bpt`` is of temperature 1.
        """
        return self.sglang and request.kwargs.get("temperature") != 1.0

    def adapt(self, sent: Mapping[str, Any], failure: ExchangeFailed) -> bool:
        """Leave out a setting that the server refused by name; return whether the body changes.

        Of a filter that is off the other value for "off" is tried first, if there is one.

        Parameters
        ----------
        sent : mapping
            The request that failed.
        failure : ExchangeFailed
            Its failure.
        """
        complaint = failure.complaint
        if not complaint:
            return False
        if "logprobs" in sent and re.search(r"log_?probs?\b", complaint, re.IGNORECASE):
            if self._logprobs and sent["logprobs"] == self._logprobs[0]:
                del self._logprobs[0]
                if not self._logprobs:
                    log.warning(
                        "the server refuses log-probabilities, so completion_bpt is not "
                        "recorded (%s)",
                        failure,
                    )
            return True
        for name in _OFF:
            named = re.search(rf"\b{name}\b", complaint)
            if named and name in sent and sent[name] in (_OFF[name], _OTHER_OFF.get(name)):
                if name in _OTHER_OFF and sent[name] == _OFF[name]:
                    self._off[name] = _OTHER_OFF[name]
                elif name not in self.left_out:
                    self.left_out.add(name)
                    log.warning(
                        "the server does not know `%s`, which is off for this task, so it is left "
                        "out; the server's default, if it has one, then applies (%s)",
                        name,
                        failure,
                    )
                return True
        return False

    @property
    def measures(self) -> bool:
        """Whether log-probabilities are requested."""
        return bool(self._logprobs)

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the harness sends for these settings."""
        message: Any = [{"role": "user", "content": "?"}] if self.chat else "?"
        stops = self.body(message, kwargs, 0).get("stop", [])
        return [stops] if isinstance(stops, str) else list(stops)

    def stops_not_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that are not sent, and applied afterwards."""
        sent = self.stops_sent(kwargs)
        return [stop for stop in kwargs["until"] if stop and stop not in sent]

    def _eos(self) -> str | None:
        given = getattr(self._model, "_eos_string", None)
        if given or getattr(self._model, "tokenizer", None) is None:
            return given or None
        eos = self._model.eos_string
        return eos if isinstance(eos, str) and eos else None

    def check(self, request: TrialRequest) -> None:
        """Check that all settings can be sent unchanged.

        Raises
        ------
        TaskConfigError
            If a setting cannot be sent.
        """
        kwargs = request.kwargs
        for name in _FIXED:
            if name in kwargs and not (name == "n" and kwargs[name] == 1):
                sentence = (
                    f"`{name}` must be left out of the generation settings: every request asks "
                    f"for one trial, with its own seed and log-probabilities; got {kwargs[name]!r}"
                )
                raise TaskConfigError(sentence, "conflict", name, kwargs[name])
        if self.official:
            for name in ("top_k", "min_p", "repetition_penalty"):
                if _value(kwargs.get(name), _OFF[name]) != _OFF[name]:
                    sentence = (
                        f"`{name}` must be off for {self.backend}, whose server does not know it; "
                        f"got {kwargs[name]!r}"
                    )
                    raise TaskConfigError(sentence, "unsupported", name, kwargs[name])
        message: Any = [{"role": "user", "content": "?"}] if self.chat else "?"
        temperature = kwargs["temperature"]
        sent = self.body(message, kwargs, request.seed).get("temperature")
        if sent != temperature:
            sentence = (
                f"`temperature` must be {sent} with {self.backend} and this model, since the "
                f"harness always sends that; got {temperature!r} (if the model takes "
                "others, local-chat-completions with the same base_url sends them)"
            )
            raise TaskConfigError(sentence, "unsupported", "temperature", temperature)


def _value(given: Any, off: float) -> Any:
    """Return a filter's value, with every convention for "off" replaced by the one value."""
    if given is None or (off == -1 and given in (0, -1)):
        return off
    return given


#: The time-out of a request, and further seconds for each token of the completion: a busy
#: server generates a few tokens per second for one request.
_BASE_TIMEOUT_S = 300.0
_TIMEOUT_S_A_TOKEN = 0.2

#: Few servers generate more tokens per second for one request.
_FAST_TOKENS_A_SECOND = 50.0


def check_settings(
    payloads: Payloads, requests: Sequence[TrialRequest], warn_once: Callable[..., None]
) -> None:
    """Check the settings and the kind of prompts of all requests.

    Raises
    ------
    TaskConfigError
        If the backend cannot send a setting or a prompt.
    """
    seen: set[str] = set()
    for request in requests:
        if len(getattr(request.instance, "args", ())) > 2:
            sentence = "the prompts must be text for trials over an API; got images or sound"
            raise TaskConfigError(sentence, "unsupported", "prompt")
        chat = not isinstance(request.context, str)
        if payloads.chat and not chat:
            sentence = f"{payloads.backend} needs --apply_chat_template; got a prompt of plain text"
            raise TaskConfigError(sentence, "type", "prompt", request.context)
        if chat and not payloads.chat:
            sentence = (
                f"{payloads.backend} cannot send a chat's messages; use local-chat-completions, "
                "or name a Hugging Face tokenizer, whose chat template makes a text of them"
            )
            raise TaskConfigError(sentence, "type", "prompt", request.context)
        settings = repr(sorted(request.kwargs.items(), key=str))
        if settings in seen:
            continue
        seen.add(settings)
        payloads.check(request)
        not_sent = payloads.stops_not_sent(request.kwargs)
        if not_sent:
            warn_once(
                "stops",
                "the harness sends at most four stop strings with a chat (to some models none), "
                "so %s cut the answers afterwards; the model generates until another end",
                ", ".join(map(repr, not_sent)),
            )


def prompts_to_send(model: Any, requests: Sequence[TrialRequest], chat: bool) -> dict[str, Any]:
    """Return what is sent for each prompt: its tokens if the harness sends tokens.

    Parameters
    ----------
    model : object
        The harness's backend.
    requests : sequence of TrialRequest
        The trials.
    chat : bool
        Whether chat messages are sent.

    Raises
    ------
    TaskConfigError
        If a prompt is empty.
    """
    contexts = {request.prompt: request.context for request in requests}
    if "" in contexts:
        sentence = "`prompt` must hold text to be sent to a server; got an empty one"
        raise TaskConfigError(sentence, "empty", "prompt", "")
    if chat or not getattr(model, "tokenized_requests", False):
        return contexts
    encoded = model.tok_encode(list(contexts.values()), add_special_tokens=model.add_bos_token)
    return dict(zip(contexts, encoded, strict=True))


def check_room(
    requests: Sequence[TrialRequest], messages: Mapping[str, Any], room: int | None
) -> None:
    """Check that prompts and completions fit the model's context.

    Parameters
    ----------
    requests : sequence of TrialRequest
        The trials.
    messages : mapping
        What is sent, by prompt; text, which only the server can count, counts as 0 tokens.
    room : int or None
        Context length in tokens; None if it is unknown.

    Raises
    ------
    TaskConfigError
        If they do not fit.
    """
    if room is None:
        return
    prompt, completion = 0, 0
    for request in requests:
        tokens, length = token_count(messages[request.prompt]) or 0, request.kwargs["max_gen_toks"]
        if tokens + length > prompt + completion:
            prompt, completion = tokens, length
    if prompt + completion > room:
        lengths = f"the longest prompt has {prompt} tokens and " if prompt else ""
        sentence = (
            f"{lengths}max_gen_toks is {completion}, but the model's context (max_length) is "
            f"{room} tokens, so the prompt would be cut or refused; pass the true context in "
            "--model_args max_length=..., or fewer max_gen_toks"
        )
        raise TaskConfigError(sentence, "range", "max_gen_toks", completion)


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
    >>> timeout_s(256, None), timeout_s(32768, None)
    (351.2, 6853.6)
    """
    if given is None:
        seconds = _BASE_TIMEOUT_S + _TIMEOUT_S_A_TOKEN * max_gen_toks
        log.info(
            "each request is allowed %.0f s for up to %d tokens, where the harness allows 300 s; "
            "timeout=... sets another time",
            seconds,
            max_gen_toks,
        )
        return seconds
    seconds = float(str(given))
    if not seconds > 0:
        raise TaskConfigError.of("timeout", "range", "be a number of seconds above 0", given)
    if seconds * _FAST_TOKENS_A_SECOND < max_gen_toks:
        log.warning(
            "timeout=%g allows a request %g s, so the server must generate more than %.0f tokens "
            "per second for a completion of %d; slower ones will time out and be requested again",
            seconds,
            seconds,
            max_gen_toks / seconds,
            max_gen_toks,
        )
    return seconds
