"""Answers of an OpenAI-compatible server, read as trials; and trials without an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.http import RequestFailed
from lm_eval_bayes._util.text import first_names, plural
from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.models.interface import TrialRequest, bits_per_token
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.store.trial import Trial

_MAX_REASONS = 5

#: Finish reasons of answers that the server did not complete.
_ABORTED = frozenset({"abort", "aborted", "error", "cancelled"})


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
            name = f"trial {request.trial} of {' '.join(request.prompt.split())[-50:]!r}"
            by_reason.setdefault(reason, []).append(name)
        reasons = [f"{first_names(names, 1)}: {reason}" for reason, names in by_reason.items()]
        left = requested - answered - len(failed)
        super().__init__(
            f"{server} did not answer {plural(len(failed), 'request')} of {requested:,} "
            f"({'; '.join(reasons[:_MAX_REASONS])}); {answered:,} were answered and {left:,} not "
            "sent; with a store, the same command goes on from what is stored"
        )


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
        Its signals are ``completion_bpt``; ``content_missing``, ``reasoning_content`` and
        ``refusal`` of a chat; ``think_closed``; ``prompt_truncated`` (whether the server read fewer
        tokens than were sent).

    Raises
    ------
    RequestFailed
        If the answer does not contain exactly one finished completion.
    """
    choice = _only_choice(body)
    finish_reason = str(choice.get("finish_reason") or "") or None
    if finish_reason in _ABORTED:
        raise RequestFailed(f"the server aborted the answer ({finish_reason})")
    signals: dict[str, Any] = {}
    if chat:
        message = choice.get("message")
        if not isinstance(message, Mapping):
            raise RequestFailed("the answer contains no message")
        content = _joined(message.get("content"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        said = {"reasoning_content": reasoning, "refusal": message.get("refusal")}
        signals |= {name: text for name, text in said.items() if isinstance(text, str)}
    else:
        content = _joined(choice.get("text"))
        if content is None and finish_reason != "content_filter":
            raise RequestFailed("the answer contains no text")
    if content is None:
        signals["content_missing"] = True
    text = content or ""
    tokens, logprobs = _sampled_tokens(choice.get("logprobs"))
    bits = bits_per_token(logprobs)
    if bits is not None:
        signals["completion_bpt"] = bits
    usage = mapping(body.get("usage"))
    completion_tokens = _count(usage.get("completion_tokens"))
    prompt_tokens = _count(usage.get("prompt_tokens"))
    if think_end_token:
        signals["think_closed"] = think_end_token in text
    elif "reasoning_content" in signals:
        signals["think_closed"] = bool(text)
    if sent_tokens is not None and prompt_tokens is not None:
        signals["prompt_truncated"] = prompt_tokens < sent_tokens
    stop_reason = choice.get("stop_reason", choice.get("matched_stop"))
    return request.result(
        text,
        finish_reason=finish_reason,
        stop_reason=stop_reason if isinstance(stop_reason, str) else _count(stop_reason),
        prompt_tokens=prompt_tokens,
        completion_tokens=tokens or None if completion_tokens is None else completion_tokens,
        signals=signals,
    )


def read_prompt_bits(body: Any, chat: bool) -> float | None:
    """Return the bits per token of an echoed prompt; None if the server did not send them.

    The first token has no probability.
    """
    choice = _only_choice(body)
    if chat:
        # One entry for each token, by the token's id; none for the first token.
        entries = body.get("prompt_logprobs") or []
        return bits_per_token(
            [part.get("logprob") for entry in entries if entry for part in entry.values()]
        )
    _, values = _sampled_tokens(choice.get("logprobs"))
    # The one generated token follows the prompt. A server that does not know `echo`, as that of
    # llama.cpp, sends this one token alone.
    prompt_tokens = _count(mapping(body.get("usage")).get("prompt_tokens"))
    end = len(values) - 1 if prompt_tokens is None else prompt_tokens
    first = int(values[:1] == [None])
    return bits_per_token(values[first:end]) if len(values) > end - first else None


def _only_choice(body: Any) -> Mapping[str, Any]:
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise RequestFailed("the answer has not one list of one choice")
    return choices[0]


def _joined(content: Any) -> str | None:
    """Return a message's text, which may be a list of parts."""
    if isinstance(content, list):
        parts = [mapping(part).get("text") for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


def _sampled_tokens(logprobs: Any) -> tuple[int, list[Any]]:
    """Return how many tokens there are, and log-probabilities, in either format of servers."""
    logprobs = mapping(logprobs)
    if isinstance(logprobs.get("content"), list):
        values = [mapping(entry).get("logprob") for entry in logprobs["content"]]
        return len(values), values
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    return (
        len(tokens) if isinstance(tokens, list) else 0,
        values if isinstance(values, list) else [],
    )


def _count(value: object) -> int | None:
    """Return a count; None for anything that a store does not take as one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return None
