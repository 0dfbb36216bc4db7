from __future__ import annotations

import enum
import json
import shutil
import subprocess

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import (
    canonical_json,
    hash_text,
    model_hash,
    sampling_hash,
)


@pytest.mark.skipif(shutil.which("b2sum") is None, reason="b2sum is not installed")
def test_the_digits_are_those_of_b2sum():
    printed = subprocess.run(
        ["b2sum", "--length", "128"], input=b"What is 2 + 2?", capture_output=True, check=True
    )
    assert hash_text("What is 2 + 2?") == f"blake2b-128:{printed.stdout.split()[0].decode()}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"temperature": 1}, {"temperature": 1.0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"until": ("a", "b")}, {"until": ["a", "b"]}),
        ({"x": 0.0}, {"x": -0.0}),
        ({"x": 10**22}, {"x": 1e22}),
        ({"x": np.float64(0.6)}, {"x": 0.6}),
        ({"x": enum.IntEnum("E", {"A": 3}).A}, {"x": 3}),
    ],
)
def test_equal_settings_hash_equal(first, second):
    assert sampling_hash(first) == sampling_hash(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"temperature": 1}, {"temperature": True}),
        ({"top_p": None}, {}),
        ({"temperature": 0.3}, {"temperature": 0.1 + 0.2}),
        ({"until": "a"}, {"until": ["a"]}),
        ({"n": 1}, {"n": "1"}),
        ({"a": "\ud800"}, {"a": "\ud801"}),
    ],
)
def test_other_settings_hash_otherwise(first, second):
    assert sampling_hash(first) != sampling_hash(second)


def test_canonical_json_is_json_that_gives_the_value_back():
    value = {"b": [1, 2.5, None, True], "a": {"ü\ud800\x00": "…"}, "c": 1e300}
    text = canonical_json(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert text.index('"a"') < text.index('"b"') < text.index('"c"')


ENDLESS = {}
ENDLESS["a"] = ENDLESS


@pytest.mark.parametrize(
    ("hashed", "value", "argument", "rule"),
    [
        (model_hash, {"a": [0, {1, 2}]}, 'fingerprint["a"][1]', "type"),
        (model_hash, {"a": b"x"}, 'fingerprint["a"]', "type"),
        (model_hash, {"a": float("nan")}, 'fingerprint["a"]', "range"),
        (model_hash, {"a": float("inf")}, 'fingerprint["a"]', "range"),
        (model_hash, {1: 2}, "fingerprint", "type"),
        (model_hash, ENDLESS, "fingerprint", "range"),
        (sampling_hash, {"temperature": 1, "Seed": 5}, "sampling", "unknown-key"),
        (hash_text, b"x", "text", "type"),
    ],
)
def test_what_cannot_be_hashed_is_named(hashed, value, argument, rule):
    with refused(argument, rule):
        hashed(value)
