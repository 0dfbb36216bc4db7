"""Responses of an OpenAI-compatible server: completions and errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any

from lm_eval_bayes._util.retry import is_retried
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.models.interface import TrialRequest, bits_per_token
from lm_eval_bayes.store.trial import Trial

_MAX_NAMED = 5
_MAX_QUOTED = 300
#: Colours of a terminal, which Ray has in its messages.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

#: Statuses with which every request of this run would fail.
_FATAL = {
    401: "does not accept the key (the harness sends the environment's OPENAI_API_KEY, or what "
    "the model argument header= holds)",
    403: "does not allow this key to use the model",
    404: "knows no such path or model",
    405: "takes no completions at this path",
}


class ServerError(LmEvalBayesError, RuntimeError):
    """A server cannot be used as configured."""

    rule: Rule | None = "failed"


class TrialsFailedError(ServerError):
    """The server did not answer the requests for some trials; all others were yielded.

    Attributes
    ----------
    failed : tuple of (TrialRequest, str)
        The trials that failed, and the reasons.
    """

    def __init__(
        self, failed: Sequence[tuple[TrialRequest, str]], answered: int, requested: int, server: str
    ) -> None:
        self.failed = tuple(failed)
        by_reason: dict[str, list[str]] = {}
        for request, reason in failed:
            name = f"trial {request.trial} of {_shown(request.prompt)}"
            by_reason.setdefault(reason, []).append(name)
        named = [
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
            for reason, names in list(by_reason.items())[:_MAX_NAMED]
        ]
        if len(by_reason) > _MAX_NAMED:
            others = sum(map(len, list(by_reason.values())[_MAX_NAMED:]))
            named.append(f"and {others} more for other reasons")
        left = requested - answered - len(failed)
        skipped = f"; {left} were not requested any more" if left else ""
        super().__init__(
            f"{server} did not answer {len(failed)} of {requested} requests ({'; '.join(named)}); "
            f"{answered} answers came before{skipped}; with a store, the same command goes on from "
            "what is stored"
        )


@dataclass(eq=False, repr=False)
class ExchangeFailed(Exception):
    """A request that failed.

    Attributes
    ----------
    retry : bool
        Whether the same request may succeed later.
    fatal : bool
        Whether no request of this run can succeed.
    wait_s : float or None
        The server's Retry-After.
    busy : bool
        Whether the server is only busy.
    complaint : str
        The server's reason for refusing the request; empty otherwise.
    connected : bool
        Whether there was a connection.
    """

    sentence: InitVar[str]
    _: KW_ONLY
    retry: bool
    fatal: bool = False
    wait_s: float | None = None
    busy: bool = False
    complaint: str = ""
    connected: bool = True

    def __post_init__(self, sentence: str) -> None:
        super().__init__(sentence)


def refusal(status: int, raw: bytes, wait_s: float | None) -> ExchangeFailed:
    r"""Return the failure of an answer with an HTTP error status.

    Examples
    --------
    >>> refused = refusal(400, b'{"error": {"message": "logprobs are off"}}', None)
    >>> str(refused), refused.retry
    ('HTTP 400: logprobs are off', False)
    >>> str(refusal(500, b'{"error": "\\u001b[36mray::replica\\u001b[39m died"}', None))
    'HTTP 500: ray::replica died'
    >>> str(refusal(502, b"<html><title>Bad Gateway</title></html>", None))
    'HTTP 502 with a web page instead of an answer: Bad Gateway'
    """
    if status in (401, 403):
        # The server's reason may quote the key.
        return ExchangeFailed(f"HTTP {status}: it {_FATAL[status]}", retry=False, fatal=True)
    reason, words, is_page = _reason(raw)
    sentence = (
        f"HTTP {status} with a web page instead of an answer" if is_page else f"HTTP {status}"
    )
    if status in _FATAL:
        sentence += f", it {_FATAL[status]}"
    sentence += f": {reason}" if reason else ""
    no_quota = status == 429 and "insufficient_quota" in words
    return ExchangeFailed(
        sentence,
        retry=is_retried(status) and not no_quota,
        fatal=status in _FATAL or no_quota,
        wait_s=wait_s,
        busy=status == 429 or wait_s is not None,
        complaint=words if status in (400, 422) or _is_not_supported(status, words) else "",
    )


def _is_not_supported(status: int, reason: str) -> bool:
    """Whether an error of the server is about a setting: llama-cpp-python's of logprobs is."""
    return status in (500, 501) and "not supported" in reason and "logprobs" in reason


def unreadable(raw: bytes) -> ExchangeFailed:
    """Return the failure of an answer with HTTP 200 that is not JSON."""
    if _is_page(raw):
        return ExchangeFailed(
            f"a web page came instead of an answer: {_title(raw)} (does base_url lead to the "
            "server itself?)",
            retry=True,
        )
    shown = raw[:60].decode("utf-8", "replace")
    problem = "the answer's JSON breaks off" if raw.lstrip()[:1] in (b"{", b"[") else "no JSON came"
    return ExchangeFailed(
        f"{problem} after {len(raw)} bytes: {' '.join(shown.split())}…", retry=True
    )


def error_object(error: Any) -> ExchangeFailed:
    """Return the failure of an answer with HTTP 200 that contains an error object."""
    code = error.get("code") if isinstance(error, Mapping) else None
    final = isinstance(code, int) and 400 <= code < 500 and not is_retried(code)
    reason = _message(error) or json.dumps(error)
    return ExchangeFailed(
        f"HTTP 200 with an error inside: {_quoted(reason)}",
        retry=not final,
        complaint=reason if final else "",
    )


def _reason(raw: bytes) -> tuple[str, str, bool]:
    """Return the server's reason, short; all of it; and whether it is a web page."""
    if _is_page(raw):
        return _title(raw), "", True
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        text = raw.decode("utf-8", "replace")
        return _quoted(text), text, False
    if not isinstance(body, Mapping):
        return _quoted(str(body)), str(body), False
    error = body.get("error", body)
    messages = [_message(error)]
    if isinstance(error, Mapping):
        messages += [str(error[k]) for k in ("param", "code", "type") if error.get(k) is not None]
    detail = body.get("detail")
    if isinstance(detail, list):  # FastAPI's list of validation errors
        for part in detail:
            if isinstance(part, Mapping):  # not its `input`, which is the request itself
                messages.append(f"{part.get('msg', '')}: {part.get('loc', '')}")
    messages = [message for message in messages if message]
    reason = messages[0] if messages else json.dumps(body)
    return _quoted(reason), " ".join(messages), False


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
    return one_line(" ".join(_COLOURS.sub("", text).split()), _MAX_QUOTED)


def _shown(prompt: str) -> str:
    flat = " ".join(prompt.split())
    return repr(flat if len(flat) <= 50 else "…" + flat[-49:])


#: Finish reasons of answers that the server did not complete.
_ABORTED = frozenset({"abort", "aborted", "error", "cancelled"})


def read_trial(
    request: TrialRequest,
    body: Any,
    chat: bool,
    *,
    sent_tokens: int | None = None,
    think_end_token: str | None = None,
) -> Trial:
    """Read the JSON of one answer.

    Parameters
    ----------
    request : TrialRequest
        The trial that was requested.
    body : object
        The answer of the server.
    chat : bool
        Whether a chat completion was requested.
    sent_tokens : int, optional
        Number of tokens of the prompt, if it was sent as tokens.
    think_end_token : str, optional
        The text that ends a think block.

    Returns
    -------
    Trial
        Its `queued_s` and `generated_s` are those of the server, if it sends them. Its signals
        are ``completion_bpt``; ``content_missing``, ``reasoning_content`` and ``refusal`` of a
        chat; ``think_closed``; ``prompt_truncated`` (whether the server read fewer tokens than
        were sent).

    Raises
    ------
    ExchangeFailed
        If the answer does not contain exactly one finished completion.
    """
    choice = _only_choice(body)
    finish_reason = choice.get("finish_reason") or None
    finish_reason = None if finish_reason is None else str(finish_reason)
    if finish_reason in _ABORTED:
        raise ExchangeFailed(f"the server aborted the answer ({finish_reason})", retry=True)
    signals: dict[str, Any] = {}
    if chat:
        message = choice.get("message")
        if not isinstance(message, Mapping):
            raise ExchangeFailed("the answer contains no message", retry=True)
        content = _joined(message.get("content"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(reasoning, str):
            signals["reasoning_content"] = reasoning
        if isinstance(message.get("refusal"), str):
            signals["refusal"] = message["refusal"]
    else:
        content = _joined(choice.get("text"))
        if content is None and finish_reason != "content_filter":
            raise ExchangeFailed("the answer contains no text", retry=True)
    if content is None:
        signals["content_missing"] = True
    text = content or ""
    tokens, logprobs = _sampled_tokens(choice.get("logprobs"))
    bits = bits_per_token(logprobs)
    if bits is not None:
        signals["completion_bpt"] = bits
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    completion_tokens = _count(usage.get("completion_tokens"))
    prompt_tokens = _count(usage.get("prompt_tokens"))
    if think_end_token:
        signals["think_closed"] = think_end_token in text
    elif "reasoning_content" in signals:
        signals["think_closed"] = bool(text)
    if sent_tokens is not None and prompt_tokens is not None:
        signals["prompt_truncated"] = prompt_tokens < sent_tokens
    queued_s, generated_s = _times(body.get("metrics"))
    stop_reason = choice.get("stop_reason", choice.get("matched_stop"))
    return request.result(
        text,
        finish_reason=finish_reason,
        stop_reason=stop_reason if isinstance(stop_reason, str) else _count(stop_reason),
        prompt_tokens=prompt_tokens,
        completion_tokens=len(tokens) or None if completion_tokens is None else completion_tokens,
        queued_s=queued_s,
        generated_s=generated_s,
        signals=signals,
    )


def read_prompt_bits(body: Any, chat: bool) -> float | None:
    """Return the bits per token of an echoed prompt; None if the server did not send them.

    The first token has no probability.
    """
    choice = _only_choice(body)
    prompt_tokens = _count((body.get("usage") or {}).get("prompt_tokens"))
    if chat:
        entries = body.get("prompt_logprobs") or []
        # One entry for each token, by the token's id; none for the first token.
        values = [part.get("logprob") for entry in entries if entry for part in entry.values()]
    else:
        _, values = _sampled_tokens(choice.get("logprobs"))
        # The one generated token follows the prompt. A server that does not know `echo`, as that of
        # llama.cpp, sends this one token alone.
        end = len(values) - 1 if prompt_tokens is None else prompt_tokens
        if len(values) <= end - (values[:1] == [None]):
            return None
        values = values[:end]
        values = values[1:] if values[:1] == [None] else values
    return bits_per_token(values)


def _only_choice(body: Any) -> Mapping[str, Any]:
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        count = len(choices) if isinstance(choices, list) else "no list of"
        raise ExchangeFailed(f"the answer has {count} choices instead of one", retry=True)
    return choices[0]


def _joined(content: Any) -> str | None:
    """Return a message's text, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return None


def _sampled_tokens(logprobs: Any) -> tuple[list[str], list[Any]]:
    """Return tokens and log-probabilities, in either of the two formats of servers."""
    if not isinstance(logprobs, Mapping):
        return [], []
    content = logprobs.get("content")
    if isinstance(content, list):
        entries = [entry for entry in content if isinstance(entry, Mapping)]
        return [str(e.get("token", "")) for e in entries], [e.get("logprob") for e in entries]
    values = logprobs.get("token_logprobs")
    tokens = logprobs.get("tokens")
    return (
        [str(token) for token in tokens] if isinstance(tokens, list) else [],
        values if isinstance(values, list) else [],
    )


def _count(value: object) -> int | None:
    """Return a count; None for anything that a store does not take as one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return None


def _seconds(milliseconds: object) -> float | None:
    """Return a time in seconds; None for anything that is none."""
    number = as_real(milliseconds)
    return number / 1000 if number is not None and math.isfinite(number) else None


def _times(metrics: Any) -> tuple[float | None, float | None]:
    """Return queue and generation times, which vLLM sends with its per-request metrics."""
    if not isinstance(metrics, Mapping):
        return None, None
    parts = [_seconds(metrics.get(k)) for k in ("time_to_first_token_ms", "generation_time_ms")]
    generation = [part for part in parts if part is not None]
    queue = _seconds(metrics.get("queue_time_ms"))
    return queue, sum(generation) if len(generation) == 2 else None
