"""Batches: their order, their sizes and how they end."""

import dataclasses
import logging
import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.errors import refused
from _support.tiny_hf import (
    EOS,
    PROMPTS,
    SAMPLED,
    requests_for,
    run,
    tiny_model,
)
from _support.trial_requests import stream_of

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.hf.sampling import HFSampling
from lm_eval_bayes.harness.models.interface import RequestStream

# transformers and torch warn of their own affairs
pytestmark = pytest.mark.filterwarnings("default")


#: Trials that end at their length alone: a further setting, so that batches stay together.
ENDLESS = {**SAMPLED, "suppress_tokens": [EOS]}


@pytest.fixture
def batches(monkeypatch):
    """The trial number, and the numbers of tokens of prompt and response, of every row by batch."""
    batches = []
    generate = HFSampling._generate

    def spy(self, rows, *arguments):
        batches.append([(r.request.trial, len(r.prompt), len(r.tokens)) for r in rows])
        return generate(self, rows, *arguments)

    monkeypatch.setattr(HFSampling, "_generate", spy)
    return batches


def test_batches_are_filled_in_order_each_with_one_set_of_settings(words, batches):
    lm = tiny_model(words, batch_size=3)
    orders = requests_for(PROMPTS, 2, ENDLESS)
    for index, changes in {1: {"temperature": 0.5}, 2: {"max_gen_toks": 3}}.items():
        orders[index] = dataclasses.replace(orders[index], kwargs={**ENDLESS, **changes})
    got = run(lm, orders)
    assert [got[index].completion_tokens for index in range(8)] == [24, 24, 3, *[24] * 5]
    # prompts of 3, 1, 7 and 2 tokens; the second's first trial has a temperature of its own
    first = [[(0, 3, 0), (0, 7, 0)], [(0, 1, 0)]]
    assert batches == [*first, [(0, 2, 0), (1, 3, 0), (1, 1, 0)], [(1, 7, 0), (1, 2, 0)]]


def test_when_half_of_a_batch_has_ended_the_others_go_on_with_new_ones(words, batches):
    lm = tiny_model(words, batch_size=4)
    orders = [
        dataclasses.replace(order, kwargs={**SAMPLED, "max_gen_toks": length})
        for order, length in zip(
            requests_for(PROMPTS, 2, SAMPLED), [2, 24, 24, 5, 1, 1, 24, 24], strict=True
        )
    ]
    got = run(lm, orders)
    together = list(batches)
    for order in orders:
        (alone,) = run(lm, [order]).values()
        trial = got[order.index]
        assert (alone.text, alone.finish_reason) == (trial.text, trial.finish_reason)
        bits = alone.signals["completion_bpt"]
        assert trial.signals["completion_bpt"] == pytest.approx(bits, abs=1e-4)
    assert [(trial, tokens) for trial, _, tokens in together[0]] == [(0, 0)] * 4
    # two of them after five tokens, unless one has ended before
    assert len(together[1]) == 4
    assert {(trial, tokens > 0) for trial, _, tokens in together[1]} == {(0, True), (1, False)}


def test_steps_after_the_end_of_a_batch_give_no_tokens(words, monkeypatch):
    """As on a GPU, where `generate` looks one step later whether all has ended."""
    orders = requests_for(PROMPTS, 3, SAMPLED)
    wanted = run(tiny_model(words, batch_size=8), orders)
    lm = tiny_model(words, batch_size=8)
    lm.load()
    go_on, late = lm.model._has_unfinished_sequences, []

    def looks_late(this_peer_finished, *args, **kwargs):
        if this_peer_finished and (not late or late[-1] != "now"):
            late.append("now")
            return True
        late.append("")
        return go_on(this_peer_finished, *args, **kwargs)

    monkeypatch.setattr(lm.model, "_has_unfinished_sequences", looks_late)
    got = run(lm, orders)
    assert "now" in late
    assert {k: (v.text, v.completion_tokens) for k, v in got.items()} == {
        k: (v.text, v.completion_tokens) for k, v in wanted.items()
    }


def test_a_pause_of_a_stream_ends_the_batch_and_a_second_one_ends_the_call(words, batches):
    lm = tiny_model(words, batch_size=4)
    orders = requests_for(PROMPTS, 3, ENDLESS)
    stream = RequestStream(orders[:4], 8, iter([*orders[:6], None, *orders[6:8], None, None, 1]))
    assert len(list(lm.sample(stream, frozenset()))) == 8
    assert [len(batch) for batch in batches] == [4, 2, 2]


def test_after_the_end_of_a_stream_the_running_batch_alone_goes_on(words):
    lm = tiny_model(words, batch_size=4)
    stream = stream_of(requests_for(PROMPTS, 6, SAMPLED))
    got = []
    for request, _ in lm.sample(stream, frozenset()):
        got.append(request.trial)
        stream.end(1e9)
    assert got == [0, 0, 0, 0]


def test_after_its_deadline_a_batch_is_left(words):
    lm = tiny_model(words, batch_size=4)
    orders = requests_for(PROMPTS, 6, {**ENDLESS, "max_gen_toks": 200})
    orders[0] = dataclasses.replace(orders[0], kwargs={**ENDLESS, "max_gen_toks": 1})
    stream = stream_of(orders)
    lengths = {}
    for request, trial in lm.sample(stream, frozenset()):
        lengths[request.index] = trial.completion_tokens
        stream.end(0.0)
    assert lengths == {0: 1}


def test_memory_that_runs_out_halves_the_batch_and_changes_no_trial(words, monkeypatch, caplog):
    orders = requests_for(PROMPTS, 4, ENDLESS)
    wanted = run(tiny_model(words, batch_size=16), orders, PROMPTS)
    lm = tiny_model(words, batch_size=16)
    lm.load()
    generate, most, calls = lm.model.generate, 5, []

    def scarce(input_ids, **arguments):
        calls.append(len(input_ids))
        if len(input_ids) > most:
            raise torch.cuda.OutOfMemoryError("no memory")
        return generate(input_ids=input_ids, **arguments)

    monkeypatch.setattr(lm.model, "generate", scarce)
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders, PROMPTS)
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in wanted.items()}
    assert sum("prompt_bpt" in v.signals for v in got.values()) == 3
    assert calls == [16, 8, 4, 4, 4, 4]
    assert "batches of 8" in caplog.text
    most = 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        run(lm, requests_for(PROMPTS[:1], 1, SAMPLED))


def test_an_automatic_batch_size_begins_with_the_largest(words, batches):
    lm = tiny_model(words, batch_size="auto", max_batch_size=4, max_length=64)
    run(lm, requests_for(PROMPTS, 2, {**ENDLESS, "max_gen_toks": 4}))
    assert [len(batch) for batch in batches] == [4, 4]


def test_logits_that_are_not_numbers_are_an_error(words):
    lm = tiny_model(words)
    lm.load()
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(math.nan)
    with refused("logits", "range", error=ModelConfigError):
        run(lm, requests_for(PROMPTS, 1, SAMPLED))
