"""Whether two fingerprints that bear one name mean the same weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.store.errors import OtherWeightsError

#: The entries of a fingerprint that together say where weights come from.
NAME_OF_WEIGHTS = ("pretrained", "revision", "subfolder", "gguf_file", "peft", "delta")

#: The entry that says what they are: a hash of the files or a commit of the hub.
WEIGHTS = "weights"


def check_weights(
    fingerprint: Mapping[str, object],
    known: Iterable[Mapping[str, object]],
    path: str | PathLike[str],
) -> None:
    """Refuse a fingerprint if a known one has other weights under the same name.

    Parameters
    ----------
    fingerprint : mapping
        The model to be used.
    known : iterable of mapping
        The models of the store.
    path : path
        The store, for the message.

    Raises
    ------
    OtherWeightsError
        If name and weights are told by both, and only the weights differ.

    Examples
    --------
    >>> stored = {"pretrained": "mine", "weights": "sha256:aa"}
    >>> check_weights({"pretrained": "mine", "weights": "sha256:aa"}, [stored], "a.sqlite")
    >>> try:
    ...     check_weights({"pretrained": "mine", "weights": "sha256:bb"}, [stored], "a.sqlite")
    ... except OtherWeightsError as error:
    ...     print(str(error).partition(";")[0])
    a.sqlite holds trials of other weights under the name mine: sha256:aa there, sha256:bb now
    """
    name, weights = _name(fingerprint), fingerprint.get(WEIGHTS)
    if name is None or weights is None:
        return
    for other in known:
        stored = other.get(WEIGHTS)
        if _name(other) == name and stored is not None and stored != weights:
            raise OtherWeightsError(
                f"{path} holds trials of other weights under the name "
                f"{fingerprint['pretrained']}: {stored} there, {weights} now; use another store, "
                "or give the model another name"
            )


def _name(fingerprint: Mapping[str, object]) -> str | None:
    if fingerprint.get("pretrained") is None:
        return None
    return canonical_json({key: fingerprint.get(key) for key in NAME_OF_WEIGHTS}, "fingerprint")
