"""What `lm-eval-bayes rubric` prints."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import (
    format_interval,
    format_mean_sd,
    interval_label,
    one_line,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.output import say, say_table

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.rubric_runs import ClassifiedRuns
    from lm_eval_bayes.analysis.rubric_table import ModelScore, RubricTable

#: Above so many, runs are counted and not named; --json names them.
_RUNS_SHOWN = 4


def show_table(table: RubricTable, origin: str | None, given: Collection[str]) -> None:
    """Print the scores of one task's runs under rubrics, and what they rest on."""
    found = table.classified
    runs = found.source.runs
    over = ", ".join(runs) if len(runs) <= _RUNS_SHOWN else plural(len(runs), "run")
    how = f"frozen on {found.source.date} in {origin}" if origin else "not frozen"
    asked = plural(found.n_questions, "question")
    say(f"{found.task}: {asked}, {table.prior}@N about {scope_label(table.scope)}")
    say(f"thresholds {found.thresholds.hash}, {how}, taken over {over}")
    say(f"invalid: {_invalid(found)}")
    for row in table.rows:
        if row.schema.name in given:
            told = ",".join(f"{weight:g}" for weight in row.schema.weights)
            say(f"weights given: {row.schema.name}={told}")
    if len(found.models) == 1:
        _show_one(table)
    else:
        _show_many(table)
    for line in _left_out(found):
        say(line)


def _left_out(found: ClassifiedRuns) -> list[str]:
    """Return a line for every reason, with the schemata that it keeps out."""
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in found.left_out:
        reasons.setdefault((one.lacks, one.models), []).append(one.schema)
    return [
        f"left out: {', '.join(schemata)}, for want of {lacks}"
        + ("" if models == found.models else f", in {', '.join(models)}")
        for (lacks, models), schemata in reasons.items()
    ]


def _invalid(found: ClassifiedRuns) -> str:
    from lm_eval_bayes.analysis.rubric_runs import verifier_name

    if found.verifier is None:
        return "generation that did not come to a stop; no verifier took part"
    name = verifier_name(found.verifier)
    return f"generation that did not come to a stop, or C >= .50 by {name}, whose A >= .6 is high"


def _head(table: RubricTable) -> list[str]:
    return ["schema", *map(one_line, table.classified.models)]


def _show_many(table: RubricTable) -> None:
    """Show a column for every model, with the intervals if they fit; else a list a schema."""
    title = "mean ± sd (rank)"
    for shown, cell in ((f"{title}, {_interval(table)}", _with_interval), (title, _cell)):
        rows = [[row.schema.name, *map(cell, row.scores)] for row in table.rows]
        columns = zip(_head(table), *rows, strict=True)
        width = sum(max(map(len, column)) + 2 for column in columns)
        if width <= shutil.get_terminal_size((120, 24)).columns:
            say_table(shown, _head(table), rows)
            return
    _show_lists(table)


def _cell(one: ModelScore) -> str:
    missing = f", missing {one.score.missing:,} of {one.n_trials:,}" if one.score.missing else ""
    return f"{_mean(one)} ({one.rank}){missing}"


def _with_interval(one: ModelScore) -> str:
    mean, more = f"{_mean(one)} ({one.rank})", _cell(one)
    return f"{mean}, {format_interval(one.interval)}{more[len(mean) :]}"


def _mean(one: ModelScore) -> str:
    return format_mean_sd(one.mu, one.sigma)


def _interval(table: RubricTable) -> str:
    return interval_label(table.level, table.interval)


def _show_one(table: RubricTable) -> None:
    head = ("schema", *_columns(table))
    lines = [(row.schema.name, *_numbers(one)) for row in table.rows for one in row.scores]
    say_table(one_line(table.classified.models[0]), head, lines)


def _show_lists(table: RubricTable) -> None:
    for row in table.rows:
        best_first = sorted(row.scores, key=lambda one: (one.rank, -one.mu))
        lines = [(one.rank, one.model, *_numbers(one)) for one in best_first]
        say_table(row.schema.name, ("rank", "model", *_columns(table)), lines)


def _columns(table: RubricTable) -> tuple[str, ...]:
    return ("mean ± sd", _interval(table), "missing")


def _numbers(one: ModelScore) -> tuple[str, ...]:
    return (
        _mean(one),
        format_interval(one.interval),
        f"{one.score.missing:,} of {one.n_trials:,}",
    )
