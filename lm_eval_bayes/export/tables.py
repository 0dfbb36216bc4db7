"""Leaderboards as CSV, JSON and Markdown.

Names of models and tasks are untrusted: CSV cells cannot be read as formulas, and Markdown
cells are escaped.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_interval,
    format_range,
    format_score,
    one_line,
    plural,
    scope_label,
)
from lm_eval_bayes.analysis.leaderboard import COMPARISONS, Leaderboard, LeaderboardRow
from lm_eval_bayes.analysis.pass_rows import family_notes, rows_to_dict
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.stats import Posterior

#: The formats, by the suffixes of their files.
Suffix: TypeAlias = Literal[".csv", ".json", ".md"]
SUFFIXES: tuple[Suffix, ...] = (".csv", ".json", ".md")
#: Those with numbers of full precision, and with the pass family by default.
DIGITS_IN_FULL: tuple[Suffix, ...] = (".csv", ".json")

#: Posteriors of the pass family by the names of rows, by task and model.
Families: TypeAlias = Mapping[tuple[str, str], Mapping[str, Posterior]]
_NO_FAMILIES: Families = MappingProxyType({})


def table_text(
    boards: Sequence[Leaderboard], suffix: Suffix, families: Families = _NO_FAMILIES
) -> str:
    """Return leaderboards, one per task, in an exchange format.

    Parameters
    ----------
    boards : sequence of Leaderboard
        At least one.
    suffix : {".csv", ".json", ".md"}
        The format. JSON and CSV have full precision, Markdown three decimals.
    families : mapping of (str, str) to mapping of str to Posterior
        By task and model, the rows of the pass family to be shown; those of a model that has none
        are empty.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.leaderboard import leaderboard
    >>> from lm_eval_bayes.runs.task_run import TaskRun
    >>> ids = ["p", "q"]
    >>> good = TaskRun.from_trials("good", "aime", [[1] * 16, [1] * 12 + [0] * 4], ids)
    >>> poor = TaskRun.from_trials("a_b", "aime", [[0] * 12 + [1] * 4, [0] * 16], ids)
    >>> text = table_text([leaderboard([poor, good])], ".md")
    >>> for line in text.split("\\n\\n")[1].splitlines():
    ...     print(line.split(" | ")[0])
    | Model
    | :---
    | good
    | a\\_b
    """
    return _WRITERS[suffix](boards, families)


def _names(board: Leaderboard, families: Families) -> list[str]:
    """Return the names of the pass family's rows, in the order of the first model that has each."""
    names = (name for m in board.models for name in families.get((board.task, m), ()))
    return list(dict.fromkeys(names))


# -- CSV and JSON --------------------------------------------------------------------------------


def csv_cell(text: object) -> str:
    """Return a text as a cell that spreadsheets do not evaluate as a formula.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell("Qwen/Qwen3-8B"), csv_cell(" @SUM(A1)")
    ("'=HYPERLINK(1)", 'Qwen/Qwen3-8B', "' @SUM(A1)")
    """
    line = one_line(text)
    # characters that start a formula, their full-width forms, and the quote itself
    first = line.lstrip()[:1]
    return f"'{line}" if first and first in "=+-@＝＋－＠|%'" else line


def _family_notes(board: Leaderboard, families: Families) -> list[str]:
    """Return the distinct notes of the posteriors of the pass family's rows."""
    of_models = (families.get((board.task, model), {}) for model in board.models)
    return list(dict.fromkeys(note for family in of_models for note in family_notes(family)))


def _csv(boards: Sequence[Leaderboard], families: Families) -> str:
    rows: list[dict[str, object]] = []
    for board in boards:
        for row in board.rows:
            family = families.get((board.task, row.model), {})
            rows.append(_csv_row(board, row) | _csv_family(family) | _csv_settings(row))
    output, columns = io.StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(output, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return output.getvalue()


def _csv_row(board: Leaderboard, row: LeaderboardRow) -> dict[str, object]:
    """Return the cells of a row by column; None is an empty cell."""
    n_min, n_max = row.n_range or (None, None)
    cells: dict[str, object] = {
        "task": csv_cell(board.task),
        "rank": f"{row.rank:g}",
        "model": csv_cell(row.model),
        "mean": row.posterior.mu,
        "sd": row.posterior.sigma,
        "low": row.interval.low,
        "high": row.interval.high,
        "level": row.interval.level,
        "interval": row.interval.method,
        "scope": row.interval.scope,
        "expected_rank": row.expected_rank,
        "rank_low": f"{row.rank_low:g}",
        "rank_high": f"{row.rank_high:g}",
        "n_min": n_min,
        "n_max": n_max,
        "questions": board.n_questions,
        "tokens": row.tokens,
        "seconds": row.seconds,
        "cost": row.cost,
        "counted": csv_cell(row.counted),
        "protocol": csv_cell(row.protocol),
    }
    return {
        name: None if name in COMPARISONS and not board.compares else cell
        for name, cell in cells.items()
    }


def _csv_family(family: Mapping[str, Posterior]) -> dict[str, object]:
    """Return four cells for each row of the pass family."""
    cells: dict[str, object] = {}
    for name, posterior in family.items():
        interval = posterior.interval()
        cells |= {name: posterior.mu, f"{name}_sd": posterior.sigma}
        cells |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return cells


def _csv_settings(row: LeaderboardRow) -> dict[str, object]:
    """Return the cells of a score over settings; none where it is not known."""
    if row.settings is None:
        return {}
    settings, like = row.settings, row.settings["like"][row.interval.scope]
    return {
        "settings": settings["n"],
        "setting_labels": csv_cell("; ".join(settings["labels"])),
        "settings_sd": settings["sd"],
        **{f"settings_sd_{name}": settings[name] for name in ("low", "high")},
        **{f"like_{name}": like[name] for name in ("mean", "low", "high")},
    }


def _json(boards: Sequence[Leaderboard], families: Families) -> str:
    from lm_eval_bayes import __version__

    leaderboards = [board.to_dict() for board in boards]
    for board, plain in zip(boards, leaderboards, strict=True):
        for place in plain["places"]:
            family = families.get((board.task, place["model"]), {})
            place["posterior_rows"] = rows_to_dict(family)
        plain["notes"] += _family_notes(board, families)
    content = {"lm_eval_bayes": __version__, "leaderboards": leaderboards}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


# -- Markdown ------------------------------------------------------------------------------------


#: Characters that start markup, a link, a mention, a formula or a cell; a backslash escapes them
#: [CommonMark, "Backslash escapes"].
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#!~&@$]|:(?=\S))")


def markdown_cell(text: object) -> str:
    r"""Return a text escaped for a cell of a Markdown table.

    Examples
    --------
    >>> print(markdown_cell("a|b <b> [x](http://y) www.z: 1 :smile:"))
    a\|b \<b\> \[x\](http\://y) www\.z: 1 \:smile:
    """
    escaped = _MARKDOWN.sub(r"\\\1", one_line(text))
    # GitHub turns a bare www. into a link
    return re.sub(r"(?i)\bwww\.", lambda match: match[0][:-1] + "\\.", escaped)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table of texts, which are escaped; the first column is aligned to the left.

    Examples
    --------
    >>> print(markdown_table(("model", "score"), [("a_b", "0.625")]))
    | model | score |
    | :--- | ---: |
    | a\_b | 0.625 |
    """
    lines = [[markdown_cell(cell) for cell in cells] for cells in (head, *rows)]
    lines.insert(1, [":---", *("---:" for _ in head[1:])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown(boards: Sequence[Leaderboard], families: Families) -> str:
    return "\n".join(_section(board, families) for board in boards)


def _section(board: Leaderboard, families: Families) -> str:
    columns = _columns(board, families)
    notes = [*board.notes, *_family_notes(board, families)]
    parts = [
        f"### {markdown_cell(board.task)}",
        markdown_table(list(columns), zip(*columns.values(), strict=True)),
        _caption(board, families),
        "\n".join(f"- {markdown_cell(note)}" for note in notes),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _like(row: LeaderboardRow) -> str:
    """Return the interval about settings like these, and of how many settings it is."""
    if row.settings is None:
        return NO_VALUE
    low, high = (
        format_score(row.settings["like"][row.interval.scope][end]) for end in ("low", "high")
    )
    return f"{low} to {high} ({plural(row.settings['n'], 'setting')})"


def _columns(board: Leaderboard, families: Families) -> dict[str, list[str]]:
    """Return the cells of a table by its headings."""
    rows = board.rows
    columns = {"Model": list(board.models)}
    if board.compares:
        ends = [(int(row.rank_low), int(row.rank_high)) for row in rows]
        columns["Ranks"] = list(map(format_range, ends))
    columns |= {
        "Mean": [format_score(row.posterior.mu) for row in rows],
        "sd": [format_score(row.posterior.sigma) for row in rows],
        f"{100 * board.spec.level:g}% interval": [format_interval(row.interval) for row in rows],
    }
    for name in _names(board, families):
        posteriors = [families.get((board.task, row.model), {}).get(name) for row in rows]
        columns[name] = [
            NO_VALUE if p is None else f"{format_score(p.mu)} ± {format_score(p.sigma)}"
            for p in posteriors
        ]
    for name in dict.fromkeys(name for row in rows for name in row.shares):
        head = name.removesuffix("_share").replace("_", " ").capitalize()
        columns[head] = [format_score(row.shares.get(name)) for row in rows]
    columns["N"] = [format_range(row.n_range) for row in rows]
    if any(row.settings for row in rows):
        columns["Settings like these"] = list(map(_like, rows))
    return columns


def _caption(board: Leaderboard, families: Families) -> str:
    """Return a description of the numbers."""
    interval = board.rows[0].interval
    level = f"{100 * board.spec.level:g}%"
    sentences = [
        f"Posterior mean of the score on {board.n_questions} questions (hbayes@N), with {level} "
        f"credible intervals ({interval.method}) about {scope_label(board.ranking.scope)}."
    ]
    if board.compares:
        confidence = f"{100 * board.ranking.confidence:g}%"
        sentences.append(
            f"Ranks: with {confidence} confidence the ranks of all models lie in these sets."
        )
    if _names(board, families):
        sentences.append("Pass@k family: posterior mean ± sd.")
    metrics = "; ".join(metric for metric in board.counted if metric != GRADED)
    for name, listed in (("Metric", metrics), ("Protocol", "; ".join(board.protocols))):
        if listed:
            sentences.append(f"{name}: {markdown_cell(listed)}.")
    return " ".join(sentences)


_WRITERS: Mapping[Suffix, Callable[[Sequence[Leaderboard], Families], str]]
_WRITERS = MappingProxyType({".csv": _csv, ".json": _json, ".md": _markdown})
