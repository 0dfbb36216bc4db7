"""Generation settings: checked before sampling, and made explicit for every request.

The harness truncates the prompt if prompt and completion do not fit into the model's context
window, so the length of completions is lowered before.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

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
    given = [k for k in LENGTH_KEYS if k in now]
    if not given:
        return dict(now)
    new = [k for k in given if k not in original or original[k] != now[k]]
    key = (new or given)[0]
    length = now[key]
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise TaskConfigError.of(key, "range", "be a whole number of tokens >= 1", length)
    return {k: v for k, v in now.items() if k not in given} | {"max_gen_toks": length}


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
        sentence = (
            f"{ask}: `do_sample` must be true; got {checked.get('do_sample')!r} "
            "(set `--gen_kwargs do_sample=True,temperature=0.6`, or bayes_n to 1)"
        )
        raise TaskConfigError(sentence, "conflict", "do_sample", checked.get("do_sample"))
    temperature = checked.get("temperature")
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        sentence = f"{ask}: `temperature` must be a number above 0; got {temperature!r}"
        raise TaskConfigError(sentence, "range", "temperature", temperature)
    if not 0 < temperature < math.inf:
        sentence = (
            f"{ask}: `temperature` must be above 0 and finite; got {temperature!r} "
            "(at 0 all N answers to a question are one answer)"
        )
        raise TaskConfigError(sentence, "range", "temperature", temperature)
    for key, allowed, rule in _TOKEN_FILTERS:
        value = checked.get(key)
        if value is not None and not (isinstance(value, (int, float)) and allowed(value)):
            sentence = (
                f"{ask}: `{key}` must {rule}; got {value!r} "
                "(if one token is left to choose from, all N answers to a question are one answer)"
            )
            raise TaskConfigError(sentence, "range", key, value)
    if checked.get("seed") is not None:
        sentence = (
            f"{ask}: `seed` must be left out of the generation settings; got {checked['seed']!r} "
            "(one seed for all trials of a question gives one answer N times; "
            "API backends get a seed for each trial, derived from the model argument `seed`)"
        )
        raise TaskConfigError(sentence, "conflict", "seed", checked["seed"])
    checked.pop("seed", None)
    # vLLM ignores a model's generation_config.json and `hf` applies it, so it is explicit.
    checked.setdefault("top_p", 1.0)
    return checked


#: The value of each token filter at which it has no effect.
NO_FILTERS = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}


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
        sentence = (
            f"task {task}: its generation settings name neither `temperature` nor `do_sample`, and "
            "backends differ in what that means; add one to generation_kwargs or --gen_kwargs"
        )
        raise ModelConfigError(sentence, "missing", "temperature")
    if explicit.get("seed") is not None:
        sentence = (
            f"task {task}: `seed` must not be a generation setting, or all trials would be one; "
            f"got {explicit['seed']!r} (pass --model_args seed=... for other seeds of all trials)"
        )
        raise ModelConfigError(sentence, "conflict", "seed", explicit["seed"])
    explicit.pop("seed", None)
    if temperature is None:
        temperature = 1.0 if sample else 0.0
    if sample is False or float(temperature) == 0.0:
        explicit |= {"temperature": 0.0, "do_sample": False, **NO_FILTERS}
    else:
        explicit |= {"temperature": float(temperature), "do_sample": True}
        for name, neutral in NO_FILTERS.items():
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


# -- a model's generation_config.json ------------------------------------------------------------

#: Settings of transformers' `generate` with the values at which they have no effect.
NEUTRAL_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "top_h": (),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "length_penalty": (1,),
    "num_return_sequences": (1,),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "penalty_alpha": (0,),
    "use_cache": (True,),
    "renormalize_logits": (True, False),
    "remove_invalid_values": (False,),
    "exponential_decay_length_penalty": (),
    "bad_words_ids": (),
    "suppress_tokens": (),
    "begin_suppress_tokens": (),
    "sequence_bias": (),
}


def is_neutral(name: str, value: Any) -> bool:
    """Return whether a setting of transformers' `generate` has no effect.

    Examples
    --------
    >>> is_neutral("repetition_penalty", 1.0), is_neutral("repetition_penalty", 1.1)
    (True, False)
    """
    if name not in NEUTRAL_SETTINGS:
        return False
    return value is None or value in NEUTRAL_SETTINGS[name]


def not_applied(generation_config: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a generation_config.json that change nothing in this run.

    Parameters
    ----------
    generation_config : mapping
        The settings that differ from those of transformers.
    kwargs : mapping
        The generation settings of the task, which take precedence.

    Examples
    --------
    >>> not_applied({"temperature": 0.6, "top_k": 20, "typical_p": 0.9}, {"typical_p": 0.8})
    {'top_k': 20}
    """
    ignored = {}
    for name, value in generation_config.items():
        if name in ("top_k", "min_p"):  # a task sets temperature and top_p itself
            neutral = NO_FILTERS[name]
            matters = value not in (None, neutral, kwargs.get(name, neutral))
        else:
            matters = name in NEUTRAL_SETTINGS and name != "use_cache" and name not in kwargs
            matters = matters and not is_neutral(name, value)
        if matters:
            ignored[name] = value
    return ignored


# -- room for the prompt -------------------------------------------------------------------------

#: The backends' default of max_gen_toks.
DEFAULT_MAX_GEN_TOKS = 256

_CONFIG_KEYS = ("n_positions", "max_position_embeddings", "n_ctx")


@dataclass(frozen=True)
class ContextWindow:
    """A model's context length in tokens, and its source."""

    tokens: int
    source: str


def context_window(metadata: Mapping[str, Any]) -> ContextWindow | None:
    """Find the model's context length from its arguments or its local configuration.

    Parameters
    ----------
    metadata : mapping
        A task's metadata; the harness merges the model's arguments into it.

    Returns
    -------
    ContextWindow or None
        None if neither has it.
    """
    for key in ("max_model_len", "max_length"):
        value = metadata.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            # An API backend reserves one token of its max_length.
            spare = 1 if "base_url" in metadata else 0
            return ContextWindow(value - spare, f"{key}={value}")
    config = _local_config(metadata)
    nested = config.get("text_config")
    for source in (nested if isinstance(nested, dict) else {}, config):
        for key in _CONFIG_KEYS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return ContextWindow(value, f"{key}={value} in the model's config.json")
    return None


def _local_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    name = metadata.get("pretrained")
    if not isinstance(name, str) or "base_url" in metadata:
        return {}
    path: Any = os.path.join(name, "config.json")
    try:
        if not os.path.isfile(path):
            from huggingface_hub import try_to_load_from_cache

            revision = metadata.get("revision")
            path = try_to_load_from_cache(
                name, "config.json", revision=revision if isinstance(revision, str) else None
            )
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, TypeError, ValueError):  # not a hub id, not a cached file, or not JSON
        return {}
    return config if isinstance(config, dict) else {}


def longest_prompt(prompts: Sequence[str], metadata: Mapping[str, Any]) -> tuple[int, bool]:
    """Count the tokens of the longest prompt.

    Returns
    -------
    (int, bool)
        The count and whether it is exact. Without the model's tokenizer the count is
        the number of bytes, which no tokenizer exceeds by more than a start token.
    """
    tokenizer = _tokenizer(metadata)
    if tokenizer is not None:
        try:
            return max(len(tokenizer(p).input_ids) for p in prompts) + 1, True
        except Exception:  # an unusual tokenizer: use the bound
            log.debug("the tokenizer could not count a prompt", exc_info=True)
    return max(len(p.encode("utf-8", "surrogatepass")) for p in prompts) + 2, False


def _tokenizer(metadata: Mapping[str, Any]) -> Any:
    # Only if the backend has imported transformers and downloaded the files.
    transformers = sys.modules.get("transformers")
    name = metadata.get("tokenizer") or metadata.get("pretrained")
    if transformers is None or not isinstance(name, str):
        return None
    revision = metadata.get("tokenizer_revision") or metadata.get("revision")
    try:
        return transformers.AutoTokenizer.from_pretrained(
            name,
            revision=revision if isinstance(revision, str) else "main",
            local_files_only=True,
            trust_remote_code=metadata.get("trust_remote_code") is True,
        )
    except Exception:
        return None


def fit_generation(
    kwargs: dict[str, Any],
    prompts: Sequence[str],
    metadata: Mapping[str, Any],
    task: str,
    is_checked: bool = False,
) -> dict[str, Any]:
    """Lower `max_gen_toks` so that the longest prompt fits, and log a warning.

    Parameters
    ----------
    kwargs : dict
        The generation settings.
    prompts : sequence of str
        The prompts of all questions.
    metadata : mapping
        A task's metadata; the harness merges the model's arguments into it.
    task : str
        The task's name.
    is_checked : bool
        Whether the model refuses requests that do not fit, so that a length that is unknown here
        needs no warning.

    Returns
    -------
    dict
        The generation settings, with `max_gen_toks` lowered if necessary.

    Raises
    ------
    TaskConfigError
        If the longest prompt alone fills the context.
    """
    wanted = kwargs.get("max_gen_toks", DEFAULT_MAX_GEN_TOKS)
    window = context_window(metadata)
    if window is None:
        names = ("pretrained", "base_url", "model")
        if not is_checked and any(key in metadata for key in names):
            log.warning(
                "%s: the model's context length is unknown to the task. If prompt and "
                "max_gen_toks=%d do not fit, the backend truncates the PROMPT and the answers mean "
                "nothing. Pass it in --model_args: max_model_len=... (vllm) or max_length=... "
                "(hf and API backends).",
                task,
                wanted,
            )
        return kwargs
    longest, exact = longest_prompt(prompts, metadata)
    about = f"{longest} tokens" if exact else f"at most {longest} tokens (counted as bytes)"
    room = window.tokens - longest
    if wanted <= room:
        return kwargs
    if room < 1:
        sentence = (
            f"task {task}: the longest prompt has {about}, which leaves no room to generate in a "
            f"context of {window.tokens} ({window.source}); use a larger context"
        )
        raise TaskConfigError(sentence, "range", "max_length", window.tokens)
    log.warning(
        "%s: max_gen_toks lowered from %d to %d, so that the longest prompt (%s) fits in "
        "the context of %d tokens (%s). Answers may be cut short; a larger context avoids it.",
        task,
        wanted,
        room,
        about,
        window.tokens,
        window.source,
    )
    return {**kwargs, "max_gen_toks": room}
