"""A table on a terminal, however narrow: no number and no word of a heading is ever broken.

Where a table is too wide, columns that say the same in every line go above it; names are folded,
at their own joints; and what is still too wide becomes several tables, each with the names.
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

#: Names are not folded below so many letters, where they have them; on a strip of a terminal
#: not below the second.
_NARROWEST, _LEAST = 16, 6
#: Blanks between two columns.
_GAP = 2
#: Words that stand in cells which are numbers all the same.
_WORDS = re.compile(r"\b(?:to|of|above|below)\b")
#: Where a name may be folded: after these.
_JOINTS = re.compile(r"[^\s_\-/=.,]*(?:[\s_\-/=.,]|$)")


@dataclass(frozen=True)
class _Column:
    head: str
    cells: tuple[str, ...]

    @property
    def is_name(self) -> bool:
        """Whether it holds names or sentences, which may be folded, rather than numbers."""
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
    """Draw a table, whose texts are printable."""
    console = Console()
    cells = list(zip(*lines, strict=True)) or [()] * len(head)
    columns = [_Column(name, tuple(column)) for name, column in zip(head, cells, strict=True)]
    above, columns = _said_once(columns, console.width)
    console.print(Text(title, style="italic"), soft_wrap=True)
    if above:
        told = ", ".join(f"{one.head} {one.cells[0]}" for one in above)
        console.print(Text(told, style="italic"), soft_wrap=True)
    for number, part in enumerate(_parts(columns, console.width)):
        if number:
            console.print()
        console.print(_table(part, console.width))


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _said_once(columns: list[_Column], width: int) -> tuple[list[_Column], list[_Column]]:
    """Take out columns that are the same in every line, as many as it needs to fit.

    Names first; numbers only where that makes it one table.
    """
    above: list[_Column] = []
    rest = columns
    constant = [one for one in columns if one.is_constant and one.head]
    names = [one for one in constant if one.is_name]
    numbers = [one for one in constant if not one.is_name]
    for one in names:
        if _width([c.widest for c in rest]) > width and len(rest) > 1:
            above, rest = [*above, one], [c for c in rest if c is not one]
    for taken in range(len(numbers) + 1):
        fewer = [c for c in rest if c not in numbers[:taken]]
        if fewer and _width([c.narrowest for c in fewer]) <= width:
            return [*above, *numbers[:taken]], fewer
    return above, rest


def _parts(columns: list[_Column], width: int) -> list[list[_Column]]:
    """Cut columns into tables that fit; each begins with the names."""
    first = next((i for i, one in enumerate(columns) if one.is_name), 0)
    end = first
    while end < len(columns) and columns[end].is_name:
        end += 1
    names, rest = columns[:end], columns[end:]
    parts = [names]
    for one in rest:
        wider = [*parts[-1], one]
        if len(parts[-1]) > len(names) and _width([c.narrowest for c in wider]) > width:
            parts.append([*names, one])
        else:
            parts[-1] = wider
    return parts


def _table(columns: Sequence[_Column], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    widths = _widths(columns, width)
    for one, wide in zip(columns, widths, strict=True):
        table.add_column(Text(one.head), width=wide, overflow="fold")
    for row in zip(*(one.cells for one in columns), strict=True):
        folded = (
            fold(cell, wide) if one.is_name else cell
            for cell, one, wide in zip(row, columns, widths, strict=True)
        )
        table.add_row(*map(Text, folded))
    return table


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Give every column what it needs, and what is left to those that want more, evenly."""
    widths = [one.narrowest for one in columns]
    left = width - _width(widths)
    names = [i for i, one in enumerate(columns) if one.is_name]
    while left < 0 and names and max(widths[i] for i in names) > _LEAST:
        widths[max(names, key=lambda i: widths[i])] -= 1
        left += 1
    wanting = [i for i, one in enumerate(columns) if one.widest > widths[i]]
    while wanting and left > 0:
        i = min(wanting, key=lambda i: widths[i])
        widths[i] += 1
        left -= 1
        wanting = [i for i in wanting if columns[i].widest > widths[i]]
    return widths


def fold(text: str, width: int) -> str:
    r"""Break a name or a sentence into lines, after its joints where that is possible.

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
