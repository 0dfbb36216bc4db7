"""Which settings of a model's calls, in the logs of other tools, distinguish runs of the model."""

from __future__ import annotations

from typing import Any

from lm_eval_bayes.runs.log_fields import lookup

#: The names of settings in the logs; keys, addresses and headers are never among them.
SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "do_sample", "seed"),
    *("max_tokens", "max_new_tokens", "max_completion_tokens", "max_gen_toks"),
    *("tokens_to_generate", "stop", "stop_seqs", "until"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "system_message"),
    *("reasoning_effort", "reasoning_tokens", "effort", "verbosity"),
)


def call_settings(arguments: object) -> dict[str, Any]:
    """Return the generation settings among the arguments of a model's calls.

    Examples
    --------
    >>> call_settings({"temperature": 0.6, "api_key": "x", "top_p": None, "max_tokens": 512})
    {'temperature': 0.6, 'max_tokens': 512}
    """
    given = {key: lookup(arguments, key) for key in SETTINGS}
    kinds = (int, float, str, list)
    return {k: v for k, v in given.items() if isinstance(v, kinds) and v not in ("", [])}
