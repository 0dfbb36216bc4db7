"""The HTML report: one self-contained file, rendered from a report's data."""

from __future__ import annotations

import base64
import hashlib
import math
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lm_eval_bayes._util.text import (
    begins_with_count,
    format_duration,
    format_integer,
    format_large,
    format_score,
    join_words,
    one_line,
    plural,
    shorten_names,
)
from lm_eval_bayes.analysis.board import Board
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.report.page import figures, tables
from lm_eval_bayes.report.page.attempts import TEXT_BYTES, page_attempts
from lm_eval_bayes.report.page.provenance import panel_provenance, short_path
from lm_eval_bayes.report.page.text import json_island, name, short_names, truncate

#: Identifies a file as a report of this package; it is among the first bytes of every report.
MARK = '<meta name="generator" content="lm-eval-bayes report">'
#: Characters of a string in the embedded JSON.
_MAX_JSON_STRING = 500
#: Files that are named with their hashes, and bytes that are read at once for these.
_MAX_FILES, _BLOCK = 20, 1 << 20


def render(
    data: ReportData,
    *,
    title: str = "",
    now: float | None = None,
    text_bytes: int = TEXT_BYTES,
    command: str = "",
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
    command : str
        The command that made it, as the page shows it.

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
        "large": format_large,
        "integer": format_integer,
        "duration": format_duration,
        "score": format_score,
        "ends": tables.short_ends,
        "short": lambda labels: shorten_names([*map(short_path, labels)], tables.MAX_HEADING),
    }
    panels = [_panel_context(panel, data) for panel in data.panels]
    attempts = page_attempts(data.panels, [view["questions"] for view in panels], text_bytes)
    style, script = _template("report.css"), _template("report.js")
    overall = data.overall and _board_context(data.overall, data.spec.level)
    return environment.get_template("report.html").render(
        mark=Markup(MARK),
        policy=_content_security_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data_json=json_island(_published(data.to_dict())),
        title=name(title) if title else _default_title(data),
        size=_size(data),
        date=None if now is None else datetime.fromtimestamp(now, timezone.utc),
        version=__version__,
        data=data,
        level=f"{100.0 * data.spec.level:g}%",
        overall=overall,
        first=overall or panels[0]["scores"],
        panels=panels,
        attempts=attempts,
        attempts_json=json_island(attempts.panels),
        notes=_notes(data),
        files=_files(data),
        command=one_line(command),
    )


def _board_context(board: Board, level: float, panel: TaskPanel | None = None) -> dict[str, Any]:
    """Return the template's variables for the scores of a task, or of the mean of several."""
    short = short_names(board.models)
    names = dict(zip(board.models, short, strict=True))
    critical = [of.ranking.simultaneous.critical_value for of in board.scopes.values()]
    return {
        "headline": one_line(board.headline(names)),
        "pairs_sentence": board.pair_sentence() if board.n_pairs > 1 else "",
        "table": tables.score_table(board, panel.over_settings if panel else {}),
        "summaries": list(zip(short, panel.summaries, strict=True)) if panel else (),
        "settings": bool(panel and panel.over_settings),
        "pairs": tables.pairs_of(board, level),
        "critical": [f"{value:.2f}" for value in critical],
        "n_pairs": board.n_pairs,
        "n": board.trials,
    }


def _panel_context(panel: TaskPanel, data: ReportData) -> dict[str, Any]:
    """Return the template's variables for a panel."""
    short = short_names(panel.board.models)
    plan = panel.plan
    return {
        "panel": panel,
        "scores": _board_context(panel.scores, data.spec.level, panel),
        "short": short,
        "size": _panel_size(panel),
        "plan": None if plan is None or not plan.lines else one_line(plan.sentence()),
        "plan_curve": figures.plan_curve(plan, panel.number)
        if plan is not None and len(plan.counts()) > 1
        else None,
        "questions": tables.question_table(panel, data),
        "pass_curves": [
            (what, curve)
            for what, family in (
                ("Pass@k: at least one of k is right", "hpass@"),
                ("Pass^k: all k are right", "hpass^"),
            )
            if (curve := figures.pass_curves(panel, short, family))
        ],
        "family": list(dict.fromkeys(row for s in panel.summaries for row in s.family)),
        "curves": [
            (short[i], curve[-1], figures.convergence_curve(panel, i))
            for i, curve in enumerate(panel.curves)
            # one point is no curve
            if len(curve) > 1
        ],
        "cost_figure": figures.score_against_tokens(panel) if panel.compares_costs else None,
        "provenance": panel_provenance(panel),
    }


# -- sizes, files and warnings -------------------------------------------------------------------


def _panel_size(panel: TaskPanel) -> str:
    models = plural(len(panel.board.models), "model")
    return f"{models} · {plural(panel.board.n_questions, 'question')} · {panel.scores.trials}"


def _size(data: ReportData) -> str:
    if len(data.panels) == 1:
        return _panel_size(data.panels[0])
    sizes = (len(data.models), "model"), (data.n_questions, "question"), (data.n_trials, "trial")
    return " · ".join(plural(*size) for size in sizes)


def _default_title(data: ReportData) -> str:
    tasks = [name(task) for task in data.tasks]
    return f"{len(tasks)} tasks" if len(tasks) > 3 else join_words(tasks)


def _files(data: ReportData) -> list[tuple[str, str]]:
    """Return the first files that were read, and their hashes."""
    sources = dict.fromkeys(s for panel in data.panels for run in panel.runs for s in run.sources)
    files = []
    for source in list(sources)[:_MAX_FILES]:
        path = Path(source)
        if path.is_file():
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
            files.append((name(short_path(source)), digest.hexdigest()))
    return files


def _notes(data: ReportData) -> list[str]:
    """Return the distinct warnings of the reader, the rankings and the runs."""
    notes = [*data.warnings]
    for panel in data.panels:
        task = f"{panel.board.task}: " if len(data.tasks) > 1 else ""
        notes += [f"{task}{note}" for note in panel.board.notes]
        of_model = {s.run.model: (*s.run.notes, s.over_settings[1]) for s in panel.summaries}
        for note in dict.fromkeys(note for notes in of_model.values() for note in notes if note):
            models = [model for model, notes in of_model.items() if note in notes]
            of_all = len(models) == len(panel.board.models) > 1
            of = "" if of_all else f"{join_words(models)}: "
            if len(models) > 1 and begins_with_count(note):
                of = "each model: " if of_all else f"each of {join_words(models)}: "
            notes.append(f"{task}{of}{note}")
    return [truncate(note, 400).shown for note in dict.fromkeys(notes)]


# -- markup --------------------------------------------------------------------------------------


def _published(value: Any) -> Any:
    """Return JSON types without folders of the machine, long strings and NaN."""
    if isinstance(value, dict):
        return {
            key: _published([*map(short_path, item)] if key in ("sources", "labels") else item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_published(item) for item in value]
    if isinstance(value, str):
        return value if len(value) <= _MAX_JSON_STRING else f"{value[:_MAX_JSON_STRING]}…"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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
