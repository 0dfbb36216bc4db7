"""One token a row, drawn exactly from the warped distribution, whatever else is in the batch.

A row draws by a race: every token gets the logarithm of its probability plus Gumbel noise, and
the largest wins, which is an exact draw from the softmax. The noise of a token is a hash of the
row's key for this step, a number from the row's own generator, and of the token's id. So it
depends neither on the row's neighbours nor on the device; and small errors of the logits,
as another batch size makes them, seldom change a winner.

Only the likeliest tokens race one by one. All others enter as one runner that has their total
probability; if it wins, one of them is drawn by its share. That is the same distribution and
spares the noise of a whole vocabulary.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lm_eval_bayes.harness.models.hf.settings import Recipe

if TYPE_CHECKING:
    from torch import Tensor

#: How many tokens race one by one.
CANDIDATES = 512

# SplitMix64 (Steele, Lea and Flood 2014), as signed numbers of 64 bits.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def draw(
    logits: Tensor, recipe: Recipe, keys: Tensor, candidates: int = CANDIDATES
) -> tuple[Tensor, Tensor]:
    """Draw a token for every row.

    Parameters
    ----------
    logits : Tensor, (B, V), float32
        The model's own.
    recipe : Recipe
        Temperature and filters.
    keys : Tensor, (B,), int64
        A random number for every row; not used by a greedy recipe.
    candidates : int
        How many tokens race one by one; the distribution does not depend on it.

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
    if recipe.greedy:
        tokens = logits.argmax(-1)
    else:
        scores = log_probs if recipe.temperature == 1 else logits / recipe.temperature
        tokens = choose(scores, recipe, keys, candidates)
    return tokens, log_probs.gather(-1, tokens[:, None])[:, 0]


def choose(scores: Tensor, recipe: Recipe, keys: Tensor, candidates: int = CANDIDATES) -> Tensor:
    """Draw from the softmax of tempered scores after top_k, top_p and min_p."""
    import torch

    vocabulary = scores.shape[-1]
    count = max(candidates, int(recipe.top_k) + 1)
    if recipe.keeps_all or count >= vocabulary:
        return race(warped(scores, recipe), keys, candidates)
    values, ids = scores.topk(count)
    kept, whole = _kept(values, ids, scores, recipe)
    tokens = _winner(values.masked_fill(~kept, -math.inf), ids, keys)[0]
    if not bool(whole.all()):
        # more tokens survive than race one by one: filter the whole vocabulary
        rows = torch.nonzero(~whole)[:, 0]
        tokens[rows] = race(warped(scores[rows], recipe), keys[rows], candidates)
    return tokens


def warped(scores: Tensor, recipe: Recipe) -> Tensor:
    """Filter tempered scores with transformers' own top_k, top_p and min_p."""
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    if recipe.top_k:
        scores = TopKLogitsWarper(int(recipe.top_k))(None, scores)
    if recipe.top_p < 1:
        scores = TopPLogitsWarper(float(recipe.top_p))(None, scores)
    if recipe.min_p > 0:
        scores = MinPLogitsWarper(float(recipe.min_p))(None, scores)
    return scores


def _kept(values: Tensor, ids: Tensor, scores: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Tell which candidates survive the filters, and of which rows these are all that survive.

    `values` are the largest scores, in falling request. A token survives top_p if the tokens
    above it have less than top_p between them, and min_p if it has min_p of the likeliest.
    """
    import torch

    falling = values.double()
    kept = torch.ones_like(values, dtype=torch.bool)
    whole = torch.zeros_like(kept[:, :1])
    if recipe.top_k:
        least = values[:, int(recipe.top_k) - 1, None]
        kept = values >= least
        # tokens of equal score may lie beyond the candidates
        whole = values[:, -1:] < least
        falling = falling.masked_fill(~kept, -math.inf)
    if recipe.top_p < 1:
        if recipe.top_k:
            total = falling.logsumexp(-1, keepdim=True)
        else:
            first = ids[:, :1]
            total = (scores.gather(-1, first) - scores.log_softmax(-1).gather(-1, first)).double()
        shares = (falling - total).exp()
        above = shares.cumsum(-1) - shares
        kept = kept & (above < recipe.top_p)
        if not recipe.top_k:
            whole = whole | (above[:, -1:] + shares[:, -1:] >= recipe.top_p)
    if recipe.min_p > 0:
        least = values[:, :1] + math.log(recipe.min_p)
        kept = kept & (values >= least)
        if not recipe.top_k:
            whole = whole | (values[:, -1:] < least)
    return kept, whole[:, 0]


def race(scores: Tensor, keys: Tensor, candidates: int = CANDIDATES) -> Tensor:
    """Draw from the softmax of scores, of which some may be minus infinity."""
    import torch

    vocabulary = scores.shape[-1]
    values, ids = scores.topk(min(candidates, vocabulary))
    if values.shape[-1] == vocabulary:
        return _winner(values, ids, keys)[0]
    tail = scores.scatter(-1, ids, -math.inf)
    highest = values[:, -1:]
    highest = highest.masked_fill(highest.isinf(), 0.0)
    shares = (tail - highest).exp()
    others = (shares.double().sum(-1, keepdim=True)).log() + highest
    tokens, won = _winner(values, ids, keys, others, vocabulary)
    if bool(won.any()):
        rows = torch.nonzero(won)[:, 0]
        sums = shares[rows].double().cumsum(-1)
        one_more = torch.full((len(rows), 1), vocabulary + 1, device=ids.device)
        point = uniforms(keys[rows], one_more) * sums[:, -1:]
        tokens[rows] = torch.searchsorted(sums, point, right=True)[:, 0].clamp_(max=vocabulary - 1)
    return tokens


def _winner(
    values: Tensor, ids: Tensor, keys: Tensor, others: Tensor | None = None, others_id: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the winner of each row's race, and whether the runner for all others won it."""
    import torch

    values = values.double()
    if others is not None:
        values = torch.cat([values, others], -1)
        ids = torch.cat([ids, torch.full_like(ids[:, :1], others_id)], -1)
    noise = -torch.log(-torch.log(uniforms(keys, ids)))
    tokens = ids.gather(-1, (values + noise).argmax(-1, keepdim=True))[:, 0]
    return tokens, (tokens == others_id if others is not None else torch.zeros_like(tokens) > 0)


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
    # int64 shifts bring the sign along, which this takes away
    return (z >> bits) & (2 ** (64 - bits) - 1)


class Keys:
    """The random numbers of one row: one for each of its tokens, from a generator of its own."""

    _BLOCK = 256

    def __init__(self, seed: int) -> None:
        import torch

        self._generator = torch.Generator().manual_seed(int(seed))
        self._ahead: list[int] = []

    def __next__(self) -> int:
        """Return the next number, of 63 bits."""
        import torch

        if not self._ahead:
            block = torch.empty(self._BLOCK, dtype=torch.int64)
            self._ahead = block.random_(generator=self._generator).tolist()[::-1]
        return self._ahead.pop()
