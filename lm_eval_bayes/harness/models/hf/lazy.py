"""A transformers model before its weights are loaded: what its distribution depends on.

Its weights are loaded at the first use, so that a run whose trials are all stored loads none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import SamplingMixin
from lm_eval_bayes.harness.models.weights import files_identity
from lm_eval_bayes.runs.model_arguments import as_json, identity

log = get_logger(__name__)

#: Arguments with which the harness does more than to read the files of one commit.
_EAGER = ("device_map", "peft", "delta", "autogptq", "gptqmodel")

#: Arguments of the backend that other entries cover, or that do not change the distribution.
_COVERED = (
    *("pretrained", "backend", "revision", "subfolder", "tokenizer", "max_length", "dtype"),
    *("peft", "delta", "gguf_file", "add_bos_token", "truncation", "mixed_precision_dtype"),
    *("chat_template_args", "enable_thinking", "think_end_token", "prefix_token_id"),
    "softmax_dtype",
)


class LazyWeights(SamplingMixin):
    """A mixin before the harness's `HFLM` that postpones loading the weights.

    Configuration and tokenizer are loaded at once, for chat templates, lengths and rank. The
    weights are loaded at once too with several processes, a device map, an adapter, a delta or
    GPTQ; never where other processes sample.
    """

    #: Loads the weights, once all else is there.
    _load_weights: Callable[[], None] | None = None
    _is_complete = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from transformers import GenerationConfig

        self.given = {"revision": "main", **kwargs}
        super().__init__(*args, **kwargs)
        self._max_length = self.max_length  # which would ask the model
        self._is_complete = True
        try:
            self._generation_config = GenerationConfig.from_pretrained(
                kwargs["pretrained"], revision=self._commit, subfolder=kwargs.get("subfolder") or ""
            )
        except (OSError, TypeError, ValueError):  # missing or invalid
            log.debug("%s has no generation_config.json", kwargs["pretrained"], exc_info=True)
            self._generation_config = GenerationConfig.from_model_config(self.config)
        eos = self._generation_config.eos_token_id
        tokens = eos if isinstance(eos, (list, tuple)) else [eos]
        #: The tokens that end a sequence, each with its stop_reason: None for the tokenizer's own
        #: end, their id for others, such as the end of a turn.
        self.ends: dict[int, int | None] = {token: token for token in tokens if token is not None}
        self.ends[self.tokenizer.eos_token_id] = None

    @property
    def _commit(self) -> str:
        """The commit of the hub; else the revision, as a branch may move between two readings."""
        return getattr(self.config, "_commit_hash", None) or self.given["revision"]

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        several = int(os.environ.get("WORLD_SIZE") or 1) > 1
        if (several or any(map(kwargs.get, _EAGER))) and not self.samples_elsewhere:
            super()._create_model(*args, **kwargs)  # type: ignore[misc]
            return
        kwargs["revision"] = self._commit
        self._load_weights = partial(super()._create_model, *args, **kwargs)  # type: ignore[misc]
        # the harness would move the model to the device on which it will be loaded
        self._model = SimpleNamespace(config=self.config, to=lambda device: None)

    @property
    def weights_loaded(self) -> bool:
        """Whether the weights have been loaded."""
        return self._load_weights is None

    @property
    def model(self) -> Any:
        """The model; its weights are loaded at the first use."""
        if self._is_complete:
            self.load()
        return super().model  # type: ignore[misc]

    def load(self) -> None:
        """Load the weights as the harness does, unless they are loaded."""
        if self._load_weights is not None:
            log.info("loading the weights of %s", self.given["pretrained"])
            self._load_weights()
            self._load_weights = None
            self.model.eval()
            self.model.tie_weights()

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution depends on, without loading weights.

        Of arguments that no other entry covers, `model_arguments.identity` is included.
        """
        given, config = self.given, self.config
        model, revision, tokenizer = given["pretrained"], given["revision"], given.get("tokenizer")
        adapters = [(str(given[name]), revision) for name in ("peft", "delta") if given.get(name)]
        subfolder, gguf_file = given.get("subfolder") or None, given.get("gguf_file")
        words = (tokenizer, revision) if tokenizer else (model, self._commit)
        dtype, mixed = given.get("dtype"), given.get("mixed_precision_dtype")
        if dtype in (None, "auto"):
            dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or dtype
        others = {n: v for n, v in given.items() if v is not None and n not in _COVERED}
        template = getattr(self.tokenizer, "chat_template", None)
        if template is not None and not isinstance(template, str):
            template = json.dumps(template, sort_keys=True)
        return {
            "backend": "hf",
            "kind": self.backend,
            "pretrained": model,
            "revision": revision,
            "subfolder": subfolder,
            "gguf_file": gguf_file,
            **{name: given.get(name) for name in ("peft", "delta", "add_bos_token")},
            **files_identity(model, self._commit, words, adapters, subfolder, gguf_file),
            "dtype": str(dtype or "default").removeprefix("torch."),
            "mixed_precision": mixed and str(mixed).removeprefix("torch."),
            "quantization": as_json(getattr(config, "quantization_config", None)),
            "tokenizer": tokenizer,
            "chat_template": None if template is None else hash_text(template),
            "max_length": int(self.max_length),
            "truncation": bool(given.get("truncation")),
            "end_tokens": sorted(self.ends),
            "arguments": identity(others),
        }
