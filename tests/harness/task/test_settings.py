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


def test_model_arguments_in_the_metadata_are_left_alone():
    assert read(pretrained="org/model", max_length=5).n == 16


def test_k_is_sorted_and_made_unique():
    assert read(bayes_k=[8, 2, 2]).k == (2, 8)
    assert read(bayes_k=4).k == (4,)


def test_categories_without_weights_get_even_scores():
    assert read(categories=None, bayes_categories=3).weights == (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"bayes_n": 0}, ("bayes_n", "range", 0)),
        ({"bayes_n": -1}, ("bayes_n", "range", -1)),
        ({"bayes_n": "x"}, ("bayes_n", "range", "x")),
        ({"bayes_n": 10**7}, ("bayes_n", "range", 10000000)),
        ({"bayes_n": True}, ("bayes_n", "range", True)),
        ({"bayes_n": 4.0}, ("bayes_n", "range", 4.0)),
        ({"bayes_k": 32}, ("bayes_k", "range", 32)),
        ({"bayes_k": []}, ("bayes_k", "empty")),
        ({"bayes_k": [2, "4"]}, ("bayes_k", "range", "4")),
        ({"bayes_maj_k": 17}, ("bayes_maj_k", "range", 17)),
        ({"bayes_tau": 1.5}, ("bayes_tau", "range", 1.5)),
        ({"bayes_tau": float("nan")}, ("bayes_tau", "range")),
        ({"bayes_level": 95}, ("bayes_level", "range", 95)),
        ({"bayes_level": 1}, ("bayes_level", "range", 1)),
        ({"bayes_interval": "wald"}, ("bayes_interval", "choice", "wald")),
        ({"bayes_weights": [0, 0.5, 1]}, ("bayes_weights", "shape")),
        ({"bayes_weights": [1]}, ("bayes_weights", "format")),
        ({"bayes_weights": [0, float("inf")]}, ("bayes_weights", "format")),
        ({"bayes_weights": [0, float("nan")]}, ("bayes_weights", "format")),
        ({"bayes_weights": [1, 0]}, ("bayes_weights", "range")),
        ({"bayes_weights": [0, 10**400]}, ("bayes_weights", "format")),
        ({"bayes_threshold": 0.5}, ("bayes_threshold", "conflict", 0.5)),
        ({"bayes_bounds": [1, 0]}, ("bayes_bounds", "format")),
        ({"bayes_bounds": [0, 1, 2]}, ("bayes_bounds", "format")),
        (
            {"bayes_bounds": [0, 1], "bayes_threshold": 0},
            ("bayes_threshold", "range", 0),
        ),
        (
            {"bayes_bounds": [0, 1], "bayes_weights": [0, 1]},
            ("bayes_weights", "conflict"),
        ),
        ({"bayes_weights": "0,1"}, ("bayes_weights", "format", "0,1")),
        ({"bayes_metric": 3}, ("bayes_metric", "type", 3)),
        ({"bayes_check": "no"}, ("bayes_check", "type", "no")),
        ({"bayes_seed": -1}, ("bayes_seed", "range", -1)),
    ],
)
def test_a_bad_value_is_refused_by_name(metadata, message):
    with refused(*message):
        read(**metadata)


def test_categories_that_all_score_the_same_are_refused():
    with refused("bayes_weights", "duplicate"):
        read(categories=None, bayes_weights=[1, 1, 1])


@pytest.mark.parametrize("slip", ["bayes-n", "Bayes_N", "BAYES_k"])
def test_a_slip_in_a_setting_s_name_is_noticed(slip):
    with refused("metadata", "unknown-key", error=TaskConfigError):
        read(**{slip: 3})


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with refused("metadata", "unknown-key", "bayes_trials", error=TaskConfigError):
        read(bayes_trials=3)


def test_bad_repeats_in_the_yaml_are_named_so():
    with refused("repeats", "range", "many"):
        read(repeats="many")
