"""Other architectures, and settings that transformers' own generate applies."""

import logging

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.errors import refused
from _support.tiny_hf import (
    EOS,
    GREEDY,
    PROMPTS,
    SAMPLED,
    recorded_tokens,
    reference_bits,
    requests_for,
    run,
    save_llama,
    shape,
    tiny_model,
    word_tokenizer,
)
from lm_eval.models.huggingface import HFLM

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.hf import sampling as hf_module

# transformers and torch warn of their own affairs
pytestmark = pytest.mark.filterwarnings("default")


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
    monkeypatch.setattr(hf_module, "_CHUNK", 3)
    lm = tiny_model(tmp_path, dtype="float32")
    tokens = recorded_tokens(monkeypatch)
    got = run(lm, requests_for(PROMPTS, 4, {**SAMPLED, "temperature": 0.5}), PROMPTS)
    for index, trial in got.items():
        ids = lm.tok_encode(PROMPTS[index % 4])
        wanted = reference_bits(lm, ids, tokens[index])
        assert trial.signals["completion_bpt"] == pytest.approx(wanted, abs=2e-5)
    prompt = lm.tok_encode(PROMPTS[2])
    wanted = reference_bits(lm, prompt[:1], prompt[1:])
    assert got[2].signals["prompt_bpt"] == pytest.approx(wanted, abs=2e-5)
    greedy = run(lm, requests_for(PROMPTS, 1, GREEDY))
    requests = [new_instance({}, (p, {**GREEDY})) for p in PROMPTS]
    texts = HFLM.generate_until(lm, requests, disable_tqdm=True)
    assert [lm.finished_text(greedy[i].text, GREEDY, {}) for i in range(4)] == texts


def test_further_settings_are_transformers_own(lm, monkeypatch):
    kwargs = {**SAMPLED, "repetition_penalty": 50.0, "max_gen_toks": 12}
    tokens = recorded_tokens(monkeypatch)
    state = torch.random.get_rng_state()
    got = run(lm, requests_for(PROMPTS, 2, kwargs), PROMPTS)
    again = run(lm, requests_for(PROMPTS, 2, kwargs)[::-1])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in again.items()}
    assert len({v.text for v in got.values()}) > 6
    for index, trial in got.items():
        ids = lm.tok_encode(PROMPTS[index % 4])
        # the bits are those of the model without the penalty
        assert trial.signals["completion_bpt"] == pytest.approx(
            reference_bits(lm, ids, tokens[index]), abs=2e-5
        )
        # the penalty is so large that no token comes twice
        assert len(set(tokens[index])) == len(tokens[index])
    assert sum("prompt_bpt" in v.signals for v in got.values()) == 3


@pytest.mark.parametrize("name", ["num_beams", "num_return_sequences"])
def test_several_sequences_of_a_trial_are_refused(lm, name):
    with refused(name, "unsupported", 2, error=TaskConfigError):
        run(lm, requests_for(PROMPTS, 1, {**SAMPLED, name: 2}))


def test_a_setting_that_transformers_does_not_know_is_a_sentence(lm):
    with refused("no_such_setting", "unsupported", 3, error=TaskConfigError):
        run(lm, requests_for(PROMPTS, 1, {**SAMPLED, "no_such_setting": 3}))


def test_an_encoder_with_a_decoder(tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}
    tokens = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": EOS}
    config = transformers.T5Config(**sizes, **tokens, num_heads=4)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    lm = tiny_model(tmp_path)
    assert lm.cannot_record == ("completion_bpt", "prompt_bpt")
    assert not lm.weights_loaded
    got = run(lm, requests_for(PROMPTS, 3, {**SAMPLED, "max_gen_toks": 6}), PROMPTS)
    assert len({v.text for v in got.values()}) > 6
    for trial in got.values():
        assert trial.completion_tokens == 6 or trial.finish_reason == "stop"
        assert "completion_bpt" not in trial.signals
    again = run(lm, requests_for(PROMPTS, 3, {**SAMPLED, "max_gen_toks": 6})[5:6])
    assert again[5].text == got[5].text


def test_sampling_in_the_models_generation_config_is_not_applied_but_told(tmp_path, caplog):
    folder = save_llama(tmp_path)
    plain = run(tiny_model(folder), requests_for(PROMPTS, 2, SAMPLED))
    config = transformers.GenerationConfig(
        eos_token_id=EOS, pad_token_id=0, repetition_penalty=1.3, top_k=2, temperature=0.1
    )
    config.do_sample = True
    config.save_pretrained(folder)
    lm = tiny_model(folder)
    with caplog.at_level(logging.WARNING):
        got = run(lm, requests_for(PROMPTS, 2, SAMPLED))
        run(lm, requests_for(PROMPTS, 1, SAMPLED))
    assert {k: v.text for k, v in got.items()} == {k: v.text for k, v in plain.items()}
    (words,) = [m for m in caplog.messages if "which is not applied" in m]
    assert "repetition_penalty=1.3" in words
    assert "top_k=2" in words
    assert "temperature" not in words
    # nor is it where transformers' own generate draws
    assert lm._generation_config.repetition_penalty == 1.3
    forced = {**SAMPLED, "no_repeat_ngram_size": 20}
    assert run(lm, requests_for(PROMPTS, 1, forced))[0].text == (
        run(tiny_model(save_llama(tmp_path / "plain")), requests_for(PROMPTS, 1, forced))[0].text
    )
