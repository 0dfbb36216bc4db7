"""A judge that runs here, through transformers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lm_eval_bayes.verifiers.pretrained import (
    dtype_of,
    first_line,
    longest_prompt,
    read_pretrained,
)
from lm_eval_bayes.verifiers.protocol import Scores, Unjudged, VerifierError

#: transformers before this one calls `dtype` by another name.
_DTYPE_SINCE = (4, 56)


class TransformersJudge:
    """Scores labels with a causal language model of transformers.

    Prompts of a batch are padded on the left, and nothing but the logits of their last position
    is computed, as log-probabilities over the whole vocabulary in float32.

    Parameters
    ----------
    name : str
        A folder, or a name on the Hugging Face hub.
    revision : str or None
        Branch, tag or commit.
    weights : str or None
        What its weights are, for the fingerprint.
    device : str or None
        Where it runs; by default a GPU if there is one.
    dtype : str
        "auto", "float32", "bfloat16" or "float16", see `pretrained.dtype_of`.
    max_length : int or None
        The longest prompt in tokens; by default what the model reads.

    Raises
    ------
    VerifierError
        If the model cannot be a verifier.
    InvalidInputError
        If an argument breaks its rule.
    """

    unit = "tokens"

    def __init__(
        self,
        name: str,
        *,
        revision: str | None = None,
        weights: str | None = None,
        device: str | None = None,
        dtype: str = "auto",
        max_length: int | None = None,
    ) -> None:
        self._pretrained = read_pretrained(name, revision)
        self._device = device or default_device()
        self._dtype = dtype_of(dtype, self._pretrained.config, self._device == "cpu")
        self.limit = longest_prompt(max_length, self._pretrained.window)
        self.marks = self._pretrained.slot.marks
        self.length = self._pretrained.slot.length
        told = self._pretrained.fingerprint("transformers", weights, self._dtype, self.limit)
        self.fingerprint: Mapping[str, Any] = MappingProxyType(told)
        self._model: Any = None

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :class:`protocol.Judge`."""
        self._load()
        return self._batch([self._pretrained.slot.tokens(prompt) for prompt in prompts])

    def close(self) -> None:
        """Let go of the weights; the next scores would read them again."""
        self._model = None

    def _load(self) -> None:
        if self._model is not None:
            return
        import torch
        import transformers

        version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        argument = "dtype" if version >= _DTYPE_SINCE else "torch_dtype"
        model = self._pretrained
        try:
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                model.name, revision=model.revision, **{argument: getattr(torch, self._dtype)}
            )
            self._model = loaded.to(self._device).eval()
        except Exception as error:  # no such device, no room, a file that is cut off
            raise VerifierError(
                f"the verifier {model.name} cannot be loaded on {self._device}: {first_line(error)}"
            ) from error
        known = inspect.signature(self._model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self._positions = "position_ids" in known

    def _batch(self, rows: list[list[int]]) -> list[Scores | Unjudged]:
        import torch

        try:
            return self._forward(rows)
        except torch.cuda.OutOfMemoryError:
            pass
        # Outside of the except clause, whose error would hold on to the memory.
        torch.cuda.empty_cache()
        if len(rows) == 1:
            raise VerifierError(
                f"the GPU has no room for a prompt of {len(rows[0]):,} tokens; give a smaller "
                "--max-length"
            )
        half = len(rows) // 2
        return [*self._batch(rows[:half]), *self._batch(rows[half:])]

    def _forward(self, rows: list[list[int]]) -> list[Scores | Unjudged]:
        import torch

        width = max(map(len, rows))
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, width - len(tokens) :] = torch.tensor(tokens)
            mask[row, width - len(tokens) :] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._positions:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        inputs = {key: tensor.to(self._device) for key, tensor in inputs.items()}
        with torch.inference_mode():
            logits = self._model(**inputs, use_cache=False, **self._last_only).logits[:, -1]
            found = torch.log_softmax(logits.float(), dim=-1)[:, list(self._pretrained.slot.labels)]
        return [scored(row) for row in found.cpu().tolist()]


def scored(row: Sequence[float]) -> Scores | Unjudged:
    """Return one prompt's scores, or why they are none.

    Examples
    --------
    >>> scored([-0.1, -2.5, -9.0])
    (-0.1, -2.5, -9.0)
    >>> scored([float("nan"), -2.5, -9.0])
    Unjudged(reason='the scores are no numbers (nan, -2.5, -9.0); try another --dtype')
    """
    a, b, c = row
    if all(-float("inf") < score < float("inf") for score in row):
        return (a, b, c)
    shown = ", ".join(str(score) for score in row)
    return Unjudged(f"the scores are no numbers ({shown}); try another --dtype")


def default_device() -> str:
    """Return "cuda" where there is a GPU, else "cpu"."""
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"
