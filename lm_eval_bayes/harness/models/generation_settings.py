"""Generation settings that make repeated trials worth something, checked before sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_bayes.errors import TaskConfigError

#: Names for the length of a generation, in the harness's order of precedence.
LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

_FILTERS_OF_TOKENS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("top_p", lambda v: 0 < v <= 1, "be in (0, 1]"),
    ("top_k", lambda v: v != 1, "leave more than one token"),
    ("min_p", lambda v: 0 <= v < 1, "be in [0, 1)"),
)


def one_length_key(now: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """Let a length given on the command line win over the YAML's, whatever its name.

    The harness merges `--gen_kwargs max_new_tokens=64` beside a YAML's `max_gen_toks`
    and then uses the latter, so the user's wish would be dropped.
    """
    kwargs = dict(now)
    given = [k for k in LENGTH_KEYS if k in kwargs]
    new = [k for k in given if k not in original or original[k] != kwargs[k]]
    winner = (new or given)[:1]
    if not winner:
        return kwargs
    length = kwargs[winner[0]]
    for key in given:
        del kwargs[key]
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise TaskConfigError(
            f"`{winner[0]}` must be a whole number of tokens >= 1; got {length!r}"
        )
    kwargs["max_gen_toks"] = length
    return kwargs


def checked_generation_kwargs(
    kwargs: Mapping[str, Any] | None, n: int, task: str
) -> dict[str, Any]:
    """Refuse settings under which the N trials of a question would not be independent draws.

    Parameters
    ----------
    kwargs : mapping or None
        The task's generation settings after `--gen_kwargs`.
    n : int
        Trials a question. Nothing is asked of N = 1, which may be greedy.
    task : str
        The task's name, for the message.

    Returns
    -------
    dict
        The settings with `top_p` and `until` made explicit.

    Raises
    ------
    TaskConfigError
        If sampling is off or a fixed seed would repeat one answer.
    """
    checked = dict(kwargs or {})
    checked.setdefault("until", [])
    if n == 1:
        return checked
    ask = f"task {task} asks every question N={n} times, so its trials must be sampled"
    if checked.get("do_sample") is not True:
        raise TaskConfigError(
            f"{ask}: `do_sample` must be true; got {checked.get('do_sample')!r} "
            "(set `--gen_kwargs do_sample=True,temperature=0.6`, or bayes_n to 1)"
        )
    temperature = checked.get("temperature")
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise TaskConfigError(f"{ask}: `temperature` must be a number above 0; got {temperature!r}")
    if not 0 < temperature < math.inf:
        raise TaskConfigError(
            f"{ask}: `temperature` must be above 0 and finite; got {temperature!r} "
            "(at 0 all N answers to a question are one answer)"
        )
    for key, allowed, rule in _FILTERS_OF_TOKENS:
        value = checked.get(key)
        if value is not None and not (isinstance(value, (int, float)) and allowed(value)):
            raise TaskConfigError(
                f"{ask}: `{key}` must {rule}; got {value!r} "
                "(if one token is left to choose from, all N answers to a question are one answer)"
            )
    if checked.get("seed") is not None:
        raise TaskConfigError(
            f"{ask}: `seed` must be left out of the generation settings; got {checked['seed']!r} "
            "(one seed for all trials of a question gives one answer N times; "
            "API backends get a seed for each trial, derived from the model argument `seed`)"
        )
    checked.pop("seed", None)
    # vLLM ignores a model's generation_config.json and `hf` applies it, so say it.
    checked.setdefault("top_p", 1.0)
    return checked
