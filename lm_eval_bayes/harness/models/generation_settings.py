"""Generation settings: checked before sampling, and made explicit for every request.

The harness truncates the prompt if prompt and completion do not fit into the model's context
window, so the length of completions is lowered before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: Names of the maximal length of a completion, in the harness's order of precedence.
LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: What leaves more than one token to choose from.
_RULES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("temperature", lambda v: 0 < v < math.inf, "be a finite number above 0"),
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
    for key, allowed, rule in _RULES:
        value = checked.get(key)
        if value is None and key != "temperature":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not allowed(value):
            sentence = (
                f"{ask}: `{key}` must {rule}; got {value!r} "
                "(if one token is left to choose from, all N answers to a question are one answer)"
            )
            raise TaskConfigError(sentence, "range", key, value)
    # vLLM ignores a model's generation_config.json and `hf` applies it, so it is explicit.
    return {"top_p": 1.0, **_without_seed(checked, task)}


def _without_seed(kwargs: Mapping[str, Any], task: object) -> dict[str, Any]:
    """Return generation settings without a `seed` of None; refuse another one."""
    if kwargs.get("seed") is not None:
        sentence = (
            f"task {task}: `seed` must be left out of the generation settings, or all trials of a "
            f"question would be one; got {kwargs['seed']!r} (pass --model_args seed=... for other "
            "seeds of all trials)"
        )
        raise TaskConfigError(sentence, "conflict", "seed", kwargs["seed"])
    return {name: value for name, value in kwargs.items() if name != "seed"}


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
    ModelConfigError, TaskConfigError
        If both `do_sample` and `temperature` are missing, or there is a `seed`.

    Examples
    --------
    >>> explicit_kwargs({"temperature": 0.6, "max_tokens": 9}, 256, "aime")
    {'temperature': 0.6, 'do_sample': True, 'top_p': 1.0, 'top_k': 0, 'min_p': 0.0, \
'until': [], 'max_gen_toks': 9}
    """
    explicit = _without_seed(kwargs, task)
    sample, temperature = explicit.get("do_sample"), explicit.get("temperature")
    if sample is None and temperature is None:
        sentence = (
            f"task {task}: its generation settings name neither `temperature` nor `do_sample`, and "
            "backends differ in what that means; add one to generation_kwargs or --gen_kwargs"
        )
        raise ModelConfigError(sentence, "missing", "temperature")
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

#: Settings of transformers' `generate` with the values, beside None, at which they have no effect.
NEUTRAL_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("repetition_penalty", "encoder_repetition_penalty", "typical_p", "num_beams"),
            *("num_beam_groups", "length_penalty", "num_return_sequences", "guidance_scale"),
        ),
        (1,),
    ),
    **dict.fromkeys(
        (
            *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "epsilon_cutoff"),
            *("eta_cutoff", "diversity_penalty", "min_length", "min_new_tokens", "penalty_alpha"),
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            *("top_h", "exponential_decay_length_penalty", "bad_words_ids", "suppress_tokens"),
            *("begin_suppress_tokens", "sequence_bias"),
        ),
        (),
    ),
    "use_cache": (True,),
    "renormalize_logits": (True, False),
    "remove_invalid_values": (False,),
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


def context_window(model: Any, metadata: Mapping[str, Any]) -> int | None:
    """Return the context length in tokens at which the harness truncates a prompt.

    Parameters
    ----------
    model : LM or None
        The model that answers. One with a tokenizer knows its length; of others, such as a
        server, it is known where the user gives it.
    metadata : mapping
        A task's metadata; the harness merges the model's arguments into it.
    """
    is_server = hasattr(model, "base_url")
    if hasattr(model, "tokenizer") and not is_server:
        return getattr(model, "max_length", None)
    given = metadata.get("max_length")
    # an API backend reserves one token of its max_length
    return given - is_server if isinstance(given, int) and given > 0 else None


def longest_prompt(prompts: Sequence[str], tokenizer: Any) -> tuple[int, bool]:
    """Count the tokens of the longest prompt.

    Returns
    -------
    (int, bool)
        The count and whether it is exact. Without a tokenizer the count is the number of
        bytes, which no tokenizer exceeds by more than a start token.
    """
    if tokenizer is not None:
        try:
            return max(len(tokenizer(p).input_ids) for p in prompts) + 1, True
        except Exception:  # an unusual tokenizer: use the bound
            log.debug("the tokenizer could not count a prompt", exc_info=True)
    return max(len(p.encode("utf-8", "surrogatepass")) for p in prompts) + 2, False


def fit_generation(
    kwargs: dict[str, Any],
    prompts: Sequence[str],
    metadata: Mapping[str, Any],
    task: str,
    model: Any,
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
    model : LM or None
        The model that answers.

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
    window = context_window(model, metadata)
    if window is None:
        # a recording model of an API refuses requests that do not fit
        if hasattr(model, "base_url") and not getattr(model, "checks_context", False):
            log.warning(
                "%s: the model's context length is unknown to the task. If prompt and "
                "max_gen_toks=%d do not fit, the backend truncates the PROMPT and the answers mean "
                "nothing. Pass it in --model_args: max_length=...",
                task,
                wanted,
            )
        return kwargs
    longest, exact = longest_prompt(prompts, getattr(model, "tokenizer", None))
    about = f"{longest} tokens" if exact else f"at most {longest} tokens (counted as bytes)"
    room = window - longest
    if wanted <= room:
        return kwargs
    if room < 1:
        sentence = (
            f"task {task}: the longest prompt has {about}, which leaves no room to generate in a "
            f"context of {window}; use a larger context"
        )
        raise TaskConfigError(sentence, "range", "max_length", window)
    log.warning(
        "%s: max_gen_toks lowered from %d to %d, so that the longest prompt (%s) fits in "
        "the context of %d tokens. Answers may be cut short; a larger context avoids it.",
        *(task, wanted, room, about, window),
    )
    return {**kwargs, "max_gen_toks": room}
