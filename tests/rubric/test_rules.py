"""Conditions: what is read, what is refused, and three-valued logic beside one's own."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from _support.errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.rubric.rules import Condition, first_match

# --- what is refused ---


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "wrong or " * 300 + "wrong",
        "x = 1",
        "wrong and \x00",
        "(" * 900 + "wrong" + ")" * 900,
        "boxed # )",
        "__import__('os').system('true') == 0",
        "wrong.real > 1",
        "(y := wrong)",
        "wrong if boxed else correct",
        "wrong & boxed",
        "wrong or True",
        "1 < token_ratio < 2",
        "1 < token_ratio",
        "token_ratio > prompt_bpt",
        "correct == 1",
        "token_ratio > nan",
        "token_ratio > 1" + "0" * 400,
        "token_ratio > '1'",
        "abs(token_ratio) > 2",
        "a" + "()" * 900,
    ],
    ids=lambda value: repr(value)[:40].encode("ascii", "replace").decode(),
)
def test_what_is_no_condition(text):
    with refused("rules[3]", "format") as caught:
        Condition.read(text, "rules[3]")
    assert len(str(caught.value)) < 600


def test_unknown_names_and_conditions_that_are_too_deep():
    for text, name in (("typo", "typo"), ("wrong and is_correct", "is_correct")):
        with refused("when", "choice", name):
            Condition.read(text)
    for text in ("not " * 490 + "wrong", "(not " * 180 + "wrong" + ")" * 180):
        with refused("when", "range"):
            Condition.read(text)


def test_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("open('made', 'w')", "[open('made', 'w')][0] == 1", "wrong or open('made', 'w')"):
        with refused("when", "format"):
            Condition.read(text)
    assert not list(tmp_path.iterdir())


# --- what is read ---


def test_names_of_a_condition():
    text = "wrong and (x >= 2 or not wrong) and x > 1 and y == -0.5 and x != 2"
    rule = Condition.read(f"  {text} ")
    assert rule.text == text
    assert rule.variables == ("wrong",)
    assert rule.signals == ("x", "y")


def test_a_deep_condition_that_is_allowed():
    rule = Condition.read("not " * 100 + "wrong")
    assert rule.evaluate(lambda name: np.array([1.0]), None).tolist() == [1]


# --- three-valued logic ---


NAMES = ("wrong", "boxed", "ood", "A_high")
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
         "==": operator.eq, "!=": operator.ne}  # fmt: skip


def comparisons(*signals):
    """Return comparisons of signals with numbers."""
    return st.tuples(
        st.just("compare"),
        st.sampled_from(signals),
        st.sampled_from(list(SIGNS)),
        st.sampled_from([-1, 0, 0.5, 2]),
    )


LEAVES = st.one_of(
    st.sampled_from(NAMES).map(lambda name: ("name", name)),
    comparisons("x", "y"),
)


def trees_of(leaves, max_leaves):
    """Return trees of `not`, `and` and `or` over leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=max_leaves,
    )


#: How tightly each kind binds; a looser one inside a tighter one needs brackets.
_TIGHT = {"or": 0, "and": 1, "not": 2, "compare": 3, "name": 4}


def written(tree, brackets):
    """Return the text of a tree, with all brackets or with none that it can do without."""

    def inner(part):
        bare = not brackets and _TIGHT[part[0]] > _TIGHT[tree[0]]
        return written(part, brackets) if bare else f"({written(part, brackets)})"

    if tree[0] == "name":
        return tree[1]
    if tree[0] == "compare":
        _, name, sign, number = tree
        return f"{name} {sign} {number}"
    if tree[0] == "not":
        return f"not {inner(tree[1])}"
    return f" {tree[0]} ".join(inner(part) for part in tree[1])


def truth(tree, trial):
    """Kleene's logic on True, False and None."""
    if tree[0] == "name":
        return trial[tree[1]]
    if tree[0] == "compare":
        value = trial[tree[1]]
        return None if value is None else SIGNS[tree[2]](value, tree[3])
    if tree[0] == "not":
        value = truth(tree[1], trial)
        return None if value is None else not value
    values = [truth(part, trial) for part in tree[1]]
    decisive = tree[0] == "or"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


TRIALS = st.lists(
    st.fixed_dictionaries(
        {name: st.sampled_from([True, False, None]) for name in NAMES}
        | {name: st.sampled_from([-2, -1, 0, 0.25, 0.5, 2, 3, None]) for name in ("x", "y")}
    ),
    min_size=1,
    max_size=8,
)


@given(trees_of(LEAVES, 12), TRIALS, st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_condition_is_what_kleenes_logic_says(tree, trials, brackets):
    rule = Condition.read(written(tree, brackets))

    def variable(name):
        return np.array([0.5 if t[name] is None else float(t[name]) for t in trials])

    def signal(name):
        return np.array([np.nan if t[name] is None else t[name] for t in trials], dtype=float)

    expected = [truth(tree, trial) for trial in trials]
    truths = rule.evaluate(variable, signal).tolist()
    assert truths == [0.5 if value is None else float(value) for value in expected]


def test_the_first_rule_that_is_not_certainly_false_decides():
    for truths in itertools.product((1.0, 0.0, 0.5), repeat=4):
        arrays = [np.array([t]) for t in truths]
        expected = next((i if t == 1 else -1 for i, t in enumerate(truths) if t), -1)
        assert first_match(arrays, 1).tolist() == [expected]
    assert first_match([], 2).tolist() == [-1, -1]
