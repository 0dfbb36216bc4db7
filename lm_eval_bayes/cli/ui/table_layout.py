"""Which columns of a table fit the width: what stands above it, what is left out, how wide it is.

A table is one block that fits: columns with a single value are moved above it, then
columns are left out in the order that the caller names, then from the last on, and long names
are shortened in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from lm_eval_bayes._util.text import NO_VALUE, plural, shorten_middle

#: Width that a name keeps where columns may be left out, smallest width of a folded name, of a
#: shortened name, and of either on a very narrow terminal.
_USUAL, _NARROWEST, _SHORTEST, _LEAST = 18, 16, 12, 6
#: Blanks between two columns.
_GAP = 2
#: Headings of columns left out that are listed.
_MAX_LISTED = 6
#: Words that may be in a cell of numbers.
_WORDS = re.compile(r"\b(?:to|of|above|below)\b")
#: A part of a name up to a separator, after which it may be folded.
_JOINTS = re.compile(r"[^\s_\-/=.,]*(?:[\s_\-/=.,]|$)")


@dataclass(frozen=True)
class Column:
    """A column of printable texts: its heading and its cells."""

    head: str
    cells: tuple[str, ...]

    @property
    def is_name(self) -> bool:
        """Whether the cells are names or sentences, which may be folded, and not numbers."""
        return any(sum(map(str.isalpha, _WORDS.sub("", cell))) > 2 for cell in self.cells)

    @property
    def widest_cell(self) -> int:
        """The width of the cells on one line."""
        return max(map(cell_len, self.cells), default=0)

    @property
    def widest(self) -> int:
        """The width of the column on one line."""
        return max(cell_len(self.head), self.widest_cell)

    def narrowest(self, name: int = _NARROWEST) -> int:
        """Return the smallest width, with so many columns for a name."""
        words = max(map(cell_len, self.head.split()), default=0)
        cells = min(self.widest_cell, name) if self.is_name else self.widest_cell
        return max(words, cells)

    @property
    def is_constant(self) -> bool:
        """Whether all cells of several are the same."""
        return len(self.cells) > 1 and len(set(self.cells)) == 1


@dataclass(frozen=True)
class Layout:
    """A table that fits.

    Attributes
    ----------
    above : tuple of Column
        Columns with a single value, which is said once above the table.
    columns : tuple of Column
        Those that are shown.
    widths : tuple of int
        Their widths.
    note : str
        What is left out or shortened; "" if nothing is.
    """

    above: tuple[Column, ...]
    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    note: str

    @property
    def constants(self) -> str:
        """The line above the table, without values that are not known."""
        values = [(column.head, column.cells[0]) for column in self.above]
        return ", ".join(f"{head} {value}" for head, value in values if value != NO_VALUE)


def table_columns(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[Column]:
    """Return the columns of a table of printable texts."""
    cells = list(zip(*lines, strict=True)) or [()] * len(head)
    return [Column(name, tuple(column)) for name, column in zip(head, cells, strict=True)]


def fit_one_block(columns: Sequence[Column], width: int, optional: Sequence[str] = ()) -> Layout:
    """Return a layout of one block.

    Parameters
    ----------
    columns : sequence of Column
        The table.
    width : int
        Columns of the terminal.
    optional : sequence of str
        Headings of columns that may be left out, the least important first.

    Examples
    --------
    >>> rows = [("phi", "0.5", "12k"), ("qwen", "0.7", "48k")]
    >>> layout = fit_one_block(table_columns(("model", "mean", "tokens"), rows), 12, ["tokens"])
    >>> [column.head for column in layout.columns], layout.note
    (['model', 'mean'], 'left out: tokens; --verbose shows all')
    """
    columns = [replace(column, head=_shorten_words(column.head)) for column in columns]
    above: list[Column] = []
    rest = list(columns)

    def fits(name: int) -> bool:
        return _width([column.narrowest(name) for column in rest]) <= width

    for column in _constants(rest):
        if fits(_USUAL):
            break
        above.append(column)
        rest.remove(column)
    left_out: list[Column] = []
    for head in map(_shorten_words, optional):
        if fits(_USUAL):
            break
        left_out += [column for column in rest if column.head == head]
        rest = [column for column in rest if column.head != head]
    numbers = [column for column in rest if not column.is_name]
    while not fits(_SHORTEST) and len(numbers) > 1:
        left_out.append(numbers.pop())
        rest.remove(left_out[-1])
    widths = _widths(rest, width)
    shown = tuple(_shortened(c, wide) for c, wide in zip(rest, widths, strict=True))
    order = [column.head for column in columns if column in left_out]
    above = [replace(c, cells=tuple(shorten_middle(x, width // 2) for x in c.cells)) for c in above]
    note = _note(order, any(a != b for a, b in zip(rest, shown, strict=True)))
    return Layout(tuple(above), shown, tuple(widths), note)


def _note(left_out: Sequence[str], shortened: bool) -> str:
    """Return what is left out or shortened as a line."""
    parts = []
    if left_out:
        heads = ", ".join(left_out[:_MAX_LISTED])
        more = len(left_out) - _MAX_LISTED
        parts.append(f"left out: {heads}" + (f" and {plural(more, 'column')} more" * (more > 0)))
    if shortened:
        parts.append("texts are shortened")
    return "; ".join([*parts, "--verbose shows all"]) if parts else ""


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


# -- columns with a single value -----------------------------------------------------------------


def _constants(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that can be said once: names first, and never all columns.

    Of a single row these are the names before its last one, such as the task before the model.
    """
    names = [column for column in columns if column.is_name and column.head]
    if columns and len(columns[0].cells) == 1:
        return names[:-1]
    constant = [column for column in columns if column.is_constant and column.head]
    found = [column for column in names if column in constant]
    found += [column for column in constant if column not in names]
    return found[: len(columns) - 1]


# -- widths --------------------------------------------------------------------------------------


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Return the widths: what every column needs, and the rest evenly, first to long cells."""
    widths = [column.narrowest() for column in columns]
    left = width - _width(widths)
    names = [i for i, column in enumerate(columns) if column.is_name]
    while left < 0 and names and max(widths[i] for i in names) > _LEAST:
        widths[max(names, key=lambda i: widths[i])] -= 1
        left += 1
    # cells before headings: a heading is folded and stays complete
    for limits in ([column.widest_cell for column in columns], [c.widest for c in columns]):
        wanting = [i for i, limit in enumerate(limits) if limit > widths[i]]
        while wanting and left > 0:
            i = min(wanting, key=lambda i: widths[i])
            widths[i] += 1
            left -= 1
            wanting = [i for i in wanting if limits[i] > widths[i]]
    return widths


# -- texts ---------------------------------------------------------------------------------------


def _shorten_words(head: str) -> str:
    """Return a heading whose words fit: the name of a model may be one."""
    return " ".join(shorten_middle(word, _NARROWEST) for word in head.split())


def _shortened(column: Column, width: int) -> Column:
    """Return a column whose names are shortened to a width; different names stay different."""
    if not column.is_name or all(cell_len(cell) <= width for cell in column.cells):
        return column
    distinct = list(dict.fromkeys(column.cells))
    difference = _first_difference(distinct)
    for start in (0, _start_of_part(distinct[0], difference), difference):
        cells = tuple(_shorten_to(cell, width, start) for cell in column.cells)
        if len(set(cells)) == len(distinct):
            return replace(column, cells=cells)
    numbers = {cell: f"#{number}" for number, cell in enumerate(distinct, 1)}
    return replace(column, cells=tuple(_numbered(cell, numbers, width) for cell in column.cells))


def _numbered(cell: str, numbers: Mapping[str, str], width: int) -> str:
    """Return a shortened text with its number, where shortened texts would be the same."""
    return _shorten_to(cell, max(1, width - len(numbers[cell])), 0) + numbers[cell]


def _shorten_to(cell: str, width: int, start: int) -> str:
    """Shorten a text in the middle, or before the character from which on it differs."""
    if cell_len(cell) <= width:
        return cell
    rest = cell if start == 0 else "…" + cell[start:]
    longest = min(len(rest), width)
    while cell_len(short := shorten_middle(rest, longest)) > width:
        longest -= 1
    return short


def _first_difference(cells: Iterable[str]) -> int:
    """Return the number of characters with which all texts begin."""
    ordered = sorted(cells)
    pairs = zip(ordered[0], ordered[-1], strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), 0)


def _start_of_part(text: str, end: int) -> int:
    """Return the start of the part of a name in which a character is: that after a slash."""
    start = max(text.rfind(separator, 0, end) for separator in "/ ") + 1
    return start if end - start <= _LEAST else end


def pad(text: str, width: int) -> str:
    """Return a text with blanks up to a width; wide characters, as of Chinese, count as two.

    Examples
    --------
    >>> pad("phi", 5), pad("模型", 5)
    ('phi  ', '模型 ')
    """
    return text + " " * (width - cell_len(text))


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
