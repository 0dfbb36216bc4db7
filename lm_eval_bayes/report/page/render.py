"""The HTML report: one self-contained file, rendered from a report's data."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from markupsafe import Markup

from lm_eval_bayes._util.text import (
    P_BEST,
    P_BEST_MEANING,
    begins_with_count,
    format_duration,
    format_integer,
    format_large,
    format_percent,
    format_range,
    join_words,
    plural,
    scope_label,
)
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.report.page import figures, tables
from lm_eval_bayes.report.page.attempts import TEXT_BYTES, page_attempts
from lm_eval_bayes.report.page.provenance import panel_provenance, short_path
from lm_eval_bayes.report.page.sentences import (
    comparison_sentence,
    leader_sentence,
)
from lm_eval_bayes.report.page.text import Scale, json_island, name, short_names, truncate

#: Identifies a file as a report of this package; it is among the first bytes of every report.
MARK = '<meta name="generator" content="lm-eval-bayes report">'
#: Characters of a string in the embedded JSON.
_MAX_JSON_STRING = 500


def render(
    data: ReportData, *, title: str = "", now: float | None = None, text_bytes: int = TEXT_BYTES
) -> str:
    """Return a report as one HTML file.

    Parameters
    ----------
    data : ReportData
        Its results.
    title : str
        Heading; by default the names of the tasks.
    now : float, optional
        Date of the report, in seconds since 1970 UTC; by default the report has none.
    text_bytes : int
        The most bytes of the models' texts in the page; 0 for none. They are read from the logs
        and stores of the runs.

    Returns
    -------
    str
        A self-contained page, which fetches nothing. It has no NUL characters and no lone
        surrogates, so it can be encoded as UTF-8.

    Raises
    ------
    InvalidInputError
        If a log is no longer what was read before.
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
        "name": name,
        "percent": format_percent,
        "large": format_large,
        "integer": format_integer,
        "duration": format_duration,
        "breakable": _breakable,
    }
    environment.filters["scale"] = lambda posterior: Scale(*posterior.bounds)
    panels = [_panel_context(panel, data) for panel in data.panels]
    attempts = page_attempts(data.panels, [view["questions"] for view in panels], text_bytes)
    style, script = _template("report.css"), _template("report.js")
    return environment.get_template("report.html").render(
        mark=Markup(MARK),
        policy=_content_security_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data_json=json_island(_published(data.to_dict())),
        title=name(title) if title else _default_title(data),
        size=_data_size(data),
        date=None if now is None else datetime.fromtimestamp(now, timezone.utc),
        version=__version__,
        data=data,
        level=f"{100.0 * data.spec.level:g}%",
        scope=scope_label(data.spec.scope),
        score_table=tables.score_table(data),
        overall_answer=None if data.overall is None else comparison_sentence(data.overall),
        panels=panels,
        attempts=attempts,
        attempts_json=json_island(attempts.panels),
        notes=_notes(data),
        shades=range(tables.SHADES),
        p_best=P_BEST,
        p_best_meaning=P_BEST_MEANING,
    )


def _panel_context(panel: TaskPanel, data: ReportData) -> dict[str, Any]:
    """Return the template's variables for a panel."""
    scale = Scale(*panel.bounds)
    axis = figures.Axis.around(*panel.interval_range, scale)
    short = short_names(panel.board.models)
    ranks = [row.rank for row in panel.board.rows]
    return {
        "panel": panel,
        "short": short,
        "headings": tables.heading_names(panel),
        "scale": scale,
        "answer": comparison_sentence(panel.board),
        "leader": leader_sentence(panel, data.spec.level),
        "size": _panel_size(panel),
        "n_clusters": panel.summaries[0].n_clusters,
        "axis": figures.axis_above(axis),
        "rows": [
            {
                "row": row,
                "summary": summary,
                "rank": f"{row.rank:g}",
                "tied": ranks.count(row.rank) > 1,
                "bar": figures.interval_bar(
                    axis,
                    summary.learned[data.spec.scope].mu,
                    summary.intervals["benchmark"],
                    summary.intervals["population"],
                ),
                "tokens": row.tokens / summary.run.n_trials if row.tokens else None,
                "cost": row.cost / summary.run.n_trials if row.cost else row.cost,
            }
            for row, summary in zip(panel.board.rows, panel.summaries, strict=True)
        ],
        "has_tokens": any(row.tokens for row in panel.board.rows),
        "has_cost": any(row.cost is not None for row in panel.board.rows),
        "pairs": tables.pair_table(panel),
        "questions": tables.question_table(panel, data),
        "background_curves": figures.background_curves(panel),
        "curves": [
            (short[i], curve, figures.score_curve(panel, i))
            for i, curve in enumerate(panel.curves)
            # one point is no curve
            if len(curve) != 1
        ],
        "cost_figure": figures.score_against_tokens(panel) if panel.compares_costs else None,
        "family": list(dict.fromkeys(e for summary in panel.summaries for e in summary.family)),
        "provenance": panel_provenance(panel),
        "unavailable": _unavailable_schemata(panel),
    }


# -- sizes and warnings --------------------------------------------------------------------------


def _panel_size(panel: TaskPanel) -> str:
    trials = "trial" if panel.n_range[1] == 1 else "trials"
    return " · ".join(
        [
            plural(len(panel.board.models), "model"),
            plural(panel.board.n_questions, "question"),
            f"{format_range(panel.n_range)} {trials} per question",
        ]
    )


def _data_size(data: ReportData) -> str:
    return " · ".join(
        [
            plural(len(data.models), "model"),
            plural(len(data.tasks), "task"),
            plural(data.n_questions, "question"),
            plural(data.n_trials, "trial"),
        ]
    )


def _default_title(data: ReportData) -> str:
    tasks = [name(task) for task in data.tasks]
    return f"{len(tasks)} tasks" if len(tasks) > 3 else join_words(tasks)


def _notes(data: ReportData) -> list[str]:
    """Return the distinct warnings of the reader, the rankings, the runs and the rubrics."""
    notes = [*data.warnings, *data.rubric_notes]
    for panel in data.panels:
        task = f"{panel.board.task}: " if len(data.tasks) > 1 else ""
        notes += [f"{task}{note}" for note in panel.board.notes]
        for note in dict.fromkeys(note for run in panel.runs for note in run.notes):
            models = [run.model for run in panel.runs if note in run.notes]
            of_all = len(models) == len(panel.board.models) > 1
            of = "" if of_all else f"{join_words(models)}: "
            if len(models) > 1 and begins_with_count(note):
                of = "each model: " if of_all else f"each of {join_words(models)}: "
            notes.append(f"{task}{of}{note}")
        if panel.rubrics is not None:
            notes += [f"{task}{note}" for note in panel.rubrics.warnings]
    return [truncate(note, 400).shown for note in dict.fromkeys(notes)]


def _unavailable_schemata(panel: TaskPanel) -> list[tuple[list[str], str]]:
    """Return the schemata that the runs cannot be scored under, by the missing signals."""
    if panel.rubrics is None:
        return []
    by_reason: dict[str, list[str]] = {}
    for schema in panel.rubrics.classified.left_out:
        by_reason.setdefault(schema.lacks, []).append(schema.schema)
    return [
        ([name(schema) for schema in dict.fromkeys(schemata)], truncate(reason, 300).shown)
        for reason, schemata in by_reason.items()
    ]


# -- markup --------------------------------------------------------------------------------------


def _published(value: Any) -> Any:
    """Return JSON types without folders of the machine, long strings and NaN."""
    if isinstance(value, dict):
        return {
            key: [short_path(path) for path in item] if key == "sources" else _published(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_published(item) for item in value]
    if isinstance(value, str):
        return value if len(value) <= _MAX_JSON_STRING else f"{value[:_MAX_JSON_STRING]}…"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _breakable(text: object) -> Markup:
    """Return a name with line breaks allowed after a slash, underscore, colon or point."""
    parts = re.split(r"(?<=[/_:.])", name(text))
    return Markup("<wbr>").join(parts)


def _template(file: str) -> str:
    return (resources.files(__package__) / "templates" / file).read_text(encoding="utf-8")


def _content_security_policy(style: str, script: str) -> str:
    """Return a policy that allows this style sheet and this script only."""
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_sha256(style)}'",
            f"script-src '{_sha256(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _sha256(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
