r"""What counts as the answer of a text: boxes, markers, integers. Nothing here starts a process."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.rubric.answers import (
    boxed_answer,
    clean,
    final_part,
    plain_integer,
    squeeze,
)


@pytest.mark.parametrize(
    ("text", "own", "expected"),
    [
        ("a</think>b", None, "b"),
        ("a</think>", None, ""),
        ("a<|done|>b", None, "a<|done|>b"),
        ("a<|done|>b</think>c", "<|done|>", "c"),
        ("a</think>b<|done|>c", "<|done|>", "c"),
        ("a</think>b", 151668, "b"),
        ("<think>a", None, ""),
        ("<think>a<|done|>b", "<|done|>", "b"),
        ("[THINK]a[/THINK]b", None, "b"),
        ("◁think▷a◁/think▷b", None, "b"),
        ("◁think▷a", None, ""),
        ("<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", None, "b"),
        ("<|channel|>analysis<|message|>a", None, ""),
        ("a<|begin_of_box|>7<|end_of_box|>", None, r"a\boxed{7}"),
    ],
)
def test_the_final_part_follows_the_last_marker(text, own, expected):
    assert final_part(text, own) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{5}", "5"),
        (r"\boxed 5", "5"),
        (r"$\boxed 52$.", "52"),
        (r"\boxed\frac{1}{2}", r"\frac{1}{2}"),
        ("\\boxed{\n 5 \n}", "5"),
        (r"\boxed{\left\{ x \right\}} } {", r"\left\{ x \right\}"),
        (r"a lone { and \} and } \boxed{5} {", "5"),
        (r"first \boxed{4}" + "\n" + r"then \boxed{5}", "5"),
        (r"\boxed{5}" + "\n" + r"then \boxed{6", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\text{so } \boxed{5}}", "5"),
        (r"\\[ \\boxed{5} \\]", "5"),
        (r"\boxed{2} \boxed{3}", "2, 3"),
        ("\\boxed{2}\n\\boxed{3}", "3"),
        (r"\boxed{}", None),
        (r"\boxed", None),
        ("boxed{5}", None),
    ],
)
def test_the_last_box(text, expected):
    assert boxed_answer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{2} and \boxed{-2}", "2, -2"),
        (r"$x=\boxed{2}$, $y=\boxed{3}$ or $\boxed{4}$", "2, 3, 4"),
        (r"\boxed{5}, that is \boxed{5}", "5"),
        (r"\boxed{4} no: " + "wait " * 40 + r"\boxed{5}", "5"),
        ("\\boxed{4}\nor rather\n\\boxed{5}", "5"),
        ("\\boxed{4}\n\\quad\\text{and}\\quad\n\\boxed{5}", "4, 5"),
    ],
)
def test_the_boxes_of_several_values(text, expected):
    assert boxed_answer(text, several=True) == expected


balanced = st.recursive(
    st.text(alphabet="ab12+-=, \\{\\}", max_size=4).map(
        lambda s: "".join("\\" + c if c in "{}" else c for c in s.replace("\\", ""))
    ),
    lambda inner: st.lists(inner, max_size=3).map(
        lambda parts: "x".join(f"{{{p}}}" for p in parts)
    ),
    max_leaves=8,
)
no_box = st.text(max_size=60).filter(lambda s: "box" not in s and "\\" not in s)


@given(no_box, balanced.filter(lambda s: s.strip()), no_box)
@settings(max_examples=40)
def test_any_balanced_content_is_found_in_any_surroundings(before, content, after):
    assert boxed_answer(f"{before}\\boxed{{{content}}}{after}") == " ".join(content.split())


@given(st.text(alphabet="\\{}x\n", max_size=40), st.integers(1, 9))
def test_braces_and_backslashes_before_the_first_box_do_not_matter(before, backslashes):
    text = before + "x" + "\\" * backslashes + "boxed{\\{5\\}}} {\\fbox{"
    assert boxed_answer(text) == r"\{5\}"


@given(st.text(alphabet=st.sampled_from("\\{}[]()boxedf$^_,;.± \n\0019a=\u202e"), max_size=80))
def test_no_text_breaks_the_readers(text):
    for found in (boxed_answer(text + "\\boxed{" + text), boxed_answer(text)):
        assert found is None or found.strip()
    assert squeeze(squeeze(text)) is not None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\" * 30_001 + "boxed{1}", "1"),
        ("\\boxed{" * 4_000, None),
        ("\\boxed{" * 5_000 + "7" + "}" * 5_000, "7"),
        ("{" * 30_000 + "\\boxed{7}", "7"),
        ("\\boxed\\a{" * 3_000 + "}" * 3_000, "\\a, \\a{}"),
        ("\\boxed{7" + "." * 20_000 + "x}", "7" + "." * 20_000 + "x"),
    ],
)
def test_hostile_texts_are_read_too(text, answer):
    found = boxed_answer(text, several=True)
    assert found == answer
    assert squeeze(found or "") == (answer or "").replace(" ", "")


def test_full_width_digits_and_invisible_signs_are_read_as_written():
    assert clean("\uff13\uff13\u200b") == "33"
    assert clean("a\u2212b\u202e\0\ud800") == "a-b"
    assert clean("10²⁵") == "10^{25}"  # compatibility forms would make it 1025
    assert clean("3½") == r"3\frac{1}{2}"
    assert clean("2√10 – 𝜋") == r"2\sqrt{10} - \pi "


@pytest.mark.parametrize(
    ("answer", "digits"),
    [("007", "7"), ("-0", "0"), ("1,024", "1024"), ("1,02", None), ("-12.", "-12"), ("1e3", None)],
)
def test_plain_integers(answer, digits):
    assert plain_integer(answer) == digits
