"""Conversations of a model with users and tools, as other tools log them, as one text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lm_eval_bayes.runs.provenance import mapping
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
    listed = [mapping(message) for message in messages] if isinstance(messages, list) else []
    first = next((i for i, message in enumerate(listed) if _is_reply(message)), len(listed))
    replies = listed[first:]
    if not replies:
        return None
    if len(replies) == 1:
        return _text(replies[0])
    return "\n\n".join(f"[{_role(message)}]\n{_text(message)}" for message in replies)


def _is_reply(message: Mapping[str, Any]) -> bool:
    # inspect_ai says which messages were given
    return message.get("role") == "assistant" and message.get("source") != "input"


def _role(message: Mapping[str, Any]) -> str:
    kinds = (message.get(key) for key in ("role", "name", "function", "type"))
    role, *more = [name for name in map(name_of, kinds) if name] or ["message"]
    return f"{role} ({', '.join(more)})" if more else role


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [content] if isinstance(content, str) else list(_parts(content))
    calls = message.get("tool_calls")
    parts += map(_call, calls if isinstance(calls, list) else ())
    return "\n".join(parts)


def _parts(content: object) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        texts = [mapping(part).get(key) for key in _PARTS]
        yield from (text for text in [part, *texts] if isinstance(text, str))


def _call(call: object) -> str:
    """Return the call of a tool as the tool's name with its arguments."""
    if isinstance(call, str):  # JSON, as verifiers writes it
        try:
            call = json.loads(call)
        except (ValueError, RecursionError):
            return str(call)
    named = mapping(call)
    function = named.get("function")
    named = {**named, "name": function} if isinstance(function, str) else mapping(function) or named
    arguments = named.get("arguments")
    text = arguments if isinstance(arguments, str) else json_text(arguments)
    return f"{name_of(named.get('name'))}({text})"
