"""Backends without a sampling mixin: small calls, stored as they come; SGLang's reports."""

from __future__ import annotations

import importlib.machinery
import random
import types

import pytest
from _support.errors import refused
from _support.trial_requests import instances_of, trial_request
from lm_eval.api.model import LM

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.backends import GenericSampling, SGLangSampling
from lm_eval_bayes.harness.models.interface import RequestStream
from lm_eval_bayes.harness.models.trials import RecordingMixin, recording_class
from lm_eval_bayes.store.trial_store import TrialStore

KWARGS = {"temperature": 1.0, "until": ["STOP"], "max_gen_toks": 16, "do_sample": True}


class SlowLM(LM):
    """A backend that counts its calls."""

    def __init__(self, batch_size=1, num_concurrent=1, **kwargs):
        super().__init__()
        self.batch_size, self._concurrent = batch_size, num_concurrent
        self.calls = []

    def loglikelihood(self, requests):
        raise AssertionError

    loglikelihood_rolling = loglikelihood

    def generate_until(self, requests, disable_tqdm=False):
        assert disable_tqdm
        self.calls.append([request.args[0] for request in requests])
        return [f"{request.args[0]} {len(self.calls)}" for request in requests]


Slow = type("Slow", (RecordingMixin, GenericSampling, SlowLM), {"backend_name": "slow"})


def ask(lm, prompts, n):
    return lm.generate_until(instances_of(prompts, n, KWARGS), disable_tqdm=True)


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ({"batch_size": 4}, [4, 4, 1]),
        ({"batch_size": "4"}, [4, 4, 1]),
        ({"batch_size": "auto"}, [9]),
        ({"batch_size": 1, "num_concurrent": 2}, [8, 1]),
    ],
)
def test_a_call_is_as_large_as_the_backend_allows(tmp_path, arguments, sizes):
    """Three questions with three trials: no call ends at the end of a trial number."""
    lm = Slow(store=str(tmp_path / "s.sqlite"), **arguments)
    texts = ask(lm, ["a", "b", "c"], 3)
    assert [text.signals["seed"] for text in texts] == [None] * 9
    assert [len(call) for call in lm.calls] == sizes
    assert [prompt for call in lm.calls for prompt in call] == ["a", "b", "c"] * 3


def test_a_stream_is_taken_call_by_call_and_may_end():
    lm = Slow(store=None, batch_size=3)
    instance = new_instance({}, ("a", KWARGS), task="demo", repeats=9)
    requests = [trial_request(i, "a", "a", i, i, KWARGS, instance) for i in range(9)]
    stream = RequestStream(requests[:1], 9, iter(requests))
    got = []
    for request, trial in lm.sample(stream, frozenset()):
        got.append((request.trial, trial.text))
        if request.trial == 3:
            stream.end(60.0)
    # the call that was running is yielded, and no further one is made
    assert [number for number, _ in got] == [0, 1, 2, 3, 4, 5]
    assert stream.given == 6


# -- SGLang: the harness's class, which needs a GPU, around an engine of the real one's shape -----


class Tokenizer:
    """A letter is a token."""

    eos_token_id = bos_token_id = 0

    def __call__(self, texts, **kwargs):
        many = [texts] if isinstance(texts, str) else texts
        ids = [[ord(letter) for letter in text] for text in many]
        return types.SimpleNamespace(input_ids=ids[0] if isinstance(texts, str) else ids)

    def decode(self, tokens):
        return "</s>"


#: What SGLang's SamplingParams is given.
SETTINGS = {
    *("temperature", "max_new_tokens", "max_tokens", "stop", "skip_special_tokens"),
    "spaces_between_special_tokens",
}


class Engine:
    """Answers as the Engine of SGLang 0.5.23 does: a text and `meta_info` for each prompt."""

    def __init__(self, **arguments):
        self.arguments, self.calls = arguments, []
        self.tokenizer_manager = types.SimpleNamespace(tokenizer=Tokenizer(), context_len=512)
        self.rng = random.Random(1)

    def generate(self, input_ids, sampling_params, **kwargs):
        self.calls.append(input_ids)
        outputs = []
        for tokens, params in zip(input_ids, sampling_params, strict=True):
            assert set(params) <= SETTINGS
            assert params["temperature"] == 1.0
            count = self.rng.randrange(5, 16)
            long = count > 10
            text = "".join(self.rng.choice("abc") for _ in range(count))
            text += "" if long else "STOP and more"
            reason = {"type": "length", "length": 16} if long else {"type": "stop", "matched": 7}
            meta = {"finish_reason": reason, "prompt_tokens": len(tokens)}
            outputs.append({"text": text, "meta_info": {**meta, "completion_tokens": count}})
        return outputs


@pytest.fixture
def sglang(monkeypatch):
    module = types.ModuleType("sglang")
    module.__spec__ = importlib.machinery.ModuleSpec("sglang", None)
    module.Engine = Engine
    monkeypatch.setitem(__import__("sys").modules, "sglang", module)
    from lm_eval.models import sglang_causallms

    monkeypatch.setattr(sglang_causallms, "sgl", module, raising=False)
    return sglang_causallms.SGLangLM


@pytest.mark.parametrize("batch_size", [4, "auto"])
def test_sglang_reports_tokens_and_finish_reasons(sglang, tmp_path, batch_size):
    lm = recording_class("sglang")(
        store=str(tmp_path / "s.sqlite"), pretrained="org/model", batch_size=batch_size
    )
    assert isinstance(lm, SGLangSampling)
    assert isinstance(lm, sglang)
    prompts = ["short", "a longer prompt", "mid prompt"]
    texts = ask(lm, prompts, 4)
    for text, prompt in zip(texts, [p for p in prompts for _ in range(4)], strict=True):
        assert text.signals["prompt_tokens"] == len(prompt)
        # the text of this engine has as many letters as tokens, up to its stop string
        assert text.signals["completion_tokens"] == len(text)
        assert text.signals["finish_reason"] == ("length" if len(text) > 10 else "stop")
        assert text.signals["stop_reason"] == (None if len(text) > 10 else 7)
    assert len(set(texts)) > 9
    assert lm._outputs == {}


@pytest.mark.parametrize(
    ("argument", "value"),
    [("enable_deterministic_inference", "True"), ("random_seed", 7)],
)
def test_sglang_with_fixed_random_numbers_is_refused(sglang, tmp_path, argument, value):
    with refused(argument, "unsupported", value, error=ModelConfigError):
        recording_class("sglang")(
            store=str(tmp_path / "s.sqlite"), pretrained="org/model", **{argument: value}
        )


def test_an_answer_that_sglang_aborted_is_not_stored(sglang, tmp_path, monkeypatch):
    def aborted(self, input_ids, sampling_params, **kwargs):
        meta = {"finish_reason": {"type": "abort", "message": "out of memory"}}
        return [{"text": "ab", "meta_info": meta} for _ in input_ids]

    monkeypatch.setattr(Engine, "generate", aborted)
    path = tmp_path / "s.sqlite"
    lm = recording_class("sglang")(store=str(path), pretrained="org/model")
    with pytest.raises(RuntimeError, match="out of memory"):
        ask(lm, ["a"], 1)
    lm.sink.store.close()
    with TrialStore.open(path, mode="read") as stored:
        assert stored.info().trials == 0
