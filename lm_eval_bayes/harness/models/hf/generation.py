"""Generation of a batch: the token loop, and transformers' own generate as a fallback."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import (
    NEUTRAL_SETTINGS,
    NO_FILTERS,
    is_neutral,
)
from lm_eval_bayes.harness.models.hf.gumbel_max import TokenSampling, draw
from lm_eval_bayes.harness.models.hf.responses import Row
from lm_eval_bayes.harness.models.interface import bits_per_token

if TYPE_CHECKING:
    from torch import Tensor

#: Tokens of a prompt that are measured together; each needs logits of the vocabulary.
_PROMPT_CHUNK = 1024


#: The names that transformers gives the cache of keys and values.
_CACHE_NAMES = ("past_key_values", "cache")

#: Settings of the token loop.
_KNOWN = {"temperature", *NO_FILTERS, "do_sample", "until", "max_gen_toks"}


@dataclass(frozen=True)
class Settings:
    """The settings of a request for the token loop.

    Attributes
    ----------
    sampling : TokenSampling
        How tokens are drawn.
    max_new_tokens : int
        The maximal length of a completion.
    others : dict
        Settings for transformers' own `generate` only; empty for the token loop.
    """

    sampling: TokenSampling
    max_new_tokens: int
    others: Mapping[str, Any]

    @classmethod
    def of(cls, kwargs: Mapping[str, Any]) -> Settings:
        """Return the settings of a request's `kwargs`, which are all explicit.

        Raises
        ------
        ModelConfigError
            If one of them is outside its range.

        Examples
        --------
        >>> filters = {"top_k": 20, "top_p": 1.0, "min_p": 0.0}
        >>> Settings.of({"temperature": 0.6, **filters, "max_gen_toks": 9}).sampling
        TokenSampling(temperature=0.6, top_k=20, top_p=1.0, min_p=0.0)
        """
        sampling = TokenSampling(**{name: kwargs[name] for name in ("temperature", *NO_FILTERS)})
        length = kwargs["max_gen_toks"]
        if length < 1:
            raise ModelConfigError.of("max_gen_toks", "range", "be a whole number >= 1", length)
        others = {k: v for k, v in kwargs.items() if k not in _KNOWN and not is_neutral(k, v)}
        if others.get("num_return_sequences") is not None:
            raise ModelConfigError(
                "`num_return_sequences` must be left out, since each trial is a request of its "
                f"own; got {others['num_return_sequences']!r}",
                "conflict",
                "num_return_sequences",
                others["num_return_sequences"],
            )
        return cls(sampling, length, others)


class NotLoopableError(Exception):
    """The token loop does not support a model; transformers' own `generate` may."""


class TokenLoop:
    """Generates a batch of rows with a causal model, each row until its own end.

    Parameters
    ----------
    model : PreTrainedModel
        A model with a cache of keys and values.
    device : torch.device
        The device of its inputs.
    pad : int
        The token that pads shorter prompts on the left.
    mixed_precision : torch.dtype or None
        The harness's argument `mixed_precision_dtype`.
    """

    def __init__(self, model: Any, device: Any, pad: int, mixed_precision: Any = None) -> None:
        self._model, self._device, self._pad = model, device, pad
        self._mixed = mixed_precision
        wrapped = getattr(model, "get_base_model", None)
        forward = (wrapped() if callable(wrapped) else model).forward
        self._parameters = set(inspect.signature(forward).parameters)
        # transformers 5.24 renamed the cache of most models, in `forward` and in its output
        names = [name for name in _CACHE_NAMES if name in self._parameters]
        self._cache_name = names[0] if names else _CACHE_NAMES[0]
        missing = {"input_ids", "attention_mask", self._cache_name} - self._parameters
        if missing:
            raise NotLoopableError(f"it takes no {' and no '.join(sorted(missing))}")
        if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            raise NotLoopableError("it is an encoder with a decoder")
        keep = [n for n in ("logits_to_keep", "num_logits_to_keep") if n in self._parameters]
        self._last_only: dict[str, Any] = dict.fromkeys(keep[:1], 1)

    def run(
        self,
        rows: Sequence[Row],
        sampling: TokenSampling,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[Row]:
        """Draw tokens for all rows and yield each row when it has ended.

        No further token is drawn when `is_over` is true.

        Raises
        ------
        NotLoopableError
            If the model's cache is of an unsupported kind; nothing was drawn.
        """
        import torch

        started = time.perf_counter()
        for new_row in rows:
            new_row.started = started
        batch = self._prefilled(rows)
        slots: list[Row | None] = list(rows)
        while not is_over():
            keys = torch.tensor([0 if row is None else next(row.keys) for row in slots])
            with torch.no_grad():
                tokens, logprobs = (t.tolist() for t in draw(batch.logits, sampling, keys))
            running = sum(row is not None for row in slots)
            ended = []
            for slot, row in enumerate(slots):
                if row is not None and row.take(tokens[slot], logprobs[slot]):
                    row.concurrency = running
                    ended.append(row)
                    slots[slot] = None
            yield from ended
            left = [slot for slot, row in enumerate(slots) if row is not None]
            if not left:
                return
            # Copying the remaining rows costs about as much as one step.
            if len(left) <= 0.75 * len(slots):
                batch.select(left)
                slots = [slots[slot] for slot in left]
                tokens = [tokens[slot] for slot in left]
            self._step(batch, tokens)

    def prompt_bits(self, prompt: Sequence[int]) -> float | None:
        """Return the mean bits of a prompt's tokens after the first; None for a single token."""
        import torch

        if len(prompt) < 2:
            return None
        ids = torch.tensor([list(prompt)], device=self._device)
        cache: Any = None
        total = 0.0
        for first in range(0, len(prompt) - 1, _PROMPT_CHUNK):
            last = min(first + _PROMPT_CHUNK, len(prompt) - 1)
            with torch.no_grad():
                mask = torch.ones((1, last), dtype=torch.long, device=self._device)
                positions = torch.arange(first, last, device=self._device)[None]
                logits, cache = self._forward(ids[:, first:last], mask, positions, cache, {})
                logprobs = logits[0].float().log_softmax(-1)
                targets = ids[0, first + 1 : last + 1].to(logprobs.device)
                total += float(logprobs.gather(-1, targets[:, None]).double().sum())
        return bits_per_token([total], len(prompt) - 1)

    def _prefilled(self, rows: Sequence[Row]) -> _Batch:
        """Compute the prompts; one that several rows share is computed once."""
        import torch

        prompts = list(dict.fromkeys(tuple(row.prompt) for row in rows))
        width = max(map(len, prompts))
        padded = [[self._pad] * (width - len(p)) + list(p) for p in prompts]
        real = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
        ids = torch.tensor(padded, device=self._device)
        mask = torch.tensor(real, device=self._device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        with torch.no_grad():
            logits, cache = self._forward(ids, mask, positions, None, self._last_only)
            if not _selectable(cache):
                raise NotLoopableError(f"its cache is a {type(cache).__name__}")
            batch = _Batch(logits[:, -1].float(), cache, mask, positions[:, -1:])
            index = {prompt: i for i, prompt in enumerate(prompts)}
            slots = [index[tuple(row.prompt)] for row in rows]
            if slots != list(range(len(prompts))):
                batch.select(slots)
        return batch

    def _step(self, batch: _Batch, tokens: Sequence[int]) -> None:
        import torch

        with torch.no_grad():
            ids = torch.tensor([[token] for token in tokens], device=self._device)
            batch.mask = torch.cat([batch.mask, torch.ones_like(ids)], -1)
            batch.positions = batch.positions + 1
            logits, batch.cache = self._forward(
                ids, batch.mask, batch.positions, batch.cache, self._last_only
            )
            batch.logits = logits[:, -1].float()

    def _forward(
        self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        import torch

        arguments: dict[str, Any] = {"attention_mask": mask, "use_cache": True, **more}
        if "position_ids" in self._parameters:
            arguments["position_ids"] = positions
        if cache is not None:
            arguments[self._cache_name] = cache
        with torch.autocast(
            device_type=ids.device.type, dtype=self._mixed, enabled=self._mixed is not None
        ):
            out = self._model(input_ids=ids, return_dict=True, **arguments)
        return out.logits, getattr(out, self._cache_name, None)


class _Batch:
    """The state between steps: the last logits, the cache, the mask and the positions."""

    def __init__(self, logits: Tensor, cache: Any, mask: Tensor, positions: Tensor) -> None:
        self.logits, self.cache, self.mask, self.positions = logits, cache, mask, positions

    def select(self, slots: Sequence[int]) -> None:
        """Keep the rows at some slots, in this order; a slot may occur several times."""
        import torch

        at = torch.tensor(list(slots), device=self.mask.device)
        self.mask, self.positions = self.mask[at], self.positions[at]
        self.logits = self.logits[at.to(self.logits.device)]
        if isinstance(self.cache, tuple):
            self.cache = tuple(
                tuple(part.index_select(0, at.to(part.device)) for part in layer)
                for layer in self.cache
            )
        else:
            self.cache.reorder_cache(at)


def _selectable(cache: Any) -> bool:
    """Return whether rows can be selected from a cache."""
    from transformers import DynamicCache

    if isinstance(cache, tuple):
        return bool(cache) and all(isinstance(layer, tuple) for layer in cache)
    return isinstance(cache, DynamicCache)


@contextmanager
def without_sampling_defaults(model: Any) -> Iterator[None]:
    """Remove the sampling defaults of `model.generate` inside the block.

    Settings that a request passes to `generate` apply. Forced first and last tokens stay, since
    some translation models need them.
    """
    original = getattr(model, "generation_config", None)
    if original is None:
        yield
        return
    neutral_config = copy.deepcopy(original)
    for name, neutral in {"temperature": 1.0, **NO_FILTERS}.items():
        setattr(neutral_config, name, neutral)
    for name, neutrals in NEUTRAL_SETTINGS.items():
        if hasattr(neutral_config, name) and name != "use_cache":
            setattr(neutral_config, name, neutrals[0] if neutrals else None)
    model.generation_config = neutral_config
    try:
        yield
    finally:
        model.generation_config = original


def generate_fallback(lm: Any, row: Row, length: int, stops: list[str]) -> list[float]:
    """Generate a trial with transformers' `generate`; torch's generator is restored.

    Parameters
    ----------
    lm : HFLM
        The backend.
    row : Row
        The trial; it has its tokens and has ended afterwards.
    length : int
        The maximal number of new tokens.
    stops : list of str
        The stop strings.

    Returns
    -------
    list of float
        The log-probabilities of the prompt's tokens after the first; empty if the model is not
        causal, where `row.logprobs` is None too.

    Raises
    ------
    TaskConfigError
        If transformers refuses a setting.
    """
    import torch

    settings = {k: v for k, v in row.request.kwargs.items() if k not in ("until", "max_gen_toks")}
    causal = lm.backend == "causal"
    ids = torch.tensor([row.prompt], device=lm.device)
    row.started = time.perf_counter()
    devices = [lm.device] if lm.device.type == "cuda" else []
    with (
        torch.no_grad(),
        torch.random.fork_rng(devices=devices),
        without_sampling_defaults(lm.model),
    ):
        torch.manual_seed(row.request.seed)
        try:
            output = lm._model_generate(
                context=ids,
                attention_mask=torch.ones_like(ids),
                stop=list(stops),
                max_length=settings.pop("max_length", length + (ids.shape[1] if causal else 1)),
                **settings,
            )
        except (TypeError, ValueError) as error:
            sentence = f"transformers refuses the generation settings {settings}: {error}"
            raise TaskConfigError(sentence, "unsupported", "generation_kwargs", settings) from error
    tokens = output[0].tolist()
    if causal:
        tokens = tokens[ids.shape[1] :]
    elif tokens[:1] == [getattr(lm.config, "decoder_start_token_id", None)]:
        tokens = tokens[1:]
    row.tokens, row.logprobs, row.concurrency = tokens, None, 1
    row.settle(over=True)
    return _score(lm, row) if causal else []


def _score(lm: Any, row: Row) -> list[float]:
    """Set the row's log-probabilities by one forward pass; return the prompt's."""
    import torch

    ids = torch.tensor([row.prompt + row.tokens], device=lm.device)
    logits = lm._model_call(ids[:, :-1])[0]
    logprobs: list[float] = []
    for first in range(0, len(logits), 1024):
        part = logits[first : first + 1024].float().log_softmax(-1)
        targets = ids[0, first + 1 : first + 1 + len(part)].to(part.device)
        logprobs += part.gather(-1, targets[:, None])[:, 0].tolist()
    prompt = len(row.prompt) - 1
    row.logprobs = logprobs[prompt:]
    return logprobs[:prompt]
