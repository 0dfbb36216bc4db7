"""Which stored model a run continues, and what a store has of others if it has no trial to read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lm_eval_bayes._util.hashing import model_hash
from lm_eval_bayes._util.text import join_words, plural
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.weights import (
    earlier_identities,
    is_content,
    settings_of,
    tokenizer_of,
    weights_of,
)
from lm_eval_bayes.runs.model_arguments import (
    NAMES,
    SOURCE_OF_TOKENIZER,
    SOURCE_OF_WEIGHTS,
    flat,
    keyed,
    model_name,
    normalised,
    same_model,
)
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

Fingerprint: TypeAlias = Mapping[str, Any]

#: Entries of a fingerprint whose values earlier releases wrote in another way.
_IDENTITIES = ("weights", "settings", "tokenizer_files")

#: The most sentences about what a store has.
_SHOWN = 4


def find_model(
    fingerprint: Fingerprint,
    stored: Mapping[str, Fingerprint],
    aliases: Mapping[str, str],
    again: Callable[[], Fingerprint] | None = None,
) -> str | None:
    """Return the hash of the stored model that a fingerprint is of, None if there is none.

    Parameters
    ----------
    fingerprint : mapping
        Of the model of this run, with its source.
    stored : mapping
        The fingerprints in the store, by hash.
    aliases : mapping
        The hash of the model that each further name stands for.
    again : callable, optional
        Determines the fingerprint again. It is called if the store has models whose weights an
        earlier release identified in another way, inside
        :func:`~lm_eval_bayes.harness.models.weights.earlier_identities`.
    """
    digest = model_hash(keyed(fingerprint)[0])
    given = [digest, *(flat(fingerprint).get(name) for name in NAMES)]
    for name in given:
        if isinstance(name, str) and aliases.get(name) in stored:
            return aliases[name]
    if digest in stored:
        return digest
    same = [other for other, recorded in stored.items() if same_model(fingerprint, recorded)]
    if same:
        # Earlier releases recorded one model under every host; that of this host comes first.
        endpoint = fingerprint.get("endpoint")
        here = [other for other in same if stored[other].get("endpoint") == endpoint]
        return (here or same)[0]
    if again is None or not is_content(fingerprint.get("weights")):
        return None
    rest = _rest(fingerprint)
    candidates = {
        other: recorded
        for other, recorded in stored.items()
        if recorded.get("weights") and not is_content(recorded["weights"])
        if _rest(recorded) == rest
    }
    if candidates:
        with earlier_identities():
            earlier = again()
        for other, recorded in candidates.items():
            if same_model(earlier, recorded) or same_model(fingerprint, _by_content(recorded)):
                return other
    return None


def _rest(fingerprint: Fingerprint) -> dict[str, Any]:
    """Return a fingerprint without its source and the identities of its files."""
    as_content = {
        **normalised(fingerprint),
        **dict.fromkeys(("weights", "tokenizer_files"), "sha256:"),
    }
    return {k: v for k, v in keyed(as_content)[0].items() if k not in _IDENTITIES}


def _by_content(recorded: Fingerprint) -> dict[str, Any]:
    """Return a fingerprint with a commit of the hub as it would be recorded today."""
    kind, _, commit = str(recorded.get("weights")).partition(":")
    pretrained, tokenizer = recorded.get("pretrained"), recorded.get("tokenizer")
    if kind != "hub" or not isinstance(pretrained, str) or recorded.get("peft"):
        return dict(recorded)
    subfolder = recorded.get("subfolder")
    revision = commit if tokenizer is None else recorded.get("tokenizer_revision")
    return {
        **recorded,
        "weights": weights_of(pretrained, commit, subfolder, recorded.get("gguf_file")),
        "settings": settings_of(pretrained, commit, subfolder),
        "tokenizer_files": tokenizer_of(str(tokenizer or pretrained), revision, subfolder),
    }


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
