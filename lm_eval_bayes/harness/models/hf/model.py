"""A transformers model whose weights are loaded when they are needed, and its responses.

Its weights are loaded at the first use, so that a run whose trials are all stored loads none.

A response grows token by token in a :class:`Row`, until its end; then it is read as a trial.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import SamplingMixin, TrialRequest, bits_per_token
from lm_eval_bayes.harness.models.weights import files_identity
from lm_eval_bayes.runs.model_arguments import as_json, identity
from lm_eval_bayes.store.trial import Trial

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


def find_stop(
    tokens: Sequence[int], stops: Sequence[str], decode: Callable[[Sequence[int]], str]
) -> str | None:
    """Return the stop string that the last of some tokens completes.

    Parameters
    ----------
    tokens : sequence of int
        Those before the last complete none.
    stops : sequence of str
        Empty ones never match. Of several that match, the one that begins first is returned.
    decode : callable
        Token ids to text, special tokens included, as the harness does for stop strings.
    """
    longest = max((len(stop.encode(errors="replace")) for stop in stops), default=0)
    # A token may be one byte; the margin excludes characters that the cut may damage.
    text = decode(tokens[-longest - 8 :])
    matches = [stop for stop in stops if stop and stop in text]
    return min(matches, key=lambda stop: (text.find(stop), -len(stop)), default=None)


@dataclass(eq=False)
class Row:
    """One trial's tokens, until the end of the sequence, a stop string or the length.

    Attributes
    ----------
    request : TrialRequest
        The trial.
    prompt : list of int
        The prompt's tokens, as the model gets them.
    cut : bool
        Whether the prompt was truncated.
    limit : int
        The maximal number of tokens.
    stops : sequence of str
        The strings that end it.
    prompt_bpt : float or None
        The bits per token of the prompt, if they are measured with it.
    """

    request: TrialRequest
    prompt: list[int]
    cut: bool
    limit: int
    stops: Sequence[str]
    prompt_bpt: float | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    started: float = 0.0
    ended: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the trials of a batch share."""
        kwargs = self.request.kwargs
        return {k: v for k, v in kwargs.items() if k not in ("until", "max_gen_toks")}

    def take(self, token: int, logprob: float, lm: Any) -> bool:
        """Append a token; return whether the trial has ended."""
        if math.isnan(logprob):
            rule = "be numbers (dtype=float16 may overflow to NaN; bfloat16 and float32 do not)"
            raise ModelConfigError.of("logits", "range", rule, logprob)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in lm.ends:
            self.finish_reason, self.stop_reason = "stop", lm.ends[token]
        elif stop := find_stop(self.tokens, self.stops, lm.decode):
            self.finish_reason, self.stop_reason = "stop", stop
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"
        self.ended = time.perf_counter()
        return self.finish_reason is not None


def read_trial(row: Row, lm: Any, requested: float, concurrency: int) -> Trial:
    """Return the trial of a finished row, with its measurements.

    Parameters
    ----------
    row : Row
        A trial that has ended.
    lm : HFSampling
        The backend, for its tokenizer and think token.
    requested : float
        When it was requested, by `time.perf_counter`.
    concurrency : int
        The number of rows at its end, this one included, that had not ended before.
    """
    text, think = str(lm.tok_decode(row.tokens)), lm.think_end_token
    signals: dict[str, Any] = {"prompt_truncated": row.cut}
    if not lm.cannot_record:
        signals["completion_bpt"] = bits_per_token(row.logprobs)
    if isinstance(think, int):
        signals["think_closed"] = think in row.tokens
        if think in row.tokens:
            # the text has the marker, which a tokenizer leaves out where it is a special token
            at = len(row.tokens) - row.tokens[::-1].index(think)
            text = lm.think_end.join(map(lm.tok_decode, (row.tokens[: at - 1], row.tokens[at:])))
    elif think:
        signals["think_closed"] = think in lm.decode(row.tokens)
    if row.prompt_bpt is not None:
        signals["prompt_bpt"] = row.prompt_bpt
    return row.request.result(
        text,
        signals=signals,
        prompt_tokens=len(row.prompt),
        completion_tokens=len(row.tokens),
        finish_reason=row.finish_reason,
        stop_reason=row.stop_reason,
        queued_s=row.started - requested,
        generated_s=row.ended - row.started,
        concurrency=concurrency,
    )
