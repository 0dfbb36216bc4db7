"""Percentiles beside a computation by sorting, and the file that freezes them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from _support.errors import refused
from _support.fake_runs import cuts_of, fake_runs, trials_of

from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import (
    PERCENTILES,
    TaskThresholds,
    Thresholds,
    task_thresholds,
)

VALUES = TaskThresholds(
    tau_high=0.1 + 0.2, tau_low_wrong=1 / 3, tau_prompt=2.0, ratio_p33=5e-324, ratio_p66=1e300,
    corr_p33=None, corr_p66=-0.0, counts={"tau_high": 7},
)  # fmt: skip
FROZEN = Thresholds(
    {"aime25_rubric": VALUES, "brumo25_rubric": TaskThresholds()}, ("a", "b"), "2026-01-31"
)


def tables_of(runs):
    return [SignalTable.from_questions(questions) for questions in runs.values()]


# --- the percentiles ---


def test_pooled_percentiles_of_three_models():
    runs = fake_runs()
    found, expected = task_thresholds(tables_of(runs)), cuts_of(trials_of(runs))
    assert found.values == pytest.approx(expected, rel=1e-14)
    assert set(found.values) == set(PERCENTILES)


def test_percentiles_of_hundred_and_one_values():
    values = list(range(101)) * 2
    columns = dict.fromkeys(("completion_bpt", "prompt_bpt", "token_ratio"), values)
    table = SignalTable.from_questions([{**columns, "is_correct": [0] * 101 + [1] * 101}])
    percents = dict(zip(PERCENTILES, (40, 60, 90, 33, 66, 33, 66), strict=True))
    assert task_thresholds([table]).values == pytest.approx(percents, abs=1e-12)


def test_no_trial_has_the_signal():
    table = SignalTable.from_questions([{"completion_bpt": [1.0], "is_correct": [1]}])
    found = task_thresholds([table])
    assert found.tau_low_wrong is None
    assert np.isnan(found.value("tau_low_wrong"))
    assert found.counts["tau_low_wrong"] == 0
    assert found.corr_p33 == 1.0
    assert task_thresholds([]).values == dict.fromkeys(PERCENTILES)


# --- the hash ---


def test_any_other_value_is_another_hash():
    for name in PERCENTILES:
        value = getattr(VALUES, name)
        for other in (None, 0.25, np.nextafter(1.0 if value is None else value, 9.0).item()):
            if other != value:
                assert dataclasses.replace(VALUES, **{name: other}).hash != VALUES.hash


def test_the_hash_is_of_the_values_alone():
    assert dataclasses.replace(VALUES, counts={}).hash == VALUES.hash
    assert TaskThresholds(tau_high=2).hash == TaskThresholds(tau_high=2.0).hash
    one = Thresholds({"a": VALUES, "b": TaskThresholds()}, ("r",), "2026-01-31")
    assert Thresholds({"b": TaskThresholds(), "a": VALUES}, ("s",), "2027-01-31").hash == one.hash
    assert Thresholds({"c": VALUES, "b": TaskThresholds()}, ("r",)).hash != one.hash


# --- the file ---


def test_a_file_gives_back_every_bit():
    text = FROZEN.to_json()
    read = Thresholds.from_json(text)
    assert read == FROZEN
    assert read.to_json() == text
    assert str(read.tasks["aime25_rubric"].corr_p66) == "-0.0"
    assert (read.runs, read.date) == (("a", "b"), "2026-01-31")


def changed(**changes):
    return json.dumps({**json.loads(FROZEN.to_json()), **changes})


def with_value(name, value):
    content = json.loads(FROZEN.to_json())
    content["tasks"]["aime25_rubric"]["values"][name] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tau_high: 1", "format"),
        ("[]", "format"),
        (changed(format="lm-eval-bayes-verdicts"), "format"),
        (changed(version=2), "schema"),
        (changed(tasks=[1]), "damaged"),
        (changed(tasks={"t": None}), "damaged"),
        (changed(tasks={}), "damaged"),
        (with_value("corr_p33", 1.0), "damaged"),
        (with_value("tau_high", float("nan")), "damaged"),
        (with_value("tau_high", 10**400), "damaged"),
        (with_value("tau_new", 1.0), "damaged"),
    ],
)
def test_files_that_are_refused(text, rule):
    with refused("frozen.json", rule):
        Thresholds.from_json(text, "frozen.json")


def test_the_thresholds_of_a_task():
    assert FROZEN.of("aime25_rubric") is VALUES
    with refused("thresholds", "missing", "hmmt_feb25_rubric"):
        FROZEN.of("hmmt_feb25_rubric")
    with refused("thresholds", "missing", "x"):
        Thresholds({}, ()).of("x")
