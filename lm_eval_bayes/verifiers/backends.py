"""The backends of judges, and the choice among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.validation import check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.verifiers.judge import Judge
from lm_eval_bayes.verifiers.local_judge import DTYPES

#: The names of the backends, see :meth:`JudgeSettings.create`.
BACKENDS = ("transformers", "vllm", "server")


@dataclass(frozen=True)
class JudgeSettings:
    """A judge that is not created yet; its settings are checked before anything is loaded.

    Attributes
    ----------
    verifier : str
        The model: a folder, a name on the hub, or the server's name for it.
    backend : {"transformers", "vllm", "server"} or None
        None for a server if `base_url` is given, vllm on a GPU if it is installed, else
        transformers.
    base_url : str or None
        The address of the server.
    revision, device : str or None
        Of a local model, see `transformers_judge.TransformersJudge`.
    dtype : {"auto", "float32", "bfloat16", "float16"}
        The numeric type of a local model's weights.
    max_length : int or None
        The maximal length of a prompt.
    batch_size : int
        Prompts in a batch.
    timeout_s : float
        Seconds that a request to a server may take.

    Raises
    ------
    InvalidInputError
        If a setting breaks its rule, or does not belong to the backend.
    """

    verifier: str
    backend: str | None = None
    base_url: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str = "auto"
    max_length: int | None = None
    batch_size: int = 8
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if not self.verifier.strip():
            rule = "be a folder or the name of a model"
            raise InvalidInputError.of("verifier", "empty", rule, self.verifier)
        if self.backend is not None:
            check_option("--backend", self.backend, BACKENDS)
        check_option("--dtype", self.dtype, DTYPES)
        if self.base_url is not None:
            check_address(self.base_url)
        if self.backend == "server" or (self.backend is None and self.base_url is not None):
            if self.base_url is None:
                raise InvalidInputError.of(
                    "--base-url", "missing", "be the address of the server", None
                )
            local = {"--device": self.device, "--revision": self.revision}
            local["--dtype"] = None if self.dtype == "auto" else self.dtype
            for name, value in local.items():
                if value is not None:
                    raise InvalidInputError.of(name, "conflict", "be left out with a server", value)
        elif self.base_url is not None:
            rule = f"be left out with --backend {self.backend}"
            raise InvalidInputError.of("--base-url", "conflict", rule, self.base_url)

    def create(self, hash_weights: Callable[[str], str | None]) -> Judge:
        """Create the judge; the key of a server is read from OPENAI_API_KEY.

        Parameters
        ----------
        hash_weights : callable
            Returns the hash of the weights in a folder; a model on the hub has its commit.

        Raises
        ------
        VerifierError
            If the backend is missing, or the model cannot be a verifier.
        """
        if self.base_url is not None:
            from lm_eval_bayes.verifiers.server_judge import ServerJudge, Transport

            key = os.environ.get("OPENAI_API_KEY") or None
            transport = Transport(self.base_url, key, self.timeout_s)
            return ServerJudge(
                self.verifier, transport, max_length=self.max_length, batch_size=self.batch_size
            )
        is_folder = Path(self.verifier).expanduser().exists()
        model: dict[str, Any] = {
            "revision": self.revision,
            "weights": hash_weights(self.verifier) if is_folder else None,
            "device": self.device,
            "dtype": self.dtype,
            "max_length": self.max_length,
        }
        if (self.backend or local_backend(self.device)) == "vllm":
            from lm_eval_bayes.verifiers.vllm_judge import VLLMJudge

            return VLLMJudge(self.verifier, batch_size=self.batch_size, **model)
        from lm_eval_bayes.verifiers.transformers_judge import TransformersJudge

        return TransformersJudge(self.verifier, **model)


def local_backend(device: str | None) -> str:
    """Return the backend of a local model: vllm on a GPU if it is installed, else transformers."""
    from lm_eval_bayes.verifiers.transformers_judge import default_device

    if find_spec("vllm") is None:
        return "transformers"
    return "vllm" if (device or default_device()).startswith("cuda") else "transformers"
