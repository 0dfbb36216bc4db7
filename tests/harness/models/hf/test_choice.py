"""Draws of the transformers backend: exact, a row at a time, whatever the path they take."""

import math

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
from _support.tiny_hf import reference_probabilities

from lm_eval_bayes.harness.models.hf.sampling import SeededChoice, gumbel_noise, warpers

NONE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
RECIPES = [
    {},
    {"temperature": 0.6, "top_p": 0.95},
    {"temperature": 1.3, "top_k": 7},
    {"top_p": 0.7},
    {"top_p": 0.999},
    {"min_p": 0.2},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
]


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
@pytest.mark.parametrize("vocabulary", [50, 300])
def test_draws_have_the_warped_distribution(recipe, vocabulary):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(1, vocabulary, generator=generator) * 1.2
    counts = np.zeros(vocabulary, dtype=int)
    for first in range(0, 15_000, 3000):
        choice = SeededChoice(warpers({**NONE, **recipe}), range(first, first + 3000), [0] * 3000)
        tokens = choice(None, logits.expand(3000, -1)).argmax(-1)
        counts += np.bincount(tokens.numpy(), minlength=vocabulary)
        torch.testing.assert_close(choice.logprobs, logits.log_softmax(-1)[0, tokens])
    wanted = reference_probabilities(logits[0], **recipe)
    assert (wanted > 0).sum() > 3
    assert counts[wanted == 0].sum() == 0
    assert p_value(counts, wanted) > 1e-3


def test_tokens_that_are_less_likely_than_float32_tells_are_drawn_as_often_as_they_should_be():
    # 2**21 tokens of probability 2**-24 each: those of even rows of uniforms would be too coarse
    scores = torch.full((1, 2**21 + 1), -24 * math.log(2.0))
    scores[0, 0] = math.log(1 - 2.0**-3)
    rare = [int(SeededChoice([], [seed], [0])(None, scores).argmax()) for seed in range(300)]
    assert stats.binomtest(sum(token > 0 for token in rare), 300, 2.0**-3).pvalue > 1e-3


def test_noise_is_that_of_a_seed_and_a_position():
    like = torch.zeros(3, 10_000)
    first, second = (gumbel_noise([7, 8, 9], [position] * 3, like) for position in (0, 1))
    alone = gumbel_noise([8], [0], like[:1])
    assert torch.equal(first[1:2], alone)
    rows = torch.cat([first, second])
    # neither seeds nor positions share noise; each is a standard Gumbel distribution
    assert np.abs(np.corrcoef(rows.numpy()) - np.eye(6)).max() < 0.05
    assert stats.kstest(rows.numpy().ravel(), "gumbel_r").pvalue > 1e-3


def test_greedy_choices_have_no_noise():
    scores = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    choice = SeededChoice(warpers({**NONE, "temperature": 0.0}), range(4), [0] * 4)
    assert torch.equal(choice(None, scores), scores)


def test_every_warper_of_transformers_is_applied_in_its_order():
    """The settings are those that transformers applies to a model that samples."""
    settings = {
        "temperature": 0.9,
        "top_h": 0.9,
        "top_k": 30,
        "top_p": 0.9,
        "min_p": 0.01,
        "typical_p": 0.9,
        "epsilon_cutoff": 0.001,
        "eta_cutoff": 0.001,
    }
    config = transformers.GenerationConfig(**settings, do_sample=True)
    own = transformers.GenerationMixin()._get_logits_processor(config)
    assert [type(warper) for warper in warpers(settings)] == [type(warper) for warper in own]
