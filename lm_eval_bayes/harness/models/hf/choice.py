"""The choice of a token: transformers' own warpers, then noise of the trial's seed and position.

The token with the largest sum of log-probability and Gumbel noise is an exact draw from the
softmax. A row's noise depends on its seed and on the number of its tokens alone, so neither on the
other rows of the batch nor on their number, and small errors of the logits, as of another batch
size, rarely change the token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import is_neutral

if TYPE_CHECKING:
    from torch import Tensor

#: transformers' warpers in its order: the setting of each, and the values at which it has no
#: effect.
_WARPERS = (
    ("temperature", "TemperatureLogitsWarper", (1.0,)),
    ("top_h", "TopHLogitsWarper", ()),
    ("top_k", "TopKLogitsWarper", (0,)),
    ("top_p", "TopPLogitsWarper", (1.0,)),
    ("min_p", "MinPLogitsWarper", (0.0,)),
    ("typical_p", "TypicalLogitsWarper", (1.0,)),
    ("epsilon_cutoff", "EpsilonLogitsWarper", (0.0,)),
    ("eta_cutoff", "EtaLogitsWarper", (0.0,)),
)

#: The settings that are applied here and not by `generate`.
APPLIED = ("do_sample", *(name for name, _, _ in _WARPERS))

#: Settings that ask for several sequences.
_SEVERAL = ("num_beams", "num_return_sequences")


def warpers(settings: Mapping[str, Any]) -> list[Any] | None:
    """Return the warpers of generation settings; None if they are greedy.

    Raises
    ------
    TaskConfigError
        If `generate` has no such setting, or it asks for several sequences.
    TypeError, ValueError
        If transformers refuses a value.
    """
    import transformers

    for name, value in settings.items():
        known = hasattr(transformers.GenerationConfig(), name) and name not in _SEVERAL
        if not known and not is_neutral(name, value):
            rule = "be a setting of transformers' generate for one sequence"
            raise TaskConfigError.of(name, "unsupported", rule, value)
    if settings["temperature"] == 0:
        return None
    return [
        getattr(transformers, kind)(settings[name])
        for name, kind, neutral in _WARPERS
        if settings.get(name) is not None and settings[name] not in neutral
    ]


class SeededChoice:
    """A logits processor after which the largest score is that of a draw.

    Parameters
    ----------
    warpers : list or None
        What :func:`warpers` returns.
    seeds, positions : sequence of int
        The seed of every row, and the number of tokens that it has.

    Attributes
    ----------
    logprobs : Tensor, (B,)
        Natural logarithms of the probabilities of the last tokens, before the warpers.
    """

    logprobs: Tensor

    def __init__(
        self, warpers: list[Any] | None, seeds: Sequence[int], positions: Sequence[int]
    ) -> None:
        self._warpers, self._seeds, self._positions = warpers, seeds, list(positions)

    def __call__(self, input_ids: Any, scores: Tensor) -> Tensor:
        """Return the scores with the noise of the next positions."""
        logprobs = scores.log_softmax(-1)
        if self._warpers is not None:
            for warper in self._warpers:
                scores = warper(input_ids, scores)
            scores = scores + gumbel_noise(self._seeds, self._positions, scores)
        self._positions = [position + 1 for position in self._positions]
        self.logprobs = logprobs.gather(-1, scores.argmax(-1, keepdim=True))[:, 0]
        return scores


def gumbel_noise(seeds: Sequence[int], positions: Sequence[int], like: Tensor) -> Tensor:
    """Return standard Gumbel noise of the shape, type and device of a tensor (B, V)."""
    import torch

    # as float32 they would be multiples of 2**-24, too coarse for tokens that are less likely
    device = "cpu" if like.device.type == "mps" else like.device
    exponential = torch.empty(like.shape, dtype=torch.float64, device=device)
    generator = torch.Generator(device)
    for row, seed, position in zip(exponential, seeds, positions, strict=True):
        key = int(sha256_text(f"{seed} {position}")[:15], 16)
        row.exponential_(generator=generator.manual_seed(key))
    return -exponential.log_().to(like)
