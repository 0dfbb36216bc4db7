"""The lines of a samples file, read one after the other, and what each says of its question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import InvalidInputError

#: Fields of a question's document that hold its text; without one the prompt is the question.
_QUESTION_FIELDS = ("problem", "question", "Question", "query", "goal", "sentence")

#: What a line holds besides its metrics.
NO_METRICS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash", "outcomes", "answers", "lengths", "signals"),
        *("grading_error_notes",),
    )
)

Advance = Callable[[int], None]


def logged_rows(
    file: Path, argument: str, told: list[str], advance: Advance | None = None
) -> Iterator[dict[str, Any]]:
    """Read a file of JSON objects, one a line, without holding more than a line of it.

    Parameters
    ----------
    file : Path
        The file.
    argument : str
        What to call it in an error.
    told : list of str
        Gets a sentence where the last line is cut off, as a kill leaves it.
    advance : callable, optional
        Gets the bytes of every line.

    Raises
    ------
    InvalidInputError
        If a line cannot be read, or the only one is cut off.
    """
    broken, n_rows = "", 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if broken:
                    raise _unreadable(file, argument, broken)
                if advance is not None:
                    advance(len(line))
                if line.isspace():
                    continue
                try:
                    row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except (ValueError, RecursionError) as error:
                    broken = f"line {number}: {getattr(error, 'msg', None) or error}"
                    if line.endswith(b"\n"):
                        raise _unreadable(file, argument, broken) from None
                    continue
                if not isinstance(row, dict):
                    raise _unreadable(file, argument, f"line {number} is no object")
                n_rows += 1
                yield row
    except OSError as error:
        raise _unreadable(file, argument, error.strerror or str(error)) from None
    if broken and not n_rows:
        raise _unreadable(file, argument, broken)
    if broken:
        told.append(f"{file} ends in the middle of line {number}; that line was left out")


def _unreadable(file: Path, argument: str, why: str) -> InvalidInputError:
    return InvalidInputError.of(argument, f"have a whole {file.name}", why)


def question_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of a question's document, made as the harness does where it is missing."""
    logged = row.get("doc_hash")
    if isinstance(logged, str) and logged:
        return logged
    return sha256_text(json.dumps(row.get("doc"), indent=2, ensure_ascii=False))


def asked(row: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the prompt of a question, and the generation settings that were sent with it.

    The settings are None where nothing was generated.

    Examples
    --------
    >>> asked({"arguments": {"gen_args_0": {"arg_0": "1+1=", "arg_1": {"until": []}}}})
    ('1+1=', {'until': []})
    >>> asked({"arguments": [["1+1=", " 2"], ["1+1=", " 3"]]})
    ('1+1=', None)
    """
    given = row.get("arguments")
    first: Any = None
    if isinstance(given, Mapping):
        named = given.get("gen_args_0")
        first = [named.get("arg_0"), named.get("arg_1")] if isinstance(named, Mapping) else None
    elif isinstance(given, list) and given:
        first = given[0]
    if not isinstance(first, list) or not first:
        return "", None
    prompt = first[0] if isinstance(first[0], str) else ""
    sent = first[1] if len(first) > 1 and isinstance(first[1], dict) else None
    return prompt, sent


def question_text(row: Mapping[str, Any], prompt: str) -> str:
    """Return the question as a person reads it; of a document without one, the prompt."""
    doc = row.get("doc")
    if isinstance(doc, Mapping):
        for name in _QUESTION_FIELDS:
            text = doc.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip()
    return prompt.strip()


def prompt_hash(row: Mapping[str, Any], prompt: str) -> str:
    """Return the hash of a question's prompt, "" where there is none."""
    logged = row.get("prompt_hash")
    if isinstance(logged, str):
        return logged
    return sha256_text(prompt) if prompt else ""


def texts(row: Mapping[str, Any]) -> list[str] | None:
    """Return what was generated for a question, None where it was no text."""
    found = row.get("resps")
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], list):
        return None
    return found[0] if all(isinstance(text, str) for text in found[0]) else None


def metrics(row: Mapping[str, Any]) -> list[str]:
    """Return the names of what a line logs as metrics; older harnesses do not list them."""
    listed = row.get("metrics")
    if isinstance(listed, list):
        return [name for name in listed if isinstance(name, str) and name in row]
    return [name for name in row if name not in NO_METRICS]


def right_or_wrong(value: object) -> int | None:
    """Return 0 or 1, -1 for an ungraded trial, None for any other value.

    Examples
    --------
    >>> [right_or_wrong(value) for value in (True, 0.0, None, 0.5, "1")]
    [1, 0, -1, None, None]
    """
    if value is None:
        return -1
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return int(value)
    return None
