"""Gumbel-max sampling: one token per row, independent of the other rows of the batch.

The token with the largest sum of log-probability and Gumbel noise is an exact draw from the
softmax. A token's noise is a hash of its id and of the row's key for this step, a number from
the row's own generator. So it depends neither on the other rows nor on the device, and small
errors of the logits, as of another batch size, rarely change the token. A counter-based library
generator would give other noise, so that stored seeds would mean other texts.

Only the likeliest tokens get noise of their own. The others share one candidate with their total
probability; if it is drawn, one of them is drawn by its probability. This is the same
distribution without noise for the complete vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_bayes.errors import ModelConfigError

if TYPE_CHECKING:
    from torch import Tensor

#: Number of tokens with noise of their own.
CANDIDATES = 512

# SplitMix64 (Steele, Lea and Flood 2014), as signed numbers of 64 bits.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


@dataclass(frozen=True)
class TokenSampling:
    """How tokens are drawn from logits: temperature, then top_k, top_p and min_p.

    ``temperature`` 0 is greedy; ``top_k`` 0 is off.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        rules: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
            ("temperature", lambda v: 0 <= v < math.inf, "be 0 or more"),
            ("top_k", lambda v: v == int(v) >= 0, "be a whole number, 0 for all tokens"),
            ("top_p", lambda v: 0 < v <= 1, "be in (0, 1]"),
            ("min_p", lambda v: 0 <= v <= 1, "be in [0, 1]"),
        )
        for name, good, rule in rules:
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not good(value):
                raise ModelConfigError.of(name, "range", rule, value)

    @property
    def unfiltered(self) -> bool:
        """Whether all filters are off."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


def draw(
    logits: Tensor, sampling: TokenSampling, keys: Tensor, candidates: int = CANDIDATES
) -> tuple[Tensor, Tensor]:
    """Draw a token for every row.

    Parameters
    ----------
    logits : Tensor, (B, V), float32
        The model's logits.
    sampling : TokenSampling
        Temperature and filters.
    keys : Tensor, (B,), int64
        A random number for every row; not used by a greedy sampling.
    candidates : int
        Number of tokens with noise of their own; the distribution does not depend on it.

    Returns
    -------
    tokens : Tensor, (B,), int64
    logprobs : Tensor, (B,), float32
        Natural logarithms of the tokens' probabilities before temperature and filters.
    """
    if logits.device.type == "mps":  # which has no float64
        logits = logits.cpu()
    keys = keys.to(logits.device)
    log_probs = logits.log_softmax(-1)
    if sampling.temperature == 0:
        tokens = logits.argmax(-1)
    else:
        scores = log_probs if sampling.temperature == 1 else logits / sampling.temperature
        tokens = choose(scores, sampling, keys, candidates)
    return tokens, log_probs.gather(-1, tokens[:, None])[:, 0]


def choose(
    scores: Tensor, sampling: TokenSampling, keys: Tensor, candidates: int = CANDIDATES
) -> Tensor:
    """Draw from the softmax of scores after temperature, top_k, top_p and min_p."""
    import torch

    vocabulary = scores.shape[-1]
    count = max(candidates, int(sampling.top_k) + 1)
    if sampling.unfiltered or count >= vocabulary:
        return gumbel_max(warped(scores, sampling), keys, candidates)
    values, ids = scores.topk(count)
    passing, complete = _passing(values, ids, scores, sampling)
    tokens = _argmax_with_noise(values.masked_fill(~passing, -math.inf), ids, keys)
    if not bool(complete.all()):
        # More tokens pass the filters than there are candidates: filter the vocabulary.
        rows = torch.nonzero(~complete)[:, 0]
        tokens[rows] = gumbel_max(warped(scores[rows], sampling), keys[rows], candidates)
    return tokens


def warped(scores: Tensor, sampling: TokenSampling) -> Tensor:
    """Filter scores with transformers' own top_k, top_p and min_p."""
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    if sampling.top_k:
        scores = TopKLogitsWarper(int(sampling.top_k))(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(float(sampling.top_p))(None, scores)
    if sampling.min_p > 0:
        scores = MinPLogitsWarper(float(sampling.min_p))(None, scores)
    return scores


def _passing(
    values: Tensor, ids: Tensor, scores: Tensor, sampling: TokenSampling
) -> tuple[Tensor, Tensor]:
    """Return which candidates pass the filters, and for which rows no further token passes.

    `values` are the largest scores, in descending order. A token passes top_p if the tokens
    above it have a total probability below top_p, and min_p if it has at least min_p times the
    largest probability.
    """
    import torch

    descending = values.double()
    passing = torch.ones_like(values, dtype=torch.bool)
    complete = torch.zeros_like(passing[:, :1])
    if sampling.top_k:
        least = values[:, int(sampling.top_k) - 1, None]
        passing = values >= least
        # Tokens of equal score may be beyond the candidates.
        complete = values[:, -1:] < least
        descending = descending.masked_fill(~passing, -math.inf)
    if sampling.top_p < 1:
        if sampling.top_k:
            total = descending.logsumexp(-1, keepdim=True)
        else:
            first = ids[:, :1]
            total = (scores.gather(-1, first) - scores.log_softmax(-1).gather(-1, first)).double()
        shares = (descending - total).exp()
        above = shares.cumsum(-1) - shares
        passing = passing & (above < sampling.top_p)
        if not sampling.top_k:
            complete = complete | (above[:, -1:] + shares[:, -1:] >= sampling.top_p)
    if sampling.min_p > 0:
        least = values[:, :1] + math.log(sampling.min_p)
        passing = passing & (values >= least)
        if not sampling.top_k:
            complete = complete | (values[:, -1:] < least)
    return passing, complete[:, 0]


def gumbel_max(scores: Tensor, keys: Tensor, candidates: int = CANDIDATES) -> Tensor:
    """Draw from the softmax of scores, some of which may be minus infinity."""
    import torch

    vocabulary = scores.shape[-1]
    values, ids = scores.topk(min(candidates, vocabulary))
    if values.shape[-1] == vocabulary:
        return _argmax_with_noise(values, ids, keys)
    tail = scores.scatter(-1, ids, -math.inf)
    highest = values[:, -1:]
    highest = highest.masked_fill(highest.isinf(), 0.0)
    shares = (tail - highest).exp()
    shared = (shares.double().sum(-1, keepdim=True)).log() + highest
    values = torch.cat([values.double(), shared], -1)
    ids = torch.cat([ids, torch.full_like(ids[:, :1], vocabulary)], -1)
    tokens = _argmax_with_noise(values, ids, keys)
    rows = torch.nonzero(tokens == vocabulary)[:, 0]
    if len(rows):
        sums = shares[rows].double().cumsum(-1)
        further_id = torch.full((len(rows), 1), vocabulary + 1, device=ids.device)
        point = uniforms(keys[rows], further_id) * sums[:, -1:]
        tokens[rows] = torch.searchsorted(sums, point, right=True)[:, 0].clamp_(max=vocabulary - 1)
    return tokens


def _argmax_with_noise(values: Tensor, ids: Tensor, keys: Tensor) -> Tensor:
    """Return each row's id of the largest sum of value and Gumbel noise."""
    noise = -(-uniforms(keys, ids).log()).log()
    return ids.gather(-1, (values.double() + noise).argmax(-1, keepdim=True))[:, 0]


def uniforms(keys: Tensor, ids: Tensor) -> Tensor:
    """Hash each row's key with each of its ids to a number in (0, 1), with 52 random bits.

    Parameters
    ----------
    keys : Tensor, (B,), int64
    ids : Tensor, (B, K), int64

    Returns
    -------
    Tensor, (B, K), float64
    """
    z = keys[:, None] + (ids + 1) * _GOLDEN
    z = (z ^ _shifted(z, 30)) * _MIX_1
    z = (z ^ _shifted(z, 27)) * _MIX_2
    z = z ^ _shifted(z, 31)
    return (_shifted(z, 12).double() + 0.5) * 2.0**-52


def _shifted(z: Tensor, bits: int) -> Tensor:
    # int64 shifts extend the sign, which this removes
    return (z >> bits) & (2 ** (64 - bits) - 1)


def step_keys(seed: int) -> Iterator[int]:
    """Yield the keys of one row: a number of 63 bits for each token, from its own generator."""
    import torch

    generator = torch.Generator().manual_seed(int(seed))
    block = torch.empty(256, dtype=torch.int64)
    while True:
        yield from block.random_(generator=generator).tolist()
