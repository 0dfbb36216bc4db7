"""What a server says of its model, and whether it honours the seeds of requests.

The second is asked before anything is sampled. Per round a server is asked for three short texts at
temperature 1: two with one seed, and one with another. A round speaks for seeds where the texts of
one seed are equal and the other is not. Numerical noise between batches may change a text in spite
of its seed, so it also does where the texts of one seed part much later than those of two seeds.
Three rounds that speak for seeds show that they are honoured, as a chance agreement does not; four
that do not, that they are ignored. All texts equal, in three rounds, is what a server with one
fixed seed gives, for which all trials of a question would be one text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import takewhile
from typing import Any

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.runs.log_fields import mapping

#: What is read of an entry of a server's list of models, which is not what changes at every start:
#: the model's name in requests, the origin of its weights and the base of an adapter (vLLM sends
#: both), the context length in tokens, and the kind of server ("vllm", "llamacpp", "openai", …).
_MODEL_FIELDS = {"id": str, "root": str, "parent": str, "max_model_len": int, "owned_by": str}

#: What llama.cpp's server reports of its file beside them: the sizes of the model.
_META_FIELDS = ("n_vocab", "n_embd", "n_params", "size")


def server_address(base_url: object) -> str:
    """Return a server's host, port and path, and nothing that may be secret.

    Raises
    ------
    ModelConfigError
        If it is not one address, or contains a password.
    """
    try:
        return check_address(base_url, "http://127.0.0.1:8000/v1/completions")
    except InvalidInputError as error:
        raise ModelConfigError(str(error), error.rule, "base_url", error.value) from None


def served_model(models: Any, name: str | None) -> dict[str, Any] | None:
    """Return the model that a server answers requests with, from its list of models.

    Parameters
    ----------
    models : object
        The JSON of the list; anything else is no list.
    name : str or None
        The model's name in the requests.

    Returns
    -------
    dict or None
        The entry of this name, else the only one; None if there are several, or none.

    Examples
    --------
    >>> served_model({"data": [{"id": "m", "created": 7, "owned_by": "vllm"}]}, "other")
    {'id': 'm', 'owned_by': 'vllm'}
    """
    entry = _entry(models, name)
    if entry is None:
        return None
    model = {
        key: entry[key] for key, kind in _MODEL_FIELDS.items() if isinstance(entry.get(key), kind)
    }
    meta = mapping(entry.get("meta"))
    sizes = {key: meta[key] for key in _META_FIELDS if isinstance(meta.get(key), int)}
    return {**model, "meta": sizes} if sizes else model


def context_length(models: Any, name: str | None) -> int | None:
    """Return the context in tokens, if the server reports it.

    vLLM and SGLang report it as ``max_model_len``, llama.cpp as that of a slot, Ray Serve LLM as
    ``max_request_context_length`` where the deployment sets ``max_model_len``.
    """
    entry = mapping(_entry(models, name))
    slot = mapping(entry.get("meta")).get("n_ctx")
    of_ray = mapping(entry.get("metadata")).get("max_request_context_length")
    lengths = (entry.get("max_model_len"), slot, of_ray)
    return next((n for n in lengths if isinstance(n, int) and n > 0), None)


def _entry(models: Any, name: str | None) -> Mapping[str, Any] | None:
    listed = mapping(models).get("data")
    entries = [
        entry
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    ]
    only = entries[0] if len(entries) == 1 else None
    return next((entry for entry in entries if entry["id"] == name), only)


def other_model(model: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the sentence that a server serves another model than it did before."""
    differing = [
        f"{name} {model.get(name)!r} and {other.get(name)!r}"
        for name in dict.fromkeys([*model, *other])
        if model.get(name) != other.get(name)
    ]
    return (
        f"the server has another model than before ({', '.join(differing)}), whose trials are not "
        "those of this run"
    )


#: The maximal number of tokens of each text.
TOKENS = 16
#: The most rounds, those that must speak for seeds, and those after which equal or empty texts are
#: a verdict.
ROUNDS, _SPEAK, _EQUAL = 6, 3, 3

#: Continued or answered in many ways, so that texts of different draws rarely agree.
PROMPTS = (
    "Write a list of random words, separated by commas:",
    "Make up the name of a town, and tell something about it:",
    "Write the first sentence of a story that nobody has told:",
)

#: In a round without equal texts those of one seed must agree for more than this many times the
#: characters that those of two seeds share, and so many of them more: texts often begin alike, with
#: a line break or a quote.
_TIMES_AS_LONG, _LIKE_BEGINNING = 3, 2


class Verdict(Enum):
    """What the check of a server's seeds found."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    ONE_TEXT = "one text"
    UNKNOWN = "unknown"


def check_seeds(text_of: Callable[[str, int], str], seed: int) -> Verdict:
    """Ask a server for texts, and return whether it honours seeds.

    Parameters
    ----------
    text_of : callable
        Returns the server's text for a prompt and a seed.
    seed : int
        The seeds are `seed`, `seed` + 1, and so on.

    Returns
    -------
    Verdict
        UNKNOWN if the server gives empty texts.

    Examples
    --------
    >>> from random import Random
    >>> check_seeds(lambda prompt, seed: str(Random(seed).random()), 1).value
    'honoured'
    >>> check_seeds(lambda prompt, seed: str(Random().random()), 1).value
    'ignored'
    """
    rounds: list[tuple[str, str, str]] = []
    for number in range(ROUNDS):
        prompt, own = PROMPTS[number % len(PROMPTS)], seed + 2 * number
        first, again, other = (text_of(prompt, s) for s in (own, own, own + 1))
        rounds.append((first, again, other))
        verdict = verdict_of(rounds)
        if verdict is not None:
            return verdict
    return Verdict.UNKNOWN


def verdict_of(rounds: Sequence[tuple[str, str, str]]) -> Verdict | None:
    """Judge the rounds so far; None if they do not suffice.

    Parameters
    ----------
    rounds : sequence of (str, str, str)
        The first and the second text of one seed, and the text of another.

    Examples
    --------
    >>> verdict_of([("oak, red", "ash, sky", "oak, sea")] * 4).value
    'ignored'
    >>> verdict_of([("oak, red, sky", "oak, red, sea", "ash, tin, fog")] * 3).value
    'honoured'
    >>> verdict_of([('"Oak, red', '"Oak, sky', '"ash, tin')] * 4).value
    'ignored'
    >>> verdict_of([("oak", "oak", "oak")] * 3).value
    'one text'
    """
    texts = [round_ for round_ in rounds if any(round_)]
    differing = [round_ for round_ in texts if len(set(round_)) > 1]
    honoured = sum(_speaks_for_seeds(*round_) for round_ in differing)
    if honoured == _SPEAK:
        return Verdict.HONOURED
    if len(differing) - honoured > ROUNDS - _SPEAK:
        return Verdict.IGNORED
    if not differing and len(rounds) >= _EQUAL:
        return Verdict.ONE_TEXT if texts else Verdict.UNKNOWN
    if len(rounds) < ROUNDS:
        return None
    return Verdict.HONOURED if honoured == len(differing) else Verdict.IGNORED


def _speaks_for_seeds(first: str, again: str, other: str) -> bool:
    """Return whether the texts of one seed agree, or part much later than those of two seeds."""
    by_chance = _TIMES_AS_LONG * (_common(first, other) + _LIKE_BEGINNING)
    return first == again != other or _common(first, again) > by_chance


def _common(first: str, second: str) -> int:
    """Return the number of characters at the start that two texts share."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
