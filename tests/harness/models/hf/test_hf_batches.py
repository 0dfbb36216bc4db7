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


@pytest.fixture
def batches(monkeypatch):
    """The trial number and the prompt's tokens of every row, by batch."""
    batches = []
    generate = HFSampling._generate

    def spy(self, rows, *arguments):
        batches.append([(row.request.trial, tuple(row.prompt)) for row in rows])
        return generate(self, rows, *arguments)

    monkeypatch.setattr(HFSampling, "_generate", spy)
    return batches


def test_batches_are_filled_in_order_each_with_one_set_of_settings(words, batches):
    lm = tiny_model(words, batch_size=3)
    orders = requests_for(PROMPTS, 2, SAMPLED)
    for index, changes in {1: {"temperature": 0.5}, 2: {"max_gen_toks": 3}}.items():
        orders[index] = dataclasses.replace(orders[index], kwargs={**SAMPLED, **changes})
    got = run(lm, orders)
    assert len(got) == 8
    assert got[2].completion_tokens <= 3
    # prompts of 3, 1, 7 and 2 tokens; the second's first trial has a temperature of its own
    lengths = [[(trial, len(prompt)) for trial, prompt in batch] for batch in batches]
    full = [[(0, 3), (0, 7), (0, 2)], [(1, 3), (1, 1), (1, 7)]]
    assert lengths == [*full, [(1, 2)], [(0, 1)]]


def test_a_pause_of_a_stream_ends_the_batch_and_a_second_one_ends_the_call(words, batches):
    lm = tiny_model(words, batch_size=4)
    orders = requests_for(PROMPTS, 3, SAMPLED)
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
    endless = {**SAMPLED, "suppress_tokens": [EOS], "max_gen_toks": 200}
    orders = requests_for(PROMPTS, 6, endless)
    orders[0] = dataclasses.replace(orders[0], kwargs={**endless, "max_gen_toks": 1})
    stream = stream_of(orders)
    lengths = {}
    for request, trial in lm.sample(stream, frozenset()):
        lengths[request.index] = trial.completion_tokens
        stream.end(0.0)
    assert lengths == {0: 1}


def test_memory_that_runs_out_halves_the_batch_and_changes_no_trial(words, monkeypatch, caplog):
    wanted = run(tiny_model(words, batch_size=16), requests_for(PROMPTS, 4, SAMPLED), PROMPTS)
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
        got = run(lm, requests_for(PROMPTS, 4, SAMPLED), PROMPTS)
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in wanted.items()}
    assert sum("prompt_bpt" in v.signals for v in got.values()) == 3
    assert calls == [16, 8, 4, 4, 4, 4]
    assert "batches of 8" in caplog.text
    most = 0
    with refused("batch_size", "failed", 1, error=ModelConfigError):
        run(lm, requests_for(PROMPTS[:1], 1, SAMPLED))


def test_an_automatic_batch_size_begins_with_the_largest(words, batches):
    lm = tiny_model(words, batch_size="auto", max_batch_size=4, max_length=64)
    run(lm, requests_for(PROMPTS, 2, {**SAMPLED, "max_gen_toks": 4}))
    assert [len(batch) for batch in batches] == [4, 4]


def test_logits_that_are_not_numbers_are_an_error(words):
    lm = tiny_model(words)
    lm.load()
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(math.nan)
    with refused("logits", "range", error=ModelConfigError):
        run(lm, requests_for(PROMPTS, 1, SAMPLED))
