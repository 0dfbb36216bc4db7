"""Which stored model a run continues, and what a store has of others if it has no trial to read."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lm_eval_bayes._util.hashing import model_hash
from lm_eval_bayes._util.text import join_words, plural
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.runs.model_arguments import (
    SOURCE_OF_TOKENIZER,
    SOURCE_OF_WEIGHTS,
    keyed,
    model_name,
)
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

Fingerprint: TypeAlias = Mapping[str, Any]

#: The most sentences about what a store has.
_SHOWN = 4


def find_model(fingerprint: Fingerprint, stored: Collection[str]) -> str | None:
    """Return the hash of the stored model that a fingerprint is of, None if there is none.

    Parameters
    ----------
    fingerprint : mapping
        Of the model of this run, with its source.
    stored : collection of str
        The hashes of the models in the store.
    """
    digest = model_hash(keyed(fingerprint)[0])
    return digest if digest in stored else None


def source_of(fingerprint: Fingerprint) -> dict[str, Any]:
    """Return where a model was read from, with the name of this computer; empty if unknown.

    Of a server it is its address.
    """
    _, source = keyed(fingerprint)
    here = source and "endpoint" not in source
    return {**source, "host": socket.gethostname()} if here else source


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
