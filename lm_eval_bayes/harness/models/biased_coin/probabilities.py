"""The success probabilities of the simulated model: one for all, drawn, or from a file."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
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
    """Read success probabilities from a file of JSON lines, ``{"id": 0, "p": 0.25}``.

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
    if not isinstance(value, (str, Path)) or Path(value).suffix != ".jsonl":
        raise ModelConfigError.of("file", "format", "be the path of a .jsonl file", value)
    try:
        text = Path(value).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ModelConfigError(
            f"`file` {value} cannot be read: {reason}", "path", "file", value
        ) from error
    table: dict[tuple[str | None, int | str], float] = {}
    for line, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        where = f"`file` {value}, line {line}"
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or set(row) - {"task"} != {"id", "p"}:
            sentence = f'{where}: must be {{"id": …, "p": …}} and may have "task"; got {raw[:60]!r}'
            raise ModelConfigError(sentence, "format", "file", raw)
        key = _key(where, row.get("task"), row["id"])
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


def _key(where: str, task: object, id: object) -> tuple[str | None, int | str]:
    if task is not None and not isinstance(task, str):
        sentence = f"{where}: task must be a task's name; got {task!r}"
        raise ModelConfigError(sentence, "type", "task", task)
    if isinstance(id, str) and _PROMPT_HASH.fullmatch(id):
        return task, id
    if isinstance(id, bool) or not isinstance(id, int) or id < 0:
        rule = "must be a question's position (0, 1, ...) or the 64 hex digits of its prompt_hash"
        raise ModelConfigError(f"{where}: id {rule}; got {id!r}", "format", "id", id)
    return task, id


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
