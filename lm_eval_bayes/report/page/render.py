"""The page itself: what was worked out, put into one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from markupsafe import Markup

from lm_eval_bayes._util.text import (
    format_duration,
    format_integer,
    format_large,
    format_percent,
    join_words,
    scope_label,
)
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.report.page import figures, sentences
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.overview import overview_of
from lm_eval_bayes.report.page.provenance import file_of, making_of
from lm_eval_bayes.report.page.questions import SHADES, questions_of
from lm_eval_bayes.report.page.text import Scale

#: What every page of ours has near its beginning: by this a file is known as a report.
MARK = '<meta name="generator" content="lm-eval-bayes report">'
#: Models of the table of pairs, and characters of a text in the data.
_PAIRS, _LONGEST = 40, 500


def render(contents: ReportData, *, title: str = "", now: float | None = None) -> str:
    """Return a report as one HTML file.

    Parameters
    ----------
    contents : ReportData
        What it shows.
    title : str
        Its head; left out, the names of the tasks.
    now : float, optional
        When it was made, in seconds since 1970 UTC; left out, it says nothing of that.

    Returns
    -------
    str
        In UTF-8 it is a whole page: no other file is needed, and nothing is fetched. It has
        neither NUL bytes nor halves of characters.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    from lm_eval_bayes import __version__

    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "name": words.name,
        "probability": format_percent,
        "brief": format_large,
        "thousands": format_integer,
        "duration": format_duration,
        "between": figures.between,
        "anchor": _anchor,
        "breakable": _breakable,
    }
    style, script = _template("report.css"), _template("report.js")
    panels = [_panel(panel, contents) for panel in contents.panels]
    return environment.get_template("report.html").render(
        mark=Markup(MARK),
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=json_island(_public(contents.to_dict())),
        title=words.name(title) if title else _title(contents),
        facts=sentences.overview(contents),
        made=None if now is None else datetime.fromtimestamp(now, timezone.utc),
        version=__version__,
        contents=contents,
        level=f"{100.0 * contents.spec.level:g}%",
        scope_words=scope_label(contents.spec.scope),
        overview=overview_of(contents),
        panels=panels,
        notes=_notes(contents),
        shades=range(SHADES),
        rubrics=any(panel.rubrics for panel in contents.panels),
    )


def _public(value: Any) -> Any:
    """Return data for everybody's eyes: no folders, no endless texts, no NaN."""
    if isinstance(value, dict):
        return {
            key: [file_of(path) for path in one] if key == "sources" else _public(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_public(one) for one in value]
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_island(value: Any) -> Markup:
    r"""Return JSON that can stand inside a script element.

    Examples
    --------
    >>> print(json_island({"a": "</script><!-- & \u2028"}))
    {"a":"\u003c/script\u003e\u003c!-- \u0026 \u2028"}
    """
    # ASCII only, so also halves of characters are written as escapes
    told = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for c in "<>&":
        told = told.replace(c, f"\\u{ord(c):04x}")
    return Markup(told)


def _template(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return the content security policy: this sheet and this script, and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _digest(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _title(contents: ReportData) -> str:
    tasks = [words.name(task) for task in contents.tasks]
    if len(tasks) > 3:
        return f"{len(tasks)} tasks"
    return join_words(tasks)


def _breakable(name: object) -> Markup:
    """Return a name that may go on in the next line after a slash or an underscore."""
    parts = re.split(r"(?<=[/_:.])", words.name(name))
    return Markup("<wbr>").join(parts)


def _anchor(panel: TaskPanel) -> str:
    return f"task-{panel.number}"


def _notes(contents: ReportData) -> list[str]:
    """Return what a reader must know before using the numbers, each thing once."""
    told = [*contents.warnings, *contents.rubric_notes]
    for panel in contents.panels:
        where = f"{panel.task}: " if len(contents.tasks) > 1 else ""
        told += [f"{where}{note}" for note in panel.board.notes]
        for note, models in _noted(panel).items():
            whose = "" if len(models) == len(panel.models) > 1 else f"{join_words(models)}: "
            told.append(f"{where}{whose}{note}")
        if panel.rubrics is not None:
            told += [f"{where}{note}" for note in panel.rubrics.warnings]
    return [words.text(note, 400).shown for note in dict.fromkeys(told)]


def _noted(panel: TaskPanel) -> dict[str, list[str]]:
    """Return the notes of a panel's runs, each with the models that it is about."""
    found: dict[str, list[str]] = {}
    for run in panel.runs:
        for note in run.notes:
            found.setdefault(note, []).append(run.model)
    return found


def _panel(panel: TaskPanel, contents: ReportData) -> dict[str, Any]:
    """Return what the template says of a panel."""
    intervals = [
        one.intervals[scope]
        for one in panel.summaries
        for scope in one.intervals
        if scope != "paper"
    ]
    axis = figures.Axis.around(intervals, Scale(*panel.bounds))
    costs, short = panel.costs, words.short_names(panel.models)
    return {
        "panel": panel,
        "short": short,
        "scale": Scale(*panel.bounds),
        "answer": sentences.headline(panel, contents.spec.level),
        "sizes": sentences.sizes(panel),
        "axis": figures.axis_above(axis),
        "rows": [
            {
                "line": line,
                "summary": summary,
                "rank": f"{line.rank:g}",
                "tied": sum(other.rank == line.rank for other in panel.board.rows) > 1,
                "bar": figures.interval_bar(
                    axis, summary.learned[contents.spec.scope].mu, *_two(summary.intervals)
                ),
                "tokens": line.tokens / summary.run.n_trials if line.tokens else None,
            }
            for line, summary in zip(panel.board.rows, panel.summaries, strict=True)
        ],
        "measured": any(line.tokens for line in panel.board.rows),
        "pairs": _pairs(panel),
        "questions": questions_of(panel, contents),
        "lines": figures.shared_lines(panel),
        "curves": [
            (short[place], found, figures.convergence(panel, place))
            for place, found in enumerate(panel.curves)
        ],
        "costs": costs,
        "cost": figures.cost_against_score(panel, costs) if costs else None,
        "usual": list(dict.fromkeys(name for one in panel.summaries for name in one.rows)),
        "making": making_of(panel),
        "left_out": _left_out(panel),
    }


def _two(intervals: Any) -> tuple[Any, Any]:
    return intervals["benchmark"], intervals["population"]


def _pairs(panel: TaskPanel) -> list[tuple[str, list[float | None]]]:
    """Return P(A > B) of the first models, None where A is B."""
    kept = range(min(_PAIRS, len(panel.models)))
    if len(kept) < 2:
        return []
    p = panel.board.p_greater
    short = words.short_names(panel.models)
    return [(short[i], [None if i == j else float(p[i, j]) for j in kept]) for i in kept]


def _left_out(panel: TaskPanel) -> list[tuple[list[str], str]]:
    """Return the schemata that the runs cannot give, by what they lack."""
    if panel.rubrics is None:
        return []
    reasons: dict[str, list[str]] = {}
    for one in panel.rubrics.classified.left_out:
        reasons.setdefault(one.lacks, []).append(one.schema)
    return [
        ([words.name(schema) for schema in dict.fromkeys(schemata)], words.text(lacks, 300).shown)
        for lacks, schemata in reasons.items()
    ]
