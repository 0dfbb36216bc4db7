"""Seeds, the distribution of tokens and their measurements, on tiny random models."""

import random

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.tiny_hf import (
    EOS,
    PROMPTS,
    SAMPLED,
    recorded_tokens,
    reference_bits,
    reference_logits,
    reference_probabilities,
    requests_for,
    run,
    save_llama,
    tiny_model,
    word_tokenizer,
)
from _support.trial_requests import stream_of

from lm_eval_bayes.harness.models.hf import sampling as hf_module

# transformers and torch warn of their own affairs
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize(
    "kwargs", [SAMPLED, {**SAMPLED, "temperature": 0.6, "top_p": 0.9}], ids=["plain", "nucleus"]
)
def test_a_trial_is_the_same_alone_in_a_batch_and_shuffled(words, kwargs):
    lm = tiny_model(words, batch_size=64)
    orders = requests_for(PROMPTS, 16, kwargs)
    together = run(lm, orders)
    assert len(together) == 64
    shuffled = random.Random(1).sample(orders, len(orders))
    for other in (
        run(lm, shuffled),
        {o.index: run(lm, [o])[o.index] for o in orders},
        run(tiny_model(words, batch_size=7), orders),
    ):
        assert {k: v.text for k, v in other.items()} == {k: v.text for k, v in together.items()}
        for index, got in other.items():
            bits = together[index].signals["completion_bpt"]
            assert got.signals["completion_bpt"] == pytest.approx(bits, abs=1e-4)
    # a few trials end at once, so not all texts differ
    assert len({got.text for got in together.values()}) > 32


@pytest.mark.parametrize(
    "recipe", [{}, {"temperature": 0.9, "top_k": 6, "top_p": 0.95, "min_p": 0.02}], ids=str
)
def test_sequences_have_the_distribution_of_their_products(tmp_path, monkeypatch, recipe):
    # both tokens of two, over 6000 trials: the cache and the second draw are right too
    lm = tiny_model(
        save_llama(tmp_path, word_tokenizer(8), initializer_range=0.15), batch_size=1000
    )
    prompt = "w4 w5"
    tokens = recorded_tokens(monkeypatch)
    run(lm, requests_for([prompt], 6000, {**SAMPLED, **recipe, "max_gen_toks": 2}))
    ids = lm.tok_encode(prompt)
    first = reference_probabilities(reference_logits(lm, ids)[-1], **recipe)
    expected, observed = [], []
    pairs = [tuple(t) for t in tokens.values()]
    for a in range(8):
        if a == EOS:
            expected.append(first[a])
            observed.append(pairs.count((a,)))
            continue
        second = reference_probabilities(reference_logits(lm, [*ids, a])[-1], **recipe)
        expected += [first[a] * p for p in second]
        observed += [pairs.count((a, b)) for b in range(8)]
    expected, observed = 6000 * np.array(expected), np.array(observed)
    possible = expected > 0
    assert observed[possible].sum() == 6000
    assert stats.chisquare(observed[possible], expected[possible]).pvalue > 1e-3


@pytest.mark.parametrize("at_once", [1024, 3, 1])
def test_prompt_bits_come_once_with_a_prompts_first_trial(lm, monkeypatch, at_once):
    monkeypatch.setattr(hf_module, "_CHUNK", at_once)
    got = run(lm, requests_for(PROMPTS, 3, SAMPLED), PROMPTS[1:])
    with_bits = {index for index, trial in got.items() if "prompt_bpt" in trial.signals}
    # the second prompt has one token, which nothing predicts
    assert with_bits == {2, 3}
    for index in with_bits:
        ids = lm.tok_encode(PROMPTS[index])
        wanted = reference_bits(lm, ids[:1], ids[1:])
        assert got[index].signals["prompt_bpt"] == pytest.approx(wanted, abs=2e-5)


def test_times_and_concurrency(lm):
    got = list(lm.sample(stream_of(requests_for(PROMPTS, 4, SAMPLED)), frozenset()))
    running = [trial.concurrency for _, trial in got]
    assert running[0] == 16
    assert running == sorted(running, reverse=True)
    for _, trial in got:
        assert trial.queued_s > 0
        assert trial.generated_s > 0
    ends = [trial.queued_s + trial.generated_s for _, trial in got]
    assert ends == sorted(ends)
