"""A table drawn by rich on a terminal, without breaking numbers or words of headings."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lm_eval_bayes.cli.ui.table_layout import (
    GAP,
    Block,
    fit_all,
    fit_one_block,
    fold,
    table_columns,
)


def draw(
    title: str,
    head: Sequence[str],
    lines: Sequence[Sequence[str]],
    optional: Sequence[str] = (),
    wide: bool = True,
) -> None:
    """Draw a table of printable texts; `wide` and `optional` as in `say_table`."""
    console = Console()
    columns = table_columns(head, lines)
    if wide:
        layout = fit_all(columns, console.width)
    else:
        layout = fit_one_block(columns, console.width, optional)
    console.print(Text(title, style="italic"), soft_wrap=True)
    if layout.constants:
        console.print(Text(layout.constants, style="italic"), soft_wrap=True)
    for number, block in enumerate(layout.blocks):
        if number:
            console.print()
        console.print(_table(block))
    if layout.note:
        console.print(Text(layout.note, style="italic"), soft_wrap=True)


def _table(block: Block) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column, wide in zip(block.columns, block.widths, strict=True):
        table.add_column(Text(column.head), width=wide, overflow="fold")
    for row in zip(*(column.cells for column in block.columns), strict=True):
        folded = (
            fold(cell, wide) if column.is_name else cell
            for cell, column, wide in zip(row, block.columns, block.widths, strict=True)
        )
        table.add_row(*map(Text, folded))
    return table
