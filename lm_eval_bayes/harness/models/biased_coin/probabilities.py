"""The success probabilities of the simulated model: one for all, drawn, or from a file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.special import betaincinv

from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import ModelConfigError


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
class SuccessProbabilities:
    """The success probabilities of questions.

    Attributes
    ----------
    parameters : dict
        What the run's JSON records of them.
    of : callable
        Returns the probability of a question by task, position and prompt.
    """

    parameters: dict[str, Any]
    of: Callable[[str, int, str], float]


def fixed_probability(value: object, seed: int) -> SuccessProbabilities:
    """Return the same probability for every question."""
    p = probability_of(value, "p")
    return SuccessProbabilities({"kind": "p", "p": p}, lambda task, doc_id, prompt: p)


def beta_probabilities(value: object, seed: int) -> SuccessProbabilities:
    """Return a probability per question, drawn from Beta(a, b) by inversion of a digest.

    A question's draw depends on seed, task and prompt only.

    Parameters
    ----------
    value : str
        ``a:b``, for example ``0.2:2``.
    seed : int
        The model's seed.
    """
    try:
        a, b = map(float, str(value).split(":"))
    except ValueError:
        a = b = math.nan
    if not (0 < a < math.inf and 0 < b < math.inf):
        rule = 'be "a:b", two numbers above 0, for example beta=0.2:2 (quoted in a YAML file)'
        raise ModelConfigError.of("beta", "format", rule, value)

    def drawn(task: str, doc_id: int, prompt: str) -> float:
        return float(betaincinv(a, b, uniforms("question", seed, task, prompt)[0]))

    return SuccessProbabilities({"kind": "beta", "a": a, "b": b}, drawn)


def file_probabilities(value: object, seed: int) -> SuccessProbabilities:
    """Read success probabilities from a file of JSON lines, ``{"id": 0, "p": 0.25}``.

    An ``id`` is the question's position in the task's split, counted from 0 (``doc_id`` in the
    harness's samples_*.jsonl); where ``--samples`` selects questions, among these.

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
    table: dict[int, float] = {}
    for line, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        where = f"`file` {value}, line {line}: "
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or set(row) != {"id", "p"}:
            sentence = f'{where}must be {{"id": …, "p": …}}; got {raw[:60]!r}'
            raise ModelConfigError(sentence, "format", "file", raw)
        doc_id = row["id"]
        if isinstance(doc_id, bool) or not isinstance(doc_id, int) or doc_id < 0:
            sentence = f"{where}id must be a question's position (0, 1, ...); got {doc_id!r}"
            raise ModelConfigError(sentence, "format", "id", doc_id)
        if doc_id in table:
            sentence = f"{where}the id {doc_id} is in an earlier line too"
            raise ModelConfigError(sentence, "duplicate", "id", doc_id)
        table[doc_id] = probability_of(row["p"], "p", where)
    if not table:
        raise ModelConfigError(f"`file` {value} contains no probability", "empty", "file", value)

    def looked_up(task: str, doc_id: int, prompt: str) -> float:
        if doc_id not in table:
            sentence = f"`file` {value} has no p for question {doc_id} of task {task}"
            raise ModelConfigError(sentence, "missing", "file", doc_id)
        return table[doc_id]

    parameters = {"kind": "file", "file": str(value), "rows": len(table)}
    return SuccessProbabilities(parameters, looked_up)


def probability_of(value: object, name: str, where: str = "") -> float:
    """Return a probability in [0, 1]; `where` and `name` are what the error calls it."""
    number = as_real(value)
    if number is None or not 0.0 <= number <= 1.0:
        sentence = f"{where}`{name}` must be a number in [0, 1]; got {value!r}"
        raise ModelConfigError(sentence, "range", name, value)
    return number


#: What reads each of the model's arguments that give probabilities, from it and the seed.
PROBABILITIES: dict[str, Callable[[Any, int], SuccessProbabilities]] = {
    "p": fixed_probability,
    "beta": beta_probabilities,
    "file": file_probabilities,
}
