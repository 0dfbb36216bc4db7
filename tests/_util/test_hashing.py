from __future__ import annotations

import enum
import hashlib
import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import (
    canonical_json,
    hash_text,
    model_hash,
    prompt_hash,
    sampling_hash,
)


def test_the_digits_are_those_of_blake2b_in_the_standard_library():
    data = "Wie viel ist 6·7?".encode()
    digits = hashlib.blake2b(data, digest_size=16).hexdigest()
    assert hash_text("Wie viel ist 6·7?") == f"blake2b-128:{digits}"


@pytest.mark.skipif(shutil.which("b2sum") is None, reason="b2sum is not installed")
def test_the_digits_are_those_of_b2sum():
    printed = subprocess.run(
        ["b2sum", "--length", "128"], input=b"What is 2 + 2?", capture_output=True, check=True
    )
    assert prompt_hash("What is 2 + 2?") == f"blake2b-128:{printed.stdout.split()[0].decode()}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"temperature": 1}, {"temperature": 1.0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"until": ("a", "b")}, {"until": ["a", "b"]}),
        ({"x": 0.0}, {"x": -0.0}),
        ({"x": 10**22}, {"x": 1e22}),
        ({"x": np.float64(0.6)}, {"x": 0.6}),
        ({"x": np.int64(3)}, {"x": 3}),
        ({"x": enum.IntEnum("E", {"A": 3}).A}, {"x": 3}),
    ],
)
def test_equal_settings_hash_equal(first, second):
    assert sampling_hash(first) == sampling_hash(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"temperature": 1}, {"temperature": True}),
        ({"temperature": 0}, {"temperature": None}),
        ({"top_p": None}, {}),
        ({"temperature": 0.3}, {"temperature": 0.1 + 0.2}),
        ({"until": "a"}, {"until": ["a"]}),
        ({"until": ["a", "b"]}, {"until": ["b", "a"]}),
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


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": {1, 2}}, ('fingerprint["a"]', "type")),
        ({"a": [0, Path("x")]}, ('fingerprint["a"][1]', "type")),
        ({"a": b"x"}, ('fingerprint["a"]', "type")),
        ({"a": Fraction(1, 2)}, ('fingerprint["a"]', "type")),
        ({"a": float("nan")}, ('fingerprint["a"]', "range")),
        ({"a": float("inf")}, ('fingerprint["a"]', "range")),
        ({1: 2}, ("fingerprint", "type", 1)),
        ([1], ("fingerprint", "type")),
        (None, ("fingerprint", "type", None)),
    ],
)
def test_what_json_cannot_hold_is_named(value, where):
    with refused(*where):
        model_hash(value)


def test_a_value_that_holds_itself_is_refused():
    endless = {}
    endless["a"] = endless
    with refused("fingerprint", "range", "dict"):
        model_hash(endless)


@pytest.mark.parametrize("name", ["seed", "Seed"])
def test_a_seed_is_no_sampling_setting(name):
    with refused("sampling", "unknown-key", 5):
        sampling_hash({"temperature": 1, name: 5})


def test_a_prompt_is_a_string():
    with refused("prompt", "type"):
        prompt_hash(b"x")
