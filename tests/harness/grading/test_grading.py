r"""Right and wrong answers: the 150 real questions, several answers, traps, bad input."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from _support.errors import refused
from _support.paths import REPOSITORY, SHARED

from lm_eval_bayes.errors import DatasetUnavailableError
from lm_eval_bayes.harness.grading.grade import (
    Grade,
    grade,
    process_results_aime,
    process_results_math,
)

SETS = {
    **dict.fromkeys(("aime_2024", "aime_2025", "aime_2026"), "aime"),
    **dict.fromkeys(("hmmt_feb_2025", "brumo_2025"), "math"),
}
HMMT_10 = r"\frac{-1+\sqrt{17}}{2}, \frac{-1-\sqrt{17}}{2}"
BRUMO_23 = r"2,3,\frac{3+i\sqrt{3}}{2},\frac{3-i\sqrt{3}}{2}"


def questions(name: str) -> list[dict]:
    path = SHARED / "data" / "contests" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"the contest data is not there: {path.name}")
    docs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(docs) == 30
    return docs


def graded_cases(name: str) -> list[dict]:
    path = SHARED / "cases" / f"{name}.jsonl"
    if name == "grading_cases":
        path = REPOSITORY / "examples" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"the graded cases are not there: {path.name}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def misgraded(cases: list[dict]) -> list[dict]:
    return [
        c for c in cases if grade(c["response"], c["gold"], kind=c["kind"]).correct != c["right"]
    ]


def boxed(answer: object) -> str:
    return f"We find that the answer is\n\\[\\boxed{{{answer}}}\\]"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "hmmt_feb_2025" else ())
        for name in SETS
    ],
)
def test_the_gold_of_every_question_is_correct_and_a_changed_one_is_wrong(name):
    kind = SETS[name]
    process = process_results_aime if kind == "aime" else process_results_math
    for doc in questions(name):
        gold = doc["answer"]
        row = process(doc, [boxed(gold)])
        assert row == {"exact_match": 1, "answer": str(gold), "grading_error": None}
        if re.fullmatch(r"-?\d+", str(gold)):
            wrong = [str(int(gold) + 1), str(int(gold) - 1), f"-{gold}1"]
        else:
            other_digit = re.sub(r"\d", lambda m: str(int(m.group()) % 9 + 1), gold, count=1)
            wrong = [other_digit, f"{gold}+1", f"{gold},0"]
        for answer in wrong:
            row = process(doc, [boxed(answer)])
            assert row == {"exact_match": 0, "answer": answer, "grading_error": None}, (
                gold,
                answer,
            )


#: Right and wrong spellings of a gold, and of each of its values.
RIGHT_WHOLE = [
    r"\text{The answer is }%s", r"\color{blue}{%s}", r"{\Large %s}", r"\mathbf{%s}", "$%s$",
    r"\underline{%s}", "f(3) = %s", r"%s\text{ units}", r"\bigl\{%s\bigr\}",
]  # fmt: skip
RIGHT_PARTS = [
    r"\left(%s\right)",
    r"%s\,",
    "x = %s",
    r"0 + \left(%s\right)",
    r"\dfrac{2\cdot(%s)}{2}",
]
WRONG_WHOLE = [
    r"\text{at least }%s", r"%s\text{ million}", r"\text{not }%s", "%s+1", "%s,0", "%s_7", "2(%s)",
]  # fmt: skip
WRONG_PARTS = ["x > %s", "%s k", r"%s\pi"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_gold_in_right_and_wrong_spellings(name):
    kind = SETS[name]
    for doc in questions(name):
        gold = str(doc["answer"])
        parts = gold.split(",")  # no gold here has a comma of another kind
        right = [form % gold for form in RIGHT_WHOLE]
        right += [
            gold.replace("-", "\u2212").replace(r"\pi", "π"),
            gold.replace(r"\frac", r"\dfrac"),
        ]
        # an AIME answer is a plain integer, not a sum nor a fraction
        right += [
            ", ".join(f % part for part in parts) for f in RIGHT_PARTS[: 3 if kind == "aime" else 5]
        ]
        right.append(r" \text{ or } ".join(f"x = {part}" for part in reversed(parts)))
        wrong = [form % gold for form in WRONG_WHOLE]
        wrong += [", ".join(form % part for part in parts) for form in WRONG_PARTS if gold != "0"]
        grades = {answer: grade(boxed(answer), gold, kind=kind) for answer in (*right, *wrong)}
        assert [answer for answer in right if not grades[answer].correct] == []
        assert [answer for answer in wrong if grades[answer].correct] == []
        assert not any(graded.error for graded in grades.values())


@pytest.mark.parametrize(
    ("name", "size", "every", "false_negatives"),
    [
        pytest.param("grading_holds", 494, 1, 0, marks=pytest.mark.slow),
        ("grading_holds", 494, 25, 0),
        # three boxless sentences in plain text, a percentage behind one, named pairs in a gold
        ("grading", 109, 1, 5),
        # a ratio with a braced colon, a union of sets of one number
        ("grading_cases", 339, 1, 2),
    ],
)
def test_graded_answers(name, size, every, false_negatives):
    cases = graded_cases(name)
    assert len(cases) == size
    wrong = misgraded(cases[::every])
    assert [case for case in wrong if not case["right"]] == []
    assert len(wrong) == false_negatives, wrong


def test_several_answers_come_in_any_order_and_dress():
    for gold in (HMMT_10, BRUMO_23):
        parts = gold.split(",")
        for order in itertools.permutations(parts):
            assert grade(boxed(",".join(order)), gold).correct
            separate = " and ".join(rf"$\boxed{{{part}}}$" for part in order)
            assert grade(separate, gold).correct
        for left_out in range(len(parts)):
            some = parts[:left_out] + parts[left_out + 1 :]
            assert not grade(boxed(",".join(some)), gold).correct
            assert not grade(boxed(",".join([*some, "17"])), gold).correct
        assert not grade(boxed(gold + ",17"), gold).correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (HMMT_10, r"\frac{-1 \pm \sqrt{17}}{2}"),
        (HMMT_10, r"a+b+c = -\frac12 \pm \frac{\sqrt{17}}{2}"),
        (BRUMO_23, r"3, 2, \tfrac{3 \pm \sqrt{3}\,i}{2}"),
        (BRUMO_23, r"a \in \{2, 3, \frac32+\frac{\sqrt3}{2}i, \frac32-\frac{\sqrt3}{2}i\}"),
        ("2^{99}", "633825300114114700748351602688"),
        (r"\frac{1}{2}", "0.5"),
        ("[0,1)", r"\left[0, 1\right)"),
        ("(1,2)", "1, 2"),
        ("x^2+2x", "x(x+2)"),
        (r"30^\circ", "30"),
        ("1024", "1,024"),
        ("2,3", "x = 2 or x = 3"),
        ("2,3", r"x \in \{3, 2\}"),
        ("(1,2),(3,4)", "(3, 4); (1, 2)"),
        (r"1+x-y, 1-x+y", r"1 \pm x \mp y"),
        (5, "x = 5"),
        ("0", r"\sqrt{8}-2\sqrt{2}"),
        (r"\pi", "3.1415926536"),
        (r"\frac{1}{3}", "0.333333333333"),
        ("110000000000000000000", r"1.1 \cdot 10^{20}"),
        (r"\frac{\sqrt{3}}{2}i", r"e^{2\pi i/3} + \frac{1}{2}"),
        ("1", "2^{2025}+1-2^{2025}"),
        (r"\infty", r"+\infty"),
        (r"28\%", "28 percent"),
        (r"28\%", "0.28"),
        (r"28\%", r"28\%"),
        (r"\frac{1}{8}", r"12.5\%"),
    ],
)
def test_equivalent_answers(gold, answer):
    assert grade(boxed(answer), gold) == Grade(True, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (HMMT_10, r"\frac{-1+\sqrt{17}}{2}, \frac{-1+\sqrt{17}}{2}"),
        (HMMT_10, r"\frac{1 \pm \sqrt{17}}{2}"),
        ("5", "5, 6"),
        ("(1,2)", "2, 1"),
        ("[0,1)", "(0,1)"),
        ("x^2+2x", "x(x+3)"),
        ("102", "10^{2}"),
        ("2^{99}", "633825300114114700748351602689"),
        ("1", r"\frac{1}{0}"),
        ("5", r"\infty"),
        ("0", "10^{-40}"),
        (r"\pi", "3.14159265"),
        ("2^{2024}", "2^{2024}+1"),
        (r"2^{1100}\sqrt{3}", r"2^{1100}\sqrt{3}+1"),
        # the 100th Fibonacci number, without the second term of Binet's formula
        ("354224848179261915075", r"\frac{1}{\sqrt5}\left(\frac{1+\sqrt5}{2}\right)^{100}"),
        ("1", "1-e^{-100}"),
        (r"\sqrt{2}", r"\frac{6882627592338442563}{4866752642924153522}"),
        ("1+i", "1-i"),
        ("2", "2^{2025}+1-2^{2025}"),
        ("28", r"28\%"),
    ],
)
def test_answers_that_are_close_but_wrong(gold, answer):
    assert grade(boxed(answer), gold) == Grade(False, answer)


@pytest.mark.parametrize("n", [0, 7, 33, 204, 999])
@pytest.mark.parametrize(
    "form",
    [
        "{}", "{:03d}", "{}.", "{},", "${}$", r"\({}\)", "x = {}", "m+n={}", r"\text{{{}}}",
        r"\mathbf{{\text{{{}}}}}", r"{}^\circ", r"{}^{{\circ}}", "{}°", "{} degrees", "{}.0",
        r"{}\text{{ cm}}", r"{}\text{{ cm}}^2", "+{}", "({})", "{{{}}}", r"\,{}\!", "\u202e{}\0",
        r"\color{{red}}{}", r"N \equiv {} \pmod{{1000}}", r"\text{{Answer: }}{}", "{} = 2+3",
    ],
)  # fmt: skip
def test_an_aime_integer_in_every_dress(n, form):
    assert grade(boxed(form.format(n)), n, kind="aime").correct


@pytest.mark.parametrize(
    "answer",
    [
        "x", "-33", "1033", "33,000", "33{,}000", r"33\,000", "33!", r"33\%", "33.5", "3 3",
        "33, 34", "33 or 34", r"\text{33 or 34}", r"\frac{66}{2}", "30+3", "3.3e1", "0x21", "٣٣",
        "33²", "9" * 5000, "33 = n + 1", "m = 3, n = 33", "33_8", r"\text{at least }33",
    ],
)  # fmt: skip
def test_what_is_no_aime_integer(answer):
    assert not grade(boxed(answer), 33, kind="aime").correct


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 33.", "33"),
        ("**Answer:** 1,024", "1024"),
        (r"Therefore the final answer is $\frac{1}{2}$.", r"\frac{1}{2}"),
        (r"with roots $2$ and $-3$", "2, -3"),
        ("We start from 7 and reach -12", "-12"),
        ("no number at all", None),
        (r"so \boxed{\frac{4}{9}", None),
        (r"The answer is 12, so \boxed{13", "12"),
        (r"As in \boxed{}: the answer is 12", "12"),
        ("x" * 40_000 + " The answer is 7.", "7"),
        ("The answer is 7. " + "x" * 40_000, None),
    ],
)
def test_without_a_box_math_verify_finds_the_answer(text, answer):
    assert grade(text, "7").answer == answer


def test_the_last_box_counts_unless_the_gold_has_several_values():
    text = r"Hence $\boxed{2}$, or rather $\boxed{3}$."
    assert grade(text, "3") == Grade(True, "3")
    assert grade(text, 3, kind="aime") == Grade(True, "3")
    assert grade(text, "2") == Grade(False, "3")
    assert grade(text, "2,3") == grade(text, "(2,3)") == Grade(True, "2, 3")
    assert grade(r"[THINK]\boxed{12}[/THINK]\boxed{70}", 70, kind="aime") == Grade(True, "70")


def test_thinking_is_not_the_answer():
    assert grade(r"<think>\boxed{33}</think> It is 12.", 33, kind="aime") == Grade(False, "12")
    assert grade(r"\boxed{12}</think>\boxed{33}", 33, kind="aime").correct
    assert grade(r"\boxed{12}[/r]\boxed{33}", 12, think_end_token="[/r]") == Grade(False, "33")
    assert grade(r"\boxed{33}</think>", 33, kind="aime") == Grade(False, None)


@pytest.mark.parametrize(
    "answer",
    [
        "{" * 5_000 + "1" + "}" * 5_000,
        r"\frac{1}{" * 80 + "1" + "}" * 80,
        "1" * 20_000,
        "\0\0",
        "\u202e33\u202c",
        "1e999999999",
    ],
)
def test_absurd_answers_are_simply_wrong(answer):
    assert grade(boxed(answer), r"\frac{1}{2}").correct is False
    assert grade(boxed(answer), 7, kind="aime").correct is False


def test_an_unreadable_gold_is_an_error_of_the_grader_and_not_of_the_model():
    result = grade(boxed("7"), r"\frac{")
    assert result.correct is False
    assert result.error.startswith("ValueError: the gold answer is no formula")
    assert "\n" not in result.error


@pytest.mark.parametrize(
    ("response", "gold", "options", "error"),
    [
        (None, "1", {}, ("response", "type", None)),
        ("x", " ", {}, ("gold", "format", " ")),
        ("x", 1000, {"kind": "aime"}, ("gold", "range", 1000)),
    ],
)
def test_bad_arguments_are_named(response, gold, options, error):
    with refused(*error):
        grade(response, gold, **options)


def test_a_row_survives_what_goes_wrong_and_says_so():
    doc = {"problem_idx": 12, "problem": "What is it?", "answer": "12a"}
    row = process_results_aime(doc, [boxed(12)])
    assert row["exact_match"] == 0
    assert row["grading_error"].startswith("InvalidInputError: `gold`")
    row = process_results_math({"answer": "7"}, [None])
    assert row["exact_match"] == 0
    assert "`response`" in row["grading_error"]


def test_questions_without_answers_are_refused():
    with refused("answer", "missing-key", error=DatasetUnavailableError):
        process_results_math({"problem": "?", "solution": "!"}, ["x"])
