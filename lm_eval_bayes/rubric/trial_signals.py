"""The signals of one question's trials, from their texts, grades and recorded measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.answers import boxed_answer, final_part

#: The paper's limit of a completion, in tokens, for runs that do not record theirs.
MAX_GEN_TOKS = 32_768

#: Names of a completion's limit, in the order in which the harness looks for them.
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: Recorded numbers that a custom rubric may name besides the signals of the schemata.
RECORDED = ("completion_tokens", "prompt_tokens", "think_closed", "prompt_truncated")

#: The longest repeated pattern that is looked for, in characters.
_LONGEST_PATTERN = 1500
#: The least number of copies at the end, and the least characters of all copies.
_LEAST_COPIES = 4
_LEAST_CHARACTERS = 120


def trial_signals(
    texts: Sequence[str],
    outcomes: Sequence[int],
    recorded: Mapping[str, Sequence[Any]],
    *,
    binary: bool = True,
    max_gen_toks: int | None = None,
    think_end_token: str | int | None = None,
) -> dict[str, list[float | None]]:
    """Compute the signals of one question's trials.

    Parameters
    ----------
    texts : sequence of str
        The whole responses.
    outcomes : sequence of int
        Their grades.
    recorded : mapping of str to sequence
        What a recording model logged: by name, one value per trial; empty for other models.
    binary : bool
        Whether the grade says right or wrong.
    max_gen_toks : int, optional
        The run's limit of a completion (default 32,768).
    think_end_token : str, int or None
        The marker after which a box counts, besides ``</think>``.

    Returns
    -------
    dict
        One column per signal with one value per trial; None where a trial lacks it. A signal
        that no trial has is absent.

    Raises
    ------
    InvalidInputError
        If texts, outcomes and recorded columns differ in length.

    Examples
    --------
    >>> signals = trial_signals(
    ...     ["It is \\\\boxed{4}.", "Hm, 4?"], [1, 1],
    ...     {"completion_tokens": [8, 64], "finish_reason": ["stop", "length"]}, max_gen_toks=64,
    ... )
    >>> signals["has_box"], signals["token_ratio"], signals["repeated_pattern"]
    ([1.0, 0.0], [0.125, 1.0], [0.0, 1.0])
    """
    for name, values in {"outcomes": outcomes, **recorded}.items():
        if len(values) != len(texts):
            rule = f"have one value per text ({len(texts)})"
            raise InvalidInputError.of(name, rule, len(values))
    boxed = [boxed_answer(final_part(text, think_end_token)) for text in texts]
    signals: dict[str, list[float | None]] = {
        "outcome": [float(outcome) for outcome in outcomes],
        "has_box": [float(box is not None) for box in boxed],
        "text_loop": [float(text_loop(text)) for text in texts],
    }
    if binary:
        signals["is_correct"] = list(signals["outcome"])
    for name in (*RECORDED, "prompt_bpt", "completion_bpt"):
        if name in recorded:
            signals[name] = [_number(value) for value in recorded[name]]
    limit = max_gen_toks or MAX_GEN_TOKS
    tokens = signals.get("completion_tokens")
    if tokens is not None:
        signals["token_ratio"] = [None if n is None else n / limit for n in tokens]
    if "finish_reason" in recorded:
        signals["repeated_pattern"] = [
            None if reason is None else float(reason != "stop")
            for reason in recorded["finish_reason"]
        ]
    return {name: values for name, values in signals.items() if any(v is not None for v in values)}


def text_loop(text: str) -> bool:
    """Return whether a text ends in one pattern, repeated.

    The last characters are a loop if they consist of at least four copies of one pattern of up
    to 1,500 characters, the last of them perhaps cut off, and are at least 120 characters long.
    It takes time linear in the last 6,000 characters.

    Parameters
    ----------
    text : str
        The whole response.

    Returns
    -------
    bool

    Examples
    --------
    >>> text_loop("So x = 3. " + "Wait, let me check again. " * 20 + "Wait, le")
    True
    >>> text_loop("So x = 3. Wait, let me check again. The answer is 3.")
    False
    """
    # Reversed, a loop is a prefix that occurs again one period later. Whatever the period, at least
    # three quarters of the least length do, so that only these places have to be compared.
    end = text.rstrip()[::-1][: _LONGEST_PATTERN * _LEAST_COPIES]
    prefix = end[: _LEAST_CHARACTERS * (_LEAST_COPIES - 1) // _LEAST_COPIES]
    period = end.find(prefix, 1)
    while 0 < period <= _LONGEST_PATTERN:
        length = max(_LEAST_COPIES * period, _LEAST_CHARACTERS) - period
        if period + length <= len(end) and end.startswith(end[:length], period):
            return True
        period = end.find(prefix, period + 1)
    return False


def completion_limit(generation_kwargs: object) -> int | None:
    """Return the limit of a completion in tokens, by the first of its names that is set.

    Examples
    --------
    >>> completion_limit({"max_tokens": 512, "temperature": 0.6})
    512
    """
    if not isinstance(generation_kwargs, Mapping):
        return None
    limits = (generation_kwargs.get(name) for name in _LIMITS)
    limit = next((limit for limit in limits if limit is not None), None)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0:
        return None
    return limit


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (bool, int, float)) else None
