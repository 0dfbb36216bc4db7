"""Trials through the token loop of the transformers backend, on little random models."""

import dataclasses
import logging
import math
import random
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.tiny_hf import (
    EOS,
    GREEDY,
    PROMPTS,
    SAMPLED,
    TURN,
    byte_tokenizer,
    made,
    orders_for,
    recorded_tokens,
    reference_bits,
    reference_logits,
    reference_probabilities,
    run,
    save_llama,
    shape,
    word_tokenizer,
)
from _support.trial_requests import trial_request
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.api_seeds import trial_seed
from lm_eval_bayes.harness.models.hf import generation as hf_loop
from lm_eval_bayes.harness.models.hf.generation import TokenLoop

# transformers and torch warn of their own affairs
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def lm(words):
    return made(words)


@pytest.fixture(scope="module")
def byte_folder(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("bytes"), byte_tokenizer(), seed=3)


@pytest.fixture(scope="module")
def byte_lm(byte_folder):
    return made(byte_folder)


# -- seeds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs", [SAMPLED, {**SAMPLED, "temperature": 0.6, "top_p": 0.9}], ids=["plain", "nucleus"]
)
def test_a_trial_is_the_same_alone_in_a_batch_and_shuffled(words, kwargs):
    lm = made(words, batch_size=64)
    orders = orders_for(PROMPTS, 16, kwargs)
    together = run(lm, orders)
    assert len(together) == 64
    shuffled = random.Random(1).sample(orders, len(orders))
    for other in (
        run(lm, shuffled),
        {o.index: run(lm, [o])[o.index] for o in orders},
        run(made(words, batch_size=7), orders),
    ):
        assert {k: v.text for k, v in other.items()} == {k: v.text for k, v in together.items()}
        for place, got in other.items():
            bits = together[place].signals["completion_bpt"]
            assert got.signals["completion_bpt"] == pytest.approx(bits, abs=1e-4)
    # a few trials end at once, so not all texts differ
    assert len({got.text for got in together.values()}) > 32


def test_seeds_leave_the_global_generator_alone(lm):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    run(lm, orders_for(PROMPTS[:2], 2, SAMPLED))
    assert torch.equal(torch.rand(3), wanted)


# -- the distribution ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 1.4, "top_k": 6},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    ],
    ids=str,
)
def test_first_tokens_have_the_warped_distribution(tmp_path, monkeypatch, recipe):
    lm = made(save_llama(tmp_path, initializer_range=0.2), batch_size=500)
    prompt = "w4 w5 w6"
    tokens = recorded_tokens(monkeypatch)
    run(lm, orders_for([prompt], 2000, {**SAMPLED, **recipe, "max_gen_toks": 1}))
    logits = reference_logits(lm, lm.tok_encode(prompt))[-1]
    wanted = reference_probabilities(logits, **recipe)
    counts = np.bincount([t[0] for t in tokens.values()], minlength=len(wanted))
    assert counts[wanted == 0].sum() == 0
    common = wanted * 2000 >= 5
    observed = [*counts[common], counts[~common].sum()]
    expected = [*(wanted[common] * 2000), wanted[~common].sum() * 2000]
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    assert len(expected) > 3
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_sequences_have_the_distribution_of_their_products(tmp_path, monkeypatch):
    # both tokens of two, over 6000 trials: the cache and the second draw are right too
    lm = made(save_llama(tmp_path, word_tokenizer(8), initializer_range=0.15), batch_size=1000)
    prompt = "w4 w5"
    tokens = recorded_tokens(monkeypatch)
    run(lm, orders_for([prompt], 6000, {**SAMPLED, "max_gen_toks": 2}))
    ids = lm.tok_encode(prompt)
    first = reference_probabilities(reference_logits(lm, ids)[-1])
    expected, observed = [], []
    pairs = [tuple(t) for t in tokens.values()]
    for a in range(8):
        if a == EOS:
            expected.append(first[a])
            observed.append(pairs.count((a,)))
            continue
        second = reference_probabilities(reference_logits(lm, [*ids, a])[-1])
        expected += [first[a] * p for p in second]
        observed += [pairs.count((a, b)) for b in range(8)]
    assert sum(observed) == 6000
    assert stats.chisquare(observed, 6000 * np.array(expected)).pvalue > 1e-3


# -- what is measured ------------------------------------------------------------------------


def test_bits_equal_an_independent_forward_pass(lm, monkeypatch):
    tokens = recorded_tokens(monkeypatch)
    got = run(lm, orders_for(PROMPTS, 8, {**SAMPLED, "temperature": 0.5, "top_p": 0.9}), PROMPTS)
    for place, trial in got.items():
        ids = lm.tok_encode(PROMPTS[place % len(PROMPTS)])
        wanted = reference_bits(lm, ids, tokens[place])
        assert trial.signals["completion_bpt"] == pytest.approx(wanted, abs=2e-5)
        assert trial.prompt_tokens == len(ids)
        assert trial.completion_tokens == len(tokens[place])


@pytest.mark.parametrize("at_once", [1024, 3, 1])
def test_prompt_bits_come_once_with_a_prompts_first_trial(lm, monkeypatch, at_once):
    monkeypatch.setattr(hf_loop, "_PROMPT_CHUNK", at_once)
    got = run(lm, orders_for(PROMPTS, 3, SAMPLED), PROMPTS[1:])
    with_bits = {place for place, trial in got.items() if "prompt_bpt" in trial.signals}
    # the second prompt has one token, which nothing predicts
    assert with_bits == {2, 3}
    for place in with_bits:
        ids = lm.tok_encode(PROMPTS[place])
        wanted = reference_bits(lm, ids[:1], ids[1:])
        assert got[place].signals["prompt_bpt"] == pytest.approx(wanted, abs=2e-5)


def test_times_and_concurrency(lm):
    got = list(lm.sample(orders_for(PROMPTS, 4, SAMPLED), frozenset()))
    running = [trial.concurrency for _, trial in got]
    assert running[0] == 16
    assert running == sorted(running, reverse=True)
    for _, trial in got:
        assert trial.queued_s > 0
        assert trial.generated_s > 0
    ends = [trial.queued_s + trial.generated_s for _, trial in got]
    assert ends == sorted(ends)


# -- ends --------------------------------------------------------------------------------------


def test_the_end_of_the_sequence_the_length_and_further_end_tokens(tmp_path, monkeypatch):
    folder = save_llama(tmp_path, word_tokenizer(12), initializer_range=0.1)
    config = transformers.GenerationConfig(eos_token_id=[EOS, TURN], pad_token_id=0)
    config.save_pretrained(folder)
    lm = made(folder)
    tokens = recorded_tokens(monkeypatch)
    got = run(lm, orders_for(["w4 w5", "w6"], 40, {**SAMPLED, "max_gen_toks": 6}))
    seen = set()
    for place, trial in got.items():
        own = tokens[place]
        seen.add((trial.finish_reason, trial.stop_reason))
        ended = own[-1] in (EOS, TURN)
        assert not {EOS, TURN} & set(own[:-1])
        assert trial.finish_reason == ("stop" if ended else "length")
        assert trial.stop_reason == (TURN if own[-1] == TURN else None)
        assert trial.completion_tokens == len(own) == 6 or ended
        assert trial.text == lm.tok_decode(own)
        assert "<" not in trial.text
    assert seen == {("stop", None), ("stop", TURN), ("length", None)}


def test_stop_strings_end_a_row_at_the_token_that_completes_them(byte_lm, monkeypatch):
    tokens = recorded_tokens(monkeypatch)
    stops = ["e\xb8", "ab", "q", "\n"]
    got = run(byte_lm, orders_for(["so", "what now"], 24, {**SAMPLED, "until": stops}))
    by_string = 0
    for place, trial in got.items():
        own = tokens[place]
        decoded = [byte_lm.tok_decode(own[:n]) for n in range(len(own) + 1)]
        assert not any(stop in text for text in decoded[:-1] for stop in stops)
        if trial.stop_reason is not None:
            by_string += 1
            assert trial.finish_reason == "stop"
            assert trial.stop_reason in decoded[-1]
            assert trial.completion_tokens == len(own)
            assert trial.signals["completion_bpt"] == pytest.approx(
                reference_bits(byte_lm, byte_lm.tok_encode(["so", "what now"][place % 2]), own),
                abs=2e-5,
            )
    assert by_string > 5


class Scripted:
    """A stand-in for the model: one row's next token is what its script says."""

    def __init__(self, model, script):
        self.config, self.script, self.model = model.config, script, model
        self.done = 0

    def forward(self, input_ids, attention_mask, past_key_values=None, use_cache=True, **_):
        raise NotImplementedError

    def __call__(self, input_ids, **arguments):
        out = self.model(input_ids=input_ids, **{**arguments, "return_dict": True})
        out.logits = torch.full_like(out.logits, -30.0)
        out.logits[..., self.script[min(self.done, len(self.script) - 1)]] = 30.0
        self.done += 1
        return out


def said(lm, text, monkeypatch, end=True, **kwargs):
    """Sample one trial from a model that says `text`."""
    script = lm.tokenizer.encode(text, add_special_tokens=False) + [EOS] * end
    monkeypatch.setattr(lm, "_model", Scripted(lm.model, script))
    monkeypatch.setattr(lm, "_loop", None)
    ((_, got),) = lm.sample(
        orders_for(["so"], 1, {**SAMPLED, "max_gen_toks": len(script), **kwargs}), frozenset()
    )
    monkeypatch.undo()
    return got, script


@pytest.mark.parametrize(
    ("text", "until", "count", "reason", "finished"),
    [
        ("one\n\ntwo", ["\n\n"], 5, "\n\n", "one"),
        ("a Question: b", ["Question:"], 11, "Question:", "a "),
        ("é–ü end", ["–ü"], 7, "–ü", "é"),
        ("stop", ["stop"], 4, "stop", ""),
        ("it <eos> is", [], 8, "<eos>", "it "),
        ("all of it", ["none"], 10, None, "all of it"),
        ("abc", ["bc", "abc"], 3, "abc", "a"),
    ],
)
def test_stop_strings_that_span_tokens(byte_lm, monkeypatch, text, until, count, reason, finished):
    # as bytes, so that "<eos>" is five characters and not the token
    encode = byte_lm.tokenizer.encode
    monkeypatch.setattr(
        byte_lm.tokenizer,
        "encode",
        lambda t, **_: [i for c in t for i in encode(c, add_special_tokens=False)],
    )
    got, _ = said(byte_lm, text, monkeypatch, until=until)
    assert got.completion_tokens == count
    assert got.finish_reason == "stop"
    assert got.stop_reason == reason
    assert byte_lm.finished_text(got.text, {"until": until}, got.signals) == finished


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 9])
def test_a_stop_in_the_last_tokens_before_the_length_counts(byte_lm, monkeypatch, limit):
    got, _ = said(byte_lm, "xxxxxxxxxx!", monkeypatch, until=["x" * limit], max_gen_toks=limit)
    assert (got.finish_reason, got.completion_tokens) == ("stop", limit)


# -- the harness's own text ------------------------------------------------------------------


def harness_text(lm, tokens, kwargs, monkeypatch):
    """What the harness's own generate_until makes of these tokens."""

    def generate(context, **_):
        made_up = torch.tensor([[*context[0].tolist(), *tokens]])
        return made_up

    with monkeypatch.context() as patch:
        patch.setattr(lm, "_model_generate", generate)
        request = Instance("generate_until", {}, ("so", {**kwargs, "until": [*kwargs["until"]]}), 0)
        (text,) = HFLM.generate_until(lm, [request], disable_tqdm=True)
    return text


TEXTS = [
    "It is 4.\n\nQuestion: 5",
    "hm </think> hm </think>\n  so 4\n\nQuestion",
    "hm\n\nhm</think>4",
    "</think>",
    "   </think>   ",
    "never closed \n\n and on",
    "–é </think> ü–",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("until", [[], ["\n\n"], ["Question", ""]], ids=str)
@pytest.mark.parametrize("think", [None, "</think>", "int"])
def test_finished_text_is_the_harness_own(byte_folder, monkeypatch, text, until, think):
    tokenizer = byte_tokenizer()
    if think is not None:
        tokenizer.add_tokens(["</think>"])
    token = len(tokenizer) - 1
    lm = made(
        save_llama_once(byte_folder, tokenizer),
        tokenizer=tokenizer,
        think_end_token=token if think == "int" else think,
    )
    got, script = said(lm, text, monkeypatch, until=until)
    kwargs = {**SAMPLED, "until": until}
    wanted = harness_text(lm, script, kwargs, monkeypatch)
    assert lm.finished_text(got.text, kwargs, got.signals) == wanted
    if think is not None:
        assert got.signals["think_closed"] == ("</think>" in text)
        # stops do not end a thinking model's trial: they may stand inside the block
        assert got.completion_tokens == len(script)
        assert lm.stops_sent(kwargs) == ["<eos>"]
    else:
        assert "think_closed" not in got.signals
        assert lm.stops_sent(kwargs) == [*until, "<eos>"]


def save_llama_once(folder, tokenizer):
    target = Path(folder) / f"vocabulary-{len(tokenizer)}"
    if not target.exists():
        save_llama(target, tokenizer, seed=3)
    return target


def test_finished_text_works_without_weights(words):
    lm = made(words)
    assert lm.finished_text("w4 w5 stop w6", {"until": ["stop"]}, {}) == "w4 w5 "
    assert not lm.weights_loaded


@pytest.mark.parametrize("until", [[], ["w9"]])
def test_greedy_is_what_the_harness_generates(lm, until):
    kwargs = {**GREEDY, "until": until}
    got = run(lm, orders_for(PROMPTS, 1, kwargs))
    ours = [lm.finished_text(got[i].text, kwargs, got[i].signals) for i in range(len(PROMPTS))]
    requests = [Instance("generate_until", {}, (p, {**kwargs}), 0) for p in PROMPTS]
    assert ours == HFLM.generate_until(lm, requests, disable_tqdm=True)


# -- prompts -----------------------------------------------------------------------------------


def test_a_prompt_that_does_not_fit_is_cut_on_the_left_and_says_so(words, caplog):
    lm = made(words, max_length=12)
    prompts, kwargs = ["w9 w4 w5 w6 w7", "w7"], {**SAMPLED, "max_gen_toks": 10}
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders_for(prompts, 1, kwargs), prompts)
    assert [got[i].signals["prompt_truncated"] for i in range(2)] == [True, False]
    assert got[0].prompt_tokens == 2
    assert "prompt_bpt" not in got[0].signals
    assert "a prompt was cut to its last 2 tokens" in caplog.text
    cut = trial_request(0, "w6 w7", "w6 w7", 0, trial_seed(1234, 0, prompts[0]), kwargs)
    assert run(made(words), [cut])[0].text == got[0].text


def test_no_room_for_the_prompt_is_refused(words):
    lm = made(words, max_length=10)
    rule = "`max_gen_toks` must leave room for the prompt in the model's max_length of 10"
    with pytest.raises(ModelConfigError, match=rule):
        run(lm, orders_for(["w4"], 1, {**SAMPLED, "max_gen_toks": 10}))
    assert not lm.weights_loaded


def test_an_empty_prompt_is_refused(words):
    with pytest.raises(ModelConfigError, match="a prompt must have at least one token"):
        run(made(words), orders_for([""], 1, SAMPLED))


# -- batches -----------------------------------------------------------------------------------


def test_batches_go_by_rounds_longest_first_with_one_set_of_settings(words, monkeypatch):
    lm = made(words, batch_size=3)
    batches = []
    run_of = TokenLoop.run

    def spy(self, rows, recipe):
        batches.append([(row.request.trial, len(row.prompt)) for row in rows])
        return run_of(self, rows, recipe)

    monkeypatch.setattr(TokenLoop, "run", spy)
    orders = orders_for(PROMPTS, 2, SAMPLED)
    orders[1] = dataclasses.replace(orders[1], kwargs={**SAMPLED, "max_gen_toks": 3})
    got = run(lm, orders)
    assert len(got) == 8
    assert got[1].completion_tokens <= 3
    # prompts of 3, 1, 7 and 2 tokens; the second's first trial has settings of its own
    assert batches == [[(0, 7), (0, 3), (0, 2)], [(0, 1)], [(1, 7), (1, 3), (1, 2)], [(1, 1)]]


def test_rows_that_have_ended_leave_the_batch(tmp_path, monkeypatch):
    lm = made(save_llama(tmp_path, word_tokenizer(12), initializer_range=0.1), batch_size=64)
    sizes = []
    forward = TokenLoop._forward

    def spy(self, ids, *args):
        sizes.append(len(ids))
        return forward(self, ids, *args)

    monkeypatch.setattr(TokenLoop, "_forward", spy)
    got = run(lm, orders_for(["w4 w5"], 64, SAMPLED))
    lengths = [trial.completion_tokens for trial in got.values()]
    left = [sum(length > step for length in lengths) for step in range(1, max(lengths))]
    assert len(sizes) == 1 + len(left)
    assert left[-1] < 64 / 2
    assert all(
        rows <= size < rows / 0.75 + 1e-9 for size, rows in zip(sizes[1:], left, strict=True)
    )


def test_trials_of_one_prompt_share_its_prefill(lm, monkeypatch):
    sizes = []
    forward = TokenLoop._forward

    def spy(self, ids, *args):
        sizes.append(tuple(ids.shape))
        return forward(self, ids, *args)

    monkeypatch.setattr(TokenLoop, "_forward", spy)
    run(lm, orders_for(PROMPTS[:1], 10, {**SAMPLED, "max_gen_toks": 2}))
    assert sizes[0] == (1, 3)
    assert sizes[1][1] == 1


def test_closing_early_leaves_nothing_running(lm):
    trials = lm.sample(orders_for(PROMPTS, 4, SAMPLED), frozenset())
    order, _ = next(trials)
    trials.close()
    assert torch.is_grad_enabled()
    again = run(lm, orders_for(PROMPTS, 4, SAMPLED))
    assert order.index in again


def test_between_two_trials_the_callers_torch_is_as_it_was(lm):
    for _ in lm.sample(orders_for(PROMPTS, 1, SAMPLED), frozenset()):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_memory_that_runs_out_halves_the_batch_and_changes_no_trial(words, monkeypatch, caplog):
    wanted = run(made(words, batch_size=16), orders_for(PROMPTS, 4, SAMPLED), PROMPTS)
    lm = made(words, batch_size=16)
    forward = TokenLoop._forward

    def scarce(self, ids, *args):
        if len(ids) > 5:
            raise torch.cuda.OutOfMemoryError("no memory")
        return forward(self, ids, *args)

    monkeypatch.setattr(TokenLoop, "_forward", scarce)
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders_for(PROMPTS, 4, SAMPLED), PROMPTS)
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in wanted.items()}
    assert sum("prompt_bpt" in v.signals for v in got.values()) == 3
    assert "16 continue in batches of 8" in caplog.text
    monkeypatch.setattr(
        TokenLoop, "_prefilled", lambda *_: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError())
    )
    with pytest.raises(ModelConfigError, match="memory is too small for one trial"):
        run(lm, orders_for(PROMPTS[:1], 1, SAMPLED))


def test_an_automatic_batch_size_is_the_harness_own(words, monkeypatch):
    lm = made(words, batch_size="auto", max_batch_size=4, max_length=64)
    batches = []
    run_of = TokenLoop.run

    def spy(self, rows, recipe):
        batches.append(len(rows))
        return run_of(self, rows, recipe)

    monkeypatch.setattr(TokenLoop, "run", spy)
    run(lm, orders_for(PROMPTS, 2, {**SAMPLED, "max_gen_toks": 4}))
    assert batches == [4, 4]


def test_logits_that_are_not_numbers_are_an_error(words):
    lm = made(words)
    lm.load_weights()
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(math.nan)
    with pytest.raises(ModelConfigError, match=r"logits are not numbers \(NaN\)"):
        run(lm, orders_for(PROMPTS, 1, SAMPLED))


# -- other models and settings -------------------------------------------------------------------


def other_model(name, **changes):
    size = shape(60)
    if name == "sliding window":
        return transformers.MistralForCausalLM(
            transformers.MistralConfig(**size, sliding_window=4, **changes)
        )
    if name == "learned positions":
        for key in ("num_key_value_heads", "intermediate_size"):
            size.pop(key)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**size))
    for key in ("num_key_value_heads", "intermediate_size", "max_position_embeddings"):
        size.pop(key)
    return transformers.BloomForCausalLM(transformers.BloomConfig(**size))


@pytest.mark.parametrize("name", ["sliding window", "learned positions", "no positions"])
def test_other_causal_models(tmp_path, monkeypatch, name):
    torch.manual_seed(0)
    other_model(name).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(hf_loop, "_PROMPT_CHUNK", 3)
    lm = made(tmp_path, dtype="float32")
    tokens = recorded_tokens(monkeypatch)
    got = run(lm, orders_for(PROMPTS, 4, SAMPLED), PROMPTS)
    for place, trial in got.items():
        ids = lm.tok_encode(PROMPTS[place % 4])
        wanted = reference_bits(lm, ids, tokens[place])
        assert trial.signals["completion_bpt"] == pytest.approx(wanted, abs=2e-5)
    prompt = lm.tok_encode(PROMPTS[2])
    wanted = reference_bits(lm, prompt[:1], prompt[1:])
    assert got[2].signals["prompt_bpt"] == pytest.approx(wanted, abs=2e-5)
    greedy = run(lm, orders_for(PROMPTS, 1, GREEDY))
    requests = [Instance("generate_until", {}, (p, {**GREEDY}), 0) for p in PROMPTS]
    texts = HFLM.generate_until(lm, requests, disable_tqdm=True)
    assert [lm.finished_text(greedy[i].text, GREEDY, {}) for i in range(4)] == texts


def test_further_settings_go_through_transformers_own_generate(lm, monkeypatch, caplog):
    kwargs = {**SAMPLED, "repetition_penalty": 50.0, "max_gen_toks": 12}
    tokens = recorded_tokens(monkeypatch)
    state = torch.random.get_rng_state()
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders_for(PROMPTS, 2, kwargs), PROMPTS)
        again = run(lm, orders_for(PROMPTS, 2, kwargs)[::-1])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in again.items()}
    assert len({v.text for v in got.values()}) == 8
    assert caplog.text.count("one at a time by transformers' own generate") == 1
    assert "because of repetition_penalty" in caplog.text
    for place, trial in got.items():
        ids = lm.tok_encode(PROMPTS[place % 4])
        assert trial.signals["completion_bpt"] == pytest.approx(
            reference_bits(lm, ids, tokens[place]), abs=2e-5
        )
        # the penalty is so large that no token comes twice
        assert len(set(tokens[place])) == len(tokens[place])
    assert sum("prompt_bpt" in v.signals for v in got.values()) == 3


def test_a_neutral_setting_does_not_leave_the_loop(lm, caplog):
    kwargs = {**SAMPLED, "repetition_penalty": 1.0, "num_beams": 1}
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders_for(PROMPTS, 2, kwargs))
    assert "one at a time" not in caplog.text
    plain = run(lm, orders_for(PROMPTS, 2, SAMPLED))
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in plain.items()}


def test_a_setting_that_transformers_does_not_know_is_a_sentence(lm):
    with pytest.raises(TaskConfigError, match="transformers refuses the generation settings"):
        run(lm, orders_for(PROMPTS, 1, {**SAMPLED, "no_such_setting": 3}))


def test_an_encoder_with_a_decoder(tmp_path, caplog):
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=60,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=EOS,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    lm = made(tmp_path)
    assert lm.cannot_record == ("completion_bpt", "prompt_bpt")
    assert not lm.weights_loaded
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders_for(PROMPTS, 3, {**SAMPLED, "max_gen_toks": 6}), PROMPTS)
    assert "not recorded: completion_bpt, prompt_bpt" in caplog.text
    assert len({v.text for v in got.values()}) > 6
    for trial in got.values():
        assert trial.completion_tokens == 6 or trial.finish_reason == "stop"
        assert "completion_bpt" not in trial.signals
    again = run(lm, orders_for(PROMPTS, 3, {**SAMPLED, "max_gen_toks": 6})[5:6])
    assert again[5].text == got[5].text


def test_sampling_in_the_models_generation_config_is_not_applied_but_told(tmp_path, caplog):
    folder = save_llama(tmp_path)
    plain = run(made(folder), orders_for(PROMPTS, 2, SAMPLED))
    config = transformers.GenerationConfig(
        eos_token_id=EOS, pad_token_id=0, repetition_penalty=1.3, top_k=2, temperature=0.1
    )
    config.do_sample = True
    config.save_pretrained(folder)
    lm = made(folder)
    with caplog.at_level(logging.WARNING):
        got = run(lm, orders_for(PROMPTS, 2, SAMPLED))
        run(lm, orders_for(PROMPTS, 1, SAMPLED))
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in plain.items()}
    (words,) = [m for m in caplog.messages if "which is not applied" in m]
    assert "repetition_penalty=1.3" in words
    assert "top_k=2" in words
    assert "temperature" not in words
    # nor is it where transformers' own generate draws
    assert lm._generation_config.repetition_penalty == 1.3
    forced = {**SAMPLED, "no_repeat_ngram_size": 20}
    assert run(lm, orders_for(PROMPTS, 1, forced))[0].text == (
        run(made(save_llama(tmp_path / "plain")), orders_for(PROMPTS, 1, forced))[0].text
    )
