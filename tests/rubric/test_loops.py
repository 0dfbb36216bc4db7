"""Texts that end in a loop, and texts that only look like it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.rubric.signals import text_loop

REASONING = (
    "We need the number of ordered pairs (a, b) with a + b = 1000 and no digit zero.\n"
    "Case 1: the units digits sum to ten. Then 9 choices remain, and the carry moves on.\n"
    "Case 2: the tens digits sum to nine. Then 8 choices remain, and no carry moves on.\n"
    "Wait, let me check again. For a = 111 we get b = 889, so it counts.\n"
    "Wait, let me check again. For a = 119 we get b = 881, so it counts too.\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "So x = 3. " + "Wait, let me check again. " * 20 + "Wait, let",
        REASONING + "The answer is 5.\n\n" * 30 + "   \n",
        "\U0001f600 " * 100,
        ("x" * 700 + "y" * 799 + "z") * 4,
    ],
)
def test_loops(text):
    assert text_loop(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        REASONING,
        REASONING + "The answer is 5.\n" * 30 + "So I stop here, with 7.",
        ", ".join(str(n) for n in range(2000)),
        "The first part\n" + "-" * 100,
        "| a | b |\n|---|---|\n" + "| 0 | 0 |\n" * 11,
        "10^40 = 1" + "0" * 40,
        ("x" * 700 + "y" * 799 + "z") * 3,
        ("x" * 700 + "y" * 800 + "z") * 4,
    ],
)
def test_no_loops(text):
    assert not text_loop(text)


def test_the_limits_are_four_copies_and_120_characters():
    assert not text_loop("." * 119)
    assert text_loop("." * 120)
    line = "The remainder is now exactly nil"
    assert len(line) == 32
    assert text_loop("So: " + line * 4)
    assert not text_loop("So: " + line[1:] + line * 3)
    assert text_loop("So: " + line[-1:] + line * 4)


def by_definition(text):
    """Try every pattern length: do the last characters repeat themselves at that distance?"""
    text = text.rstrip()
    for period in range(1, 1501):
        least = max(4 * period, 120)
        end = text[-least:]
        if len(end) == least and end[period:] == end[:-period]:
            return True
    return False


@st.composite
def endings(draw):
    """A beginning, a few copies of a pattern, a part of one more, perhaps a last character."""
    letters = st.text("ab \n", max_size=40)
    pattern = draw(st.text("ab \n", min_size=1, max_size=60))
    cut = draw(st.integers(0, len(pattern) - 1))
    copies = draw(st.integers(1, 140))
    return draw(letters) + pattern * copies + pattern[:cut] + draw(st.sampled_from(["", "", "c"]))


@given(endings())
@settings(max_examples=150, deadline=None)
def test_it_is_what_the_definition_says(text):
    assert text_loop(text) == by_definition(text)


@pytest.mark.parametrize(
    "text", ["a" * 999_999 + "b", ("a" * 2999 + "b") * 333, "\n" * 1_000_000], ids=len
)
def test_a_million_characters_take_no_time(text):
    """Comparing every pattern anew would take 10^9 steps and more."""
    began = time.process_time()
    text_loop(text)
    assert time.process_time() - began < 5.0
