"""A judge on a server with OpenAI's completions or chat API that returns log-probabilities."""

from __future__ import annotations

import http.client
import ipaddress
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.pool import ThreadPool
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.retry import Backoff, is_retried, retry_after
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.rubric.verifier_prompt import (
    CONTENT_FREE_INPUT,
    LABELS,
    PLAIN_SLOT,
    PROMPT_VERSION,
    verifier_prompt,
)
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets
from lm_eval_bayes.verifiers.judge import Scores, Unjudged, VerifierError

_MAX_BYTES = 1 << 24
#: How often one request is sent at most.
_ATTEMPTS = 5
_REFUSALS = {
    401: "does not accept the key in OPENAI_API_KEY",
    403: "does not allow this key to use the model",
    404: "knows no such path or model",
    405: "takes no requests at this path",
}


class RequestRefused(VerifierError):
    """A server refused a request, and would refuse it again.

    Attributes
    ----------
    status : int
        The HTTP status.
    """

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence, "failed", "--base-url", status)
        self.status = status


class _Failed(Exception):
    """An attempt failed, and a later one may succeed."""

    def __init__(self, sentence: str, wait_s: float | None = None) -> None:
        super().__init__(sentence)
        self.wait_s = wait_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """No redirects: a redirected POST becomes a GET, and the key would go to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Transport:
    """Sends JSON to one server.

    Parameters
    ----------
    base_url : str
        The server's address, http or https, such as http://127.0.0.1:8000/v1.
    key : str or None
        Sent with every request, and never shown.
    timeout_s : float
        Seconds for one request, to the last byte of its answer.

    Attributes
    ----------
    address : str
        Host, port and path of `base_url`.

    Raises
    ------
    InvalidInputError
        If `base_url` is not an address, or contains a user name or password.
    """

    def __init__(self, base_url: str, key: str | None = None, timeout_s: float = 300.0) -> None:
        self.base_url, self.address = base_url, check_address(base_url)
        self._backoff = Backoff(seed=0)
        self._key, self._timeout_s = key, timeout_s
        self._secrets = secret_texts(base_url, key)
        handlers: list[Any] = [_NoRedirect()]
        if _is_here(urlsplit(base_url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def send(self, url: str, payload: Mapping[str, Any] | None = None) -> Any:
        """Send a request until it is answered or refused; return the answer's JSON.

        Parameters
        ----------
        url : str
            An address of the server.
        payload : mapping or None
            The JSON of a POST; a GET has none.

        Raises
        ------
        RequestRefused
            If the server refuses this request.
        VerifierError
            If it refuses all requests, or did not answer after all attempts.
        """
        for attempt in count(1):
            try:
                return self._attempt(url, payload)
            except _Failed as failure:
                if attempt == _ATTEMPTS:
                    sentence = (
                        f"the server at {self.address} did not answer, asked {attempt} times: "
                        f"{failure}"
                    )
                    raise VerifierError(sentence, "failed", "--base-url") from failure
                time.sleep(self._backoff.pause_s(attempt, failure.wait_s))

    def _attempt(self, url: str, payload: Mapping[str, Any] | None) -> Any:
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        if payload is not None:
            request.data = json.dumps(payload).encode()
            request.add_header("Content-Type", "application/json")
        if self._key:
            # Not sent to another host.
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        ends = time.monotonic() + self._timeout_s
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                raw = self._read(answer, ends)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            failure = "the connection broke"
            cause: object = error
            if isinstance(error, urllib.error.URLError):
                failure, cause = "no connection", error.reason
            if isinstance(cause, TimeoutError):
                raise _Failed(f"no answer within {self._timeout_s:g} s") from error
            message = self._clean(str(cause) or type(cause).__name__)
            raise _Failed(f"{failure} ({message})") from error
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise _Failed(f"the answer is not JSON: {self._clean(_text(raw))}") from error

    def _read(self, answer: Any, ends: float) -> bytes:
        parts, size = [], 0
        while part := answer.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > _MAX_BYTES:
                sentence = f"the server at {self.address} sends more than an answer can be"
                raise VerifierError(sentence, "failed", "--base-url")
            if time.monotonic() > ends:
                raise TimeoutError
        if answer.length:  # read1 does not notice that bytes are missing
            raise _Failed("the answer is incomplete")
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        status = error.code
        if 300 <= status < 400:
            sentence = (
                f"the server at {self.address} redirects to another address "
                f"(HTTP {status}); give that address"
            )
            raise VerifierError(sentence, "failed", "--base-url", status)
        message = f"HTTP {status}"
        if status not in (401, 403):  # whose reason may quote the key
            with suppress(OSError, http.client.HTTPException):
                reason = self._clean(_reason(error.read(_MAX_BYTES)))
                message += f": {reason}" if reason else ""
        if status == 429 and "insufficient_quota" in message:
            sentence = f"the server at {self.address} refuses: {message}"
            raise VerifierError(sentence, "failed", "--base-url", status)
        if is_retried(status):
            raise _Failed(message, retry_after(error.headers.get("Retry-After")))
        rule = _REFUSALS.get(status, "refuses")
        raise RequestRefused(f"the server at {self.address} {rule} ({message})", status)

    def _clean(self, text: str) -> str:
        return one_line(without_secrets(" ".join(text.split()), self._secrets), 300)


def _is_here(host: str) -> bool:
    """Whether an address is this computer's own, which no proxy can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(raw: bytes) -> str:
    """Return the reason in an error response, if it has one of the usual forms."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return _text(raw)
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        fields = [error.get(key) for key in ("message", "code", "detail")]
        error = " ".join(filter(None, (f for f in fields if isinstance(f, str)))) or error
    return error if isinstance(error, str) else json.dumps(error)


def _text(raw: bytes) -> str:
    return raw[:300].decode("utf-8", "replace")


#: Number of likeliest tokens that are requested, and the number if the server refuses the first.
_TOP, _FEWER = 20, 5

#: Tokens that a chat template adds to a prompt, at most.
_CHAT_TOKENS = 64

_T = TypeVar("_T")
_R = TypeVar("_R")


class ServerJudge:
    """Scores labels by a server's list of likeliest next tokens.

    A label that is not on the list gets the lowest score of the list, which is an upper bound;
    a prompt without any label on the list cannot be judged. With a server that counts tokens
    (vLLM does, at /tokenize), prompts are limited by its model's context; otherwise lengths are
    counted in characters.

    Parameters
    ----------
    name : str
        The server's name of the model.
    transport : Transport
        To the server's API, such as http://127.0.0.1:8000/v1, whose chat completions are used, or
        to the full path of /chat/completions or /completions.
    max_length : int or None
        The maximal length of a prompt; by default the context that the server reports.
    batch_size : int
        Number of concurrent requests.

    Raises
    ------
    VerifierError
        If the server cannot be reached, lacks the model, or gives no scores of the labels.
    """

    control_tokens: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        max_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        self._name, self._concurrency, self._transport = name, batch_size, transport
        parts = urlsplit(transport.base_url)
        path = parts.path.rstrip("/")
        api = path.removesuffix("/completions").removesuffix("/chat")
        self._chat = not path.endswith("/completions") or path.endswith("/chat/completions")
        host = f"{parts.scheme}://{parts.netloc}"
        self._url = f"{host}{api}/{'chat/' if self._chat else ''}completions"
        self._tokenize = f"{host}{api.removesuffix('/v1')}/tokenize"
        served = self._served(f"{host}{api}/models")
        counted = self._count(verifier_prompt(CONTENT_FREE_INPUT))
        self.unit = "characters" if counted is None else "tokens"
        room = counted and (counted[1] or served.get("max_model_len"))
        # The label itself takes one token.
        self.limit = max_length or (room - 1 if isinstance(room, int) else None)
        self._top, self._lead = self._find_labels()
        self.fingerprint: Mapping[str, Any] = MappingProxyType(
            {
                "kind": "server",
                "name": name,
                "chat": self._chat,
                "prompt": PROMPT_VERSION,
                "root": served.get("root"),
                "owned_by": served.get("owned_by"),
                "top": self._top,
                "max_length": self.limit,
                "unit": self.unit,
            }
        )

    def length(self, prompt: str) -> int:
        """Return a prompt's length, or an upper bound on it that is within the limit."""
        if self.unit == "characters":
            return len(prompt)
        # No token is shorter than a byte.
        bound = len(prompt.encode()) + _CHAT_TOKENS
        if self.limit is None or bound <= self.limit:
            return bound
        counted = self._count(prompt)
        if counted is None:
            sentence = f"the server at {self._transport.address} no longer counts tokens"
            raise VerifierError(sentence, "failed", "--base-url")
        return counted[0]

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :meth:`Judge.scores`."""
        return in_parallel(self._score, prompts, self._concurrency)

    def close(self) -> None:
        """Do nothing: every request has a connection of its own."""

    def _served(self, url: str) -> dict[str, Any]:
        """Return what the server says about the model, if it lists its models."""
        try:
            entries = self._transport.send(url)["data"]
            named = {str(entry.get("id")): entry for entry in entries if isinstance(entry, dict)}
        except (RequestRefused, LookupError, TypeError):
            return {}
        if named and self._name not in named:
            served = ", ".join(sorted(named)[:5])
            sentence = (
                f"the server at {self._transport.address} has no model {self._name}, but {served}"
            )
            raise VerifierError(sentence, "choice", "verifier", self._name)
        return named.get(self._name, {})

    def _payload(self, prompt: str) -> dict[str, Any]:
        if self._chat:
            return {"model": self._name, "messages": [{"role": "user", "content": prompt}]}
        return {"model": self._name, "prompt": prompt + PLAIN_SLOT}

    def _count(self, prompt: str) -> tuple[int, int | None] | None:
        """Return the number of a prompt's tokens and of the context's, if the server counts."""
        try:
            body = self._transport.send(self._tokenize, self._payload(prompt))
        except RequestRefused:
            return None
        count = body.get("count") if isinstance(body, dict) else None
        if not isinstance(count, int) or isinstance(count, bool):
            return None
        room = body.get("max_model_len")
        return count, room if isinstance(room, int) and room > 1 else None

    def _likeliest(self, prompt: str, top: int) -> dict[str, float]:
        """Return the likeliest next tokens and their log-probabilities."""
        settings: dict[str, Any] = {"max_tokens": 1, "temperature": 0}
        settings |= {"logprobs": True, "top_logprobs": top} if self._chat else {"logprobs": top}
        body = self._transport.send(self._url, {**self._payload(prompt), **settings})
        likeliest: dict[str, float] = {}
        try:
            logprobs = body["choices"][0]["logprobs"]
            if self._chat:
                entries = logprobs["content"][0]["top_logprobs"]
                pairs = [(entry["token"], entry["logprob"]) for entry in entries]
            else:
                pairs = logprobs["top_logprobs"][0].items()
            for token, value in pairs:
                score = float(value)
                # neither NaN nor -9999, which some servers write for -inf
                if -9999.0 < score < math.inf:
                    likeliest[str(token)] = max(score, likeliest.get(str(token), score))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            sentence = (
                f"the server at {self._transport.address} returns no log-probabilities of "
                "the likeliest tokens, which a verifier needs"
            )
            raise VerifierError(sentence, "unsupported", "--base-url") from None
        return likeliest

    def _find_labels(self) -> tuple[int, str]:
        """Return how many tokens the server lists, and the text before a label in its token."""
        prompt, top = verifier_prompt(CONTENT_FREE_INPUT), _TOP
        try:
            likeliest = self._likeliest(prompt, top)
        except RequestRefused as error:
            if error.status not in (400, 422):
                raise
            top = _FEWER
            likeliest = self._likeliest(prompt, top)
        for lead in ("", " ") if self._chat else (" ", ""):
            if all(lead + label in likeliest for label in LABELS):
                return top, lead
        listed = ", ".join(map(repr, likeliest)) or "none"
        sentence = (
            f"{self._name} does not have each of the labels A, B and C among its {top} likeliest "
            f"tokens at the beginning of the answer ({listed}), so it cannot be a verifier"
        )
        raise VerifierError(sentence, "unsupported", "verifier", self._name)

    def _score(self, prompt: str) -> Scores | Unjudged:
        try:
            likeliest = self._likeliest(prompt, self._top)
        except RequestRefused as error:
            if error.status not in (400, 413, 422):
                raise
            return Unjudged(str(error))
        labels = [self._lead + label for label in LABELS]
        if not any(label in likeliest for label in labels):
            return Unjudged(f"none of the labels is among the {self._top} likeliest tokens")
        least = min(likeliest.values())
        a, b, c = (likeliest.get(label, least) for label in labels)
        return (a, b, c)


def in_parallel(work: Callable[[_T], _R], items: Sequence[_T], at_once: int) -> list[_R]:
    """Work on items in threads; the first error, in their order, or Ctrl-C ends it.

    Examples
    --------
    >>> in_parallel(str.upper, ["a", "b", "c"], 2)
    ['A', 'B', 'C']
    """
    if not items:
        return []
    # Daemon threads: a running request does not delay the end of a stopped command.
    with ThreadPool(min(at_once, len(items))) as pool:
        return list(pool.imap(work, items))
