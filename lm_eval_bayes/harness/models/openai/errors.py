"""What goes wrong between here and a server, each in one clear sentence."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness.models.trial_request import Order

_MOST_NAMED = 5
_MOST_QUOTED = 300

#: Answers after which no other request can fare better.
_HOPELESS = {
    401: "does not accept the key (the harness sends the environment's OPENAI_API_KEY, or what "
    "the model argument header= holds)",
    403: "does not allow this key to use the model",
    404: "knows no such path or model",
    405: "takes no completions at this path",
}
_TRY_AGAIN = frozenset({408, 409, 425, 429})


class ServerError(LmEvalBayesError, RuntimeError):
    """A server cannot be used as it was asked."""


class TrialsFailedError(ServerError):
    """Some trials were not answered; all others came.

    Attributes
    ----------
    failed : tuple of (Order, str)
        The trials that were asked for in vain, and why.
    """

    def __init__(self, message: str, failed: tuple[tuple[Order, str], ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed

    @classmethod
    def of(
        cls, failed: Sequence[tuple[Order, str]], answered: int, asked: int, where: str
    ) -> TrialsFailedError:
        """Build the sentence that names the trials which failed."""
        named = [
            f"trial {order.trial} of {_shown(order.prompt)}: {why}"
            for order, why in failed[:_MOST_NAMED]
        ]
        if len(failed) > _MOST_NAMED:
            named.append(f"and {len(failed) - _MOST_NAMED} more")
        left = asked - answered - len(failed)
        skipped = f"; {left} were not asked for any more" if left else ""
        return cls(
            f"{where} did not answer {len(failed)} of {asked} requests ({'; '.join(named)}); "
            f"{answered} answers came and were handed on{skipped}",
            tuple(failed),
        )


class ExchangeFailed(Exception):
    """One request to the server that brought nothing.

    Attributes
    ----------
    retry : bool
        Whether the same request may succeed later.
    hopeless : bool
        Whether no request can succeed.
    wait_s : float or None
        How long the server asks to wait.
    busy : bool
        Whether it only asks for patience.
    complaint : str
        What the server said of a request that it refused; empty otherwise.
    """

    def __init__(
        self,
        sentence: str,
        *,
        retry: bool,
        hopeless: bool = False,
        wait_s: float | None = None,
        busy: bool = False,
        complaint: str = "",
    ) -> None:
        super().__init__(sentence)
        self.retry = retry
        self.hopeless = hopeless
        self.wait_s = wait_s
        self.busy = busy or wait_s is not None
        self.complaint = complaint


def refusal(status: int, raw: bytes, wait_s: float | None) -> ExchangeFailed:
    """Read an answer whose HTTP status says that it is none.

    Examples
    --------
    >>> refused = refusal(400, b'{"error": {"message": "logprobs are off"}}', None)
    >>> str(refused), refused.retry
    ('HTTP 400: logprobs are off', False)
    >>> str(refusal(502, b"<html><title>Bad Gateway</title></html>", None))
    'HTTP 502 with a web page instead of an answer: Bad Gateway'
    """
    if status in (401, 403):
        # What the server says may quote the key.
        return ExchangeFailed(f"HTTP {status}: it {_HOPELESS[status]}", retry=False, hopeless=True)
    said, words, is_page = _what_it_said(raw)
    sentence = (
        f"HTTP {status} with a web page instead of an answer" if is_page else f"HTTP {status}"
    )
    if status in _HOPELESS:
        sentence += f", it {_HOPELESS[status]}"
    sentence += f": {said}" if said else ""
    broke = status == 429 and "insufficient_quota" in words
    return ExchangeFailed(
        sentence,
        retry=(status in _TRY_AGAIN or status >= 500) and not broke,
        hopeless=status in _HOPELESS or broke,
        wait_s=wait_s,
        busy=status == 429,
        complaint=words if status in (400, 422) else "",
    )


def unreadable(raw: bytes) -> ExchangeFailed:
    """Say what came with HTTP 200 that is no JSON."""
    if _is_page(raw):
        return ExchangeFailed(
            f"a web page came instead of an answer: {_title(raw)} (does base_url lead to the "
            "server itself?)",
            retry=True,
        )
    shown = raw[:60].decode("utf-8", "replace")
    what = "the answer's JSON breaks off" if raw.lstrip()[:1] in (b"{", b"[") else "no JSON came"
    return ExchangeFailed(f"{what} after {len(raw)} bytes: {' '.join(shown.split())}…", retry=True)


def error_object(error: Any) -> ExchangeFailed:
    """Say what a server put into an error object that it sent with HTTP 200."""
    code = error.get("code") if isinstance(error, Mapping) else None
    final = isinstance(code, int) and 400 <= code < 500 and code not in _TRY_AGAIN
    said = _message(error) or json.dumps(error)
    return ExchangeFailed(
        f"HTTP 200 with an error inside: {_quoted(said)}",
        retry=not final,
        complaint=said if final else "",
    )


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """Blank out whatever must not be logged."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _what_it_said(raw: bytes) -> tuple[str, str, bool]:
    """Return the server's words, short; the same with the names of parameters; a page or not."""
    if _is_page(raw):
        return _title(raw), "", True
    try:
        body = json.loads(raw)
    except ValueError:
        text = raw.decode("utf-8", "replace")
        return _quoted(text), text, False
    if not isinstance(body, Mapping):
        return _quoted(str(body)), str(body), False
    error = body.get("error", body)
    words = [_message(error)]
    if isinstance(error, Mapping):
        words += [str(error[k]) for k in ("param", "code", "type") if error.get(k) is not None]
    detail = body.get("detail")
    if isinstance(detail, list):  # FastAPI's list of what it did not like
        for part in detail:
            if isinstance(part, Mapping):  # not its `input`, which is the request itself
                words.append(f"{part.get('msg', '')}: {part.get('loc', '')}")
    words = [w for w in words if w]
    said = words[0] if words else json.dumps(body)
    return _quoted(said), " ".join(words), False


def _message(error: Any) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, Mapping):
        for key in ("message", "detail", "error"):
            if isinstance(error.get(key), str):
                return str(error[key])
    return ""


def _is_page(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"<"


def _title(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    title = text.partition("<title>")[2].partition("</title>")[0]
    return _quoted(title or text)


def _quoted(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_QUOTED else flat[: _MOST_QUOTED - 1] + "…"


def _shown(prompt: str) -> str:
    flat = " ".join(prompt.split())
    return repr(flat if len(flat) <= 50 else "…" + flat[-49:])
