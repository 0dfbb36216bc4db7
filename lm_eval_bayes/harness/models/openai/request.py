"""Requests for trials: what is sent, and what is checked before anything is."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.context_window import DEFAULT_MAX_GEN_TOKS
from lm_eval_bayes.harness.models.openai.answers import ExchangeFailed
from lm_eval_bayes.harness.models.trial_request import TrialRequest

log = get_logger(__name__)

#: The names under which the harness registers the backends, by the names of their classes.
BACKENDS = {
    "OpenAIChatCompletion": "openai-chat-completions",
    "OpenAICompletionsAPI": "openai-completions",
    "LocalChatCompletion": "local-chat-completions",
    "LocalCompletionsAPI": "local-completions",
}

_NEEDED = ("_create_payload", "create_message", "tok_encode", "header", "base_url", "model")

# What would make of one request several answers, another seed, or a stream of pieces.
_SET_HERE = ("seed", "n", "best_of", "stream", "stream_options", "echo", "logprobs")

#: Filters of tokens, each with the value that lets all pass and goes over the wire for "off".
#: Servers disagree on top_k: all that know it take -1 for "off", some of them not 0.
_OFF = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


def backend_of(model: object) -> str:
    """Return the name under which the harness knows a backend.

    Raises
    ------
    ModelConfigError
        If the object is none of the harness's OpenAI-compatible backends.
    """
    for cls in type(model).__mro__:
        if cls.__module__.startswith("lm_eval.") and cls.__name__ in BACKENDS:
            return BACKENDS[cls.__name__]
    raise ModelConfigError(
        f"`backend` must be one of {', '.join(sorted(BACKENDS.values()))}; got "
        f"{type(model).__name__}"
    )


def check_harness(model: object) -> None:
    """Refuse a release of the harness that builds requests in a way we do not know."""
    missing = [name for name in _NEEDED if not hasattr(model, name)]
    if missing:
        raise ModelConfigError(
            f"this release of lm_eval builds API requests in a way this package does not know: "
            f"its {type(model).__name__} has no {', '.join(missing)}"
        )


class Payloads:
    """Builds the requests of one backend.

    The harness's ``_create_payload`` makes the body, so model, prompt, length, stops and seed
    stand where it puts them. Added are all filters of tokens, so that no default of the server
    (such as a model's generation_config.json) changes the distribution, and the wish for
    log-probabilities. What a server refuses by name is left out of all further requests, if
    leaving it out is all the same to the task.

    Parameters
    ----------
    model : object
        The harness's backend.
    """

    def __init__(self, model: Any) -> None:
        check_harness(model)
        self._model = model
        self.backend = backend_of(model)
        self.chat = "chat" in self.backend
        self.official = self.backend.startswith("openai")
        self.left_out: set[str] = set()
        self._logprobs: list[Any] = [True] if self.chat else [1, 0]

    def body(self, messages: Any, kwargs: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Build what the harness would send.

        Parameters
        ----------
        messages : object
            What its `create_message` makes of a prompt.
        kwargs : mapping
            Generation settings.
        seed : int
            The trial's seed.
        """
        settings = copy.deepcopy(dict(kwargs))  # the harness takes it apart
        # A chat's template knows its end, and the string would take one of its four stops.
        eos = None if self.chat else self._eos()
        payload = self._model._create_payload(
            messages, generate=True, gen_kwargs=settings, seed=seed, eos=eos
        )
        if not payload.get("stop"):
            payload.pop("stop", None)  # OpenAI refuses an empty list
        return dict(payload)

    def of(self, request: TrialRequest, message: Any) -> dict[str, Any]:
        """Build the request of a trial.

        Parameters
        ----------
        order : TrialRequest
            The trial.
        message : object
            Its prompt as the harness batches it: the context, or its tokens.
        """
        kwargs = dict(request.kwargs)
        filters = {name: _value(kwargs.pop(name, None), off) for name, off in _OFF.items()}
        messages = self._model.create_message([message], generate=True)
        payload = self.body(messages, kwargs, request.seed)
        for name, value in filters.items():
            if not (self.may_leave_out(name, value) and (self.official or name in self.left_out)):
                payload[name] = value
        if self._logprobs:
            payload["logprobs"] = self._logprobs[0]
        return payload

    def of_prompt(self, request: TrialRequest, message: Any) -> dict[str, Any]:
        """Build the request that measures a prompt: the harness's own for log-likelihoods."""
        if not self.chat:
            messages = self._model.create_message([message])
            return dict(self._model._create_payload(messages, generate=False, seed=request.seed))
        kwargs = {"max_gen_toks": 1, "temperature": 0.0}
        messages = self._model.create_message([message], generate=True)
        # vLLM's own field; no other server is asked.
        return {**self.body(messages, kwargs, request.seed), "prompt_logprobs": 0}

    def may_leave_out(self, name: str, value: object) -> bool:
        """Return whether a filter of tokens lets all tokens pass."""
        return name in _OFF and value == _OFF[name]

    def relent(self, sent: Mapping[str, Any], failure: ExchangeFailed) -> bool:
        """Leave out what a server refused by name; return whether anything changed since.

        Parameters
        ----------
        sent : mapping
            The request that failed.
        failure : ExchangeFailed
            What became of it.
        """
        words = failure.complaint
        if not words:
            return False
        if "logprobs" in sent and re.search(r"log_?probs?\b", words, re.IGNORECASE):
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
            named = re.search(rf"\b{name}\b", words)
            if named and name in sent and self.may_leave_out(name, sent[name]):
                if name not in self.left_out:
                    self.left_out.add(name)
                    log.warning(
                        "the server does not know `%s`, which is off for this task, so it is left "
                        "out; a default of the server's own, if it has one, then applies (%s)",
                        name,
                        failure,
                    )
                return True
        return False

    @property
    def measures(self) -> bool:
        """Whether log-probabilities are still asked for."""
        return bool(self._logprobs)

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the harness sends for these settings."""
        message: Any = [{"role": "user", "content": "?"}] if self.chat else "?"
        stops = self.body(message, kwargs, 0).get("stop", [])
        return [stops] if isinstance(stops, str) else list(stops)

    def stops_kept(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the server does not get: they are applied afterwards."""
        until = kwargs.get("until") or []
        until = [until] if isinstance(until, str) else list(until)
        sent = self.stops_sent(kwargs)
        return [stop for stop in until if stop and stop not in sent]

    def _eos(self) -> str | None:
        given = getattr(self._model, "_eos_string", None)
        if given or getattr(self._model, "tokenizer", None) is None:
            return given or None
        eos = self._model.eos_string
        return eos if isinstance(eos, str) and eos else None

    def check(self, request: TrialRequest) -> None:
        """Refuse settings that cannot be passed on as they are.

        Raises
        ------
        TaskConfigError
            Naming the setting, the rule and what came.
        """
        kwargs = request.kwargs
        for name in _SET_HERE:
            if name in kwargs and not (name == "n" and kwargs[name] == 1):
                raise TaskConfigError(
                    f"`{name}` must be left out of the generation settings: every request asks "
                    f"for one trial, with its own seed and log-probabilities; got {kwargs[name]!r}"
                )
        temperature = kwargs.get("temperature")
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
            raise TaskConfigError(
                "`temperature` must be a number in the generation settings of an API backend, "
                f"which would take a missing one for 0; got {temperature!r}"
            )
        if self.official:
            for name in ("top_k", "min_p", "repetition_penalty"):
                value = _value(kwargs.get(name), _OFF[name])
                if not self.may_leave_out(name, value):
                    raise TaskConfigError(
                        f"`{name}` must be off for {self.backend}, whose server does not know it; "
                        f"got {kwargs[name]!r}"
                    )
        message: Any = [{"role": "user", "content": "?"}] if self.chat else "?"
        sent = self.body(message, kwargs, request.seed).get("temperature")
        if sent != temperature:
            raise TaskConfigError(
                f"`temperature` must be {sent} with {self.backend} and this model, since the "
                f"harness sends that whatever is asked; got {temperature!r} (if the model takes "
                "others, local-chat-completions with the same base_url sends them)"
            )


def _value(given: Any, off: float) -> Any:
    """Return a filter's value; what means "off" in some convention becomes what we send."""
    if given is None or (off == -1 and given in (0, -1)):
        return off
    return given


#: What every request is allowed, and further seconds for each token that it may bring: a
#: crowded server gives a single request no more than a few tokens a second.
_BASE_TIMEOUT_S = 300.0
_TIMEOUT_S_A_TOKEN = 0.2

#: A server that gives one request more tokens a second than this is hard to find.
_FAST_TOKENS_A_SECOND = 50.0


def check_batch_size(batch_size: int) -> None:
    """Refuse batches.

    Raises
    ------
    ModelConfigError
        If one request would bring several trials.
    """
    if batch_size > 1:
        raise ModelConfigError(
            f"`batch_size` must be 1 for trials over an API; got {batch_size} (one seed serves a "
            "whole batch, so the trials in it would be one answer repeated; use "
            "num_concurrent=... for speed)"
        )


def check_settings(payloads: Payloads, requests: Sequence[TrialRequest], said: set[str]) -> None:
    """Refuse what the backend cannot pass on as it is, once for all requests.

    Raises
    ------
    TaskConfigError
        Naming the setting, or what the prompts should have been.
    """
    seen: set[str] = set()
    for request in requests:
        if len(getattr(request.instance, "args", ())) > 2:
            raise TaskConfigError(
                "the prompts must be text for trials over an API; got requests with images or sound"
            )
        chat = not isinstance(request.context, str)
        if payloads.chat and not chat:
            raise TaskConfigError(
                f"{payloads.backend} needs --apply_chat_template; got a prompt of plain text"
            )
        if chat and not payloads.chat:
            raise TaskConfigError(
                f"{payloads.backend} cannot send a chat's messages; use local-chat-completions, "
                "or name a Hugging Face tokenizer, whose chat template makes a text of them"
            )
        settings = repr(sorted(request.kwargs.items(), key=str))
        if settings in seen:
            continue
        seen.add(settings)
        payloads.check(request)
        kept = payloads.stops_kept(request.kwargs)
        if kept and "stops" not in said:
            said.add("stops")
            log.warning(
                "the harness sends a chat no more than four stop strings (and some models none), "
                "so %s cut the answers here; the model writes on until another end",
                ", ".join(map(repr, kept)),
            )


def prompts_to_send(model: Any, requests: Sequence[TrialRequest], chat: bool) -> dict[str, Any]:
    """Return by prompt what is sent of it: its tokens where the harness sends tokens.

    Parameters
    ----------
    model : object
        The harness's backend.
    requests : sequence of TrialRequest
        The trials.
    chat : bool
        Whether messages are sent, which the server tokenizes.

    Raises
    ------
    TaskConfigError
        If a prompt is empty.
    """
    contexts = {request.prompt: request.context for request in requests}
    if "" in contexts:
        raise TaskConfigError("`prompt` must hold text to be sent to a server; got an empty one")
    if chat or not getattr(model, "tokenized_requests", False):
        return contexts
    encoded = model.tok_encode(list(contexts.values()), add_special_tokens=model.add_bos_token)
    return dict(zip(contexts, encoded, strict=True))


def check_room(
    requests: Sequence[TrialRequest], messages: Mapping[str, Any], room: int | None
) -> None:
    """Refuse prompts that, with their completions, have more tokens than the model reads.

    Parameters
    ----------
    requests : sequence of TrialRequest
        The trials.
    messages : mapping
        By prompt what is sent; text, which only the server can count, is taken for nothing.
    room : int or None
        Tokens of prompt and completion together; None where nobody knows.

    Raises
    ------
    TaskConfigError
        Naming both lengths.
    """
    if room is None:
        return
    prompt, wanted = 0, 0
    for request in requests:
        tokens, length = token_count(messages[request.prompt]) or 0, max_gen_toks(request)
        if tokens + length > prompt + wanted:
            prompt, wanted = tokens, length
    if prompt + wanted > room:
        read = f"the longest prompt has {prompt} tokens and " if prompt else ""
        raise TaskConfigError(
            f"{read}max_gen_toks is {wanted}, but the model's context (max_length) leaves {room} "
            "in all, so the prompt would be cut or refused; pass the model's true context in "
            "--model_args max_length=..., or fewer max_gen_toks"
        )


def token_count(message: Any) -> int | None:
    """Return the length of a prompt that is sent as tokens; None of one that is not.

    Examples
    --------
    >>> token_count([7, 8, 9]), token_count("seven")
    (3, None)
    """
    return len(message) if isinstance(message, list) else None


def max_gen_toks(request: TrialRequest) -> int:
    """Return how many tokens a trial may have."""
    return int(request.kwargs.get("max_gen_toks", DEFAULT_MAX_GEN_TOKS))


def timeout_s(max_gen_toks: int, given: object) -> float:
    """Return the seconds that one request may take.

    Parameters
    ----------
    max_gen_toks : int
        Tokens of the longest completion.
    given : object
        The user's `timeout`; None without.

    Examples
    --------
    >>> timeout_s(256, None), timeout_s(32768, None)
    (351.2, 6853.6)
    """
    if given is None:
        allowed = _BASE_TIMEOUT_S + _TIMEOUT_S_A_TOKEN * max_gen_toks
        log.info(
            "each request is allowed %.0f s for up to %d tokens, where the harness allows 300 s; "
            "timeout=... sets another time",
            allowed,
            max_gen_toks,
        )
        return allowed
    seconds = float(str(given))
    if not seconds > 0:
        raise TaskConfigError(f"`timeout` must be a number of seconds above 0; got {given!r}")
    if seconds * _FAST_TOKENS_A_SECOND < max_gen_toks:
        log.warning(
            "timeout=%g allows a request %g s, which asks the server for more than %.0f tokens a "
            "second where a completion has all %d; longer ones will be cut off and asked again",
            seconds,
            seconds,
            max_gen_toks / seconds,
            max_gen_toks,
        )
    return seconds
