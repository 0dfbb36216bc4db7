"""Where a stop string first stands among a completion's tokens; no torch is needed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lm_eval_bayes.harness.models.hf.responses import StopFinder

#: Tokens of one to three characters, some of none.
PIECES = ["", "a", "b", "ab", "ba", "\n", "\n\n", "abb", " ", "a\n"]


def decode(ids):
    return "".join(PIECES[i] for i in ids)


def first_by_trying(tokens, stops):
    for count in range(len(tokens) + 1):
        text = decode(tokens[:count])
        if any(stop in text for stop in stops):
            return count
    return None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, len(PIECES) - 1), max_size=40),
    st.lists(st.text("ab\n ", min_size=1, max_size=5), max_size=3),
    st.integers(1, 9),
)
def test_finds_what_trying_every_length_finds(tokens, stops, every):
    finder = StopFinder(stops, decode, every)
    checked, match = 0, None
    for size in range(1, len(tokens) + 1):
        if size - checked >= every or size == len(tokens):
            match = finder.find(tokens[:size], checked)
            checked = size
            if match:
                break
    wanted = first_by_trying(tokens, stops)
    assert (match and match[0]) == wanted
    if match:
        text = decode(tokens[: match[0]])
        assert text.find(match[1]) == min(text.find(s) for s in stops if s in text)


def test_a_stop_may_span_tokens_and_empty_ones_never_match():
    assert StopFinder(["", "b\n\na"], decode).find([1, 2, 5, 5, 3, 1]) == (5, "b\n\na")


def test_characters_of_several_tokens():
    def utf8(ids):
        return bytes(ids).decode("utf-8", "replace")

    tokens = list("so – «end» – more".encode())
    end = len("so – «end»".encode())
    assert StopFinder(["«end»"], utf8).find(tokens) == (end, "«end»")


@pytest.mark.parametrize("checked", [0, 300])
def test_long_texts_are_not_decoded_whole_where_there_is_nothing_to_find(checked):
    seen = []

    def counted(ids):
        seen.append(len(ids))
        return decode(ids)

    tokens = [1] * 304
    assert StopFinder(["b"], counted).find(tokens, checked) is None
    assert sum(seen) <= 304 - checked + 16
