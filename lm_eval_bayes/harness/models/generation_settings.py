"""Generation settings: checked before sampling, and made explicit for every request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError

#: Names of the maximal length of a completion, in the harness's order of precedence.
LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

_TOKEN_FILTERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("top_p", lambda v: 0 < v <= 1, "be in (0, 1]"),
    ("top_k", lambda v: v != 1, "leave more than one token"),
    ("min_p", lambda v: 0 <= v < 1, "be in [0, 1)"),
)


def one_length_key(now: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """Let a length of the command line override the YAML's, whatever its name.

    The harness merges `--gen_kwargs max_new_tokens=64` beside a YAML's `max_gen_toks`
    and then uses the latter, so the user's value would be ignored.
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
    """Check that with these settings the N trials of a question are independent draws.

    Parameters
    ----------
    kwargs : mapping or None
        The task's generation settings after `--gen_kwargs`.
    n : int
        Trials per question. N = 1 may be greedy.
    task : str
        The task's name, for errors.

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
    for key, allowed, rule in _TOKEN_FILTERS:
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
    # vLLM ignores a model's generation_config.json and `hf` applies it, so it is explicit.
    checked.setdefault("top_p", 1.0)
    return checked


#: The neutral value of each token filter.
NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}


def explicit_kwargs(kwargs: Mapping[str, Any], default_length: int, task: object) -> dict[str, Any]:
    """Return generation settings without any default of a backend.

    Without a temperature some backends are greedy and others use 1.0, and some take top_k and
    top_p from the model's generation_config.json.

    Parameters
    ----------
    kwargs : mapping
        A request's generation settings.
    default_length : int
        The backend's default of max_gen_toks.
    task : object
        The task's name, for errors.

    Returns
    -------
    dict
        With do_sample, temperature, top_p, top_k (0: all), min_p, until (a list) and
        max_gen_toks; greedy is temperature 0 and neutral filters.

    Raises
    ------
    ModelConfigError
        If both `do_sample` and `temperature` are missing, or there is a `seed`.

    Examples
    --------
    >>> explicit_kwargs({"temperature": 0.6, "max_tokens": 9}, 256, "aime")
    {'temperature': 0.6, 'do_sample': True, 'top_p': 1.0, 'top_k': 0, 'min_p': 0.0, \
'until': [], 'max_gen_toks': 9}
    """
    explicit = dict(kwargs)
    sample, temperature = explicit.get("do_sample"), explicit.get("temperature")
    if sample is None and temperature is None:
        raise ModelConfigError(
            f"task {task}: its generation settings name neither `temperature` nor `do_sample`, and "
            "backends differ in what that means; add one to generation_kwargs or --gen_kwargs"
        )
    if explicit.get("seed") is not None:
        raise ModelConfigError(
            f"task {task}: `seed` must not be a generation setting, or all trials would be one; "
            f"got {explicit['seed']!r} (pass --model_args seed=... for other seeds of all trials)"
        )
    explicit.pop("seed", None)
    if temperature is None:
        temperature = 1.0 if sample else 0.0
    if sample is False or float(temperature) == 0.0:
        explicit |= {"temperature": 0.0, "do_sample": False, **NEUTRAL}
    else:
        explicit |= {"temperature": float(temperature), "do_sample": True}
        for name, neutral in NEUTRAL.items():
            value = explicit.get(name)
            explicit[name] = neutral if value is None or (name == "top_k" and value <= 0) else value
    until = explicit.get("until")
    explicit["until"] = [until] if isinstance(until, str) else list(until or [])
    lengths = [explicit.pop(name, None) for name in LENGTH_KEYS]
    explicit["max_gen_toks"] = int(next((n for n in lengths if n is not None), default_length))
    return explicit


def sampling_key(kwargs: Mapping[str, Any], stops_sent: list[str]) -> dict[str, Any]:
    """Return the settings that the raw text's distribution depends on, for the store's key.

    Of the stop strings these are the ones that the engine gets; others are applied when the
    text is read.
    """
    return {
        **{name: value for name, value in kwargs.items() if name not in ("until", "do_sample")},
        "stops": sorted(set(stops_sent)),
    }
