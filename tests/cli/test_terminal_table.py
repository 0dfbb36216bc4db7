"""Tables on terminals of any width: nothing is lost, and no number is broken."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from lm_eval_bayes.cli.ui import terminal_table
from lm_eval_bayes.cli.ui.terminal_table import draw, fold

HEAD = ["task", "model", "questions", "N", "hbayes@N", "these questions", "questions like these"]
ROWS = [
    ["demo_arithmetic_bayes", "org/model-7b", "40", "8", "0.388 ± 0.025", "0.340 to 0.437", "0.3"],
    ["demo_arithmetic_bayes", "org/model-1b", "40", "8", "0.616 ± 0.025", "0.566 to 0.664", "0.5"],
]


def drawn(monkeypatch, width, title, head, rows):
    output = io.StringIO()
    complete = terminal_table.Console

    def console():
        return complete(file=output, width=width)

    with monkeypatch.context() as patch:
        patch.setattr(terminal_table, "Console", console)
        draw(title, head, rows)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_wide_terminal_has_one_line_a_row(monkeypatch):
    lines = drawn(monkeypatch, 200, "Scores", HEAD, ROWS)
    assert lines[0] == "Scores"
    cells = [re.split(r" {2,}", line) for line in (lines[1], *lines[3:])]
    assert cells == [HEAD, *ROWS]
    assert set(lines[2]) == {"─"}


def test_a_name_that_all_lines_have_is_said_once(monkeypatch):
    lines = drawn(monkeypatch, 80, "Scores", HEAD, ROWS)
    assert lines[:2] == ["Scores", "task demo_arithmetic_bayes"]
    cells = [re.split(r" {2,}", line) for line in lines[-2:]]
    assert cells == [row[1:] for row in ROWS]


def test_numbers_that_all_lines_have_are_said_once_where_the_rest_then_fits(monkeypatch):
    rows = [row[:6] for row in ROWS]
    lines = drawn(monkeypatch, 44, "Scores", HEAD[:6], rows)
    assert lines[1] == "task demo_arithmetic_bayes, questions 40, N 8"
    cells = [re.split(r" {2,}", line) for line in lines[-2:]]
    assert cells == [[row[1], *row[4:]] for row in rows]


def test_a_table_too_wide_becomes_several_with_the_names(monkeypatch):
    lines = drawn(monkeypatch, 34, "Scores", HEAD, ROWS)
    parts = "\n".join(lines[2:]).split("\n\n")
    cells = [
        [re.split(r" {2,}", line) for line in part.splitlines()[-len(ROWS) :]] for part in parts
    ]
    assert len(parts) == 4
    for number, row in enumerate(ROWS):
        assert [part[number][0] for part in cells] == [row[1]] * 4
        assert [cell for part in cells for cell in part[number][1:]] == row[2:]
    assert max(map(len, lines[2:])) <= 34


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("demo_arithmetic_bayes", 16, ["demo_arithmetic_", "bayes"]),
        ("demo_arithmetic_bayes", 30, ["demo_arithmetic_bayes"]),
        ("a b", 1, ["a", "b"]),
        ("数学/模型", 5, ["数学/", "模型"]),
        ("", 5, [""]),
    ],
)
def test_names_are_folded_at_their_joints(text, width, lines):
    assert fold(text, width).split("\n") == lines


NAMES = st.from_regex(r"\A[a-z]{3,8}(?:[-_/ .][a-z0-9]{1,8}){0,4}\Z")
NUMBERS = st.sampled_from(
    ["0.388 ± 0.025", "0.340 to 0.437", ">0.999", "-", "9,394", "23 (21 to 26)"]
)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(40, 140), st.integers(1, 4))
def test_every_number_stands_on_one_line_and_no_name_loses_a_letter(data, width, n_rows):
    n_names, n_numbers = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 6))
    head = [f"name{i}" for i in range(n_names)] + [f"a number{i}" for i in range(n_numbers)]
    rows = [
        [data.draw(NAMES) for _ in range(n_names)] + [data.draw(NUMBERS) for _ in range(n_numbers)]
        for _ in range(n_rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        lines = drawn(patch, width, "t", head, rows)
    complete = "\n".join(lines)
    assert all(cell_len(line) <= width for line in lines[2:])
    for row in rows:
        for cell in row[n_names:]:
            assert cell in complete
        for name in row[:n_names]:
            letters = iter(complete)
            assert all(c in letters for c in name if c != " ")
    for word in {word for name in head for word in name.split()}:
        assert word in complete
