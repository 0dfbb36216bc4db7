"""The `bayes_*` settings: defaults, and one sentence for each way to get them wrong."""

from __future__ import annotations

import pytest
from _support.errors import refused

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.task.settings import Settings


def read(repeats=16, categories=2, **metadata):
    return Settings.from_metadata(metadata, repeats, categories)


def test_defaults_follow_n():
    settings = read(repeats=16)
    assert (settings.n, settings.k, settings.maj_k) == (16, (1, 2, 4, 8, 16), 8)
    assert settings.weights == (0.0, 1.0)
    assert (settings.interval, settings.level, settings.tau) == ("exact", 0.95, 0.5)


def test_n_of_the_metadata_wins_over_repeats():
    settings = read(repeats=16, bayes_n=5)
    assert (settings.n, settings.k, settings.maj_k) == (5, (1, 2, 4), 5)
    assert read(bayes_k=[8, 2, 2]).k == (2, 8)


def test_a_lower_n_drops_what_does_not_fit_it():
    fewer = read(repeats=80, bayes_k=[1, 8, 64], bayes_maj_k=32).with_trials(16, {3: 2})
    assert (fewer.n, fewer.k, fewer.maj_k) == (16, (1, 8), 16)
    assert [fewer.trials_of(question) for question in (2, 3)] == [16, 18]
    assert read(repeats=80).with_trials(12, {}) == read(repeats=12)


@pytest.mark.parametrize(
    ("metadata", "argument", "rule"),
    [
        ({"bayes_n": 0}, "bayes_n", "range"),
        ({"bayes_n": True}, "bayes_n", "range"),
        ({"bayes_k": 32}, "bayes_k", "range"),
        ({"bayes_k": []}, "bayes_k", "empty"),
        ({"bayes_maj_k": 17}, "bayes_maj_k", "range"),
        ({"bayes_tau": float("nan")}, "bayes_tau", "range"),
        ({"bayes_interval": "wald"}, "bayes_interval", "choice"),
        ({"bayes_weights": [0, 0.5, 1]}, "bayes_weights", "shape"),
        ({"bayes_weights": [1]}, "bayes_weights", "format"),
        ({"bayes_weights": [0, float("nan")]}, "bayes_weights", "format"),
        ({"bayes_weights": [1, 0]}, "bayes_weights", "range"),
        ({"bayes_threshold": 0.5}, "bayes_threshold", "conflict"),
        ({"bayes_bounds": [1, 0]}, "bayes_bounds", "range"),
        ({"bayes_bounds": [0, 1], "bayes_threshold": 0}, "bayes_threshold", "range"),
        ({"bayes_bounds": [0, 1], "bayes_weights": [0, 1]}, "bayes_weights", "conflict"),
        ({"categories": None, "bayes_weights": [1, 1, 1]}, "bayes_weights", "duplicate"),
        ({"repeats": "many"}, "repeats", "range"),
        ({"bayes_metric": 3}, "bayes_metric", "type"),
        ({"bayes_check": "no"}, "bayes_check", "type"),
    ],
)
def test_a_bad_value_is_refused_by_name(metadata, argument, rule):
    with refused(argument, rule):
        read(**metadata)


@pytest.mark.parametrize("slip", ["bayes-n", "Bayes_N"])
def test_a_slip_in_a_setting_s_name_is_noticed(slip):
    with refused("metadata", "unknown-key", error=TaskConfigError):
        read(**{slip: 3})
