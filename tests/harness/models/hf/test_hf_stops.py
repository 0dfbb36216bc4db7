"""Where a stop string first stands among a completion's tokens; no torch is needed."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lm_eval_bayes.harness.models.hf.model import find_stop

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
)
def test_finds_what_trying_every_length_finds(tokens, stops):
    found = ((size, find_stop(tokens[:size], stops, decode)) for size in range(1, len(tokens) + 1))
    size, stop = next((pair for pair in found if pair[1]), (None, None))
    assert size == first_by_trying(tokens, stops)
    if stop:
        text = decode(tokens[:size])
        assert text.find(stop) == min(text.find(s) for s in stops if s in text)


def test_a_stop_may_span_tokens_and_empty_ones_never_match():
    tokens, stops = [1, 2, 5, 5, 3, 1], ["", "b\n\na"]
    found = [find_stop(tokens[:size], stops, decode) for size in range(3, 6)]
    assert found == [None, None, "b\n\na"]


def test_characters_of_several_tokens():
    def utf8(ids):
        return bytes(ids).decode("utf-8", "replace")

    tokens = list("so – «end» – more".encode())
    end = len("so – «end»".encode())
    found = [find_stop(tokens[:size], ["«end»"], utf8) for size in (end - 1, end)]
    assert found == [None, "«end»"]


def test_long_texts_are_not_decoded_whole():
    seen = []

    def counted(ids):
        seen.append(len(ids))
        return decode(ids)

    assert find_stop([1] * 304, ["b"], counted) is None
    assert seen == [9]
