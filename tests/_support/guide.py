"""The README and the pages that belong to it, as one text."""

from __future__ import annotations

import re

from _support.paths import REPOSITORY

#: The pages of examples/docs that are written by hand and shown commands of.
PAGES = (
    *("tasks", "sampling", "intervals", "decisions", "rubrics", "custom_tasks", "python"),
    "plugin",
)


def demoted(page: str) -> str:
    """Return a page with every heading one level lower, as in a document that includes it."""
    lines, in_block = [], False
    for line in page.splitlines(keepends=True):
        in_block ^= line.startswith("```")
        lines.append("#" + line if not in_block and re.match(r"#+ ", line) else line)
    return "".join(lines)


def guide() -> str:
    """Return the README, then the pages with headings one level lower."""
    docs = REPOSITORY / "examples" / "docs"
    pages = [demoted((docs / f"{name}.md").read_text(encoding="utf-8")) for name in PAGES]
    return "\n".join([(REPOSITORY / "README.md").read_text(encoding="utf-8"), *pages])
