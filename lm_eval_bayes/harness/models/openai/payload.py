"""The requests of trials, built by the harness's own backend and made explicit."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.openai.errors import ExchangeFailed
from lm_eval_bayes.harness.models.trial_request import Order

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

    def of(self, order: Order, message: Any) -> dict[str, Any]:
        """Build the request of a trial.

        Parameters
        ----------
        order : Order
            The trial.
        message : object
            Its prompt as the harness batches it: the context, or its tokens.
        """
        kwargs = dict(order.kwargs)
        filters = {name: _value(kwargs.pop(name, None), off) for name, off in _OFF.items()}
        messages = self._model.create_message([message], generate=True)
        payload = self.body(messages, kwargs, order.seed)
        for name, value in filters.items():
            if not (self.may_leave_out(name, value) and (self.official or name in self.left_out)):
                payload[name] = value
        if self._logprobs:
            payload["logprobs"] = self._logprobs[0]
        return payload

    def of_prompt(self, order: Order, message: Any) -> dict[str, Any]:
        """Build the request that measures a prompt: the harness's own for log-likelihoods."""
        if not self.chat:
            messages = self._model.create_message([message])
            return dict(self._model._create_payload(messages, generate=False, seed=order.seed))
        kwargs = {"max_gen_toks": 1, "temperature": 0.0}
        messages = self._model.create_message([message], generate=True)
        # vLLM's own field; no other server is asked.
        return {**self.body(messages, kwargs, order.seed), "prompt_logprobs": 0}

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

    def check(self, order: Order) -> None:
        """Refuse settings that cannot be passed on as they are.

        Raises
        ------
        TaskConfigError
            Naming the setting, the rule and what came.
        """
        kwargs = order.kwargs
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
        sent = self.body(message, kwargs, order.seed).get("temperature")
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
