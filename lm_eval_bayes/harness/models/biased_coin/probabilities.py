"""The success probabilities of the simulated model: one for all, drawn, or from a file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from scipy.special import betaincinv

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import ModelConfigError

_PROMPT_HASH = re.compile(r"[0-9a-f]{64}")


def uniforms(*key: object) -> tuple[float, float, float, float]:
    """Draw four numbers in [0, 1) that depend on the key alone.

    A digest, not a generator's stream: the same key gives the same numbers in every
    process, on every rank, in any order and under any version of any library.

    Examples
    --------
    >>> uniforms("trial", 1234, "demo", "What is 7 + 5?", 0) == uniforms(
    ...     "trial", 1234, "demo", "What is 7 + 5?", 0)
    True
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    words = (int.from_bytes(digest[i : i + 8], "big") >> 11 for i in (0, 8, 16, 24))
    a, b, c, d = (word / 2**53 for word in words)
    return a, b, c, d


@dataclass(frozen=True)
class Question:
    """A question, identified by its task, position and prompt."""

    task: str
    doc_id: int | None
    prompt: str

    @property
    def id(self) -> tuple[str, str]:
        """Task and prompt, which the draws depend on."""
        return self.task, self.prompt


@dataclass(frozen=True)
class SuccessProbabilities:
    """The success probabilities of questions, and the parameters that the run's JSON records."""

    parameters: dict[str, Any]
    of: Callable[[Question], float]


def fixed_probability(value: object) -> SuccessProbabilities:
    """Return the same probability for every question."""
    p = probability_of(value, "p")
    return SuccessProbabilities({"kind": "p", "p": p}, lambda question: p)


def beta_probabilities(value: object, seed: int) -> SuccessProbabilities:
    """Return a probability per question, drawn from Beta(a, b) by inversion of a digest.

    A question's draw depends on seed, task and prompt only.

    Parameters
    ----------
    value : str or sequence
        ``a:b``, for example ``0.2:2``.
    seed : int
        The model's seed.
    """
    parts = value.split(":") if isinstance(value, str) else value
    numbers = [as_number(part) for part in parts] if isinstance(parts, (list, tuple)) else []
    if len(numbers) != 2 or not all(n is not None and 0 < n < math.inf for n in numbers):
        rule = 'be "a:b", two numbers above 0, for example beta=0.2:2 (quoted in a YAML file)'
        raise ModelConfigError.of("beta", "format", rule, value)
    a, b = numbers

    def drawn(question: Question) -> float:
        return float(betaincinv(a, b, uniforms("question", seed, *question.id)[0]))

    return SuccessProbabilities({"kind": "beta", "a": a, "b": b}, drawn)


def file_probabilities(value: object) -> SuccessProbabilities:
    """Read success probabilities from a file.

    Three forms, distinguished by the suffix:

    - ``.jsonl``: one object per line, ``{"id": 0, "p": 0.25}``;
    - ``.csv``: a header with ``id`` and ``p``, then one row per question;
    - ``.txt``: one p per line, in the order of the questions.

    An ``id`` is the question's position in the task's split, counted from 0 (``doc_id``
    in the harness's samples_*.jsonl), or the 64 hexadecimal digits of its ``prompt_hash``
    (a field of the same file). The position counts the *selected* questions where
    ``--samples`` selects some; the hash always means the same question. A third field,
    ``task``, restricts a row to one task; without it a row applies to every task of the run.
    A question is looked up by prompt hash, then by position; with its task, then without.

    Raises
    ------
    ModelConfigError
        If the file is missing or a line is malformed; the message names the line.
    """
    if not isinstance(value, (str, Path)) or not str(value):
        rule = "be the path of a .jsonl, .csv or .txt file"
        raise ModelConfigError.of("file", "type", rule, value)
    path = Path(value).expanduser()
    forms = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".txt": _list_rows}
    if path.suffix not in forms:
        raise ModelConfigError.of("file", "format", "end in .jsonl, .csv or .txt", str(value))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ModelConfigError(
            f"`file` {value} cannot be read: {reason}", "path", "file", value
        ) from error
    table: dict[tuple[str | None, int | str], float] = {}
    for line, row in forms[path.suffix](str(value), text):
        where = f"`file` {value}, line {line}"
        if set(row) - {"task"} != {"id", "p"}:
            sentence = (
                f"{where}: a row must have the fields id and p, and may have task; "
                f"got {', '.join(map(str, row)) or 'none'}"
            )
            raise ModelConfigError(sentence, "missing-column", "file", tuple(row))
        key = (_task(where, row.get("task")), _id(where, row["id"]))
        if key in table:
            sentence = f"{where}: the id {row['id']} is in an earlier line too"
            raise ModelConfigError(sentence, "duplicate", "id", row["id"])
        table[key] = probability_of(row["p"], "p", f"{where}: ")
    if not table:
        raise ModelConfigError(f"`file` {value} contains no probability", "empty", "file", value)

    def looked_up(question: Question) -> float:
        digest = sha256_text(question.prompt)
        for key in product((question.task, None), (digest, question.doc_id)):
            if key in table:
                return table[key]
        sentence = (
            f"`file` {value} has no p for question {question.doc_id} of task "
            f"{question.task} (prompt hash {digest})"
        )
        raise ModelConfigError(sentence, "missing", "file", question.doc_id)

    parameters = {"kind": "file", "file": str(value), "rows": len(table)}
    return SuccessProbabilities(parameters, looked_up)


_Rows = Iterator[tuple[int, dict[str, Any]]]


def _jsonl_rows(name: str, text: str) -> _Rows:
    for line, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", error)
            raise ModelConfigError(
                f"`file` {name}, line {line}: not JSON: {reason}", "format", "file", raw
            ) from error
        if not isinstance(row, dict):
            raise ModelConfigError(
                f"`file` {name}, line {line}: a row must be a JSON object", "type", "file", row
            )
        yield line, row


def _csv_rows(name: str, text: str) -> _Rows:
    reader = csv.DictReader(io.StringIO(text), restkey="more", strict=True, skipinitialspace=True)
    try:
        for row in reader:
            yield reader.line_num, {k: v for k, v in row.items() if v is not None}
    except csv.Error as error:
        raise ModelConfigError(
            f"`file` {name}, line {reader.reader.line_num}: {error}", "format", "file", name
        ) from error


def _list_rows(name: str, text: str) -> _Rows:
    # Blank lines at the end are harmless; elsewhere they would shift the positions.
    for line, raw in enumerate(text.rstrip().split("\n") if text.strip() else [], start=1):
        yield line, {"id": line - 1, "p": raw.strip()}


def _id(where: str, value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if _PROMPT_HASH.fullmatch(text):
        return text
    rule = "must be a question's position (0, 1, ...) or the 64 hex digits of its prompt_hash"
    raise ModelConfigError(f"{where}: id {rule}; got {value!r}", "format", "id", value)


def _task(where: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ModelConfigError(
            f"{where}: task must be a task's name; got {value!r}", "type", "task", value
        )
    return value or None


def as_number(value: object) -> float | None:
    """Return the value as a number, or None if it is not one; a bool is not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def probability_of(value: object, name: str, where: str = "") -> float:
    """Return a probability in [0, 1]; `where` and `name` are what the error calls it."""
    number = as_number(value)
    if number is None or not 0.0 <= number <= 1.0:
        sentence = f"{where}`{name}` must be a number in [0, 1]; got {value!r}"
        raise ModelConfigError(sentence, "range", name, value)
    return number
