"""Ctrl-C of `lm_eval --model trials` ends in one sentence, with the command that resumes."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("lm_eval", reason="the harness is not installed")

from lm_eval_bayes.harness.plugin.interruption import stopped
from lm_eval_bayes.harness.plugin.wrappers import _one_line
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "my trials.sqlite".replace(" ", "_")
    with TrialStore.open(path) as store:
        key = TrialKey(
            store.describe_model({}), store.describe_prompts(["q"])[0], store.describe_sampling({})
        )
        store.add([Trial(key, i, str(i)) for i in range(3)])
    arguments = f"backend=biased_coin,p=0.5,store={path}"
    return ["/usr/bin/lm_eval", "run", "--model", "trials", "--model_args", arguments]


def test_the_sentence_has_what_is_stored_and_the_command(words):
    path = words[-1].rpartition("=")[2]
    assert stopped([*words, "--metadata", '{"bayes_n": 4}']) == (
        f"stopped; stored: 3 trials in {path}; to resume, run: lm_eval run --model trials "
        f"--model_args backend=biased_coin,p=0.5,store={path} --metadata '{{\"bayes_n\": 4}}'"
    )


def test_a_store_in_use_a_missing_one_and_none(words, tmp_path):
    path = words[-1].rpartition("=")[2]
    with TrialStore.open(path) as store, store.file.writing():
        assert "stored: 3 trials in" in stopped(words)
    (tmp_path / "other").write_text("no store")
    assert "stored: the trials in" in stopped(["lm_eval", f"store={tmp_path / 'other'}"])
    assert "stored: nothing yet" in stopped(["lm_eval", "--model_args", "store=absent.sqlite"])
    assert stopped(["lm_eval", "run", "--model", "hf"]) is None


@pytest.mark.parametrize(
    "secret",
    ["api_key=abcdef", "header=x", "base_url=http://me:pw@host/v1", "hf_token=hf_" + "a" * 20],
)
def test_a_command_with_a_secret_is_not_printed(words, secret):
    sentence = stopped([*words[:-1], f"{words[-1]},{secret}"])
    assert sentence.endswith("to resume, run the same command again")
    assert secret.partition("=")[2] not in sentence


def test_the_hook_prints_it_in_place_of_a_traceback(words, monkeypatch, capsys):
    seen = []
    hook = _one_line(lambda *error: seen.append(error))
    monkeypatch.setattr(sys, "argv", words)
    hook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err.startswith("\nlm-eval-bayes: stopped; stored: 3 trials in ")
    assert seen == []
    monkeypatch.setattr(sys, "argv", ["lm_eval"])
    hook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert len(seen) == 1
