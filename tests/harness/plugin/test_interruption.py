"""Ctrl-C of `lm_eval --model trials` ends in one sentence."""

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


def test_a_store_in_use_a_missing_one_and_none(words, tmp_path):
    path = words[-1].rpartition("=")[2]
    with TrialStore.open(path) as store, store.file.writing():
        assert "stored: 3 trials in" in stopped(words)
    (tmp_path / "other").write_text("no store")
    assert "stored: the trials in" in stopped(["lm_eval", f"store={tmp_path / 'other'}"])
    assert "stored: nothing yet" in stopped(["lm_eval", "--model_args", "store=absent.sqlite"])
    assert stopped(["lm_eval", "run", "--model", "hf"]) is None


def test_the_hook_prints_it_in_place_of_a_traceback(words, monkeypatch, capsys):
    seen = []
    hook = _one_line(lambda *error: seen.append(error))
    monkeypatch.setattr(sys, "argv", words)
    hook(KeyboardInterrupt, KeyboardInterrupt(), None)
    path = words[-1].rpartition("=")[2]
    assert capsys.readouterr().err == (
        f"\nlm-eval-bayes: stopped; stored: 3 trials in {path}; "
        "run the same command again to resume\n"
    )
    assert seen == []
    monkeypatch.setattr(sys, "argv", ["lm_eval"])
    hook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert len(seen) == 1
