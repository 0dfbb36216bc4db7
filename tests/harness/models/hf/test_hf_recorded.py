"""`--model trials backend=hf`: the recording class over the sampling mixin and the harness's."""

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, as the harness's hf backend does")

from _support.tiny_hf import PROMPTS, save_llama
from _support.trial_requests import instances_of

from lm_eval_bayes.harness.models.trials import HFSignalsLM, TrialsLM

pytestmark = pytest.mark.filterwarnings("default")

KWARGS = {"do_sample": True, "temperature": 0.8, "until": ["w9"], "max_gen_toks": 16}


def generate(folder, store, trials, **more):
    lm = TrialsLM(
        backend="hf", store=str(store), pretrained=folder, device="cpu", batch_size=8, **more
    )
    answers = lm.generate_until(instances_of(PROMPTS, trials, KWARGS), disable_tqdm=True)
    lm.trial_store.close()
    return lm, [answers[i * trials : (i + 1) * trials] for i in range(len(PROMPTS))]


def test_more_trials_keep_the_first_and_a_full_store_reads_no_weights(tmp_path):
    folder, store = save_llama(tmp_path / "model"), tmp_path / "s.sqlite"
    _, two = generate(folder, store, 2)
    longer, four = generate(folder, store, 4)
    assert [answers[:2] for answers in four] == two
    assert longer.weights_loaded
    again, same = generate(folder, store, 4)
    assert same == four
    assert not again.weights_loaded
    info = again.get_model_info()["trials"]
    assert (info["generated"], info["from_store"]) == (0, 16)
    assert len({text for answers in four for text in answers}) > 8
    signals = four[0][3].signals
    assert signals["trial"] == 3
    assert signals["completion_bpt"] > 0
    assert signals["prompt_bpt"] > 0
    assert signals["finish_reason"] in ("stop", "length")
    assert all("w9" not in text for answers in four for text in answers)


def test_signals_without_a_store(tmp_path):
    lm = HFSignalsLM(pretrained=save_llama(tmp_path), device="cpu", batch_size=8)
    answers = lm.generate_until(instances_of(PROMPTS, 2, KWARGS), disable_tqdm=True)
    assert [answer.signals["trial"] for answer in answers] == [0, 1] * len(PROMPTS)
    assert all(answer.signals["completion_tokens"] >= 1 for answer in answers)
