"""The judge that runs here, with little random models."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from _support.errors import refused

from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, verifier_prompt
from lm_eval_bayes.verifiers import local_judge
from lm_eval_bayes.verifiers.judge import VerifierError
from lm_eval_bayes.verifiers.local_judge import LocalJudge
from lm_eval_bayes.verifiers.verification import judge_maker

LOCAL = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
needs_torch = pytest.mark.skipif(not LOCAL, reason="needs torch and transformers")
pytestmark = pytest.mark.filterwarnings("default")

PROMPTS = [
    verifier_prompt(
        VerifierInput(f"Question {i}?", "42", "It is so. " * (i * i % 11) + f"It is {40 + i}.")
    )
    for i in range(9)
]


def test_a_verifier_without_a_name():
    with refused("--verifier", "empty", " "):
        judge_maker(" ", str)


def test_without_its_packages_a_local_judge_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with refused("verifier", "not-installed", error=VerifierError):
        LocalJudge("judge")


# -- transformers ------------------------------------------------------------------------------

CHAT = "{% for m in messages %}<turn>{{ m['content'] }}{% endfor %}<turn>"


@pytest.fixture(scope="module")
def save(tmp_path_factory):
    from _support.tiny_hf import byte_tokenizer, save_llama

    def saved(chat=CHAT, seed=0, **changes):
        folder = tmp_path_factory.mktemp("tiny")
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = chat
        more = {"max_position_embeddings": 4096, "initializer_range": 0.2, **changes}
        return save_llama(folder, tokenizer, seed, **more)

    return saved


@pytest.fixture(scope="module")
def tiny(save):
    return save()


def by_hand(folder, prompt, chat=CHAT):
    """The labels' log-probabilities by a plain forward pass over one unpadded row, in float64."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = f"<turn>{prompt}<turn>" if chat else prompt + "\n\nLabel:"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1].double()
    labels = [tokenizer(label, add_special_tokens=False)["input_ids"] for label in "ABC"]
    assert [len(label) for label in labels] == [1, 1, 1]
    logprobs = logits - torch.logsumexp(logits, 0)
    return [float(logprobs[label[0]]) for label in labels]


@needs_torch
@pytest.mark.parametrize("chat", [CHAT, None], ids=["chat", "plain"])
def test_scores_equal_a_plain_forward_pass_whatever_the_batch(save, chat):
    folder = save(chat)
    judge = LocalJudge(folder, device="cpu")
    expected = [by_hand(folder, prompt, chat) for prompt in PROMPTS]
    assert len({round(score, 3) for row in expected for score in row}) > 20
    together = judge.scores(PROMPTS)
    judge.close()
    alone = [judge.scores([prompt])[0] for prompt in PROMPTS]
    for scores, other, truth in zip(together, alone, expected, strict=True):
        assert scores == pytest.approx(truth, abs=2e-5)
        assert other == pytest.approx(truth, abs=2e-5)


@needs_torch
def test_learned_positions_start_at_the_first_token_of_every_row(tmp_path, tiny):
    """GPT-2 counts positions itself unless it is told; padding must not shift them."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = transformers.GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=4096,
            n_embd=32,
            n_layer=2,
            n_head=4,
            initializer_range=0.3,
        )
        transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    judge = LocalJudge(str(tmp_path), device="cpu")
    for scores, prompt in zip(judge.scores(PROMPTS[:4]), PROMPTS[:4], strict=True):
        assert scores == pytest.approx(by_hand(str(tmp_path), prompt), abs=2e-4)


@needs_torch
def test_the_fingerprint_is_there_before_the_weights(tiny, tmp_path):
    judge = LocalJudge(tiny, weights="blake2b-128:0a", device="cpu", max_length=2000)
    assert judge._model is None
    fingerprint = dict(judge.fingerprint)
    template = fingerprint.pop("chat_template")
    assert template.startswith("blake2b-128:")
    assert fingerprint == {
        "kind": "transformers",
        "name": Path(tiny).name,
        "weights": "blake2b-128:0a",
        "dtype": "float32",
        "labels": dict(zip("ABC", judge._label_tokens.labels, strict=True)),
        "prompt": 1,
        "max_length": 2000,
    }
    assert (judge.unit, judge.limit) == ("tokens", 2000)
    assert judge.length("abc") == len("abc") + 2
    assert {"<pad>", "<eos>", "<turn>"} <= set(judge.control_tokens)
    assert LocalJudge(tiny, device="cpu").limit == 4096


@needs_torch
def test_a_batch_without_room_is_halved(tiny, monkeypatch):
    import torch

    judge = LocalJudge(tiny, device="cpu")
    expected = judge.scores(PROMPTS)
    sizes, forward = [], judge._forward

    def small(rows):
        sizes.append(len(rows))
        if len(rows) > room:
            raise torch.cuda.OutOfMemoryError("no room")
        return forward(rows)

    monkeypatch.setattr(judge, "_forward", small)
    room = 2
    for scores, other in zip(judge.scores(PROMPTS), expected, strict=True):
        assert scores == pytest.approx(other, abs=2e-5)
    assert sizes == [9, 4, 2, 2, 5, 2, 3, 1, 2]
    room = 0
    with refused("--max-length", "failed", error=VerifierError):
        judge.scores(PROMPTS[:2])


@needs_torch
def test_models_that_will_not_do(tmp_path, tiny):
    with refused("verifier", "path", str(tmp_path / "absent"), error=VerifierError) as caught:
        LocalJudge(str(tmp_path / "absent"))
    assert "\n" not in str(caught.value)
    with refused("max_length", "range", 5000):
        LocalJudge(tiny, max_length=5000)
    judge = LocalJudge(tiny, device="nowhere")
    with refused("verifier", "failed", error=VerifierError):
        judge.scores(PROMPTS[:1])


def test_the_window_is_found_where_configurations_keep_it():
    window = local_judge._window
    assert window(SimpleNamespace(n_positions=9), None) == 9
    inner = SimpleNamespace(max_position_embeddings=10)
    outer = SimpleNamespace(get_text_config=lambda: inner, max_position_embeddings=5)
    assert window(outer, None) == 10
    assert window(SimpleNamespace(), SimpleNamespace(model_max_length=77)) == 77
    assert window(SimpleNamespace(), SimpleNamespace(model_max_length=int(1e30))) is None
