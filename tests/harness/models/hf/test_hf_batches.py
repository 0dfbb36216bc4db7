"""Batches of the token loop: their order, their sizes and how they end."""

import dataclasses
import logging
import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.errors import refused
from _support.tiny_hf import (
    PROMPTS,
    SAMPLED,
    requests_for,
    run,
    save_llama,
    tiny_model,
    word_tokenizer,
)

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.hf.generation import TokenLoop
from lm_eval_bayes.harness.models.interface import RequestStream

# transformers and torch warn of their own affairs
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def batches(monkeypatch):
    """The trial number and the prompt's tokens of every row, by batch."""
    batches = []
    run_of = TokenLoop.run

    def spy(self, rows, *arguments):
        batches.append([(row.request.trial, tuple(row.prompt)) for row in rows])
        return run_of(self, rows, *arguments)

    monkeypatch.setattr(TokenLoop, "run", spy)
    return batches


@pytest.fixture
def shapes(monkeypatch):
    """The shape of the tokens of every forward pass."""
    shapes = []
    forward = TokenLoop._forward

    def spy(self, ids, *args):
        shapes.append(tuple(ids.shape))
        return forward(self, ids, *args)

    monkeypatch.setattr(TokenLoop, "_forward", spy)
    return shapes


def test_batches_go_by_rounds_longest_first_with_one_set_of_settings(words, batches):
    lm = tiny_model(words, batch_size=3)
    orders = requests_for(PROMPTS, 2, SAMPLED)
    orders[1] = dataclasses.replace(orders[1], kwargs={**SAMPLED, "max_gen_toks": 3})
    got = run(lm, orders)
    assert len(got) == 8
    assert got[1].completion_tokens <= 3
    # prompts of 3, 1, 7 and 2 tokens; the second's first trial has settings of its own
    lengths = [[(trial, len(prompt)) for trial, prompt in batch] for batch in batches]
    assert lengths == [[(0, 7), (0, 3), (0, 2)], [(0, 1)], [(1, 7), (1, 3), (1, 2)], [(1, 1)]]


def stream_of(requests):
    questions = [request for request in requests if request.trial == 0]
    return RequestStream(questions, len(requests), iter(requests))


@pytest.mark.parametrize("batch_size", [3, 5, 64])
def test_a_stream_has_the_batches_and_the_texts_of_a_list(words, batches, batch_size):
    lm = tiny_model(words, batch_size=batch_size)
    requests = requests_for(PROMPTS, 6, SAMPLED)
    requests[1::4] = [
        dataclasses.replace(r, kwargs={**SAMPLED, "max_gen_toks": 3}) for r in requests[1::4]
    ]
    by_list = run(lm, requests, PROMPTS)
    of_list, batches[:] = list(batches), []
    by_stream = {r.index: t for r, t in lm.sample(stream_of(requests), frozenset(PROMPTS))}
    assert batches == of_list
    assert len(by_stream) == 24
    for index, trial in by_list.items():
        other = by_stream[index]
        assert (other.text, other.seed, other.signals) == (trial.text, trial.seed, trial.signals)


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
    stream = stream_of(requests_for(PROMPTS, 6, SAMPLED))
    lengths = {}
    for request, trial in lm.sample(stream, frozenset()):
        lengths[request.index] = trial.completion_tokens
        stream.end(0.0)
    assert 0 < len(lengths) < 4
    assert len(set(lengths.values())) == 1  # those that ended in one step


def test_rows_that_have_ended_leave_the_batch(tmp_path, shapes):
    lm = tiny_model(save_llama(tmp_path, word_tokenizer(12), initializer_range=0.1), batch_size=64)
    got = run(lm, requests_for(["w4 w5"], 64, SAMPLED))
    lengths = [trial.completion_tokens for trial in got.values()]
    left = [sum(length > step for length in lengths) for step in range(1, max(lengths))]
    sizes = [rows for rows, _ in shapes]
    assert len(sizes) == 1 + len(left)
    assert left[-1] < 64 / 2
    assert all(
        rows <= size < rows / 0.75 + 1e-9 for size, rows in zip(sizes[1:], left, strict=True)
    )


def test_trials_of_one_prompt_share_its_prefill(lm, shapes):
    run(lm, requests_for(PROMPTS[:1], 10, {**SAMPLED, "max_gen_toks": 2}))
    assert shapes[0] == (1, 3)
    assert shapes[1][1] == 1


def test_memory_that_runs_out_halves_the_batch_and_changes_no_trial(words, monkeypatch, caplog):
    wanted = run(tiny_model(words, batch_size=16), requests_for(PROMPTS, 4, SAMPLED), PROMPTS)
    lm = tiny_model(words, batch_size=16)
    forward = TokenLoop._forward

    def scarce(self, ids, *args):
        if len(ids) > 5:
            raise torch.cuda.OutOfMemoryError("no memory")
        return forward(self, ids, *args)

    monkeypatch.setattr(TokenLoop, "_forward", scarce)
    with caplog.at_level(logging.WARNING):
        got = run(lm, requests_for(PROMPTS, 4, SAMPLED), PROMPTS)
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in wanted.items()}
    assert sum("prompt_bpt" in v.signals for v in got.values()) == 3
    assert "16 continue in batches of 8" in caplog.text
    monkeypatch.setattr(
        TokenLoop, "_prefilled", lambda *_: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError())
    )
    with refused("batch_size", "failed", 1, error=ModelConfigError):
        run(lm, requests_for(PROMPTS[:1], 1, SAMPLED))


def test_an_automatic_batch_size_is_the_harness_own(words, batches):
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
