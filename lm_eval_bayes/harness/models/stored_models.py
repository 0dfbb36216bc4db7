"""What a store has of other models and settings, if it has no trial for a run to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval_bayes._util.text import join_words, plural
from lm_eval_bayes.runs.model_arguments import (
    SOURCE_OF_TOKENIZER,
    SOURCE_OF_WEIGHTS,
    keyed,
    model_name,
)
from lm_eval_bayes.store.trial_store import TrialStore

#: The most sentences about what a store has.
_SHOWN = 4


def what_is_stored(store: TrialStore, model: str, samplings: Sequence[str]) -> list[str]:
    """Return what a store has in place of the trials that a run did not find in it.

    Parameters
    ----------
    store : TrialStore
        The store.
    model : str
        The hash of the run's model.
    samplings : sequence of str
        The hashes of the settings that were asked for.

    Returns
    -------
    list of str
        A sentence for each other model or setting, the nearest first; empty for an empty store.
    """
    counts = store.trial_counts()
    if not counts:
        return []
    models, asked = store.models(), store.sampling(samplings[0])
    own = models[model]
    name = model_name(own, "")
    found: list[tuple[int, str]] = []
    for (other, sampling), n in counts.items():
        fingerprint = models.get(other, {})
        trials = plural(n, "trial")
        if other == model and sampling in samplings:
            found.append((0, f"{trials} of this model with these settings, of other prompts"))
        elif other == model:
            differing = join_words(list(_differences(store.sampling(sampling), asked)))
            found.append((1, f"{trials} of this model at {differing}"))
        elif own.get("weights") and fingerprint.get("weights") == own["weights"]:
            differing = join_words(list(_differences(keyed(fingerprint)[0], keyed(own)[0])))
            found.append((2, f"{trials} of the same weights under {differing}"))
        elif name and model_name(fingerprint, "") == name:
            places = (*SOURCE_OF_WEIGHTS, *SOURCE_OF_TOKENIZER, "commit", "host")
            differing = join_words(list(_differences(fingerprint, own, places)))
            found.append((3, f"{trials} of another model of this name, with {differing}"))
    sentences = [sentence for _, sentence in sorted(found)]
    more = len(sentences) - _SHOWN
    if more > 0:
        sentences[_SHOWN:] = [f"trials of {more} further models or settings"]
    return sentences


def _differences(
    stored: Mapping[str, Any], asked: Mapping[str, Any], left_out: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the entries that differ, with the value that was asked for."""
    for name in sorted((stored.keys() | asked.keys()) - set(left_out)):
        if stored.get(name) != asked.get(name):
            yield f"{name} {_brief(stored.get(name))} (now {_brief(asked.get(name))})"


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
