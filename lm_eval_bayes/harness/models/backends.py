"""The backends of the harness and the sampling mixin of each that records more than text."""

from __future__ import annotations

import importlib

from lm_eval.api.model import LM
from lm_eval.api.registry import get_model

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.models.interface import SamplingMixin
from lm_eval_bayes.harness.models.openai.request import BACKENDS
from lm_eval_bayes.runs.model_arguments import backend_and_arguments

_PACKAGE = "lm_eval_bayes.harness.models"

#: The sampling mixin of each backend that records more than text.
SAMPLING = {
    "vllm": (f"{_PACKAGE}.vllm.sampling", "VLLMSampling"),
    "hf": (f"{_PACKAGE}.hf.sampling", "HFSampling"),
    "biased_coin": (f"{_PACKAGE}.biased_coin.model", "CoinSampling"),
    "sglang": (f"{_PACKAGE}.generic", "SGLangSampling"),
    **dict.fromkeys(BACKENDS.values(), (f"{_PACKAGE}.openai.sampling", "OpenAISampling")),
}

#: The registered names of this package's recording models.
_RECORDING = ("trials", "vllm-signals", "hf-signals")


def stock_class(backend: object) -> type[LM]:
    """Return the harness's class of a backend.

    Parameters
    ----------
    backend : str
        A name for the harness's `--model`.

    Raises
    ------
    ModelConfigError
        If the harness has no such backend.
    """
    try:
        if not isinstance(backend, str) or backend in _RECORDING:
            raise ValueError("it is none")
        return BiasedCoinLM if backend == "biased_coin" else get_model(backend)
    except (ValueError, KeyError) as error:
        sentence = (
            "`backend` must be a model of the harness, such as vllm, hf or local-completions; "
            f"got {backend!r} ({error})"
        )
        raise ModelConfigError(sentence, "choice", "backend", backend) from error


def canonical_name(backend: str) -> str:
    """Return the name of a backend of which the harness has several.

    Examples
    --------
    >>> canonical_name("huggingface"), canonical_name("vllm")
    ('hf', 'vllm')
    """
    return backend_and_arguments(backend, {})[0]


def sampling_mixin(backend: str) -> type[SamplingMixin]:
    """Return the sampling mixin of a backend.

    Examples
    --------
    >>> sampling_mixin("biased_coin").__name__, sampling_mixin("dummy").__name__
    ('CoinSampling', 'GenericSampling')
    """
    module, attribute = SAMPLING.get(backend, (f"{_PACKAGE}.generic", "GenericSampling"))
    mixin: type[SamplingMixin] = getattr(importlib.import_module(module), attribute)
    return mixin
