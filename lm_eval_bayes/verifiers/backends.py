"""The choice of a judge: a server, or a model on this computer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.verifiers.judge import Judge


def judge_maker(
    verifier: str,
    hash_weights: Callable[[str], str | None],
    *,
    base_url: str | None = None,
    revision: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    batch_size: int = 8,
) -> Callable[[], Judge]:
    """Check the settings of a judge and return the function that creates it.

    Parameters
    ----------
    verifier : str
        The model: a folder, a name on the hub, or the server's name for it.
    hash_weights : callable
        Returns the hash of the weights in a folder; a model on the hub has its commit.
    base_url : str or None
        The address of a server, whose key is read from OPENAI_API_KEY.
    revision, device : str or None
        Of a local model, see `local_judge.LocalJudge`.
    max_length : int or None
        The maximal length of a prompt.
    batch_size : int
        Prompts in a batch.

    Raises
    ------
    InvalidInputError
        If a setting breaks its rule, or does not belong to a server.
    VerifierError
        By the function, if packages are missing or the model cannot be a verifier.
    """
    if not verifier.strip():
        rule = "be a folder or the name of a model"
        raise InvalidInputError.of("--verifier", "empty", rule, verifier)
    if base_url is None:

        def local() -> Judge:
            from lm_eval_bayes.verifiers.local_judge import LocalJudge

            is_folder = Path(verifier).expanduser().exists()
            return LocalJudge(
                verifier,
                revision=revision,
                weights=hash_weights(verifier) if is_folder else None,
                device=device,
                max_length=max_length,
            )

        return local
    check_address(base_url)
    for name, value in {"--device": device, "--revision": revision}.items():
        if value is not None:
            raise InvalidInputError.of(name, "conflict", "be left out with --base-url", value)
    address = base_url

    def of_server() -> Judge:
        from lm_eval_bayes.verifiers.server_judge import ServerJudge

        key = os.environ.get("OPENAI_API_KEY") or None
        return ServerJudge(verifier, address, key, max_length=max_length, batch_size=batch_size)

    return of_server
