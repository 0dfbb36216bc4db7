"""The demo questions: every answer computed again from the problem's expression."""

from __future__ import annotations

from collections import Counter

import pytest

from lm_eval_bayes.harness.task.questions import demo_questions

ROWS = list(demo_questions()["test"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_answer_is_right(row: dict[str, str]) -> None:
    assert eval(row["check"]) == int(row["answer"])


def test_forty_questions_at_five_levels() -> None:
    assert Counter(row["level"] for row in ROWS) == dict.fromkeys(range(1, 6), 8)
    assert len({row["id"] for row in ROWS}) == len({row["problem"] for row in ROWS}) == 40
    assert [row["level"] for row in ROWS] == sorted(row["level"] for row in ROWS)
