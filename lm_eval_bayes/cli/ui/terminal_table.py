"""A table that fits the width of the terminal without breaking numbers or words of headings.

If a table is too wide, columns with a single value are moved above it, names are folded at
separators, and the remaining columns are split into several tables, each with the names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Smallest width of a folded name, and on a very narrow terminal.
_NARROWEST, _LEAST = 16, 6
#: Blanks between two columns.
_GAP = 2
#: Words that may be in a cell of numbers.
_WORDS = re.compile(r"\b(?:to|of|above|below)\b")
#: A part of a name up to a separator, after which it may be folded.
_JOINTS = re.compile(r"[^\s_\-/=.,]*(?:[\s_\-/=.,]|$)")


@dataclass(frozen=True)
class _Column:
    head: str
    cells: tuple[str, ...]

    @property
    def is_name(self) -> bool:
        """Whether the cells are names or sentences, which may be folded, and not numbers."""
        return any(sum(map(str.isalpha, _WORDS.sub("", cell))) > 2 for cell in self.cells)

    @property
    def widest(self) -> int:
        return max(map(cell_len, (self.head, *self.cells)))

    @property
    def narrowest(self) -> int:
        words = max(map(cell_len, self.head.split()), default=0)
        cells = max(map(cell_len, self.cells), default=0)
        return max(words, min(cells, _NARROWEST) if self.is_name else cells)

    @property
    def is_constant(self) -> bool:
        return len(self.cells) > 1 and len(set(self.cells)) == 1


def draw(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Draw a table of printable texts."""
    console = Console()
    cells = list(zip(*lines, strict=True)) or [()] * len(head)
    columns = [_Column(name, tuple(column)) for name, column in zip(head, cells, strict=True)]
    above, columns = _move_constant(columns, console.width)
    console.print(Text(title, style="italic"), soft_wrap=True)
    if above:
        constants = ", ".join(f"{column.head} {column.cells[0]}" for column in above)
        console.print(Text(constants, style="italic"), soft_wrap=True)
    for number, part in enumerate(_parts(columns, console.width)):
        if number:
            console.print()
        console.print(_table(part, console.width))


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _move_constant(columns: list[_Column], width: int) -> tuple[list[_Column], list[_Column]]:
    """Take out columns that are the same in every line, as many as it needs to fit.

    Names first; numbers only where that makes it one table.
    """
    above: list[_Column] = []
    rest = columns
    constant = [column for column in columns if column.is_constant and column.head]
    names = [column for column in constant if column.is_name]
    numbers = [column for column in constant if not column.is_name]
    for column in names:
        if _width([c.widest for c in rest]) > width and len(rest) > 1:
            above, rest = [*above, column], [c for c in rest if c is not column]
    for taken in range(len(numbers) + 1):
        fewer = [c for c in rest if c not in numbers[:taken]]
        if fewer and _width([c.narrowest for c in fewer]) <= width:
            return [*above, *numbers[:taken]], fewer
    return above, rest


def _parts(columns: list[_Column], width: int) -> list[list[_Column]]:
    """Split columns into tables that fit; each starts with the names."""
    first = next((i for i, column in enumerate(columns) if column.is_name), 0)
    end = first
    while end < len(columns) and columns[end].is_name:
        end += 1
    names, rest = columns[:end], columns[end:]
    parts = [names]
    for column in rest:
        wider = [*parts[-1], column]
        if len(parts[-1]) > len(names) and _width([c.narrowest for c in wider]) > width:
            parts.append([*names, column])
        else:
            parts[-1] = wider
    return parts


def _table(columns: Sequence[_Column], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    widths = _widths(columns, width)
    for column, wide in zip(columns, widths, strict=True):
        table.add_column(Text(column.head), width=wide, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        folded = (
            fold(cell, wide) if column.is_name else cell
            for cell, column, wide in zip(row, columns, widths, strict=True)
        )
        table.add_row(*map(Text, folded))
    return table


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return the widths: what every column needs, and the rest evenly to those that need more."""
    widths = [column.narrowest for column in columns]
    left = width - _width(widths)
    names = [i for i, column in enumerate(columns) if column.is_name]
    while left < 0 and names and max(widths[i] for i in names) > _LEAST:
        widths[max(names, key=lambda i: widths[i])] -= 1
        left += 1
    wanting = [i for i, column in enumerate(columns) if column.widest > widths[i]]
    while wanting and left > 0:
        i = min(wanting, key=lambda i: widths[i])
        widths[i] += 1
        left -= 1
        wanting = [i for i in wanting if columns[i].widest > widths[i]]
    return widths


def fold(text: str, width: int) -> str:
    r"""Break a name or a sentence into lines, after separators if possible.

    Examples
    --------
    >>> print(fold("demo_arithmetic_bayes", 16))
    demo_arithmetic_
    bayes
    >>> print(fold("What is 12 times 7?", 12))
    What is 12
    times 7?
    """
    lines = [""]
    for piece in _JOINTS.findall(text):
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)
