"""A transformers model whose weights are read when they are first needed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes.harness.logs import get_logger

log = get_logger(__name__)

#: Arguments with which loading does more than to read files onto one device.
_AT_ONCE = ("parallelize", "tp_plan", "peft", "delta", "gguf_file", "autogptq", "gptqmodel")


class WeightsPlaceholder:
    """Stands for a model while the harness's class is being made: it knows its configuration.

    Parameters
    ----------
    config : PretrainedConfig
        The model's configuration.
    model_class : type
        transformers' class that will load it.
    arguments : mapping
        What the harness passes to its own loading.
    """

    def __init__(self, config: Any, model_class: Any, arguments: Mapping[str, Any]) -> None:
        self.config = config
        self.arguments = dict(arguments)
        self.moved_to: Any = None
        self._class = model_class

    def to(self, device: Any) -> WeightsPlaceholder:
        """Remember where the weights are to go."""
        self.moved_to = device
        return self

    @property
    def dtype(self) -> str:
        """What the configuration says of the weights' type."""
        said = getattr(self.config, "dtype", None) or getattr(self.config, "torch_dtype", None)
        return "" if said is None else str(said)

    def num_parameters(self) -> int:
        """Count the parameters of a model of this configuration, or return -1."""
        import torch

        try:
            with torch.device("meta"):
                return int(self._class.from_config(self.config).num_parameters())
        except Exception:  # code of the model's own, or a class without this way to be made
            return -1


class LazyWeights:
    """A mixin before the harness's `HFLM`, whose loading it puts off.

    Configuration and tokenizer are read at once, so chat templates, lengths and rank work.
    With several processes, with `parallelize`, a tensor-parallel plan, an adapter, a delta or
    a quantised format of its own, and with a model that is given as an object, everything is
    loaded at once as ever.
    """

    _waits = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given = _named(super().__init__, args, kwargs)
        with self._unloaded():
            super().__init__(*args, **kwargs)

    @contextmanager
    def _unloaded(self) -> Iterator[None]:
        """Let `model` be what stands for it, without loading."""
        before, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = before

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        lm: Any = self
        if args or not self._waits or _at_once(kwargs):
            super()._create_model(*args, **kwargs)  # type: ignore[misc]
            return
        commit = getattr(lm.config, "_commit_hash", None)
        if commit and not os.path.isdir(kwargs["pretrained"]):
            # A branch of the hub may move before the weights are read; the configuration's stays.
            kwargs["revision"] = commit
        lm._model = WeightsPlaceholder(lm.config, lm.AUTO_MODEL_CLASS, kwargs)

    @property
    def weights_loaded(self) -> bool:
        """Whether the weights have been read."""
        return not isinstance(getattr(self, "_model", None), WeightsPlaceholder)

    @property
    def model(self) -> Any:
        """The model; its weights are read at the first use."""
        if not self._waits and not self.weights_loaded:
            self.load_weights()
        return super().model  # type: ignore[misc]

    @property
    def max_length(self) -> int:
        """How many tokens prompt and completion have together."""
        with self._unloaded():
            return int(super().max_length)  # type: ignore[misc]

    def load_weights(self) -> None:
        """Read the weights now, as the harness would have; nothing happens if they are there."""
        import torch

        lm: Any = self
        if self.weights_loaded:
            return
        to_come: WeightsPlaceholder = lm._model
        log.info("reading the weights of %s", to_come.arguments.get("pretrained"))
        super()._create_model(**to_come.arguments)  # type: ignore[misc]
        if isinstance(lm._model, torch.nn.Module):
            lm._model.eval()
            lm._model.tie_weights()
        if to_come.moved_to is not None:
            try:
                lm._model.to(to_come.moved_to)
            except ValueError:  # quantised weights stay where they were put
                log.debug("the model was not moved to %s", to_come.moved_to, exc_info=True)


def _at_once(arguments: Mapping[str, Any]) -> bool:
    several = int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
    return (
        several
        or not isinstance(arguments.get("pretrained"), str)
        or arguments.get("device_map") is not None
        or any(arguments.get(name) for name in _AT_ONCE)
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
