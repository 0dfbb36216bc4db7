"""The backends of the harness and the sampling mixin of each that records more than text.

Backends without a mixin of their own are asked through the harness's `generate_until`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.models.interface import (
    SamplingMixin,
    TrialRequest,
    installed_versions,
)
from lm_eval_bayes.harness.models.openai.request import BACKENDS
from lm_eval_bayes.runs.model_arguments import RECORDING, backend_and_arguments, identity
from lm_eval_bayes.store.trial import Trial

#: Requests of one call where the backend chooses its batches itself (``batch_size=auto``).
_AUTO = 64
#: The setting by which a request to SGLang is told from others of a call.
_MARK = "request_of_call"
#: Requests of one call for each concurrent request of a backend that sends them to a server.
_FOR_EACH_CONCURRENT = 4


class GenericSampling(SamplingMixin):
    """A sampling mixin for any backend: calls of its `generate_until` with a batch of trials.

    A call has as many requests as the backend's batch size; 64 with ``batch_size=auto``; and at
    least four for each concurrent request of a backend with `num_concurrent`. Its trials are
    yielded when it returns, and the next call takes the next requests, whatever their trial
    numbers.

    Such a backend may not know every setting: of the token filters it gets only those that the
    task itself sets. It gets no seed for each trial.
    """

    seeded = False
    cannot_record: tuple[str, ...] = (
        *("seed", "tokens", "finish_reason", "completion_bpt", "prompt_bpt"),
    )

    def sample(
        self, requests: Iterable[TrialRequest], measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield the trials of one call after another, in the order of their requests."""
        source = iter(requests)
        # The harness's own class, which follows this one in the bases.
        generate = super().generate_until  # type: ignore[misc]
        quiet = "disable_tqdm" in inspect.signature(generate).parameters
        while batch := list(islice(source, self._requests_per_call())):
            instances = [
                _instance(request, self._marks(index)) for index, request in enumerate(batch)
            ]
            texts = generate(instances, disable_tqdm=True) if quiet else generate(instances)
            yield from zip(batch, self._trials(batch, list(map(str, texts))), strict=True)

    def _marks(self, index: int) -> dict[str, Any]:
        """Return settings by which a request of a call is told from others."""
        return {}

    def _trials(self, batch: Sequence[TrialRequest], texts: Sequence[str]) -> list[Trial]:
        """Return the trials of a call's requests and texts."""
        return [request.result(text, seed=None) for request, text in zip(batch, texts, strict=True)]

    def _requests_per_call(self) -> int:
        sizes = [getattr(self, name, None) for name in ("batch_size", "_batch_size")]
        numbers = [int(str(size)) for size in sizes if str(size).isdigit() and str(size) != "0"]
        automatic = any(str(size).startswith("auto") for size in sizes)
        size = numbers[0] if numbers else 1
        concurrent = int(getattr(self, "_concurrent", 1) or 1)
        at_once = _FOR_EACH_CONCURRENT * concurrent if concurrent > 1 else 1
        return max(_AUTO if automatic else size, at_once)

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings, which the backend applies."""
        return list(kwargs["until"])

    def fingerprint(self) -> dict[str, Any]:
        """Return the backend's name and its arguments."""
        return {"backend": self.backend_name, "arguments": identity(self.given_arguments)}


def _instance(request: TrialRequest, marks: Mapping[str, Any]) -> Instance:
    """Return a request of the harness for one trial."""
    original = request.instance
    kwargs = {**request.kwargs, **marks}
    for name in ("top_k", "min_p", "top_p"):
        if name not in original.args[1]:
            kwargs.pop(name, None)
    return new_instance(
        original.doc, (request.context, kwargs, *original.args[2:]), original=original
    )


class SGLangSampling(GenericSampling):
    """SGLang in this process, whose engine reports tokens and finish reasons.

    The harness's class passes on the texts alone. It hands the settings of each request to the
    engine, so a mark among them says which request an output answers. SGLang reads a seed per
    request only with ``enable_deterministic_inference``, and the harness's class sends none.

    Raises
    ------
    ModelConfigError
        If its random numbers would be the same for all trials of a question, or after a resume.
    """

    cannot_record = ("seed", "completion_bpt", "prompt_bpt")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if str(kwargs.get("enable_deterministic_inference", False)).lower() not in (
            "false",
            "none",
        ):
            raise ModelConfigError(
                "`enable_deterministic_inference` must be left out with backend=sglang: the "
                "harness sends SGLang no seeds, so all trials of a question would be one text; "
                "a server of SGLang with --enable-deterministic-inference reads the seeds that "
                "backend=local-completions sends",
                "unsupported",
                "enable_deterministic_inference",
                kwargs["enable_deterministic_inference"],
            )
        if kwargs.get("random_seed") is not None:
            sentence = (
                "`random_seed` must be left out with backend=sglang: a run that is resumed would "
                "draw the random numbers of its first trials again"
            )
            raise ModelConfigError(sentence, "unsupported", "random_seed", kwargs["random_seed"])
        self._outputs: dict[int, Mapping[str, Any]] = {}
        super().__init__(*args, **kwargs)

    def _marks(self, index: int) -> dict[str, Any]:
        return {_MARK: index}

    def _model_generate(
        self, requests: Any = None, generate: bool = False, sampling_params: Any = None, **more: Any
    ) -> Any:
        """Generate as the harness's class does, and keep what the engine returns."""
        marks = [params.pop(_MARK) for params in sampling_params] if generate else []
        outputs = super()._model_generate(  # type: ignore[misc]
            requests=requests, generate=generate, sampling_params=sampling_params, **more
        )
        self._outputs |= dict(zip(marks, outputs, strict=False))
        return outputs

    def _trials(self, batch: Sequence[TrialRequest], texts: Sequence[str]) -> list[Trial]:
        """Return the trials of a call's requests, with what the engine reports of each.

        Raises
        ------
        RuntimeError
            If the engine aborted an answer.
        """
        trials = []
        for index, (request, text) in enumerate(zip(batch, texts, strict=True)):
            meta = self._outputs.pop(index).get("meta_info", {})
            reason = meta.get("finish_reason") or {}
            kind = reason.get("type") if isinstance(reason, Mapping) else reason
            if kind == "abort":
                raise RuntimeError(f"SGLang aborted an answer: {reason}")
            matched = reason.get("matched") if isinstance(reason, Mapping) else None
            trials.append(
                request.result(
                    text,
                    seed=None,
                    finish_reason=kind,
                    stop_reason=matched if isinstance(matched, (str, int)) else None,
                    prompt_tokens=meta.get("prompt_tokens"),
                    completion_tokens=meta.get("completion_tokens"),
                )
            )
        return trials

    def versions(self) -> dict[str, str]:
        """Return the versions of the harness and of SGLang."""
        return installed_versions("lm_eval", "sglang")


_PACKAGE = "lm_eval_bayes.harness.models"

#: The sampling mixin of each backend that records more than text.
SAMPLING = {
    "vllm": (f"{_PACKAGE}.vllm.sampling", "VLLMSampling"),
    "hf": (f"{_PACKAGE}.hf.sampling", "HFSampling"),
    "biased_coin": (f"{_PACKAGE}.biased_coin.model", "CoinSampling"),
    "sglang": (f"{_PACKAGE}.backends", "SGLangSampling"),
    **dict.fromkeys(BACKENDS.values(), (f"{_PACKAGE}.openai.sampling", "OpenAISampling")),
}


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
        if not isinstance(backend, str) or backend in RECORDING:
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
    module, attribute = SAMPLING.get(backend, (f"{_PACKAGE}.backends", "GenericSampling"))
    mixin: type[SamplingMixin] = getattr(importlib.import_module(module), attribute)
    return mixin
