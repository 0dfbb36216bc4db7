from __future__ import annotations

import json
import logging
import random
import shutil
from string import ascii_letters
from types import SimpleNamespace

import pytest
from _support.errors import refused

from lm_eval_bayes.store.errors import StoreFullError
from lm_eval_bayes.store.prune import verify


@pytest.fixture
def series(store, describe, make_trial):
    """Two models, each at two temperatures, on two questions, four trials each."""
    keys = [
        describe(store, question, {"pretrained": model}, {"temperature": temperature})
        for model in ("a", "b")
        for temperature in (0.5, 1)
        for question in ("one", "two")
    ]
    for key in keys:
        store.add([make_trial(key, i, f"{key.prompt} {i}") for i in range(4)])
        store.add_prompt_signals(key.model, key.prompt, {"bits": 1})
    return keys


def left(store, keys):
    return [sorted(numbers) for numbers in store.numbers_of(keys).values()]


def counts(report):
    return (report.trials, report.prompt_signals, report.models, report.samplings, report.prompts)


def sizes(info):
    counted = (info.trials, info.prompt_signals, len(info.models), len(info.samplings))
    return (*counted, info.prompts)


@pytest.mark.parametrize(
    ("criteria", "wanted"),
    [
        ({"trials_from": 3}, (8, 0, 0, 0, 0)),
        ({"model": 0}, (16, 2, 1, 0, 0)),
        ({"sampling": 0}, (16, 0, 0, 1, 0)),
        ({"prompt": 0}, (16, 2, 0, 0, 1)),
        ({"model": 0, "sampling": 0}, (8, 0, 0, 0, 0)),
        ({"trials_from": 0}, (32, 4, 2, 2, 2)),
    ],
)
def test_a_dry_run_counts_what_is_then_deleted(store, series, path, criteria, wanted):
    criteria = {
        name: value if name == "trials_from" else getattr(series[value], name)
        for name, value in criteria.items()
    }
    before = store.info()
    dry = store.prune(**criteria)
    assert dry.dry_run
    assert counts(dry) == wanted
    assert store.info().series == before.series
    done = store.prune(**criteria, dry_run=False)
    assert counts(done) == wanted
    assert not done.dry_run
    assert [a - b for a, b in zip(sizes(before), sizes(store.info()), strict=True)] == list(wanted)
    assert verify(path).ok
    assert json.loads(json.dumps(done.to_dict()))["trials"] == wanted[0]


def test_what_stays_is_what_does_not_meet_the_criteria(store, series):
    store.prune(model=series[0].model, trials_from=1, dry_run=False)
    assert left(store, series) == [[0]] * 4 + [[0, 1, 2, 3]] * 4


def test_a_prompt_that_waits_for_its_first_trial_stays(store, series):
    waiting = store.describe_prompts(["three"])[0]
    store.prune(trials_from=0, dry_run=False)
    assert store.prompt(waiting) == "three"


def test_a_prompt_that_another_model_measured_stays(store, series, describe, make_trial):
    other = store.describe_model({"pretrained": "c"})
    store.add_prompt_signals(other, series[0].prompt, {"bits": 2})
    report = store.prune(prompt=series[0].prompt, dry_run=False)
    assert (report.trials, report.prompt_signals, report.prompts) == (16, 2, 0)
    assert store.prompt_signals(other, [series[0].prompt]) == {series[0].prompt: {"bits": 2}}


def test_the_room_and_the_words_are_gone(store, key, make_trial, path, plainly):
    rng = random.Random(7)
    texts = [f"secret {i} " + "".join(rng.choices(ascii_letters, k=5_000)) for i in range(300)]
    store.add([make_trial(key, i, text) for i, text in enumerate(texts)])
    big = store.info()
    store.prune(trials_from=10, dry_run=False)
    small = store.info()
    assert small.file_bytes + small.log_bytes < (big.file_bytes + big.log_bytes) / 5
    store.close()
    assert {text for _, text in plainly(path).values()} == set(texts[:10])
    data = path.read_bytes()
    for text in texts[10:]:
        middle = len(text) // 2  # what a dictionary takes of a text
        assert text[middle : middle + 20].encode() not in data


def test_no_room_to_make_it_smaller(store, series, caplog, monkeypatch):
    def full():
        raise StoreFullError("no room")

    monkeypatch.setattr(store.file, "vacuum", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with caplog.at_level(logging.WARNING, "lm_eval.bayes.store"):
        assert store.prune(trials_from=1, dry_run=False).trials == 24
    assert "deleted, but the file keeps its size: no room" in caplog.text


def test_arguments(store, series):
    with refused("prune", "missing", None):
        store.prune(dry_run=False)
    with refused("model", "choice"):
        store.prune(model=series[0].prompt, dry_run=False)
    with refused("trials_from", "range", -1):
        store.prune(trials_from=-1)
    assert store.info().trials == 32


def test_info_counts_by_model_sampling_and_prompt(store, series, make_trial, path):
    store.add([make_trial(series[0], 7, completion_tokens=None, created=2e9)])
    info = store.info()
    assert (info.trials, info.prompts, info.prompt_signals) == (33, 2, 4)
    assert info.path == str(path)
    assert info.file_bytes + info.log_bytes > 0
    assert len(info.series) == 4
    first = next(
        s for s in info.series if (s.model, s.sampling) == (series[0].model, series[0].sampling)
    )
    assert (first.prompts, first.trials, first.fewest, first.most) == (2, 9, 4, 5)
    assert (first.completion_tokens, first.first, first.last) == (32, 1_790_000_000.5, 2e9)
    assert json.loads(json.dumps(info.to_dict()))["trials"] == 33
