"""The shape of every screen: a sentence that answers, a table, and the command to type next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval_bayes._util.text import format_number, format_score, one_line, shorten_names
from lm_eval_bayes.cli.screens.bars import Axis, Ends
from lm_eval_bayes.cli.ui.output import all_columns, say

#: Columns of a screen on a terminal, and of its bars in a pipe.
WIDTH, PIPED_BAR = 80, 30
#: Rows of a table on a terminal, unless all are asked for: all up to 19, else 15.
_ALL_ROWS, _MOST_ROWS = 19, 15
#: The shortest form of a name on a terminal.
_SHORTEST_NAME = 12
#: Letters in a cell of numbers after the first column, as in "0.31 to 0.42".
_MOST_LETTERS = 2
_GAP = "  "


@dataclass(frozen=True)
class Form:
    """The form of a screen.

    Attributes
    ----------
    drawn : bool
        Whether it is drawn on a terminal. In a pipe, with NO_COLOR, and where box characters are
        missing or two columns wide, it is plain ASCII.
    width : int
        Its columns; in a pipe it has no limit, so that nothing is shortened.
    verbose : bool
        Whether all rows are shown.
    """

    drawn: bool
    width: int = WIDTH
    verbose: bool = False

    @classmethod
    def of_output(cls, stream: Any = None) -> Form:
        """Return the form for a stream, by default standard output."""
        stream = sys.stdout if stream is None else stream
        language = next((v for v in map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG")) if v), "")
        on_terminal = stream is not None and stream.isatty()
        drawn = (
            on_terminal
            and not os.environ.get("NO_COLOR")
            and (stream.encoding or "").lower().replace("-", "") == "utf8"
            and not language.startswith(("zh", "ja", "ko"))
        )
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        return cls(drawn, min(columns, WIDTH) if on_terminal else sys.maxsize, all_columns())

    @property
    def is_piped(self) -> bool:
        """Whether it is in a pipe."""
        return self.width == sys.maxsize

    def ends(self, ends: tuple[float, float], sign: bool = False) -> str:
        """Return the ends of an interval as a cell."""
        low, high = (self.score(end, sign) for end in ends)
        return f"{low}{' to ' if sign else '–' if self.drawn else ' '}{high}"

    def interval(self, interval: Any, sign: bool = False) -> str:
        """Return the ends of an interval, its attributes `low` and `high`, as a cell."""
        return self.ends((interval.low, interval.high), sign)

    @staticmethod
    def score(value: float, sign: bool = False) -> str:
        """Return a score, or a difference with its sign."""
        text = format_score(value)
        return f"+{text}" if sign and not text.startswith("-") else text

    def number(self, value: float) -> str:
        """Return a number of things, or a mean of such numbers, with commas for people."""
        text = format_number(value)
        return text if self.drawn else text.replace(",", "")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    head : str
        Its heading.
    cells : sequence of str
        One per row.
    left : bool
        Whether it is aligned to the left.
    is_name : bool
        Whether the cells are names, which may lose their middles on a terminal.
    """

    head: str
    cells: Sequence[str]
    left: bool = False
    is_name: bool = False

    @property
    def width(self) -> int:
        """The width of the column."""
        from rich.cells import cell_len

        return max(map(cell_len, (self.head, *self.cells)))


def names(head: str, texts: Sequence[str]) -> Column:
    """Return a column of names, which are untrusted."""
    return Column(head, [one_line(text) for text in texts], left=True, is_name=True)


def table_columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[Column]:
    """Return columns: those with words are aligned to the left, numbers to the right."""
    lines = [[one_line(cell) for cell in row] for row in rows]
    columns = []
    for number, (title, *cells) in enumerate(zip(head, *lines, strict=True)):
        most = _MOST_LETTERS if number else 0
        has_words = any(sum(map(str.isalpha, cell)) > most for cell in cells)
        columns.append(Column(one_line(title), cells, left=has_words, is_name=has_words))
    return columns


def say_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of texts and numbers below its title, if it has one."""
    if title:
        say(title)
    say_columns(table_columns(head, rows), Form.of_output())


def free_width(columns: Sequence[Column], form: Form) -> int:
    """Return the columns that are left for bars beside these columns."""
    widths = [min(column.width, 25) if column.is_name else column.width for column in columns]
    free = max(form.width - sum(widths) - len(_GAP) * len(columns), 10)
    return free if form.drawn else min(free, PIPED_BAR)


def say_sentence(text: str, form: Form) -> None:
    """Print a sentence, on a terminal on lines that fit."""
    for line in textwrap.wrap(one_line(text), form.width, break_on_hyphens=False):
        say(line)


def say_counted(counted: Iterable[str], protocols: Iterable[str], form: Form) -> None:
    """Say which metrics were counted, if several or of a filter, and how questions were asked."""
    metrics, recorded = (dict.fromkeys(filter(None, texts)) for texts in (counted, protocols))
    if len(metrics) > 1 or any(", filter " in metric for metric in metrics):
        say_sentence(f"counted: {'; '.join(metrics)}", form)
    if recorded:
        say_sentence(f"protocol: {'; '.join(recorded)}", form)


def say_columns(columns: Sequence[Column], form: Form) -> None:
    """Print a table; on a terminal long names are shortened, and of many rows 15 shown."""
    from rich.cells import cell_len, set_cell_size

    columns = [column for column in columns if column.cells]
    columns = _fitted(columns, form.width)
    n_rows = len(columns[0].cells)
    shows_all = form.verbose or form.is_piped or n_rows <= _ALL_ROWS
    most = n_rows if shows_all else _MOST_ROWS
    rows = [
        [column.head for column in columns],
        *zip(*(column.cells[:most] for column in columns), strict=True),
    ]
    widths = [column.width for column in columns]
    for row in rows:
        cells = [
            set_cell_size(cell, width) if column.left else " " * (width - cell_len(cell)) + cell
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        say(_GAP.join(cells).rstrip())
    if n_rows > most:
        say(f"{n_rows - most} more: --verbose")


def say_bars(
    columns: Sequence[Column],
    bars: Sequence[tuple[float, Ends, Ends | None]],
    form: Form,
    bounds: Ends = (0.0, 1.0),
    zero: bool = False,
) -> None:
    """Print a table that ends in bars: of every row a point, a thick line and maybe a thin one."""
    ends = [line for _, *lines in bars for line in lines if line is not None]
    axis = Axis.of(ends, free_width(columns, form), form.drawn, bounds, zero)
    cells = [axis.bar(*bar) for bar in bars]
    say_columns([*columns, Column(axis.heading(), cells, left=True)], form)


def _fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Return columns of which the longest names are shortened until all fit the width."""
    from rich.cells import cell_len

    columns = list(columns)
    too_wide = sum(column.width + len(_GAP) for column in columns) - len(_GAP) - width
    for at in sorted(range(len(columns)), key=lambda at: -columns[at].width):
        column = columns[at]
        if too_wide > 0 and column.is_name and column.width > _SHORTEST_NAME:
            shorter = max(column.width - too_wide, _SHORTEST_NAME)
            too_wide -= column.width - shorter
            distinct = list(dict.fromkeys(column.cells))
            if any(cell_len(name) > len(name) for name in distinct):  # two columns a character
                shorter //= 2
            short = dict(zip(distinct, shorten_names(distinct, shorter), strict=True))
            columns[at] = replace(column, cells=[short[cell] for cell in column.cells])
    return columns


def say_next(command: Sequence[str], note: str = "") -> None:
    """Print the command to type next, and what it does, as the comment of a shell, if it fits."""
    line = f"Next: {shlex.join(map(str, command))}"
    commented = f"{line}   # {note}"
    say(commented if note and len(commented) <= WIDTH else line)
