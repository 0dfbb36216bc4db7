"""Prompts, the ends of responses and their texts, compared with the harness's own."""

import functools
import logging
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.errors import refused
from _support.tiny_hf import (
    EOS,
    SAMPLED,
    TURN,
    byte_tokenizer,
    recorded_tokens,
    requests_for,
    run,
    save_llama,
    tiny_model,
    word_tokenizer,
)
from _support.trial_requests import stream_of, trial_request
from lm_eval.models.huggingface import HFLM

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.api_seeds import trial_seed

# transformers and torch warn of their own affairs
pytestmark = pytest.mark.filterwarnings("default")


def test_the_end_of_the_sequence_the_length_and_further_end_tokens(tmp_path, monkeypatch):
    folder = save_llama(tmp_path, word_tokenizer(12), initializer_range=0.1)
    config = transformers.GenerationConfig(eos_token_id=[EOS, TURN], pad_token_id=0)
    config.save_pretrained(folder)
    lm = tiny_model(folder)
    tokens = recorded_tokens(monkeypatch)
    got = run(lm, requests_for(["w4 w5", "w6"], 40, {**SAMPLED, "max_gen_toks": 6}))
    seen = set()
    for index, trial in got.items():
        own = tokens[index]
        seen.add((trial.finish_reason, trial.stop_reason))
        ended = own[-1] in (EOS, TURN)
        assert not {EOS, TURN} & set(own[:-1])
        assert trial.finish_reason == ("stop" if ended else "length")
        assert trial.stop_reason == (TURN if own[-1] == TURN else None)
        assert trial.completion_tokens == len(own) == 6 or ended
        assert trial.text == lm.tok_decode(own)
        assert "<" not in trial.text
    assert seen == {("stop", None), ("stop", TURN), ("length", None)}


def scripted_trial(lm, text, monkeypatch, **kwargs):
    """Sample one trial from a model that says `text`."""
    script = [*lm.tokenizer.encode(text, add_special_tokens=False), EOS]
    model, said = lm.model, []
    forward = model.forward

    def scripted(*args, **arguments):
        out = forward(*args, **arguments)
        out.logits = torch.full_like(out.logits, -30.0)
        out.logits[..., script[min(len(said), len(script) - 1)]] = 30.0
        said.append(out)
        return out

    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", functools.wraps(forward)(scripted))
        ((_, got),) = lm.sample(
            stream_of(requests_for(["so"], 1, {**SAMPLED, "max_gen_toks": len(script), **kwargs})),
            frozenset(),
        )
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
    got, _ = scripted_trial(byte_lm, text, monkeypatch, until=until)
    assert got.completion_tokens == count
    assert got.finish_reason == "stop"
    assert got.stop_reason == reason
    assert byte_lm.finished_text(got.text, {"until": until}, got.signals) == finished


@pytest.mark.parametrize("limit", [1, 4, 9])
def test_a_stop_in_the_last_tokens_before_the_length_counts(byte_lm, monkeypatch, limit):
    arguments = {"until": ["x" * limit], "max_gen_toks": limit}
    got, _ = scripted_trial(byte_lm, "xxxxxxxxxx!", monkeypatch, **arguments)
    assert (got.finish_reason, got.completion_tokens) == ("stop", limit)


def harness_text(lm, tokens, kwargs, monkeypatch):
    """What the harness's own generate_until makes of these tokens."""

    def generate(context, **_):
        made_up = torch.tensor([[*context[0].tolist(), *tokens]])
        return made_up

    with monkeypatch.context() as patch:
        patch.setattr(lm, "_model_generate", generate)
        request = new_instance({}, ("so", {**kwargs, "until": [*kwargs["until"]]}))
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
    lm = tiny_model(
        save_llama_once(byte_folder, tokenizer),
        tokenizer=tokenizer,
        think_end_token=token if think == "int" else think,
    )
    got, script = scripted_trial(lm, text, monkeypatch, until=until)
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


def test_a_prompt_that_does_not_fit_is_cut_on_the_left_and_says_so(words, caplog):
    lm = tiny_model(words, max_length=12)
    prompts, kwargs = ["w9 w4 w5 w6 w7", "w7"], {**SAMPLED, "max_gen_toks": 10}
    with caplog.at_level(logging.WARNING):
        got = run(lm, requests_for(prompts, 1, kwargs), prompts)
    assert [got[i].signals["prompt_truncated"] for i in range(2)] == [True, False]
    assert got[0].prompt_tokens == 2
    assert "prompt_bpt" not in got[0].signals
    assert "a prompt was cut to its last 2 tokens" in caplog.text
    cut = trial_request(0, "w6 w7", "w6 w7", 0, trial_seed(1234, 0, prompts[0]), kwargs)
    assert run(tiny_model(words), [cut])[0].text == got[0].text


def test_no_room_for_the_prompt_is_refused(words):
    lm = tiny_model(words, max_length=10)
    with refused("max_gen_toks", "range", 10, error=ModelConfigError):
        run(lm, requests_for(["w4"], 1, {**SAMPLED, "max_gen_toks": 10}))
    assert not lm.weights_loaded


def test_an_empty_prompt_is_refused(words):
    with refused("prompt", "empty", "", error=ModelConfigError):
        run(tiny_model(words), requests_for([""], 1, SAMPLED))
