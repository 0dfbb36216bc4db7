"""Requests to a server: time-outs, trying again with patience, and errors of one sentence."""

from __future__ import annotations

import http.client
import ipaddress
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import urlsplit

from lm_eval_bayes._util.retry import retry_after
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.verifiers.protocol import VerifierError

#: Seconds before a second attempt; doubled before each further one.
FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LONGEST_ASKED_PAUSE_S = 600.0
_MOST_BYTES = 1 << 24
_TRY_AGAIN = frozenset({408, 409, 425, 429})
_HOPELESS = {
    401: "does not accept the key in OPENAI_API_KEY",
    403: "does not allow this key to use the model",
    404: "knows no such path or model",
    405: "takes no requests at this path",
}


class RequestRefused(VerifierError):
    """A server that works does not want this one request, and would not want it later.

    Attributes
    ----------
    status : int
        Of HTTP.
    """

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class _Failed(Exception):
    """One attempt brought nothing, but a later one may."""

    def __init__(self, sentence: str, wait_s: float | None = None) -> None:
        super().__init__(sentence)
        self.wait_s = wait_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, and the key at a host that nobody named."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Transport:
    """Sends JSON to one server.

    Parameters
    ----------
    address : str
        The server's address, http or https, such as http://127.0.0.1:8000/v1.
    key : str or None
        Sent with every request, and never shown.
    timeout_s : float
        Seconds for one request, to the last byte of its answer.
    attempts : int
        How often one request is sent at most.
    sleep : callable
        Waits between attempts.
    """

    def __init__(
        self,
        address: str,
        key: str | None = None,
        timeout_s: float = 300.0,
        attempts: int = 5,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.place = check_address(address)
        self._key, self._timeout_s, self._attempts = key, timeout_s, attempts
        self._sleep = sleep
        handlers: list[Any] = [_NoRedirect()]
        if _is_here(urlsplit(address).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def post(self, url: str, payload: dict[str, Any]) -> Any:
        """Send a request until it is answered or there is no hope; return the answer's JSON.

        Raises
        ------
        RequestRefused
            If the server does not want this request.
        VerifierError
            If it can take none, or did not answer after all attempts.
        """
        return self._ask(url, json.dumps(payload).encode())

    def get(self, url: str) -> Any:
        """Return the JSON at an address, or None where the server has nothing there."""
        try:
            return self._ask(url, None)
        except RequestRefused:
            return None

    def _ask(self, url: str, data: bytes | None) -> Any:
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(url, data)
            except _Failed as failure:
                if attempt == self._attempts:
                    times = "once" if attempt == 1 else f"{attempt} times"
                    said = f"the server at {self.place} did not answer, asked {times}: {failure}"
                    raise VerifierError(said) from failure
                # Requests that failed together should not come back together.
                pause = min(FIRST_PAUSE_S * 2.0 ** (attempt - 1), _LONGEST_PAUSE_S)
                pause *= random.uniform(0.75, 1.25)
                asked = min(failure.wait_s or 0.0, _LONGEST_ASKED_PAUSE_S)
                self._sleep(max(pause, asked))
        raise AssertionError("there is at least one attempt")

    def _once(self, url: str, data: bytes | None) -> Any:
        request = urllib.request.Request(url, data, {"Accept": "application/json"})
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self._key:
            # Not sent on to another host.
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        ends = time.monotonic() + self._timeout_s
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                raw = self._read(answer, ends)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
        except TimeoutError as error:
            raise _Failed(f"no answer within {self._timeout_s:g} s") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _Failed(f"no answer within {self._timeout_s:g} s") from error
            raise _Failed(f"no connection ({self._clean(str(error.reason))})") from error
        except (OSError, http.client.HTTPException) as error:
            said = self._clean(str(error) or type(error).__name__)
            raise _Failed(f"the connection broke off ({said})") from error
        try:
            return json.loads(raw)
        except ValueError as error:
            raise _Failed(f"what came is no JSON: {self._clean(_text(raw))}") from error

    def _read(self, answer: Any, ends: float) -> bytes:
        parts, size = [], 0
        while part := answer.read1(1 << 16):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                raise VerifierError(f"the server at {self.place} sends more than an answer can be")
            if time.monotonic() > ends:
                raise TimeoutError
        if answer.length:  # read1 does not notice that bytes are missing
            raise _Failed("the answer broke off before its end")
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        status = error.code
        if 300 <= status < 400:
            raise VerifierError(
                f"the server at {self.place} sends us elsewhere (HTTP {status}); give the address "
                "that it means"
            )
        try:
            said = self._clean(_complaint(error.read(_MOST_BYTES)))
        except (OSError, http.client.HTTPException):
            said = ""
        said = f"HTTP {status}: {said}" if said else f"HTTP {status}"
        if status in (401, 403):  # what the server says may quote the key
            sentence = f"the server at {self.place} {_HOPELESS[status]} (HTTP {status})"
            raise RequestRefused(sentence, status)
        if status == 429 and "insufficient_quota" in said:
            raise VerifierError(f"the server at {self.place} refuses: {said}")
        if status in _TRY_AGAIN or (status >= 500 and status != 501):
            raise _Failed(said, retry_after(error.headers.get("Retry-After")))
        why = f" {_HOPELESS[status]}" if status in _HOPELESS else " refuses"
        raise RequestRefused(f"the server at {self.place}{why} ({said})", status)

    def _clean(self, text: str) -> str:
        text = " ".join(text.split())
        if self._key:
            text = text.replace(self._key, "***")
        return text if len(text) <= 300 else text[:297] + "..."


def check_address(address: object) -> str:
    """Return host, port and path of a server's address, and nothing that may be secret.

    Raises
    ------
    InvalidInputError
        If it is no address, or holds a password.

    Examples
    --------
    >>> check_address("http://127.0.0.1:8000/v1?key=hidden")
    '127.0.0.1:8000/v1'
    """
    rule = "be the address of a server, such as http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(address if isinstance(address, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInputError.of("base_url", rule, "something else") from None
    if parts.username is not None or parts.password is not None:
        rule = "hold no user name or password, which would end in logs (set OPENAI_API_KEY)"
        raise InvalidInputError.of("base_url", rule, "some")
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInputError.of("base_url", rule, address)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}{parts.path}" if port else f"{shown}{parts.path}"


def _is_here(host: str) -> bool:
    """Whether an address is this machine's own; no proxy can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _complaint(raw: bytes) -> str:
    """Return what a server says of a request, where it says it in one of the usual ways."""
    try:
        body = json.loads(raw)
    except ValueError:
        return _text(raw)
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        words = [error.get(key) for key in ("message", "code", "detail")]
        found = [word for word in words if isinstance(word, str) and word]
        return " ".join(found) if found else json.dumps(error)
    return error if isinstance(error, str) else json.dumps(error)


def _text(raw: bytes) -> str:
    return raw[:300].decode("utf-8", "replace")
