"""Tables of any width: what is left out is said, and no number is broken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from lm_eval_bayes.cli.ui.output import say_table, tables_with_all_columns
from lm_eval_bayes.cli.ui.table_layout import fit_one_block, table_columns

NAMES = st.from_regex(r"\A[a-z]{3,8}(?:[-_/ .][a-z0-9]{1,8}){0,4}\Z")
NUMBERS = st.sampled_from(
    ["0.388 ± 0.025", "0.340 to 0.437", ">0.999", "-", "9,394", "23 (21 to 26)"]
)


# -- one block -----------------------------------------------------------------------------------


LONG = "a" * 470


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([f"{LONG}-7b", f"{LONG}-1b"], ["aaaaaaaaaa…aaaaaa-7b", "aaaaaaaaaa…aaaaaa-1b"]),
        (
            [f"{a}{LONG}{b}{LONG}" for a in "ab" for b in "cd"],
            [f"{start}aaaaaaaa…aaaaaaaa#{n}" for n, start in enumerate("aabb", 1)],
        ),
        (["数" * 40, "模" * 40], ["数" * 5 + "…" + "数" * 4, "模" * 5 + "…" + "模" * 4]),
    ],
)
def test_long_names_are_shortened_in_the_middle_and_stay_different(names, shown):
    rows = [(name, f"0.38{i} ± 0.025", f"9,39{i}") for i, name in enumerate(names)]
    layout = fit_one_block(table_columns(("model", "mean", "tokens"), rows), 43)
    assert list(layout.columns[0].cells) == shown
    assert all(cell_len(cell) <= layout.widths[0] for cell in shown)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(60, 140), st.integers(1, 4))
def test_one_block_fits_and_every_column_is_shown_or_named(data, width, n_rows):
    n_names, n_numbers = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 12))
    long_names = st.builds(lambda name, n: name * n, NAMES, st.integers(1, 60))
    head = [f"name{i}" for i in range(n_names)] + [f"number{i}" for i in range(n_numbers)]
    rows = [
        [data.draw(long_names) for _ in range(n_names)]
        + [data.draw(NUMBERS) for _ in range(n_numbers)]
        for _ in range(n_rows)
    ]
    optional = data.draw(st.lists(st.sampled_from(head[n_names:]), unique=True))
    layout = fit_one_block(table_columns(head, rows), width, optional)
    assert sum(layout.widths) + 2 * (len(layout.widths) - 1) <= width
    shown = [column.head for column in (*layout.columns, *layout.above)]
    left_out = [name for name in head if name not in shown]
    assert set(left_out).isdisjoint(head[:n_names])
    assert all(name in layout.note for name in left_out[:6])
    assert (" and " in layout.note) == (len(left_out) > 6)
    for column, wide in zip(layout.columns, layout.widths, strict=True):
        assert all(cell_len(cell) <= wide for cell in column.cells)
        before = [row[head.index(column.head)] for row in rows]
        pairs = set(zip(before, column.cells, strict=True))
        assert len(pairs) == len(set(before)) == len(set(column.cells))


@pytest.mark.parametrize("wide", [True, False])
def test_wide_characters_are_padded_by_their_width_in_a_pipe(capsys, wide):
    rows = [("模型_🙂", "0.5"), ("model-b", "0.75")]
    with tables_with_all_columns(wide):
        say_table("Scores", ("model", "mean"), rows)
    lines = capsys.readouterr().out.splitlines()[1:]
    cells = zip(lines, ("mean", "0.5", "0.75"), strict=True)
    assert {cell_len(line[: line.index(cell)]) for line, cell in cells} == {2 + 7 + 2}
