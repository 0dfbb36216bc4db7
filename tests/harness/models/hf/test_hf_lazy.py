"""When the transformers backend reads weights, and what it says of a model before it does."""

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.errors import refused
from _support.tiny_hf import PROMPTS, SAMPLED, TinyHF, requests_for, run, save_llama, tiny_model
from _support.trial_requests import stream_of
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_bayes._util.hashing import canonical_json

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def folder(tmp_path):
    return save_llama(tmp_path / "model")


def test_making_the_object_reads_configuration_and_tokenizer_only(folder):
    lm = tiny_model(folder)
    lm.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    assert lm.max_length == 256
    assert lm.tok_encode("w4 w5") == [4, 5]
    assert lm.apply_chat_template([{"role": "user", "content": "w4"}]) == "w4"
    assert (lm.rank, lm.world_size, lm.tokenizer_name) == (0, 1, folder.replace("/", "__"))
    assert str(lm.device) == "cpu"
    canonical_json(lm.fingerprint())
    assert set(lm.versions()) >= {"torch", "transformers", "lm_eval"}
    assert list(lm.sample(stream_of([]), frozenset())) == []
    assert not lm.weights_loaded
    assert run(lm, requests_for(PROMPTS, 1, SAMPLED))
    assert lm.weights_loaded


def test_a_model_read_late_is_the_model_that_the_harness_reads(folder):
    lm, stock = (
        tiny_model(folder, dtype="bfloat16"),
        HFLM(pretrained=folder, device="cpu", dtype="bfloat16"),
    )
    request = Instance("loglikelihood", {}, ("w4 w5", " w6 w7"), 0)
    assert not lm.weights_loaded
    assert lm.loglikelihood([request], True) == stock.loglikelihood([request], True)
    assert lm.weights_loaded
    assert lm.model.dtype == stock.model.dtype == torch.bfloat16
    assert not lm.model.training
    ours, theirs = lm.model.state_dict(), stock.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("given", [{"device_map": "cpu"}, {"peft": "a"}, {"delta": "a"}])
def test_what_is_more_than_reading_files_is_done_at_once(folder, given, monkeypatch):
    loaded = []
    monkeypatch.setattr(HFLM, "_create_model", lambda self, **given: loaded.append(given))
    with pytest.raises(AttributeError):  # no model was created
        tiny_model(folder, **given)
    assert [arguments[name] for name in given for arguments in loaded] == list(given.values())


class Driver(TinyHF):
    samples_elsewhere = True


@pytest.mark.parametrize("given", [{}, {"parallelize": True}, {"gguf_file": None}])
def test_where_other_processes_sample_no_weights_are_read(folder, given):
    lm = Driver(pretrained=folder, device="cpu", **given)
    alone = tiny_model(folder)
    assert lm.max_length == alone.max_length
    assert lm.fingerprint()["weights"] == alone.fingerprint()["weights"]
    assert not lm.weights_loaded


def test_several_processes_read_at_once(folder, monkeypatch):
    read = []
    monkeypatch.setattr(HFLM, "_create_model", lambda self, **given: read.append(given))
    monkeypatch.setenv("WORLD_SIZE", "2")
    lm = object.__new__(TinyHF)
    lm._create_model(pretrained=folder)
    assert (read, lm.weights_loaded) == ([{"pretrained": folder}], True)


def test_a_model_given_as_an_object_is_refused(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with refused("pretrained", "path"):
        TinyHF(pretrained=model, batch_size=4).fingerprint()


def test_weights_that_are_missing_are_missed_when_they_are_needed(folder):
    lm = tiny_model(folder)
    (Path(folder) / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        run(lm, requests_for(PROMPTS, 1, SAMPLED))
    assert not lm.weights_loaded


def changed(folder, change):
    change(Path(folder))
    return tiny_model(folder).fingerprint()


def rewrite(name, **entries):
    def change(folder):
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    return change


def test_the_fingerprint_knows_what_changes_the_distribution(folder, tmp_path):
    first = tiny_model(folder).fingerprint()
    for arguments in (
        {"dtype": "bfloat16"},
        {"max_length": 100},
        {"add_bos_token": True},
        {"mixed_precision_dtype": "bfloat16"},
        # an argument that is passed on to transformers may change anything
        {"rope_theta": 5.0},
    ):
        assert tiny_model(folder, **arguments).fingerprint() != first, arguments
    copy = str(tmp_path / "copy")
    shutil.copytree(folder, copy)
    same = tiny_model(copy).fingerprint()
    assert {**same, "pretrained": folder} == first
    for change in (
        rewrite("config.json", rms_norm_eps=0.5),
        rewrite("generation_config.json", eos_token_id=[2, 3]),
        lambda f: save_llama(f, seed=9),
    ):
        before = tiny_model(copy).fingerprint()
        assert changed(copy, change) != before


def test_the_fingerprint_ignores_what_changes_only_speed(folder):
    first = tiny_model(folder).fingerprint()
    for arguments in (
        {"batch_size": "auto", "max_batch_size": 3, "attn_implementation": "eager"},
        {"think_end_token": "</think>"},
        {"dtype": "float32"},
    ):
        assert tiny_model(folder, **arguments).fingerprint() == first, arguments
    rewrite("config.json", transformers_version="0.0.1")(Path(folder))
    lm = tiny_model(folder)
    assert lm.fingerprint() == first
    lm.load()
    assert lm.fingerprint() == first
