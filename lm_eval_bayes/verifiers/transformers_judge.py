"""A judge that runs on this computer with transformers."""

from __future__ import annotations

import inspect
from typing import Any

from lm_eval_bayes.verifiers.judge import VerifierError
from lm_eval_bayes.verifiers.local_judge import LocalJudge, first_line

#: Earlier versions of transformers call the argument `torch_dtype`.
_DTYPE_SINCE = (4, 56)


class TransformersJudge(LocalJudge):
    """Scores labels with a causal language model of transformers.

    Prompts of a batch are padded on the left. Scores are the logits of the last position, as
    log-probabilities over the complete vocabulary in float32. For the parameters see
    :class:`~lm_eval_bayes.verifiers.local_judge.LocalJudge`.
    """

    kind = "transformers"

    def _choose_device(self, device: str | None) -> str:
        return device or default_device()

    def _load(self) -> Any:
        import torch
        import transformers

        version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        argument = "dtype" if version >= _DTYPE_SINCE else "torch_dtype"
        model = self._pretrained
        try:
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                model.name, revision=model.revision, **{argument: getattr(torch, self._dtype)}
            )
            loaded = loaded.to(self._device).eval()
        except Exception as error:  # no such device, no memory, a truncated file
            sentence = (
                f"the verifier {model.name} cannot be loaded on {self._device}: {first_line(error)}"
            )
            raise VerifierError(sentence, "failed", "verifier", model.name) from error
        parameters = inspect.signature(loaded.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._positions = "position_ids" in parameters
        return loaded

    def _scores(self, rows: list[list[int]]) -> list[list[float]]:
        import torch

        try:
            return self._forward(rows)
        except torch.cuda.OutOfMemoryError:
            pass
        # After the except clause, whose error would keep the memory.
        torch.cuda.empty_cache()
        if len(rows) == 1:
            sentence = (
                f"the GPU has no room for a prompt of {len(rows[0]):,} tokens; give a smaller "
                "--max-length"
            )
            raise VerifierError(sentence, "failed", "--max-length", len(rows[0]))
        half = len(rows) // 2
        return [*self._scores(rows[:half]), *self._scores(rows[half:])]

    def _forward(self, rows: list[list[int]]) -> list[list[float]]:
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
            scores = torch.log_softmax(logits.float(), dim=-1)[
                :, list(self._pretrained.label_tokens.labels)
            ]
        rows_of_scores: list[list[float]] = scores.cpu().tolist()
        return rows_of_scores


def default_device() -> str:
    """Return "cuda" where there is a GPU, else "cpu"."""
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"
