"""The draws of the simulated model: numbers from a digest, and success probabilities."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
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


def law_of(p: object, beta: object) -> dict[str, Any]:
    """Return the distribution of questions' success probabilities, as the run's JSON records it.

    Parameters
    ----------
    p : float or None
        The same probability for every question.
    beta : str or None
        ``a:b``, for example ``0.2:2``.
    """
    if (p is None) == (beta is None):
        got = "neither" if p is None else "both"
        sentence = f"biased_coin takes one of p (p=0.6) and beta (beta=2:3); got {got}"
        raise ModelConfigError(sentence, "conflict", "p, beta", got)
    if beta is None:
        return {"kind": "p", "p": probability_of(p, "p")}
    try:
        a, b = map(float, str(beta).split(":"))
    except ValueError:
        a = b = math.nan
    if not (0 < a < math.inf and 0 < b < math.inf):
        rule = 'be "a:b", two numbers above 0, for example beta=0.2:2 (quoted in a YAML file)'
        raise ModelConfigError.of("beta", "format", rule, beta)
    return {"kind": "beta", "a": a, "b": b}


def success_probability(law: Mapping[str, Any], seed: int, task: str, prompt: str) -> float:
    """Return the success probability of a question, of Beta(a, b) by inversion of a digest."""
    if law["kind"] == "p":
        return float(law["p"])
    return float(betaincinv(law["a"], law["b"], uniforms("question", seed, task, prompt)[0]))


def probability_of(value: object, name: str) -> float:
    """Return a probability in [0, 1]; `name` is what the error calls it."""
    number = as_real(value)
    if number is None or not 0.0 <= number <= 1.0:
        raise ModelConfigError.of(name, "range", "be a number in [0, 1]", value)
    return number
