"""The fields of one line of a samples file, as every version of the harness writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.text import one_line

#: The longest description of a protocol.
_LONGEST_PROTOCOL = 200


def cluster_label(doc: object, field: str) -> str | None:
    """Return the field of a document that names its cluster; None without such a text or number.

    Examples
    --------
    >>> doc = {"contest": "AIME I ", "year": 2025, "tags": ["a"], "topic": ""}
    >>> [cluster_label(doc, field) for field in ("contest", "year", "tags", "topic", "passage")]
    ['AIME I', '2025', None, None, None]
    """
    value = doc.get(field) if isinstance(doc, Mapping) else None
    if not isinstance(value, (str, bool, int, float)) or value != value:
        return None
    return str(value).strip() or None


def protocol_label(protocol: object) -> str:
    """Return the name of the protocol that a run recorded, and how a custom one asks.

    "" where none is recorded.

    Examples
    --------
    >>> protocol_label({"name": "hariri-2026", "chat_template": True}), protocol_label(None)
    ('hariri-2026', '')
    >>> protocol_label({"name": "custom", "prompt": "matharena", "differs_in": ["chat_template"]})
    'custom (matharena but for chat_template)'
    >>> protocol_label({"name": "custom", "chat_template": "server", "system_prompt": "Be brief."})
    'custom (with chat template and system prompt)'
    """
    record = protocol if isinstance(protocol, Mapping) else {}
    label, differing = record.get("name", ""), record.get("differs_in")
    if label == "custom":
        how = f"{'with' if record.get('chat_template') else 'without'} chat template"
        how += " and system prompt" if record.get("system_prompt") else ""
        if isinstance(differing, list) and differing:
            how = f"{record.get('prompt')} but for {', '.join(map(str, differing))}"
        label = f"custom ({how})"
    return one_line(label, _LONGEST_PROTOCOL)


def generated_texts(row: Mapping[str, Any]) -> list[str] | None:
    """Return the texts that were generated for a question, None where there are none."""
    responses = row.get("resps")
    texts = responses[0] if isinstance(responses, list) and len(responses) == 1 else None
    is_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    return texts if is_texts else None


def right_answers(row: Mapping[str, Any]) -> list[str]:
    """Return the right answers of a question; empty where none is logged.

    Examples
    --------
    >>> right_answers({"target": 42}), right_answers({"target": ["a", "b"]}), right_answers({})
    (['42'], ['a', 'b'], [])
    """
    target = row.get("target")
    if isinstance(target, (int, float)) and not isinstance(target, bool):
        return [str(target)]
    if isinstance(target, list) and all(isinstance(part, str) for part in target):
        return target
    return [target] if isinstance(target, str) else []


def lookup(value: object, *keys: str) -> Any:
    """Return what mappings in one another hold at some keys; None where one is missing.

    Examples
    --------
    >>> lookup({"usage": {"tokens": 7}}, "usage", "tokens"), lookup({"usage": 7}, "usage", "tokens")
    (7, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: object, *keys: str) -> Mapping[str, Any]:
    """Return a value, or what :func:`lookup` finds in it, if it is a mapping; else an empty one."""
    inner = lookup(value, *keys)
    return inner if isinstance(inner, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the elements of a list, with an empty mapping for what is none; empty for no list.

    Examples
    --------
    >>> mappings([{"id": 1}, None]), mappings("x")
    ([{'id': 1}, {}], [])
    """
    return [mapping(part) for part in value] if isinstance(value, list) else []


def number(value: object) -> float | None:
    """Return a finite number that may be written as text, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        real = float(value)
    except (ValueError, OverflowError):
        return None
    return real if math.isfinite(real) else None
