"""A transformers model before its weights are loaded: what its distribution depends on.

Its weights are loaded at the first use, so that a run whose trials are all stored loads none.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import SamplingMixin
from lm_eval_bayes.harness.models.weights import files_identity
from lm_eval_bayes.runs.model_arguments import as_json, identity

log = get_logger(__name__)

#: Arguments with which weights are loaded at once.
_EAGER = ("parallelize", "tp_plan", "peft", "delta", "gguf_file", "autogptq", "gptqmodel")


class WeightsPlaceholder:
    """Stands in for a model: has its configuration, and takes note of the device for its weights.

    Parameters
    ----------
    config : PretrainedConfig
        The model's configuration.
    arguments : mapping
        The arguments of the harness's own loading.
    """

    device: Any = None

    def __init__(self, config: Any, arguments: Mapping[str, Any]) -> None:
        self.config, self.arguments = config, arguments

    def to(self, device: Any) -> None:
        """Take note of the device."""
        self.device = device


class LazyWeights(SamplingMixin):
    """A mixin before the harness's `HFLM` that postpones loading the weights.

    Configuration and tokenizer are loaded at once, for chat templates, lengths and rank. The
    weights are loaded at once too with several processes, `parallelize`, a tensor-parallel plan,
    an adapter, a delta or a quantized format of its own; never where other processes sample.
    """

    _is_complete = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(super().__init__).bind(*args, **kwargs)
        bound.apply_defaults()
        self.given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
        self.given.pop("kwargs", None)
        super().__init__(*args, **kwargs)
        self._max_length = self.max_length  # which would ask the model
        self._is_complete = True

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        if self._is_complete or (_is_eager(kwargs) and not self.samples_elsewhere):
            super()._create_model(*args, **kwargs)  # type: ignore[misc]
            return
        commit = getattr(self.config, "_commit_hash", None)
        if commit and not os.path.isdir(kwargs["pretrained"]):
            # A branch of the hub may move before the weights are loaded; this commit does not.
            kwargs["revision"] = commit
        self._model = WeightsPlaceholder(self.config, kwargs)

    @property
    def weights_loaded(self) -> bool:
        """Whether the weights have been loaded."""
        return not isinstance(getattr(self, "_model", None), WeightsPlaceholder)

    @property
    def model(self) -> Any:
        """The model; its weights are loaded at the first use."""
        if self._is_complete:
            self.load()
        return super().model  # type: ignore[misc]

    def load(self) -> None:
        """Load the weights as the harness does, unless they are loaded."""
        if self.weights_loaded:
            return
        placeholder: WeightsPlaceholder = self._model
        log.info("loading the weights of %s", placeholder.arguments.get("pretrained"))
        self._create_model(**placeholder.arguments)
        self.model.eval()
        self.model.tie_weights()
        if placeholder.device is not None:
            try:
                self.model.to(placeholder.device)
            except ValueError:  # quantized weights stay on their device
                log.debug("the model was not moved to %s", placeholder.device, exc_info=True)


def _is_eager(arguments: Mapping[str, Any]) -> bool:
    parallel = int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
    return (
        parallel
        or arguments.get("device_map") is not None
        or any(arguments.get(name) for name in _EAGER)
    )


# -- the fingerprint -----------------------------------------------------------------------------

#: Arguments of the backend that other entries cover, or that do not change the distribution.
_COVERED = (
    *("pretrained", "backend", "revision", "subfolder", "tokenizer", "max_length", "dtype"),
    *("peft", "delta", "gguf_file", "add_bos_token", "truncation", "mixed_precision_dtype"),
    *("chat_template_args", "enable_thinking", "think_end_token", "prefix_token_id"),
    "softmax_dtype",
)


def hf_fingerprint(lm: Any, given: Mapping[str, Any], ends: Mapping[int, Any]) -> dict[str, Any]:
    """Return what a model's distribution under transformers depends on.

    Of arguments that no other entry covers, `model_arguments.identity` is included.

    Parameters
    ----------
    lm : HFLM
        The backend; its weights are not loaded.
    given : mapping
        Its arguments.
    ends : mapping
        The tokens that end a sequence.
    """
    pretrained, tokenizer = given["pretrained"], given.get("tokenizer")
    named = tokenizer is None or isinstance(tokenizer, str)
    revision, config = given.get("revision"), lm.config
    commit = getattr(config, "_commit_hash", None) or revision
    dtype = given.get("dtype")
    if dtype in (None, "auto"):
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or dtype
    quantization = getattr(config, "quantization_config", None)
    if quantization is not None and not isinstance(quantization, Mapping):
        quantization = quantization.to_dict()
    files = files_identity(
        pretrained,
        commit,
        (tokenizer, revision) if tokenizer and named else (pretrained, commit),
        [(str(given[name]), revision) for name in ("peft", "delta") if given.get(name)],
        given.get("subfolder") or None,
        given.get("gguf_file"),
    )
    if tokenizer is not None and not named:
        files["tokenizer_files"] = hash_text(repr(sorted(tokenizer.get_vocab().items())))
    template = getattr(lm.tokenizer, "chat_template", None)
    if template is not None and not isinstance(template, str):
        template = json.dumps(template, sort_keys=True)
    return {
        "backend": "hf",
        "kind": lm.backend,
        "pretrained": pretrained,
        "subfolder": given.get("subfolder") or None,
        **{n: given.get(n) for n in ("revision", "gguf_file", "peft", "delta", "add_bos_token")},
        **files,
        "dtype": _name(dtype) or "default",
        "mixed_precision": _name(given.get("mixed_precision_dtype")),
        "quantization": quantization and as_json(quantization),
        "tokenizer": tokenizer if isinstance(tokenizer, str) else None,
        "chat_template": None if template is None else hash_text(template),
        "max_length": int(lm.max_length),
        "truncation": bool(given.get("truncation")),
        "end_tokens": sorted(ends),
        "arguments": identity(
            {
                name: value
                for name, value in sorted(given.items())
                if value is not None
                and name not in _COVERED
                and not (value is False and name in ("autogptq", "gptqmodel"))
            }
        ),
    }


def _name(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def generation_config_of(config: Any, given: Mapping[str, Any]) -> Any:
    """Return the generation config of a model, without its weights.

    Parameters
    ----------
    config : PretrainedConfig
        The model's configuration, used without a generation_config.json.
    given : mapping
        The arguments of the backend.
    """
    from transformers import GenerationConfig

    pretrained = given["pretrained"]
    revision = getattr(config, "_commit_hash", None) or given.get("revision") or "main"
    try:
        return GenerationConfig.from_pretrained(
            pretrained, revision=revision, subfolder=given.get("subfolder") or ""
        )
    except (OSError, TypeError, ValueError):  # missing or invalid
        log.debug("%s has no generation_config.json", pretrained, exc_info=True)
        return GenerationConfig.from_model_config(config)


def neutral_config(config: Any) -> Any:
    """Return a generation config with nothing but the special tokens and the cache of another."""
    from transformers import GenerationConfig

    entries = config.to_diff_dict().items()
    return GenerationConfig(
        **{k: v for k, v in entries if k.endswith("_token_id") or k == "cache_implementation"}
    )


def end_tokens(generation_config: Any, tokenizer: Any) -> dict[int, int | None]:
    """Return the tokens that end a sequence, each with its stop_reason.

    The stop_reason of the tokenizer's own end of the sequence is None, that of further ones,
    such as the end of a turn, is their id.
    """
    eos = getattr(generation_config, "eos_token_id", None)
    ids = eos if isinstance(eos, (list, tuple)) else [eos]
    own = tokenizer.eos_token_id
    ends: dict[int, int | None] = {int(i): int(i) for i in ids if i is not None}
    if own is not None:
        ends[int(own)] = None
    return ends
