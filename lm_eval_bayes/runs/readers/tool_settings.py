"""Which settings of a model's calls, in the logs of other tools, distinguish runs of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval_bayes.runs.readers.json_files import name_of

#: The names of settings in the logs; keys, addresses and headers are never among them.
_SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_new_tokens"),
    *("max_completion_tokens", "tokens_to_generate", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "reasoning_effort", "do_sample"),
)


def call_settings(arguments: object) -> dict[str, Any]:
    """Return the generation settings among the arguments of a model's calls.

    Examples
    --------
    >>> call_settings({"temperature": 0.6, "api_key": "x", "top_p": None, "max_tokens": 512})
    {'temperature': 0.6, 'max_tokens': 512}
    """
    if not isinstance(arguments, Mapping):
        return {}
    return {
        key: arguments[key]
        for key in _SETTINGS
        if isinstance(arguments.get(key), bool) or name_of(arguments.get(key))
    }
