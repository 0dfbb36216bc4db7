"""Tables as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: The page around its heading and its tables; it runs and fetches nothing.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>{heading}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.2rem 0.8rem 0.2rem 0; text-align: right; border-bottom: 1px solid #8884; }}
</style>
</head>
<body>
<h1>{heading}</h1>
<p>{description}</p>
{tables}
</body>
</html>
"""


@dataclass(frozen=True)
class PageTable:
    """A table.

    Attributes
    ----------
    title : str
        What it shows.
    head : sequence of str
        Headings of the columns.
    rows : sequence of sequence of object
        The cells.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


def tables_page(heading: str, description: str, tables: Sequence[PageTable]) -> str:
    """Return tables as a self-contained HTML document; every text is escaped.

    Examples
    --------
    >>> page = tables_page("Coins", "Two coins", [PageTable("a < b", ["N"], [["<i>"]])])
    >>> [line for line in page.splitlines() if line.startswith(("<h2>", "<tr>"))]
    ['<h2>a &lt; b</h2>', '<tr><th>N</th></tr>', '<tr><td>&lt;i&gt;</td></tr>']
    """
    return _PAGE.format(
        heading=escape(heading),
        description=escape(description),
        tables="\n".join(map(_table, tables)),
    )


def _table(table: PageTable) -> str:
    rows = [_row("th", table.head), *(_row("td", row) for row in table.rows)]
    return "\n".join([f"<h2>{escape(table.title)}</h2>", "<table>", *rows, "</table>"])


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
