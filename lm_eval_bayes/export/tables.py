"""The leaderboard as CSV, JSON, Markdown and LaTeX.

Names of models and tasks are somebody else's. In CSV none of them starts what a spreadsheet
takes for a formula; in Markdown and LaTeX no character of them means anything.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from lm_eval_bayes._util.text import format_probability, one_line
from lm_eval_bayes.analysis.leaderboard import Leaderboard, LeaderboardRow
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.stats.validation import check_option

Format: TypeAlias = Literal["csv", "json", "markdown", "latex"]
FORMATS: tuple[Format, ...] = ("csv", "json", "markdown", "latex")

_CSV_HEAD = (
    "task",
    "rank",
    "model",
    "mean",
    "sd",
    "low",
    "high",
    "level",
    "interval",
    "scope",
    "p_best",
    "expected_rank",
    "rank_low",
    "rank_high",
    "n_min",
    "n_max",
    "questions",
    "tokens",
    "seconds",
    "counted",
)


def table_text(boards: Sequence[Leaderboard], form: Format) -> str:
    """Write leaderboards, one a task, in a format for others.

    Parameters
    ----------
    boards : sequence of Leaderboard
        At least one.
    form : {"csv", "json", "markdown", "latex"}
        The format. JSON and CSV have the numbers as they are, the others three digits of them.

    Raises
    ------
    InvalidInputError
        If there is no such format.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.leaderboard import leaderboard
    >>> from lm_eval_bayes.runs.task_run import TaskRun
    >>> ids = ["p", "q"]
    >>> good = TaskRun.from_trials("good", "aime", [[1] * 16, [1] * 12 + [0] * 4], ids)
    >>> poor = TaskRun.from_trials("a_b", "aime", [[0] * 12 + [1] * 4, [0] * 16], ids)
    >>> print(table_text([leaderboard([poor, good])], "markdown").split("\\n\\n")[1])
    | Rank | Model | Mean | sd | 95% interval | P(best) | Ranks | N |
    | ---: | :--- | ---: | ---: | :---: | ---: | :---: | ---: |
    | 1 | good | 0.866 | 0.055 | 0.745 to 0.955 | >0.999 | 1 | 16 |
    | 2 | a\\_b | 0.134 | 0.055 | 0.045 to 0.255 | <0.001 | 2 | 16 |
    """
    form = check_option("format", form, FORMATS)
    return _WRITERS[form](boards)


# -- numbers, and data for programs --------------------------------------------------------------


def csv_cell(text: object) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell("Qwen/Qwen3-8B"), csv_cell(" @SUM(A1)")
    ("'=HYPERLINK(1)", 'Qwen/Qwen3-8B', "' @SUM(A1)")
    """
    shown = one_line(text)
    # what a spreadsheet reads as the start of a formula, its full-width twins, and an own quote
    starts = shown.lstrip()[:1]
    return f"'{shown}" if starts and starts in "=+-@＝＋－＠|%'" else shown


def _csv(boards: Sequence[Leaderboard]) -> str:
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(_CSV_HEAD)
    for board in boards:
        for one in board.rows:
            least, most = one.n_range or ("", "")
            writer.writerow(
                [
                    csv_cell(board.task),
                    f"{one.rank:g}",
                    csv_cell(one.model),
                    one.posterior.mu,
                    one.posterior.sigma,
                    one.interval.low,
                    one.interval.high,
                    one.interval.level,
                    one.interval.method,
                    one.interval.scope,
                    one.p_best,
                    one.expected_rank,
                    f"{one.rank_low:g}",
                    f"{one.rank_high:g}",
                    least,
                    most,
                    board.n_questions,
                    "" if one.tokens is None else one.tokens,
                    "" if one.seconds is None else one.seconds,
                    csv_cell(one.counted),
                ]
            )
    return output.getvalue()


def _json(boards: Sequence[Leaderboard]) -> str:
    from lm_eval_bayes import __version__

    content = {"lm_eval_bayes": __version__, "leaderboards": [board.to_dict() for board in boards]}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


# -- tables for people ---------------------------------------------------------------------------

_COLUMNS = ("Rank", "Model", "Mean", "sd", "interval", "P(best)", "Ranks", "N")


def _cells(board: Leaderboard) -> list[list[str]]:
    """Return the lines as text; the model's name as it is."""
    rows = []
    for one in board.rows:
        rows.append(
            [
                f"{one.rank:g}",
                one_line(one.model),
                f"{one.posterior.mu:.3f}",
                f"{one.posterior.sigma:.3f}",
                f"{one.interval.low:.3f} to {one.interval.high:.3f}",
                format_probability(one.p_best),
                _between(one.rank_low, one.rank_high),
                _trials(one),
            ]
        )
    return rows


def _between(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _trials(one: LeaderboardRow) -> str:
    return "" if one.n_range is None else _between(*one.n_range)


def _about(board: Leaderboard) -> str:
    """Say in a sentence or two what the numbers are."""
    interval = board.rows[0].interval
    about = "these questions" if board.scope == "benchmark" else "questions like these"
    level = f"{100 * board.level:g}%"
    sure = f"{100 * board.ranking.confidence:g}%"
    shared = {
        "adjacent": f"A model shares the rank of the next better one if P(better) is below {sure}.",
        "leader": f"A model shares the rank of its best one if P(better) is below {sure}.",
        "pairwise": f"Models share a rank if P(better) is below {sure} for any two of them.",
    }.get(board.ranking.ties, "Only equal means share a rank.")
    return (
        f"Posterior mean of the score on {board.n_questions} questions (hbayes@N), with {level} "
        f"credible intervals ({interval.method}) about {about}. {shared} "
        f"Ranks: those that hold at least {sure} of the posterior."
    )


def _counted(board: Leaderboard, cell: Callable[[object], str]) -> str:
    """Say what was counted, where that is a metric that the task logged."""
    counted = [cell(what) for what in board.counted if what != GRADED]
    return f" Counted: {'; '.join(counted)}." if counted else ""


# -- Markdown ------------------------------------------------------------------------------------

#: Whatever starts markup, a link, a mention, a formula or a cell. A backslash before any of
#: them makes it itself [CommonMark, "Backslash escapes"].
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#!~&:@$])")


def markdown_cell(text: object) -> str:
    r"""Return a text of which no character means anything in a cell of a Markdown table.

    Examples
    --------
    >>> print(markdown_cell("a|b <b> [x](http://y) www.z"))
    a\|b \<b\> \[x\](http\://y) www\.z
    """
    escaped = _MARKDOWN.sub(r"\\\1", one_line(text))
    # a bare www. becomes a link on GitHub without any markup
    return re.sub(r"(?i)\bwww\.", lambda found: found[0][:-1] + "\\.", escaped)


def _markdown(boards: Sequence[Leaderboard]) -> str:
    return "\n".join(_markdown_table(board) for board in boards)


def _markdown_table(board: Leaderboard) -> str:
    head = [f"{100 * board.level:g}% {name}" if name == "interval" else name for name in _COLUMNS]
    align = ("---:", ":---", "---:", "---:", ":---:", "---:", ":---:", "---:")
    rows = [[row[0], markdown_cell(row[1]), *row[2:]] for row in _cells(board)]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, align, *rows)]
    notes = [f"- {markdown_cell(note)}" for note in board.notes]
    parts = [f"### {markdown_cell(board.task)}", "\n".join(lines)]
    parts.append(_about(board) + _counted(board, markdown_cell))
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) + "\n"


# -- LaTeX ---------------------------------------------------------------------------------------

_LATEX: Mapping[str, str] = MappingProxyType(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "%": r"\%",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
        # not the optional argument, or the star, of a line's end
        "[": "{[}",
        "]": "{]}",
        "*": "{*}",
        # not a dash, nor an inverted mark
        "-": "-{}",
        "?": "?{}",
        "!": "!{}",
    }
)


def latex_cell(text: object) -> str:
    r"""Return a text of which no character means anything in a cell of a LaTeX table.

    Examples
    --------
    >>> print(latex_cell("50%_a & \\input{x}"))
    50\%\_a \& \textbackslash{}input\{x\}
    """
    shown = "".join(_LATEX.get(c, c) for c in one_line(text))
    return re.sub(r"-\{\}(?!-)", "-", shown)


def _latex(boards: Sequence[Leaderboard]) -> str:
    head = "% Needs \\usepackage{booktabs}, and \\usepackage[T1]{fontenc} for some names.\n"
    return head + "\n".join(_latex_table(board) for board in boards)


def _latex_table(board: Leaderboard) -> str:
    names = [
        f"{latex_cell(f'{100 * board.level:g}%')} {name}" if name == "interval" else name
        for name in _COLUMNS
    ]
    rows = [[row[0], latex_cell(row[1]), *row[2:]] for row in _cells(board)]
    lines = [" & ".join(cells) + r" \\" for cells in rows]
    caption = " ".join([f"{latex_cell(board.task)}.", latex_cell(_about(board))])
    caption += _counted(board, latex_cell)
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{caption}}}",
            r"  \begin{tabular}{rlrrcrcr}",
            r"    \toprule",
            f"    {' & '.join(names)} \\\\",
            r"    \midrule",
            *(f"    {line}" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


_WRITERS: Mapping[Format, Callable[[Sequence[Leaderboard]], str]] = MappingProxyType(
    {"csv": _csv, "json": _json, "markdown": _markdown, "latex": _latex}
)
