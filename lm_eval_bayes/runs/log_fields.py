"""The fields of one line of a samples file, as every version of the harness writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes._util.text import join_words, one_line

#: Fields of a document that hold the text of the question.
QUESTION_FIELDS = ("problem", "question", "Question", "query", "goal", "sentence")

#: Fields that an error names, and the longest text of one that may be the name of a cluster.
_MOST_FIELDS, _LONGEST_LABEL = 12, 80


def document_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of the document of a question, computed as by the harness if missing."""
    logged = row.get("doc_hash")
    if isinstance(logged, str) and logged:
        return logged
    return sha256_text(json.dumps(row.get("doc"), indent=2, ensure_ascii=False))


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


def field_names(documents: Iterable[object]) -> Iterator[str]:
    """Yield the fields of documents that may name clusters: short texts of one line, and numbers.

    Examples
    --------
    >>> list(field_names([{"contest": "I", "tags": ["a"]}, {"contest": "I", "year": 2025}]))
    ['contest', 'contest', 'year']
    """
    for doc in documents:
        for name in doc if isinstance(doc, Mapping) else ():
            label = cluster_label(doc, name) or ""
            if 0 < len(label) <= _LONGEST_LABEL and "\n" not in label and isinstance(name, str):
                yield one_line(name, 40)


def fields_in_words(fields: Iterable[str]) -> str:
    """Return the names of fields as a choice, the first of many.

    Examples
    --------
    >>> fields_in_words(["contest", "contest", "year"]), fields_in_words([])
    ('contest or year', '')
    """
    names = list(dict.fromkeys(name for name in fields if name))
    if len(names) > _MOST_FIELDS:
        return ", ".join([*names[:_MOST_FIELDS], "…"])
    return join_words(names, "or")


def prompt_and_settings(row: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the prompt of a question, and the generation settings that were sent with it.

    The settings are None where nothing was generated.

    Examples
    --------
    >>> named = {"gen_args_0": {"arg_0": "1+1=", "arg_1": {"until": []}}}
    >>> prompt_and_settings({"arguments": named})
    ('1+1=', {'until': []})
    >>> prompt_and_settings({"arguments": [["1+1=", " 2"], ["1+1=", " 3"]]})
    ('1+1=', None)
    """
    arguments = row.get("arguments")
    first: Any = None
    if isinstance(arguments, Mapping):
        named = arguments.get("gen_args_0")
        first = [named.get("arg_0"), named.get("arg_1")] if isinstance(named, Mapping) else None
    elif isinstance(arguments, list) and arguments:
        first = arguments[0]
    if not isinstance(first, list) or not first:
        return "", None
    prompt = first[0] if isinstance(first[0], str) else ""
    sent = first[1] if len(first) > 1 and isinstance(first[1], dict) else None
    return prompt, sent


def question_text(
    row: Mapping[str, Any], prompt: str, names: Sequence[str] = QUESTION_FIELDS
) -> str:
    """Return the text of the question; of a document without these fields, the prompt."""
    doc = row.get("doc")
    if isinstance(doc, Mapping):
        for name in names:
            text = doc.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip()
    return prompt.strip()


def prompt_hash(row: Mapping[str, Any], prompt: str) -> str:
    """Return the hash of the prompt of a question, "" where there is none."""
    logged = row.get("prompt_hash")
    if isinstance(logged, str):
        return logged
    return sha256_text(prompt) if prompt else ""


def generated_texts(row: Mapping[str, Any]) -> list[str] | None:
    """Return the texts that were generated for a question, None where there are none."""
    responses = row.get("resps")
    if (
        not isinstance(responses, list)
        or len(responses) != 1
        or not isinstance(responses[0], list)
        or not all(isinstance(text, str) for text in responses[0])
    ):
        return None
    return responses[0]


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
