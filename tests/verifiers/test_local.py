"""The judges that run here, with little random models; and what is asked of vLLM."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest
from _support.errors import refused

from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, verifier_prompt
from lm_eval_bayes.verifiers import local_judge as pretrained_module
from lm_eval_bayes.verifiers.backends import JudgeSettings
from lm_eval_bayes.verifiers.judge import VerifierError
from lm_eval_bayes.verifiers.local_judge import Pretrained, dtype_of, read_pretrained
from lm_eval_bayes.verifiers.transformers_judge import TransformersJudge
from lm_eval_bayes.verifiers.vllm_judge import VLLMJudge

LOCAL = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
needs_torch = pytest.mark.skipif(not LOCAL, reason="needs torch and transformers")
pytestmark = pytest.mark.filterwarnings("default")

PROMPTS = [
    verifier_prompt(
        VerifierInput(f"Question {i}?", "42", "It is so. " * (i * i % 11) + f"It is {40 + i}.")
    )
    for i in range(9)
]

# -- small things ------------------------------------------------------------------------------


def test_types():
    stored = SimpleNamespace(dtype="torch.bfloat16")
    assert dtype_of("auto", stored, on_cpu=True) == "float32"
    assert dtype_of("auto", stored, on_cpu=False) == "bfloat16"
    assert dtype_of("float16", stored, on_cpu=True) == "float16"


def test_a_verifier_without_a_name():
    with refused("verifier", "empty", " "):
        JudgeSettings(" ")


@pytest.mark.parametrize(
    ("kind", "package"),
    [(TransformersJudge, "torch"), (read_pretrained, "torch"), (VLLMJudge, "vllm")],
)
def test_without_its_packages_a_local_judge_says_what_to_install(kind, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_STREAM"):
        monkeypatch.setenv(name, "set")
    with refused("--backend", "not-installed", error=VerifierError):
        kind("judge")


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
    judge = TransformersJudge(folder, device="cpu")
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
    judge = TransformersJudge(str(tmp_path), device="cpu")
    for scores, prompt in zip(judge.scores(PROMPTS[:4]), PROMPTS[:4], strict=True):
        assert scores == pytest.approx(by_hand(str(tmp_path), prompt), abs=2e-4)


@needs_torch
def test_the_fingerprint_is_there_before_the_weights(tiny, tmp_path):
    judge = TransformersJudge(tiny, weights="blake2b-128:0a", device="cpu", max_length=2000)
    assert judge._model is None
    fingerprint = dict(judge.fingerprint)
    template = fingerprint.pop("chat_template")
    assert template.startswith("blake2b-128:")
    assert fingerprint == {
        "kind": "transformers",
        "name": Path(tiny).name,
        "weights": "blake2b-128:0a",
        "dtype": "float32",
        "labels": dict(zip("ABC", judge._pretrained.label_tokens.labels, strict=True)),
        "prompt": 1,
        "max_length": 2000,
    }
    assert (judge.unit, judge.limit) == ("tokens", 2000)
    assert judge.length("abc") == len("abc") + 2
    assert {"<pad>", "<eos>", "<turn>"} <= set(judge.control_tokens)
    assert TransformersJudge(tiny, device="cpu").limit == 4096


@needs_torch
def test_a_batch_without_room_is_halved(tiny, monkeypatch):
    import torch

    judge = TransformersJudge(tiny, device="cpu")
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
        TransformersJudge(str(tmp_path / "absent"))
    assert "\n" not in str(caught.value)
    with refused("max_length", "range", 5000):
        TransformersJudge(tiny, max_length=5000)
    judge = TransformersJudge(tiny, device="nowhere")
    with refused("verifier", "failed", error=VerifierError):
        judge.scores(PROMPTS[:1])


# -- vLLM --------------------------------------------------------------------------------------


class Slot:
    """Stands in for a tokenizer."""

    labels, control_tokens, chat = (11, 12, 13), ("<pad>",), True

    def tokens(self, prompt):
        return list(prompt.encode())

    def length(self, prompt):
        return len(self.tokens(prompt))


class FakeVLLM(types.ModuleType):
    """vLLM as far as a judge asks it; the scores are settled by a prompt's length."""

    def __init__(self):
        super().__init__("vllm")
        self.built, self.asked, self.down = [], [], []
        module = self

        class SamplingParams:
            def __init__(self, *, logprob_token_ids, **more):
                others = {"max_tokens": 1, "temperature": 0.0, "logprobs": 3, "detokenize": False}
                assert more == others
                self.labels = logprob_token_ids

        class LLM:
            def __init__(self, **arguments):
                if arguments["model"] == "broken":
                    raise RuntimeError("no room\nTraceback")
                module.built.append(arguments)
                core = SimpleNamespace(shutdown=lambda: module.down.append(1))
                self.llm_engine = SimpleNamespace(engine_core=core)

            def generate(self, rows, params, use_tqdm):
                assert use_tqdm is False
                module.asked.append(len(rows))
                if any(row["prompt_token_ids"] == list(b"die") for row in rows):
                    raise RuntimeError("EngineDeadError")
                return [module.answer(row, params) for row in rows]

        self.SamplingParams, self.LLM = SamplingParams, LLM

    @staticmethod
    def answer(row, params):
        size = len(row["prompt_token_ids"])
        entries = {t: SimpleNamespace(logprob=-size / t) for t in [*params.labels, 99]}
        return SimpleNamespace(outputs=[SimpleNamespace(logprobs=[entries])])


@pytest.fixture
def vllm(monkeypatch):
    module = FakeVLLM()
    platforms = types.ModuleType("vllm.platforms")
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_STREAM"):
        monkeypatch.setenv(name, "mine")

    def read(name, revision=None):
        return Pretrained(name, revision, SimpleNamespace(), SimpleNamespace(), Slot(), 512)

    monkeypatch.setattr("lm_eval_bayes.verifiers.local_judge.read_pretrained", read)
    return module


def test_vllm_is_asked_for_three_tokens_and_makes_its_own_batches(vllm):
    judge = VLLMJudge("org/judge", revision="v1", batch_size=6)
    assert judge.limit == 511  # the label takes a place
    assert vllm.built == []
    assert judge.scores(["abc", "abcdef"]) == [
        pytest.approx((-3 / 11, -3 / 12, -3 / 13)),
        pytest.approx((-6 / 11, -6 / 12, -6 / 13)),
    ]
    judge.scores(["x"] * 5)
    assert vllm.asked == [2, 5]
    (arguments,) = vllm.built
    assert arguments == {
        "model": "org/judge",
        "revision": "v1",
        "tokenizer_revision": "v1",
        "dtype": "float32",
        "max_logprobs": 3,
        "seed": 0,
        "max_num_seqs": 6,
        "enable_prefix_caching": True,
        "max_model_len": 512,
    }
    judge.close()
    judge.close()
    assert vllm.down == [1]
    assert judge.fingerprint["kind"] == "vllm"
    assert (judge.unit, judge.control_tokens, judge.length("abc")) == ("tokens", ("<pad>",), 3)


def test_trouble_with_vllm_is_one_sentence(vllm):
    with refused("verifier", "failed", "broken", error=VerifierError):
        VLLMJudge("broken").scores(["x"])
    with refused("verifier", "failed", None, error=VerifierError):
        VLLMJudge("judge").scores(["die"])
    with refused("device", "unsupported", "cuda:1", error=VerifierError):
        VLLMJudge("judge", device="cuda:1")
    with refused("max_length", "range", 512):
        VLLMJudge("judge", max_length=512)


def test_the_window_is_found_where_configurations_keep_it():
    window = pretrained_module._window
    assert window(SimpleNamespace(n_positions=9), None) == 9
    inner = SimpleNamespace(max_position_embeddings=10)
    outer = SimpleNamespace(get_text_config=lambda: inner, max_position_embeddings=5)
    assert window(outer, None) == 10
    assert window(SimpleNamespace(), SimpleNamespace(model_max_length=77)) == 77
    assert window(SimpleNamespace(), SimpleNamespace(model_max_length=int(1e30))) is None
