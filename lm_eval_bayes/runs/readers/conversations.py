"""Conversations of a model with users and tools, as other tools log them, as one text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.text import replace_surrogates
from lm_eval_bayes.runs.log_fields import mapping, mappings
from lm_eval_bayes.runs.readers.json_files import json_text, name_of

#: Keys of the parts of a message that hold text.
_PARTS = ("text", "reasoning", "thinking", "refusal")


def written(messages: object) -> str | None:
    """Return what was written after the prompt of a conversation.

    Parameters
    ----------
    messages : object
        A text, or a list of messages with their roles: the prompt, and everything from the first
        message of the assistant on that is no part of it.

    Returns
    -------
    str or None
        The text of the only reply; of a longer conversation all messages, each below its role in
        brackets. None where there is no reply.

    Examples
    --------
    >>> asked, replied = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}
    >>> written([asked, replied]), written([asked]), written("2")
    ('2', None, '2')
    >>> print(written([asked, replied, {"role": "user", "content": "Sure?"}]))
    [assistant]
    2
    <BLANKLINE>
    [user]
    Sure?
    """
    if isinstance(messages, str):
        return messages
    listed = mappings(messages)
    # inspect_ai says which messages were given
    of_model = [m.get("role") == "assistant" and m.get("source") != "input" for m in listed]
    if not any(of_model):
        return None
    replies = listed[of_model.index(True) :]
    if len(replies) == 1:
        return _text(replies[0])
    return "\n\n".join(f"[{_role(message)}]\n{_text(message)}" for message in replies)


def last_message(content: object) -> str:
    """Return a text, or the text of the last user message of a conversation; "" for others.

    Examples
    --------
    >>> last_message("1+1?"), last_message([{"role": "user", "content": "2+2?"}])
    ('1+1?', '2+2?')
    """
    prompts = [content] if isinstance(content, str) else []
    prompts += [_text(m) for m in mappings(content) if m.get("role") == "user"]
    texts = [replace_surrogates(text).strip() for text in prompts]
    return next(filter(None, reversed(texts)), "")


def _role(message: Mapping[str, Any]) -> str:
    kinds = (message.get(key) for key in ("role", "name", "function", "type"))
    role, *more = [name for name in map(name_of, kinds) if name] or ["message"]
    return f"{role} ({', '.join(more)})" if more else role


def _text(message: Mapping[str, Any]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    texts: list[Any] = [content]
    for part in content if isinstance(content, list) else ():
        texts += [part, *(mapping(part).get(key) for key in _PARTS)]
    texts += [json_text(call) for call in calls] if isinstance(calls, list) else ()
    return "\n".join(text for text in texts if isinstance(text, str))
