"""The signals of one question's trials: from their texts, their grades and what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.answers import boxed_answer, final_part
from lm_eval_bayes.rubric.loops import text_loop

#: The paper's limit of a completion, in tokens; for runs that do not say theirs.
MAX_GEN_TOKS = 32_768

#: Names of a completion's limit, in the order in which the harness looks for them.
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: Recorded numbers that a rubric of one's own may name besides the signals of the schemata.
RECORDED = ("completion_tokens", "prompt_tokens", "think_closed", "prompt_truncated")


def trial_signals(
    texts: Sequence[str],
    outcomes: Sequence[int],
    recorded: Mapping[str, Sequence[Any]],
    *,
    binary: bool = True,
    max_gen_toks: int | None = None,
    think_end_token: str | int | None = None,
) -> dict[str, list[float | None]]:
    """Compute every signal that one question's trials give.

    Parameters
    ----------
    texts : sequence of str
        The whole responses.
    outcomes : sequence of int
        Their grades.
    recorded : mapping of str to sequence
        What a recording model logged, by name, one value a trial; empty for other models.
    binary : bool
        Whether the grade says right or wrong.
    max_gen_toks : int, optional
        The run's limit of a completion (default 32,768).
    think_end_token : str, int or None
        The marker after which a box counts, besides ``</think>``.

    Returns
    -------
    dict
        Column by signal, one value a trial; None where it is not known of a single trial. A
        signal that nothing gives is absent.

    Raises
    ------
    InvalidInputError
        If texts, outcomes and recorded columns differ in length.

    Examples
    --------
    >>> found = trial_signals(
    ...     ["It is \\\\boxed{4}.", "Hm, 4?"], [1, 1],
    ...     {"completion_tokens": [8, 64], "finish_reason": ["stop", "length"]}, max_gen_toks=64,
    ... )
    >>> found["has_box"], found["token_ratio"], found["repeated_pattern"]
    ([1.0, 0.0], [0.125, 1.0], [0.0, 1.0])
    """
    for name, values in {"outcomes": outcomes, **recorded}.items():
        if len(values) != len(texts):
            rule = f"have one value a text ({len(texts)})"
            raise InvalidInputError.of(name, rule, len(values))
    boxed = [boxed_answer(final_part(text, think_end_token)) for text in texts]
    found: dict[str, list[float | None]] = {
        "outcome": [float(outcome) for outcome in outcomes],
        "has_box": [float(box is not None) for box in boxed],
        "text_loop": [float(text_loop(text)) for text in texts],
    }
    if binary:
        found["is_correct"] = list(found["outcome"])
    for name in (*RECORDED, "prompt_bpt", "completion_bpt"):
        if name in recorded:
            found[name] = [_number(value) for value in recorded[name]]
    limit = max_gen_toks or MAX_GEN_TOKS
    tokens = found.get("completion_tokens")
    if tokens is not None:
        found["token_ratio"] = [None if n is None else n / limit for n in tokens]
    if "finish_reason" in recorded:
        found["repeated_pattern"] = [
            None if reason is None else float(reason != "stop")
            for reason in recorded["finish_reason"]
        ]
    return {name: values for name, values in found.items() if any(v is not None for v in values)}


def completion_limit(generation_kwargs: object) -> int | None:
    """Return how many tokens a completion may have, by the first name that says so.

    Examples
    --------
    >>> completion_limit({"max_tokens": 512, "temperature": 0.6})
    512
    """
    if not isinstance(generation_kwargs, Mapping):
        return None
    limits = (generation_kwargs.get(name) for name in _LIMITS)
    limit = next((one for one in limits if one is not None), None)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0:
        return None
    return limit


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (bool, int, float)) else None
