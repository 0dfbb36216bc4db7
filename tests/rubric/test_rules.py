"""Conditions: what is read, what is refused, and three-valued logic beside one's own."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.rules import Condition, distinguishable_cases, first_match
from lm_eval_bayes.rubric.schemata import Category, Schema
from lm_eval_bayes.rubric.variables import VARIABLES, conjunction, disjunction, negation

PARTS = "hold names, `and`, `or`, `not`, brackets and comparisons with numbers only"
ONE = "compare one signal with one finite number, as in `completion_tokens >= 512`"
JOIN = "join names by `and`, `or`, `not` and brackets"
LENGTH = "be a condition of 1..2000 characters"


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", LENGTH),
        ("   ", LENGTH),
        (None, LENGTH),
        (True, LENGTH),
        (["wrong"], LENGTH),
        ("wrong or " * 300 + "wrong", LENGTH),
        ("wrong and", JOIN),
        ("wrong boxed", JOIN),
        ("wrong; boxed", JOIN),
        ("wrong\nboxed", JOIN),
        ("import os", JOIN),
        ("x = 1", JOIN),
        ("wrong and \x00", JOIN),
        ("\ud800", JOIN),
        ("*wrong", JOIN),
        ("(" * 900 + "wrong" + ")" * 900, JOIN),
        ("wrong # boxed", "be a condition without a comment"),
        ("boxed # )", "be a condition without a comment"),
        ("wrong()", PARTS),
        ("__import__('os')", PARTS),
        ("__import__('os').system('true') == 0", ONE),
        ("().__class__", PARTS),
        ("wrong.real", PARTS),
        ("wrong.real > 1", ONE),
        ("'wrong'", PARTS),
        ("f'{wrong}'", PARTS),
        ("b'wrong'", PARTS),
        ("lambda: wrong", PARTS),
        ("(y := wrong)", PARTS),
        ("[wrong]", PARTS),
        ("{wrong}", PARTS),
        ("wrong,", PARTS),
        ("wrong[0]", PARTS),
        ("[wrong for wrong in boxed]", PARTS),
        ("wrong if boxed else correct", PARTS),
        ("wrong and (yield)", PARTS),
        ("await wrong", PARTS),
        ("wrong & boxed", PARTS),
        ("~wrong", PARTS),
        ("-wrong", PARTS),
        ("wrong + 1", PARTS),
        ("1", PARTS),
        ("wrong or 1", PARTS),
        ("True", PARTS),
        ("None", PARTS),
        ("...", PARTS),
        ("1 < token_ratio < 2", ONE),
        ("token_ratio < 2 < 3", ONE),
        ("token_ratio > prompt_bpt", ONE),
        ("token_ratio == token_ratio", ONE),
        ("1 > 2", ONE),
        ("correct == 1", ONE),
        ("1 == correct", ONE),
        ("token_ratio > nan", ONE),
        ("token_ratio > 1e999", ONE),
        ("token_ratio > -1e999", ONE),
        ("token_ratio > 1" + "0" * 400, ONE),
        ("token_ratio > 1j", ONE),
        ("token_ratio > True", ONE),
        ("token_ratio > '1'", ONE),
        ("token_ratio > None", ONE),
        ("token_ratio > 1 + 1", ONE),
        ("token_ratio > --1", ONE),
        ("token_ratio > f(1)", ONE),
        ("token_ratio is 1", ONE),
        ("token_ratio in 1", ONE),
        ("token_ratio not in [1]", ONE),
        ("token_ratio + 1 > 2", ONE),
        ("abs(token_ratio) > 2", ONE),
        ("typo", r"name rubric variables \(invalid, correct, wrong, .*\) or compare a signal"),
        ("wrong and is_correct", "name rubric variables .*; got 'is_correct'"),
        ("not token_ratio", "name rubric variables .*; got 'token_ratio'"),
        ("_", "name rubric variables .*; got '_'"),
        ("-" * 1900 + "1", PARTS),
        ("a" + ".b" * 900, PARTS),
        ("a" + "()" * 900, PARTS),
        ("1" + "+1" * 900, PARTS),
        ("x > " + "-" * 1900 + "1", ONE),
        ("not " * 490 + "wrong", "nest brackets and `not` no deeper than 100"),
        ("(not " * 180 + "wrong" + ")" * 180, "nest brackets and `not` no deeper than 100"),
    ],
    ids=lambda value: repr(value)[:40].encode("ascii", "replace").decode(),
)
def test_refused(text, message):
    with pytest.raises(InvalidInputError, match=message) as raised:
        Condition.read(text, "rules[3]")
    assert str(raised.value).startswith("`rules[3]` must ")
    assert len(str(raised.value)) < 600


def test_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("open('made', 'w')", "[open('made', 'w')][0] == 1", "wrong or open('made', 'w')"):
        with pytest.raises(InvalidInputError, match=r"must (hold|compare)"):
            Condition.read(text)
    assert not list(tmp_path.iterdir())


# --- what is read ---


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_alone(name):
    rule = Condition.read(f"  {name} ")
    assert (rule.text, rule.variables, rule.bounds) == (name, (name,), ())
    assert rule.holds({name: True})
    assert not rule.holds({name: False})


@pytest.mark.parametrize(
    ("sign", "compare"),
    [
        ("<", operator.lt),
        ("<=", operator.le),
        (">", operator.gt),
        (">=", operator.ge),
        ("==", operator.eq),
        ("!=", operator.ne),
    ],
)
@pytest.mark.parametrize("bound", ["1", "-1", "0.5", "1e-3", "-1.5e3", "0"])
def test_comparisons_either_way_round(sign, compare, bound):
    number = float(bound)
    for value in (number - 0.25, number, number + 0.25):
        forth, back = f"x {sign} {bound}", f"{bound} {sign} x"
        assert Condition.read(forth).holds({"x": value}) == compare(value, number)
        assert Condition.read(back).holds({"x": value}) == compare(number, value)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("wrong or boxed and ood", "wrong or (boxed and ood)"),
        ("not wrong and boxed", "(not wrong) and boxed"),
        ("not wrong or boxed", "(not wrong) or boxed"),
        ("not x > 1 and boxed", "(not (x > 1)) and boxed"),
        ("(wrong\n or boxed)", "wrong or boxed"),
    ],
)
def test_the_usual_precedence(text, same):
    for wrong, boxed, ood, x in itertools.product((0, 1), repeat=4):
        world = {"wrong": bool(wrong), "boxed": bool(boxed), "ood": bool(ood), "x": 2.0 * x}
        assert Condition.read(text).holds(world) == Condition.read(same).holds(world)


def test_names_and_bounds_of_a_condition():
    rule = Condition.read("wrong and (x >= 2 or not wrong) and 1 < x and y == -0.5 and x != 2")
    assert rule.variables == ("wrong",)
    assert rule.bounds == (("x", (1.0, 2.0)), ("y", (-0.5,)))


def test_a_deep_condition_that_is_allowed():
    assert Condition.read("not " * 100 + "wrong").holds({"wrong": True})
    assert not Condition.read("(" * 99 + "wrong" + ")" * 99).holds({"wrong": False})


# --- three-valued logic ---

_AND = {(1, 1): 1, (1, 0): 0, (1, -1): -1, (0, 0): 0, (0, -1): 0, (-1, -1): -1}
_OR = {(1, 1): 1, (1, 0): 1, (1, -1): 1, (0, 0): 0, (0, -1): -1, (-1, -1): -1}


def test_kleenes_tables():
    for pair, expected in _AND.items():
        for a, b in (pair, pair[::-1]):
            assert conjunction(np.array([a]), np.array([b])).tolist() == [expected]
    for pair, expected in _OR.items():
        for a, b in (pair, pair[::-1]):
            assert disjunction(np.array([a]), np.array([b])).tolist() == [expected]
    assert negation(np.array([1, 0, -1])).tolist() == [0, 1, -1]


NAMES = ("wrong", "boxed", "ood", "A_high")
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
         "==": operator.eq, "!=": operator.ne}  # fmt: skip
LEAVES = st.one_of(
    st.sampled_from(NAMES).map(lambda name: ("name", name)),
    st.tuples(
        st.just("compare"),
        st.sampled_from(["x", "y"]),
        st.sampled_from(list(SIGNS)),
        st.sampled_from([-1, 0, 0.5, 2]),
        st.booleans(),
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=12,
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
        _, name, sign, number, turned = tree
        mirror = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        return f"{number} {mirror} {name}" if turned else f"{name} {sign} {number}"
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


@given(TREES, TRIALS, st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_condition_is_what_kleenes_logic_says(tree, trials, brackets):
    rule = Condition.read(written(tree, brackets))

    def variable(name):
        return np.array([-1 if t[name] is None else int(t[name]) for t in trials], dtype=np.int8)

    def signal(name):
        return np.array([np.nan if t[name] is None else t[name] for t in trials], dtype=float)

    expected = [truth(tree, trial) for trial in trials]
    found = rule.evaluate(variable, signal).tolist()
    assert found == [-1 if value is None else int(value) for value in expected]
    for trial, value in zip(trials, expected, strict=True):
        if None not in trial.values():
            assert rule.holds(trial) is value


def test_the_first_rule_that_is_not_certainly_false_decides():
    for truths in itertools.product((1, 0, -1), repeat=4):
        arrays = [np.array([t], dtype=np.int8) for t in truths]
        expected = next((i if t == 1 else -1 for i, t in enumerate(truths) if t), -1)
        assert first_match(arrays, 1).tolist() == [expected]
    assert first_match([], 2).tolist() == [-1, -1]


# --- the cases that rules must cover ---


def cases(*texts):
    return list(distinguishable_cases(tuple(Condition.read(text) for text in texts)))


def test_of_an_exclusive_group_exactly_one_holds():
    found = cases("economical or boxed")
    assert len(found) == 3 * 2
    assert all(w["economical"] + w["moderate"] + w["verbose"] == 1 for w in found)
    assert all(w["boxed"] != w["unboxed"] for w in found)


def test_what_implies_something_does_not_come_without_it():
    found = cases("wrong_high_conf")
    told = {(w["wrong_high_conf"], w["wrong"], w["correct"]) for w in found}
    assert told == {(False, True, False), (True, True, False), (False, False, True)}


def test_a_signal_takes_its_bounds_and_values_beside_them():
    found = sorted(w["x"] for w in cases("x > 1 or x < 3", "x == 1"))
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bound", [1e17, -1e17, 1.7e308, -1.7e308, 5e-324, 0.0])
def test_beside_a_large_bound_there_is_a_value_still(bound):
    below, at, above = sorted(w["x"] for w in cases(f"x > {bound!r}"))
    assert below < at == bound < above


def test_between_two_large_bounds_lies_no_infinity():
    found = sorted(w["x"] for w in cases("x > 1e308 or x < 1.5e308"))
    assert found[2] == pytest.approx(1.25e308)


def test_more_cases_than_are_tried():
    most = " or ".join(f"s{n} > 1" for n in range(11))  # 3^11 = 177,147
    assert next(distinguishable_cases((Condition.read(most),)))
    message = "distinguish at most 200,000 cases; got 531441"
    with pytest.raises(InvalidInputError, match=message):
        next(distinguishable_cases((Condition.read(most + " or s11 > 1"),)))


NEAR = np.arange(-3, 4.01, 0.25).tolist()
SMALL = st.recursive(
    st.one_of(
        st.sampled_from(["boxed", "unboxed", "economical", "moderate", "verbose"]).map(
            lambda name: ("name", name)
        ),
        st.tuples(
            st.just("compare"),
            st.just("x"),
            st.sampled_from(list(SIGNS)),
            st.sampled_from([-1, 0, 2]),
            st.booleans(),
        ),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=2)),
    ),
    max_leaves=4,
)


@given(st.lists(SMALL, min_size=2, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_rubric_is_taken_if_and_only_if_its_rules_cover_everything_and_each_decides(trees):
    everything = [
        {"boxed": boxed, "unboxed": not boxed, "economical": length == 0,
         "moderate": length == 1, "verbose": length == 2, "x": x}
        for boxed in (True, False) for length in range(3) for x in NEAR
    ]  # fmt: skip
    covered = all(any(truth(tree, world) for tree in trees) for world in everything)
    categories = tuple(
        Category(f"category {place}", written(tree, False), 0.0) for place, tree in enumerate(trees)
    )
    held = [[truth(tree, world) for tree in trees] for world in everything]
    decided = {one.index(True) for one in held if any(one)}
    if covered and len(decided) == len(trees):
        assert Schema("mine", categories).rules
    elif covered:
        with pytest.raises(InvalidInputError, match="leave a case to every category of rubric"):
            Schema("mine", categories)
    else:
        with pytest.raises(InvalidInputError, match="cover every case of rubric mine"):
            Schema("mine", categories)
