"""Generation settings with nothing left to a backend's own default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.generation_settings import LENGTH_KEYS

#: What keeps every token: the neutral value of each filter of tokens.
NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}


def explicit_kwargs(kwargs: Mapping[str, Any], default_length: int, task: object) -> dict[str, Any]:
    """Say everything that a backend would otherwise fill in on its own.

    Left out, a temperature means greedy in one place and 1.0 in another, and top_k and top_p
    come from the model's generation_config.json in some backends and not in others.

    Parameters
    ----------
    kwargs : mapping
        A request's generation settings.
    default_length : int
        The backend's own number of tokens, where the request says none.
    task : object
        The task's name, for messages.

    Returns
    -------
    dict
        With do_sample, temperature, top_p, top_k (0: all), min_p, until (a list) and
        max_gen_toks; greedy is temperature 0 and neutral filters.

    Raises
    ------
    ModelConfigError
        If neither `do_sample` nor `temperature` is there, or a `seed` is.

    Examples
    --------
    >>> explicit_kwargs({"temperature": 0.6, "max_tokens": 9}, 256, "aime")
    {'temperature': 0.6, 'do_sample': True, 'top_p': 1.0, 'top_k': 0, 'min_p': 0.0, \
'until': [], 'max_gen_toks': 9}
    """
    said = dict(kwargs)
    sample, temperature = said.get("do_sample"), said.get("temperature")
    if sample is None and temperature is None:
        raise ModelConfigError(
            f"task {task}: its generation settings name neither `temperature` nor `do_sample`, and "
            "backends differ in what that means; add one to generation_kwargs or --gen_kwargs"
        )
    if said.get("seed") is not None:
        raise ModelConfigError(
            f"task {task}: `seed` must not be a generation setting, or all trials would be one; "
            f"got {said['seed']!r} (pass --model_args seed=... for other seeds of all trials)"
        )
    said.pop("seed", None)
    if temperature is None:
        temperature = 1.0 if sample else 0.0
    if sample is False or float(temperature) == 0.0:
        said |= {"temperature": 0.0, "do_sample": False, **NEUTRAL}
    else:
        said |= {"temperature": float(temperature), "do_sample": True}
        for name, neutral in NEUTRAL.items():
            value = said.get(name)
            said[name] = neutral if value is None or (name == "top_k" and value <= 0) else value
    until = said.get("until")
    said["until"] = [until] if isinstance(until, str) else list(until or [])
    lengths = [said.pop(name, None) for name in LENGTH_KEYS]
    said["max_gen_toks"] = int(next((n for n in lengths if n is not None), default_length))
    return said


def sampling_key(kwargs: Mapping[str, Any], stops_sent: list[str]) -> dict[str, Any]:
    """Return what the raw text's distribution depends on, for the store's key.

    Of the stop strings it is those that the engine gets: whatever else ends a response is
    applied when it is read.
    """
    return {
        **{name: value for name, value in kwargs.items() if name not in ("until", "do_sample")},
        "stops": sorted(set(stops_sent)),
    }
