"""A transformers model whose weights are loaded at the first use."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: Arguments with which weights are loaded at once.
_EAGER = ("parallelize", "tp_plan", "peft", "delta", "gguf_file", "autogptq", "gptqmodel")


class WeightsPlaceholder:
    """A placeholder for a model, with its configuration but without its weights.

    Parameters
    ----------
    config : PretrainedConfig
        The model's configuration.
    model_class : type
        transformers' class that loads it.
    arguments : mapping
        The arguments of the harness's own loading.
    """

    def __init__(self, config: Any, model_class: Any, arguments: Mapping[str, Any]) -> None:
        self.config = config
        self.arguments = dict(arguments)
        self.device: Any = None
        self._class = model_class

    def to(self, device: Any) -> WeightsPlaceholder:
        """Record the device for the weights."""
        self.device = device
        return self

    @property
    def dtype(self) -> str:
        """The type of the weights in the configuration."""
        dtype = getattr(self.config, "dtype", None) or getattr(self.config, "torch_dtype", None)
        return "" if dtype is None else str(dtype)

    def num_parameters(self) -> int:
        """Return the number of parameters of this configuration, or -1 if it is unknown."""
        import torch

        try:
            with torch.device("meta"):
                return int(self._class.from_config(self.config).num_parameters())
        except Exception:  # custom code, or a class without from_config
            return -1


class LazyWeights:
    """A mixin before the harness's `HFLM` that postpones loading the weights.

    Configuration and tokenizer are loaded at once, for chat templates, lengths and rank. The
    weights are loaded at once too with several processes, `parallelize`, a tensor-parallel plan,
    an adapter, a delta or a quantized format of its own, and with a model given as an object.
    """

    _postponed = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given = _named(super().__init__, args, kwargs)
        with self._without_loading():
            super().__init__(*args, **kwargs)

    @contextmanager
    def _without_loading(self) -> Iterator[None]:
        """Let `model` be the placeholder inside the block."""
        before, self._postponed = self._postponed, True
        try:
            yield
        finally:
            self._postponed = before

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        lm: Any = self
        if args or not self._postponed or _is_eager(kwargs):
            super()._create_model(*args, **kwargs)  # type: ignore[misc]
            return
        commit = getattr(lm.config, "_commit_hash", None)
        if commit and not os.path.isdir(kwargs["pretrained"]):
            # A branch of the hub may move before the weights are loaded; this commit does not.
            kwargs["revision"] = commit
        lm._model = WeightsPlaceholder(lm.config, lm.AUTO_MODEL_CLASS, kwargs)

    @property
    def weights_loaded(self) -> bool:
        """Whether the weights have been loaded."""
        return not isinstance(getattr(self, "_model", None), WeightsPlaceholder)

    @property
    def model(self) -> Any:
        """The model; its weights are loaded at the first use."""
        if not self._postponed and not self.weights_loaded:
            self.load_weights()
        return super().model  # type: ignore[misc]

    @property
    def max_length(self) -> int:
        """The context length in tokens."""
        with self._without_loading():
            return int(super().max_length)  # type: ignore[misc]

    def load_weights(self) -> None:
        """Load the weights as the harness does, unless they are loaded."""
        import torch

        lm: Any = self
        if self.weights_loaded:
            return
        placeholder: WeightsPlaceholder = lm._model
        log.info("loading the weights of %s", placeholder.arguments.get("pretrained"))
        super()._create_model(**placeholder.arguments)  # type: ignore[misc]
        if isinstance(lm._model, torch.nn.Module):
            lm._model.eval()
            lm._model.tie_weights()
        if placeholder.device is not None:
            try:
                lm._model.to(placeholder.device)
            except ValueError:  # quantized weights stay on their device
                log.debug("the model was not moved to %s", placeholder.device, exc_info=True)


def _is_eager(arguments: Mapping[str, Any]) -> bool:
    parallel = int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
    return (
        parallel
        or not isinstance(arguments.get("pretrained"), str)
        or arguments.get("device_map") is not None
        or any(arguments.get(name) for name in _EAGER)
    )


def _named(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name, defaults included."""
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name, {})
    return named
