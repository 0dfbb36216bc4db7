"""Draws of the transformers backend: exact, a row at a time, whatever the path they take."""

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
from _support.errors import refused
from _support.tiny_hf import SAMPLED, reference_probabilities

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.hf.generation import Settings
from lm_eval_bayes.harness.models.hf.gumbel_max import (
    TokenSampling,
    draw,
    step_keys,
    uniforms,
)

RECIPES = [
    TokenSampling(),
    TokenSampling(temperature=0.6, top_p=0.95),
    TokenSampling(temperature=1.3, top_k=7),
    TokenSampling(top_p=0.7),
    TokenSampling(top_p=0.999),
    TokenSampling(min_p=0.2),
    TokenSampling(temperature=0.8, top_k=40, top_p=0.9, min_p=0.05),
]


def logits_of(rows, vocabulary, spread=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator) * spread


def keys_of(count, seed=1):
    return torch.empty(count, dtype=torch.int64).random_(
        generator=torch.Generator().manual_seed(seed)
    )


def p_value(counts, probabilities):
    """Chi-square with the rare tokens together."""
    expected = probabilities * counts.sum()
    order = np.argsort(-expected)
    groups = np.minimum(np.cumsum(expected[order]) // 8, counts.sum())
    observed = np.bincount(groups.astype(int), counts[order])
    wanted = np.bincount(groups.astype(int), expected[order])
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    return stats.chisquare(observed, wanted).pvalue


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
@pytest.mark.parametrize(("vocabulary", "candidates"), [(50, 512), (300, 16), (300, 64)])
def test_draws_have_the_warped_distribution(recipe, vocabulary, candidates):
    logits = logits_of(1, vocabulary, spread=1.2, seed=4)
    keys = keys_of(15_000)
    tokens = torch.cat(
        [
            draw(logits.expand(len(some), -1), recipe, some, candidates)[0]
            for some in keys.split(3000)
        ]
    )
    wanted = reference_probabilities(
        logits[0], recipe.temperature, recipe.top_k, recipe.top_p, recipe.min_p
    )
    assert (wanted > 0).sum() > 3
    counts = np.bincount(tokens.numpy(), minlength=vocabulary)
    assert counts[wanted == 0].sum() == 0
    assert p_value(counts, wanted) > 1e-3


def test_ties_at_the_edge_of_the_candidates_are_kept_as_transformers_keeps_them():
    scores = torch.zeros(1, 400)
    scores[0, :3] = 5.0
    tokens = draw(scores.expand(3000, -1), TokenSampling(top_k=10), keys_of(3000), candidates=32)[0]
    # all 397 tokens of equal score share what the three leave
    assert (tokens > 40).any()


def test_the_noise_is_splitmix64():
    # the first outputs of SplitMix64 from state 1234567, as its authors' code prints them
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    got = uniforms(torch.tensor([1234567]), torch.arange(3)[None])[0].tolist()
    assert got == [((number >> 12) + 0.5) / 2**52 for number in published]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("temperature", -1.0, "range"),
        ("top_p", 0, "range"),
        ("min_p", 1.5, "range"),
        ("max_gen_toks", 0, "range"),
        ("num_return_sequences", 2, "conflict"),
    ],
)
def test_bad_settings_are_refused(name, value, rule):
    with refused(name, rule, value, error=ModelConfigError):
        Settings.of({**SAMPLED, name: value})


def test_the_keys_of_a_seed_are_those_of_stored_trials():
    """Recorded with torch 2.13; other keys would give every stored seed another text."""
    keys = step_keys(1234)
    expected = [3532910284440527571, 2252509165406510133, 8074651545468362100]
    assert [next(keys) for _ in range(3)] == expected
