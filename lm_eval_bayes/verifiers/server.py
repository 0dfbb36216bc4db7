"""A judge on a server that speaks OpenAI's completions or chat, and gives log-probabilities."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier import (
    CONTENT_FREE_INPUT,
    LABELS,
    PLAIN_SLOT,
    PROMPT_VERSION,
    verifier_prompt,
)
from lm_eval_bayes.stats.validation import check_integer
from lm_eval_bayes.verifiers.protocol import Scores, Unjudged, VerifierError
from lm_eval_bayes.verifiers.transport import RequestRefused, Transport

#: Likeliest tokens that are asked for, and the second try where a server gives no so many.
_TOP = (20, 5)

#: What a chat adds to a prompt, at most, in tokens.
_CHAT_ADDS = 64

_T = TypeVar("_T")
_R = TypeVar("_R")


class ServerJudge:
    """Scores labels by a server's list of likeliest next tokens.

    A label that is not on the list has at most the score of the last one that is, and gets that;
    a prompt for which no label is on the list cannot be judged. Where the server counts tokens
    (vLLM does, at /tokenize), prompts are as long as its model reads; elsewhere lengths are
    counted in characters.

    Parameters
    ----------
    name : str
        The model, as the server calls it.
    base_url : str
        The server's address: its API, such as http://127.0.0.1:8000/v1, which is asked as a
        chat, or the full path of /chat/completions or /completions.
    key : str or None
        The server's key.
    max_length : int or None
        The longest prompt; by default what the server says that the model reads.
    batch_size : int
        Requests under way at a time.
    timeout_s, attempts
        See `transport.Transport`.

    Raises
    ------
    VerifierError
        If the server cannot be reached, lacks the model, or gives no scores of the labels.
    InvalidInputError
        If an argument breaks its rule.
    """

    marks: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        key: str | None = None,
        max_length: int | None = None,
        batch_size: int = 8,
        timeout_s: float = 300.0,
        attempts: int = 5,
        transport: Transport | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InvalidInputError.of("verifier", "be the name of a model", name)
        self._name, self._at_once = name, check_integer("batch_size", batch_size, 1)
        if max_length is not None:
            max_length = check_integer("max_length", max_length, 1)
        self._transport = transport or Transport(base_url, key, timeout_s, attempts)
        parts = urlsplit(base_url)
        path = parts.path.rstrip("/")
        api = path.removesuffix("/completions").removesuffix("/chat")
        self._chat = not path.endswith("/completions") or path.endswith("/chat/completions")
        host = f"{parts.scheme}://{parts.netloc}"
        self._url = f"{host}{api}/{'chat/' if self._chat else ''}completions"
        self._tokenize = f"{host}{api.removesuffix('/v1')}/tokenize"
        served = self._served(f"{host}{api}/models")
        counted = self._count(verifier_prompt(CONTENT_FREE_INPUT))
        self.unit = "characters" if counted is None else "tokens"
        room = None
        if counted is not None:
            room = counted[1] or served.get("max_model_len")
        # The label itself takes one place.
        self.limit = max_length or (room - 1 if isinstance(room, int) else None)
        self._top, self._lead = self._find_labels()
        told = {"kind": "server", "name": name, "chat": self._chat, "prompt": PROMPT_VERSION}
        told |= {key: served.get(key) for key in ("root", "owned_by")}
        told |= {"top": self._top, "max_length": self.limit, "unit": self.unit}
        self.fingerprint: Mapping[str, Any] = MappingProxyType(told)

    def length(self, prompt: str) -> int:
        """Return a prompt's length; a bound on it where that is within the limit."""
        if self.unit == "characters":
            return len(prompt)
        # No token is shorter than a byte.
        most = len(prompt.encode()) + _CHAT_ADDS
        if self.limit is None or most <= self.limit:
            return most
        counted = self._count(prompt)
        if counted is None:
            raise VerifierError(f"the server at {self._transport.place} counts tokens no more")
        return counted[0]

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :class:`protocol.Judge`."""
        return in_parallel(self._score, prompts, self._at_once)

    def close(self) -> None:
        """Do nothing: every request had a connection of its own."""

    def _served(self, url: str) -> dict[str, Any]:
        body = self._transport.get(url)
        entries = body.get("data") if isinstance(body, dict) else None
        named = {
            str(entry.get("id")): entry
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict)
        }
        if named and self._name not in named:
            known = ", ".join(sorted(named)[:5])
            raise VerifierError(
                f"the server at {self._transport.place} has no model {self._name}, but {known}"
            )
        return dict(named.get(self._name, {}))

    def _asked(self, prompt: str) -> dict[str, Any]:
        if self._chat:
            return {"model": self._name, "messages": [{"role": "user", "content": prompt}]}
        return {"model": self._name, "prompt": prompt + PLAIN_SLOT}

    def _count(self, prompt: str) -> tuple[int, int | None] | None:
        """Return a prompt's tokens and how many the model reads, where the server tells."""
        try:
            body = self._transport.post(self._tokenize, self._asked(prompt))
        except RequestRefused:
            return None
        count = body.get("count") if isinstance(body, dict) else None
        if not isinstance(count, int) or isinstance(count, bool):
            return None
        room = body.get("max_model_len")
        return count, room if isinstance(room, int) and room > 1 else None

    def _likeliest(self, prompt: str, top: int) -> dict[str, float]:
        """Return the likeliest next tokens and their log-probabilities."""
        wanted: dict[str, Any] = {"max_tokens": 1, "temperature": 0}
        wanted |= {"logprobs": True, "top_logprobs": top} if self._chat else {"logprobs": top}
        body = self._transport.post(self._url, {**self._asked(prompt), **wanted})
        found: dict[str, float] = {}
        try:
            logprobs = body["choices"][0]["logprobs"]
            if self._chat:
                entries = logprobs["content"][0]["top_logprobs"]
                pairs = [(entry["token"], entry["logprob"]) for entry in entries]
            else:
                pairs = list(logprobs["top_logprobs"][0].items())
            for token, value in pairs:
                score = float(value)
                if score == score and score > -1e4:  # -9999 is how some servers write -inf
                    found[str(token)] = max(score, found.get(str(token), score))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise VerifierError(
                f"the server at {self._transport.place} gives no log-probabilities of the "
                "likeliest tokens, which a verifier needs"
            ) from None
        return found

    def _find_labels(self) -> tuple[int, str]:
        """Ask once without content: how many tokens the server lists, and how it writes labels."""
        nothing, found, top = verifier_prompt(CONTENT_FREE_INPUT), {}, _TOP[0]
        for top in _TOP:
            try:
                found = self._likeliest(nothing, top)
                break
            except RequestRefused as error:
                if error.status not in (400, 422) or top == _TOP[-1]:
                    raise
        for lead in ("", " ") if self._chat else (" ", ""):
            if all(lead + label in found for label in LABELS):
                return top, lead
        listed = ", ".join(map(repr, found)) or "none"
        raise VerifierError(
            f"{self._name} does not have each of the labels A, B and C among its {top} likeliest "
            f"tokens where the answer begins (these are {listed}), so it cannot be a verifier here"
        )

    def _score(self, prompt: str) -> Scores | Unjudged:
        try:
            found = self._likeliest(prompt, self._top)
        except RequestRefused as error:
            if error.status not in (400, 413, 422):
                raise
            return Unjudged(str(error))
        labels = [self._lead + label for label in LABELS]
        if not any(label in found for label in labels):
            return Unjudged(f"none of the labels is among the {self._top} likeliest tokens")
        least = min(found.values())
        a, b, c = (found.get(label, least) for label in labels)
        return (a, b, c)


def in_parallel(work: Callable[[_T], _R], items: Sequence[_T], at_once: int) -> list[_R]:
    """Work on items in threads; the first error ends it, as does Ctrl-C, without a wait.

    Examples
    --------
    >>> in_parallel(str.upper, ["a", "b", "c"], 2)
    ['A', 'B', 'C']
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, _R | None, BaseException | None]] = queue.SimpleQueue()
    stopped = threading.Event()
    for place in range(len(items)):
        todo.put(place)

    def run() -> None:
        while not stopped.is_set():
            try:
                place = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((place, work(items[place]), None))
            except BaseException as error:
                done.put((place, None, error))

    # Daemons: a request that is under way does not keep a stopped command from ending.
    for _ in range(min(at_once, len(items))):
        threading.Thread(target=run, daemon=True).start()
    results: dict[int, Any] = {}
    try:
        while len(results) < len(items):
            place, result, error = done.get()
            if error is not None:
                raise error
            results[place] = result
    finally:
        stopped.set()
    return [results[place] for place in range(len(items))]
