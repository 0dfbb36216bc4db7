"""Percentiles beside a computation by sorting, and the file that freezes them."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from _support.fake_runs import cuts_of, fake_runs, percentile, trials_of
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_bayes.errors import InvalidInputError
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


def test_counts_are_of_trials_that_have_the_signal():
    runs = fake_runs()
    trials = trials_of(runs)
    found = task_thresholds(tables_of(runs)).counts
    bpt = [trial for trial in trials if trial["completion_bpt"] is not None]
    assert found["tau_high"] == len(bpt) < len(trials)
    assert found["tau_low_wrong"] == sum(trial["is_correct"] == 0 for trial in bpt)
    assert found["corr_p33"] == found["corr_p66"] == sum(t["is_correct"] == 1 for t in bpt)
    assert found["tau_low_wrong"] + found["corr_p33"] < found["tau_high"], "some lack a grade"
    assert found["ratio_p33"] == sum(trial["token_ratio"] is not None for trial in trials)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(0, 20, width=32)),
            st.sampled_from([0, 1, None]),
        ),
        max_size=30,
    )
)
def test_percentiles_by_sorting(trials):
    table = SignalTable.from_questions(
        [{"completion_bpt": [b for b, _ in trials], "is_correct": [c for _, c in trials]}]
    )
    found = task_thresholds([table])
    among = {
        "tau_high": (40, (0, 1, None)),
        "tau_low_wrong": (60, (0,)),
        "corr_p33": (33, (1,)),
        "corr_p66": (66, (1,)),
    }
    for name, (percent, grades) in among.items():
        values = [b for b, c in trials if b is not None and c in grades]
        assert found.counts[name] == len(values)
        assert getattr(found, name) == pytest.approx(percentile(values, percent), abs=1e-12)


def test_the_percents_of_table_4():
    """Of 0, 1, … 100 the p-th percentile is p; the wrong trials are 200 … 300."""
    ladder = [float(n) for n in range(101)]
    column = ladder + [200 + n for n in ladder]
    table = SignalTable.from_questions(
        [
            {"completion_bpt": column, "is_correct": [1] * 101 + [0] * 101},
            {"prompt_bpt": ladder, "token_ratio": ladder},
        ]
    )
    found = task_thresholds([table])
    assert found.values == pytest.approx(
        {
            "tau_high": percentile(column, 40),
            "tau_low_wrong": 260,
            "tau_prompt": 90,
            "ratio_p33": 33,
            "ratio_p66": 66,
            "corr_p33": 33,
            "corr_p66": 66,
        }
    )


def test_invalid_trials_count_too():
    columns = {"completion_bpt": [1.0, 5.0], "repeated_pattern": [0, 1]}
    assert task_thresholds([SignalTable.from_questions([columns])]).tau_high == pytest.approx(2.6)


def test_no_trial_has_the_signal():
    table = SignalTable.from_questions([{"completion_bpt": [1.0], "is_correct": [1]}])
    found = task_thresholds([table])
    assert found.tau_low_wrong is None
    assert np.isnan(found.value("tau_low_wrong"))
    assert found.counts["tau_low_wrong"] == 0
    assert found.corr_p33 == 1.0
    assert task_thresholds([]).values == dict.fromkeys(PERCENTILES)


def test_infinite_values_move_no_percentile():
    columns = {"completion_bpt": [1.0, 2.0, float("inf")], "is_correct": [1, 1, 1]}
    found = task_thresholds([SignalTable.from_questions([columns])])
    assert (found.tau_high, found.counts["tau_high"]) == (1.4, 2)
    assert found.hash.startswith("blake2b-64:")


# --- the hash ---


@pytest.mark.parametrize("name", PERCENTILES)
def test_any_other_value_is_another_hash(name):
    value = getattr(VALUES, name)
    for other in (None, 0.25, np.nextafter(1.0 if value is None else value, 9.0).item()):
        if other != value:
            assert dataclasses.replace(VALUES, **{name: other}).hash != VALUES.hash


def test_two_values_in_each_others_place_are_another_hash():
    one, other = TaskThresholds(ratio_p33=0.5), TaskThresholds(ratio_p66=0.5)
    assert one.hash != other.hash
    of_tasks = [Thresholds({"a": a, "b": b}, ()).hash for a, b in ((one, other), (other, one))]
    assert of_tasks[0] != of_tasks[1]


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


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
                min_size=7, max_size=7))  # fmt: skip
def test_any_numbers_survive_the_file(numbers):
    values = dict(zip(PERCENTILES, numbers, strict=True))
    frozen = Thresholds({"t": TaskThresholds(**values, counts={"tau_high": 1})}, ("r",))
    read = Thresholds.from_json(frozen.to_json())
    assert read == frozen
    assert read.hash == frozen.hash


def test_the_file_says_what_it_is():
    told = json.loads(FROZEN.to_json())
    assert told["format"] == "lm-eval-bayes-thresholds"
    assert (told["version"], told["runs"], told["date"]) == (1, ["a", "b"], "2026-01-31")
    assert told["hash"] == FROZEN.hash
    assert told["tasks"]["aime25_rubric"]["counts"] == {"tau_high": 7}


def changed(**changes):
    return json.dumps({**json.loads(FROZEN.to_json()), **changes})


def with_task(**changes):
    told = json.loads(FROZEN.to_json())
    told["tasks"]["aime25_rubric"].update(changes)
    return json.dumps(told)


def with_value(value, name="tau_high"):
    return with_task(values={**VALUES.values, name: value})


NUMBER = "have a number or null for aime25_rubric: tau_high; got"
VALUES_OF = "give task aime25_rubric the values tau_high, tau_low_wrong"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "be a JSON file of thresholds"),
        ("tau_high: 1", "be a JSON file of thresholds"),
        ("[" * 100_000, "be a JSON file of thresholds"),
        ('{"version": ' + "1" * 5000 + "}", "`frozen.json` must be "),
        ("[]", 'be a file of thresholds, with "format": "lm-eval-bayes-thresholds"'),
        ('{"tau_high": 1}', 'be a file of thresholds, with "format"'),
        (changed(format="lm-eval-bayes-verdicts"), 'be a file of thresholds, with "format"'),
        (changed(version=2), "be of version 1, the newest that this release knows; got 2"),
        (changed(version=None), "be of version 1"),
        (changed(version=[1]), "be of version 1"),
        (changed(tasks=[1]), "give `tasks` as a mapping and `runs` as a list"),
        (changed(tasks="x"), "give `tasks` as a mapping"),
        (changed(tasks=None), "give `tasks` as a mapping"),
        (changed(runs=5), "give `tasks` as a mapping and `runs` as a list"),
        (changed(runs="abc"), "give `tasks` as a mapping and `runs` as a list"),
        (changed(tasks={"t": None}), "give task t the values"),
        (changed(hash=None), "have the hash of its values, but they were changed"),
        (changed(tasks={}), "have the hash of its values"),
        (with_value(0.3), "have the hash of its values, but they were changed"),
        (with_value(None), "have the hash of its values"),
        (with_value(1.0, "corr_p33"), "have the hash of its values"),
        (with_value(float("nan")), f"{NUMBER} nan"),
        (with_value(float("inf")), f"{NUMBER} inf"),
        (with_value(10**400), f"{NUMBER} 1000"),
        (with_value("0.3"), f"{NUMBER} '0.3'"),
        (with_value(True), f"{NUMBER} True"),
        (with_value([1.0]), rf"{NUMBER} \[1.0\]"),
        (with_value(1.0, "tau_new"), VALUES_OF),
        (with_task(values={}), VALUES_OF),
        (with_task(values=[]), VALUES_OF),
        (with_task(values=None), VALUES_OF),
        (with_task(counts=5), "give task aime25_rubric whole numbers as counts; got 5"),
        (with_task(counts=[1]), "whole numbers as counts"),
        (with_task(counts={"tau_high": "many"}), "whole numbers as counts"),
    ],
)
def test_files_that_are_refused(text, message):
    with pytest.raises(InvalidInputError, match=message) as raised:
        Thresholds.from_json(text, "frozen.json")
    assert str(raised.value).startswith("`frozen.json` must ")


def test_a_changed_digit_anywhere_among_the_values_is_noticed():
    text = FROZEN.to_json()
    values = text[: text.index('"counts"')]
    numbers = re.finditer(r'"(?:tau|ratio|corr)_\w+": (-?[0-9.e+-]+)', values)
    places = [at for found in numbers for at in range(*found.span(1)) if text[at] in "123456789"]
    assert len(places) > 20
    noticed = 0
    for at in places:
        other = text[:at] + str((int(text[at]) % 9) + 1) + text[at + 1 :]
        if json.loads(other)["tasks"] == json.loads(text)["tasks"]:
            continue  # the seventeenth digit of a number that sixteen tell
        noticed += 1
        with pytest.raises(
            InvalidInputError, match=r"have the hash of its values|a number or null"
        ):
            Thresholds.from_json(other)
    assert noticed > 20


def test_the_thresholds_of_a_task():
    assert FROZEN.of("aime25_rubric") is VALUES
    with pytest.raises(InvalidInputError, match="hold task hmmt_feb25_rubric; the file has aime25"):
        FROZEN.of("hmmt_feb25_rubric")
    with pytest.raises(InvalidInputError, match="hold task x; the file has none"):
        Thresholds({}, ()).of("x")


def test_the_day_is_todays_unless_told():
    date = Thresholds({}, ()).date
    assert len(date) == 10
    assert date[4] == date[7] == "-"


# --- several models ---


def test_one_more_model_leaves_frozen_thresholds_as_they_are():
    """The pooled ones move with it; that is what freezing is for."""
    tables = tables_of(fake_runs())
    frozen = Thresholds.from_json(
        Thresholds({"t": task_thresholds(tables[:2])}, ("careful", "hasty")).to_json()
    )
    assert frozen.of("t") == task_thresholds(tables[:2])
    assert task_thresholds(tables).hash != frozen.of("t").hash
