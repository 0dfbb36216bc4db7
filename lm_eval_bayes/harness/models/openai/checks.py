"""Before anything is sent: the prompts as they go out, their room, and the time allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.context_window import DEFAULT_MAX_GEN_TOKS
from lm_eval_bayes.harness.models.openai.payload import Payloads
from lm_eval_bayes.harness.models.trial_request import Order

log = get_logger(__name__)

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


def check_settings(payloads: Payloads, orders: Sequence[Order], said: set[str]) -> None:
    """Refuse what the backend cannot pass on as it is, once for all orders.

    Raises
    ------
    TaskConfigError
        Naming the setting, or what the prompts should have been.
    """
    seen: set[str] = set()
    for order in orders:
        if len(getattr(order.request, "args", ())) > 2:
            raise TaskConfigError(
                "the prompts must be text for trials over an API; got requests with images or sound"
            )
        chat = not isinstance(order.context, str)
        if payloads.chat and not chat:
            raise TaskConfigError(
                f"{payloads.backend} needs --apply_chat_template; got a prompt of plain text"
            )
        if chat and not payloads.chat:
            raise TaskConfigError(
                f"{payloads.backend} cannot send a chat's messages; use local-chat-completions, "
                "or name a Hugging Face tokenizer, whose chat template makes a text of them"
            )
        settings = repr(sorted(order.kwargs.items(), key=str))
        if settings in seen:
            continue
        seen.add(settings)
        payloads.check(order)
        kept = payloads.stops_kept(order.kwargs)
        if kept and "stops" not in said:
            said.add("stops")
            log.warning(
                "the harness sends a chat no more than four stop strings (and some models none), "
                "so %s cut the answers here; the model writes on until another end",
                ", ".join(map(repr, kept)),
            )


def prompts_to_send(model: Any, orders: Sequence[Order], chat: bool) -> dict[str, Any]:
    """Return by prompt what is sent of it: its tokens where the harness sends tokens.

    Parameters
    ----------
    model : object
        The harness's backend.
    orders : sequence of Order
        The trials.
    chat : bool
        Whether messages are sent, which the server tokenizes.

    Raises
    ------
    TaskConfigError
        If a prompt is empty.
    """
    contexts = {order.prompt: order.context for order in orders}
    if "" in contexts:
        raise TaskConfigError("`prompt` must hold text to be sent to a server; got an empty one")
    if chat or not getattr(model, "tokenized_requests", False):
        return contexts
    encoded = model.tok_encode(list(contexts.values()), add_special_tokens=model.add_bos_token)
    return dict(zip(contexts, encoded, strict=True))


def check_room(orders: Sequence[Order], messages: Mapping[str, Any], room: int | None) -> None:
    """Refuse prompts that, with their completions, have more tokens than the model reads.

    Parameters
    ----------
    orders : sequence of Order
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
    for order in orders:
        tokens, length = token_count(messages[order.prompt]) or 0, max_gen_toks(order)
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


def max_gen_toks(order: Order) -> int:
    """Return how many tokens a trial may have."""
    return int(order.kwargs.get("max_gen_toks", DEFAULT_MAX_GEN_TOKS))


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
